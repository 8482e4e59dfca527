"""What to convert, and to what: the settings of `penstok convert`.

It reads nothing, and imports nothing heavy, since `--help` reads it. `cli` and `api` make the
record; `convert` and `imports` take it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from penstok.choices import EotPosition, ImportName
from penstok.errors import UsageError
from penstok.jobs.definition import COUNT, PATH, TEXTS, TOKEN, argument, setting
from penstok.jobs.settings import (
    FORMATS,
    check_choices,
    columns_setting,
    sequence_length_setting,
)

__all__ = ["ConvertSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertSettings:
    """What to convert: an output to other formats, or files of another program to an output."""

    inputs: tuple[str, ...] = argument(
        "INPUT", "A finished output; with --from, files or folders of another program.", kind=TEXTS
    )
    from_: ImportName | None = setting(
        "Input",
        "--from FORMAT",
        f"Import files that another program wrote: {', '.join(get_args(ImportName))}.",
        choices=get_args(ImportName),
    )
    val: tuple[str, ...] = setting(
        "Input",
        "--val PATH",
        "With --from: files of the val split; repeat the flag for several.",
        kind=TEXTS,
        default=(),
    )
    dtype: Literal["uint16", "uint32"] | None = setting(
        "Input",
        "--dtype TYPE",
        "With --from: the type of a token in files that do not say it: uint16 or uint32.",
        choices=("uint16", "uint32"),
    )
    tokenizer: str | None = setting(
        "Tokenizer",
        "-t --tokenizer TOKENIZER",
        "With --from: the tokenizer that made the tokens, as for `penstok tokenize`.",
        kind=PATH._replace(expected="the name or the path of a tokenizer"),
    )
    eot: EotPosition | None = setting(
        "Tokenizer",
        "--eot WHERE",
        "With --from: where the end-of-text tokens are: append (after each document), prepend or "
        "none (default: as the format has them).",
        choices=get_args(EotPosition),
    )
    eot_token: str | None = setting(
        "Tokenizer",
        "--eot-token TOKEN",
        "With --from: end-of-text token, as text or id (default: the one the tokenizer defines).",
        kind=TOKEN,
    )
    format: str = setting(
        "Output",
        "--format LIST",
        "Formats to write, separated by commas, as for `penstok tokenize`.",
        kind=FORMATS,
        default="raw",
    )
    output: str | None = setting(
        "Output",
        "-o --output DIR",
        "Folder to write to (default: beside the tokens; with --from: required).",
        kind=PATH,
    )
    sequence_length: int | None = sequence_length_setting()
    columns: str = columns_setting()
    shard_tokens: int | None = setting(
        "Output",
        "--shard-tokens COUNT",
        "Tokens per file of formats with files of their own (default: that of the format).",
        kind=COUNT,
    )

    def __post_init__(self) -> None:
        check_choices(self)
        if not self.inputs:
            raise UsageError(
                "no input", where="INPUT", next_step="name a finished output, such as `tokens/`"
            )
        if self.from_ is None:
            self._check_output()
        else:
            self._check_import()

    def _check_output(self) -> None:
        """Check the settings for an output that is converted."""
        if len(self.inputs) > 1:
            raise UsageError(
                "only one output can be converted at a time",
                where=f"INPUT `{self.inputs[1]}`",
                next_step="run the command once per output",
            )
        for flag, value in (
            ("--val", self.val),
            ("--dtype", self.dtype),
            ("-t", self.tokenizer),
            ("--eot", self.eot),
            ("--eot-token", self.eot_token),
        ):
            if value:
                raise UsageError(
                    f"`{flag}` is for files of another program",
                    where=flag,
                    next_step=f"leave out `{flag}`, or also pass `--from FORMAT`",
                )
        if self.format == "raw" and self.output is None:
            raise UsageError(
                "no format was chosen",
                where="--format",
                next_step="pass a format, such as `--format megatron`",
            )

    def _check_import(self) -> None:
        """Check the settings for files of another program."""
        if self.output is None:
            raise UsageError(
                "no output folder was chosen", where="-o", next_step="pass one, such as `-o tokens`"
            )
        if self.tokenizer is None:
            raise UsageError(
                "the files do not say which tokenizer made them",
                where="-t",
                next_step="pass its name or file, such as `-t gpt2`",
            )
