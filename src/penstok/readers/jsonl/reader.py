"""JSON Lines: one object per line, of which one field is a document.

A unit has the lines that begin in it. The reader finds lines and lists bad records; it parses
nothing itself: `lines` does, a block at a time and without a Python object per document.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstok.errors import InputError, quoted
from penstok.inputs.base import MAX_LINE_BYTES
from penstok.kernel import find_kernel_function
from penstok.readers.buffer import UnitBuffer
from penstok.readers.documents import RecordReader, describe_position
from penstok.readers.jsonl.lines import JsonLines
from penstok.types import Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from penstok.inputs.base import OpenInput
    from penstok.readers.base import CutRule, ReaderOptions
    from penstok.readers.extraction import Extracted
    from penstok.types import Block, Unit

__all__ = ["JsonlReader", "check_head"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# How much is searched for the end of a line.
_TAIL_BYTES = 1 << 16


def check_head(path: str, head: bytes) -> None:
    """Refuse an input that does not begin with an object.

    Raises:
        InputError: If so.
    """
    start = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if not start or start.startswith(b"{"):
        return
    if start.startswith(b"["):
        raise InputError(
            "this is one JSON array, not one object per line",
            where=path,
            next_step=f"convert it to lines first: `jq -c '.[]' {quoted(path)} > lines.jsonl`",
        )
    raise InputError(
        f"this is not JSON Lines: it begins with {start[:20]!r}",
        where=path,
        next_step="pass `--input-format text` to read it as plain text",
    )


class JsonlReader(RecordReader):
    """Reads the text of one field from lines of JSON."""

    def __init__(self, cuts: CutRule, options: ReaderOptions) -> None:
        super().__init__(cuts, options)
        extract = find_kernel_function("extract_json_lines")
        self._lines = JsonLines(options.text_key, extract)
        self._kept = [JsonLines(key, extract, takes_any=True) for key in options.kept_fields]
        self._json = UnitBuffer()

    def iter_blocks(self, unit: Unit) -> Iterator[Block]:
        """Yield the documents of a unit in order; a block is valid until the next one."""
        with self._options.open_unit(unit) as file:
            start, end = file.find_line(unit.start), file.find_line(unit.end)
            if start >= end:
                return
            mark_bytes = _mark_bytes(file) if start == 0 else 0
            self._counts += Counts(input_bytes=end - start, byte_order_marks=int(mark_bytes > 0))
            limit = min(end, unit.end + MAX_LINE_BYTES)
            position = start + mark_bytes
            mapped = file.map_range(position, end) if end <= limit else None
            self._json.start(position)
            while True:
                if mapped is None:
                    data = self._load_lines(file, position, limit, end)
                else:
                    data, mapped = self._divide_lines(mapped)
                if not data:
                    break
                yield from self._iter_records(self._lines, data, position, file, self._kept)
                position += len(data)
            if position < end:
                what = f"a line of more than {MAX_LINE_BYTES >> 20} MiB"
                self._refuse(position, what, partial(describe_position, file))
                self._counts += Counts(skipped_records=1)
            if self._options.give_back:
                file.give_back(start, end)

    def _divide_lines(self, lines: memoryview) -> tuple[memoryview, memoryview]:
        """Return about a block of lines that are in memory, and what follows them."""
        size = self._options.block_bytes
        while size < len(lines):
            tail = bytes(lines[max(size - _TAIL_BYTES, 0) : size])
            if found := tail.rfind(b"\n") + 1:
                size += found - len(tail)
                return lines[:size], lines[size:]
            size += _TAIL_BYTES
        return lines, lines[:0]

    def _load_lines(self, file: OpenInput, position: int, limit: int, end: int) -> memoryview:
        """Read the next lines, about a block of them.

        There is nothing at the end of the unit, or if the next line does not end before `limit`.
        """
        loaded_end, wanted = position, self._options.block_bytes
        while loaded_end < limit:
            loaded_end, wanted = min(position + wanted, limit), 2 * wanted
            self._json.advance(file, position, loaded_end)
            held = len(self._json.view)
            whole = held if loaded_end == end else self._json.find_last(b"\n", 0, held) + 1
            if whole:
                return self._json.view[:whole]
        return self._json.view[:0]

    def _find_ends(
        self, found: Extracted, data: memoryview, origin: int, file: OpenInput
    ) -> NDArray[np.int64]:
        """Drop or refuse lone surrogates if asked to; return where the texts end."""
        if not found.num_lone_surrogates or self._options.invalid_utf8 == "replace":
            return found.ends
        ends = found.ends.copy()
        for idx, text in self._lines.iter_without_lone_surrogates(data, found):
            if self._options.invalid_utf8 == "stop":
                position = origin + int(found.records[idx])
                raise InputError(
                    "an escape in the text is half a surrogate pair, not a character",
                    where=describe_position(file, position),
                    next_step="correct it, or pass `--invalid-utf8 replace` (counted) or `ignore`",
                )
            start = int(found.starts[idx])
            ends[idx] = start + len(text)
            found.text[start : start + len(text)] = text
        return ends


def _mark_bytes(file: OpenInput) -> int:
    head = file.read_at(0, len(_BYTE_ORDER_MARK))
    return len(head) if head == _BYTE_ORDER_MARK else 0
