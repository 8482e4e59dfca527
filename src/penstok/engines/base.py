"""The engine interface: the pieces of a block in, flat ids with end-of-text ids in place out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstok.types import Block

__all__ = ["ENGINES", "Engine", "most_tokens"]

# By the names that `--engine` takes; the last two are the libraries of tokenizer files.
ENGINES = ("kernel", "fastokens", "tiktoken", "tokenizers", "sentencepiece")

# What the kernel may write past the last id.
_SLACK_TOKENS = 128


def most_tokens(block: Block) -> int:
    """Return how many places the ids of a block can take: one a byte, and two a document."""
    if not len(block.starts):
        return _SLACK_TOKENS
    return int(block.ends[-1] - block.starts[0]) + 2 * len(block.starts) + _SLACK_TOKENS


class Engine(Protocol):
    """Turns text into ids, exactly as the reference does on each whole document."""

    @property
    def name(self) -> str:
        """What `--engine` calls it."""
        ...

    def encode(
        self, block: Block, room: NDArray[np.unsignedinteger[Any]] | None = None
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids of all pieces, with the end-of-text ids in place.

        An engine that can writes them to the start of `room`, which holds `most_tokens(block)`, and
        returns that part of it. Else the result is valid until the next call. Text that is not
        valid UTF-8 raises `UnicodeDecodeError`; the worker repairs it and asks again.
        """
        ...
