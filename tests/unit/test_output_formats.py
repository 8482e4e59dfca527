"""Formats for other trainers: read back by their rules, and imports of damaged or hostile files."""

from __future__ import annotations

import csv
import gzip
import itertools
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from support import ROOT
from token_sources import (
    EOT,
    Documents,
    import_source,
    read_documents,
    with_eot,
    write_format,
    write_source,
)

from penstok.errors import DamageError, InputError, PenstokError, UsageError
from penstok.output.documents import npy_header
from penstok.output.formats import importing, olmo
from penstok.output.formats.base import (
    FormatOptions,
    ImportedFile,
    ImportOptions,
    TokenSource,
)
from penstok.output.formats.datatrove import DatatroveFormat
from penstok.output.formats.llmc import LlmcFormat
from penstok.output.formats.megatron import MegatronFormat
from penstok.output.formats.olmo import OlmoFormat
from penstok.output.formats.raw import RawFormat
from penstok.output.formats.registry import IMPORTABLE_FORMATS, OUTPUT_FORMATS
from penstok.output.formats.torchtitan import TorchtitanFormat
from penstok.types import Split, replace

PAGES = ROOT / "docs" / "reference" / "formats"
Dtype = Literal["uint16", "uint32"]
TEXTS = [[1, 2, 3], [4], [], [5, 6, 7, 8, 9, 10, 11], [12], [13, 14]]
APPEND = ImportOptions(eot_id=EOT, eot="append")
DTYPES = pytest.mark.parametrize("dtype", ["uint16", "uint32"])
SHARDS = pytest.mark.parametrize("shard_tokens", [None, 1, 4, 100])


def small_source(
    folder: Path, dtype: Dtype = "uint16", shard_tokens: int | None = None, **settings: Any
) -> TokenSource:
    """Write documents of several lengths, one of them over more than two shards of four."""
    documents = with_eot(TEXTS, settings.get("eot", "append"))
    if dtype == "uint32":
        documents = [[id_ + 70_000 if id_ else id_ for id_ in each] for each in documents]
    return write_source(
        folder,
        train=documents,
        val=documents[:1],
        dtype=dtype,
        shard_tokens=shard_tokens,
        **settings,
    )


def runs_of(source: TokenSource, split: Split = "train") -> list[tuple[str, list[list[int]]]]:
    """Read what each token file and its index hold, by NumPy alone."""
    found = []
    for file in source.splits[split].files:
        tokens = np.fromfile(str(file.path), source.dtype).tolist()
        entries = np.load(str(file.index)).tolist()
        runs = [tokens[start:end] for start, end in itertools.pairwise(entries)]
        found.append((file.name.removesuffix(".bin"), runs))
    return found


def flat(documents: Documents) -> list[int]:
    return [token for document in documents for token in document]


def tokens_of(source: TokenSource, split: Split = "train") -> list[int]:
    return flat([run for _, runs in runs_of(source, split) for run in runs])


# Each format, by the rules of its reader.


@DTYPES
@SHARDS
def test_megatron_has_one_sequence_per_run_of_tokens(
    tmp_path: Path, dtype: Dtype, shard_tokens: int | None
) -> None:
    source = small_source(tmp_path, dtype, shard_tokens)
    written = write_format(MegatronFormat(), source, tmp_path)
    runs = [*runs_of(source), *runs_of(source, "val")]
    assert sorted(written) == sorted(f"{name}.idx" for name, _ in runs)
    for name, sequences in runs:
        data = written[f"{name}.idx"]
        magic, version, code, count, num_indices = struct.unpack_from("<9sQBQQ", data)
        assert (magic, version) == (b"MMIDIDX\0\0", 1)
        assert code == {"uint16": 8, "uint32": 4}[dtype]
        lengths = np.frombuffer(data, "<i4", count, 34)
        pointers = np.frombuffer(data, "<i8", count, 34 + 4 * count)
        indices = np.frombuffer(data, "<i8", num_indices, 34 + 12 * count)
        assert len(data) == 42 + 20 * count
        assert indices.tolist() == list(range(count + 1))
        tokens = (tmp_path / f"{name}.bin").read_bytes()
        own = np.uint16 if code == 8 else np.int32
        read = [
            np.frombuffer(tokens, own, length, pointer).tolist()
            for length, pointer in zip(lengths, pointers, strict=True)
        ]
        assert read == sequences


def test_megatron_indexes_an_empty_file(tmp_path: Path) -> None:
    source = write_source(tmp_path, train=[[1, EOT]])
    written = write_format(MegatronFormat(), source, tmp_path)
    assert written["val.idx"] == struct.pack("<9sQBQQq", b"MMIDIDX\0\0", 1, 8, 0, 1, 0)


def test_megatron_refuses_ids_that_int32_cannot_hold(tmp_path: Path) -> None:
    source = small_source(tmp_path, "uint32", vocab_size=1 << 31)
    with pytest.raises(UsageError, match="no type for 2147483648") as raised:
        MegatronFormat().refuse(source, FormatOptions())
    assert raised.value.next_step
    MegatronFormat().refuse(small_source(tmp_path, "uint32", vocab_size=200_000), FormatOptions())


MOST = (1 << 31) - 1


