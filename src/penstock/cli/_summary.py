"""What a job says at its end, and a plan before its start."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.quantities import format_bytes, format_count, format_seconds
from penstock.types import SPLITS

if TYPE_CHECKING:
    from penstock.manifest import Manifest
    from penstock.pipeline import Outcome
    from penstock.settings import JobSettings
    from penstock.types import Split

__all__ = ["plan_lines", "summary_json", "summary_lines"]

_MAX_LISTED = 5


def summary_lines(outcome: Outcome, settings: JobSettings) -> list[str]:
    """Say what exists now, what was repaired, and what to type next."""
    manifest = outcome.manifest
    if not outcome.is_new:
        return [f"nothing to do: this job is finished in {settings.output}/", _next(settings)]
    run, counts = manifest.run, manifest.counts
    lines = [
        f"wrote {_split(manifest, 'train')} and {_split(manifest, 'val')} to {settings.output}/",
        f"  {format_bytes(counts['input_bytes'])} of text in {format_seconds(run['seconds'])}, "
        f"{counts['input_bytes'] / max(counts['tokens'], 1):.2f} bytes per token; "
        f"{run['workers']} x {run['engine']}, peak memory {format_bytes(run['peak_memory_bytes'])}",
        f"  documents: {_rule(manifest.settings)}",
        *(f"  {note}" for note in _notes(counts, manifest.settings)),
        *(f"  skipped: {path}: {why}" for path, why in list(outcome.skipped.items())[:_MAX_LISTED]),
        *(f"  warning: {warning}" for warning in _warnings(manifest)),
    ]
    if outcome.hint:
        lines.append(f"  hint: {outcome.hint}")
    return [*lines, _next(settings)]


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
        "warnings": _warnings(manifest),
        "hint": outcome.hint,
    }


def plan_lines(settings: JobSettings) -> list[str]:
    """Say what a job would do."""
    from penstock.engines import ENGINE_SHARE_BYTES, choose_engine
    from penstock.memory import divide_memory
    from penstock.plan import make_plan

    plan = make_plan(settings)
    engine = choose_engine(settings.engine)
    num_workers, share, hint = divide_memory(
        settings.memory_bytes, ENGINE_SHARE_BYTES[engine], len(plan.sources), settings.workers
    )
    names = [source.path for source in plan.sources]
    shown = ", ".join(names[:_MAX_LISTED]) + (", ..." if len(names) > _MAX_LISTED else "")
    lines = [
        f"inputs:     {len(names)} files, {format_bytes(plan.input_bytes)}: {shown}",
        f"documents:  {_rule(settings.shaping(plan.rule))}",
        f"output:     {settings.output}/, end-of-text {settings.eot}, "
        f"val fraction {settings.val_fraction}",
        f"work:       {plan.num_units} units, {num_workers} x {engine}, "
        f"{format_bytes(share.limit_bytes)} of memory each",
        *(f"skipped:    {path}: {why}" for path, why in plan.skipped.items()),
    ]
    return [*lines, f"hint:       {hint}"] if hint else lines


def _split(manifest: Manifest, split: Split) -> str:
    record = manifest.splits[split]
    name = record.files[0].path if len(record.files) == 1 else f"{len(record.files)} {split} shards"
    documents = f"{record.documents:,} document{'' if record.documents == 1 else 's'}"
    return f"{name} ({format_count(record.tokens)} tokens, {documents})"


def _rule(settings: dict[str, Any]) -> str:
    if settings["docs_by"] == "separator":
        return f"parted by {settings['doc_separator']!r}"
    return "one a line" if settings["docs_by"] == "line" else "one a file"


def _notes(counts: dict[str, int], settings: dict[str, Any]) -> list[str]:
    """Name every repair and every thing left out."""
    verb = "replaced" if settings["invalid_utf8"] == "replace" else "left out"
    notes = {
        "empty_documents": "empty documents were dropped",
        "invalid_utf8": f"invalid UTF-8 sequences were {verb}",
        "byte_order_marks": "byte order marks were left out",
        "nul_bytes": "NUL bytes were kept: is this all text?",
        "forced_cuts": "forced cuts: text without any place to cut for more than 1 MiB; a token "
        "at each of them may differ",
    }
    return [f"{counts[name]:,} {text}" for name, text in notes.items() if counts[name]]


def _warnings(manifest: Manifest) -> list[str]:
    warnings = []
    counts, settings = manifest.counts, manifest.settings
    if counts["special_text_documents"]:
        warnings.append(
            f"{counts['special_text_documents']:,} documents hold the text `<|endoftext|>`, taken "
            "as ordinary text; if it parts documents, pass `--doc-separator '<|endoftext|>'`"
        )
    num_texts = sum(record.bytes > 0 for record in manifest.inputs)
    if settings["docs_by"] == "separator" and counts["documents"] <= num_texts:
        warnings.append(
            f"the separator {settings['doc_separator']!r} was found in no input: each file is one "
            "document"
        )
    if manifest.splits["val"].tokens == 0 and settings["val_fraction"] > 0:
        fraction = min(max(round(20 / max(counts["documents"], 1), 4), 0.001), 0.5)
        warnings.append(
            f"val is empty: {counts['documents']:,} documents are few for `--val-fraction "
            f"{settings['val_fraction']}`; pass `--val-fraction {fraction} --overwrite`"
        )
    if manifest.splits["train"].tokens == 0:
        warnings.append("train is empty: pass a smaller `--val-fraction`")
    return warnings


def _next(settings: JobSettings) -> str:
    return f"next: penstock info {settings.output}/"
