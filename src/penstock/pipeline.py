"""The main line, as one function: plan, run, commit, report.

It does no work itself and prints nothing; each step is a module of its own. The command line and
the Python interface both call `run_job`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

from penstock.engines import ENGINE_MEMORY, choose_engine
from penstock.errors import ConflictError, DamageError, InputError, UsageError
from penstock.executors import LocalExecutor
from penstock.ledger import Ledger
from penstock.manifest import Manifest, host_facts, make_manifest
from penstock.memory import divide_memory
from penstock.offsets import Offsets
from penstock.plan import make_plan
from penstock.progress import Watch
from penstock.sources import find_changed
from penstock.store import LEDGER, MANIFEST, Layout, Store, write_errors
from penstock.tokenizer import load_tokenizer
from penstock.types import SPLITS
from penstock.worker import WorkerSpec

if TYPE_CHECKING:
    from penstock.memory import MemoryShare
    from penstock.plan import Plan
    from penstock.progress import Progress
    from penstock.settings import JobSettings
    from penstock.tokenizer import Tokenizer

__all__ = ["Outcome", "run_job"]

# What the estimate of the output's size is raised by: text is not even.
_ROOM_MARGIN = 1.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished job, and what its user should hear of it."""

    manifest: Manifest
    is_new: bool
    hints: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    found_separator: bool = True


