"""The encoding of an input, from a sample: detected, or checked if the user named it.

It looks no closer at plain UTF-8, as nearly all inputs are. `inspection` judges all others.
"""

from __future__ import annotations

import re

from penstok.errors import InputError
from penstok.inputs.encodings import AUTO, has_escapes
from penstok.types import UTF_8, Struct

__all__ = ["NotUtf8Error", "Sample", "choose_encoding", "count_controls"]

# Bytes that text does not have; form feeds, escapes and the like are not among them.
_CONTROLS = bytes([*range(7), *range(14, 27), *range(28, 32), 127])
# The rest of a character of UTF-8 whose first bytes precede a sample.
_CUT_OFF = re.compile(rb"\A[\x80-\xbf]{1,3}")
_MAX_WHOLE_BYTES = 1 << 16
# Binary files may begin with these and be plain ASCII: PDF, and what pickle wrote long ago.
_SUSPECT_STARTS = (b"%PDF-", b"(dp", b"(lp", b"ccopy_reg\n")
# What C1 control characters begin with, as do a few that text has; suspect if every eighth byte is.
_C1_LEAD, _MAX_C1_LEAD = b"\xc2", 1 / 8


class Sample(Struct, frozen=True):
    """Some of an input's content.

    Attributes:
        head: The first bytes.
        others: Bytes from the middle and the end, where they can be read at little cost.
    """

    head: bytes
    others: tuple[bytes, ...] = ()


class NotUtf8Error(InputError):
    """An input that is text in another encoding than the job reads.

    Attributes:
        encodings: What it may be, the most likely first; empty if that could not be detected.
    """

    encodings: tuple[str, ...] = ()


def choose_encoding(path: str, sample: Sample, wanted: str) -> str:
    """Return the encoding of an input.

    Args:
        path: Its name, for messages.
        sample: Some of its content.
        wanted: The encoding it should have, or `auto` to detect it.

    Raises:
        NotTextError: If it is not text.
        NotUtf8Error: If it does not have the encoding that it should have, or none is detected.
    """
    parts = [sample.head, *(_CUT_OFF.sub(b"", part) for part in sample.others)]
    is_whole = not sample.others and len(sample.head) < _MAX_WHOLE_BYTES
    is_plain = all(_is_plain(part, is_whole=is_whole) for part in parts)
    if is_plain and wanted in (UTF_8, AUTO):
        return UTF_8
    # Imported only here: nearly no job needs it, and it would slow down every start.
    from penstok.inputs.content.inspection import inspect_encoding

    return inspect_encoding(path, parts, wanted, is_plain=is_plain, is_whole=is_whole)


def count_controls(sample: bytes) -> int:
    """Count the bytes that text does not have."""
    return len(sample) - len(sample.translate(None, _CONTROLS))


def _is_plain(part: bytes, *, is_whole: bool) -> bool:
    """Tell whether bytes are UTF-8 without control characters, as nearly all inputs are."""
    is_suspect = part.startswith(_SUSPECT_STARTS) or part.count(_C1_LEAD) > _MAX_C1_LEAD * len(part)
    if is_suspect or count_controls(part) or has_escapes(part):
        return False
    try:
        part.decode()
    except UnicodeDecodeError as error:
        is_cut_off = error.start + 3 >= len(part) and error.reason == "unexpected end of data"
        return is_cut_off and not is_whole
    return True