@pytest.mark.parametrize(
    "lengths",
    [
        [MOST + 6],
        [3, 2 * MOST, 5],
        [MOST, 1, 2 * MOST + 1, MOST + 1],
        [1] * 70_000 + [MOST + 1] + [2] * 70_000,
    ],
)
def test_megatron_divides_a_document_that_is_too_long(tmp_path: Path, lengths: list[int]) -> None:
    source = write_source(tmp_path, train=[[1]])
    (file,) = source.splits["train"].files
    starts = np.cumsum([0, *lengths])
    long = replace(file, num_tokens=int(starts[-1]), num_documents=len(lengths))
    Path(str(long.index)).write_bytes(npy_header(len(starts)) + starts.astype("<u8").tobytes())
    # A file without blocks on disk: nobody reads the tokens.
    with Path(str(long.path)).open("r+b") as tokens:
        tokens.truncate(2 * long.num_tokens)
    source.splits["train"].files[0] = long
    train, _ = MegatronFormat().iter_files(source, FormatOptions())
    data = b"".join(train.content)
    assert train.split_documents == sum(length > MOST for length in lengths)
    # As `IndexedDataset` reads and checks it.
    num_sequences, num_indices = struct.unpack_from("<QQ", data, 18)
    assert num_indices == len(lengths) + 1
    sizes = np.frombuffer(data, "<i4", num_sequences, 34)
    pointers = np.frombuffer(data, "<i8", num_sequences, 34 + 4 * num_sequences)
    indices = np.frombuffer(data, "<i8", num_indices, 34 + 12 * num_sequences)
    assert len(data) == 34 + 12 * num_sequences + 8 * num_indices
    assert indices[-1] == len(sizes)
    assert int(sizes.min()) > 0
    assert np.array_equal(pointers, 2 * (np.cumsum(sizes, dtype=np.int64) - sizes))
    assert np.array_equal(np.add.reduceat(sizes, indices[:-1], dtype=np.int64), lengths)
    (tmp_path / "train.idx").write_bytes(data)
    options = ImportOptions(eot="append")
    (imported,) = MegatronFormat().open_files([tmp_path / "train.idx"], options)
    found = np.concatenate(list(imported.iter_starts()))
    assert np.array_equal(found, starts[:-1])


def read_llmc(data: bytes) -> list[int]:
    """Read a shard as `train_gpt2.py` and `train_llama3.py` do."""
    header = np.frombuffer(data, "<i4", 256)
    kinds = {20240520: (1, np.uint16), 20240801: (7, np.uint32)}
    version, dtype = kinds[int(header[0])]
    assert header[1] == version
    assert not header[3:].any()
    tokens = np.frombuffer(data, dtype, -1, 1024)
    assert len(tokens) == header[2]
    return [int(token) for token in tokens]


@DTYPES
@SHARDS
@pytest.mark.parametrize("own_tokens", [None, 1, 5, 1000])
def test_llmc_has_end_of_text_first(
    tmp_path: Path, dtype: Dtype, shard_tokens: int | None, own_tokens: int | None
) -> None:
    source = small_source(tmp_path, dtype, shard_tokens)
    options = FormatOptions(shard_tokens=own_tokens)
    written = write_format(LlmcFormat(), source, tmp_path / "llmc", options)
    for split in source.splits:
        names = [name for name in written if f"_{split}_" in name]
        shards = [read_llmc(written[name]) for name in names]
        assert names == [f"tokens_{split}_{idx:06d}.bin" for idx in range(len(names))]
        assert all(len(shard) == (own_tokens or len(shard)) for shard in shards[:-1])
        assert flat(shards) == [EOT, *tokens_of(source, split)[:-1]]


def test_llmc_keeps_end_of_text_that_comes_first(tmp_path: Path) -> None:
    source = small_source(tmp_path, eot="prepend")
    written = write_format(LlmcFormat(), source, tmp_path / "llmc")
    assert read_llmc(written["tokens_train_000000.bin"]) == tokens_of(source)


def test_llmc_keeps_a_last_token_that_is_not_end_of_text(tmp_path: Path) -> None:
    source = write_source(tmp_path, train=[[1, EOT], [2, 3]])
    written = write_format(LlmcFormat(), source, tmp_path / "llmc")
    assert read_llmc(written["tokens_train_000000.bin"]) == [EOT, 1, EOT, 2, 3]


def test_llmc_has_no_file_for_an_empty_split(tmp_path: Path) -> None:
    source = write_source(tmp_path, train=[[1, EOT]])
    assert [*write_format(LlmcFormat(), source, tmp_path / "llmc")] == ["tokens_train_000000.bin"]


def test_llmc_refuses_documents_without_end_of_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="end-of-text") as raised:
        LlmcFormat().refuse(small_source(tmp_path, eot="none"), FormatOptions())
    assert "--eot none" in raised.value.next_step


@DTYPES
def test_llmc_refuses_files_of_two_gib(tmp_path: Path, dtype: Dtype) -> None:
    largest = {"uint16": 1_073_741_311, "uint32": 536_870_655}[dtype]
    source = small_source(tmp_path, dtype)
    LlmcFormat().refuse(source, FormatOptions(shard_tokens=largest))
    for wrong in (0, largest + 1):
        with pytest.raises(UsageError, match="below 2 GiB") as raised:
            LlmcFormat().refuse(source, FormatOptions(shard_tokens=wrong))
        assert str(largest) in raised.value.next_step


def test_llmc_refuses_more_shards_than_its_names_can_number(tmp_path: Path) -> None:
    source = small_source(tmp_path)
    (file,) = source.splits["train"].files
    source.splits["train"].files[0] = replace(file, num_tokens=20_000_000)
    with pytest.raises(UsageError, match="more than 1000000 files") as raised:
        LlmcFormat().refuse(source, FormatOptions(shard_tokens=2))
    assert raised.value.next_step == "pass `--shard-tokens 21`"


