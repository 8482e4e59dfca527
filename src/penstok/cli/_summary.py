"""What a job says at its end."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstok.cli._report import escape
from penstok.quantities import format_bytes, format_count, format_seconds
from penstok.types import SPLITS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstok.jobs.run import Outcome, PartOutcome
    from penstok.jobs.settings import JobSettings
    from penstok.output.manifest import Manifest
    from penstok.types import Split

__all__ = [
    "describe_rule",
    "finished_json",
    "finished_lines",
    "node_lines",
    "part_json",
    "part_lines",
    "summary_json",
    "summary_lines",
]

_MAX_LISTED = 5
_FEW_DOCUMENTS = 10


def summary_lines(outcome: Outcome, settings: JobSettings) -> list[str]:
    """Say what exists now, what was repaired, and what to type next."""
    manifest = outcome.manifest
    skipped = [
        f"  skipped: {_path(path)}: {why}"
        for path, why in list(outcome.skipped.items())[:_MAX_LISTED]
    ]
    if not outcome.is_new:
        done = f"nothing to do: this job is finished in {settings.output}/"
        return [done, *skipped, _next(settings)]
    run, counts = manifest.run, manifest.counts
    lines = [
        f"wrote {_split(manifest, 'train')} and {_split(manifest, 'val')} to {settings.output}/",
        f"  {format_bytes(run['work_bytes'])} of text in {format_seconds(run['seconds'])} "
        f"({format_bytes(run['work_bytes'] / max(run['work_seconds'], 1e-3))}/s after "
        f"{format_seconds(run['seconds'] - run['work_seconds'])} of start and finish), "
        f"{counts['input_bytes'] / max(counts['tokens'], 1):.2f} bytes per token; "
        f"{run['workers']} x {run['engine']}, peak memory {format_bytes(run['peak_memory_bytes'])}"
        + (" of a task" if run.get("executor", "local") != "local" else ""),
        *node_lines(run),
        *_continued(run, counts),
        f"  documents: {describe_rule(manifest.settings, _formats(manifest))}",
        *(f"  {note}" for note in _notes(counts, manifest.settings)),
        *skipped,
        *(f"  warning: {warning}" for warning in _warnings(outcome)),
    ]
    return [*lines, *(f"  hint: {hint}" for hint in outcome.hints), _next(settings)]


def _continued(run: dict[str, Any], counts: dict[str, int]) -> list[str]:
    if not run["resumed"]:
        return []
    kept_bytes = counts["input_bytes"] - run["work_bytes"]
    kept = f"{run['units_kept']} units"
    if "tasks" in run:
        kept = f"{run['tasks_kept']} of {run['tasks']} tasks"
    return [f"  continued: {format_bytes(kept_bytes)} ({kept}) were done before"]


def node_lines(run: dict[str, Any]) -> list[str]:
    """Say what each node did, and what had to be done again."""
    lines = [
        f"  node {node['name']}: {node['tasks']} tasks, {format_bytes(node['text_bytes'])}, "
        f"{format_count(node['tokens'])} tokens, "
        f"{format_bytes(node['text_bytes'] / max(node['seconds'], 1e-3))}/s a core"
        for node in run.get("nodes", ())
    ]
    if run.get("tasks_retried"):
        lines.append(f"  {run['tasks_retried']} tasks were given out again")
    return lines


def finished_lines(manifest: Manifest, output: str, *, is_new: bool) -> list[str]:
    """Say what exists now that all parts are joined."""
    run, counts = manifest.run, manifest.counts
    if not is_new:
        return [
            f"nothing to do: this job is finished in {output}",
            f"next: penstok verify {output}",
        ]
    return [
        f"wrote {_split(manifest, 'train')} and {_split(manifest, 'val')} to {output}",
        f"  {format_bytes(run['work_bytes'])} of text in {run['tasks']} tasks, "
        f"{format_seconds(run['seconds'])} of work in all, "
        f"{counts['input_bytes'] / max(counts['tokens'], 1):.2f} bytes per token; {run['engine']}, "
        f"peak memory {format_bytes(run['peak_memory_bytes'])} of a task",
        *node_lines(run),
        *(f"  {note}" for note in _notes(counts, manifest.settings)),
        f"next: penstok verify {output}",
    ]


def finished_json(manifest: Manifest, output: str, *, is_new: bool) -> dict[str, Any]:
    """Say the same as one JSON object."""
    return {
        "type": "summary",
        "output": output,
        "is_new": is_new,
        "splits": {split: asdict(manifest.splits[split]) for split in SPLITS},
        "counts": manifest.counts,
        "run": manifest.run,
    }


def part_lines(outcome: PartOutcome, settings: JobSettings) -> list[str]:
    """Say what was done of a job, and how it is finished."""
    part, of = outcome.part
    kept = f", {outcome.num_kept} of them before" if outcome.num_kept else ""
    skipped = f"  {outcome.num_skipped:,} records were skipped"
    return [
        f"part {part}/{of} is done: {outcome.num_tasks} "
        f"task{'' if outcome.num_tasks == 1 else 's'}{kept}, "
        f"{format_bytes(outcome.text_bytes)} of text, {format_count(outcome.num_tokens)} tokens "
        f"in {format_seconds(outcome.seconds)}",
        *([skipped] if outcome.num_skipped else []),
        *(f"  hint: {hint}" for hint in outcome.hints),
        f"next: when all {of} parts are done, penstok finish {settings.output}",
    ]


def part_json(outcome: PartOutcome, settings: JobSettings) -> dict[str, Any]:
    """Say the same as one JSON object."""
    return {"type": "part", "output": str(settings.output), **asdict(outcome)}


def summary_json(outcome: Outcome, settings: JobSettings) -> dict[str, Any]:
    """Say the same as one JSON object."""
    manifest = outcome.manifest
    return {
        "type": "summary",
        "output": str(settings.output),
        "is_new": outcome.is_new,
        "splits": {split: asdict(manifest.splits[split]) for split in SPLITS},
        "counts": manifest.counts,
        "run": manifest.run,
        "skipped": outcome.skipped,
        "warnings": _warnings(outcome),
        "hints": outcome.hints,
    }


def _path(path: str) -> str:
    """Write a path in one line, whatever it holds."""
    return escape(path).replace("\n", "\\n")


def _split(manifest: Manifest, split: Split) -> str:
    record = manifest.splits[split]
    name = record.files[0].path if len(record.files) == 1 else f"{len(record.files)} {split} shards"
    documents = f"{record.documents:,} document{'' if record.documents == 1 else 's'}"
    return f"{name} ({format_count(record.tokens)} tokens, {documents})"


def describe_rule(settings: dict[str, Any], formats: Iterable[str | None]) -> str:
    """Say how documents are told apart in inputs of these formats."""
    from penstok.readers.formats import FORMATS

    records = f"one a record, from its field {settings['text_key']!r}"
    if settings["docs_by"] == "record":
        return records
    if settings["docs_by"] == "separator":
        text = f"parted by {settings['doc_separator']!r}"
    else:
        text = "one a line" if settings["docs_by"] == "line" else "one a file"
    has_records = any(name in FORMATS and FORMATS[name].has_records for name in formats)
    return f"in text {text}; else {records}" if has_records else text


def _formats(manifest: Manifest) -> set[str | None]:
    return {record.format for record in manifest.inputs}


def _notes(counts: dict[str, int], settings: dict[str, Any]) -> list[str]:
    """Name every repair and every thing left out."""
    verb = "replaced" if settings["invalid_utf8"] == "replace" else "left out"
    notes = {
        "empty_documents": "empty documents were dropped",
        "invalid_utf8": f"invalid UTF-8 sequences were {verb}",
        "byte_order_marks": "byte order marks were left out",
        "nul_bytes": "NUL bytes were kept: is this all text?",
        "skipped_records": "records were skipped: `skipped.jsonl` lists them",
        "forced_cuts": "forced cuts: text without any place to cut for more than 1 MiB; a token "
        "at each of them may differ",
    }
    return [f"{counts[name]:,} {text}" for name, text in notes.items() if counts[name]]


def _warnings(outcome: Outcome) -> list[str]:
    manifest = outcome.manifest
    warnings = []
    counts, settings = manifest.counts, manifest.settings
    if counts["special_text_documents"]:
        warnings.append(
            f"{counts['special_text_documents']:,} documents hold the text "
            f"`{outcome.eot_text}`, taken as ordinary text; if it parts documents, pass "
            f"`--doc-separator '{outcome.eot_text}'`"
        )
    num_texts = sum(record.bytes > 0 for record in manifest.inputs)
    was_given = settings["docs_by"] == "separator" and not outcome.found_separator
    if was_given and counts["documents"] + counts["empty_documents"] <= num_texts:
        warnings.append(
            f"the separator {settings['doc_separator']!r} parted nothing: each file is one document"
        )
    if manifest.splits["val"].tokens == 0 and settings["val_fraction"] > 0:
        warnings.append(f"val is empty: {_way_to_val(counts['documents'], settings)}")
    if manifest.splits["train"].tokens == 0:
        warnings.append("train is empty: pass a smaller `--val-fraction`")
    return warnings


def _way_to_val(num_documents: int, settings: dict[str, Any]) -> str:
    """Name flags that would give a val split: a larger share, or more and smaller documents."""
    if num_documents < _FEW_DOCUMENTS and settings["docs_by"] == "record":
        return f"there are {num_documents} records to choose from"
    if num_documents < _FEW_DOCUMENTS:
        other = "file" if settings["docs_by"] == "line" else "line"
        return (
            f"too few documents to choose from ({num_documents}); pass `--docs-by {other}` or "
            "`--doc-separator` to tell them apart another way"
        )
    fraction = min(max(round(20 / num_documents, 4), 0.001), 0.5)
    return (
        f"{num_documents:,} documents are few for `--val-fraction {settings['val_fraction']}`; "
        f"pass `--val-fraction {fraction} --overwrite`"
    )


def _next(settings: JobSettings) -> str:
    return f"next: penstok verify {settings.output}/"
