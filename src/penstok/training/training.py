"""A tokenizer of the corpus's own: a sample, a vocabulary learnt from it, proved, written.

It reads by `sampling` and learns by a `trainer_process`. The file appears whole, and only after it
was read back as `-t` will read it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstok.errors import ConflictError, EngineError, InputError, UsageError
from penstok.inputs.changes import find_changed
from penstok.jobs.plan import make_plan, nothing_found
from penstok.output.store.folder import write_file
from penstok.tokenizers import ByteLevel, load_tokenizer
from penstok.tokenizers.vocabulary import PATTERNS
from penstok.training.process import Order, TrainerProcess, TrainingWatch
from penstok.training.sampling import Sample
from penstok.training.trainer import check_library, count_pieces

if TYPE_CHECKING:
    from pathlib import Path

    from penstok.jobs.plan import Plan
    from penstok.jobs.progress import Progress
    from penstok.jobs.settings import JobSettings
    from penstok.types import Counts

__all__ = ["Trained", "TrainingSettings", "train_tokenizer"]

_NUM_BYTES = 256
# The kernel takes no larger ids.
_MAX_VOCAB_SIZE = 1 << 21


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """What is asked; `job` says which text is read and how, and how much memory there is."""

    job: JobSettings
    output: Path
    vocab_size: int
    pattern: str
    special: tuple[str, ...]
    sample_bytes: int
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise UsageError(
                f"unknown pattern `{self.pattern}`; known: {', '.join(PATTERNS)}",
                where="--pattern",
                next_step="pass `--pattern cl100k`",
            )
        least = _NUM_BYTES + len(self.special) + 1
        if not least <= self.vocab_size <= _MAX_VOCAB_SIZE:
            raise UsageError(
                f"{self.vocab_size} tokens cannot be: {least} (256 bytes, {len(self.special)} "
                f"special, one to learn) to {_MAX_VOCAB_SIZE} can",
                where="--vocab-size",
                next_step="pass a size such as `--vocab-size 32000`",
            )
        if self.sample_bytes < 1:
            raise UsageError(
                "an empty sample", where="--sample", next_step="pass a size such as `100MB`"
            )
        is_named_twice = len(set(self.special)) < len(self.special)
        is_visible = all(text and text.isprintable() for text in self.special)
        if not self.special or is_named_twice or not is_visible:
            raise UsageError(
                "no special token, one that cannot be printed, or one that is named twice",
                where="--special",
                next_step="name each once, such as `--special '<|endoftext|>'`",
            )


@dataclass(frozen=True, slots=True)
class Trained:
    """What was made, and from what.

    Attributes:
        special: The ids of the special tokens.
        bytes_per_token: Of about a megabyte of the sample.
        counts: What was seen in the text that was read.
        skipped: Inputs that were left out, and why.
        is_head: The size of the input was not known: the sample is its beginning.
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
    is_head: bool


def train_tokenizer(settings: TrainingSettings, progress: Progress) -> Trained:
    """Learn a vocabulary from a sample of the corpus, prove it, and write it to a file."""
    _refuse_missing_library()
    _refuse_special(settings)
    _refuse_output(settings)
    plan = make_plan(settings.job)
    _refuse_own_input(settings, plan)
    sample = Sample(plan, settings.job, settings.sample_bytes)
    watch = TrainingWatch(settings.job.memory_bytes, sample, progress)
    order = Order(PATTERNS[settings.pattern], settings.vocab_size, settings.special)
    with progress, TrainerProcess(order, settings.job.priority) as trainer:
        for texts in sample.iter_texts():
            trainer.send(texts)
            watch.tick(trainer)
        if not sample.text_bytes:
            raise nothing_found(plan.sources, sample.counts.empty_documents)
        result = trainer.finish(watch)
    _refuse_changed_inputs(plan)
    content = str(result["tokenizer"])
    write_file(settings.output, content, lambda path: _prove(path, settings))
    made = json.loads(content)
    return Trained(
        output=settings.output,
        vocab_size=len(made["model"]["vocab"]) + len(settings.special),
        special={token["content"]: token["id"] for token in made["added_tokens"]},
        sample_bytes=sample.text_bytes,
        bytes_per_token=result["measured_bytes"] / max(result["measured_tokens"], 1),
        seconds=watch.elapsed_seconds,
        peak_memory_bytes=watch.peak_bytes,
        counts=sample.counts,
        skipped=plan.skipped,
        is_head=not sample.total_bytes,
    )


def _prove(path: Path, settings: TrainingSettings) -> None:
    """Read the file as `-t` will: its ids must be those of its merges, in order."""
    found = load_tokenizer(str(path), eot_token=settings.special[0])
    taken = set(found.ranks.values()) & set(found.special.values())
    for text in settings.special:
        if found.special[text] in taken:
            raise UsageError(
                f"`{text}` is how a token of ordinary text is spelled, so it cannot be special",
                where="--special",
                next_step="pass a text such as `--special '<|endoftext|>'`",
            )
    if not isinstance(found.model, ByteLevel):
        raise EngineError(
            f"a bug: what was learnt is not what its ids stand for: {found.model.why}",
            where="the trainer",
            next_step="report this, with the text and the version of `tokenizers`",
        )


def _refuse_missing_library() -> None:
    try:
        check_library()
    except ImportError as error:
        raise UsageError(
            "learning a vocabulary needs the library `tokenizers`, before its version 1",
            where=str(error),
            next_step="install it: `pip install 'penstok[hf]'`",
        ) from error


def _refuse_special(settings: TrainingSettings) -> None:
    """Refuse a special token that could also be learnt: then one text would have two ids."""
    for text in settings.special:
        if count_pieces(PATTERNS[settings.pattern], text) < 2:
            raise UsageError(
                f"`{text}` can be a token of ordinary text, so it cannot be a special one",
                where="--special",
                next_step="pass a text that no word is, such as `--special '<|endoftext|>'`",
            )


def _refuse_output(settings: TrainingSettings) -> None:
    output = settings.output
    if output.suffix != ".json" or output.is_dir():
        raise UsageError(
            f"`{output}` cannot be a tokenizer: it is a folder, or does not end in `.json`",
            where="--output",
            next_step="pass a file, such as `-o tokenizer.json`",
        )
    if not os.access(output.parent, os.W_OK):
        raise UsageError(
            "the folder is not there, or cannot be written to",
            where=str(output.parent),
            next_step=f"`mkdir -p {output.parent}`, or choose another `-o`",
        )
    if output.exists() and not settings.overwrite:
        raise ConflictError(
            "the file is there already",
            where=str(output),
            next_step="choose another `-o`, or pass `--overwrite` to replace it",
        )


def _refuse_own_input(settings: TrainingSettings, plan: Plan) -> None:
    output = os.path.realpath(settings.output)
    if any(os.path.realpath(source.path) == output for source in plan.sources):
        raise UsageError(
            f"`{settings.output}` is an input, and the file that would be written",
            where="INPUT, --output",
            next_step="choose another `-o`",
        )


def _refuse_changed_inputs(plan: Plan) -> None:
    changed = find_changed(plan.sources)
    if changed is not None:
        raise InputError(
            "the file changed while it was read",
            where=changed.path,
            next_step="wait until nothing writes to it, then run the same command again",
        )