@DTYPES
@SHARDS
def test_torchtitan_has_uint32_and_offsets(
    tmp_path: Path, dtype: Dtype, shard_tokens: int | None
) -> None:
    source = small_source(tmp_path, dtype, shard_tokens)
    folder = tmp_path / "torchtitan"
    write_format(TorchtitanFormat(), source, folder)
    tokens = np.memmap(folder / "train" / "tokens.bin", np.uint32, mode="r")
    offsets = np.load(folder / "train" / "document_offsets.npy")
    assert offsets.dtype == np.int64
    documents = [tokens[start:end].tolist() for start, end in itertools.pairwise(offsets)]
    added = 70_000 if dtype == "uint32" else 0
    assert documents == [[*(id_ + added for id_ in text), EOT] for text in TEXTS]


def test_torchtitan_links_only_what_is_the_same(tmp_path: Path) -> None:
    links = {}
    for dtype, shard_tokens in [("uint16", None), ("uint32", None), ("uint32", 4)]:
        folder = tmp_path / f"{dtype}{shard_tokens}"
        source = small_source(folder, dtype, shard_tokens)  # type: ignore[arg-type]
        first = next(iter(TorchtitanFormat().iter_files(source, FormatOptions())))
        links[dtype, shard_tokens] = first.same_as is not None
        assert first.num_tokens == source.splits["train"].num_tokens
    assert links == {("uint16", None): False, ("uint32", None): True, ("uint32", 4): False}


@DTYPES
@SHARDS
def test_olmo_has_raw_tokens_and_a_table(
    tmp_path: Path, dtype: Dtype, shard_tokens: int | None
) -> None:
    source = small_source(tmp_path, dtype, shard_tokens)
    written = write_format(OlmoFormat(), source, tmp_path / "olmo")
    numbers: list[int] = []
    for name, runs in runs_of(source):
        tokens = np.frombuffer(written[f"{name}.npy"], dtype)
        table = gzip.decompress(written[f"{name}.csv.gz"]).decode()
        assert table.count("\n") == table.count("\r\n") == len(runs)
        rows = list(csv.reader(table.splitlines()))
        assert [tokens[int(row[0]) : int(row[1])].tolist() for row in rows] == runs
        assert [row[3] for row in rows] == [f"{name}.bin"] * len(rows)
        assert [int(row[4]) for row in rows] == list(range(1, len(rows) + 1))
        numbers += [int(row[2]) for row in rows]
    # The rest of a document has the same number as its beginning.
    assert sorted(set(numbers)) == list(range(len(TEXTS)))
    assert numbers == sorted(numbers)


def test_olmo_tables_have_no_time_and_no_name(tmp_path: Path) -> None:
    source = small_source(tmp_path)
    written = write_format(OlmoFormat(), source, tmp_path / "olmo")
    assert written["train.csv.gz"][:8] == b"\x1f\x8b\x08\0\0\0\0\0"


@DTYPES
@SHARDS
def test_datatrove_has_the_ends_of_documents(
    tmp_path: Path, dtype: Dtype, shard_tokens: int | None
) -> None:
    source = small_source(tmp_path, dtype, shard_tokens, name="owner/na|me")
    written = write_format(DatatroveFormat(), source, tmp_path / "datatrove")
    for name, runs in runs_of(source):
        tokens = np.frombuffer(written[f"{name}.ds"], dtype)
        ends = np.frombuffer(written[f"{name}.ds.index"], "<u8").tolist()
        assert [tokens[start:end].tolist() for start, end in itertools.pairwise([0, *ends])] == runs
        described = written[f"{name}.ds.metadata"].decode().split("\n")
        size = np.dtype(dtype).itemsize
        count = len(tokens)
        digits = f"{count:.2f}" if count < 10 else f"{count:.1f}"
        assert described == [f"owner/na me|{size}", str(count), f"{digits} T"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0.00 T"),
        (7, "7.00 T"),
        (999, "999 T"),
        (1000, "1.00 kT"),
        (43153, "43.2 kT"),
        (999_499, "999 kT"),
        (999_500, "1.00 MT"),
        (9_995_000, "9.99 MT"),
        (9_996_000, "10.0 MT"),
        (12_345_678_901_234, "12.3 TT"),
    ],
)
def test_datatrove_describes_numbers_as_humanize_does(number: int, text: str) -> None:
    from penstok.output.formats.datatrove import _short

    assert _short(number) == text


@pytest.mark.parametrize("name", ["torchtitan", "olmo", "datatrove"])
def test_formats_that_are_mapped_have_no_empty_files(tmp_path: Path, name: str) -> None:
    source = write_source(tmp_path, train=[[1, EOT]])
    written = write_format(OUTPUT_FORMATS[name], source, tmp_path / name)
    assert written
    assert all(file.startswith("train") for file in written)


def test_registered_names_are_those_of_the_formats() -> None:
    assert all(name == row.name for name, row in OUTPUT_FORMATS.items())
    assert all(name == row.name for name, row in IMPORTABLE_FORMATS.items())


# An index that is not the one of its tokens.


