"""`penstok show`: tokens as text."""

from __future__ import annotations

from typing import Annotated

import typer

from penstok.cli._report import errors_reported, escape

__all__ = ["show"]


def show(
    output: Annotated[
        str,
        typer.Argument(metavar="OUT", help="A finished output: a folder, or s3://BUCKET/NAME."),
    ],
    split: Annotated[str, typer.Option("--split", help="train or val.")] = "train",
    at: Annotated[int, typer.Option("--at", min=0, help="The first token shown.")] = 0,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="How many.")] = 200,
    ids: Annotated[bool, typer.Option("--ids", help="Show the ids instead of text.")] = False,
) -> None:
    """Show a stretch of tokens as text; control characters are spelled out.

    Examples:  penstok show tokens/   ·   penstok show tokens/ --split val --at 0 --tokens 200
    """
    with errors_reported(reads_only=True):
        from penstok.data.dataset import open_dataset
        from penstok.errors import UsageError
        from penstok.tokenizers import load_recorded_tokenizer
        from penstok.types import SPLITS

        if split not in SPLITS:
            raise UsageError(
                f"unknown split `{split}`; known: {', '.join(SPLITS)}",
                where="--split",
                next_step="pass `--split train`",
            )
        dataset = open_dataset(output)
        chosen = split
        total = dataset.manifest.splits[chosen].tokens
        if at >= total:
            raise UsageError(
                f"the {split} split has {total} tokens",
                where=f"--at {at}",
                next_step=f"pass `--at` from 0 to {max(total - 1, 0)}, or another `--split`",
            )
        found = dataset.read(chosen, at, tokens).tolist()
        if ids:
            typer.echo(" ".join(map(str, found)))
            return
        text = load_recorded_tokenizer(dataset.manifest.tokenizer).decode_bytes(found)
        typer.echo(escape(text.decode(errors="replace")))
