"""The engine interface: the pieces of a block in, flat ids with end-of-text ids in place out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.types import Block

__all__ = ["Engine"]


class Engine(Protocol):
    """Turns text into ids, exactly as the reference does on each whole document."""

    name: ClassVar[str]

    def encode(self, block: Block) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids of all pieces, with the end-of-text ids in place.

        The result is valid until the next call. Text that is not valid UTF-8 raises
        `UnicodeDecodeError`; the worker repairs it and asks again.
        """
        ...
