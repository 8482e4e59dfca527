"""Runs of tokens on their way to a file: in memory, those of a long unit in a temporary file.

It does not know where they will be written. `worker.unit_tokens` fills it, `segments` reads it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.output.write_errors import write_errors
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["TokenRun", "TokenSpool"]

_PIECE_BYTES = 1 << 20


class TokenSpool:
    """A file without a name that holds the first tokens of a run.

    It is gone when it is closed, or with the process.
    """

    def __init__(self, folder: Path | None, dtype: str) -> None:
        """Create the file in a folder; without one, where the system has its temporary files."""
        self._folder = folder or Path(tempfile.gettempdir())
        self._dtype = np.dtype(dtype)
        with write_errors(self._folder):
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        self.num_tokens: int = 0

    def append(self, tokens: NDArray[np.unsignedinteger[Any]]) -> None:
        """Write more tokens."""
        data = tokens.view(np.uint8).data
        with write_errors(self._folder):
            while data:
                data = data[self._file.write(data) :]
        self.num_tokens += len(tokens)

    def iter_pieces(self, first: int, count: int) -> Iterator[NDArray[np.unsignedinteger[Any]]]:
        """Yield a range of the tokens; a piece is valid until the next is asked for."""
        size = self._dtype.itemsize
        buffer = np.empty(_PIECE_BYTES // size, self._dtype)
        while count:
            piece = buffer[:count]
            done = os.preadv(self._file.fileno(), [piece.view(np.uint8).data], first * size) // size
            yield piece[:done]
            first, count = first + done, count - done

    def close(self) -> None:
        """Delete the file."""
        self._file.close()


class TokenRun(Struct, frozen=True):
    """The tokens of a unit in one split.

    Attributes:
        held: Those in memory.
        spool: Those before them, if there were too many for memory.
    """

    held: NDArray[np.unsignedinteger[Any]]
    spool: TokenSpool | None = None

    def __len__(self) -> int:
        return self._num_spooled + len(self.held)

    @property
    def _num_spooled(self) -> int:
        return 0 if self.spool is None else self.spool.num_tokens

    def iter_pieces(
        self, first: int = 0, count: int | None = None
    ) -> Iterator[NDArray[np.unsignedinteger[Any]]]:
        """Yield a range of the tokens; a piece is valid until the next is asked for."""
        stop, in_file = len(self) if count is None else first + count, self._num_spooled
        if self.spool is not None and first < in_file:
            yield from self.spool.iter_pieces(first, min(stop, in_file) - first)
        held = self.held[max(first - in_file, 0) : max(stop - in_file, 0)]
        if len(held):
            yield held