@pytest.mark.parametrize(
    "entries", [[0, 20], [1, 4, 20], [0, 9, 4, 12, 13, 15, 20], [0, 4, 6, 7, 15, 17, 21], [0] * 8]
)
@pytest.mark.parametrize("name", ["megatron", "torchtitan", "olmo", "datatrove"])
def test_an_index_of_another_file_is_damage(tmp_path: Path, name: str, entries: list[int]) -> None:
    source = small_source(tmp_path)
    (file,) = source.splits["train"].files
    Path(str(file.index)).write_bytes(npy_header(len(entries)) + np.array(entries, "<u8").tobytes())
    files = OUTPUT_FORMATS[name].iter_files(source, FormatOptions())
    with pytest.raises(DamageError, match="is not the document index of `train") as raised:
        _ = [list(each.content) for each in files]
    assert "verify" in raised.value.next_step


# Imports.


def open_split(name: str, folder: Path, split: str, options: ImportOptions) -> list[ImportedFile]:
    """Import the files of one split, in order."""
    suffix = {"megatron": ".idx", "llmc": ".bin", "olmo": ".npy", "datatrove": ".ds"}[name]
    paths = sorted(path for path in folder.iterdir() if path.name.endswith(suffix))
    chosen = [path for path in paths if re.match(rf"(tokens_)?{split}", path.name)]
    return IMPORTABLE_FORMATS[name].open_files(chosen, options)


@pytest.mark.parametrize("name", ["megatron", "llmc", "olmo", "datatrove"])
@DTYPES
@SHARDS
def test_an_imported_export_has_the_same_documents_and_bytes(
    tmp_path: Path, name: str, dtype: Dtype, shard_tokens: int | None
) -> None:
    chosen = OUTPUT_FORMATS[name]
    eot: Literal["append", "prepend"] = "prepend" if name == "llmc" else "append"
    source = small_source(tmp_path / "first", dtype, shard_tokens, eot=eot)
    folder = tmp_path / "first" if chosen.is_beside else tmp_path / "first" / name
    own = FormatOptions(shard_tokens=shard_tokens)
    written = write_format(chosen, source, folder, own)
    options = ImportOptions(eot_id=EOT, eot=eot)
    files = {split: open_split(name, folder, split, options) for split in source.splits}
    assert read_documents(files["train"]) == [*map(list, rebuilt(source))]
    assert all(file.eot == eot for file in files["train"])
    again = import_source(files, tmp_path / "second", source)
    assert write_format(chosen, again, tmp_path / "second" / "out", own) == written


def rebuilt(source: TokenSource) -> list[list[int]]:
    """Read the documents of train, which may continue in the next file."""
    documents: list[list[int]] = []
    for file, (_, runs) in zip(source.splits["train"].files, runs_of(source), strict=True):
        if file.continues:
            documents[-1] += runs.pop(0)
        documents += runs
    return documents


def test_llmc_from_appended_tokens_is_imported_as_prepended(tmp_path: Path) -> None:
    source = small_source(tmp_path)
    write_format(LlmcFormat(), source, tmp_path / "llmc", FormatOptions(shard_tokens=4))
    files = open_split("llmc", tmp_path / "llmc", "train", ImportOptions(eot_id=EOT))
    assert read_documents(files) == [[EOT, *text] for text in TEXTS]
    assert {file.eot for file in files} == {"prepend"}


def write_megatron(
    folder: Path,
    sequences: Documents,
    indices: list[int],
    *,
    code: int = 8,
    version: int = 1,
    magic: bytes = b"MMIDIDX\0\0",
    pointers: list[int] | None = None,
    tail: bytes = b"",
) -> Path:
    """Write a dataset as Megatron lays it out, or one that is wrong somewhere."""
    dtype = {8: np.uint16, 4: np.int32}.get(code, np.uint8)
    lengths = [len(sequence) for sequence in sequences]
    size = np.dtype(dtype).itemsize
    if pointers is None:
        pointers = [0, *itertools.accumulate(length * size for length in lengths)][: len(lengths)]
    (folder / "x.bin").write_bytes(np.array(flat(sequences), dtype).tobytes())
    (folder / "x.idx").write_bytes(
        struct.pack("<9sQBQQ", magic, version, code, len(lengths), len(indices))
        + np.array(lengths, "<i4").tobytes()
        + np.array(pointers, "<i8").tobytes()
        + np.array(indices, "<i8").tobytes()
        + tail
    )
    return folder / "x.idx"


SENTENCES = [[1, 2], [3], [], [4, 5, 6], [7]]


@pytest.mark.parametrize("read_entries", [1, 2, 1000])
@pytest.mark.parametrize(
    ("indices", "documents", "num_empty"),
    [
        ([0, 1, 2, 3, 4, 5], [[1, 2], [3], [4, 5, 6], [7]], 1),
        ([0, 2, 5], [[1, 2, 3], [4, 5, 6, 7]], 0),
        ([0, 0, 0, 3, 3, 5, 5, 5], [[1, 2, 3], [4, 5, 6, 7]], 5),
        ([0, 2, 3, 5], [[1, 2, 3], [4, 5, 6, 7]], 1),
        ([0, 5], [[1, 2, 3, 4, 5, 6, 7]], 0),
    ],
)
def test_megatron_documents_have_any_number_of_sequences(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read_entries: int,
    indices: list[int],
    documents: list[list[int]],
    num_empty: int,
) -> None:
    monkeypatch.setattr(importing, "_READ_ENTRIES", read_entries)
    (file,) = MegatronFormat().open_files([write_megatron(tmp_path, SENTENCES, indices)], APPEND)
    assert read_documents([file]) == documents
    assert file.num_empty == num_empty


