"""Runs tasks on a Ray cluster: Ray schedules them, and their records come back.

No text and no tokens pass through Ray or through this process. It retries tasks that were lost with
a worker or a node, while an error raised by a task ends the job. `ray_nodes` runs on the nodes.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstok.errors import EngineError, InputError, PenstokError, UsageError, WriteError
from penstok.executors.ray_nodes import Probe, load_ray, name_nodes, probe_node, run_task
from penstok.output.ledger.journal import new_attempt
from penstok.output.store import open_store
from penstok.quantities import plural
from penstok.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstok.executors.base import RunnerSpec, Work
    from penstok.output.ledger.journal import TaskRecord
    from penstok.types import SampleTotals, Source

__all__ = ["RayExecutor"]

_TICK_SECONDS = 0.2
_COUNT_SECONDS = 2.0
# Tasks submitted per core: more than one, so that no core waits for its next task.
_AHEAD = 2
# Nodes come and go; a task that was lost this often is probably the cause.
_MAX_LOSSES = 4
_MAX_ERRORS = 2
_PROBED_SOURCES = 32
_PROBE_SECONDS = 120.0
_CONNECT_SECONDS = 5.0


class RayExecutor(Resource):
    """Runs tasks on the nodes of a Ray cluster; use it in a `with`.

    Attributes:
        nodes_alive: How many nodes there are.
        num_workers: How many tasks can run at a time on them.
        num_running: How many tasks are running.
        num_retried: How many tasks were retried.
    """

    def __init__(
        self,
        spec: RunnerSpec,
        *,
        address: str | None,
        memory_bytes: int,
        max_running: int | None,
    ) -> None:
        """Store the settings; entering the `with` block connects to the cluster.

        Args:
            spec: Creates runners.
            address: The address of the cluster; None for the one that Ray finds, or else a new one
                on this machine.
            memory_bytes: The memory that one task may use; Ray reserves it.
            max_running: How many tasks may run at a time; None for as many as fit.
        """
        self.nodes_alive: int | None = 0
        self.num_workers: int = 0
        self.num_running: int = 0
        self.num_retried: int = 0
        self._spec = spec
        self._address = address
        self._memory_bytes = memory_bytes
        self._max_running = max_running
        self._is_ours = False
        self._next_count = 0.0
        self._running: dict[Any, Work] = {}

    def __enter__(self) -> RayExecutor:
        """Connect to the cluster."""
        ray = load_ray()
        if not ray.is_initialized():
            _connect(self._address)
            self._is_ours = True
        self._spec_ref = ray.put(self._spec)
        self._run_task = ray.remote(
            num_cpus=1,
            memory=self._memory_bytes,
            max_retries=0,
            scheduling_strategy="SPREAD",
        )(run_task)
        try:
            self._count_nodes()
        except UsageError:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Cancel running tasks and disconnect; a cluster started for this job is stopped."""
        ray = load_ray()
        for ref in self._running:
            ray.cancel(ref, force=True)
        self._running.clear()
        if self._is_ours:
            ray.shutdown()

    def pids(self) -> list[int]:
        """Return an empty list: the workers are on other machines."""
        return []

    def check(self, check: Any, sources: list[Source]) -> SampleTotals:
        """Let every node read some inputs, write to the output, and compare the engine.

        Raises:
            PenstokError: If a node cannot; the message has its name.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray = load_ray()
        store = open_store(self._spec.output)
        probe = Probe.of_job(check, _spread(sources), new_attempt())
        store.write(probe.name, b"")
        refs = {}
        able = {node["NodeID"] for node in ray.nodes() if self._num_fitting(node["Resources"])}
        for node_id, name in name_nodes(alive=True).items():
            if node_id not in able:
                continue  # in many clusters, the head node runs no tasks
            strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
            remote = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(probe_node)
            refs[remote.remote([self._spec_ref], probe, _folder())] = name
        try:
            seen = [self._await_probe(ref, name) for ref, name in refs.items()]
        finally:
            store.delete([probe.name, *probe.answers(store)])
        answers = [answer for answer in seen if answer is not None]
        if not answers:
            raise _cluster_lost("every node died during the startup check")
        return answers[0]

    def run(self, works: Iterable[Work], on_tick: Callable[[], None]) -> Iterator[TaskRecord]:
        """Run all tasks; yield their records as they are done.

        Raises:
            PenstokError: If a task raised it; the message has the node's name.
        """
        ray = load_ray()
        waiting = iter(works)
        again: deque[Work] = deque()
        losses, errors = Counter[int](), Counter[int]()
        while True:
            self._count_nodes()
            while len(self._running) < self._limit():
                work = again.popleft() if again else next(waiting, None)
                if work is None:
                    break
                self._submit(work)
            self.num_running = min(len(self._running), self.num_workers)
            if not self._running:
                return
            done, rest = ray.wait(list(self._running), num_returns=1, timeout=_TICK_SECONDS)
            if done and rest:
                # One wait for 8,192 tasks costs 2 ms, so take all that are done at once.
                done += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
            on_tick()
            for ref in done:
                work = self._running.pop(ref)
                try:
                    record: TaskRecord = ray.get(ref)
                except ray.exceptions.RayTaskError as error:
                    cause = _cause(error)
                    errors[work.number] += 1
                    may_pass = isinstance(cause, (InputError, WriteError))
                    if not may_pass or errors[work.number] >= _MAX_ERRORS:
                        raise cause from error
                except ray.exceptions.RayError as error:
                    losses[work.number] += 1
                    if losses[work.number] >= _MAX_LOSSES:
                        raise _lost_too_often(work, error) from error
                else:
                    yield record
                    continue
                self.num_retried += 1
                again.append(work)

    def _await_probe(self, ref: Any, name: str) -> SampleTotals | None:
        """Wait for a node's answer; None if it died meanwhile, which does not stop the job."""
        ray = load_ray()
        try:
            answer: SampleTotals = ray.get(ref, timeout=_PROBE_SECONDS)
        except ray.exceptions.RayTaskError as error:
            raise _cause(error) from error
        except ray.exceptions.GetTimeoutError as error:
            raise InputError(
                f"the node did not answer within {_PROBE_SECONDS:.0f} seconds",
                where=f"node {name}",
                next_step="check `ray status`, or run `ray stop` on the node to remove it",
            ) from error
        except ray.exceptions.RayError:
            return None
        return answer

    def _submit(self, work: Work) -> None:
        # The reference is wrapped in a list; otherwise Ray would unpickle the spec for every task.
        self._running[self._run_task.remote([self._spec_ref], work, _folder())] = work

    def _limit(self) -> int:
        if self._max_running is not None:
            return self._max_running
        return _AHEAD * max(self.num_workers, 1)

    def _num_fitting(self, resources: dict[str, float]) -> int:
        """Return how many tasks fit on a node."""
        by_memory = int(resources.get("memory", 0) // self._memory_bytes)
        return min(int(resources.get("CPU", 0)), by_memory)

    def _count_nodes(self) -> None:
        """Update how many nodes there are, and how many tasks fit on them."""
        ray = load_ray()
        now = time.monotonic()
        if now < self._next_count:
            return
        self._next_count = now + _COUNT_SECONDS
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.nodes_alive = len(nodes)
        self.num_workers = sum(map(self._num_fitting, nodes))
        if not self.num_workers and not self._running:
            raise UsageError(
                f"no node of the cluster has a core and {self._memory_bytes >> 20} MiB of memory: "
                f"{plural(len(nodes), 'node')} with at most "
                f"{max((int(each.get('memory', 0)) for each in nodes), default=0) >> 20} MiB",
                where="--executor ray, --memory",
                next_step="pass a smaller `--memory` (with Ray: per task), or add nodes",
            )


def _connect(address: str | None) -> None:
    """Connect to a cluster, or start one; silence Ray's own messages."""
    ray = load_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = _find_cluster(address)
    quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL, "configure_logging": True}
    if address == "local":
        quiet["include_dashboard"] = False
    _silence(ray)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _no_answer(address, str(error).split("\n", 1)[0]) from error


