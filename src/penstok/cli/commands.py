"""The registry of commands: one row per command, in the order in which `--help` lists them.

It imports no command, so that `penstok --help` and every other command start without it; `app`
imports the module of a row when the command runs or shows its own help. A new command is a new
module with `EXAMPLES`, `FLAGS` and `run`, and a row here.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COMMANDS", "CommandRow"]


class CommandRow(NamedTuple):
    """A command: its name, the module that runs it, its purpose and its exit codes."""

    name: str
    module: str
    summary: str
    exit_codes: dict[int, str]


_WRITING = {
    7: "output is locked by another run",
    8: "disk full or write failed; safe to rerun",
    130: "interrupted; safe to rerun",
}
_READING = {
    0: "done",
    2: "wrong usage",
    4: "object store cannot be read",
    6: "output is damaged, or there is no finished job",
}

COMMANDS = (
    CommandRow(
        "tokenize",
        "penstok.cli.tokenize",
        "Turn text into train.bin and val.bin.",
        {
            0: "done, all input used",
            1: "bug",
            2: "wrong usage",
            3: "done, but some input was skipped",
            4: "input cannot be read",
            5: "output conflicts with this job",
            **_WRITING,
        },
    ),
    CommandRow(
        "plan",
        "penstok.cli.plan",
        "Show what tokenize would do: inputs, first documents, estimated tokens, disk and time.",
        {0: "done", 2: "wrong usage", 4: "input cannot be read"},
    ),
    CommandRow(
        "info",
        "penstok.cli.info",
        "Show the counts, sizes and first and last tokens of an output.",
        _READING,
    ),
    CommandRow("show", "penstok.cli.show", "Print tokens of an output as text.", _READING),
    CommandRow(
        "verify",
        "penstok.cli.verify",
        "Check an output for damage, and repair it.",
        {
            0: "no damage found",
            1: "bug",
            2: "wrong usage",
            4: "an input or the object store cannot be read",
            5: "an input changed, or the folder holds another unfinished job",
            6: "output is damaged, or there is no finished job",
            **_WRITING,
        },
    ),
    CommandRow(
        "train-tokenizer",
        "penstok.cli.train_tokenizer",
        "Train a byte-level BPE tokenizer on a sample of the corpus.",
        {
            0: "done, all input used",
            1: "bug",
            2: "wrong usage, or not enough memory",
            3: "done, but some input was skipped",
            4: "input cannot be read",
            5: "the output file already exists",
            8: "disk full or write failed",
            130: "interrupted; nothing was written",
        },
    ),
    CommandRow(
        "finish",
        "penstok.cli.finish",
        "Finish a job that was run in parts: check that no part is missing, and commit.",
        {
            0: "done, all input used",
            1: "bug",
            2: "wrong usage",
            3: "done, but some input was skipped",
            4: "the input has no documents",
            6: "parts are missing, or there is no job",
            **_WRITING,
        },
    ),
)
