"""A job made ready: from what is asked to what it is, and what its workers are made from.

It reads the heads of inputs and starts nothing. `pipeline` runs what it has prepared, `preview`
says what that would do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

import psutil

from penstok.engines import choose_engine, engine_needs
from penstok.errors import UsageError
from penstok.jobs.plan import input_needs, make_plan
from penstok.jobs.tasks import choose_task_bytes
from penstok.output.layout import Layout
from penstok.output.store.base import UPLOAD_BYTES
from penstok.storage import REMOTE_BYTES
from penstok.tokenizers import load_tokenizer
from penstok.types import JobRecord, MemoryNeeds, TokenizerRecord
from penstok.worker.memory import divide_memory
from penstok.worker.worker import WorkerSpec

if TYPE_CHECKING:
    from penstok.jobs.plan import Plan
    from penstok.jobs.settings import JobSettings
    from penstok.tokenizers import Tokenizer
    from penstok.types import TextRules
    from penstok.worker.memory import MemoryShare

__all__ = ["Job", "prepare"]


@dataclass(frozen=True, slots=True)
class Job:
    """What will be done, and with what.

    Attributes:
        record: What shapes the bytes, as it is recorded.
        why_not_kernel: Why a slower engine must do; empty if none must.
        idle: What would use cores that the memory leaves idle; empty if none are.
    """

    settings: JobSettings
    plan: Plan
    tokenizer: Tokenizer
    rules: TextRules
    record: JobRecord
    layout: Layout
    engine: str
    why_not_kernel: str
    num_workers: int
    share: MemoryShare
    idle: str

    @property
    def gives_back(self) -> bool:
        """Whether pages that were read go back: smaller inputs may stay cached for the next run."""
        return self.plan.input_bytes > int(psutil.virtual_memory().total) // 4

    @property
    def hints(self) -> list[str]:
        """What would make it faster."""
        slower = f"slower than it could be: {self.why_not_kernel}" if self.why_not_kernel else ""
        return [hint for hint in (self.idle, slower) if hint]

    def worker_spec(self) -> WorkerSpec:
        """Return what every worker is made from."""
        return WorkerSpec(
            tokenizer=self.tokenizer,
            engine=self.engine,
            rules=self.rules,
            on_error=self.settings.on_error,
            block_bytes=self.settings.block_bytes,
            layout=self.layout,
            share=self.share,
            give_back=self.gives_back,
        )


def prepare(settings: JobSettings) -> Job:
    """Find the inputs, load the tokenizer, choose the engine, divide the memory."""
    plan = make_plan(settings)
    tokenizer = load_tokenizer(
        settings.tokenizer,
        eot_token=settings.eot_token,
        bos=settings.bos,
        pattern=settings.pattern,
    )
    dtype = _choose_dtype(settings, tokenizer)
    rules = settings.text_rules(plan.rule, tokenizer.fingerprint, dtype)
    if settings.is_by_task and rules.task_bytes is None:
        rules = replace(rules, task_bytes=choose_task_bytes(plan))
    record = _make_record(plan, tokenizer, rules)
    engine, why_not_kernel = choose_engine(settings.engine, tokenizer)
    num_workers, share, idle = divide_memory(
        settings.memory_bytes,
        engine_needs(engine, tokenizer),
        len(plan.sources),
        # On a cluster the budget is that of one task, which takes one core.
        1 if settings.executor == "ray" else settings.workers,
        _needs_beside(settings, plan),
    )
    return Job(
        settings=settings,
        plan=plan,
        tokenizer=tokenizer,
        rules=rules,
        record=record,
        layout=Layout.of_job(settings.output, record),
        engine=engine,
        why_not_kernel=why_not_kernel,
        num_workers=num_workers,
        share=share,
        idle=idle,
    )


def _needs_beside(settings: JobSettings, plan: Plan) -> list[MemoryNeeds]:
    """Return what inputs and output take beside the engine: in the parent, and for each worker."""
    needs = input_needs(plan.sources, plan.unit_bytes)
    if not settings.is_by_task:
        return needs
    # Every task has a feed of its own, and a place to upload from.
    needs = [MemoryNeeds(worker_bytes=each.parent_bytes + each.worker_bytes) for each in needs]
    if isinstance(settings.output, str):
        needs.append(MemoryNeeds(parent_bytes=REMOTE_BYTES, worker_bytes=UPLOAD_BYTES))
    return needs


def _make_record(plan: Plan, tokenizer: Tokenizer, rules: TextRules) -> JobRecord:
    return JobRecord(
        penstok=version("penstok"),
        tokenizer=TokenizerRecord(
            tokenizer.name,
            tokenizer.vocab_size,
            tokenizer.eot_id,
            tokenizer.fingerprint,
            tokenizer.bos_id,
        ),
        dtype=rules.dtype,
        unit_bytes=plan.unit_bytes,
        settings=rules.to_settings(),
    )


def _choose_dtype(settings: JobSettings, tokenizer: Tokenizer) -> Literal["uint16", "uint32"]:
    """Take the smallest type that holds every id; refuse a smaller one."""
    needed: Literal["uint16", "uint32"] = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
    if settings.dtype == "uint16" and needed == "uint32":
        raise UsageError(
            f"uint16 cannot hold {tokenizer.vocab_size} ids",
            where="--dtype",
            next_step="pass `--dtype uint32`",
        )
    return needed if settings.dtype == "auto" else settings.dtype
