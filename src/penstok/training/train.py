"""Trains a tokenizer: takes a sample of the corpus, learns a vocabulary, checks it, writes it.

The file is written whole, and only after it was loaded as `-t` will load it. `sample` reads the
text; `process` runs the library that learns.
"""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

from penstok.errors import (
    ConflictError,
    EngineError,
    UsageError,
    WriteError,
    quoted,
)
from penstok.inputs.changes import refuse_changed_meanwhile
from penstok.jobs.plan import make_plan, nothing_found
from penstok.output.store.folder import write_file
from penstok.tokenizers import ByteLevel, load_tokenizer
from penstok.tokenizers.vocabulary import PATTERNS
from penstok.training.process import TrainerOptions, TrainerProcess, TrainingMonitor
from penstok.training.sample import Sample
from penstok.training.trainer import check_library, count_pieces
from penstok.types import Struct

if TYPE_CHECKING:
    from pathlib import Path

    from penstok.jobs.plan import Plan
    from penstok.jobs.progress import Progress
    from penstok.training.settings import TrainingSettings
    from penstok.types import Counts

__all__ = ["TrainingResult", "find_warnings", "train_tokenizer"]


class TrainingResult(Struct, frozen=True):
    """The tokenizer that was written, and the sample that it was trained on.

    Attributes:
        special: The ids of the special tokens.
        bytes_per_token: Measured on about a megabyte of the sample.
        counts: What the sample contained.
        skipped: Inputs that were skipped or ignored, and why.
        is_head: The size of the input was not known, so the sample is its beginning.
    """

    output: Path
    vocab_size: int
    special: dict[str, int]
    sample_bytes: int
    bytes_per_token: float
    seconds: float
    peak_memory_bytes: int
    counts: Counts
    skipped: dict[str, str]
    num_skipped: int
    is_head: bool


def train_tokenizer(settings: TrainingSettings, progress: Progress) -> TrainingResult:
    """Learn a vocabulary from a sample of the corpus, check it, and write it to a file."""
    _refuse_missing_library()
    _refuse_special(settings)
    _refuse_output(settings)
    plan = make_plan(settings.job)
    _refuse_own_input(settings, plan)
    sample = Sample(plan, settings.job, settings.sample_bytes)
    monitor = TrainingMonitor(settings.job.memory_bytes, sample, progress)
    options = TrainerOptions(PATTERNS[settings.pattern], settings.vocab_size, settings.special)
    with progress, TrainerProcess(options, settings.job.priority) as trainer:
        for texts in sample.iter_texts():
            trainer.send(texts)
            monitor.update(trainer)
        if not sample.text_bytes:
            raise nothing_found(plan.sources, sample.counts.empty_documents)
        result = trainer.finish(monitor)
    refuse_changed_meanwhile(plan.sources)
    content = str(result["tokenizer"])
    write_file(settings.output, content, lambda path: _check_file(path, settings))
    made = json.loads(content)
    return TrainingResult(
        output=settings.output,
        vocab_size=len(made["model"]["vocab"]) + len(settings.special),
        special={token["content"]: token["id"] for token in made["added_tokens"]},
        sample_bytes=sample.text_bytes,
        bytes_per_token=result["measured_bytes"] / max(result["measured_tokens"], 1),
        seconds=monitor.elapsed_seconds,
        peak_memory_bytes=monitor.peak_bytes,
        counts=sample.counts,
        skipped=plan.skipped | plan.ignored,
        num_skipped=len(plan.skipped),
        is_head=not sample.total_bytes,
    )


def find_warnings(settings: TrainingSettings, trained: TrainingResult) -> list[str]:
    """List what the user can act on."""
    warnings = []
    if trained.vocab_size < settings.vocab_size:
        warnings.append(
            f"the vocabulary has {trained.vocab_size:,} tokens instead of "
            f"{settings.vocab_size:,}, because no other pair occurs twice in the sample; pass more "
            "text or a larger `--sample`"
        )
    if trained.is_head:
        warnings.append(
            "the size of the input is unknown, so the sample is its beginning; pass files to "
            "sample evenly"
        )
    return warnings


def _check_file(path: Path, settings: TrainingSettings) -> None:
    """Load the file as `-t` will: its ids must follow from its merges."""
    found = load_tokenizer(str(path), eot_token=settings.special[0])
    taken = set(found.ranks.values()) & set(found.special.values())
    for text in settings.special:
        if found.special[text] in taken:
            raise UsageError(
                f"`{text}` is also a token of ordinary text, so it cannot be special",
                where="--special",
                next_step="pass a text such as `--special '<|endoftext|>'`",
            )
    if not isinstance(found.model, ByteLevel):
        raise EngineError(
            f"a bug: the ids of the new tokenizer do not follow from its merges: {found.model.why}",
            where="the trainer",
            next_step="report this, with the text and the version of `tokenizers`",
        )


def _refuse_missing_library() -> None:
    try:
        check_library()
    except ImportError as error:
        raise UsageError(
            "training a tokenizer needs the library `tokenizers`, below version 1",
            where=str(error),
            next_step="pip install 'penstok[hf]'",
        ) from error


def _refuse_special(settings: TrainingSettings) -> None:
    """Refuse a special token that could also be learned: one text would have two ids."""
    for text in settings.special:
        if count_pieces(PATTERNS[settings.pattern], text) < 2:
            raise UsageError(
                f"`{text}` can be a token of ordinary text, so it cannot be a special one",
                where="--special",
                next_step="pass a text that is not a word, such as `--special '<|endoftext|>'`",
            )


def _refuse_output(settings: TrainingSettings) -> None:
    output = settings.output
    what = ""
    if output.is_dir():
        what = f"`{settings.output}` is a folder"
    elif output.suffix != ".json":
        what = f"`{settings.output}` does not end in `.json`"
    elif output.exists() and not output.is_file():
        what = f"`{settings.output}` is not a regular file"
    if what:
        next_step = "pass a file, such as `-o tokenizer.json`"
        raise UsageError(what, where="--output", next_step=next_step)
    if not output.parent.is_dir():
        raise UsageError(
            f"the folder `{output.parent}` does not exist",
            where="--output",
            next_step=f"`mkdir -p {quoted(output.parent)}`, or choose another `-o`",
        )
    if not os.access(output.parent, os.W_OK | os.X_OK):
        raise WriteError(
            f"cannot be written: {os.strerror(errno.EACCES)}",
            where=str(output.parent),
            next_step=f"`ls -ld {quoted(output.parent)}` shows who may write to it; choose another "
            "`-o`, or run the same command as a user who may",
        )
    if output.exists() and not settings.overwrite:
        raise ConflictError(
            "the file exists already",
            where=str(output),
            next_step="choose another `-o`, or pass `--overwrite` to replace it",
        )


def _refuse_own_input(settings: TrainingSettings, plan: Plan) -> None:
    output = os.path.realpath(settings.output)
    if any(os.path.realpath(source.stored.path) == output for source in plan.sources):
        raise UsageError(
            f"`{settings.output}` is an input and would be overwritten",
            where="INPUT, --output",
            next_step="choose another `-o`",
        )