def run_job(settings: JobSettings, progress: Progress) -> Outcome:
    """Tokenize: find the inputs, run the workers, commit the output."""
    started = time.monotonic()
    plan = make_plan(settings)
    tokenizer = load_tokenizer(
        settings.tokenizer, eot_token=settings.eot_token, pattern=settings.pattern
    )
    finished = _find_finished(settings, plan, tokenizer)
    if finished is not None:
        return Outcome(finished, is_new=False, skipped=plan.skipped)

    dtype = _choose_dtype(settings, tokenizer)
    layout = Layout(str(settings.output), int(dtype[4:]) // 8, settings.shard_tokens)
    engine, why_not_kernel = choose_engine(settings.engine, tokenizer)
    num_workers, share, hint = divide_memory(
        settings.memory_bytes, ENGINE_MEMORY[engine], len(plan.sources), settings.workers
    )
    spec = _worker_spec(settings, plan, tokenizer, engine, dtype, layout, share)
    offsets = Offsets(len(plan.sources), num_empty=plan.num_empty)
    watch = Watch(progress, plan.input_bytes, plan.num_units, offsets)

    with Store(settings.output) as store:
        store.clear_partial()
        store.refuse_foreign_files(overwrite=settings.overwrite)
        with (
            progress,
            Ledger(store.work / LEDGER) as ledger,
            LocalExecutor(
                spec,
                num_workers=num_workers,
                batch_bytes=settings.unit_bytes,
                priority=settings.priority,
                lock_file=store.lock_file,
            ) as executor,
        ):
            num_bytes, num_tokens = executor.check(plan.samples())
            estimate = round(plan.input_bytes * num_tokens / max(num_bytes, 1) * _ROOM_MARGIN)
            store.check_room(estimate * layout.token_bytes)
            layout.check_shards(estimate)
            watch.start()
            for finished_unit in executor.run(
                plan.iter_units(), offsets, lambda: watch.tick(executor.pids())
            ):
                ledger.append(finished_unit)
                watch.num_units_done += 1
            watch.tick(executor.pids(), now=True)
        _refuse_nothing(offsets, plan)
        _refuse_changed_inputs(plan)
        manifest = make_manifest(
            plan=plan,
            tokenizer=tokenizer,
            dtype=dtype,
            layout=layout,
            offsets=offsets,
            file_digest=ledger.file_digest,
            settings=_shaping(settings, plan, tokenizer),
            run={
                "seconds": round(time.monotonic() - started, 3),
                "work_seconds": round(watch.work_seconds, 3),
                "workers": num_workers,
                "workers_replaced": executor.num_replaced,
                "peak_memory_bytes": watch.peak_bytes,
                "resumed": False,
                "engine": engine,
                "host": host_facts(),
            },
        )
        store.commit(layout, offsets.tokens, manifest.to_json())
    hints = [hint, why_not_kernel and f"slower than it could be: {why_not_kernel}"]
    return Outcome(
        manifest,
        is_new=True,
        hints=list(filter(None, hints)),
        skipped=plan.skipped,
        found_separator=plan.found_separator,
    )


def _find_finished(settings: JobSettings, plan: Plan, tokenizer: Tokenizer) -> Manifest | None:
    """Return the manifest if this very job is done already; refuse the output of another one."""
    with write_errors(settings.output):
        is_there = (settings.output / MANIFEST).exists()
    if settings.overwrite or not is_there:
        return None
    try:
        manifest = Manifest.load(settings.output)
    except DamageError as error:
        raise ConflictError(
            f"the output folder holds something else: {error.what}",
            where=error.where,
            next_step="choose another `-o`, or pass `--overwrite` to delete what is there",
        ) from error
    differing = manifest.differences(_shaping(settings, plan, tokenizer), plan.inputs_digest())
    if not differing:
        _refuse_missing_files(settings, manifest)
        return manifest
    num_bytes = sum(file.bytes for split in SPLITS for file in manifest.splits[split].files)
    raise ConflictError(
        f"the output was made by another job ({'; '.join(differing)})",
        where=str(settings.output / MANIFEST),
        next_step="choose another `-o`, or pass `--overwrite` to delete "
        f"{len(manifest.files())} files ({num_bytes} bytes) and start again",
    )


def _refuse_missing_files(settings: JobSettings, manifest: Manifest) -> None:
    """A finished job whose files are not there, or not whole, is not finished."""
    for split in SPLITS:
        for file in manifest.splits[split].files:
            path = settings.output / file.path
            if not path.is_file() or path.stat().st_size != file.bytes:
                raise ConflictError(
                    f"this job is finished, but `{file.path}` is missing or has another size",
                    where=str(path),
                    next_step="pass `--overwrite` to make the output anew",
                )


def _shaping(settings: JobSettings, plan: Plan, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "tokenizer": tokenizer.fingerprint,
        "dtype": _choose_dtype(settings, tokenizer),
        **settings.shaping(plan.rule),
    }


def _choose_dtype(settings: JobSettings, tokenizer: Tokenizer) -> str:
    """Take the smallest type that holds every id; refuse a smaller one."""
    needed = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
    if settings.dtype == "uint16" and needed == "uint32":
        raise UsageError(
            f"uint16 cannot hold {tokenizer.vocab_size} ids",
            where="--dtype",
            next_step="pass `--dtype uint32`",
        )
    return needed if settings.dtype == "auto" else settings.dtype


def _worker_spec(
    settings: JobSettings,
    plan: Plan,
    tokenizer: Tokenizer,
    engine: str,
    dtype: str,
    layout: Layout,
    share: MemoryShare,
) -> WorkerSpec:
    return WorkerSpec(
        tokenizer=tokenizer,
        engine=engine,
        rule=plan.rule,
        eot=settings.eot,
        val_fraction=settings.val_fraction,
        seed=settings.seed,
        strip=settings.strip,
        invalid_utf8=settings.invalid_utf8,
        dtype=dtype,
        block_bytes=settings.block_bytes,
        layout=layout,
        share=share,
        # Smaller inputs may stay cached: the next run on them starts faster.
        give_back=plan.input_bytes > psutil.virtual_memory().total // 4,
    )


def _refuse_nothing(offsets: Offsets, plan: Plan) -> None:
    if offsets.counts.documents == 0:
        raise InputError(
            f"no document in the input: {offsets.counts.empty_documents} empty ones were dropped",
            where=f"{len(plan.sources)} files, from {plan.sources[0].path}",
            next_step="check the text and `--doc-separator`",
        )


def _refuse_changed_inputs(plan: Plan) -> None:
    changed = find_changed(plan.sources)
    if changed is not None:
        raise InputError(
            "the file changed while the job ran",
            where=changed.path,
            next_step="wait until nothing writes to it, then run the same command again",
        )
