"""A closer look at samples that are not plain UTF-8, or should not be: what they are instead.

It refuses what is not text, and says which encoding to pass. `choice` asks it; `utf16`, `legacy`
and `binary` know the encodings and the kinds of files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstok.errors import NotTextError, quoted
from penstok.inputs.content.binary import find_kind, name_binary
from penstok.inputs.content.choice import NotUtf8Error, count_controls
from penstok.inputs.content.legacy import (
    ISO2022_KR,
    detect_legacy,
    is_escaped,
    is_iso2022_kr,
    name_encoding,
)
from penstok.inputs.content.utf16 import (
    LAX,
    STRICT,
    find_mark,
    find_order,
    find_short,
    find_unmarked,
    has_mark,
    is_wide,
    rate_order,
    reads_well,
)
from penstok.inputs.encodings import AUTO, INVALID, count_multibyte, decode_sample, has_escapes
from penstok.types import UTF_8, Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["inspect_encoding"]

_MAX_DETECTED_BYTES = 1 << 16
# Fewer invalid sequences are a trace: they are repaired and counted.
_MIN_INVALID, _MIN_INVALID_SHARE = 4, 1 / 4096
# How much of a sample may be control characters. Valid UTF-8 may well use some as delimiters.
_MAX_CONTROLS, _MAX_UTF8_CONTROLS, _MAX_UTF8_NUL = 0.02, 0.2, 0.05
# One error for so many characters is too many in an encoding that the user named.
_WRONG_SHARE = 10
# So many characters of two or more bytes are never valid UTF-8 by chance.
_SURELY_UTF8 = 8
# Valid UTF-8 with more visible ASCII than that is not UTF-16, nor is it if one sequence in so many
# bytes is invalid.
_VISIBLE = bytes([*range(0x20, 0x30), *range(0x31, 0x7F)])
_MAX_WIDE_VISIBLE, _MIN_PER_INVALID = 0.6, 100
# The C1 control characters in UTF-8 except the line break that some systems use.
_C1 = re.compile(rb"\xc2[\x80-\x84\x86-\x9f]")
_UTF8_MARK = b"\xef\xbb\xbf"
_BINARY_DATA = "binary data"
_REMEDIES = {
    "a zip archive": "unpack it first: `unzip {}`",
    "a tar archive": "unpack it first: `tar -xf {}`",
    "a PDF": "convert it to text first: `pdftotext {}`",
    "a Word document": "convert it to text first: `pandoc -t plain {}`",
    "an EPUB book": "convert it to text first: `pandoc -t plain {}`",
    "an Arrow stream": "pass `--input-format arrow`",
}


class _Content(Struct, frozen=True):
    """What a sample holds: `what` if it is no text; else its likely encodings, the best first."""

    encodings: tuple[str, ...] = ()
    what: str = ""


_IS_UTF_8 = _Content((UTF_8,))


def inspect_encoding(
    path: str, parts: Sequence[bytes], wanted: str, *, is_plain: bool, is_whole: bool
) -> str:
    """Return the encoding of an input that is not plain UTF-8, or should not be.

    Args:
        path: Its name, for messages.
        parts: Samples from its start, middle and end.
        wanted: The encoding it should have, or `auto` to detect it.
        is_plain: Whether it is plain UTF-8.
        is_whole: Whether the samples are all of it.

    Raises:
        NotTextError: If it is not text.
        NotUtf8Error: If it does not have the encoding that it should have, or none is detected.
    """
    found = _IS_UTF_8 if is_plain else _inspect(parts, wanted, is_whole=is_whole)
    if wanted not in (UTF_8, AUTO):
        ordered = wanted
        if wanted in ("utf-16", "utf-32"):
            is_found = found.encodings[:1] and found.encodings[0].startswith(wanted)
            ordered = found.encodings[0] if is_found else find_order(parts[0], wanted)
        _check_encoding(path, parts, wanted, ordered, found)
        return ordered
    if found.what:
        raise _not_text(path, found.what)
    if found.encodings and (wanted == AUTO or found == _IS_UTF_8):
        return found.encodings[0]
    raise _not_utf8(path, UTF_8, found.encodings)


def _inspect(parts: Sequence[bytes], wanted: str, *, is_whole: bool) -> _Content:
    """Find out what a sample is that is not plain UTF-8."""
    head = parts[0]
    if what := name_binary(head):
        return _Content(what=what)
    if (marked := find_mark(head)) and reads_well(head, marked, LAX):
        return _Content((marked,))
    if is_iso2022_kr(head):
        return _Content((ISO2022_KR,))
    joined = b"".join(parts)
    num_valid, num_invalid = _count_sequences(parts, is_whole=is_whole)
    # Whoever has encodings detected does not want a short text of one repaired instead.
    least = 1 if wanted == AUTO else _MIN_INVALID
    if wanted == AUTO and num_valid < _SURELY_UTF8:
        num_valid //= 2
    is_utf8 = not _is_mostly_invalid(num_valid, num_invalid, len(joined), least)
    # All magic numbers of binary files have or are followed by bytes that text does not have.
    if count_controls(head[:16]) and (what := find_kind(head)):
        return _Content(what=what)
    if _is_binary(joined, is_utf8=is_utf8):
        # UTF-16 of any language has bytes that are control characters in other encodings; but
        # valid UTF-8 without a NUL may use these as delimiters.
        if num_invalid * _MIN_PER_INVALID <= len(joined) and _is_mostly_ascii(joined):
            return _Content(what=_BINARY_DATA)
        wide = (find_unmarked if num_invalid or 0 in joined else find_short)(head)
        return _Content((wide,)) if wide else _Content(what=_BINARY_DATA)
    if is_utf8 and not has_escapes(joined):
        return _IS_UTF_8
    likely = detect_legacy(joined[:_MAX_DETECTED_BYTES])
    is_other = not is_utf8 or (likely and is_escaped(likely[0]))
    return _Content(likely) if is_other else _IS_UTF_8


def _is_binary(sample: bytes, *, is_utf8: bool) -> bool:
    """Tell by control characters whether a sample is not text."""
    size, num_controls = len(sample), count_controls(sample)
    if not is_utf8:
        return num_controls > _MAX_CONTROLS * size
    num_controls += 2 * len(_C1.findall(sample))
    return num_controls > _MAX_UTF8_CONTROLS * size or sample.count(0) > _MAX_UTF8_NUL * size


def _is_mostly_ascii(sample: bytes) -> bool:
    """Tell whether a sample has more visible ASCII than the UTF-16 of any language has.

    That is at most every second byte: the others belong to the script. Zeros do not count, which
    are the bytes of kana.
    """
    return len(sample) - len(sample.translate(None, _VISIBLE)) > _MAX_WIDE_VISIBLE * len(sample)


def _count_sequences(parts: Sequence[bytes], *, is_whole: bool) -> tuple[int, int]:
    """Count characters of several bytes, and invalid sequences."""
    num_valid = num_invalid = 0
    for part in parts:
        text = decode_sample(part, UTF_8, is_whole=is_whole)
        num_invalid += text.count(INVALID)
        num_valid += count_multibyte(text)
    return num_valid, num_invalid


def _is_mostly_invalid(
    num_valid: int, num_invalid: int, num_bytes: int, least: int = _MIN_INVALID
) -> bool:
    is_trace = num_invalid < max(least, num_bytes * _MIN_INVALID_SHARE)
    return num_invalid > num_valid and not is_trace


def _check_encoding(
    path: str, parts: Sequence[bytes], wanted: str, ordered: str, found: _Content
) -> None:
    """Refuse an input that cannot have the encoding that the user named.

    Args:
        path: Its name, for messages.
        parts: Samples of it.
        wanted: The encoding that the user named.
        ordered: The same with its byte order.
        found: What it was found to be.
    """
    head, others = parts[0], tuple(name for name in found.encodings if name != wanted)
    if head.startswith(_UTF8_MARK):
        raise _not_utf8(path, wanted, (UTF_8,))
    if is_wide(wanted):
        _check_wide(path, head, wanted, ordered, found)
        return
    if found.what not in ("", _BINARY_DATA):
        raise _not_text(path, found.what)
    if found == _IS_UTF_8:
        num_valid, num_invalid = _count_sequences(parts, is_whole=False)
        if num_valid >= _SURELY_UTF8 and not num_invalid:
            raise _not_utf8(path, wanted, found.encodings)
        return
    text = decode_sample(head, wanted)
    num_invalid, num_valid = text.count(INVALID), count_multibyte(text)
    has_controls = count_controls(text) > _MAX_CONTROLS * len(text)
    # Text in the encoding that the user named has few errors; others decode to something as well.
    is_wrong = _is_mostly_invalid(num_valid // _WRONG_SHARE, num_invalid, len(head))
    if found.encodings and (has_controls or is_wrong or find_mark(head) in found.encodings):
        raise _not_utf8(path, wanted, others)
    if has_controls:
        raise _not_text(path, _BINARY_DATA)
    if is_wrong:
        raise _not_utf8(path, wanted, others)


def _check_wide(path: str, head: bytes, wanted: str, ordered: str, found: _Content) -> None:
    """Refuse what is not the UTF-16 or UTF-32 that the user named."""
    if not head or ordered in found.encodings:
        return
    if found.what not in ("", _BINARY_DATA):
        raise _not_text(path, found.what)
    is_marked = find_mark(head) in found.encodings
    if has_mark(head, ordered) and not is_marked:
        # Both the user and the text say so.
        text = decode_sample(head, ordered)
        num_invalid, size = text.count(INVALID), len(text.decode(errors="replace"))
        if 2 * num_invalid > size:
            raise NotUtf8Error(
                f"this is not {wanted}: {num_invalid:,} of its first {size:,} characters are "
                "invalid",
                where=path,
                next_step="leave such files out with `--on-error skip`",
            )
        return
    is_utf8 = (found == _IS_UTF_8 or _is_mostly_ascii(head)) and INVALID not in decode_sample(
        head, UTF_8
    )
    # Both byte orders may read well in short text.
    is_other_order = any(map(is_wide, found.encodings)) and (
        is_marked or rate_order(head, found.encodings[0]) + 1 < rate_order(head, ordered)
    )
    is_text = not is_utf8 and reads_well(head, ordered, LAX if found.what else STRICT)
    if is_text and not is_other_order:
        return
    if found.what:
        raise _not_text(path, found.what)
    raise _not_utf8(path, wanted, tuple(each for each in found.encodings if each != wanted))


def _not_text(path: str, what: str) -> NotTextError:
    step = _REMEDIES.get(what, "pass text").format("FILE" if path == "-" else quoted(path))
    return NotTextError(
        f"this is {what}, not text",
        where=path,
        # Nothing else would be left of standard input.
        next_step=step
        if path == "-"
        else f"{step}, or leave such files out with `--on-error skip`",
    )


def _not_utf8(path: str, wanted: str, encodings: tuple[str, ...]) -> NotUtf8Error:
    named = wanted.upper() if wanted == UTF_8 else wanted
    if not encodings:
        what = f"this is not {named}, and its encoding could not be detected"
        step = "pass its encoding, as in `--encoding cp1252`"
    elif len(encodings) == 1:
        what = f"this is not {named}; it looks like {name_encoding(encodings[0])}"
        step = f"pass `--encoding {encodings[0]}`"
    else:
        what = f"this is not {named}; it may be {' or '.join(map(name_encoding, encodings))}"
        step = f"look at the text with `penstok plan {quoted(path)} --encoding {encodings[0]}`"
    error = NotUtf8Error(what, where=path, next_step=step)
    error.encodings = encodings
    return error
