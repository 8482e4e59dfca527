"""Lines of a ledger on their own, in any condition: all of them, or a sample.

It proves each line by its checksum and does not add lines up or check their order (`reader` does),
and it writes nothing. `verification` lists damaged lines and samples long ledgers with it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstok.output.ledger.lines import MAX_LINE_BYTES, UNIT_START, line_body, read_unit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from penstok.output.ledger.lines import UnitLine
    from penstok.storage.object_paths import OutputPath

__all__ = ["iter_damaged", "iter_sampled_units"]


def iter_damaged(path: OutputPath) -> Iterator[tuple[int, int]]:
    """Yield the byte range of every line whose checksum is wrong; none if there is no ledger."""
    if not path.is_file():
        return
    start = 0
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            if line_body(line) is None:
                yield start, start + len(line)
            start += len(line)


def iter_sampled_units(
    path: OutputPath, rng: Random, count: int
) -> Iterator[tuple[int, int, UnitLine | None]]:
    """Yield the byte range and content of unit lines at random offsets; None for a damaged line.

    The rest of the ledger is not read. Longer lines are chosen more often.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        for offset in sorted(rng.randrange(size) for _ in range(count)):
            file.seek(offset)
            file.readline(MAX_LINE_BYTES)
            start = file.tell()
            line = file.readline(MAX_LINE_BYTES)
            body = line_body(line)
            if line and (body is None or body.startswith(UNIT_START)):
                yield start, start + len(line), _read_alone(body or b"")


def _read_alone(body: bytes) -> UnitLine | None:
    try:
        line = read_unit(body)
        line.encoded()
    except (ValueError, RecursionError):
        return None
    return line
