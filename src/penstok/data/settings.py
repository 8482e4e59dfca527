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

__all__ = ["IDS", "ShowSettings"]

IDS = define(
    "Output",
    "--ids",
    "Print ids instead of text.",
    kind=SWITCH,
    default=False,
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
    tokens: int = setting(
        "Input",
        "--tokens COUNT",
        "How many tokens to print.",
        kind=INTEGER._replace(parse=partial(parse_integer, least=1)),
        default=200,
    )

    def __post_init__(self) -> None:
        check_choices(self)
        for flag, value, least in (("--at", self.at, 0), ("--tokens", self.tokens, 1)):
            if value < least:
                expected = f"a whole number, {least} or more"
                raise UsageError(
                    f"`{value}` is not {expected}", where=flag, next_step=f"pass {expected}"
                )
