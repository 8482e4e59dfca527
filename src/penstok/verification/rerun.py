"""Workers for a job that was recorded: its settings checked, its inputs compared, processes made.

It decides nothing about what they do. `proof` lets them compare, `restore` lets them write,
`rebuild` lets them make checksums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import psutil

from penstok.engines import choose_engine, engine_needs, name_reference
from penstok.errors import DamageError, UsageError
from penstok.executors.processes import ProcessExecutor
from penstok.inputs.feed import make_feed
from penstok.jobs.plan import input_needs
from penstok.jobs.settings import JobSettings
from penstok.output.segments import REMOTE_READ_BYTES
from penstok.readers.formats import open_scanner
from penstok.storage import REMOTE_BYTES, is_url
from penstok.storage.object_paths import OPEN_OBJECT_BYTES
from penstok.tokenizers import load_recorded_tokenizer
from penstok.types import MemoryNeeds, TextRules
from penstok.worker.memory import divide_memory
from penstok.worker.worker import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstok.output.layout import Layout
    from penstok.output.segments import SinkKind
    from penstok.tokenizers import Tokenizer
    from penstok.types import JobRecord, Source

__all__ = ["default_unit_bytes", "make_executor", "rules_of_job"]


def default_unit_bytes() -> int:
    """Return the size of a unit in a job that was asked for no other."""
    return JobSettings(inputs=("any",)).unit_bytes


def rules_of_job(job: JobRecord) -> TextRules:
    """Return what shaped the bytes of a recorded job.

    Raises:
        DamageError: If its settings make no sense.
    """
    try:
        return TextRules.from_settings(job.settings)
    except ValueError as error:
        raise _senseless(f"the recorded settings make no sense: {error}") from error


def make_executor(
    job: JobRecord,
    layout: Layout,
    sources: Sequence[Source],
    sink: SinkKind,
    *,
    engine: Literal["auto", "reference"],
    workers: int | None,
    memory_bytes: int,
    lock_file: int | None = None,
) -> ProcessExecutor:
    """Make workers that encode units of a recorded job again.

    Args:
        job: What shaped the bytes.
        layout: Where the tokens are.
        sources: The inputs.
        sink: What the workers do with the tokens.
        engine: The fastest, or the one whose ids are right by definition.
        workers: How many; None for as many as there are cores.
        memory_bytes: For all of them and this process.
        lock_file: The folder's lock, for workers that write.

    Raises:
        DamageError: If the record makes no sense, or its tokenizer is not known.
    """
    rules = rules_of_job(job)
    tokenizer = _load_tokenizer(job)
    wanted = name_reference(tokenizer) if engine == "reference" else engine
    chosen, _ = choose_engine(wanted, tokenizer)
    num_workers, share, _ = divide_memory(
        memory_bytes,
        engine_needs(chosen, tokenizer),
        len(sources),
        workers,
        [*input_needs(sources, job.unit_bytes), *_output_needs(layout)],
    )
    total = sum(source.num_bytes for source in sources)
    give_back = total > psutil.virtual_memory().total // 4
    spec = WorkerSpec(
        tokenizer=tokenizer,
        engine=chosen,
        rules=rules,
        # What was a bad record then is one now, and was left out or stopped the job.
        on_error="skip",
        block_bytes=JobSettings(inputs=("any",)).block_bytes,
        layout=layout,
        share=share,
        give_back=give_back,
        sink=sink,
    )
    return ProcessExecutor(
        spec,
        num_workers=num_workers,
        batch_bytes=job.unit_bytes,
        priority="low",
        lock_file=lock_file,
        feed=make_feed(
            sources,
            num_workers,
            job.unit_bytes,
            open_scanner=open_scanner,
            on_error="skip",
            give_back=give_back,
        ),
    )


def _output_needs(layout: Layout) -> list[MemoryNeeds]:
    """Return what comparing with objects takes, in this process and in each worker."""
    if not is_url(layout.folder):
        return []
    reading_bytes = REMOTE_BYTES + REMOTE_READ_BYTES + OPEN_OBJECT_BYTES
    return [MemoryNeeds(parent_bytes=REMOTE_BYTES, worker_bytes=reading_bytes)]


def _load_tokenizer(job: JobRecord) -> Tokenizer:
    try:
        tokenizer = load_recorded_tokenizer(job.tokenizer)
    except UsageError as error:
        raise _senseless(error.what) from error
    if (tokenizer.vocab_size, tokenizer.eot_id) != (job.tokenizer.vocab_size, job.tokenizer.eot_id):
        raise _senseless(f"the job's tokenizer was another `{tokenizer.name}` than the one here")
    return tokenizer


def _senseless(what: str) -> DamageError:
    return DamageError(
        what,
        where="the first line of segments.jsonl",
        next_step="use the version of penstok that made the output, or make it anew with "
        "`penstok tokenize INPUT... --overwrite`",
    )
