"""The tokens of one file in an object store, as an array that is read where it is asked for.

It holds no tokens and writes nothing: every index or slice is one ranged request. `dataset` gives
it out where it would give a memory map of a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from penstok.storage import RemoteFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import DTypeLike, NDArray

    from penstok.storage import ObjectInfo
    from penstok.storage.object_paths import ObjectPath

__all__ = ["RemoteTokens"]

_ITER_TOKENS = 1 << 19


class RemoteTokens:
    """Read-only tokens of an object, as it was when it was looked at.

    Take slices: `tokens[start:end]` is an array in memory, by one request. A process that is forked
    off or that unpickles it can read it too, and so can several threads.

    Attributes:
        path: The object.
        dtype: Of one token.
    """

    ndim = 1

    def __init__(self, path: ObjectPath, dtype: np.dtype[Any], info: ObjectInfo) -> None:
        self.path = path
        self.dtype = dtype
        self._info = info

    def __len__(self) -> int:
        return (self._info.num_bytes or 0) // self.dtype.itemsize

    def __repr__(self) -> str:
        return f"RemoteTokens({str(self.path)!r}, {len(self)} of {self.dtype})"

    @property
    def shape(self) -> tuple[int]:
        """The number of tokens, as arrays tell it."""
        return (len(self),)

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self)

    @overload
    def __getitem__(self, key: int) -> np.unsignedinteger[Any]: ...
    @overload
    def __getitem__(self, key: slice) -> NDArray[np.unsignedinteger[Any]]: ...
    def __getitem__(
        self, key: int | slice
    ) -> np.unsignedinteger[Any] | NDArray[np.unsignedinteger[Any]]:
        """Read one token, or a slice; a step is applied to the range that it spans."""
        if isinstance(key, slice):
            places = range(*key.indices(len(self)))
            if not places:
                return np.empty(0, self.dtype)
            first, last = min(places[0], places[-1]), max(places[0], places[-1])
            return self._read(first, last + 1)[:: places.step]
        place = range(len(self))[key]
        token: np.unsignedinteger[Any] = self._read(place, place + 1)[0]
        return token

    def __iter__(self) -> Iterator[np.unsignedinteger[Any]]:
        """Yield token by token, read in long pieces."""
        for start in range(0, len(self), _ITER_TOKENS):
            yield from self[start : start + _ITER_TOKENS]

    def __array__(
        self, dtype: DTypeLike | None = None, *, copy: bool | None = None
    ) -> NDArray[Any]:
        """Read all of it into memory."""
        if copy is False:
            raise ValueError(f"{self.path} is not in memory: an array of it is a copy")
        return self[:].astype(dtype or self.dtype, copy=False)

    def tolist(self) -> list[int]:
        """Read all of it into a list."""
        return [int(token) for token in self[:].tolist()]

    def _read(self, start: int, end: int) -> NDArray[np.unsignedinteger[Any]]:
        tokens: NDArray[np.unsignedinteger[Any]] = np.empty(end - start, self.dtype)
        with RemoteFile(self.path.url, self._info) as file:
            file.fetch_into(tokens.view(np.uint8).data, start * self.dtype.itemsize)
        return tokens
