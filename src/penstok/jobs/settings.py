"""What the user asked for: one frozen record of a job's settings, checked once.

It reads no files and knows no inputs. `cli` and `api` make it; `jobs.job` turns it into a job.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from penstok.engines import EngineChoice
from penstok.errors import UsageError
from penstok.storage import is_url
from penstok.types import (
    MAX_SEPARATOR_BYTES,
    TEXT_RULES_VERSION,
    EotPosition,
    InputFormat,
    InvalidUtf8,
    OnError,
    Priority,
    TextRules,
)

if TYPE_CHECKING:
    from penstok.types import DocumentRule

__all__ = [
    "DEFAULT_BLOCK_BYTES",
    "DEFAULT_UNIT_BYTES",
    "JobSettings",
    "parse_output",
    "parse_part",
]

DocsBy = Literal["auto", "separator", "line", "file"]
FormatChoice = Literal["auto", InputFormat]
Dtype = Literal["auto", "uint16", "uint32"]
ExecutorChoice = Literal["local", "ray"]

_CHOICES: dict[str, Any] = {
    "input_format": FormatChoice,
    "docs_by": DocsBy,
    "engine": EngineChoice,
    "eot": EotPosition,
    "invalid_utf8": InvalidUtf8,
    "on_error": OnError,
    "priority": Priority,
    "dtype": Dtype,
    "executor": ExecutorChoice,
}

# What a unit and a block hold unless a caller of the Python interface asks for another size.
DEFAULT_UNIT_BYTES = 16 << 20
DEFAULT_BLOCK_BYTES = 2 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """Everything a user can ask for; the flags of `penstok tokenize` have the same names.

    `output` is a folder, or the URL of one in an object store as text; `part` is (which, of many).
    """

    inputs: tuple[str, ...]
    output: Path | str = Path("tokens")
    tokenizer: str = "gpt2"
    eot_token: str | None = None
    bos: str = "auto"
    pattern: str | None = None
    engine: EngineChoice = "auto"
    input_format: FormatChoice = "auto"
    text_key: str = "text"
    doc_separator: str | None = None
    docs_by: DocsBy = "auto"
    strip: bool = False
    eot: EotPosition = "append"
    val_fraction: float = 0.0005
    seed: int = 0
    shard_tokens: int | None = None
    dtype: Dtype = "auto"
    workers: int | None = None
    memory_bytes: int = 1 << 30
    on_error: OnError = "stop"
    invalid_utf8: InvalidUtf8 = "replace"
    priority: Priority = "low"
    executor: ExecutorChoice = "local"
    ray_address: str | None = None
    part: tuple[int, int] | None = None
    task_bytes: int | None = None
    overwrite: bool = False
    limit_bytes: int | None = None
    unit_bytes: int = DEFAULT_UNIT_BYTES
    block_bytes: int = DEFAULT_BLOCK_BYTES

    def __post_init__(self) -> None:
        if not self.inputs:
            raise UsageError(
                "no input", where="INPUT", next_step="name a file, folder, glob or URL"
            )
        for name, choices in _CHOICES.items():
            _check_choice(name, getattr(self, name), get_args(choices))
        if not 0 <= self.val_fraction <= 1:
            raise UsageError(
                f"the val fraction must be between 0 and 1, not `{self.val_fraction}`",
                where="--val-fraction",
                next_step="pass a fraction, such as `--val-fraction 0.0005`",
            )
        if not 0 <= self.seed < 2**64:
            raise UsageError(
                f"the seed `{self.seed}` is out of range",
                where="--seed",
                next_step="pass an integer from 0 to 2^64 - 1",
            )
        for name in (
            *("shard_tokens", "workers", "limit_bytes", "task_bytes", "unit_bytes", "block_bytes"),
        ):
            _check_positive(name, getattr(self, name))
        self._check_tasks()
        self._check_separator()
        if not self.text_key:
            raise UsageError(
                "the text key is empty",
                where="--text-key",
                next_step="pass the field that holds the text, such as `--text-key text`",
            )

    @property
    def is_by_task(self) -> bool:
        """Whether the job is many tasks, each of which writes its own shards."""
        return self.executor == "ray" or self.part is not None or isinstance(self.output, str)

    @property
    def folder(self) -> Path:
        """The output folder, of a job whose output is one."""
        return Path(self.output)

    def _check_tasks(self) -> None:
        if self.part is not None and not 1 <= self.part[0] <= self.part[1]:
            raise UsageError(
                f"there is no part {self.part[0]} of {self.part[1]}",
                where="--part",
                next_step="count from 1, as in `--part 3/16`",
            )
        if self.part is not None and (self.executor == "ray" or self.overwrite):
            other = "--overwrite" if self.overwrite else "--executor ray"
            raise UsageError(
                f"`--part` cannot be combined with `{other}`",
                where=f"--part, {other}",
                next_step="delete the old output first, or choose another `-o`"
                if self.overwrite
                else "leave out one of the two: Ray runs all parts",
            )
        if self.is_by_task and self.shard_tokens is not None:
            raise UsageError(
                "distributed jobs write one shard per task",
                where="--shard-tokens",
                next_step="pass `--task-size` for smaller or larger shards",
            )
        if self.task_bytes is not None and not self.is_by_task:
            raise UsageError(
                "this job is one task",
                where="--task-size",
                next_step="pass `--shard-tokens` for the size of shards; `--task-size` is for "
                "`--executor ray`, `--part` and outputs in S3",
            )
        if self.ray_address is not None and self.executor != "ray":
            raise UsageError(
                "this job does not run on a cluster",
                where="--ray-address",
                next_step="also pass `--executor ray`",
            )

    def _check_separator(self) -> None:
        separator = self.doc_separator
        if separator is None:
            if self.docs_by == "separator":
                raise UsageError(
                    "no separator was given",
                    where="--docs-by separator",
                    next_step="pass `--doc-separator '<|endoftext|>'`",
                )
            return
        if self.docs_by in ("line", "file"):
            raise UsageError(
                f"documents cannot be divided by a separator and by {self.docs_by}",
                where="--doc-separator, --docs-by",
                next_step="pass one of the two",
            )
        try:
            size = len(separator.encode())
        except UnicodeEncodeError as error:
            raise UsageError(
                "the separator is not valid UTF-8",
                where="--doc-separator",
                next_step="pass text, such as `--doc-separator '<|endoftext|>'`",
            ) from error
        if not 0 < size <= MAX_SEPARATOR_BYTES:
            raise UsageError(
                f"the separator has {size} bytes",
                where="--doc-separator",
                next_step=f"pass 1 to {MAX_SEPARATOR_BYTES} bytes, or `--docs-by file`",
            )

    def text_rules(
        self, rule: DocumentRule, tokenizer: str, dtype: Literal["uint16", "uint32"]
    ) -> TextRules:
        """Return what shapes the output's bytes; the size of tasks is chosen later.

        Args:
            rule: How documents are told apart, once the inputs were read.
            tokenizer: Its fingerprint.
            dtype: The type of a token.
        """
        return TextRules(
            tokenizer=tokenizer,
            dtype=dtype,
            text_rules=TEXT_RULES_VERSION,
            text_key=self.text_key,
            docs_by=rule.kind,
            doc_separator=rule.separator.decode() if rule.kind == "separator" else None,
            strip=self.strip,
            eot=self.eot,
            val_fraction=self.val_fraction,
            seed=self.seed,
            shard_tokens=self.shard_tokens,
            invalid_utf8=self.invalid_utf8,
            limit_bytes=self.limit_bytes,
            task_bytes=self.task_bytes,
        )


def parse_output(text: str) -> Path | str:
    """Return a folder as a path, a URL as text."""
    return text if is_url(text) else Path(text)


def parse_part(text: str) -> tuple[int, int]:
    """Parse a part, such as `3/16`."""
    words = text.split("/")
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        raise UsageError(
            f"`{text}` is not a part such as `3/16`",
            where="--part",
            next_step="pass the part and the number of parts, as in `--part 3/16`",
        )
    return int(words[0]), int(words[1])


def _flag(name: str) -> str:
    if name == "task_bytes":
        return "--task-size"
    return "--" + name.removesuffix("_bytes").replace("_", "-")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(
            f"unknown value `{value}`; known: {', '.join(choices)}",
            where=_flag(name),
            next_step=f"pass `{_flag(name)} {choices[0]}`",
        )


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise UsageError(
            f"`{value}` is too small; the least is 1",
            where=_flag(name),
            next_step=f"pass 1 or more, or leave out `{_flag(name)}`",
        )
