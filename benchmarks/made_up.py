"""Jobs without text: inputs that exist only as records, and clocks for the driver's phases.

It runs nothing. `simulated_workers` uses it in a process per run, so that peak memory is measured
for that run alone.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from random import Random
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from unittest import mock

import psutil

from penstok.jobs.plan import Plan
from penstok.types import DocumentRule, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UNIT_BYTES = 16 << 20
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class MadeUpJob:
    """How large a job is; without `task_bytes`, Penstok chooses the size of its tasks."""

    num_units: int
    num_sources: int
    task_bytes: int | None = None


def make_plan(job: MadeUpJob) -> Plan:
    """Make up text inputs of many sizes that have exactly this many units of 16 MiB.

    They are called `s3://...`, so the job does not check at its end whether they changed.
    """
    rng = Random(job.num_units)
    cuts = sorted(rng.sample(range(1, job.num_units), job.num_sources - 1))
    sizes = [stop - start for start, stop in pairwise([0, *cuts, job.num_units])]
    sources = [
        # The last unit of an input is not full.
        Source(
            f"s3://made-up/crawl/part-{idx:05}.txt",
            size * UNIT_BYTES - rng.randrange(UNIT_BYTES),
            0,
            f"{idx:016x}",
            version=f"{idx:032x}",
        )
        for idx, size in enumerate(sizes)
    ]
    rule = DocumentRule("separator", b"<|endoftext|>")
    return Plan(sources, {}, rule, found_separator=True, unit_bytes=UNIT_BYTES, limit_bytes=None)


@dataclass(slots=True)
class Phase:
    """What one phase of the driver needed."""

    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    memory_bytes: int = 0


@dataclass(slots=True)
class Phases:
    """Clocks of this process; one that runs inside another counts for both."""

    seen: dict[str, Phase] = field(default_factory=dict)

    @contextmanager
    def run(self, name: str) -> Iterator[None]:
        """Add to the clock of a phase."""
        cpu, wall = time.process_time(), time.monotonic()
        try:
            yield
        finally:
            phase = self.seen.setdefault(name, Phase())
            phase.cpu_seconds += time.process_time() - cpu
            phase.wall_seconds += time.monotonic() - wall
            phase.memory_bytes = int(psutil.Process().memory_info().rss)

    @contextmanager
    def watch(self, functions: dict[str, str]) -> Iterator[None]:
        """Measure functions of Penstok: where each is called from, and the clock it adds to."""
        with ExitStack() as stack:
            for target, name in functions.items():
                timed = self._timed(name, resolve_name(target))
                stack.enter_context(mock.patch(target, timed))
            yield

    def _timed(self, name: str, function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:

        def call(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
            with self.run(name):
                return function(*args, **kwargs)

        return call

    def report(self) -> dict[str, dict[str, Any]]:
        """Return all of them as plain values."""
        return {name: asdict(phase) for name, phase in self.seen.items()}


def peak_bytes() -> int:
    """Return the largest resident memory this process has had since it was started."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
