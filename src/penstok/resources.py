"""What must be closed: used in a `with`, whose end closes it.

It opens nothing. Open inputs of every kind stand on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Resource"]

_R = TypeVar("_R", bound="Resource")


class Resource:
    """Something that is open until `close`; use it in a `with`."""

    def close(self) -> None:
        """Let go of what is held."""

    def __enter__(self: _R) -> _R:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
