"""`penstok show`: tokens of an output as text.

It reads only the tokens it prints, through `data`; `info` shows an output as a whole.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstok.cli.flags import OUT, flag, switch
from penstok.cli.messages import ErrorReporter, escape, print_data
from penstok.quantities import parse_integer, plural

if TYPE_CHECKING:
    from penstok.types import Split

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = ("penstok show tokens/", "penstok show tokens/ --split val --at 1000 --tokens 50")
FLAGS = (
    OUT,
    flag("Input", "--split SPLIT", "Split to read: train or val.", default="train"),
    flag(
        "Input",
        "--at NUMBER",
        "First token to print, counted from 0.",
        default=0,
        parse=partial(parse_integer, least=0),
    ),
    flag(
        "Input",
        "--tokens COUNT",
        "How many tokens to print.",
        default=200,
        parse=partial(parse_integer, least=1),
    ),
    switch("Output", "--ids", "Print ids instead of text."),
)


def run(*, output: str, split: Split, at: int, tokens: int, ids: bool) -> int:
    """Print tokens."""
    with ErrorReporter(reads_only=True):
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
        total = dataset.manifest.splits[split].tokens
        if at >= total:
            raise UsageError(
                f"the {split} split has only {plural(total, 'token')}",
                where=f"--at {at}",
                next_step=f"pass `--at` from 0 to {max(total - 1, 0)}, or another `--split`",
            )
        found = dataset.read(split, at, tokens).tolist()
        if ids:
            print_data(" ".join(map(str, found)))
        else:
            text = load_recorded_tokenizer(dataset.manifest.tokenizer).decode_bytes(found)
            print_data(escape(text.decode(errors="replace")))
        return 0
