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


_MEANINGS = {
    0: "done",
    1: "bug",
    2: "wrong usage",
    3: "done, but some input was skipped",
    4: "input cannot be read",
    5: "output conflicts with this job",
    6: "output is damaged, or there is no finished job",
    7: "output is locked by another run",
    8: "disk full or write failed; safe to rerun",
    130: "interrupted; safe to rerun",
    141: "the program that read standard output is gone",
}


def _codes(*codes: int, **other: str) -> dict[int, str]:
    """Return the meanings of exit codes; `_4="..."` has a meaning of its own for this command."""
    own = {int(name[1:]): text for name, text in other.items()}
    return {code: text for code, text in (_MEANINGS | own).items() if code in {*codes, *own}}


COMMANDS = (
    CommandRow(
        "tokenize",
        "penstok.cli.tokenize",
        "Turn text into train.bin and val.bin.",
        _codes(0, 1, 2, 3, 4, 5, 7, 8, 130),
    ),
    CommandRow(
        "plan",
        "penstok.cli.plan",
        "Show what tokenize would do: inputs, first documents, estimated tokens, disk and time.",
        _codes(0, 1, 2, 4, 5, 8, 130, 141),
    ),
    CommandRow(
        "count",
        "penstok.cli.count",
        "Count tokens without writing any; compare tokenizers.",
        _codes(
            *(0, 1, 2, 4, 8, 130, 141),
            _3="done, but some input was skipped, or a tokenizer failed",
        ),
    ),
    CommandRow(
        "info",
        "penstok.cli.info",
        "Show the counts, sizes and first and last tokens of an output.",
        _codes(0, 1, 2, 6, 8, 130, 141, _4="output cannot be read"),
    ),
    CommandRow(
        "show",
        "penstok.cli.show",
        "Print tokens of an output as text.",
        _codes(0, 1, 2, 6, 8, 130, 141, _4="output cannot be read"),
    ),
    CommandRow(
        "find",
        "penstok.cli.find",
        "List the documents of an output that came from an input.",
        _codes(0, 1, 2, 6, 8, 130, 141, _4="output cannot be read"),
    ),
    CommandRow(
        "report",
        "penstok.cli.report",
        "Show an output as one page: lengths, inputs, vocabulary, the run, documents to read.",
        _codes(
            *(0, 1, 2, 6, 8, 130, 141),
            _4="output cannot be read",
            _5="another file is where the page should be",
        ),
    ),
    CommandRow(
        "verify",
        "penstok.cli.verify",
        "Check an output for damage, and repair it.",
        _codes(
            *(1, 2, 6, 7, 8, 130, 141),
            _0="no damage found",
            _4="an input or the output cannot be read",
            _5="an input changed, or the folder holds another unfinished job",
        ),
    ),
    CommandRow(
        "convert",
        "penstok.cli.convert",
        "Write other formats of an output, or import files of another program.",
        _codes(
            *(0, 1, 2, 5, 7, 8, 130),
            _4="a file of another program cannot be read, or is damaged",
            _6="the output is damaged, or there is no finished job",
        ),
    ),
    CommandRow(
        "train-tokenizer",
        "penstok.cli.train_tokenizer",
        "Train a byte-level BPE tokenizer on a sample of the corpus.",
        _codes(
            *(0, 1, 3, 4, 8),
            _2="wrong usage, or not enough memory",
            _5="the output file already exists",
            _130="interrupted; nothing was written",
        ),
    ),
    CommandRow(
        "finish",
        "penstok.cli.finish",
        "Finish a job that was run in parts: check that no part is missing, and commit.",
        _codes(
            *(0, 1, 2, 3, 7, 8, 130),
            _4="the input has no documents",
            _5="OUT is not a folder",
            _6="parts are missing, or there is no job",
        ),
    ),
)
