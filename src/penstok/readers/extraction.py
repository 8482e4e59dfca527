"""What extracting texts from many records at once returns, for JSON Lines and CSV alike.

It parses nothing: the kernel does, or a function in Python with equal results. `jsonl.lines` and
`csv.records` implement `Extractor`; `documents` turns the texts into blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["GOOD", "Extracted", "Extractor", "run_extraction"]

GOOD = 0  # the code of a good record in every format


class Extracted(Struct, frozen=True):
    r"""Records, good and bad, in order; blank lines are not records.

    Attributes:
        text: All texts: a view of the caller's buffer.
        starts: Where each record's text begins in `text`.
        ends: Where it ends; where it begins if the record is bad.
        codes: The outcome of each record, a number of its format; `GOOD` if it has a text.
        records: Where each record begins in the input.
        faults: Where a broken record breaks; means nothing for others.
        num_blank: How many lines are blank.
        num_lone_surrogates: Escapes such as `\ud800` that encode half a character; each became
            U+FFFD.
        consumed: Where the first record that was not read begins.
    """

    text: memoryview
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    codes: NDArray[np.uint8]
    records: NDArray[np.int64]
    faults: NDArray[np.int64]
    num_blank: int
    num_lone_surrogates: int
    consumed: int


class Extractor(Protocol):
    """Extracts one field or column of records."""

    def extract(
        self, buffer: memoryview, out: bytearray | memoryview, stop: int = ...
    ) -> Extracted:
        """Write the texts of all records that begin before `stop` to `out`.

        Args:
            buffer: Whole records; the last may lack its line feed.
            out: At least as long as `buffer`, and separate from it. What follows the texts in it is
                undefined.
            stop: Lets a caller extract a few MB at a time, so that the texts stay in cache.
        """
        ...

    def explain(self, buffer: memoryview, found: Extracted, record_idx: int) -> str:
        """Say what is wrong with a record, for a message that also says where it is."""
        ...


def run_extraction(
    function: Callable[..., Any], buffer: memoryview, stop: int, *options: Any, out: Any
) -> Extracted:
    """Call a function of the kernel, or one that replaces it, and check what it is given."""
    if len(out) < len(buffer):
        raise ValueError(f"out has room for {len(out)} bytes; {len(buffer)} are needed")
    data, room = np.frombuffer(buffer, np.uint8), np.frombuffer(out, np.uint8)
    if np.may_share_memory(data, room):
        raise ValueError("out and the buffer overlap")
    records, faults, starts, ends, codes, num_blank, *num_lone, consumed = function(
        data, stop, *options, room
    )
    text = memoryview(out)[: int(ends[-1]) if len(ends) else 0]
    return Extracted(text, starts, ends, codes, records, faults, num_blank, sum(num_lone), consumed)
