"""The tokens of one object in an object store, as an array that reads only what is indexed.

It caches and writes nothing: every index or slice is one range request. `dataset` returns it where
it would return a memory map of a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from penstok.data.documents import HasDocuments
from penstok.storage import RemoteFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import DTypeLike, NDArray

    from penstok.storage import ObjectInfo
    from penstok.storage.object_paths import ObjectPath

__all__ = ["RemoteTokens"]

_ITER_TOKENS = 1 << 19


class RemoteTokens(HasDocuments):
    """Read-only tokens of an object, in the version it had when it was opened.

    Use slices: `tokens[start:end]` is an array in memory, read by one request. It can be used by
    several threads, after a fork and after pickling.

    Attributes:
        path: The object.
        dtype: The type of a token.
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
        """The number of tokens, as in numpy."""
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
        """Read one token, or a slice; with a step, the whole range is read."""
        if isinstance(key, slice):
            wanted = range(*key.indices(len(self)))
            if not wanted:
                return np.empty(0, self.dtype)
            first, last = min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1])
            return self._read(first, last + 1)[:: wanted.step]
        idx = range(len(self))[key]
        token: np.unsignedinteger[Any] = self._read(idx, idx + 1)[0]
        return token

    def __iter__(self) -> Iterator[np.unsignedinteger[Any]]:
        """Yield token by token; each request reads many."""
        for start in range(0, len(self), _ITER_TOKENS):
            yield from self[start : start + _ITER_TOKENS]

    def __array__(
        self, dtype: DTypeLike | None = None, *, copy: bool | None = None
    ) -> NDArray[Any]:
        """Read all tokens into memory."""
        if copy is False:
            raise ValueError(f"`{self.path}` is not in memory, so an array of it is always a copy")
        return self[:].astype(dtype or self.dtype, copy=False)

    def tolist(self) -> list[int]:
        """Read all tokens into a list."""
        return [int(token) for token in self[:].tolist()]

    def _read(self, start: int, end: int) -> NDArray[np.unsignedinteger[Any]]:
        tokens: NDArray[np.unsignedinteger[Any]] = np.empty(end - start, self.dtype)
        with RemoteFile(self.path.url, self._info) as file:
            file.fetch_into(tokens.view(np.uint8).data, start * self.dtype.itemsize)
        return tokens
