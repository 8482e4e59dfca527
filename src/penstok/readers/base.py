"""The interface of readers, and what each is given.

It reads nothing. One module or package implements `Reader` for each input format; `formats` lists
them, and the worker calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    from penstok.inputs.base import OpenInput
    from penstok.types import (
        Block,
        Counts,
        DocumentRule,
        InvalidUtf8,
        OnError,
        SkippedRecord,
        Unit,
    )

__all__ = ["CutRule", "FindAll", "MakeReader", "Reader", "ReaderOptions"]


class Reader(Protocol):
    """Turns units of inputs of one format into blocks."""

    def iter_blocks(self, unit: Unit) -> Iterator[Block]:
        """Yield the pieces of a unit in order; each block is valid until the next one."""
        ...

    def take_counts(self) -> Counts:
        """Return what was seen and dropped since the last call."""
        ...

    def take_skipped(self) -> list[SkippedRecord]:
        """Return the bad records since the last call."""
        ...


class CutRule(Protocol):
    """Where text may be divided without changing a token.

    Attributes:
        max_document_bytes: Documents are never divided, and longer ones are refused; None if long
            ones are divided.
    """

    @property
    def max_document_bytes(self) -> int | None:
        """The longest document; None if there is no limit."""
        ...

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark every byte before which `text` may be divided; the first is never marked."""
        ...

    def line_mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark those of them that end a line."""
        ...


class FindAll(Protocol):
    """The kernel's search for a string."""

    def __call__(
        self,
        text: NDArray[np.uint8],
        start: int,
        end: int,
        wanted: bytes,
        out: NDArray[np.int64],
    ) -> int:
        """Write its positions in a range of a text to `out`, and return their number."""
        ...


class ReaderOptions(Struct, frozen=True):
    """What every reader is given besides the cut rule; each uses what its format needs.

    Attributes:
        rule: How the documents of plain text are separated.
        text_key: The field or column that holds the text of a record.
        open_unit: Opens the input of a unit.
        block_bytes: About how much text a block holds.
        special_text: Pieces that contain this are marked; empty if it separates documents.
        strip: Strip white space at both ends of documents.
        give_back: Drop pages that were read from the page cache.
        on_error: Skip bad records, or stop at the first.
        invalid_utf8: What happens to lone surrogates; invalid bytes are left to the worker, which
            learns of them from the engine.
        has_positions: Set `positions` of blocks.
        kept_fields: Set `fields` of blocks to the values of these.
    """

    rule: DocumentRule
    text_key: str
    open_unit: Callable[[Unit], OpenInput]
    block_bytes: int
    special_text: bytes
    strip: bool
    give_back: bool
    on_error: OnError = "stop"
    invalid_utf8: InvalidUtf8 = "replace"
    has_positions: bool = False
    kept_fields: tuple[str, ...] = ()


MakeReader: TypeAlias = "Callable[[CutRule, ReaderOptions], Reader]"
