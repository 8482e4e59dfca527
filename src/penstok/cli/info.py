"""`penstok info`: what a finished output is.

It reads the manifest and the first and last tokens of each split, through `data`, and checks
nothing: that is `verify`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import to_builtins

from penstok.cli.flags import JSON, make_flags, out_argument
from penstok.cli.messages import ErrorReporter, escape, print_data, quote
from penstok.quantities import plural
from penstok.verification.settings import OUT

if TYPE_CHECKING:
    from penstok.data.dataset import Dataset
    from penstok.types import Split

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = ("penstok info tokens/", "penstok info s3://bucket/run --json")
FLAGS = make_flags(
    (out_argument(OUT), JSON._replace(group="Output", text="Print the manifest as JSON."))
)
_SHOWN_TOKENS = 12


def run(*, output: str, as_json: bool) -> int:
    """Print what an output is."""
    with ErrorReporter(as_json=as_json, reads_only=True):
        from penstok.data.dataset import open_dataset
        from penstok.output.store.folder import describe_leftovers

        dataset = open_dataset(output)
        notes = describe_leftovers(dataset.folder)
        if as_json:
            summary = {"type": "summary", **to_builtins(dataset.manifest)}
            print_data(json.dumps({**summary, "notes": notes} if notes else summary))
        else:
            # A manifest can hold any text, also what no terminal could print.
            lines = [*_lines(dataset), *(f"  note: {note}" for note in notes)]
            print_data("\n".join(map(escape, lines)))
        return 0


def _lines(dataset: Dataset) -> list[str]:
    from penstok.cli.job_summary import (
        bytes_per_token,
        describe_format,
        input_sizes,
        tokenizer_line,
    )
    from penstok.quantities import format_bytes
    from penstok.types import SPLITS

    manifest = dataset.manifest
    counts, tokenizer = manifest.counts, manifest.tokenizer
    lines = [
        f"{dataset.folder}/: {plural(counts['tokens'], 'token')} in "
        f"{plural(counts['documents'], 'document')} from {plural(len(manifest.inputs), 'input')}",
        f"  inputs  {input_sizes(manifest)}"
        if manifest.lineage is None or manifest.lineage.kind == "converted"
        else f"  imported from {plural(len(manifest.inputs), 'file')} of another program",
        f"  tokenizer  {tokenizer_line(tokenizer, manifest.settings['eot'])}, {manifest.dtype}",
        f"  engine  {manifest.run.get('engine', 'unknown')}",
    ]
    if manifest.lineage is not None and manifest.lineage.kind == "converted":
        lines.append(f"  converted from {manifest.lineage.sources[0]}")
    lines += [f"  format {describe_format(record)}" for record in manifest.formats]
    if counts.get("text_bytes"):
        lines.append(f"  {bytes_per_token(counts)}")
    for split in SPLITS:
        record = manifest.splits[split]
        size = format_bytes(sum(file.bytes for file in record.files))
        lines.append(
            f"  {split:5}  {plural(record.tokens, 'token')}, "
            f"{plural(record.documents, 'document')}, {size} in {plural(len(record.files), 'file')}"
            + (", with a document index" if record.indexes else "")
        )
        if record.files and record.tokens:
            lines += [
                f"    first  {_shown(dataset, split, 0)}",
                f"    last   {_shown(dataset, split, max(record.tokens - _SHOWN_TOKENS, 0))}",
            ]
    return lines


def _shown(dataset: Dataset, split: Split, start: int) -> str:
    from penstok.errors import UsageError
    from penstok.tokenizers import load_recorded_tokenizer

    ids = dataset.read(split, start, _SHOWN_TOKENS).tolist()
    try:
        text = load_recorded_tokenizer(dataset.manifest.tokenizer).decode_bytes(ids)
    except UsageError as error:
        return f"{ids}  (no text: {error.what})"
    return f"{quote(text.decode(errors='backslashreplace'))}  {ids}"