@pytest.mark.parametrize(
    ("first", "second", "continues"),
    [
        ([[1, EOT], [2]], [[3, EOT]], True),
        ([[1, 2]], [[3], [4, EOT]], False),  # [3] lacks its end-of-text id: it proves nothing
        ([[1], [2]], [[3]], False),
        ([[1, EOT], [2, EOT]], [[3, EOT]], False),
        ([[1, EOT, 2, EOT], [3]], [[4, EOT]], False),
        ([[1]], [[EOT]], True),
    ],
)
def test_an_index_continues_only_where_all_end_of_text_ids_agree(
    tmp_path: Path, first: Documents, second: Documents, continues: bool
) -> None:
    paths = []
    for name, sequences in (("first", first), ("second", second)):
        (tmp_path / name).mkdir()
        indices = list(range(len(sequences) + 1))
        paths.append(write_megatron(tmp_path / name, sequences, indices))
    files = MegatronFormat().open_files(paths, APPEND)
    assert [file.continues for file in files] == [False, continues]
    files = MegatronFormat().open_files(paths, ImportOptions(eot_id=EOT))
    assert not any(file.continues for file in files)


@pytest.mark.parametrize("given", ["x", "x.bin", "x.idx", "."])
def test_megatron_files_are_named_in_any_way(tmp_path: Path, given: str) -> None:
    write_megatron(tmp_path, SENTENCES, [0, 5])
    (file,) = MegatronFormat().open_files([tmp_path / given], ImportOptions())
    assert (file.path, file.dtype, file.eot) == (tmp_path / "x.bin", "uint16", None)


def test_megatron_int32_is_read_as_uint32_and_has_no_negative_ids(tmp_path: Path) -> None:
    path = write_megatron(tmp_path, [[1, 2], [70_000]], [0, 1, 2], code=4)
    (file,) = MegatronFormat().open_files([path], ImportOptions(dtype="uint32"))
    assert (file.dtype, file.token_dtype) == ("int32", "uint32")
    assert read_documents([file]) == [[1, 2], [70_000]]
    path = write_megatron(tmp_path, [[1, 2], [-5]], [0, 1, 2], code=4)
    (file,) = MegatronFormat().open_files([path], ImportOptions())
    with pytest.raises(InputError, match="token 2 has the negative id -5") as raised:
        list(file.iter_tokens())
    assert raised.value.where.endswith("x.bin, byte 8")


HUGE = (1 << 64) - 1


def overwrite(path: Path, offset: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


MEGATRON_DAMAGE: dict[str, tuple[dict[str, Any], Callable[[Path], object] | None, str]] = {
    "magic": ({"magic": b"MMIDIDY\0\0"}, None, "not a Megatron index"),
    "version": ({"version": 2}, None, "version 2"),
    "int64": ({"code": 5}, None, r"type 5 \(int64\)"),
    "float": ({"code": 7}, None, r"type 7 \(float32\)"),
    "unknown type": ({"code": 99}, None, r"type 99 \(unknown\)"),
    "multimodal": ({"tail": b"\0" * 5}, None, "multimodal"),
    "tail": ({"tail": b"\0\0"}, None, "asks for"),
    "empty": ({}, lambda path: path.write_bytes(b""), "not a Megatron index"),
    "header": ({}, lambda path: os.truncate(path, 20), "within its header"),
    "cut off": ({}, lambda path: os.truncate(path, path.stat().st_size - 1), "asks for"),
    "huge counts": ({}, lambda path: overwrite(path, 18, struct.pack("<QQ", HUGE, HUGE)), "asks"),
    "no index": ({}, lambda path: overwrite(path, 26, struct.pack("<Q", 0)), "asks for"),
    "negative length": ({}, lambda path: overwrite(path, 34, struct.pack("<i", -1)), "length -1"),
    "long": (
        {},
        lambda path: overwrite(path, 34 + 16, struct.pack("<i", 2**31 - 1)),
        "index lists 2147483653 tokens",
    ),
    "gap": ({"pointers": [0, 4, 6, 6, 14]}, None, "sequence 4 is at byte 14 instead of 12"),
    "negative pointer": ({"pointers": [-2, 4, 6, 6, 12]}, None, "sequence 0 is at byte -2"),
    "overlap": ({"pointers": [0, 0, 0, 0, 0]}, None, "do not follow each other"),
    "decreasing": ({"indices": [0, 3, 2, 5]}, None, "begin at 0 and increase"),
    "late start": ({"indices": [1, 3, 5]}, None, "begin at 0 and increase"),
    "early end": ({"indices": [0, 3]}, None, "ends at sequence 3"),
    "late end": ({"indices": [0, 3, 6]}, None, "ends at sequence 6"),
    "missing tokens": (
        {},
        lambda path: path.with_suffix(".bin").unlink(),
        "the file does not exist",
    ),
    "short tokens": ({}, lambda path: os.truncate(path.with_suffix(".bin"), 13), "13 bytes"),
    "more tokens": (
        {},
        lambda path: path.with_suffix(".bin").write_bytes(b"\0" * 16),
        "16 bytes",
    ),
}


@pytest.mark.parametrize("case", MEGATRON_DAMAGE)
def test_a_wrong_megatron_file_is_refused(tmp_path: Path, case: str) -> None:
    settings, change, message = MEGATRON_DAMAGE[case]
    path = write_megatron(tmp_path, SENTENCES, **{"indices": [0, 2, 5]} | settings)
    if change is not None:
        change(path)
    check_refused("megatron", path, ImportOptions(), message)


def check_refused(name: str, path: Path, options: ImportOptions, message: str) -> PenstokError:
    with pytest.raises((InputError, UsageError), match=message) as raised:
        IMPORTABLE_FORMATS[name].open_files([path], options)
    assert str(path.parent) in raised.value.where
    assert raised.value.next_step
    return raised.value


def llmc_header(*numbers: int) -> bytes:
    return struct.pack("<iii", *numbers).ljust(1024, b"\0")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "within its header"),
        (llmc_header(20240520, 1, 0)[:-1], "within its header"),
        (llmc_header(20240521, 1, 1) + b"\0\0", "begins with 20240521; known: 20240520, 20240801"),
        (llmc_header(20240522, 1, 1) + b"\0\0", "evaluation set"),
        (llmc_header(20240520, 2, 1) + b"\0\0", "version 2; known: 1"),
        (llmc_header(20240801, 1, 1) + b"\0\0", "version 1; known: 7"),
        (llmc_header(20240520, 1, 2) + b"\0\0", "has 1026 bytes, but its header lists 2"),
        (llmc_header(20240520, 1, -1) + b"\0\0", "lists -1"),
        (llmc_header(20240520, 1, 2**31 - 1) + b"\0\0", "lists 2147483647"),
        (llmc_header(20240801, 7, 1) + b"\0\0", "lists 1 tokens of uint32"),
        (llmc_header(20240520, 1, 1) + b"\1\0", "end-of-text id 0 is not in the file"),
    ],
)
def test_a_wrong_llmc_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(content)
    check_refused("llmc", path, ImportOptions(eot_id=EOT), message)


