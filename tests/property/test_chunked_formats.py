"""litdata, MDS and parquet: whatever the sizes, no token is lost, added or moved."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from unittest import mock

from chunked_readers import read_litdata, read_mds, read_parquet
from hypothesis import given
from hypothesis import strategies as st
from token_sources import write_format, write_source

from penstok.output.formats import parquet
from penstok.output.formats.base import FormatOptions
from penstok.output.formats.litdata import LitdataFormat
from penstok.output.formats.mds import MdsFormat
from penstok.output.formats.parquet import ParquetFormat

Dtype = Literal["uint16", "uint32"]
DOCUMENTS = st.lists(
    st.lists(st.integers(0, 65535), min_size=1, max_size=30), min_size=1, max_size=12
)
DTYPES: st.SearchStrategy[Dtype] = st.sampled_from(["uint16", "uint32"])
SIZES = st.integers(1, 40)
SHARDS = st.none() | SIZES


@given(DOCUMENTS, DTYPES, SHARDS, SIZES, st.integers(1, 5))
def test_litdata_keeps_all_tokens_for_any_block_and_chunk(
    documents: list[list[int]], dtype: Dtype, shard: int | None, block: int, blocks: int
) -> None:
    tokens = [token for document in documents for token in document]
    with TemporaryDirectory() as name:
        folder = Path(name)
        source = write_source(folder / "in", train=documents, dtype=dtype, shard_tokens=shard)
        options = FormatOptions(sequence_length=block, shard_tokens=block * blocks + block // 2)
        write_format(LitdataFormat(), source, folder / "out", options)
        found, seen = read_litdata(folder / "out" / "train", block)
    assert found == tokens
    # What the loader shows is everything but a tail shorter than a block.
    assert [token for each in seen for token in each] == tokens[: len(tokens) // block * block]


@given(DOCUMENTS, DTYPES, SHARDS, SIZES, st.integers(1, 5))
def test_mds_keeps_or_counts_all_tokens_for_any_sample_and_shard(
    documents: list[list[int]], dtype: Dtype, shard: int | None, length: int, samples: int
) -> None:
    tokens = [token for document in documents for token in document]
    with TemporaryDirectory() as name:
        folder = Path(name)
        source = write_source(folder / "in", train=documents, dtype=dtype, shard_tokens=shard)
        options = FormatOptions(sequence_length=length, shard_tokens=length * samples)
        write_format(MdsFormat(), source, folder / "out", options)
        found = [token for sample in read_mds(folder / "out" / "train") for token in sample]
        files = list(MdsFormat().iter_files(source, options))
    assert found == tokens[: len(found)]
    assert len(found) == sum(file.num_tokens for file in files)
    assert len(tokens) - len(found) == sum(file.dropped_tokens for file in files) < length


@given(DOCUMENTS, DTYPES, SHARDS, st.none() | SIZES, SIZES, SIZES, SIZES)
def test_parquet_keeps_all_tokens_for_any_rows_groups_and_files(
    documents: list[list[int]],
    dtype: Dtype,
    shard: int | None,
    length: int | None,
    file_tokens: int,
    group: int,
    most: int,
) -> None:
    tokens = [token for document in documents for token in document]
    with (
        TemporaryDirectory() as name,
        mock.patch.object(parquet, "GROUP_TOKENS", group),
        mock.patch.object(parquet, "MAX_ROW_TOKENS", max(most, length or 1)),
        mock.patch.object(parquet, "_ROWS", 4),
    ):
        folder = Path(name)
        source = write_source(folder / "in", train=documents, dtype=dtype, shard_tokens=shard)
        chosen = max(file_tokens, length or 1)
        options = FormatOptions(sequence_length=length, shard_tokens=chosen)
        write_format(ParquetFormat(), source, folder / "out", options)
        rows = [row["input_ids"] for row in read_parquet(folder / "out")]
        files = list(ParquetFormat().iter_files(source, options))
    assert [token for row in rows for token in row] == tokens
    assert sum(file.num_tokens for file in files) == len(tokens)
    if length is None:
        longer = [document for document in documents if len(document) > most]
        assert sum(file.split_documents for file in files) == len(longer)
        assert longer or rows == documents
    else:
        assert {len(row) for row in rows[:-1]} <= {length}
