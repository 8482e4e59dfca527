"""Readers: from a unit of input to blocks of pieces, one package or module per format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.readers.formats import FORMATS
from penstok.readers.spans import SpanReader

if TYPE_CHECKING:
    from penstok.readers.base import CutRule, Reader, ReaderOptions
    from penstok.types import InputFormat, Unit

__all__ = ["GIANT_DOCUMENT_BYTES", "Readers"]

# A file that is one document and larger than this is divided into spans.
GIANT_DOCUMENT_BYTES = 1 << 20


class Readers:
    """The readers of one worker, made once and used for every unit."""

    def __init__(self, cuts: CutRule, options: ReaderOptions) -> None:
        self._cuts = cuts
        self._options = options
        self._spans = SpanReader(cuts, options)
        self._readers: dict[InputFormat, Reader] = {}

    def choose(self, unit: Unit) -> Reader:
        """Return the reader for the input of a unit."""
        if self._has_spans(unit):
            return self._spans
        name = unit.source.format
        if name not in self._readers:
            self._readers[name] = FORMATS[name].make_reader(self._cuts, self._options)
        return self._readers[name]

    def can_carry(self, unit: Unit) -> bool:
        """Tell whether a document may continue from the previous unit.

        Records are whole, and each span has a split of its own.
        """
        return not FORMATS[unit.source.format].has_records and not self._has_spans(unit)

    def _has_spans(self, unit: Unit) -> bool:
        """Tell whether the unit is part of a single document that is divided into spans."""
        size = unit.source.size if unit.window is None else unit.window.size
        return (
            not FORMATS[unit.source.format].has_records
            and self._options.rule.kind == "file"
            and size > GIANT_DOCUMENT_BYTES
            and self._cuts.max_document_bytes is None
        )
