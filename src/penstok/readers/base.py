"""What a reader does, and what it is given to do it with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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
    """Turns units of one kind of input into blocks."""

    def iter_blocks(self, unit: Unit) -> Iterator[Block]:
        """Yield the pieces of a unit in order; a block is valid until the next one is asked for."""
        ...

    def take_counts(self) -> Counts:
        """Return what was seen and dropped since the last call."""
        ...

    def take_skipped(self) -> list[SkippedRecord]:
        """Return the bad records since the last call."""
        ...


class CutRule(Protocol):
    """Knows where a tokenizer's text may be divided.

    Attributes:
        max_document_bytes: Documents are never divided, and a longer one is refused; None if long
            ones are divided.
    """

    @property
    def max_document_bytes(self) -> int | None:
        """How long a document may be; None if any."""
        ...

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark every position before which `text` may be divided; the first is never marked."""
        ...

    def line_mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark those of them that stand at the end of a line."""
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
        """Write its places in a range of a text to `out`, and return their number."""
        ...


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What every reader is given besides the cut rule; each uses what its format needs.

    Attributes:
        rule: How the documents of plain text are separated.
        text_key: The field or column that holds the text of a record.
        open_unit: Opens the input of a unit.
        block_bytes: About how much text a block holds.
        special_text: Pieces that hold this are marked; empty where it parts the documents.
        strip: Leave out white space at the ends of documents.
        give_back: Hand pages that were read back to the system.
        on_error: Leave bad records out, or stop at the first.
        invalid_utf8: What becomes of escapes that stand for half a character; invalid bytes are
            left to the worker, which hears of them from the engine.
        find_all: The kernel's search, where it is built.
        extract_json: The kernel's way through JSON Lines, where it is built.
        extract_csv: The same for CSV.
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
    find_all: FindAll | None = None
    extract_json: Callable[..., Any] | None = None
    extract_csv: Callable[..., Any] | None = None


MakeReader: TypeAlias = "Callable[[CutRule, ReaderOptions], Reader]"