def _silence(ray: Any) -> None:
    """Keep Ray's messages about dead nodes off standard output, which is for data.

    Ray prints pages of its log there and has no setting to stop it. Lost tasks are reported anyway.
    """
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


def _find_cluster(address: str | None) -> str:
    """Return the address of a cluster that answers; `local` if none was requested or found.

    Ray itself would wait many minutes for a cluster that no longer exists.
    """
    wanted = address or os.environ.get("RAY_ADDRESS")
    found = wanted if wanted not in (None, "auto") else _last_cluster()
    if found in (None, "local"):
        return "local"
    host, _, port = found.rpartition(":")
    if found.startswith("ray://") or not port.isdecimal():
        return found
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        if wanted is None:
            return "local"
        raise _no_answer(found, str(error.strerror or error)) from error
    return found


def _last_cluster() -> str | None:
    """Return the address of the last cluster started on this machine, from Ray's own file."""
    load_ray()
    try:
        from ray._private.utils import read_ray_address

        found: str | None = read_ray_address()
    except (ImportError, OSError):
        return None
    return found or None


def _no_answer(address: str, why: str) -> UsageError:
    return UsageError(
        f"no Ray cluster answers at `{address}`: {why}",
        where="--ray-address",
        next_step="start one with `ray start --head`, pass its address, or pass "
        "`--ray-address local` for one on this machine",
    )


def _folder() -> str:
    """Return the folder that relative paths refer to."""
    return str(Path.cwd())


def _spread(sources: list[Source]) -> list[Source]:
    """Choose inputs to read on every node: the first, the last, and some in between."""
    step = max(len(sources) // _PROBED_SOURCES, 1)
    return [*sources[:-1:step], sources[-1]]


def _cause(error: Any) -> PenstokError:
    """Return the error that a task raised; wrap it if it is unexpected."""
    cause = error.cause
    if isinstance(cause, PenstokError):
        return cause
    return EngineError(
        f"unexpected error in a task: {cause!r}\n{error}",
        where="--executor ray",
        next_step="report this, with the version that `penstok --version` prints",
    )


def _cluster_lost(why: str) -> WriteError:
    return WriteError(
        f"the connection to the cluster was lost: {why}",
        where="--executor ray",
        next_step="check `ray status`, then run the same command again: it continues",
    )


def _lost_too_often(work: Work, error: Exception) -> EngineError:
    return EngineError(
        f"a task was lost {_MAX_LOSSES} times, each time with its worker or its node: "
        f"{str(error).splitlines()[0]}",
        where=work.where,
        next_step="pass more `--memory`, then run the same command again: it continues",
    )
