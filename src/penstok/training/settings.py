"""What a training was asked to do: the settings of `penstok train-tokenizer`.

It checks only the settings, and imports nothing heavy, since `--help` reads it. `cli` and `api`
make the record; `train` takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from penstok.choices import PatternName
from penstok.errors import UsageError
from penstok.jobs.definition import (
    COUNT,
    PATH,
    SIZE,
    SWITCH,
    TEXTS,
    Kind,
    divide_fields,
    setting,
    settings_of,
)
from penstok.jobs.settings import PATTERNS, JobSettings, check_choices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstok.jobs.definition import Setting

__all__ = ["DEFAULT_SPECIAL", "INPUT_SETTINGS", "TrainingSettings"]

DEFAULT_SPECIAL = "<|endoftext|>"
_NUM_BYTES = 256
# The kernel supports no larger ids.
_MAX_VOCAB_SIZE = 1 << 21


def _parse_path(text: str, _flag: str) -> Path:
    return Path(text)


_FILE = Kind(*PATH[:3], _parse_path, is_parsed=True)
_MEMORY = "Memory limit for all processes together; training stops if it needs more."


def _input_settings() -> tuple[Setting, ...]:
    """Return the settings of a job that say which text is read, how, and in how much memory."""
    chosen = (
        each
        for each in settings_of(JobSettings)
        if each.is_argument
        or (each.group == "Input" and each.name != "limit")
        or each.name in ("memory", "priority")
    )
    return tuple(
        each._replace(default="4GiB", text=_MEMORY) if each.name == "memory" else each
        for each in chosen
    )


INPUT_SETTINGS = _input_settings()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """What to train; `job` says which text is read, how, and in how much memory."""

    job: JobSettings
    sample_bytes: int = setting(
        "Input",
        "--sample SIZE",
        "How much text to train on, taken evenly from all inputs.",
        kind=SIZE,
        default="100MB",
    )
    vocab_size: int = setting(
        "Tokenizer",
        "--vocab-size COUNT",
        "Vocabulary size, special tokens included.",
        kind=COUNT,
        default=32000,
    )
    pattern: PatternName = setting(
        "Tokenizer",
        "--pattern NAME",
        f"Pattern that splits text into words: {PATTERNS}.",
        default="cl100k",
        choices=get_args(PatternName),
    )
    special: tuple[str, ...] = setting(
        "Tokenizer",
        "--special TEXT",
        "Special token; repeat the flag for several. The first one is the end-of-text token.",
        kind=TEXTS,
        default=DEFAULT_SPECIAL,
    )
    output: Path = setting(
        "Output", "-o --output FILE", "File to write.", kind=_FILE, default="tokenizer.json"
    )
    overwrite: bool = setting(
        "Output", "--overwrite", "Replace the file if it exists.", kind=SWITCH, default=False
    )

    def __post_init__(self) -> None:
        check_choices(self)
        least = _NUM_BYTES + len(self.special) + 1
        if not least <= self.vocab_size <= _MAX_VOCAB_SIZE:
            raise UsageError(
                f"a vocabulary of {self.vocab_size} tokens is not possible; it must have {least} "
                f"(256 bytes, {len(self.special)} special, one to learn) to {_MAX_VOCAB_SIZE}",
                where="--vocab-size",
                next_step="pass a size such as `--vocab-size 32000`",
            )
        if self.sample_bytes < 1:
            raise UsageError(
                "the sample is empty", where="--sample", next_step="pass a size such as `100MB`"
            )
        for number, text in enumerate(self.special or ("",)):
            if text and text.isprintable() and text not in self.special[:number]:
                continue
            shown = text.encode("unicode_escape").decode()
            if not text:
                what = "a special token is empty" if self.special else "there is no special token"
            elif text.isprintable():
                what = f"the special token `{shown}` is named twice"
            else:
                what = f"the special token `{shown}` cannot be printed"
            raise UsageError(
                what,
                where="--special",
                next_step="pass each once, such as `--special '<|endoftext|>'`",
            )

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> TrainingSettings:
        """Make the record from its own fields and those of the input together."""
        job, own = divide_fields(fields, INPUT_SETTINGS)
        return cls(job=JobSettings(**job), **own)
