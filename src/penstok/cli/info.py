"""`penstok info`: what a finished output is."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstok.cli._report import errors_reported, escape

if TYPE_CHECKING:
    from penstok.data.dataset import Dataset
    from penstok.types import Split

__all__ = ["info"]

_SHOWN_TOKENS = 12


def info(
    output: Annotated[
        str,
        typer.Argument(metavar="OUT", help="A finished output: a folder, or s3://BUCKET/NAME."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Show counts, sizes and the first and last tokens of an output.

    Examples:  penstok info tokens/   ·   penstok info tokens/ --json   ·   penstok info
    s3://bucket/run
    """
    with errors_reported(as_json=as_json, reads_only=True):
        from penstok.data.dataset import open_dataset

        dataset = open_dataset(output)
        if as_json:
            content = asdict(dataset.manifest)
            typer.echo(json.dumps({"type": "summary", **content}))
        else:
            typer.echo("\n".join(_lines(dataset)))


def _lines(dataset: Dataset) -> list[str]:
    from penstok.quantities import format_bytes
    from penstok.types import SPLITS

    manifest = dataset.manifest
    counts, tokenizer = manifest.counts, manifest.tokenizer
    lines = [
        f"{dataset.folder}/: {counts['tokens']:,} tokens of {counts['documents']:,} documents "
        f"from {len(manifest.inputs):,} inputs ({format_bytes(counts['input_bytes'])})",
        f"  tokenizer  {tokenizer.name}, {tokenizer.vocab_size:,} ids, "
        + ("" if tokenizer.bos_id is None else f"begin-of-text {tokenizer.bos_id}, ")
        + f"end-of-text {tokenizer.eot_id}, {manifest.dtype}",
        f"  engine  {manifest.run.get('engine', 'unknown')}",
        f"  bytes per token  {counts['input_bytes'] / max(counts['tokens'], 1):.3f}",
    ]
    for split in SPLITS:
        record = manifest.splits[split]
        size = format_bytes(sum(file.bytes for file in record.files))
        lines.append(
            f"  {split:5}  {record.tokens:,} tokens, {record.documents:,} documents, {size} in "
            f"{len(record.files)} file{'' if len(record.files) == 1 else 's'}"
        )
        if record.tokens:
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
    return escape(repr(text.decode(errors="replace"))) + f"  {ids}"
