"""A small `make simulate`: the driver's memory does not grow with the units; all units count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

from penstok.output.ledger.reader import LedgerReader
from penstok.output.manifest import Manifest

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, str(ROOT / "benchmarks" / "simulate.py")]
UNIT_BYTES = 16 << 20


@pytest.fixture(scope="module")
def runs() -> dict[str, list[dict[str, Any]]]:
    done = subprocess.run([*COMMAND, "--quick", "--json"], check=True, capture_output=True)
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)["runs"]
    return found


@pytest.mark.thorough
def test_four_times_the_units_take_no_more_memory(runs: dict[str, list[dict[str, Any]]]) -> None:
    # On one machine 16,384 units may wait for a slow disk, 40 MB: `test_journal` has the bound.
    for name, may_grow in {"tasks": 16 << 20, "machine": 64 << 20}.items():
        small, large = runs[name]
        assert large["units"] == 4 * small["units"]
        assert large["peak_bytes"] < small["peak_bytes"] + may_grow, name


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["tasks", "machine"])
def test_a_killed_driver_resumes_and_counts_every_unit_once(
    runs: dict[str, list[dict[str, Any]]], name: str
) -> None:
    for run in runs[name]:
        per_unit = {"tasks": (3_402, 3_651_825), "machine": (11, 1_001)}[name]
        assert (run["documents"], run["tokens"]) == tuple(run["units"] * each for each in per_unit)
        assert 0 <= run["units"] * UNIT_BYTES - run["text_bytes"] < run["inputs"] * UNIT_BYTES
        assert run["tasks_kept"] + run["units_kept"] > 0


@pytest.mark.thorough
def test_lost_tasks_are_retried(runs: dict[str, list[dict[str, Any]]]) -> None:
    assert runs["tasks"][-1]["tasks_retried"] > 0


def test_the_journals_of_the_simulation_give_a_valid_ledger(tmp_path: Path) -> None:
    size = ["--units", "500", "--inputs", "20", "--task-bytes", str(8 * UNIT_BYTES)]
    subprocess.run(
        [*COMMAND, "--only", "tasks", *size, "--folder", str(tmp_path / "out")],
        check=True,
        capture_output=True,
    )
    manifest, reader = (
        Manifest.load(tmp_path / "out"),
        LedgerReader(tmp_path / "out/segments.jsonl"),
    )
    assert sum(1 for _ in reader.iter_units()) == 500
    assert reader.problem == ""
    assert reader.ending is not None
    assert len(reader.sources) == 20
    assert reader.offsets.counts.tokens == manifest.counts["tokens"] == 500 * 3_651_825
    assert reader.offsets.tokens == {
        split: record.tokens for split, record in manifest.splits.items()
    }
    for split, record in manifest.splits.items():
        digests = [reader.digests.of(split, shard) for shard in range(len(record.files))]
        assert digests == [file.digest for file in record.files]
