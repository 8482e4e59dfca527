"""Text in other encodings than UTF-8: which can be read, and how their bytes become UTF-8.

It opens nothing and guesses nothing: `content` detects an encoding. `streams` reads every input
that is not UTF-8 through a `Transcoder`, so that all later stages see UTF-8 only.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from penstok.errors import InputError, UsageError
from penstok.types import UTF_8

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AUTO",
    "INVALID",
    "Transcoder",
    "count_multibyte",
    "decode_sample",
    "has_escapes",
    "has_single_bytes",
    "resolve_encoding",
]

AUTO = "auto"
# What messages list, and what a misspelled name is compared with.
_USUAL = (
    *("utf-8", "utf-16", "gb18030", "gbk", "big5", "shift_jis", "cp932", "euc_jp", "iso2022_jp"),
    *("euc_kr", "cp949", "cp1250", "cp1251", "koi8-r", "cp1252", "latin-1", "iso8859-15"),
    *("cp1253", "cp1254", "cp1255", "cp1256", "cp874"),
)
# Not encodings of text in files, or such that a decoder may have to hold all of a file.
_REFUSED = {
    *("charmap", "idna", "mbcs", "oem", "punycode", "raw-unicode-escape", "undefined"),
    *("unicode-escape", "utf-7"),
}
# What replaces a malformed sequence: a byte that is invalid in UTF-8, so that `--invalid-utf8`
# decides about it and it is counted as one sequence.
INVALID = b"\xff"
_NOT_ASCII = bytes(range(128, 256))
_ALL_BYTES = bytes(range(256))
_ERRORS = "penstok-invalid"
# Decoders are fed blocks of exactly this size, whatever a pipe returns at once, so that the result
# does not depend on timing.
_BLOCK_BYTES = 1 << 16
# A decoder refuses a block that ends in a longer escape sequence than it can hold.
_LONGEST_ESCAPE_BYTES = 32


def _mark_invalid(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace a malformed sequence while decoding, and what stands for it while encoding."""
    if isinstance(error, UnicodeDecodeError):
        return "\udcff", error.end
    if isinstance(error, UnicodeEncodeError):
        return INVALID * (error.end - error.start), error.end
    raise error


codecs.register_error(_ERRORS, _mark_invalid)


def resolve_encoding(name: str) -> str:
    """Return the one name of an encoding that has several; `auto` stays as it is.

    Raises:
        UsageError: If there is no such encoding, or it is not one of text.
    """
    if name.lower() == AUTO:
        return AUTO
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError) as error:
        raise _unknown(name) from error
    if codec.name == "utf-8-sig":
        return UTF_8
    is_text = getattr(codec, "_is_text_encoding", True) and codec.incrementaldecoder is not None
    if not is_text or codec.name in _REFUSED:
        what = f"`{name}` is not an encoding of text files"
        if codec.name == "utf-7":
            what = f"`{name}` cannot be read: its decoder may have to hold all of a file"
        raise UsageError(
            what,
            where="--encoding",
            next_step=f"pass `--encoding auto`, or one of: {', '.join(_USUAL)}",
        )
    return codec.name


def _unknown(name: str) -> UsageError:
    from difflib import get_close_matches

    close = get_close_matches(name.lower().replace("-", "_"), _USUAL, n=1)
    guess = f"; did you mean `{close[0]}`?" if close else ""
    return UsageError(
        f"unknown encoding `{name[:100]}`{guess}",
        where="--encoding",
        next_step=f"pass `--encoding auto`, or one of: {', '.join(_USUAL)}",
    )


def decode_sample(sample: bytes, encoding: str, *, is_whole: bool = False) -> bytes:
    """Return the UTF-8 of some bytes.

    A character that is cut off at their end is left out, or invalid if they are all there is.
    """
    return _Decoder(encoding).decode(sample, is_last=is_whole)


def count_multibyte(text: bytes) -> int:
    """Count the valid characters of more than one byte in UTF-8."""
    return len(text.decode(errors="ignore")) - len(text.translate(None, _NOT_ASCII))


