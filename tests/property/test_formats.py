"""Laws of output formats: exports and imports undo each other, in pieces of any size."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from support import rounds
from token_sources import (
    EOT,
    Documents,
    import_source,
    read_documents,
    with_eot,
    write_format,
    write_source,
)

from penstok.errors import PenstokError
from penstok.output.formats.base import FormatOptions, ImportedFile, ImportOptions, TokenSource
from penstok.output.formats.registry import IMPORTABLE_FORMATS, OUTPUT_FORMATS
from penstok.types import EotPosition, Split

NAMES = ["megatron", "llmc", "torchtitan", "olmo", "datatrove"]
BOTH_WAYS = ["megatron", "llmc", "olmo", "datatrove"]
SUFFIXES = {"megatron": ".idx", "llmc": ".bin", "olmo": ".npy", "datatrove": ".ds", "raw": ".bin"}
TEXTS = st.lists(st.lists(st.integers(1, 50_000), max_size=6), min_size=1, max_size=8)
SHARDS = st.none() | st.integers(1, 12)
POSITIONS = st.sampled_from(["append", "prepend"])
DTYPES = st.sampled_from(["uint16", "uint32"])
# Bytes read at once, entries of an index, rows of a table: as small as they can be, or small.
PIECES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))


@contextmanager
def read_in(pieces: tuple[int, int, int]) -> Iterator[None]:
    formats = "penstok.output.formats"
    with (
        mock.patch(f"{formats}.base._READ_BYTES", pieces[0] * 4),
        mock.patch("penstok.output.documents._READ_ENTRIES", pieces[1]),
        mock.patch(f"{formats}.importing._READ_ENTRIES", pieces[1]),
        mock.patch(f"{formats}.olmo._PIECE", pieces[2]),
        mock.patch(f"{formats}.olmo._READ_BYTES", pieces[0] * 8),
    ):
        yield


def open_split(name: str, folder: Path, split: Split, options: ImportOptions) -> list[ImportedFile]:
    paths = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIXES[name]))
    chosen = [path for path in paths if path.name.removeprefix("tokens_").startswith(split)]
    return IMPORTABLE_FORMATS[name].open_files(chosen, options)


def folder_of(source: TokenSource, name: str) -> Path:
    """Return where a format is written; the formats beside tokens need them there."""
    beside = Path(str(source.splits["train"].files[0].path)).parent
    return beside if OUTPUT_FORMATS[name].is_beside else beside / name


@settings(max_examples=rounds(200))
@given(st.data(), TEXTS, DTYPES, POSITIONS, SHARDS, SHARDS)
@pytest.mark.parametrize("name", BOTH_WAYS)
def test_imports_undo_exports_and_exports_imports(
    name: str,
    data: st.DataObject,
    texts: Documents,
    dtype: str,
    eot: EotPosition,
    shard_tokens: int | None,
    own_tokens: int | None,
) -> None:
    pieces = data.draw(PIECES)
    documents = with_eot(texts, eot)
    # Longer documents are several sequences.
    longest = data.draw(st.sampled_from([(1 << 31) - 1, 1, 2, 5]))
    limit = mock.patch("penstok.output.formats.megatron._MAX_LENGTH", longest)
    with tempfile.TemporaryDirectory() as folder, read_in(pieces), limit:
        source = write_source(
            Path(folder) / "first",
            train=documents,
            val=documents[:1],
            dtype=dtype,  # type: ignore[arg-type]
            eot=eot,
            shard_tokens=shard_tokens,
        )
        own = FormatOptions(shard_tokens=own_tokens)
        written = write_format(OUTPUT_FORMATS[name], source, folder_of(source, name), own)
        # Files of llm.c have end-of-text first, wherever the source has it.
        found: EotPosition = "prepend" if name == "llmc" else eot
        options = ImportOptions(eot_id=EOT, eot=None if name == "llmc" else eot)
        files = {
            split: open_split(name, folder_of(source, name), split, options)
            for split in source.splits
        }
        assert read_documents(files["train"]) == list(with_eot(texts, found))
        assert all(file.eot == found for file in files["train"])
        if found == eot:
            again = import_source(files, Path(folder) / "second", source)
            assert write_format(OUTPUT_FORMATS[name], again, Path(folder) / "new", own) == written


@settings(max_examples=rounds(200))
@given(TEXTS, DTYPES, POSITIONS, SHARDS, SHARDS, PIECES)
@pytest.mark.parametrize("name", NAMES)
def test_the_size_of_pieces_changes_no_byte(
    name: str,
    texts: Documents,
    dtype: str,
    eot: EotPosition,
    shard_tokens: int | None,
    own_tokens: int | None,
    pieces: tuple[int, int, int],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = write_source(
            Path(folder),
            train=with_eot(texts, eot),
            dtype=dtype,  # type: ignore[arg-type]
            eot=eot,
            shard_tokens=shard_tokens,
        )
        own = FormatOptions(shard_tokens=own_tokens)
        written = write_format(OUTPUT_FORMATS[name], source, Path(folder) / "whole", own)
        with read_in(pieces):
            again = write_format(OUTPUT_FORMATS[name], source, Path(folder) / "pieces", own)
        assert written == again


@settings(max_examples=rounds(200))
@given(TEXTS, DTYPES, POSITIONS, SHARDS, PIECES)
def test_the_index_is_where_end_of_text_ids_are(
    texts: Documents,
    dtype: str,
    eot: EotPosition,
    shard_tokens: int | None,
    pieces: tuple[int, int, int],
) -> None:
    with tempfile.TemporaryDirectory() as folder, read_in(pieces):
        source = write_source(
            Path(folder),
            train=with_eot(texts, eot),
            dtype=dtype,  # type: ignore[arg-type]
            eot=eot,
            shard_tokens=shard_tokens,
        )
        options = ImportOptions(dtype=source.dtype, eot_id=EOT, eot=eot)
        scanned = open_split("raw", Path(folder), "train", options)
        for file, own in zip(scanned, source.splits["train"].files, strict=True):
            entries = [int(entry) for piece in own.iter_entries() for entry in piece]
            starts = [int(start) for piece in file.iter_starts() for start in piece]
            assert [*starts, own.num_tokens] == entries
            assert file.continues == own.continues


@contextmanager
def allow_refusal() -> Iterator[None]:
    """Accept an error that says what, where and what next; fail for any other."""
    refusal: PenstokError | None = None
    try:
        yield
    except PenstokError as error:
        refusal = error
    assert refusal is None or (refusal.where and refusal.next_step)


CHANGES = st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=9)), max_size=4)


@settings(max_examples=rounds(200))
@given(st.data(), TEXTS, CHANGES, st.integers(-9, 9), PIECES)
@pytest.mark.parametrize("name", [*BOTH_WAYS, "raw"])
def test_damaged_files_are_read_or_refused(
    name: str,
    data: st.DataObject,
    texts: Documents,
    changes: list[tuple[float, bytes]],
    longer: int,
    pieces: tuple[int, int, int],
) -> None:
    with tempfile.TemporaryDirectory() as temporary, read_in(pieces):
        source = write_source(Path(temporary), train=with_eot(texts))
        folder = Path(temporary)
        if name in OUTPUT_FORMATS:
            folder = folder_of(source, name)
            write_format(OUTPUT_FORMATS[name], source, folder)
        damaged = data.draw(st.sampled_from(sorted(folder.glob("*train*"))))
        content = bytearray(damaged.read_bytes())
        for place, new in changes:
            at = int(place * len(content))
            content[at : at + len(new)] = new
        content = content[:longer] if longer < 0 else content + b"\0" * longer
        # A new file: the tokens of some formats are links.
        damaged.unlink()
        damaged.write_bytes(content)
        options = ImportOptions(dtype="uint16", eot_id=EOT, eot="append")
        with allow_refusal():
            files = open_split(name, folder, "train", options)
            tokens = sum(map(len, read_documents(files)))
            assert tokens == sum(file.num_tokens for file in files)
