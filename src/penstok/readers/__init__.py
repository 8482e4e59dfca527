"""Readers: from a unit of input to blocks of pieces, one module for each kind of input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.readers.columnar.reader import RowReader
from penstok.readers.csv.reader import CsvReader
from penstok.readers.jsonl.reader import JsonlReader
from penstok.readers.spans import SpanReader
from penstok.readers.text import TextReader
from penstok.types import ROW_FORMATS

if TYPE_CHECKING:
    from penstok.readers.base import CutRule, Reader, TextOptions
    from penstok.types import DocumentRule, Unit

__all__ = ["GIANT_DOCUMENT_BYTES", "Readers"]

# A file that is one document and larger than this is split by spans.
GIANT_DOCUMENT_BYTES = 1 << 20


class Readers:
    """The readers of one worker, made once and used for every unit."""

    def __init__(
        self,
        rule: DocumentRule,
        text_key: str,
        cuts: CutRule,
        options: TextOptions,
    ) -> None:
        self._rule = rule
        self._divides = cuts.max_document_bytes is None
        self._text = TextReader(rule, cuts, options)
        self._spans = SpanReader(cuts, options)
        self._jsonl = JsonlReader(text_key, cuts, options)
        self._rows = RowReader(text_key, cuts, options)
        self._csv = CsvReader(text_key, cuts, options)

    def choose(self, unit: Unit) -> Reader:
        """Return the reader for the input of a unit."""
        if unit.source.format == "jsonl":
            return self._jsonl
        if unit.source.format in ROW_FORMATS:
            return self._rows
        if unit.source.format in ("csv", "tsv"):
            return self._csv
        return self._spans if self._has_spans(unit) else self._text

    def can_carry(self, unit: Unit) -> bool:
        """Tell whether a document may go on from the unit before; spans have splits of their own.

        A record is whole.
        """
        return unit.source.format == "text" and not self._has_spans(unit)

    def _has_spans(self, unit: Unit) -> bool:
        size = unit.source.size if unit.window is None else unit.window.size
        is_giant = self._rule.kind == "file" and size > GIANT_DOCUMENT_BYTES
        return is_giant and self._divides
