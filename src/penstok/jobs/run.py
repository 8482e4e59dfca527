"""The main line, as one function: plan, run, commit, report.

It does no work itself and prints nothing; each step is a module of its own. The command line and
the Python interface both call `run_job`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstok.executors import ProcessExecutor
from penstok.inputs.changes import changed_meanwhile, find_changed
from penstok.inputs.feed import make_feed
from penstok.jobs.checkpoints import Checkpoints
from penstok.jobs.distributed import run_by_task
from penstok.jobs.job import prepare
from penstok.jobs.outcome import Outcome
from penstok.jobs.progress import Watch
from penstok.jobs.resume import find_finished, keep_units
from penstok.output.ledger.lines import Ending
from penstok.output.ledger.reader import iter_skipped
from penstok.output.manifest import host_facts, make_manifest
from penstok.output.offsets import RecordedOffsets
from penstok.output.store.local import Store, tidy
from penstok.readers.formats import open_scanner

if TYPE_CHECKING:
    from penstok.jobs.plan import Plan
    from penstok.jobs.progress import Progress
    from penstok.jobs.resume import Kept
    from penstok.jobs.settings import JobSettings
    from penstok.output.layout import Layout
    from penstok.output.offsets import Offsets

__all__ = ["run_job"]


def run_job(settings: JobSettings, progress: Progress) -> Outcome:
    """Tokenize: find the inputs, keep what is done, run the workers, commit the output."""
    started = time.monotonic()
    job = prepare(settings)
    if settings.is_by_task:
        return run_by_task(job, progress)
    layout, plan = job.layout, job.plan
    finished = None if settings.overwrite else find_finished(settings.folder, job.record, plan)
    if finished is not None:
        tidy(layout)
        return Outcome(
            finished, is_new=False, eot_text=job.tokenizer.eot_text, skipped=plan.skipped
        )

    with Store(layout) as store:
        kept = keep_units(
            store,
            layout,
            job.record,
            plan,
            overwrite=settings.overwrite,
            num_threads=job.num_workers,
        )
        plan = plan.divided_by(kept.job.unit_bytes)
        watch = Watch(progress, plan, kept.offsets)
        executor = ProcessExecutor(
            job.worker_spec(),
            num_workers=job.num_workers,
            batch_bytes=plan.unit_bytes,
            priority=settings.priority,
            lock_file=store.lock_file,
            feed=make_feed(
                plan.sources,
                job.num_workers,
                plan.unit_bytes,
                open_scanner=open_scanner,
                on_error=settings.on_error,
                give_back=job.gives_back,
            ),
        )
        with progress, executor:
            _check_before_start(plan, layout, store, executor, kept)
            if kept.is_finished:
                store.reopen()
            with Checkpoints(store, plan.sources, kept, give_back=job.gives_back) as checkpoints:
                watch.start(kept.last)
                _do_again(kept, store, executor, watch)
                for unit in executor.run(
                    plan.iter_units(kept.start, executor.lengths),
                    kept.offsets,
                    lambda: watch.tick(executor.pids()),
                ):
                    checkpoints.append(unit)
                    watch.add(unit.unit)
                watch.tick(executor.pids(), now=True)
                _refuse_nothing(store, kept.offsets, plan)
                _refuse_changed_inputs(plan)
                run = {
                    "seconds": round(time.monotonic() - started, 3),
                    "work_seconds": round(watch.work_seconds, 3),
                    "work_bytes": watch.work_bytes,
                    "workers": job.num_workers,
                    "workers_replaced": executor.num_replaced,
                    "peak_memory_bytes": watch.peak_bytes,
                    "resumed": kept.num_units > 0,
                    "units_kept": kept.num_units - len(kept.damaged),
                    "engine": job.engine,
                    "host": host_facts(),
                }
                ending = Ending(run, plan.skipped)
                checkpoints.finish(ending)
        manifest = make_manifest(
            job=kept.job,
            sources=plan.sources,
            offsets=kept.offsets,
            digests=checkpoints.digests,
            ending=ending,
        )
        has_skipped = manifest.counts["skipped_records"] > 0
        skipped = iter_skipped(store.ledger) if has_skipped else ()
        store.commit(kept.offsets.tokens, manifest.to_json(), skipped)
    return Outcome(
        manifest,
        is_new=True,
        eot_text=job.tokenizer.eot_text,
        hints=[*job.hints, *filter(None, [kept.told()])],
        skipped=plan.skipped,
        found_separator=plan.found_separator,
    )


def _check_before_start(
    plan: Plan, layout: Layout, store: Store, executor: ProcessExecutor, kept: Kept
) -> None:
    """Compare the engine with the reference on the user's text, and see that the output fits."""
    num_bytes, num_tokens = executor.check(plan.samples())
    estimate = plan.estimate_tokens(num_bytes, num_tokens)
    store.check_room(estimate * layout.token_bytes, adds=kept.is_finished)
    layout.check_shards(estimate)


def _do_again(kept: Kept, store: Store, executor: ProcessExecutor, watch: Watch) -> None:
    """Make recorded units anew whose tokens are not what was written."""
    executor.expect(kept.last)
    places = RecordedOffsets()
    units = places.iter_units(kept.damaged)
    for unit in executor.run(units, places, lambda: watch.tick(executor.pids())):
        places.check(unit)
    store.sync(places.files, give_back=False)


def _refuse_nothing(store: Store, offsets: Offsets, plan: Plan) -> None:
    if offsets.counts.documents == 0:
        store.clear()
        raise plan.nothing_found(offsets.counts.empty_documents)


def _refuse_changed_inputs(plan: Plan) -> None:
    changed = find_changed(plan.sources)
    if changed is not None:
        raise changed_meanwhile(changed)
