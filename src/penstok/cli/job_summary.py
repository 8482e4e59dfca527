"""What a job prints when it ends: lines for people, one JSON object for programs.

It computes nothing: every number comes from the manifest or the outcome. `tokenize` and `finish`
print what it returns; the JSON keys are listed in `docs/reference/json.md` and do not change.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstok.cli.messages import one_line, plural
from penstok.quantities import format_bytes, format_count, format_seconds
from penstok.types import SPLITS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstok.jobs.run import Outcome, PartOutcome
    from penstok.jobs.settings import JobSettings
    from penstok.output.manifest import Manifest
    from penstok.types import Split

__all__ = [
    "document_rule",
    "finished_json",
    "finished_lines",
    "part_json",
    "part_lines",
    "summary_json",
    "summary_lines",
]

_MAX_LISTED = 5
_FEW_DOCUMENTS = 10


def summary_lines(outcome: Outcome, settings: JobSettings) -> list[str]:
    """Say what exists now, what was repaired or skipped, and what to type next."""
    manifest = outcome.manifest
    skipped = [
        f"  skipped: {one_line(path)}: {why}"
        for path, why in list(outcome.skipped.items())[:_MAX_LISTED]
    ]
    next_line = f"next: penstok verify {settings.output}/"
    if not outcome.is_new:
        return [
            f"nothing to do: this job is already finished in {settings.output}/",
            *skipped,
            *(f"  hint: {hint}" for hint in outcome.hints),
            next_line,
        ]
    run, counts = manifest.run, manifest.counts
    return [
        f"wrote {_split(manifest, 'train')} and {_split(manifest, 'val')} to {settings.output}/",
        f"  {format_bytes(run['work_bytes'])} of text in {format_seconds(run['seconds'])} "
        f"({format_bytes(run['work_bytes'] / max(run['work_seconds'], 1e-3))}/s, plus "
        f"{format_seconds(run['seconds'] - run['work_seconds'])} for startup and finishing), "
        f"{_bytes_per_token(counts)}; {run['workers']} x {run['engine']}, {_peak_memory(run)}",
        *_node_lines(run),
        *_resumed(run, counts),
        f"  documents: {document_rule(manifest.settings, _formats(manifest))}",
        *(f"  {note}" for note in _notes(counts, manifest.settings)),
        *skipped,
        *(f"  warning: {warning}" for warning in _warnings(outcome)),
        *(f"  hint: {hint}" for hint in outcome.hints),
        next_line,
    ]


def summary_json(outcome: Outcome, settings: JobSettings) -> dict[str, Any]:
    """Return the same as an object."""
    return {
        **finished_json(outcome.manifest, str(settings.output), is_new=outcome.is_new),
        "skipped": outcome.skipped,
        "warnings": _warnings(outcome),
        "hints": outcome.hints,
    }


def finished_lines(manifest: Manifest, output: str, *, is_new: bool) -> list[str]:
    """Say what exists now that all parts are joined."""
    run, counts = manifest.run, manifest.counts
    next_line = f"next: penstok verify {output}"
    if not is_new:
        return [f"nothing to do: this job is already finished in {output}", next_line]
    return [
        f"wrote {_split(manifest, 'train')} and {_split(manifest, 'val')} to {output}",
        f"  {format_bytes(run['work_bytes'])} of text in {plural(run['tasks'], 'task')}, "
        f"{format_seconds(run['seconds'])} of work in total, {_bytes_per_token(counts)}; "
        f"{run['engine']}, peak memory {format_bytes(run['peak_memory_bytes'])} per task",
        *_node_lines(run),
        *(f"  {note}" for note in _notes(counts, manifest.settings)),
        next_line,
    ]


def finished_json(manifest: Manifest, output: str, *, is_new: bool) -> dict[str, Any]:
    """Return the same as an object."""
    return {
        "type": "summary",
        "output": output,
        "is_new": is_new,
        "splits": {split: asdict(manifest.splits[split]) for split in SPLITS},
        "counts": manifest.counts,
        "run": manifest.run,
    }


def part_lines(outcome: PartOutcome, settings: JobSettings) -> list[str]:
    """Say which part was done, and how the job is finished."""
    part, num_parts = outcome.part
    earlier = f", {outcome.num_kept} of them by an earlier run" if outcome.num_kept else ""
    skipped = f"  {plural(outcome.num_skipped, 'record')} skipped"
    return [
        f"part {part}/{num_parts} is done: {plural(outcome.num_tasks, 'task')}{earlier}, "
        f"{format_bytes(outcome.text_bytes)} of text, {format_count(outcome.num_tokens)} tokens "
        f"in {format_seconds(outcome.seconds)}",
        *([skipped] if outcome.num_skipped else []),
        *(f"  hint: {hint}" for hint in outcome.hints),
        f"next: when all {num_parts} parts are done, run penstok finish {settings.output}",
    ]


def part_json(outcome: PartOutcome, settings: JobSettings) -> dict[str, Any]:
    """Return the same as an object."""
    return {"type": "part", "output": str(settings.output), **asdict(outcome)}


def document_rule(settings: dict[str, Any], formats: Iterable[str | None]) -> str:
    """Say how inputs of these formats are divided into documents."""
    from penstok.readers.formats import FORMATS

    records = f"one per record, from the field {settings['text_key']!r}"
    if settings["docs_by"] == "record":
        return records
    if settings["docs_by"] == "separator":
        text = f"separated by {settings['doc_separator']!r}"
    else:
        text = f"one per {settings['docs_by']}"
    has_records = any(row.has_records for name, row in FORMATS.items() if name in set(formats))
    return f"in text files {text}; in other files {records}" if has_records else text


def _split(manifest: Manifest, split: Split) -> str:
    record = manifest.splits[split]
    name = record.files[0].path if len(record.files) == 1 else f"{len(record.files)} {split} shards"
    return f"{name} ({format_count(record.tokens)} tokens, {plural(record.documents, 'document')})"


def _bytes_per_token(counts: dict[str, int]) -> str:
    return f"{counts['input_bytes'] / max(counts['tokens'], 1):.2f} bytes per token"


def _peak_memory(run: dict[str, Any]) -> str:
    peak = f"peak memory {format_bytes(run['peak_memory_bytes'])}"
    return peak if run.get("executor", "local") == "local" else f"{peak} per task"


def _resumed(run: dict[str, Any], counts: dict[str, int]) -> list[str]:
    if not run["resumed"]:
        return []
    done = f"{run['units_kept']} units"
    if "tasks" in run:
        done = f"{run['tasks_kept']} of {run['tasks']} tasks"
    done_bytes = counts["input_bytes"] - run["work_bytes"]
    return [f"  resumed: {format_bytes(done_bytes)} ({done}) were done by an earlier run"]


def _node_lines(run: dict[str, Any]) -> list[str]:
    """Say what each node did, and how many tasks were retried."""
    lines = [
        f"  node {node['name']}: {plural(node['tasks'], 'task')}, "
        f"{format_bytes(node['text_bytes'])}, {format_count(node['tokens'])} tokens, "
        f"{format_bytes(node['text_bytes'] / max(node['seconds'], 1e-3))}/s per core"
        for node in run.get("nodes", ())
    ]
    if run.get("tasks_retried"):
        lines.append(f"  {plural(run['tasks_retried'], 'task')} retried")
    return lines


def _formats(manifest: Manifest) -> set[str | None]:
    return {record.format for record in manifest.inputs}


def _notes(counts: dict[str, int], settings: dict[str, Any]) -> list[str]:
    """Name everything that was repaired or left out."""
    repair = "replaced" if settings["invalid_utf8"] == "replace" else "left out"
    notes = {
        "empty_documents": ("empty document", "dropped"),
        "invalid_utf8": ("invalid UTF-8 sequence", repair),
        "byte_order_marks": ("byte order mark", "removed"),
        "nul_bytes": ("NUL byte", "kept; is all of this input text?"),
        "skipped_records": ("record", "skipped, see `skipped.jsonl`"),
        "forced_cuts": (
            "forced cut",
            "in text that had no safe cut for more than 1 MiB; the tokens next to a forced cut may "
            "differ from those of the reference",
        ),
    }
    return [
        f"{plural(counts[name], noun)} {what}"
        for name, (noun, what) in notes.items()
        if counts[name]
    ]


def _warnings(outcome: Outcome) -> list[str]:
    manifest = outcome.manifest
    warnings = []
    counts, settings = manifest.counts, manifest.settings
    if counts["special_text_documents"]:
        warnings.append(
            f"the text `{outcome.eot_text}` occurs in "
            f"{plural(counts['special_text_documents'], 'document')} and was encoded as ordinary "
            f"text; if it separates documents, pass `--doc-separator '{outcome.eot_text}' "
            "--overwrite`"
        )
    num_texts = sum(record.bytes > 0 for record in manifest.inputs)
    was_given = settings["docs_by"] == "separator" and not outcome.found_separator
    if was_given and counts["documents"] + counts["empty_documents"] <= num_texts:
        warnings.append(
            f"the separator {settings['doc_separator']!r} does not occur in the input: each file "
            "is one document"
        )
    if manifest.splits["val"].tokens == 0 and settings["val_fraction"] > 0:
        warnings.append(f"val is empty: {_way_to_val(counts['documents'], settings)}")
    if manifest.splits["train"].tokens == 0:
        warnings.append("train is empty: pass a smaller `--val-fraction`")
    return warnings


def _way_to_val(num_documents: int, settings: dict[str, Any]) -> str:
    """Name flags that would give a val split: a larger fraction, or more and smaller documents."""
    if num_documents < _FEW_DOCUMENTS and settings["docs_by"] == "record":
        return f"the input has only {plural(num_documents, 'record')}"
    if num_documents < _FEW_DOCUMENTS:
        other = "file" if settings["docs_by"] == "line" else "line"
        return (
            f"the input has only {plural(num_documents, 'document')}; pass `--docs-by {other}` or "
            "`--doc-separator` to divide it differently"
        )
    fraction = min(max(round(20 / num_documents, 4), 0.001), 0.5)
    return (
        f"{num_documents:,} documents are too few for `--val-fraction {settings['val_fraction']}`; "
        f"pass `--val-fraction {fraction} --overwrite`"
    )
