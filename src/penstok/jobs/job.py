"""From settings to a job: its plan, tokenizer, engine, memory, and what its workers are made from.

It reads the start of inputs, or all of a few, and starts no process. `run` runs the job, `preview`
says what it would do, and `verification` re-encodes a recorded job with the same workers.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

from penstok.engines import choose_engine, engine_needs
from penstok.errors import UsageError, own_version
from penstok.executors.processes import ProcessExecutor
from penstok.inputs.feed import make_feed
from penstok.jobs.conflicts import refuse_own_input
from penstok.jobs.few_documents import find_val_hash
from penstok.jobs.formats import refuse_formats
from penstok.jobs.memory import divide_memory, needs_beside
from penstok.jobs.plan import make_plan
from penstok.jobs.task_hints import find_task_hint
from penstok.jobs.tasks import choose_task_bytes
from penstok.output.layout import Layout
from penstok.output.store import open_store
from penstok.readers.formats import FORMATS, open_scanner
from penstok.tokenizers import load_tokenizer
from penstok.types import JobRecord, Struct, replace
from penstok.worker.memory import MemoryShare, total_bytes
from penstok.worker.worker import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstok.choices import Dtype
    from penstok.inputs.feed import Feed
    from penstok.jobs.plan import Plan
    from penstok.jobs.settings import JobSettings
    from penstok.output.segments import SinkKind
    from penstok.tokenizers import Tokenizer
    from penstok.types import MemoryNeeds, OnError, Priority, Source, TextRules

__all__ = [
    "Job",
    "Workers",
    "choose_dtype",
    "choose_workers",
    "make_processes",
    "make_record",
    "prepare",
]


class Workers(Struct, frozen=True):
    """What the workers of a job are made from, and how many there are.

    Attributes:
        spec: What each of them is made from.
        number: How many fit into the memory.
        why_not_kernel: Why the kernel cannot be used; empty if it is.
        idle: What would use cores that the memory leaves idle; empty if none are.
    """

    spec: WorkerSpec
    number: int
    why_not_kernel: str
    idle: str


class Job(Struct, frozen=True):
    """What will be done, and with what.

    Attributes:
        record: What shapes the bytes, as it is recorded.
        feed: What feeds streams to its workers, if it has any. It may have read their start, and
            must start over before the job uses it.
    """

    settings: JobSettings
    plan: Plan
    tokenizer: Tokenizer
    record: JobRecord
    layout: Layout
    workers: Workers
    feed: Feed | None

    def close(self) -> None:
        """Close the feed, if nothing else has."""
        if self.feed is not None:
            self.feed.close()

    @property
    def rules(self) -> TextRules:
        """What shapes the bytes."""
        return self.workers.spec.rules

    def with_val(self, val_hash: str | None) -> Job:
        """Return the same job with another choice of the only document in val."""
        if val_hash == self.rules.val_hash:
            return self
        rules = replace(self.rules, val_hash=val_hash)
        return replace(
            self,
            record=replace(self.record, settings=rules.to_settings()),
            workers=replace(self.workers, spec=replace(self.workers.spec, rules=rules)),
        )

    @property
    def engine(self) -> str:
        """The name of the engine."""
        return self.workers.spec.engine

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        return self.workers.number

    @property
    def share(self) -> MemoryShare:
        """The memory of each worker."""
        return self.workers.spec.share

    @property
    def hints(self) -> list[str]:
        """What the user should know about the choices that were made, and what would be faster."""
        why = self.workers.why_not_kernel
        slower = f"slower than it could be: {why}" if why else ""
        eot_note = self.tokenizer.eot_note if self.settings.eot != "none" else ""
        found = (eot_note, self.workers.idle, slower, find_task_hint(self), *self.plan.hints)
        return [hint for hint in found if hint]


def prepare(settings: JobSettings) -> Job:
    """Find the inputs, load the tokenizer, choose the engine, divide the memory.

    Close the job when it is done.
    """
    # A place that cannot be an output is refused before anything is read.
    refuse_own_input(str(settings.output), settings.inputs)
    open_store(str(settings.output))
    plan = make_plan(settings)
    _refuse_text(settings, plan)
    tokenizer = load_tokenizer(
        settings.tokenizer,
        eot_token=settings.eot_token,
        bos=settings.bos,
        pattern=settings.pattern,
    )
    dtype = choose_dtype(settings.dtype, tokenizer)
    rules = settings.text_rules(plan.rule, tokenizer.fingerprint, dtype)
    if settings.is_by_task and rules.task_bytes is None:
        rules = replace(rules, task_bytes=choose_task_bytes(plan))
    record = make_record(plan, tokenizer, rules)
    refuse_formats(rules, record.tokenizer, str(settings.output))
    layout = Layout.of_job(settings.output, record)
    workers = choose_workers(
        tokenizer,
        rules,
        layout,
        engine=settings.engine,
        num_sources=len(plan.sources),
        input_bytes=plan.input_bytes,
        needs=needs_beside(settings, plan),
        memory_bytes=settings.memory_bytes,
        # On a cluster the budget is that of one task, which takes one core.
        num_workers=1 if settings.executor == "ray" else settings.workers,
        on_error=settings.on_error,
        block_bytes=settings.block_bytes,
    )
    feed = _make_feed(workers.spec, workers.number, plan.sources, plan.unit_bytes, keeps_head=True)
    job = Job(settings, plan, tokenizer, record, layout, workers, feed)
    with ExitStack() as stack:
        stack.callback(job.close)
        val_hash = find_val_hash(plan, workers.spec, feed)
        stack.pop_all()
    return job.with_val(val_hash)


def choose_workers(
    tokenizer: Tokenizer,
    rules: TextRules,
    layout: Layout,
    *,
    engine: str,
    num_sources: int,
    input_bytes: int,
    needs: list[MemoryNeeds],
    memory_bytes: int,
    num_workers: int | None,
    on_error: OnError,
    block_bytes: int,
    sink: SinkKind = "write",
) -> Workers:
    """Choose the engine and divide the memory among workers.

    Args:
        tokenizer: The tokenizer.
        rules: What shapes the bytes.
        layout: Which files they write, or compare with.
        engine: The engine that was asked for.
        num_sources: How many inputs there are.
        input_bytes: How large they are, as they are stored.
        needs: What inputs and output take beside the engine.
        memory_bytes: For all workers and this process.
        num_workers: How many were asked for; None for one per core.
        on_error: What becomes of records that cannot be used.
        block_bytes: About how much text is encoded at once.
        sink: What the workers do with the tokens.

    Raises:
        UsageError: If the memory is too small, or the engine cannot be used.
    """
    chosen, why_not_kernel = choose_engine(engine, tokenizer)
    number, share, idle = divide_memory(
        memory_bytes, engine_needs(chosen, tokenizer), num_sources, num_workers, needs
    )
    spec = WorkerSpec(
        tokenizer=tokenizer,
        engine=chosen,
        rules=rules,
        on_error=on_error,
        block_bytes=block_bytes,
        layout=layout,
        share=share,
        # Smaller inputs may stay in the page cache for the next run.
        give_back=input_bytes > total_bytes() // 4,
        sink=sink,
    )
    return Workers(spec, number, why_not_kernel, idle)


def make_processes(
    spec: WorkerSpec,
    num_workers: int,
    sources: Sequence[Source],
    unit_bytes: int,
    *,
    priority: Priority,
    lock_file: int | None,
    num_at_start: int = 1,
    advice: str = "",
    feed: Feed | None = None,
) -> ProcessExecutor:
    """Make worker processes, and what feeds them the inputs that are streams.

    A `feed` that was made for them starts over.
    """
    if feed is None:
        feed = _make_feed(spec, num_workers, sources, unit_bytes, keeps_head=False)
    else:
        feed.start_over()
    return ProcessExecutor(
        spec,
        num_workers=num_workers,
        batch_bytes=unit_bytes,
        priority=priority,
        lock_file=lock_file,
        feed=feed,
        num_at_start=num_at_start,
        advice=advice,
    )


def _make_feed(
    spec: WorkerSpec,
    num_workers: int,
    sources: Sequence[Source],
    unit_bytes: int,
    *,
    keeps_head: bool,
) -> Feed | None:
    return make_feed(
        sources,
        num_workers,
        unit_bytes,
        on_error=spec.on_error,
        give_back=spec.give_back,
        open_scanner=open_scanner,
        keeps_head=keeps_head,
    )


def _refuse_text(settings: JobSettings, plan: Plan) -> None:
    """Refuse inputs without records if fields of records are to be kept."""
    found = [each for each in plan.sources if not FORMATS[each.format].has_records]
    if settings.keep and found:
        raise UsageError(
            f"`{found[0].path}` is plain text, which has no fields to keep",
            where="--keep",
            next_step="leave out `--keep`, or pass `--input-format` if the input has records",
        )


def make_record(plan: Plan, tokenizer: Tokenizer, rules: TextRules) -> JobRecord:
    """Return what shapes the bytes, as it is recorded."""
    return JobRecord(
        penstok=own_version(),
        tokenizer=tokenizer.record,
        dtype=rules.dtype,
        unit_bytes=plan.unit_bytes,
        settings=rules.to_settings(),
    )


def choose_dtype(wanted: Dtype, tokenizer: Tokenizer) -> Literal["uint16", "uint32"]:
    """Take the smallest type that holds every id; refuse a smaller one."""
    needed: Literal["uint16", "uint32"] = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
    if wanted == "uint16" and needed == "uint32":
        raise UsageError(
            f"uint16 cannot hold {tokenizer.vocab_size} ids",
            where="--dtype",
            next_step="pass `--dtype uint32`",
        )
    return needed if wanted == "auto" else wanted
