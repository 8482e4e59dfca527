"""Writes a report of a finished output: one page, from its manifest, ledger, tokens and index.

It changes nothing in the output. `statistics` makes the one pass over the tokens, `reading` picks
documents to show and `page` writes the HTML; `cli` and `api` call `write_report`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstok.data.dataset import open_dataset
from penstok.errors import DamageError, UsageError
from penstok.output.layout import SEGMENTS
from penstok.output.ledger.reader import LedgerReader
from penstok.output.report_files import refuse_page, write_page
from penstok.output.store.folder import describe_leftovers
from penstok.reports.page import Contents, InputRow, LongDocument, make_page
from penstok.reports.reading import mark_tokens, read_documents, spell_ids
from penstok.reports.statistics import collect_statistics, has_index
from penstok.storage.object_paths import repair_step
from penstok.tokenizers import load_recorded_tokenizer
from penstok.types import Struct

if TYPE_CHECKING:
    from pathlib import Path

    from penstok.data.dataset import Dataset
    from penstok.output.manifest import InputRecord
    from penstok.reports.settings import ReportSettings
    from penstok.reports.statistics import Statistics
    from penstok.tokenizers import Tokenizer

__all__ = ["WrittenReport", "write_report"]

_SHOWN_TOKENS = 24


class WrittenReport(Struct, frozen=True):
    """A report that was written.

    Attributes:
        page: Where it is.
        num_bytes: How large it is.
        tokens: How many tokens the output has.
        documents: How many documents it has.
        notes: What the page does not show, and why.
    """

    page: Path
    num_bytes: int
    tokens: int
    documents: int
    notes: list[str]


def write_report(settings: ReportSettings) -> WrittenReport:
    """Write the page.

    Raises:
        DamageError: If there is no finished job, or it is damaged.
        UsageError: If the page cannot be where it should be.
    """
    refuse_page(settings.page, settings.output, overwrite=settings.overwrite)
    dataset = open_dataset(settings.output)
    manifest = dataset.manifest
    tokenizer, problem = _load_tokenizer(dataset)
    notes = [*describe_leftovers(dataset.folder), *([problem] if problem else [])]
    statistics = collect_statistics(dataset)
    if not has_index(dataset):
        notes.append("there is no document index, so documents are neither measured nor shown")
    text = make_page(
        Contents(
            folder=str(dataset.folder),
            manifest=manifest,
            statistics=statistics,
            inputs=_list_inputs(dataset),
            documents=read_documents(dataset, tokenizer) if has_index(dataset) else [],
            longest=_show_longest(dataset, tokenizer, statistics),
            names=spell_ids(tokenizer, {one for one, _ in statistics.frequent}),
            notes=notes,
        )
    )
    write_page(settings.page, text)
    counts = manifest.counts
    return WrittenReport(
        settings.page, len(text.encode()), counts["tokens"], counts["documents"], notes
    )


def _load_tokenizer(dataset: Dataset) -> tuple[Tokenizer | None, str]:
    """Load the tokenizer of an output; without it, ids are shown instead of text."""
    try:
        return load_recorded_tokenizer(dataset.manifest.tokenizer), ""
    except UsageError as error:
        return None, f"tokens are shown as ids: {error.what}"


def _list_inputs(dataset: Dataset) -> list[InputRow]:
    """List what each input became; how much text it had is in the ledger.

    Raises:
        DamageError: If the ledger is damaged.
    """
    text_bytes: dict[str, int] = {}
    if dataset.manifest.lineage is None:
        ledger = LedgerReader(dataset.folder / SEGMENTS)
        for finished in ledger.iter_units():
            path = finished.unit.source.path
            text_bytes[path] = text_bytes.get(path, 0) + finished.encoded.counts.text_bytes
        if ledger.problem:
            raise DamageError(
                f"the ledger is damaged: {ledger.problem}",
                where=str(dataset.folder / SEGMENTS),
                next_step=repair_step(dataset.folder),
            )
    return [
        InputRow(record, _source_of(record), text_bytes.get(record.path, 0))
        for record in dataset.manifest.inputs
    ]


def _source_of(record: InputRecord) -> str:
    """Return what an input belongs to: its archive, or its folder."""
    return record.archive or os.path.dirname(record.path) or "(current folder)"  # noqa: PTH120


def _show_longest(
    dataset: Dataset, tokenizer: Tokenizer | None, statistics: Statistics
) -> list[LongDocument]:
    found = [
        (split, number, size, dataset.read(split, start, min(size, _SHOWN_TOKENS)).tolist())
        for split, each in statistics.splits.items()
        for number, start, size in each.longest
    ]
    names = spell_ids(tokenizer, {one for *_, ids in found for one in ids})
    return [
        LongDocument(split, number, size, mark_tokens(ids, names, frozenset()))
        for split, number, size, ids in found
    ]
