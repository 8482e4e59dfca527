"""What a tokenizer's file says, before it is settled which ids part documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstok.tokenizers.models import ByteLevel, LibraryModel

__all__ = ["Described"]


@dataclass(frozen=True, slots=True)
class Described:
    """A model and its special tokens.

    Attributes:
        special: The ids that text never gets, by the names the file gives them.
        end_text: What the file says ends a text.
        begin_text: What the file says begins every text; None where nothing does.
    """

    model: ByteLevel | LibraryModel
    special: dict[str, int]
    end_text: str | None = None
    begin_text: str | None = None
