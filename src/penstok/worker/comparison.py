"""Compares the engine of a job with the reference, on difficult text and on the user's own.

It reads nothing and starts no process. A worker compares; the process that asks it may give it the
ids of the reference, so that a library is loaded once. `executors.processes` sends a `Comparison`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.engines import load_engine, loads_library, name_reference
from penstok.engines.check_text import make_check_block
from penstok.errors import EngineError
from penstok.tokenizers import LibraryModel
from penstok.tokenizers.libraries import drop_library_model, has_library_model
from penstok.types import Block, Struct
from penstok.worker.memory import own_bytes, return_freed_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penstok.engines.base import Engine
    from penstok.tokenizers import Tokenizer
    from penstok.types import EotPosition
    from penstok.worker.worker import WorkerSpec

__all__ = ["ComparedText", "Comparison", "needs_library"]

# A reference engine that took more than this is given back at once: Gemma's takes 140 MB.
_RETURNED_BYTES = 64 << 20


class ComparedText(Struct, frozen=True):
    """Some text of a sample, on which the engine is compared with the reference.

    Attributes:
        where: Where it is, for messages.
        text: Its pieces, one after the other.
        ends: Where each piece ends.
        begins: Whether the piece begins a document.
        closes: Whether the piece ends its document.
    """

    where: str
    text: bytes
    ends: NDArray[np.int64]
    begins: NDArray[np.bool_]
    closes: NDArray[np.bool_]

    @classmethod
    def from_block(cls, where: str, block: Block) -> ComparedText:
        """Copy the pieces of a block, whose text is overwritten by the next one."""
        pieces = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
        text = b"".join(block.text[start:end] for start, end in pieces)
        return cls(where, text, np.cumsum(block.ends - block.starts), block.begins, block.closes)

    def to_block(self) -> Block:
        """Return the pieces as they are passed to an engine."""
        starts = np.concatenate(([0], self.ends[:-1]))
        text = memoryview(self.text)
        return Block(text, starts, self.ends, self.begins, self.closes, self.ends)


class Comparison(Struct, frozen=True):
    """What one worker compares.

    Attributes:
        texts: Some of the user's text.
        expected: For each tokenizer, the ids of the reference for the check text and for `texts`;
            None where the worker has to load the reference itself.
    """

    texts: list[ComparedText]
    expected: tuple[list[NDArray[Any]] | None, ...]

    @classmethod
    def prepare(cls, texts: list[ComparedText], specs: Iterable[WorkerSpec]) -> Comparison:
        """Encode with the reference if this process has its library, and drop the library then.

        Its object can be larger than all that a worker needs. This process made it to find out
        whether the library can read the file.

        Raises:
            EngineError: If the reference cannot encode the text, and a worker could not either.
        """
        expected = tuple(_encode_if_loaded(spec, texts) for spec in specs)
        if any(ids is not None for ids in expected):
            drop_library_model()
            return_freed_memory()
        return cls(texts, expected)

    def check(self, engine: Engine, tokenizer: Tokenizer, eot: EotPosition, number: int) -> None:
        """Compare the engine of the tokenizer with this number.

        Raises:
            EngineError: If the ids differ.
        """
        used_bytes = own_bytes()
        expected: Iterable[NDArray[Any]] | None = self.expected[number]
        if expected is None:
            expected = _iter_reference_ids(tokenizer, eot, self.texts)
        blocks = _make_blocks(tokenizer, self.texts)
        for (where, block), ids in zip(blocks, expected, strict=True):
            if not np.array_equal(engine.encode(block), ids):
                raise EngineError(
                    f"engine `{engine.name}` returned other ids than the reference engine",
                    where=where,
                    next_step=f"pass `--engine {name_reference(tokenizer)}`, and report this with "
                    "the text",
                )
        if own_bytes() - used_bytes > _RETURNED_BYTES:
            return_freed_memory()


def needs_library(spec: WorkerSpec) -> bool:
    """Tell whether workers may load the library: not if ranks encode and this process has it."""
    model = spec.tokenizer.model
    if spec.others or not isinstance(model, LibraryModel) or loads_library(spec.engine, model):
        return True
    return not has_library_model(model.library, model.content)


def _make_blocks(tokenizer: Tokenizer, texts: list[ComparedText]) -> list[tuple[str, Block]]:
    page = make_check_block(tokenizer.special)
    return [("the built-in check text", page), *((text.where, text.to_block()) for text in texts)]


def _iter_reference_ids(
    tokenizer: Tokenizer, eot: EotPosition, texts: list[ComparedText]
) -> Iterator[NDArray[Any]]:
    reference = load_engine(name_reference(tokenizer), tokenizer, eot)
    for _, block in _make_blocks(tokenizer, texts):
        yield reference.encode(block)


def _encode_if_loaded(spec: WorkerSpec, texts: list[ComparedText]) -> list[NDArray[Any]] | None:
    model = spec.tokenizer.model
    if not isinstance(model, LibraryModel) or spec.engine == name_reference(spec.tokenizer):
        return None
    if spec.needs_library and not has_library_model(model.library, model.content):
        return None
    try:
        return list(_iter_reference_ids(spec.tokenizer, spec.eot, texts))
    except EngineError:
        if spec.needs_library:
            return None  # the worker fails in the same way, and that is handled
        raise
