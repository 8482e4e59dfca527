"""From inputs and settings to an ordered list of units, the same every time.

It reads only the heads of inputs and starts nothing. The pipeline walks through its units; the
dry run prints it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.errors import InputError, UsageError
from penstock.layout import is_own_name
from penstock.sources import SourceFile, find_sources
from penstock.types import DocumentRule, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.errors import PenstockError
    from penstock.settings import JobSettings
    from penstock.types import Source

__all__ = ["Plan", "make_plan"]

_DEFAULT_SEPARATOR = b"<|endoftext|>"
_HEAD_BYTES = 4 << 20
_HEAD_SOURCES = 16
_SAMPLE_BYTES = 32 << 10
_SAMPLE_SOURCES = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job will do, before it does it."""

    sources: list[Source]
    skipped: dict[str, str]
    rule: DocumentRule
    found_separator: bool
    unit_bytes: int
    limit_bytes: int | None
    input_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        total = sum(source.num_bytes for source in self.sources)
        planned = total if self.limit_bytes is None else min(total, self.limit_bytes)
        object.__setattr__(self, "input_bytes", planned)

    @property
    def num_empty(self) -> int:
        """How many inputs hold nothing: documents that are empty before they are read."""
        return sum(1 for source in self.sources if not source.num_bytes)

    @property
    def num_units(self) -> int:
        """How many units there are."""
        return sum(1 for _ in self.iter_units())

    def divided_by(self, unit_bytes: int) -> Plan:
        """Return the same plan with units of another size."""
        return replace(self, unit_bytes=unit_bytes)

    def iter_units(self, first: int = 0) -> Iterator[Unit]:
        """Yield the units from the `first` on in the order of the output."""
        left = self.input_bytes
        index = 0
        for source_idx, source in enumerate(self.sources):
            size = min(source.num_bytes, left)
            left -= size
            for start in range(0, size, self.unit_bytes):
                end = min(start + self.unit_bytes, size)
                if index >= first:
                    yield Unit(index, source_idx, source, start, end, size)
                index += 1

    def samples(self) -> list[Unit]:
        """Choose small units at the start and in the middle of a few inputs."""
        sources = [source for source in self.sources if source.num_bytes]
        step = max(len(sources) // _SAMPLE_SOURCES, 1)
        return [
            Unit(0, 0, source, start, min(start + _SAMPLE_BYTES, size), size)
            for source in sources[::step][:_SAMPLE_SOURCES]
            for size in (source.num_bytes,)
            for start in sorted({0, size // 2})
        ]


def make_plan(settings: JobSettings) -> Plan:
    """Find the inputs and decide how their documents are told apart."""
    skipped: dict[str, str] = {}

    def on_unusable(path: str, error: PenstockError) -> None:
        if settings.on_error == "stop":
            raise error
        skipped[path] = error.what

    sources = find_sources(
        settings.inputs,
        is_output=lambda path: is_own_name(path, settings.output),
        on_unusable=on_unusable,
        input_format=None if settings.input_format == "auto" else settings.input_format,
    )
    if not any(source.num_bytes for source in sources):
        raise InputError(
            f"no text in the input: {len(sources)} files, all empty, {len(skipped)} skipped",
            where=" ".join(settings.inputs[:3]),
            next_step="check the files with `ls -l`",
        )
    rule, found = _choose_rule(settings, sources)
    return Plan(sources, skipped, rule, found, settings.unit_bytes, settings.limit_bytes)


def _choose_rule(settings: JobSettings, sources: list[Source]) -> tuple[DocumentRule, bool]:
    """Resolve how documents are told apart, and whether that was found in the text."""
    texts = [source for source in sources if source.format == "text"]
    if not texts:
        if settings.doc_separator is not None or settings.docs_by != "auto":
            raise UsageError(
                "every input holds records, and each record is a document already",
                where="--docs-by, --doc-separator",
                next_step="leave it out, or pass `--input-format text` to read them as plain text",
            )
        return DocumentRule("record"), False
    if settings.doc_separator is not None:
        return DocumentRule("separator", settings.doc_separator.encode()), False
    if settings.docs_by == "line":
        return DocumentRule("line", b"\n"), False
    if settings.docs_by == "file":
        return DocumentRule("file"), False
    for source in texts[:_HEAD_SOURCES]:
        with SourceFile(source) as file:
            if _DEFAULT_SEPARATOR in file.read_at(0, _HEAD_BYTES):
                return DocumentRule("separator", _DEFAULT_SEPARATOR), True
    return DocumentRule("file"), False
