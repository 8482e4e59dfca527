"""What kind of file an input is: by its name, checked against its first bytes.

It opens nothing; `sources` shows it names and heads. Readers are chosen by what it says.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from penstok.errors import InputError, UsageError
from penstok.types import ROW_FORMATS

if TYPE_CHECKING:
    from penstok.types import Compression, InputFormat

__all__ = ["find_format", "refuse_other_compression"]

_SUFFIXES: dict[str, InputFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# What is saved under the name of a table where a server sends an error page.
_MARKUP = re.compile(rb"<(!doctype|html|\?xml)\b", re.IGNORECASE)
_COMPRESSED_SUFFIXES: dict[str, Compression] = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".bgz": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bzip2",
    ".xz": "xz",
    ".lz4": "lz4",
}
_ROW_MAGIC: dict[bytes, InputFormat] = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_ARROW_STREAM = b"\xff\xff\xff\xff"  # no magic: only a name makes it one
_NAMES: dict[InputFormat, str] = {
    "text": "UTF-8 text",
    "jsonl": "JSON Lines",
    "parquet": "a parquet file",
    "arrow": "an Arrow file",
}
_MAGIC = {
    b"PK\x03\x04": ("a zip archive", "unzip"),
    b"PARE": ("an encrypted parquet file", ""),
    b"FEA1": ("a Feather file of version 1", ""),
    b"%PDF-": ("a PDF", "pdftotext"),
    b"\x7fELF": ("a program", ""),
    b"\x89PNG": ("a picture", ""),
    b"\xff\xd8\xff": ("a picture", ""),
    b"\xff\xfe": ("UTF-16 or UTF-32 text", "iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "iconv -f UTF-16 -t UTF-8"),
}


def find_format(path: str, head: bytes, wanted: InputFormat | None) -> InputFormat:
    """Say how a file is read.

    Args:
        path: Its name; that of a compressed file may end in two suffixes.
        head: The first bytes of its content.
        wanted: What the user said with `--input-format`; None where the name decides.

    Raises:
        InputError: If the first bytes are those of something else.
    """
    for magic, (what, remedy) in _MAGIC.items():
        if head.startswith(magic):
            step = f"make it text first: `{remedy}`" if remedy else "pass plain text"
            raise InputError(
                f"this is {what}, not UTF-8 text",
                where=path,
                next_step=f"{step}, or leave such files out with `--on-error skip`",
            )
    suffix = _content_suffix(path)
    if wanted is None and path == "-" and head.lstrip().startswith(b'{"'):
        raise UsageError(
            "standard input begins like JSON Lines, and has no name that says so",
            where="INPUT `-`",
            next_step="pass `--input-format jsonl`, or `--input-format text` to take it as it is",
        )
    found = next((kind for magic, kind in _ROW_MAGIC.items() if head.startswith(magic)), None)
    chosen = wanted or found or _SUFFIXES.get(suffix, "text")
    if chosen in ROW_FORMATS or found is not None:
        _check_rows(path, head, chosen, found)
    elif chosen == "jsonl":
        _check_json_lines(path, head)
    elif chosen in ("csv", "tsv"):
        _check_table(path, head)
    return chosen


def refuse_other_compression(path: str, head: bytes, found: Compression | None) -> None:
    """Refuse a file whose name promises a compression that its first bytes do not have.

    Raises:
        InputError: If so; it is likely to be cut off, or something else altogether.
    """
    named = _COMPRESSED_SUFFIXES.get(PurePath(path).suffix.lower())
    if named is None or found == named:
        return
    what = "is empty" if not head else f"begins with {head[:8]!r}"
    raise InputError(
        f"the name says {named}, but the file {what}",
        where=path,
        next_step="fetch or make it anew; if it is what it should be, give it another name"
        if found is None
        else f"this is {found}: give it a name that says so",
    )


def _content_suffix(path: str) -> str:
    name = PurePath(path)
    if name.suffix.lower() in _COMPRESSED_SUFFIXES:
        name = name.with_suffix("")
    return name.suffix.lower()


def _check_rows(path: str, head: bytes, chosen: InputFormat, found: InputFormat | None) -> None:
    """Refuse a file of rows that is read as something else, and the other way round."""
    if chosen == found or (chosen == "arrow" and head.startswith(_ARROW_STREAM)):
        return
    if found is not None:
        raise InputError(
            f"this is {_NAMES[found]}, not {_NAMES[chosen]}",
            where=path,
            next_step=f"leave out `--input-format`, or pass `--input-format {found}`",
        )
    raise InputError(
        f"this is not {_NAMES[chosen]}: it begins with {head[:6]!r}",
        where=path,
        next_step="fetch it again, pass `--input-format` to read it as something else, or leave "
        "such files out with `--on-error skip`",
    )


def _check_json_lines(path: str, head: bytes) -> None:
    start = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if not start or start.startswith(b"{"):
        return
    if start.startswith(b"["):
        raise InputError(
            "this is one JSON array, not an object a line",
            where=path,
            next_step=f"make it lines first: `jq -c '.[]' {path} > lines.jsonl`",
        )
    raise InputError(
        f"this is no JSON Lines: it begins with {start[:20]!r}",
        where=path,
        next_step="pass `--input-format text` to read it as plain text",
    )


def _check_table(path: str, head: bytes) -> None:
    start = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    is_json, is_markup = start.startswith((b'{"', b'[{"')), _MARKUP.match(start) is not None
    if is_json or is_markup or b"\0" in head[:2]:  # UTF-16 without its mark
        raise InputError(
            f"this is no CSV: it begins with {start[:20]!r}",
            where=path,
            next_step="pass `--input-format jsonl`"
            if is_json
            else "fetch or make it anew, or pass `--input-format text` to read it as plain text",
        )
