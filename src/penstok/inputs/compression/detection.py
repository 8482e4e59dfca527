"""Which compression an input has, from its first bytes, and whether its name says the same.

It decompresses nothing and never trusts a name alone. `probe` calls it for every input, `stream`
for every member of a compressed file.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import get_args

from penstok.errors import InputError
from penstok.types import Compression

__all__ = [
    "COMPRESSIONS",
    "check_compression",
    "content_suffix",
    "detect_compression",
    "is_skippable",
    "starts_member",
]

COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)

_SUFFIXES: dict[str, Compression] = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".bgz": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bzip2",
    ".xz": "xz",
    ".lz4": "lz4",
}
# zstd and lz4 share the 16 magic numbers of skippable frames; a length follows.
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
_SKIPPABLE_HEADER_BYTES = 8
# Text may well begin with "BZh", so the magic of the first block, or of the end, must follow.
_MAGIC: dict[Compression, re.Pattern[bytes]] = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
}


def detect_compression(head: bytes) -> Compression | None:
    """Return the compression of a file that begins with `head` (a few kB); None if it has none.

    Skippable frames are skipped as far as `head` goes; a file with nothing else is taken for zstd.
    """
    position = 0
    while is_skippable(head, position):
        position += _SKIPPABLE_HEADER_BYTES + int.from_bytes(
            head[position + 4 : position + _SKIPPABLE_HEADER_BYTES], "little"
        )
    for kind in ("zstd", "lz4") if position else COMPRESSIONS:
        if _MAGIC[kind].match(head, position):
            return kind
    return "zstd" if position else None


def check_compression(path: str, head: bytes, found: Compression | None) -> None:
    """Refuse a file whose name promises another compression than it has.

    Raises:
        InputError: If so; it is likely to be cut off, or something else altogether.
    """
    named = _SUFFIXES.get(PurePath(path).suffix.lower())
    if named is None or found == named:
        return
    what = "is empty" if not head else f"begins with {head[:8]!r}"
    raise InputError(
        f"the name says {named}, but the file {what}",
        where=path,
        next_step="download or write it again; if the content is right, rename the file"
        if found is None
        else f"this is {found}: rename the file accordingly",
    )


def content_suffix(path: str) -> str:
    """Return the suffix of a name in lower case, without that of a compression."""
    name = PurePath(path)
    if name.suffix.lower() in _SUFFIXES:
        name = name.with_suffix("")
    return name.suffix.lower()


def starts_member(kind: Compression, head: bytes) -> bool:
    """Tell whether a gzip member, a zstd or lz4 frame, a bzip2 or xz stream begins here."""
    if _MAGIC[kind].match(head):
        return True
    return kind in ("zstd", "lz4") and is_skippable(head)


def is_skippable(head: bytes, position: int = 0) -> bool:
    """Tell whether a frame without content begins at `position`."""
    return _SKIPPABLE.match(head, position) is not None
