"""Which tokens of an output to read: the settings of `penstok show`.

It reads nothing, and imports nothing heavy, since `--help` reads it. `cli` and `api` make the
record; `dataset` takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import get_args

from penstok.choices import Split
from penstok.errors import UsageError
from penstok.jobs.definition import INTEGER, SWITCH, define, setting
from penstok.jobs.settings import check_choices
from penstok.quantities import parse_integer

__all__ = ["IDS", "INPUT", "ShowSettings"]

_DEFAULT_TOKENS = 200

IDS = define(
    "Output",
    "--ids",
    "Print ids instead of text.",
    kind=SWITCH,
    default=False,
    in_python=False,
)
INPUT = define(
    "Input",
    "--input NAME",
    "Name of an input as `penstok info --json` lists it, or a glob pattern for several.",
    field="pattern",
    in_python=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSettings:
    """Which tokens."""

    split: Split = setting(
        "Input",
        "--split SPLIT",
        "Split to read: train or val.",
        default="train",
        choices=get_args(Split),
    )
    at: int = setting(
        "Input",
        "--at NUMBER",
        "First token to print, counted from 0.",
        kind=INTEGER._replace(parse=partial(parse_integer, least=0)),
        default=0,
    )
    document: int | None = setting(
        "Input",
        "--document NUMBER",
        "Print this document of the split, counted from 0.",
        kind=INTEGER._replace(parse=partial(parse_integer, least=0)),
        default=None,
    )
    tokens: int | None = setting(
        "Input",
        "--tokens COUNT",
        "How many tokens to print at most (default: 200, or the whole document).",
        kind=INTEGER._replace(parse=partial(parse_integer, least=1)),
        default=None,
    )

    def __post_init__(self) -> None:
        check_choices(self)
        values = (
            ("--at", self.at, 0),
            ("--document", self.document, 0),
            ("--tokens", self.tokens, 1),
        )
        for flag, value, least in values:
            if value is not None and value < least:
                expected = f"a whole number, {least} or more"
                raise UsageError(
                    f"`{value}` is not {expected}", where=flag, next_step=f"pass {expected}"
                )
        if self.at and self.document is not None:
            raise UsageError(
                "`--at` and `--document` both say where to start",
                where=f"--at {self.at} --document {self.document}",
                next_step="pass one of them; `--tokens` takes the first tokens of a document",
            )

    @property
    def num_tokens(self) -> int | None:
        """How many tokens to print at most; None for all of a document."""
        return _DEFAULT_TOKENS if self.tokens is None and self.document is None else self.tokens
