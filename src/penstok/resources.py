"""A base class for things that must be closed, so that a `with` closes them.

It opens nothing. Inputs, streams and processes of every kind derive from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Resource"]

_R = TypeVar("_R", bound="Resource")


class Resource:
    """Something that stays open until `close`; use it in a `with`."""

    def close(self) -> None:
        """Release files, memory and processes."""

    def __enter__(self: _R) -> _R:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