def test_llmc_needs_the_end_of_text_id(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(llmc_header(20240520, 1, 2) + b"\x50\xc4\1\0")
    error = check_refused("llmc", path, ImportOptions(), "which token ends a document")
    assert "--eot-token" in error.next_step
    assert error.next_step.endswith("the first token is 50256")


def write_datatrove(
    folder: Path, tokens: bytes, index: bytes | None, metadata: bytes | None = None
) -> Path:
    path = folder / "x.ds"
    path.write_bytes(tokens)
    for suffix, content in ((".index", index), (".metadata", metadata)):
        if content is not None:
            path.with_name(path.name + suffix).write_bytes(content)
    return path


def u64(*numbers: int) -> bytes:
    return np.array(numbers, "<u8").tobytes()


@pytest.mark.parametrize(
    ("tokens", "index", "metadata", "message"),
    [
        (b"\0" * 8, None, None, "does not exist"),
        (b"\0" * 8, u64(4)[:-1], None, "not a multiple of 8"),
        (b"\0" * 8, b"", None, "lists 0 tokens"),
        (b"\0" * 8, u64(3), None, "lists 3 tokens"),
        (b"\0" * 8, u64(3, 2, 4), None, "do not increase"),
        (b"\0" * 8, u64(HUGE), None, f"lists {HUGE} tokens"),
        (b"\0" * 8, u64(HUGE, 4), None, "do not increase"),
        (b"\0" * 8, u64(4), b"gpt2|4\n4\n4.00 T", "the tokens are uint16"),
        (b"\0" * 8, u64(2), b"gpt2|2\n4\n4.00 T", "the tokens are uint32"),
        (b"\0" * 8, u64(2), b"\xff" * 100, "the tokens are uint32"),
    ],
)
def test_a_wrong_datatrove_file_is_refused(
    tmp_path: Path, tokens: bytes, index: bytes | None, metadata: bytes | None, message: str
) -> None:
    path = write_datatrove(tmp_path, tokens, index, metadata)
    check_refused("datatrove", path, ImportOptions(), message)


def test_datatrove_leaves_empty_documents_out_and_refuses_loss_masks(tmp_path: Path) -> None:
    tokens = np.arange(4, dtype="<u2").tobytes()
    path = write_datatrove(tmp_path, tokens, u64(0, 1, 1, 4, 4), b"Unknown Tokenizer|2|2\n4\n")
    (file,) = DatatroveFormat().open_files([path], ImportOptions())
    assert read_documents([file]) == [[0], [1, 2, 3]]
    assert file.num_empty == 3
    (tmp_path / "x.ds.loss").write_bytes(b"\1" * 4)
    check_refused("datatrove", path, ImportOptions(), "loss mask")


def write_olmo(folder: Path, tokens: bytes, table: bytes | None) -> Path:
    path = folder / "x.npy"
    path.write_bytes(tokens)
    if table is not None:
        (folder / "x.csv.gz").write_bytes(table)
    return path


def _zipped(table: bytes) -> bytes:
    """Compress a table; without the time, since it is part of the names of tests."""
    return gzip.compress(table, mtime=0)


ZIPPED = _zipped(b"0,3,id,src,1\r\n3,4,id,src,2\r\n")


@pytest.mark.parametrize(
    ("tokens", "table", "message"),
    [
        (b"\0" * 8, b"0,4,id,src,1\r\n", "not complete and valid gzip"),
        (b"\0" * 8, ZIPPED[:-9], "not complete and valid gzip"),
        (b"\0" * 8, ZIPPED[:20] + b"\xff" * 9 + ZIPPED[29:], "gzip|row"),
        (b"\0" * 8, _zipped(b""), "lists 0 tokens"),
        (b"\0" * 6, ZIPPED, "lists 4 tokens"),
        (b"\x93NUMPY\1\0", ZIPPED, "NumPy's header"),
        (b"\0" * 8, _zipped(b"0,3\r\n2,4\r\n"), "without a gap"),
        (b"\0" * 8, _zipped(b"1,4\r\n"), "without a gap"),
        (b"\0" * 8, _zipped(b"0,3\r\n4\r\n"), "row 2 is not a document"),
        (b"\0" * 8, _zipped(b"0,-3\r\n"), "row 1 is not a document"),
        (b"\0" * 8, _zipped("0,٣\r\n".encode()), "row 1 is not a document"),
        (b"\0" * 8, _zipped(b"0,1_0\r\n"), "row 1 is not a document"),
        (b"\0" * 8, _zipped(b"3,0\r\n"), "row 1 is not a document"),
        (b"\0" * 8, _zipped(b"0," + b"9" * 5000 + b"\r\n"), "row 1 is not a document"),
        (b"\0" * 8, _zipped(b"start,end,id,src,loc\r\n0,4\r\n"), "row 1 is not a document"),
        (b"\0" * 8, _zipped(b'0,4,"' + b"a" * 200_000 + b'"\r\n'), "is not a document"),
        (b"\0" * 8, _zipped(b"0,4," + b"a" * (1 << 21)), "longer than 1048576 bytes"),
        (b"\0" * 8, _zipped(b'0,4,"a\n","b\n' * 1 + b'","\n' * 400_000), "longer than|row"),
    ],
)
def test_a_wrong_olmo_file_is_refused(
    tmp_path: Path, tokens: bytes, table: bytes, message: str
) -> None:
    check_refused("olmo", write_olmo(tmp_path, tokens, table), ImportOptions(), message)


@pytest.mark.parametrize("read_bytes", [1, 7, 20, 1000])
def test_olmo_tables_may_quote_fields_and_list_empty_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    monkeypatch.setattr(olmo, "_READ_BYTES", read_bytes)
    table = b'0,1,id,src,1\r\n1,1\r\n1,2,"a, ""b""\r\nc",s3://x/y.json.gz,1\r\n2,2,id,src,2\r\n2,4,\xff,src,3'
    path = write_olmo(tmp_path, np.arange(4, dtype="<u4").tobytes(), _zipped(table))
    (file,) = OlmoFormat().open_files([path], ImportOptions())
    assert read_documents([file]) == [[0], [1], [2, 3]]
    assert (file.num_empty, file.dtype) == (2, "uint32")


def test_olmo_without_a_table_is_scanned(tmp_path: Path) -> None:
    path = write_olmo(tmp_path, np.array([1, 2, EOT, 3, EOT], "<u2").tobytes(), None)
    error = check_refused("olmo", path, ImportOptions(eot_id=EOT), "does not say the type")
    assert "--dtype uint16" in error.next_step
    error = check_refused("olmo", path, ImportOptions(dtype="uint16"), "which token ends")
    assert "--eot-token" in error.next_step
    check_refused(
        "olmo",
        path,
        ImportOptions(dtype="uint32", eot_id=EOT),
        "not a multiple of the size of uint32",
    )
    (file,) = OlmoFormat().open_files([path], ImportOptions(dtype="uint16", eot_id=EOT))
    assert (read_documents([file]), file.eot) == ([[1, 2, EOT], [3, EOT]], "append")


# Raw files.


def raw_file(folder: Path, name: str, *tokens: int) -> Path:
    path = folder / name
    path.write_bytes(np.array(tokens, "<u2").tobytes())
    return path


def test_raw_needs_what_the_file_does_not_say(tmp_path: Path) -> None:
    path = raw_file(tmp_path, "train.bin", 1, 2, EOT, 3, EOT)
    error = check_refused("raw", path, ImportOptions(eot_id=EOT, eot="append"), "type of its")
    assert "--dtype uint16" in error.next_step
    error = check_refused("raw", path, ImportOptions(dtype="uint16", eot="append"), "which token")
    assert "--eot-token" in error.next_step
    error = check_refused("raw", path, ImportOptions(dtype="uint16", eot_id=EOT), "where the")
    assert "--eot append" in error.next_step
    options = ImportOptions(dtype="uint16", eot_id=77, eot="append")
    error = check_refused("raw", path, options, "end-of-text id 77 is not in the file")
    assert "--eot none" in error.next_step
    options = ImportOptions(dtype="uint32", eot_id=EOT, eot="append")
    check_refused("raw", path, options, "not a multiple of 4")


def test_raw_documents_may_continue_in_the_next_file(tmp_path: Path) -> None:
    parts = [(1, 2, EOT, 3), (4,), (), (5, EOT, EOT), (6, EOT), (7, EOT, 8)]
    paths = [raw_file(tmp_path, f"{idx}.bin", *part) for idx, part in enumerate(parts)]
    options = ImportOptions(dtype="uint16", eot_id=EOT, eot="append")
    files = RawFormat().open_files(paths, options)
    assert [file.continues for file in files] == [False, True, False, True, False, False]
    assert read_documents(files) == [[1, 2, EOT], [3, 4, 5, EOT], [EOT], [6, EOT], [7, EOT], [8]]
    files = RawFormat().open_files(paths, replace(options, eot="prepend"))
    assert [file.continues for file in files] == [False, True, False, True, True, True]
    assert read_documents(files) == [[1, 2], [EOT, 3, 4, 5], [EOT], [EOT, 6], [EOT, 7], [EOT, 8]]
    files = RawFormat().open_files(paths, ImportOptions(dtype="uint16", eot="none"))
    assert read_documents(files) == [list(part) for part in parts if part]


def test_raw_reads_files_that_numpy_saved(tmp_path: Path) -> None:
    options = ImportOptions(eot_id=EOT, eot="prepend")
    for descr in ("<u2", "<u4", "<i4"):
        np.save(tmp_path / "x.npy", np.array([EOT, 1, EOT, 2, 3], descr))
        (file,) = RawFormat().open_files([tmp_path], options)
        assert read_documents([file]) == [[EOT, 1], [EOT, 2, 3]]
    error = check_refused("raw", tmp_path / "x.npy", replace(options, dtype="uint16"), "int32")
    assert "--dtype uint32" in error.next_step


class Trap:
    """Fails the test if it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("unpickled",)


def npy(header: str) -> bytes:
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy("{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }\n"), "lists 3 of uint16"),
        (npy("{'descr': '<u2', 'fortran_order': False, 'shape': (-1,), }\n"), "not that of one"),
        (npy(f"{{'descr': '<u2', 'fortran_order': False, 'shape': ({HUGE},), }}\n"), "lists 18446"),
        (npy("{'descr': '<u2', 'fortran_order': False, 'shape': (0, 1), }\n"), r"shape \(0, 1\)"),
        (npy("{'descr': '<u2', 'fortran_order': False, 'shape': (), }\n"), r"shape \(\)"),
        (npy("{'descr': '>u2', 'fortran_order': False, 'shape': (0,), }\n"), "array of `>u2`"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }\n"), "array of `<f8`"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (0,), }\n"), r"array of `\|O`"),
        (npy("__import__('os').abort()"), "not that of one"),
        (npy("(" * 5000), "not that of one"),
        (b"\x93NUMPY\1\0\xff\xff{", "not that of one"),
        (b"\x93NUMPY\1", "not that of one"),
        (b"\x93NUMPY\7\0", "not that of one"),
        (b"\x93NUMPY\2\0\xff\xff\xff\xff{", "not that of one"),
        (b"MMIDIDX\0\0", "has a header"),
        (llmc_header(20240801, 7, 0), "has a header"),
    ],
)
def test_a_wrong_raw_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    check_refused("raw", path, ImportOptions(dtype="uint16", eot="none"), message)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([Trap()], object), allow_pickle=True)
    check_refused("raw", tmp_path / "x.npy", ImportOptions(eot="none"), r"array of `\|O`")


# What all importers share.


@pytest.mark.parametrize("name", IMPORTABLE_FORMATS)
def test_a_missing_or_odd_file_is_refused(tmp_path: Path, name: str) -> None:
    options = ImportOptions(dtype="uint16", eot="none")
    check_refused(name, tmp_path / "nothing", options, "does not exist")
    (tmp_path / "folder").mkdir()
    check_refused(name, tmp_path / "folder", options, "the folder has no file")
    os.mkfifo(tmp_path / "pipe")
    check_refused(name, tmp_path / "pipe", options, "not a file")


@pytest.mark.parametrize("name", ["megatron", "llmc", "olmo", "datatrove"])
def test_a_type_that_is_not_the_one_of_the_file_is_refused(tmp_path: Path, name: str) -> None:
    source = small_source(tmp_path)
    chosen = OUTPUT_FORMATS[name]
    folder = tmp_path if chosen.is_beside else tmp_path / name
    write_format(chosen, source, folder)
    with pytest.raises(UsageError, match="`--dtype uint32` was given") as raised:
        open_split(name, folder, "train", ImportOptions(eot_id=EOT, dtype="uint32"))
    assert "--dtype uint16" in raised.value.next_step


def test_a_file_that_becomes_shorter_is_an_error(tmp_path: Path) -> None:
    path = raw_file(tmp_path, "x.bin", 1, 2, 3)
    (file,) = RawFormat().open_files([path], ImportOptions(dtype="uint16", eot="none"))
    os.truncate(path, 4)
    with pytest.raises(InputError, match="shorter"):
        list(file.iter_tokens())


# The readers on the pages.


def page_reader(name: str) -> dict[str, Any]:
    """Run the reader that a page shows; return what it defines."""
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 20
    defined: dict[str, Any] = {}
    exec(compile(code, f"{name}.md", "exec"), defined)
    return defined


@DTYPES
def test_the_readers_on_the_pages_read_the_files(tmp_path: Path, dtype: Dtype) -> None:
    source = small_source(tmp_path, dtype)
    for name in ("megatron", "llmc", "torchtitan", "olmo", "datatrove"):
        chosen = OUTPUT_FORMATS[name]
        write_format(chosen, source, tmp_path if chosen.is_beside else tmp_path / name)
    documents = [run for _, runs in runs_of(source) for run in runs]

    def read(name: str, *arguments: Any) -> list[list[int]]:
        return [each.tolist() for each in page_reader(name)["read_documents"](*arguments)]

    assert read("megatron", str(tmp_path / "train")) == documents
    assert read("torchtitan", str(tmp_path / "torchtitan" / "train")) == documents
    assert read("olmo", str(tmp_path / "olmo" / "train"), dtype) == documents
    assert read("datatrove", str(tmp_path / "datatrove" / "train.ds")) == documents
    shard = tmp_path / "llmc" / "tokens_train_000000.bin"
    added = 70_000 if dtype == "uint32" else 0
    expected = [[EOT, *(id_ + added for id_ in text)] for text in TEXTS]
    assert read("llmc", str(shard), EOT) == expected
