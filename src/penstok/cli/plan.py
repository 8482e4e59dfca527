"""`penstok plan`: what `penstok tokenize` would do with the same flags.

It writes nothing. `jobs` reads the inputs and encodes a sample; this module words what it found.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from penstok.cli.flags import RUN, make_flags
from penstok.cli.job_summary import (
    bytes_per_token,
    document_rule,
    skipped_lines,
    tokenizer_line,
)
from penstok.cli.messages import ErrorReporter, one_line, print_data, quote
from penstok.jobs.definition import settings_of
from penstok.jobs.settings import JobSettings
from penstok.quantities import format_bytes, format_count, format_seconds, plural

if TYPE_CHECKING:
    from penstok.jobs.preview import InputKind, Preview, ShownDocument

__all__ = ["EXAMPLES", "FLAGS", "print_plan", "run"]

EXAMPLES = (
    "penstok plan corpus/",
    "penstok plan 'web/*.parquet' --text-key content --val-fraction 0.01",
)
FLAGS = make_flags((*settings_of(JobSettings), *RUN))
_MAX_LISTED = 5
_SHOWN_CHARACTERS = 60


def run(*, as_json: bool, quiet: bool, verbose: bool, no_progress: bool, **job: Any) -> int:
    """Print the plan; `quiet` and `no_progress` are those of `tokenize`, and change nothing."""
    with ErrorReporter(as_json=as_json, verbose=verbose, reads_only=True):
        print_plan(JobSettings(**job), as_json=as_json)
        return 0


def print_plan(settings: JobSettings, *, as_json: bool) -> None:
    """Print what a job would do."""
    from penstok.jobs.preview import make_preview

    preview = make_preview(settings)
    print_data(json.dumps(_as_json(preview)) if as_json else "\n".join(_lines(preview)))


def _as_json(preview: Preview) -> dict[str, Any]:
    return {
        "type": "plan",
        "inputs": preview.inputs,
        "kinds": [to_builtins(kind) for kind in preview.kinds],
        "input_bytes": preview.input_bytes,
        "settings": preview.settings,
        "documents": [to_builtins(document) for document in preview.documents],
        "sample": {
            "stored_bytes": preview.sample.stored_bytes,
            "seconds": round(preview.sample.seconds, 3),
            "ids_per_second": round(preview.sample.ids_per_second),
            "counts": to_builtins(preview.sample.counts),
        },
        "estimate": None if preview.estimate is None else to_builtins(preview.estimate),
        "free_bytes": preview.free_bytes,
        "output": preview.output,
        "units": preview.num_units,
        "workers": preview.num_workers,
        "engine": preview.engine,
        "tokenizer": to_builtins(preview.tokenizer),
        "memory_bytes": preview.memory_bytes,
        "share_bytes": preview.worker_bytes,
        "skipped": preview.skipped,
        "warnings": preview.warnings,
        "hints": preview.hints,
    }


def _lines(preview: Preview) -> list[str]:
    paths, settings = preview.inputs, preview.settings
    names = ", ".join(map(one_line, paths[:_MAX_LISTED]))
    formats = [kind.format for kind in preview.kinds]
    return [
        f"inputs:     {plural(len(paths), 'file')}, {_size(preview.input_bytes)}: "
        f"{_kinds(preview)}",
        f"            {names}{', ...' if len(paths) > _MAX_LISTED else ''}",
        f"documents:  {document_rule(settings, formats)}",
        *(
            line
            for number, shown in enumerate(preview.documents, 1)
            for line in _show(number, shown)
        ),
        *_estimate(preview),
        f"tokenizer:  {tokenizer_line(preview.tokenizer, settings['eot'])}",
        f"output:     {preview.output}/, {preview.dtype}{_formats(settings)}, "
        f"val fraction {settings['val_fraction']}{_free_disk(preview)}",
        f"memory:     {format_bytes(preview.memory_bytes)} in total, "
        f"{format_bytes(preview.worker_bytes)} for each of {preview.num_workers} x "
        f"{preview.engine}",
        *skipped_lines("skipped:   ", preview.skipped),
        *(f"warning:    {warning}" for warning in preview.warnings),
        *(f"hint:       {hint}" for hint in preview.hints),
    ]


def _formats(settings: dict[str, Any]) -> str:
    """List the formats, unless it is only the one that is always written, and the kept fields."""
    names = str(settings.get("format", "raw")).split(",")
    kept = str(settings.get("keep", "")).replace(",", ", ")
    formats = "" if names == ["raw"] else f", formats {', '.join(names)}"
    return f"{formats}, fields {kept} (not in the estimate)" if kept else formats


def _free_disk(preview: Preview) -> str:
    """Say how much disk is free and, if the job is divided into tasks, how many there are."""
    free = "" if preview.free_bytes is None else f"; {format_bytes(preview.free_bytes)} free"
    if preview.num_tasks is None:
        return free
    return f"{free}; {plural(preview.num_tasks, 'task')}, a shard each"


def _kinds(preview: Preview) -> str:
    return "; ".join(
        f"{kind.num_inputs} {kind.format}"
        + _marks(kind)
        + (f", {_size(kind.num_bytes)}" if len(preview.kinds) > 1 else "")
        for kind in preview.kinds
    )


def _marks(kind: InputKind) -> str:
    """Say how inputs of a kind are compressed and encoded, unless they are plain UTF-8."""
    from penstok.types import UTF_8

    encoding = "" if kind.encoding == UTF_8 else kind.encoding
    marks = [mark for mark in (kind.compression, encoding) if mark]
    return f" ({', '.join(marks)})" if marks else ""


def _size(num_bytes: int) -> str:
    return format_bytes(num_bytes) if num_bytes else "size unknown"


def _show(number: int, document: ShownDocument) -> list[str]:
    """Show the start and the end of a document, as text and as ids with their text."""
    ids = [
        "  ".join(f"{one} {quote(text)}" for one, text in some)
        for some in (document.first_ids, document.last_ids)
    ]
    head = document.head[:_SHOWN_CHARACTERS]
    tail = _without_marks(document.tail[-_SHOWN_CHARACTERS:])
    is_short = document.num_tokens <= len(document.first_ids)
    return [
        f"  {number}. {plural(document.num_bytes, 'byte')}, {plural(document.num_tokens, 'token')}",
        f"     {quote(head)}" + ("" if is_short else f" ... {quote(tail)}"),
        f"     {ids[0]}" + ("" if is_short else f"  ...  {ids[1]}"),
    ]


def _estimate(preview: Preview) -> list[str]:
    sample, estimate = preview.sample, preview.estimate
    rate = (
        f"a sample of {format_bytes(sample.counts.text_bytes)} of text was encoded at "
        f"{format_count(sample.ids_per_second)} tokens/s, "
        f"{bytes_per_token(to_builtins(sample.counts))}"
    )
    if estimate is None:
        return [f"estimate:   none, since the size of the input is unknown; {rate}"]
    return [
        f"estimate:   about {plural(estimate.documents, 'document', is_short=True)}, "
        f"{format_bytes(estimate.text_bytes)} of text, "
        f"{plural(estimate.tokens, 'token', is_short=True)}, "
        f"{format_bytes(estimate.output_bytes)} of output",
        f"            in {format_seconds(estimate.seconds)} with {preview.num_workers} x "
        f"{preview.engine}; {rate}",
    ]


def _without_marks(text: str) -> str:
    """Leave out accents and vowel signs at the start, whose letter was cut off."""
    from unicodedata import category

    start = next((at for at, each in enumerate(text) if category(each)[0] != "M"), len(text))
    return text[start:]
