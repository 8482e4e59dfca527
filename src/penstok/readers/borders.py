"""Where units and pieces of a text file begin: a function of the file's bytes alone.

Every worker finds the same border from the same position, whatever the unit size, and reads only
bytes near it. It yields no documents; `text` and `spans` use it for that.

A *break* is a position at which dividing changes no token: the start of a document, or a cut inside
one. Text without a break for more than `MAX_RUN_BYTES` is divided anyway, at a multiple of
`MAX_RUN_BYTES`: a *forced cut*, which can change tokens and is counted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from penstok.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.inputs.base import OpenInput
    from penstok.readers.base import CutRule

__all__ = ["MAX_RUN_BYTES", "Borders", "overlaps_itself", "refuse_long_document"]

MAX_RUN_BYTES = 1 << 20
# A unit ends where a document starts if one does this near, else inside a document.
_PATIENCE_BYTES = 1 << 20
# A cut rule needs one UTF-8 character on both sides of a position.
_CONTEXT_BYTES = 4
# Text has a cut every few words: a small first read costs a quarter of one of 4 KiB.
_FIRST_READ_BYTES = 1 << 8
# How far the quick search for a cut goes.
_NEAR_BYTES = 1 << 6
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


@lru_cache(maxsize=4)
def overlaps_itself(separator: bytes) -> bool:
    """Tell whether two separators can share bytes, as two double newlines in three newlines."""
    return any(separator.startswith(separator[shift:]) for shift in range(1, len(separator)))


def _period(separator: bytes) -> int:
    """Return the period that all overlaps of a separator share; 0 if there is none.

    It is 1 for two newlines and 2 for two pairs of carriage return and newline.
    """
    shifts = [at for at in range(1, len(separator)) if separator.startswith(separator[at:])]
    shared = bool(shifts) and all(shift % shifts[0] == 0 for shift in shifts)
    return shifts[0] if shared else 0


def refuse_long_document(where: str, limit_bytes: int) -> InputError:
    """Return the error for a document that must stay whole and is too long for that."""
    return InputError(
        f"a document of more than {limit_bytes >> 10} KiB: documents cannot be divided with this "
        "tokenizer, and it does not fit the memory of a worker",
        where=where,
        next_step="pass more `--memory` or fewer `--workers`, or divide the document",
    )


class Borders:
    """Finds borders in one open input."""

    def __init__(self, file: OpenInput, separator: bytes, cuts: CutRule) -> None:
        self._file = file
        self._separator = separator
        self._cuts = cuts
        self._overlaps = overlaps_itself(separator)
        self._period = _period(separator)
        self.size: int = file.size
        head = file.read_at(0, len(_BYTE_ORDER_MARK))
        self.text_start: int = len(head) if head == _BYTE_ORDER_MARK else 0

    def mark_bytes(self, start: int) -> int:
        """Return the length of the byte order mark before a unit that starts at `start`."""
        return self.text_start if start == self.text_start else 0

    def unit_border(self, position: int) -> tuple[int, bool]:
        """Return where a unit with this nominal start begins, and whether a document does too."""
        if position <= self.text_start:
            return self.text_start, True
        if self._cuts.max_document_bytes is not None:
            return self._document_after(position, self._cuts.max_document_bytes), True
        patience_end = position + _PATIENCE_BYTES
        document = self._first_document(position, min(patience_end, self.size))
        if document is not None:
            return document, True
        if patience_end >= self.size:
            return self.size, True
        border = self.next_border(position)
        return border, border == self.size or self._first_document(border, border + 1) == border

    def next_border(self, position: int) -> int:
        """Find the first break or forced cut at or after `position`."""
        grid = -(-position // MAX_RUN_BYTES) * MAX_RUN_BYTES
        found = self._first_break(position, grid)
        if found is None:
            found = self._first_break(grid, grid + MAX_RUN_BYTES)
        return self._whole_character(grid) if found is None else found

    def forced_cuts(self, start: int, end: int) -> list[int]:
        """List the forced cuts after `start`, up to and including `end`."""
        if self._cuts.max_document_bytes is not None:
            return []
        first = max(start // MAX_RUN_BYTES * MAX_RUN_BYTES, MAX_RUN_BYTES)
        grids = range(first, end + 1, MAX_RUN_BYTES)
        forced = [
            self._whole_character(grid)
            for grid, has_cut in zip(grids, self._have_near_cuts(grids), strict=True)
            if not has_cut and self._first_break(grid, grid + MAX_RUN_BYTES) is None
        ]
        return [cut for cut in forced if start < cut <= end]

    def _have_near_cuts(self, positions: range) -> NDArray[np.bool_]:
        """Tell after which positions there surely is a cut within a few words.

        Text nearly always has one. Asking the cut rule once for all positions of a unit takes a
        tenth of the time of a search from each, which was 4 % of a worker's.
        """
        margin = max(_CONTEXT_BYTES, len(self._separator))
        size = _NEAR_BYTES + 2 * margin
        windows = [self._file.read_at(at - margin, at - margin + size) for at in positions]
        # A separator might be divided, and the file might end.
        plain = [len(each) == size and not self._has_separator(each) for each in windows]
        joined = b"".join(each for each, is_plain in zip(windows, plain, strict=True) if is_plain)
        found = np.array(plain, np.bool_)
        if not joined:
            # The rule takes as long to make as all else that a small job does.
            return found
        marked = self._cuts.mask(np.frombuffer(joined, np.uint8)).reshape(-1, size)
        found[plain] = marked[:, margin : margin + _NEAR_BYTES].any(axis=1)
        return found

    def _has_separator(self, text: bytes) -> bool:
        return bool(self._separator) and self._separator in text

    def _document_after(self, position: int, limit_bytes: int) -> int:
        """Find the first document at or after `position`, within the longest length of one."""
        if not self._separator:
            if self.size > limit_bytes:
                raise refuse_long_document(self._file.source.path, limit_bytes)
            return self.size
        end = position + limit_bytes + len(self._separator)
        document = self._first_document(position, min(end, self.size))
        if document is None and end < self.size:
            raise refuse_long_document(
                f"{self._file.source.path}, around byte {position}", limit_bytes
            )
        return self.size if document is None else document

    def first_cut(self, start: int, end: int, *, at_line: bool = False) -> int | None:
        """Find the first cut inside a document from `start` to before `end`."""
        mask = self._cuts.line_mask if at_line else self._cuts.mask
        size = _FIRST_READ_BYTES
        while start < end:
            stop = min(start + size, end)
            left = max(start - _CONTEXT_BYTES, self.text_start)
            window = self._file.read_at(left, stop + _CONTEXT_BYTES)
            marked = mask(np.frombuffer(window, np.uint8))[start - left : stop - left]
            for found in np.flatnonzero(marked).tolist():
                if not self._touches_separator(start + found):
                    return start + int(found)
            start, size = stop, size * 4
        return None

    def _first_break(self, start: int, end: int) -> int | None:
        """Find the first break from `start` to before `end`; the end of the file is one."""
        if start >= self.size:
            return self.size
        stop = min(end, self.size)
        document = self._first_document(start, stop)
        cut = self.first_cut(start, stop if document is None else document)
        if cut is not None:
            return cut
        if document is not None:
            return document
        return self.size if self.size < end else None

    def _first_document(self, start: int, end: int) -> int | None:
        """Find where a document starts after a separator, from `start` to before `end`."""
        length = len(self._separator)
        if not length:
            return None
        found = self._find_separator(max(start - length, self.text_start), end - 1)
        if found is None or not self._overlaps:
            return None if found is None else found + length
        return self._resolve_overlaps(found, start, end)

    def _find_separator(self, start: int, end: int) -> int | None:
        """Find the first separator that lies between `start` and `end`."""
        length = len(self._separator)
        size = _FIRST_READ_BYTES + length
        while start + length <= end:
            stop = min(start + size, end)
            found = self._file.read_at(start, stop).find(self._separator)
            if found >= 0:
                return start + found
            start, size = stop - length + 1, size * 4
        return None

    def _resolve_overlaps(self, found: int, start: int, end: int) -> int | None:
        """Of overlapping separators, take those that a reader coming from the left would.

        If two newlines separate documents, five newlines contain four separators; two count.
        """
        length = len(self._separator)
        taken = self._first_overlapping(found)
        if self._period:
            # In the run, one is taken every `step` bytes: skip to the last before `start`.
            step = -(-length // self._period) * self._period
            taken += max(start - length - taken, 0) // step * step
        while (at := self._find_separator(taken, end - 1)) is not None:
            if at + length >= start:
                return at + length
            taken = at + length
        return None

    def _first_overlapping(self, found: int) -> int:
        """Go back over overlapping separators to the first of them."""
        if self._period:
            run = self._run_start(found)
            return found - (found - run) // self._period * self._period
        length = len(self._separator)
        while True:
            left = max(found - length + 1, self.text_start)
            earlier = self._file.read_at(left, found + length - 1).find(self._separator)
            if earlier < 0:
                return found
            found = left + earlier

    def _run_start(self, position: int) -> int:
        """Go back over text that repeats with the separator's period."""
        period = self._period
        while position > self.text_start:
            left = max(position - MAX_RUN_BYTES // 16, self.text_start)
            text = np.frombuffer(self._file.read_at(left, position + period), np.uint8)
            differing = np.flatnonzero(text[:-period] != text[period:])
            if len(differing):
                return left + int(differing[-1]) + 1
            position = left
        return position

    def _touches_separator(self, position: int) -> bool:
        """Tell whether dividing at `position` would divide a separator."""
        length = len(self._separator)
        if length < 2:
            return False
        around = self._file.read_at(position - length + 1, position + length - 1)
        return self._separator in around

    def _whole_character(self, position: int) -> int:
        """Move to the end of a UTF-8 character."""
        rest = self._file.read_at(position, position + _CONTEXT_BYTES - 1)
        return position + len(rest) - len(rest.lstrip(_CONTINUATION_BYTES))
