"""litdata, MDS and parquet: tokens in, the same tokens out, read without the package."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
import pytest
from chunked_readers import read_litdata, read_mds, read_parquet
from support import ROOT
from token_sources import Documents, write_format, write_source

from penstok.errors import DamageError, UsageError
from penstok.output.formats import parquet
from penstok.output.formats.base import FormatOptions, SplitTokens, TokenFile, TokenSource
from penstok.output.formats.litdata import LitdataFormat
from penstok.output.formats.mds import MdsFormat
from penstok.output.formats.parquet import ParquetFormat
from penstok.output.formats.registry import OUTPUT_FORMATS
from penstok.types import TokenizerRecord

Dtype = Literal["uint16", "uint32"]
DTYPES: list[Dtype] = ["uint16", "uint32"]
# 40 tokens in all; the third has one token, the fourth goes over several shards.
TRAIN: Documents = [
    [11, 12, 13, 0],
    [21, 22, 0],
    [0],
    [*range(1000, 1020), 0],
    [41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 0],
]
VAL: Documents = [[50255, 1, 0], [2, 0]]
TOKENS = [token for document in TRAIN for token in document]
LARGE = 100_000


def large(documents: Documents, dtype: Dtype) -> Documents:
    """Add ids that need 32 bits where there is room for them."""
    add = LARGE if dtype == "uint32" else 0
    return [[token + add for token in document] for document in documents]


def flat(documents: Documents) -> list[int]:
    return [token for document in documents for token in document]


@pytest.fixture(params=[None, 7, 1], ids=["one file", "shards of 7", "shards of 1"])
def shard_tokens(request: pytest.FixtureRequest) -> int | None:
    chosen: int | None = request.param
    return chosen


@pytest.mark.parametrize("name", ["litdata", "mds", "parquet"])
def test_the_registry_has_the_format_by_its_name(name: str) -> None:
    found = OUTPUT_FORMATS[name]
    assert found.name == name
    assert not found.is_beside
    assert type(found).__name__ == f"{name.title()}Format"


def test_documents_can_be_read_from_any_number_on(tmp_path: Path, shard_tokens: int | None) -> None:
    source = write_source(tmp_path, train=TRAIN, shard_tokens=shard_tokens)
    split = source.splits["train"]
    starts = [sum(map(len, TRAIN[:idx])) for idx in range(len(TRAIN))]
    for first in range(len(TRAIN) + 2):
        pieces = list(split.iter_documents(first))
        assert [start for piece, _ in pieces for start in piece.tolist()] == starts[first:]
        ends = [end for _, piece in pieces for end in piece.tolist()]
        assert ends == [*starts[1:], len(TOKENS)][first:]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", [1, 4, 7, 39, 40, 41])
def test_litdata_has_all_tokens_and_its_loader_drops_only_the_tail(
    tmp_path: Path, shard_tokens: int | None, dtype: Dtype, block: int
) -> None:
    train = large(TRAIN, dtype)
    source = write_source(
        tmp_path / "in", train=train, val=VAL, dtype=dtype, shard_tokens=shard_tokens
    )
    options = FormatOptions(sequence_length=block, shard_tokens=2 * block + 1)
    written = write_format(LitdataFormat(), source, tmp_path / "out", options)
    tokens, blocks = read_litdata(tmp_path / "out" / "train", block)
    assert tokens == flat(train)
    assert flat(blocks) == flat(train)[: len(tokens) // block * block]
    assert read_litdata(tmp_path / "out" / "val", block)[0] == flat(VAL)
    # The index after the chunks, so that a folder with an index is complete.
    names = [name for name in written if name.startswith("train/")]
    assert names[-1] == "train/index.json"
    assert names[0] == "train/chunk-0-0.bin"


def test_litdata_cuts_chunks_between_blocks(tmp_path: Path) -> None:
    source = write_source(tmp_path / "in", train=TRAIN)
    options = FormatOptions(sequence_length=6, shard_tokens=17)
    write_format(LitdataFormat(), source, tmp_path / "out", options)
    index = json.loads((tmp_path / "out" / "train" / "index.json").read_text())
    # The last has the four tokens that are no block; a chunk of its own would be one without any.
    assert [chunk["dim"] for chunk in index["chunks"]] == [12, 12, 16]
    assert index["config"]["chunk_bytes"] == 24
    assert index["updated_at"] == "0"


def test_litdata_has_a_default_block_and_chunk() -> None:
    index = json.loads(content(LitdataFormat(), pretend_source(100_000_000))["train/index.json"])
    sizes = [chunk["dim"] for chunk in index["chunks"]]
    assert sizes == [31_999_233, 31_999_233, 31_999_233, 100_000_000 - 3 * 31_999_233]
    assert 31_999_233 % 2049 == 0


def test_litdata_keeps_chunks_below_four_gibibytes() -> None:
    source = pretend_source(10_000_000_000)
    files = LitdataFormat().iter_files(source, FormatOptions(shard_tokens=10**12))
    sizes = [file.num_tokens for file in files]
    assert sum(sizes) == 10_000_000_000
    assert max(sizes) * 2 + 12 < 2**32


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 4, 7, 39, 40, 41])
def test_mds_has_all_tokens_but_the_tail_and_counts_it(
    tmp_path: Path, shard_tokens: int | None, dtype: Dtype, length: int
) -> None:
    train = large(TRAIN, dtype)
    source = write_source(
        tmp_path / "in", train=train, val=VAL, dtype=dtype, shard_tokens=shard_tokens
    )
    options = FormatOptions(sequence_length=length, shard_tokens=2 * length + 1)
    written = write_format(MdsFormat(), source, tmp_path / "out", options)
    samples = read_mds(tmp_path / "out" / "train")
    assert flat(samples) == flat(train)[: len(TOKENS) // length * length]
    files = list(MdsFormat().iter_files(source, options))
    dropped = {file.name: file.dropped_tokens for file in files if file.dropped_tokens}
    tails = {"train/index.json": 40 % length, "val/index.json": 5 % length}
    assert dropped == {name: tail for name, tail in tails.items() if tail}
    assert sum(file.num_tokens + file.dropped_tokens for file in files) == 45
    assert [name for name in written if name.startswith("train/")][-1] == "train/index.json"


def test_mds_fills_shards_as_its_own_writer_does() -> None:
    source = pretend_source(100_000_000)
    files = list(MdsFormat().iter_files(source, FormatOptions()))
    index = json.loads(b"".join(map(bytes, files[-1].content)))
    sizes = [shard["raw_data"]["bytes"] for shard in index["shards"]]
    # One more sample, with its offset, would be over the limit.
    assert all(2**26 - (4096 + 4) < size <= 2**26 for size in sizes[:-1])
    assert index["shards"][0]["size_limit"] == 2**26
    assert files[-1].dropped_tokens == 100_000_000 % 2048


def test_mds_keeps_shards_below_four_gibibytes() -> None:
    source = pretend_source(10_000_000_000)
    files = list(MdsFormat().iter_files(source, FormatOptions(shard_tokens=10**12)))
    index = json.loads(b"".join(map(bytes, files[-1].content)))
    sizes = [shard["raw_data"]["bytes"] for shard in index["shards"]]
    assert len(sizes) == 5
    assert max(sizes) < 2**32
    assert index["shards"][0]["size_limit"] is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_parquet_has_a_row_for_every_document(
    tmp_path: Path, shard_tokens: int | None, dtype: Dtype
) -> None:
    train = large(TRAIN, dtype)
    source = write_source(
        tmp_path / "in", train=train, val=VAL, dtype=dtype, shard_tokens=shard_tokens
    )
    written = write_format(
        ParquetFormat(), source, tmp_path / "out", FormatOptions(shard_tokens=10)
    )
    rows = read_parquet(tmp_path / "out")
    assert [row["input_ids"] for row in rows] == train
    assert [row["input_ids"] for row in read_parquet(tmp_path / "out", "val")] == VAL
    # The fourth document has more tokens than a file is to have: it is alone in one.
    files = ParquetFormat().iter_files(source, FormatOptions(shard_tokens=10))
    assert [file.num_tokens for file in files] == [8, 21, 11, 5]
    schema = pq.read_schema(tmp_path / "out" / next(iter(written)))
    item = "int32" if dtype == "uint32" else "uint16"
    assert str(schema.field("input_ids").type) == f"list<element: {item}>"


@pytest.mark.parametrize("length", [1, 4, 7, 40, 41])
def test_parquet_rows_of_a_length_have_all_tokens(
    tmp_path: Path, shard_tokens: int | None, length: int
) -> None:
    source = write_source(tmp_path / "in", train=TRAIN, shard_tokens=shard_tokens)
    options = FormatOptions(sequence_length=length, shard_tokens=2 * length + 1)
    write_format(ParquetFormat(), source, tmp_path / "out", options)
    rows = [row["input_ids"] for row in read_parquet(tmp_path / "out")]
    assert rows == [TOKENS[at : at + length] for at in range(0, 40, length)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_parquet_writes_the_columns_that_axolotl_wants(tmp_path: Path, dtype: Dtype) -> None:
    train = large(TRAIN, dtype)
    source = write_source(tmp_path / "in", train=train, dtype=dtype)
    options = FormatOptions(columns=("input_ids", "attention_mask", "labels"))
    write_format(ParquetFormat(), source, tmp_path / "out", options)
    rows = read_parquet(tmp_path / "out")
    assert [list(row) for row in rows] == [["input_ids", "attention_mask", "labels"]] * len(TRAIN)
    for row, document in zip(rows, train, strict=True):
        assert row["input_ids"] == row["labels"] == document
        assert row["attention_mask"] == [1] * len(document)


def test_parquet_divides_a_document_that_is_too_long_for_a_row_and_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_tokens: int | None
) -> None:
    monkeypatch.setattr(parquet, "MAX_ROW_TOKENS", 8)
    source = write_source(tmp_path / "in", train=TRAIN, shard_tokens=shard_tokens)
    options = FormatOptions(shard_tokens=16)
    write_format(ParquetFormat(), source, tmp_path / "out", options)
    rows = [row["input_ids"] for row in read_parquet(tmp_path / "out")]
    assert flat(rows) == TOKENS
    assert [len(row) for row in rows] == [4, 3, 1, 8, 8, 5, 8, 3]
    files = list(ParquetFormat().iter_files(source, options))
    # Where the document begins, not where it ends.
    assert [(file.num_tokens, file.split_documents) for file in files] == [
        (16, 1),
        (13, 0),
        (11, 1),
    ]


@pytest.mark.parametrize("group", [1, 5, 16, 100])
def test_parquet_writes_a_row_group_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    monkeypatch.setattr(parquet, "GROUP_TOKENS", group)
    monkeypatch.setattr(parquet, "_ROWS", 3)
    source = write_source(tmp_path / "in", train=TRAIN)
    for length in (None, 4):
        folder = tmp_path / f"out-{length}"
        write_format(ParquetFormat(), source, folder, FormatOptions(sequence_length=length))
        file = pq.ParquetFile(folder / "train-00000.parquet")
        sizes = []
        for idx in range(file.num_row_groups):
            rows = file.read_row_group(idx)["input_ids"].to_pylist()
            sizes.append([len(row) for row in rows])
        assert all(sum(rows) <= group or len(rows) == 1 for rows in sizes)
        # No group is smaller than it must be.
        both = itertools.pairwise(sizes)
        assert all(sum(rows) + following[0] > group for rows, following in both)
        assert flat(file.read()["input_ids"].to_pylist()) == TOKENS


def test_parquet_bytes_do_not_depend_on_the_shards_they_are_made_from(tmp_path: Path) -> None:
    found = set()
    for size in (None, 1, 7):
        source = write_source(tmp_path / f"in-{size}", train=TRAIN, shard_tokens=size)
        written = write_format(ParquetFormat(), source, tmp_path / f"out-{size}")
        found.add(written["train-00000.parquet"])
    assert len(found) == 1


def test_parquet_has_no_statistics_of_ids(tmp_path: Path) -> None:
    source = write_source(tmp_path / "in", train=TRAIN)
    write_format(ParquetFormat(), source, tmp_path / "out")
    metadata = pq.read_metadata(tmp_path / "out" / "train-00000.parquet")
    column = metadata.row_group(0).column(0)
    assert not column.is_stats_set
    assert column.compression == "ZSTD"


@pytest.mark.parametrize("name", ["litdata", "mds", "parquet"])
def test_an_empty_split_has_no_files(tmp_path: Path, name: str) -> None:
    source = write_source(tmp_path / "in", train=TRAIN)
    written = write_format(OUTPUT_FORMATS[name], source, tmp_path / "out")
    assert written
    assert not [each for each in written if each.startswith("val")]
    empty = TokenSource(source.tokenizer, "append", {"train": SplitTokens("uint16", [])})
    assert write_format(OUTPUT_FORMATS[name], empty, tmp_path / "empty") == {}


@pytest.mark.parametrize("name", ["litdata", "mds", "parquet"])
def test_files_can_be_skipped_and_are_the_same_again(tmp_path: Path, name: str) -> None:
    source = write_source(tmp_path / "in", train=TRAIN, val=VAL, shard_tokens=9)
    options = FormatOptions(sequence_length=4, shard_tokens=8)
    whole = write_format(OUTPUT_FORMATS[name], source, tmp_path / "out", options)
    # Only the last: an earlier run has written the others.
    for skipped in range(len(whole)):
        files = list(OUTPUT_FORMATS[name].iter_files(source, options))[skipped:]
        again = {file.name: b"".join(map(bytes, file.content)) for file in files}
        assert again.items() <= whole.items()


@pytest.mark.parametrize("name", ["litdata", "mds", "parquet"])
def test_a_token_file_that_is_too_short_is_damage(tmp_path: Path, name: str) -> None:
    source = write_source(tmp_path / "in", train=TRAIN)
    (tmp_path / "in" / "train.bin").write_bytes(b"\1\0")
    with pytest.raises(DamageError, match="ends too early"):
        write_format(
            OUTPUT_FORMATS[name], source, tmp_path / "out", FormatOptions(sequence_length=4)
        )


@pytest.mark.parametrize(
    ("name", "options", "what", "where"),
    [
        ("litdata", FormatOptions(sequence_length=0), "does not fit", "--sequence-length"),
        ("litdata", FormatOptions(sequence_length=2**32), "does not fit", "--sequence-length"),
        ("litdata", FormatOptions(shard_tokens=2048), "smaller than one block", "--shard-tokens"),
        ("mds", FormatOptions(sequence_length=0), "does not fit", "--sequence-length"),
        ("mds", FormatOptions(sequence_length=2**31), "does not fit", "--sequence-length"),
        ("mds", FormatOptions(shard_tokens=2047), "smaller than one sample", "--shard-tokens"),
        ("parquet", FormatOptions(sequence_length=2**25), "between 1 and", "--sequence-length"),
        ("parquet", FormatOptions(sequence_length=0), "between 1 and", "--sequence-length"),
        (
            "parquet",
            FormatOptions(sequence_length=10, shard_tokens=9),
            "smaller than one row",
            "--shard-tokens",
        ),
        ("parquet", FormatOptions(columns=("input_ids", "text")), "`text`; known", "--columns"),
        ("parquet", FormatOptions(columns=("labels",)), "must have `input_ids`", "--columns"),
        ("parquet", FormatOptions(columns=("input_ids",) * 2), "each once", "--columns"),
    ],
)
def test_what_no_reader_could_use_is_refused(
    name: str, options: FormatOptions, what: str, where: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(what)) as caught:
        OUTPUT_FORMATS[name].refuse(pretend_source(10), options)
    assert caught.value.where == where
    assert caught.value.next_step


def test_parquet_refuses_ids_beyond_int32() -> None:
    source = pretend_source(10, vocab_size=2**31 + 1)
    with pytest.raises(UsageError, match="int32"):
        ParquetFormat().refuse(source, FormatOptions())


@pytest.mark.parametrize("name", ["litdata", "mds", "parquet"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reader_on_the_page_reads_the_format(tmp_path: Path, name: str, dtype: Dtype) -> None:
    train = large(TRAIN, dtype)
    source = write_source(tmp_path / "in", train=train, dtype=dtype)
    options = FormatOptions(sequence_length=4, shard_tokens=8)
    write_format(OUTPUT_FORMATS[name], source, tmp_path / "out", options)
    page = (ROOT / "docs" / "reference" / "formats" / f"{name}.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(code.splitlines()) <= 20
    names: dict[str, object] = {}
    exec(code, names)
    read = names["read_tokens"]
    assert callable(read)
    folder = tmp_path / "out" if name == "parquet" else tmp_path / "out" / "train"
    assert np.asarray(read(folder)).tolist() == flat(train)


def pretend_source(num_tokens: int, vocab_size: int = 50257) -> TokenSource:
    """Return a source of any size without files, as there is before a job."""
    file = TokenFile("train.bin", Path("train.bin"), num_tokens, Path("train.npy"), 1)
    record = TokenizerRecord("gpt2", vocab_size, 0, "00")
    return TokenSource(record, "append", {"train": SplitTokens("uint16", [file])})


def content(chosen: LitdataFormat, source: TokenSource) -> dict[str, bytes]:
    """Return the content of the indexes."""
    return {
        file.name: b"".join(map(bytes, file.content))
        for file in chosen.iter_files(source, FormatOptions())
        if file.name.endswith(".json")
    }
