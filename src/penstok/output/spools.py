"""What workers write for the indexes while a job runs: an entry per document, by its number.

A spool has no checksum and is not in order of time: units write to it as they are done. `documents`
turns spools into indexes when all units are, `jobs.resume` checks what a killed run left of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from penstok.errors import DamageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "ENTRY_TYPES",
    "IndexKind",
    "SpoolError",
    "are_in_order",
    "has_origins",
    "has_starts",
    "iter_spool",
    "lost_spool",
]

IndexKind: TypeAlias = Literal["documents", "origins", "fields", "mask"]
# What a spool of each kind holds per document: its first token; its input and where it is in it.
# Fields have no fixed length, and files of their own.
ENTRY_TYPES: dict[IndexKind, np.dtype[Any]] = {
    "documents": np.dtype("<u8"),
    "origins": np.dtype([("input", "<u4"), ("position", "<u8")]),
}
_READ_ENTRIES = 1 << 16


class SpoolError(DamageError):
    """A spool does not hold an entry for every document; starts can be found in the tokens."""


def are_in_order(entries: NDArray[Any]) -> bool:
    """Tell whether entries are in the order of the inputs, as every job writes them."""
    if entries.dtype.names is None:
        return bool(np.all(entries[1:] >= entries[:-1]))
    inputs, positions = entries["input"], entries["position"]
    is_same = inputs[1:] == inputs[:-1]
    is_later = is_same & (positions[1:] >= positions[:-1])
    return bool(np.all(is_later | (inputs[1:] > inputs[:-1])))


def has_starts(spool: Path, first: int, count: int, low: int, high: int) -> bool:
    """Return whether a spool has the starts of documents that begin in some range of tokens.

    What was never written is 0, which only the first entry may be: documents without a token at the
    start of a split are taken for missing.
    """
    last = low
    try:
        for piece in iter_spool(spool, "documents", first, count):
            if int(piece[0]) < last or not are_in_order(piece):
                return False
            if np.count_nonzero(piece) < len(piece) - (first == 0):
                return False
            first, last = first + len(piece), int(piece[-1])
            if last > high:
                return False
    except SpoolError:
        return False
    return True


def has_origins(spool: Path, first: int, count: int, input_idx: int, low: int) -> bool:
    """Return whether a spool has the origins of documents of one input from a position on."""
    last = low - 1
    try:
        for piece in iter_spool(spool, "origins", first, count):
            positions = piece["position"]
            is_later = int(positions[0]) > last and np.all(positions[1:] > positions[:-1])
            if not is_later or np.any(piece["input"] != input_idx):
                return False
            last = int(positions[-1])
    except SpoolError:
        return False
    return True


def iter_spool(spool: Path, kind: IndexKind, first: int, count: int) -> Iterator[NDArray[Any]]:
    """Yield entries of a spool, in pieces.

    Raises:
        SpoolError: If it is missing, or ends too early.
    """
    if not count:
        return
    dtype = ENTRY_TYPES[kind]
    try:
        with spool.open("rb") as file:
            file.seek(first * dtype.itemsize)
            while count:
                piece = np.fromfile(file, dtype, min(count, _READ_ENTRIES))
                if not len(piece):
                    raise lost_spool(spool, "it ends too early")
                count -= len(piece)
                yield piece
    except FileNotFoundError as error:
        raise lost_spool(spool, "it is missing") from error


def lost_spool(spool: Path, why: str) -> SpoolError:
    """Return the error for a spool that is damaged."""
    return SpoolError(
        f"what a killed run left is damaged: {why}",
        where=str(spool),
        next_step="run the same command with `--overwrite`",
    )
