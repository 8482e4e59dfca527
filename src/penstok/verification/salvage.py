"""What a ledger tells that is damaged, or too long to be read whole.

It walks past lines that are no good, where `LedgerReader` stops at the first. It writes nothing;
verify lists damage with it, restore builds on what is left.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from penstok.output.ledger.lines import (
    INPUT_START,
    MAX_LINE_BYTES,
    UNIT_START,
    line_body,
    read_input,
    read_unit,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path
    from random import Random

    from penstok.output.ledger.lines import UnitLine
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Source, Unit

__all__ = ["find_unit_bytes", "iter_lines", "salvage_sources", "salvage_units", "sample_units"]


def iter_lines(path: OutputPath) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield where each line of a ledger starts and ends, and its content; None if it is damaged."""
    start = 0
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            yield start, start + len(line), line_body(line)
            start += len(line)


def salvage_sources(path: Path) -> dict[int, Source]:
    """Read the inputs whose lines are whole, by number."""
    sources: dict[int, Source] = {}
    for _, _, body in iter_lines(path) if path.is_file() else ():
        if body is not None and body.startswith(INPUT_START):
            with contextlib.suppress(ValueError, RecursionError):
                idx, source, _ = read_input(body)
                sources.setdefault(idx, source)
    return sources


def find_unit_bytes(path: Path, default: int, row_inputs: Collection[int]) -> int:
    """Tell the size of a unit from the lines that are left; `default` if it fits them all.

    Args:
        path: The ledger.
        default: The size in a job that was asked for no other.
        row_inputs: The inputs whose units count rows, which say nothing of bytes.
    """
    longest, fits = 0, True
    for line in _iter_unit_lines(path):
        if line.input in row_inputs:
            continue
        longest = max(longest, line.end - line.start)
        fits = fits and line.start % default == 0 and longest <= default
    return default if fits else longest


def salvage_units(path: Path, units: Iterable[Unit]) -> Iterator[tuple[Unit, UnitLine | None]]:
    """Yield every unit of a job with its line in a damaged ledger; None where that is lost."""
    lines = _iter_unit_lines(path)
    line = next(lines, None)
    for unit in units:
        while line is not None and line.unit < unit.index:
            line = next(lines, None)
        place = (unit.index, unit.source_idx, unit.start, unit.end)
        if line is not None and (line.unit, line.input, line.start, line.end) == place:
            yield unit, line
        else:
            yield unit, None


def _iter_unit_lines(path: Path) -> Iterator[UnitLine]:
    """Yield the lines of units that are whole and make sense alone."""
    for _, _, body in iter_lines(path) if path.is_file() else ():
        if body is not None and body.startswith(UNIT_START):
            try:
                line = read_unit(body)
                line.encoded()
            except (ValueError, RecursionError):
                continue
            yield line


def sample_units(
    path: OutputPath, rng: Random, count: int
) -> Iterator[tuple[int, int, UnitLine | None]]:
    """Look at lines of units at random places, without reading the rest; longer ones more often.

    Yields where each starts and ends, and None for one that is damaged. For ledgers of which only
    a part is to be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        for place in sorted(rng.randrange(size) for _ in range(count)):
            file.seek(place)
            file.readline(MAX_LINE_BYTES)
            start = file.tell()
            line = file.readline(MAX_LINE_BYTES)
            body = line_body(line)
            if body is None:
                if line:
                    yield start, start + len(line), None
            elif body.startswith(UNIT_START):
                try:
                    unit = read_unit(body)
                    unit.encoded()
                except (ValueError, RecursionError):
                    yield start, start + len(line), None
                else:
                    yield start, start + len(line), unit
