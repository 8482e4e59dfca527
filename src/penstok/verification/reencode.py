"""Workers for a recorded job: its settings checked, its tokenizer loaded, processes made.

It does not decide what they encode, and starts none of them itself. `proof` lets them compare,
`repair` lets them write, `ledger_repair` lets them compute checksums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.engines import name_reference
from penstok.errors import DamageError, UsageError
from penstok.jobs.job import choose_workers, make_processes
from penstok.jobs.plan import input_needs
from penstok.jobs.settings import DEFAULT_BLOCK_BYTES
from penstok.output.offsets import RecordedOffsets
from penstok.output.segments import REMOTE_READ_BYTES
from penstok.storage import REMOTE_BYTES, is_url
from penstok.storage.object_paths import OPEN_OBJECT_BYTES
from penstok.tokenizers import load_recorded_tokenizer
from penstok.types import MemoryNeeds, TextRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstok.executors.processes import ProcessExecutor
    from penstok.jobs.progress import Meter
    from penstok.output.layout import Layout
    from penstok.output.segments import SinkKind
    from penstok.tokenizers import Tokenizer
    from penstok.types import FinishedUnit, JobRecord, Source
    from penstok.verification.settings import VerifySettings

__all__ = ["make_executor", "reencode_units", "rules_of_job"]

_RECORD = "the first line of segments.jsonl"
_WITHOUT_SOURCE = "leave out `--source`; `--full` alone reads the checksums of all tokens"


def rules_of_job(job: JobRecord) -> TextRules:
    """Return what shaped the bytes of a recorded job.

    Raises:
        DamageError: If its settings are invalid.
    """
    try:
        return TextRules.from_settings(job.settings)
    except ValueError as error:
        raise _invalid(f"the recorded settings are invalid: {error}") from error


def make_executor(
    job: JobRecord,
    layout: Layout,
    sources: Sequence[Source],
    sink: SinkKind,
    settings: VerifySettings,
    *,
    lock_file: int | None = None,
) -> ProcessExecutor:
    """Make workers that re-encode units of a recorded job.

    Args:
        job: What shaped the bytes.
        layout: Where the tokens are.
        sources: The inputs.
        sink: What the workers do with the tokens; those that compare use the reference engine.
        settings: How many workers, and how much memory.
        lock_file: The folder's lock, for workers that write.

    Raises:
        DamageError: If the record is invalid, or its tokenizer is not known.
    """
    tokenizer, is_comparing = _load_tokenizer(job), sink == "compare"
    workers = choose_workers(
        tokenizer,
        rules_of_job(job),
        layout,
        engine=name_reference(tokenizer) if is_comparing else "auto",
        num_sources=len(sources),
        input_bytes=sum(source.num_bytes for source in sources),
        needs=[*input_needs(sources, job.unit_bytes), *_output_needs(layout)],
        memory_bytes=settings.memory_bytes,
        num_workers=settings.workers,
        # A bad record was skipped by the job, or the job would have stopped there.
        on_error="skip",
        block_bytes=DEFAULT_BLOCK_BYTES,
        sink=sink,
    )
    return make_processes(
        workers.spec,
        workers.number,
        sources,
        job.unit_bytes,
        priority="low",
        lock_file=lock_file,
        advice=_WITHOUT_SOURCE if is_comparing else "",
    )


def reencode_units(executor: ProcessExecutor, units: Iterable[FinishedUnit], meter: Meter) -> None:
    """Let workers encode recorded units again; all must give the tokens that they gave.

    Raises:
        ConflictError: If one does not.
    """
    recorded = RecordedOffsets()
    with executor:
        for unit in executor.run(
            map(recorded.add, units), recorded, lambda: meter.tick(executor.pids())
        ):
            recorded.check(unit)
            meter.num_units_done += 1
            meter.done_bytes += unit.encoded.counts.input_bytes
            meter.num_tokens += unit.encoded.counts.tokens


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
        next_step = f"{error.next_step}, then run the same command again"
        raise DamageError(error.what, where=_RECORD, next_step=next_step) from error
    if (tokenizer.vocab_size, tokenizer.eot_id) != (job.tokenizer.vocab_size, job.tokenizer.eot_id):
        raise _invalid(f"the job used a different `{tokenizer.name}` tokenizer than this one")
    return tokenizer


def _invalid(what: str) -> DamageError:
    return DamageError(
        what,
        where=_RECORD,
        next_step="use the version of penstok that made the output, or re-encode everything: "
        "`penstok tokenize INPUT... --overwrite`",
    )
