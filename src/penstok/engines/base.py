"""The engine interface: the documents of a block in, flat ids with end-of-text ids in place out.

It encodes nothing and knows no engine by name. `registry` lists the engines; the worker calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from penstok.errors import UsageError
from penstok.types import Struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstok.tokenizers import Tokenizer
    from penstok.types import Block, EotPosition

__all__ = ["Engine", "EngineClass", "SplitEngine", "SplitIds", "cannot_encode", "most_tokens"]

# The kernel may overwrite this many ids after the last one.
_SLACK_TOKENS = 128


def most_tokens(block: Block) -> int:
    """Return how many ids an array for a block must hold.

    One per byte, and three per document: for its end, its begin, and the space that some tokenizers
    put before it.
    """
    if not len(block.starts):
        return _SLACK_TOKENS
    return int(block.ends[-1] - block.starts[0]) + 3 * len(block.starts) + _SLACK_TOKENS


def cannot_encode(name: str, tokenizer: Tokenizer, why: str) -> UsageError:
    """Return the error for an engine that would not give the ids of a tokenizer."""
    return UsageError(
        f"engine `{name}` cannot encode with `{tokenizer.name}` exactly: {why}",
        where="--engine",
        next_step="pass `--engine auto`",
    )


class Engine(Protocol):
    """Turns text into ids, exactly as the reference does on each whole document."""

    @property
    def name(self) -> str:
        """The name that `--engine` takes."""
        ...

    def encode(
        self, block: Block, out: NDArray[np.unsignedinteger[Any]] | None = None
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids of all documents, with the end-of-text ids in place.

        An engine that can do so writes them to the start of `out`, which holds
        `most_tokens(block)`, and returns that part of it. Otherwise the result is valid until the
        next call. Text that is not valid UTF-8 raises `UnicodeDecodeError`; the worker repairs it
        and encodes it again.
        """
        ...


class SplitIds(Struct, frozen=True):
    """What the pieces of one split in a block became.

    Attributes:
        ids: Their ids.
        num_documents: How many of them begin a document.
        text_bytes: The length of their text.
    """

    ids: NDArray[np.unsignedinteger[Any]]
    num_documents: int
    text_bytes: int


@runtime_checkable
class SplitEngine(Engine, Protocol):
    """An engine that encodes the pieces of all splits in one call."""

    def encode_splits(
        self,
        block: Block,
        splits: NDArray[np.uint8],
        outs: list[NDArray[np.unsignedinteger[Any]]],
    ) -> list[SplitIds] | None:
        """Write the ids of the pieces with split i to `outs[i]`, as `encode` does.

        None if that cannot be done: some text is not valid UTF-8, or `outs` have another type.
        """
        ...


class EngineClass(Protocol):
    """What the registry needs of an engine's class."""

    @property
    def name(self) -> str:
        """The name that `--engine` takes."""
        ...

    def __call__(self, tokenizer: Tokenizer, eot: EotPosition) -> Engine:
        """Make the engine."""
        ...

    def find_obstacle(self, tokenizer: Tokenizer) -> UsageError | None:
        """Return why the engine cannot give the ids of a tokenizer; None if it can."""
        ...

    def is_reference(self, tokenizer: Tokenizer) -> bool:
        """Tell whether the ids of this engine are correct by definition."""
        ...
