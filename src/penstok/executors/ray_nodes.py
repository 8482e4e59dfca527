"""The functions that run on the nodes of a cluster: a startup check, then tasks.

A Ray process keeps its runner, and thus its worker process, for the next task. It knows nothing
about other nodes; `executors.ray` sends the work.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from penstok.errors import InputError, PenstokError, UsageError, WriteError
from penstok.inputs.changes import refuse_changed
from penstok.output.layout import WORK
from penstok.output.store import open_store
from penstok.types import Struct, replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstok.executors.base import Runner, RunnerSpec, Work
    from penstok.output.ledger.journal import TaskRecord
    from penstok.output.store.base import OutputStore
    from penstok.types import SampleTotals, Source

__all__ = ["Probe", "load_ray", "name_nodes", "probe_node", "run_task"]


def load_ray() -> Any:
    """Import and return the package `ray`.

    Raises:
        UsageError: If it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "the package `ray` is needed to run on a cluster",
            where="--executor ray",
            next_step="install it: `pip install 'penstok[ray]'`",
        ) from error
    return ray


class Probe(Struct, frozen=True):
    """What every node must be able to do.

    Attributes:
        version: The version of Penstok that must be installed on it.
        sources: Inputs that it must be able to read.
        check: Samples on which its engine is compared with the reference.
        name: A small file in the output that it must see; it writes its answer next to it.
    """

    version: str
    sources: Sequence[Source]
    check: Any
    name: str

    @classmethod
    def of_job(cls, check: Any, sources: Sequence[Source], token: str) -> Probe:
        """Create the probe of a job; `token` makes its name unique."""
        return cls(version("penstok"), sources, check, f"{WORK}/probes/{token}")

    def answer(self, node_id: str) -> str:
        """Return the name of a node's answer."""
        return f"{self.name}-{node_id}"

    def answers(self, store: OutputStore) -> list[str]:
        """List the files of the probe: its own and the answers."""
        return [name for name in store.iter_names(f"{WORK}/probes/") if name.startswith(self.name)]


# A Ray process works for one job at a time.
_runner: tuple[str, Runner] | None = None
_name = ""


def run_task(spec_ref: list[Any], work: Work, folder: str) -> TaskRecord:
    """Run a task on this node; return its record without the fields that only journals need."""
    with _NodeErrors():
        _enter(folder)
        return replace(_get_runner(spec_ref).run(work), shards={}, digests={})


def probe_node(spec_ref: list[Any], probe: Probe, folder: str) -> SampleTotals:
    """Check that this node can run tasks; return what the samples have together.

    Raises:
        PenstokError: If it cannot; the message has its name.
    """
    with _NodeErrors():
        if version("penstok") != probe.version:
            raise WriteError(
                f"penstok {version('penstok')} is installed on this node, but the job was started "
                f"with {probe.version}",
                next_step=f"run `pip install penstok=={probe.version}` on the node",
            )
        _enter(folder)
        runner = _get_runner(spec_ref)
        store = open_store(_get_spec(spec_ref).output)
        if store.read(probe.name) is None:
            raise WriteError(
                "this node does not see the output that the job was started with",
                where=store.name,
                next_step="choose a folder on a file system that all nodes share, or `s3://...`",
            )
        store.write(probe.answer(_node_id()), b"")
        for source in probe.sources:
            refuse_changed(source, by_time=False)
        return runner.check(probe.check)


def name_nodes(*, alive: bool) -> dict[str, str]:
    """Return the names of the nodes of the cluster, by their ids."""
    ray = load_ray()
    nodes = [node for node in ray.nodes() if node["Alive"] or not alive]
    names = {node["NodeID"]: _plain_name(node) for node in nodes}
    common = Counter(names.values())
    return {
        node_id: name if common[name] == 1 else f"{name}-{node_id[:6]}"
        for node_id, name in names.items()
    }


def _plain_name(node: dict[str, Any]) -> str:
    """Return the name that the user gave the node, or else its host name."""
    given: str = node.get("NodeName") or ""
    host: str = node.get("NodeManagerHostname") or node["NodeID"][:6]
    return given if given and given != node.get("NodeManagerAddress") else host


class _NodeErrors:
    """Adds the name of this node to errors that leave it."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, PenstokError):
            error.where = f"node {_own_name()}" + (f": {error.where}" if error.where else "")


def _enter(folder: str) -> None:
    """Change to the folder in which the job was started, for relative paths."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise InputError(
            f"the folder in which the job was started is missing on this node: {error.strerror}",
            where=folder,
            next_step="start the job from a folder that all nodes share",
        ) from error


def _get_spec(spec_ref: list[Any]) -> RunnerSpec:
    ray = load_ray()
    spec: RunnerSpec = ray.get(spec_ref[0])
    return spec


def _get_runner(spec_ref: list[Any]) -> Runner:
    global _runner  # noqa: PLW0603 the only state of a Ray process
    key = spec_ref[0].hex()
    if _runner is None or _runner[0] != key:
        if _runner is not None:
            _runner[1].close()
        _runner = (key, _get_spec(spec_ref).make_runner(_own_name()))
    return _runner[1]


def _node_id() -> str:
    ray = load_ray()
    node_id: str = ray.get_runtime_context().get_node_id()
    return node_id


def _own_name() -> str:
    global _name  # noqa: PLW0603 queried once per process
    if not _name:
        _name = name_nodes(alive=False).get(_node_id(), platform.node())
    return _name
