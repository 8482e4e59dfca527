"""What to count, and with which tokenizers: the settings of `penstok count`.

It reads nothing, and imports nothing heavy, since `--help` reads it. `cli` and `api` make the
record; `count` takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstok.errors import UsageError
from penstok.jobs.definition import SIZE, TEXTS, divide_fields, setting, settings_of
from penstok.jobs.settings import JobSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstok.jobs.definition import Setting

__all__ = ["TEXT_SETTINGS", "CountSettings"]

# They decide where a file that is one giant document is divided, which is where tokens end it.
_SPLIT_SETTINGS = ("val_fraction", "seed")
# A sample needs some fifteen units to show how much they differ.
_MIN_SAMPLE_BYTES = 10**6
_RUN_SETTINGS = ("workers", "memory", "priority", "unit_bytes", "block_bytes")


def _text_settings() -> tuple[Setting, ...]:
    """Return the settings of a job that say which tokens there are, and how to run."""
    chosen = (
        each
        for each in settings_of(JobSettings)
        if each.is_argument
        or (each.group in ("Input", "Tokenizer") and each.name != "tokenizer")
        or each.name in (*_SPLIT_SETTINGS, *_RUN_SETTINGS)
    )
    return tuple(
        each._replace(
            group="Input",
            text="As for `penstok tokenize`: " + each.text[0].lower() + each.text[1:],
        )
        if each.name in _SPLIT_SETTINGS
        else each
        for each in chosen
    )


TEXT_SETTINGS = _text_settings()


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSettings:
    """What to count; `job` says which text is read, how, and in how much memory."""

    job: JobSettings
    tokenizers: tuple[str, ...] = setting(
        "Tokenizer",
        "-t --tokenizer LIST",
        "One tokenizer or several, separated by commas, as for `penstok tokenize`: names "
        "(gpt2, o200k_base, ...), OWNER/NAME on the Hugging Face Hub, or files.",
        kind=TEXTS,
        default="gpt2",
    )
    sample_bytes: int | None = setting(
        "Input",
        "--sample SIZE",
        "Count only about this much of the input, such as 1GB, spread evenly over all of it; "
        "estimate the rest, with a margin of error.",
        kind=SIZE,
    )

    def __post_init__(self) -> None:
        names = [name.strip() for each in self.tokenizers for name in each.split(",")]
        if not names or "" in names:
            raise UsageError(
                "a tokenizer has no name" if names else "there is no tokenizer",
                where="--tokenizer",
                next_step="pass names separated by commas, such as `-t gpt2,o200k_base`",
            )
        object.__setattr__(self, "tokenizers", tuple(dict.fromkeys(names)))
        if self.sample_bytes is not None and self.sample_bytes < _MIN_SAMPLE_BYTES:
            raise UsageError(
                f"a sample of {self.sample_bytes:,} bytes is too small for an estimate",
                where="--sample",
                next_step="pass 1MB or more, such as `--sample 100MB`",
            )

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> CountSettings:
        """Make the record from its own fields and those of the input together."""
        job, own = divide_fields(fields, TEXT_SETTINGS)
        # Without an index, `--eot none` takes no extra pass to find where documents end.
        return cls(job=JobSettings(**job, document_index="none"), **own)
