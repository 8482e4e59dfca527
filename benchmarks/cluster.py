"""Two nodes of one core against one, on a Ray cluster of this machine: wall time of the same job.

    python benchmarks/cluster.py [--gb 2] [--rounds 3]

Each round runs the same job on one node and on two, in turns, and for comparison on one machine
with one worker and two; the best of each counts, from the first task or unit to the last.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora import CORPORA, STAND_IN, find_corpora, write_corpus, write_long

if TYPE_CHECKING:
    from collections.abc import Iterator

_OBJECT_STORE_BYTES = 80 << 20


@contextlib.contextmanager
def ray_cluster(num_nodes: int) -> Iterator[str]:
    """Run raylets of one core each; yield their address."""
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": _OBJECT_STORE_BYTES}
    head = {**node, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(num_nodes - 1):
            cluster.add_node(**node)
        yield cluster.address
    finally:
        cluster.shutdown()


def run(text: Path, output: Path, *flags: str) -> dict[str, Any]:
    """Run the program; return how it ran."""
    command = [sys.executable, "-m", "penstok", "tokenize", str(text), "-o", str(output)]
    subprocess.run([*command, "-q", "--overwrite", "--priority", "normal", *flags], check=True)
    facts: dict[str, Any] = json.loads((output / "manifest.json").read_text())["run"]
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        text = _write_text(Path(folder), round(options.gb * 10**9))
        size = text.stat().st_size
        best: dict[str, float] = {}
        for number in range(options.rounds):
            for name, seconds in _round(text, Path(folder)):
                best[name] = min(best.get(name, seconds), seconds)
                print(f"round {number + 1}  {name:12} {size / seconds / 10**6:7.1f} MB/s")
        for name, seconds in best.items():
            print(f"best     {name:12} {size / seconds / 10**6:7.1f} MB/s")
        print(f"two nodes against one: {best['1 node'] / best['2 nodes']:.2f}")
        print(f"two local workers against one: {best['1 local'] / best['2 local']:.2f}")


def _round(text: Path, folder: Path) -> Iterator[tuple[str, float]]:
    for count in (1, 2):
        yield f"{count} local", run(text, folder / "local", "-j", str(count))["work_seconds"]
        with ray_cluster(count) as address:
            flags = ("--executor", "ray", "--ray-address", address)
            name = f"{count} node{'' if count == 1 else 's'}"
            yield name, run(text, folder / "ray", *flags)["work_seconds"]


def _write_text(folder: Path, num_bytes: int) -> Path:
    names = find_corpora(CORPORA) or [STAND_IN]
    texts = [write_corpus(name, folder, None) for name in names]
    return write_long("long", texts, num_bytes, folder).path


if __name__ == "__main__":
    main()
