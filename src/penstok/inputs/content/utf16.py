"""UTF-16 and UTF-32: which of them bytes are, by a byte order mark or by the characters they give.

It does not tell text from binary files by itself: `inspection` asks it about samples with control
characters that text in other encodings does not have.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from penstok.inputs.encodings import INVALID, decode_sample
from penstok.types import UTF_8

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "LAX",
    "STRICT",
    "find_mark",
    "find_order",
    "find_short",
    "find_unmarked",
    "has_mark",
    "is_wide",
    "rate_order",
    "reads_well",
]

_MARKS = {
    b"\xff\xfe\0\0": "utf-32-le",
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
_WORD_END_BITS = 8
# The high bytes of UTF-16 that text of any language may have; others belong to single scripts, of
# which a text has few.
_USUAL_PAGES = {0, 0x20, 0x21, 0x22, 0x25, 0x26, 0x30, 0x31, 0xFE, 0xFF, *range(0x4E, 0xA0)} | set(
    range(0xAC, 0xD8)
)
_MAX_SCRIPTS = 3
# How much of text may be other characters; more if it has a byte order mark, or the user named its
# encoding.
STRICT = 0.02
LAX = 0.25
# Shorter samples without a NUL may be UTF-16 by chance: ask `find_short`.
_MIN_WIDE_BYTES, _MIN_SHORT_BYTES = 64, 16
# Each of these knows a fifth of all characters or fewer, so binary data seldom fits into one.
_SMALL_SETS = ("tis-620", "iso8859-6", "iso8859-7", "gb2312", "big5", "shift_jis", "euc_kr")
# Of these, the UTF-16 may consist of ASCII: Thai and Arabic.
_ASCII_SETS = ("tis-620", "iso8859-6")
# Tables in binary files repeat the same bytes more often than text repeats one character.
_MAX_SAME = 0.4
_MAX_OVERLAP = 0.6


def is_wide(encoding: str) -> bool:
    """Tell whether an encoding is UTF-16 or UTF-32."""
    return encoding.startswith(("utf-16", "utf-32"))


def find_mark(head: bytes) -> str:
    """Return the UTF-16 or UTF-32 whose byte order mark some text begins with; empty if none."""
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")


def has_mark(head: bytes, encoding: str) -> bool:
    """Tell whether some text begins with the byte order mark of an encoding."""
    return any(head.startswith(mark) for mark, name in _MARKS.items() if name == encoding)


def find_order(head: bytes, wanted: str) -> str:
    """Return `utf-16` or `utf-32` with the byte order of some text: its mark's, or the likely."""
    orders = (f"{wanted}-le", f"{wanted}-be")
    marked = [each for each in orders if has_mark(head, each)]
    if marked:
        return marked[0]
    if wanted == "utf-16":
        return min(orders, key=lambda each: rate_order(head, each))
    return min(orders, key=lambda each: decode_sample(head, each).count(INVALID))


def find_unmarked(head: bytes) -> str:
    """Return which UTF-32 or UTF-16 bytes without a mark are; empty if none.

    Half of the bytes of UTF-16 belong to whole scripts. So they are much the same, or range over
    all values, among them the control characters that no text in other encodings has.
    """
    if len(head) < _MIN_WIDE_BYTES and 0 not in head:
        return find_short(head)
    for encoding, high in (("utf-32-le", head[3::4]), ("utf-32-be", head[::4])):
        # Decoding takes much longer than a look at the bytes that are 0 in any text.
        is_likely = high.count(0) >= (1 - STRICT) * len(high) > 0
        if is_likely and reads_well(head, encoding):
            return encoding
    even, odd = Counter(head[::2]), Counter(head[1::2])
    if sum((even & odd).values()) > _MAX_OVERLAP * (len(head) // 2):
        return ""
    likely = sorted(("utf-16-le", "utf-16-be"), key=lambda each: rate_order(head, each))
    return next((each for each in likely if reads_well(head, each)), "")


def find_short(head: bytes) -> str:
    """Return which UTF-16 bytes without a NUL are, by the characters alone; empty if none.

    Nothing else tells short text without spaces and line ends from binary data, or Thai from ASCII
    with delimiters: so all characters have to be of a small set.
    """
    is_utf8 = INVALID not in decode_sample(head, UTF_8)
    sets = _ASCII_SETS if is_utf8 else _SMALL_SETS
    likely = [each for each in ("utf-16-le", "utf-16-be") if _fits_any(head, each, sets)]
    return likely[0] if len(likely) == 1 and len(head) >= _MIN_SHORT_BYTES else ""


def _fits_any(head: bytes, encoding: str, sets: Sequence[str]) -> bool:
    text = decode_sample(head, encoding).decode(errors="replace")
    if max(Counter(text).values(), default=0) > _MAX_SAME * len(text):
        return False
    for each in sets:
        with suppress(UnicodeEncodeError):
            return bool(text.encode(each))
    return False


def reads_well(data: bytes, encoding: str, max_odd: float = STRICT) -> bool:
    """Tell whether bytes make sense as UTF-16 or UTF-32: known characters, of few scripts.

    Args:
        data: The bytes.
        encoding: The encoding, with its byte order.
        max_odd: The share of other characters that text may have.
    """
    import unicodedata

    text = decode_sample(data, encoding).decode(errors="replace")
    if not text:
        return False
    counts = Counter(text)
    odd = sum(
        number
        for each, number in counts.items()
        if each == "\ufffd"
        or (unicodedata.category(each)[0] == "C" and each not in "\t\n\r\f\ufeff\u200c\u200d")
    )
    pages = Counter[int]()
    for each, number in counts.items():
        if ord(each) >> 8 not in _USUAL_PAGES and ord(each) < 1 << 16:
            pages[ord(each) >> 8] += number
    odd += sum(pages.values()) - sum(number for _, number in pages.most_common(_MAX_SCRIPTS))
    return odd <= max_odd * len(text)


def rate_order(head: bytes, encoding: str) -> float:
    """Rate a byte order of UTF-16, the lower the better: high bytes vary less, and words end."""
    high = Counter(head[encoding == "utf-16-le" :: 2])
    text = decode_sample(head, encoding).decode(errors="replace")
    num_ends = sum(map(text.count, " \n\u3001\u3002\uff0c"))
    return _entropy(high) - _WORD_END_BITS * num_ends / max(len(text), 1)


def _entropy(counts: Counter[int]) -> float:
    """Return how many bits a byte has on average, if these are counts of bytes."""
    total = counts.total()
    return sum(number * math.log2(total / number) for number in counts.values()) / max(total, 1)