def has_single_bytes(encoding: str) -> bool:
    """Tell whether each byte is a character, so that any text of that kind can be decoded."""
    text = _ALL_BYTES.decode(encoding, "replace")
    return len(text) == len(_ALL_BYTES) and text.count("\ufffd") < len(_NOT_ASCII)


def has_escapes(sample: bytes) -> bool:
    """Tell whether ASCII may be text in an encoding that consists of ASCII."""
    return b"\x1b$" in sample or b"~{" in sample


class _Decoder:
    """Turns blocks of bytes into UTF-8; keeps what is cut off at the end of a block."""

    def __init__(self, encoding: str) -> None:
        self._decoder = codecs.getincrementaldecoder(encoding)(_ERRORS)
        self._rest = b""

    def decode(self, block: bytes, *, is_last: bool = False) -> bytes:
        """Decode the next block."""
        block, self._rest = self._rest + block, b""
        before = self._decoder.getstate()
        for length in range(len(block), max(len(block) - _LONGEST_ESCAPE_BYTES, 0) - 1, -1):
            try:
                text = self._decoder.decode(block[:length], is_last)
            except UnicodeError:  # noqa: PERF203 the loop has one pass unless text is malformed
                # What is cut off at the end is longer than the decoder can hold.
                self._decoder.setstate(before)
            else:
                self._rest = block[length:]
                return text.encode("utf-8", _ERRORS)
        raise ValueError(f"{self._decoder!r} cannot hold the end of {block[-100:]!r}")

    @property
    def state(self) -> tuple[tuple[bytes, int], bytes]:
        """What `restore` goes back to."""
        return self._decoder.getstate(), self._rest

    def restore(self, state: tuple[tuple[bytes, int], bytes]) -> None:
        """Go back to an earlier state."""
        self._decoder.setstate(state[0])
        self._rest = state[1]


class Transcoder:
    """Reads bytes in some encoding as UTF-8."""

    def __init__(self, read_into: Callable[[memoryview], int], encoding: str) -> None:
        """Read from a function that fills some of a buffer; 0 is the end."""
        self._read_into = read_into
        self._decoder = _Decoder(encoding)
        self._text = memoryview(b"")
        self._failure: InputError | None = None
        self._is_at_end = False

    def readinto(self, buffer: memoryview) -> int:
        """Read some of the next text; 0 is its end.

        Raises:
            InputError: If the bytes cannot be read; the text before that was returned.
        """
        while not self._text and not self._is_at_end:
            block = self._read_block()
            self._text = memoryview(self._decoder.decode(block, is_last=self._is_at_end))
        count = min(len(buffer), len(self._text))
        buffer[:count] = self._text[:count]
        self._text = self._text[count:]
        return count

    def locate(self, position: int) -> tuple[int, bytes]:
        """Return where the character at a position of the text begins in the bytes, and its bytes.

        Must be called before anything is read; it reads up to that position.
        """
        text_bytes = num_bytes = 0
        while True:
            before = self._decoder.state
            block = self._read_block()
            text = self._decoder.decode(block, is_last=self._is_at_end)
            if text_bytes + len(text) > position or self._is_at_end:
                break
            text_bytes, num_bytes = text_bytes + len(text), num_bytes + len(block)
        self._decoder.restore(before)
        start = stop = -len(before[0][0]) - len(before[1])
        begin = text_bytes
        for idx in range(len(block)):
            text_bytes += len(self._decoder.decode(block[idx : idx + 1]))
            stop = idx + 1
            if text_bytes > position:
                break
            if text_bytes > begin:
                begin, start = text_bytes, stop
        return num_bytes + start, block[max(start, 0) : stop]

    def _read_block(self) -> bytes:
        """Read a block: exactly so many bytes, or up to the end."""
        if self._failure is not None:
            raise self._failure
        block, done = memoryview(bytearray(_BLOCK_BYTES)), 0
        while done < _BLOCK_BYTES:
            try:
                count = self._read_into(block[done:])
            except InputError as failure:
                self._failure = failure
                break
            if not count:
                self._is_at_end = True
                break
            done += count
        return bytes(block[:done])
