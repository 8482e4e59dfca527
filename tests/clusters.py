"""A real Ray cluster of one-core nodes on this machine, kept by a process of its own.

That process makes, removes and kills nodes as it is told over a pipe; when the pipe closes it takes
all of them down. So no test process ever holds a part of Ray.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

_NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


class Nodes:
    """The cluster, seen from a test."""

    def __init__(self, keeper: subprocess.Popen[str], folder: Path) -> None:
        self._keeper = keeper
        self.folder = folder
        self.names = ["one"]
        self.address: str = self._ask("address")

    def set_number(self, number: int) -> None:
        """Add or remove nodes until there are so many."""
        for name in ("two", "three")[: number - 1]:
            if name not in self.names:
                self.add(name)
        for name in self.names[number:]:
            self.remove(name)

    def add(self, name: str) -> None:
        self._ask("add", name)
        self.names.append(name)

    def remove(self, name: str) -> None:
        """Take a node out as an operator would."""
        self._ask("remove", name)
        self.names.remove(name)

    def raylet(self, name: str) -> psutil.Process:
        """Return the process that is a node; its workers are children of it."""
        return psutil.Process(self._ask("raylet", name))

    def kill(self, name: str) -> None:
        """Take a node down as a power cut would."""
        raylet = self.raylet(name)
        victims = [raylet, *raylet.children(recursive=True)]
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGKILL)
        self.remove(name)

    def _ask(self, *words: str) -> Any:
        if self._keeper.stdin is None or self._keeper.stdout is None:
            raise ValueError("the keeper of the cluster has no pipes")
        print(json.dumps(words), file=self._keeper.stdin, flush=True)
        line = self._keeper.stdout.readline()
        if not line:
            log = (self.folder / "keeper.log").read_text(errors="replace")
            raise RuntimeError(f"the keeper of the cluster ended at {words}: {log[-2000:]}")
        return json.loads(line)


@contextlib.contextmanager
def ray_cluster() -> Iterator[Nodes]:
    """Start a cluster of one node, whose files are in a folder of their own."""
    # Not below pytest's folder: the names of sockets must be short.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    # Ray notes the address of the last cluster in `RAY_TMPDIR`/ray, and does not create it.
    (folder / "ray").mkdir()
    with (folder / "keeper.log").open("w") as log:
        keeper = subprocess.Popen(
            [sys.executable, __file__, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)},
            start_new_session=True,
        )
    try:
        with keeper:
            yield Nodes(keeper, folder)
    finally:
        left = processes_in(folder)
        for process in left:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    assert left == []


def processes_in(folder: Path) -> list[psutil.Process]:
    """Return what still runs of a cluster."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if any(str(folder) in word for word in process.cmdline()):
                found.append(process)
    return found


def _keep(folder: str) -> None:
    from ray.cluster_utils import Cluster

    pipe, sys.stdout = sys.stdout, sys.stderr
    head = {**_NODE, "node_name": "one", "temp_dir": folder}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    nodes = {"one": cluster.head_node}
    try:
        for line in sys.stdin:
            verb, *names = json.loads(line)
            answer: object = None
            if verb == "address":
                answer = cluster.address
            elif verb == "add":
                nodes[names[0]] = cluster.add_node(**_NODE, node_name=names[0])
            elif verb == "remove":
                cluster.remove_node(nodes.pop(names[0]))
            elif verb == "raylet":
                answer = nodes[names[0]].all_processes["raylet"][0].process.pid
            print(json.dumps(answer), file=pipe, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    _keep(sys.argv[1])
