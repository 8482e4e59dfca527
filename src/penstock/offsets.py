"""Offsets in unit order: which place in the output a unit's tokens get.

It is the one thing about a job that must be decided in order, so the parent does it alone. It
writes nothing; the executor passes its grants to the workers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.types import SPLITS, Counts, Grant, Split

if TYPE_CHECKING:
    from penstock.types import Encoded, Unit

__all__ = ["Offsets"]


class Offsets:
    """Gives out offsets and keeps the running totals; must see every unit, in order."""

    def __init__(self, num_sources: int, *, num_empty: int = 0) -> None:
        """Start a job of `num_sources` inputs, of which `num_empty` hold nothing."""
        self.tokens: dict[Split, int] = dict.fromkeys(SPLITS, 0)
        self.documents: dict[Split, int] = dict.fromkeys(SPLITS, 0)
        self.counts = Counts(empty_documents=num_empty)
        self.source_counts = [Counts()] * num_sources
        self._open_split: Split = "train"
        self._open_special = False

    def grant(self, unit: Unit, encoded: Encoded) -> Grant:
        """Place a unit behind all units before it."""
        grant = Grant(encoded.unit_idx, self._open_split, dict(self.tokens))
        self.tokens[self._open_split] += encoded.carried_tokens
        for split in SPLITS:
            self.tokens[split] += encoded.tokens[split]
            self.documents[split] += encoded.documents[split]
        counts = self._count_special(encoded)
        self.counts += counts
        self.source_counts[unit.source_idx] += counts
        if encoded.open_split is not None:
            self._open_split = encoded.open_split
            self._open_special = encoded.open_special
        return grant

    def _count_special(self, encoded: Encoded) -> Counts:
        """Count a document once, however many units its end-of-text strings stand in."""
        if not encoded.carried_special or self._open_special:
            return encoded.counts
        self._open_special = True
        more = encoded.counts.special_text_documents + 1
        return replace(encoded.counts, special_text_documents=more)
