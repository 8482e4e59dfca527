"""What a check of an output was asked to do: the settings of `penstok verify`.

It checks only the settings, and imports nothing heavy, since `--help` reads it. `cli` and `api`
make the record; `verify` and `repair` take it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstok.errors import UsageError
from penstok.jobs.definition import INTEGER, SIZE, SWITCH, define, setting
from penstok.quantities import parse_integer

if TYPE_CHECKING:
    from penstok.storage.object_paths import OutputPath

__all__ = ["OUT", "REPAIR", "VerifySettings"]

OUT = "A finished output: a folder, or s3://BUCKET/NAME."
REPAIR = define(
    "Check",
    "--repair",
    "Re-encode damaged units from the inputs; only for an output in a folder.",
    kind=SWITCH,
    default=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySettings:
    """What to check."""

    output: OutputPath
    full: bool = setting(
        "Check",
        "--full",
        "Read every token, not a sample; with --source, re-encode every document.",
        kind=SWITCH,
        default=False,
    )
    source: bool = setting(
        "Check",
        "--source",
        "Re-encode documents of the inputs with the reference tokenizer, and compare.",
        kind=SWITCH,
        default=False,
    )
    seed: int | None = setting(
        "Check",
        "--seed NUMBER",
        "Seed of the sample, to repeat an earlier check (default: random).",
        kind=INTEGER._replace(parse=partial(parse_integer, least=0)),
    )
    workers: int | None = setting(
        "Run", "-j --workers COUNT", "Worker count (default: all cores).", kind=INTEGER
    )
    memory_bytes: int = setting(
        "Run",
        "--memory SIZE",
        "Memory limit for --source and --repair.",
        kind=SIZE,
        default="1GiB",
    )

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise UsageError(
                f"`{self.workers}` is too small",
                where="--workers",
                next_step="pass 1 or more, or leave `--workers` out",
            )
        if self.seed is not None and self.seed < 0:
            raise UsageError(
                f"`{self.seed}` is not a whole number, 0 or more",
                where="--seed",
                next_step="pass a whole number, 0 or more",
            )

    @property
    def num_threads(self) -> int:
        """How many threads read tokens."""
        from penstok.worker.memory import num_cores

        return self.workers or num_cores()
