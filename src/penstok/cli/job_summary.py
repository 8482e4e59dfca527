"""What a job prints when it ends: lines for people, one JSON object for programs.

It computes nothing: every number comes from the manifest or the outcome. `tokenize` and `finish`
print what it returns; the JSON keys are listed in `docs/reference/json.md` and do not change.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from penstok.cli.messages import one_line
from penstok.errors import quoted
from penstok.jobs.warnings import count_divided, find_warnings, limited_to
from penstok.quantities import format_bytes, format_seconds, plural
from penstok.types import SPLITS, UTF_8

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstok.jobs.run import Outcome, PartOutcome
    from penstok.jobs.settings import JobSettings
    from penstok.output.manifest import FormatRecord, Manifest
    from penstok.types import EotPosition, Split, TokenizerRecord

__all__ = [
    "bytes_per_token",
    "describe_format",
    "document_rule",
    "finished_json",
    "finished_lines",
    "input_sizes",
    "part_json",
    "part_lines",
    "skipped_lines",
    "summary_json",
    "summary_lines",
    "tokenizer_line",
]

_MAX_LISTED = 5


def summary_lines(outcome: Outcome, settings: JobSettings) -> list[str]:
    """Say what exists now, what was repaired or skipped, and what to type next."""
    manifest = outcome.manifest
    skipped = skipped_lines("  skipped:", outcome.skipped)
    next_line = f"next: penstok verify {quoted(f'{settings.output}/')}"
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
        f"  {', '.join(_read(manifest))}",
        f"  {format_seconds(run['seconds'])} "
        f"({_rate(run['work_text_bytes'], run['work_seconds'])}, plus "
        f"{format_seconds(run['seconds'] - run['work_seconds'])} for startup and finishing); "
        f"{run['workers']} x {run['engine']}, {_peak_memory(run)}",
        *_node_lines(run),
        *_resumed(run, counts),
        f"  tokenizer: {tokenizer_line(manifest.tokenizer, manifest.settings['eot'])}",
        f"  documents: {document_rule(manifest.settings, _formats(manifest))}",
        *_divided(manifest),
        *_encodings(manifest),
        *(f"  format {describe_format(record)}" for record in manifest.formats),
        *(f"  {note}" for note in _notes(manifest)),
        *skipped,
        *(
            f"  warning: {one_line(warning)}"
            for warning in find_warnings(outcome.manifest, outcome)
        ),
        *(f"  hint: {hint}" for hint in outcome.hints),
        next_line,
    ]


def skipped_lines(label: str, skipped: dict[str, str]) -> list[str]:
    """Name the first inputs that were not used, and why; count the others."""
    lines = [
        f"{label} {one_line(path)}: {one_line(why)}"
        for path, why in list(skipped.items())[:_MAX_LISTED]
    ]
    if len(skipped) > _MAX_LISTED:
        lines.append(f"{label} {plural(len(skipped) - _MAX_LISTED, 'more input')}")
    return lines


def summary_json(outcome: Outcome, settings: JobSettings) -> dict[str, Any]:
    """Return the same as an object."""
    return {
        **finished_json(outcome.manifest, str(settings.output), is_new=outcome.is_new),
        "skipped": outcome.skipped,
        "warnings": find_warnings(outcome.manifest, outcome),
        "hints": outcome.hints,
    }


def finished_lines(manifest: Manifest, output: str, *, is_new: bool) -> list[str]:
    """Say what exists now that all parts are joined."""
    run = manifest.run
    next_line = f"next: penstok verify {quoted(output)}"
    if not is_new:
        return [f"nothing to do: this job is already finished in {output}", next_line]
    return [
        f"wrote {_split(manifest, 'train')} and {_split(manifest, 'val')} to {output}",
        f"  {', '.join(_read(manifest))}",
        f"  {plural(run['tasks'], 'task')}, {format_seconds(run['seconds'])} of work in total; "
        f"{run['engine']}, peak memory {format_bytes(run['peak_memory_bytes'])} per task",
        *_node_lines(run),
        f"  tokenizer: {tokenizer_line(manifest.tokenizer, manifest.settings['eot'])}",
        *_divided(manifest),
        *(f"  format {describe_format(record)}" for record in manifest.formats),
        *(f"  {note}" for note in _notes(manifest)),
        *skipped_lines(
            "  skipped:", {each.path: each.reason for each in manifest.inputs if each.reason}
        ),
        *(f"  warning: {one_line(warning)}" for warning in find_warnings(manifest)),
        next_line,
    ]


def finished_json(manifest: Manifest, output: str, *, is_new: bool) -> dict[str, Any]:
    """Return the same as an object."""
    return {
        "type": "summary",
        "output": output,
        "is_new": is_new,
        "tokenizer": to_builtins(manifest.tokenizer),
        "splits": {split: to_builtins(manifest.splits[split]) for split in SPLITS},
        "formats": to_builtins(manifest.formats),
        "counts": manifest.counts,
        "run": manifest.run,
        "warnings": find_warnings(manifest),
    }


def part_lines(outcome: PartOutcome, settings: JobSettings) -> list[str]:
    """Say which part was done, and how the job is finished."""
    part, num_parts = outcome.part
    earlier = f", {outcome.num_kept} of them by an earlier run" if outcome.num_kept else ""
    skipped = f"  {plural(outcome.num_skipped, 'record')} skipped"
    all_done = f"when all {num_parts} parts are done, " if num_parts > 1 else ""
    return [
        f"part {part}/{num_parts} is done: {plural(outcome.num_tasks, 'task')}{earlier}, "
        f"{format_bytes(outcome.text_bytes)} of text, "
        f"{plural(outcome.num_tokens, 'token', is_short=True)} "
        f"in {format_seconds(outcome.seconds)}",
        *([skipped] if outcome.num_skipped else []),
        *(f"  hint: {hint}" for hint in outcome.hints),
        f"next: {all_done}run penstok finish {quoted(settings.output)}",
    ]


def part_json(outcome: PartOutcome, settings: JobSettings) -> dict[str, Any]:
    """Return the same as an object."""
    return {"type": "part", "output": str(settings.output), **to_builtins(outcome)}


def tokenizer_line(tokenizer: TokenizerRecord, eot: EotPosition) -> str:
    """Name a tokenizer, and the tokens that it puts before and after each document."""

    def token(text: str, token_id: int) -> str:
        return f"{one_line(text)} ({token_id})" if text else str(token_id)

    ends = (
        []
        if tokenizer.bos_id is None
        else [f"begin-of-text {token(tokenizer.bos_text, tokenizer.bos_id)}"]
    )
    end = f"end-of-text {token(tokenizer.eot_text, tokenizer.eot_id)} {eot}ed"
    ends.append(end if eot != "none" else "no end-of-text")
    return f"{one_line(tokenizer.name)}, {tokenizer.vocab_size:,} ids, {', '.join(ends)}"


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
    is_one = len(record.files) == 1
    name = record.files[0].path if is_one else plural(len(record.files), f"{split} shard")
    tokens = plural(record.tokens, "token", is_short=True)
    return f"{name} ({tokens}, {plural(record.documents, 'document')})"


def _read(manifest: Manifest) -> list[str]:
    """Say what was read, and how many bytes of text became a token, if that is known."""
    counts = manifest.counts
    figures = [bytes_per_token(counts)] if counts.get("text_bytes") else []
    return [input_sizes(manifest), *figures]


def input_sizes(manifest: Manifest) -> str:
    """Say how large the inputs are as they are stored, and how much text was in them."""
    from penstok.readers.formats import FORMATS

    names: dict[str | None, str] = {row.name: row.content_name for row in FORMATS.values()}
    sizes: dict[str, int] = {}
    used = [each for each in manifest.inputs if each.reason is None and each.format in names]
    for record in used:
        encoding = "" if record.encoding == UTF_8 else f"{record.encoding} "
        packing = f" ({record.compression})" if record.compression else ""
        name = encoding + names[record.format] + packing
        sizes[name] = sizes.get(name, 0) + record.bytes
    if not all(sizes.values()) and len(sizes) == 1:
        # Of standard input, only the content was measured.
        sizes = dict.fromkeys(sizes, manifest.counts["input_bytes"])
    stored = " and ".join(f"{format_bytes(size)} of {name}" for name, size in sizes.items())
    limit, text_bytes = limited_to(manifest), manifest.counts.get("text_bytes")
    if limit is not None:
        stored = f"the first {format_bytes(limit)} of {stored}"
    if not text_bytes or list(sizes) == [names["text"]]:
        return stored
    if all(record.encoding == UTF_8 for record in used):
        return f"{stored}, which held {format_bytes(text_bytes)} of text"
    return f"{stored} ({format_bytes(text_bytes)} as UTF-8)"


def bytes_per_token(counts: dict[str, int]) -> str:
    """Say how many bytes of text became a token."""
    return f"{counts['text_bytes'] / max(counts['tokens'], 1):.2f} bytes of text per token"


def _rate(text_bytes: int, seconds: float) -> str:
    return f"{format_bytes(text_bytes / max(seconds, 1e-3))}/s of text"


def _peak_memory(run: dict[str, Any]) -> str:
    peak = f"peak memory {format_bytes(run['peak_memory_bytes'])}"
    return peak if run.get("executor", "local") == "local" else f"{peak} per task"


def _resumed(run: dict[str, Any], counts: dict[str, int]) -> list[str]:
    if not run["resumed"]:
        return []
    done = plural(run["units_kept"], "unit")
    if "tasks" in run:
        done = f"{run['tasks_kept']:,} of {plural(run['tasks'], 'task')}"
    done_bytes = counts["input_bytes"] - run["work_bytes"]
    return [f"  resumed: an earlier run had done {format_bytes(done_bytes)} of input ({done})"]


def _node_lines(run: dict[str, Any]) -> list[str]:
    """Say what each node did, and how many tasks were retried."""
    lines = [
        f"  node {node['name']}: {plural(node['tasks'], 'task')}, "
        f"{format_bytes(node['text_bytes'])} of text, "
        f"{plural(node['tokens'], 'token', is_short=True)}, "
        f"{_rate(node['text_bytes'], node['seconds'])} per core"
        for node in run.get("nodes", ())
    ]
    if run.get("tasks_retried"):
        lines.append(f"  {plural(run['tasks_retried'], 'task')} retried")
    return lines


def describe_format(record: FormatRecord) -> str:
    """Say how many files a format has, how large they are, and what is not in them."""
    links = [file for file in record.files if file.same_as is not None]
    num_bytes = sum(file.bytes for file in record.files if file.same_as is None)
    text = f"{record.name}: {plural(len(record.files), 'file')}, {format_bytes(num_bytes)}"
    if links:
        text += f" and {plural(len(links), 'link')} to the tokens"
    if record.dropped_tokens:
        text += (
            f"; {plural(record.dropped_tokens, 'token')} at the end fill no row and are left out"
        )
    if record.split_documents:
        text += f"; {plural(record.split_documents, 'document')} divided into several rows"
    return text


def _formats(manifest: Manifest) -> set[str | None]:
    return {record.format for record in manifest.inputs}


def _notes(manifest: Manifest) -> list[str]:
    """Name everything that was repaired or left out."""
    unused = [record for record in manifest.inputs if record.reason is not None]
    counts = manifest.counts | {
        "skipped_inputs": len(unused),
        # The manifest counts both together, except for files in folders that are not text.
        "skipped_records": manifest.counts["skipped_records"]
        - sum(record.skipped for record in unused),
    }
    repair = "replaced" if manifest.settings["invalid_utf8"] == "replace" else "left out"
    is_utf8 = all(record.encoding == UTF_8 for record in manifest.inputs if record.invalid_utf8)
    notes = {
        "empty_documents": ("empty document", "dropped"),
        "invalid_utf8": ("invalid UTF-8 sequence" if is_utf8 else "invalid sequence", repair),
        "byte_order_marks": ("byte order mark", "removed"),
        "nul_bytes": ("NUL byte", "kept; is all of this input text?"),
        "skipped_records": ("record", "skipped, see `skipped.jsonl`"),
        "skipped_inputs": ("input", "skipped, see `skipped.jsonl`"),
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


def _divided(manifest: Manifest) -> list[str]:
    """Say that large files, each one document, were divided so that val gets a part of them."""
    num_files, num_passages = count_divided(manifest)
    if not num_files:
        return []
    was = "was" if num_files == 1 else "were"
    return [
        f"  {plural(num_files, 'document')} {was} divided into {num_passages:,} passages, because "
        "each file is one document and val needs a part of it"
    ]


def _encodings(manifest: Manifest) -> list[str]:
    """Say how many inputs were read in each encoding, unless all were UTF-8."""
    counts = Counter(record.encoding for record in manifest.inputs if record.reason is None)
    if counts.keys() <= {UTF_8}:
        return []
    named = ", ".join(f"{name} ({number:,})" for name, number in counts.most_common())
    return [f"  encodings: {named}"]
