"""The registry of input formats: complete, without conflicts, and alone in naming them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from support import ROOT

from penstok.errors import InputError, UsageError
from penstok.readers.formats import DATASET_SUFFIXES, FORMATS, check_start, find_format
from penstok.types import InputFormat, Source

PACKAGE = ROOT / "src" / "penstok"
# Where a format is named: the type, its row, and the packages that a row points to.
NAMING = {"types.py", "readers/formats.py", "readers/csv/header.py"}
COMPARED = re.compile(
    rf"""(?:==|!=|\bin\b|case|<=)\s*[({{\[]?\s*["'](?:{"|".join(get_args(InputFormat))})["']"""
)


def test_every_format_has_a_row() -> None:
    assert tuple(FORMATS) == get_args(InputFormat)
    assert all(name == row.name for name, row in FORMATS.items())


@pytest.mark.parametrize("start", [b"PAR1", b"ARROW1"])
def test_text_may_begin_like_a_file_of_rows(start: bytes) -> None:
    assert find_format("a.txt", start + b" is the first word\n", None).name == "text"
    assert find_format("a.txt", start + b"\0\0\x15\x04", None).is_rows


def test_no_suffix_and_no_magic_has_two_formats() -> None:
    suffixes = [suffix for row in FORMATS.values() for suffix in row.suffixes]
    magics = [row.magic for row in FORMATS.values() if row.magic]
    assert len(suffixes) == len(set(suffixes))
    assert len(magics) == len(set(magics))
    assert DATASET_SUFFIXES == (".parquet", ".arrow", ".feather")


@pytest.mark.parametrize("name", FORMATS)
def test_a_stream_of_records_has_a_scanner(name: InputFormat, tmp_path: Path) -> None:
    row = FORMATS[name]
    path = tmp_path / "input"
    path.write_bytes(b"text\nmore\n")
    found = row.open_scanner(Source(str(path), 10, 0, "", name, is_stream=True))
    assert (found is not None) == (row.has_records and not row.is_rows)


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix()
)
def test_the_name_of_a_format_is_compared_nowhere_else(path: Path) -> None:
    if path.relative_to(PACKAGE).as_posix() not in NAMING:
        assert COMPARED.search(path.read_text(encoding="utf-8")) is None


@pytest.mark.parametrize("wanted", ["csv", "tsv", "jsonl", "text"])
def test_a_file_of_rows_is_not_read_as_another_format(wanted: InputFormat) -> None:
    with pytest.raises(InputError, match=r"this is a parquet file, not ") as raised:
        find_format("a.bin", b"PAR1\x15", wanted)
    assert "--input-format parquet" in raised.value.next_step


def test_standard_input_that_looks_like_records_must_be_named() -> None:
    with pytest.raises(UsageError, match="begins like JSON Lines") as raised:
        check_start(FORMATS["text"], "-", b' {"text": "a"}', None)
    assert "--input-format jsonl" in raised.value.next_step
    check_start(FORMATS["text"], "-", b' {"text": "a"}', "text")
    check_start(FORMATS["text"], "-", b"plain", None)
