"""What the driver of a very large job needs: ten million units, with all but the encoding real.

It simulates a job of many tasks on a cluster, and a job of one task on one machine. Each is
started, killed and run again to its end, every run in a separate process. `README.md` in this
folder says what is real and what is simulated.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from machine import find_commit, machine_facts
from made_up import MadeUpJob
from simulated_workers import simulate_machine, simulate_tasks

_RESULTS = Path(__file__).resolve().parent / "results"
_SIMULATIONS = {"tasks": simulate_tasks, "machine": simulate_machine}
# On one machine, finished units are read back, which here takes longer than to do them again.
_KILL_AFTER = {"tasks": 0.6, "machine": 0.1}
_NUM_SOURCES = 30_000
_MILLION = 10**6
_SIZES = {"tasks": (_MILLION, 3 * _MILLION, 10 * _MILLION), "machine": (_MILLION, 10 * _MILLION)}
_QUICK_TASK_BYTES = 1 << 30
_QUICK_SIZES = {"tasks": (5_000, 20_000), "machine": (5_000, 20_000)}
# A line of the ledger has about 420 bytes; during the commit all are in a journal as well.
_DISK_BYTES = 1_000


def main() -> int:
    """Run all simulations, or the one that this process was started for."""
    options = _parse_options()
    if options.only is not None:
        simulate = _SIMULATIONS[options.only]
        kill_after = _KILL_AFTER[options.only] if options.kill else None
        job = MadeUpJob(options.units, options.inputs, options.task_bytes)
        print(json.dumps(simulate(options.folder, job, kill_after)))
        return 0
    date, commit = datetime.now(timezone.utc), find_commit()
    sizes = _QUICK_SIZES if options.quick else _SIZES
    _check_room(max(map(max, sizes.values())))
    runs: dict[str, list[dict[str, Any]]] = {}
    for name, all_units in sizes.items():
        runs[name] = [_run(name, num_units, quick=options.quick) for num_units in all_units]
    result = {
        "date": date.isoformat(timespec="seconds"),
        "commit": commit,
        "command": "python benchmarks/simulate.py" + (" --quick" if options.quick else ""),
        "machine": machine_facts(),
        "runs": runs,
    }
    if options.json:
        print(json.dumps(result))
        return 0
    print(*_table(runs), sep="\n")
    if not options.quick:
        path = _RESULTS / f"{date:%Y-%m-%d}-{commit}-simulation.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"\nwrote {path}")
    return 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulate the driver of a very large job.")
    parser.add_argument("--quick", action="store_true", help="only 20,000 units")
    parser.add_argument("--json", action="store_true", help="print JSON and write no file")
    # For the processes that this command starts.
    for flag in ("--units", "--inputs", "--task-bytes"):
        parser.add_argument(flag, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=_SIMULATIONS, help=argparse.SUPPRESS)
    parser.add_argument("--kill", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(name: str, num_units: int, *, quick: bool) -> dict[str, Any]:
    """Simulate a job: kill it on its way, then run it to its end."""
    with tempfile.TemporaryDirectory(prefix="penstok-simulation-") as scratch:
        command = [sys.executable, __file__, "--only", name, "--units", str(num_units)]
        command += ["--folder", str(Path(scratch, "out"))]
        command += ["--inputs", str(num_units // 100 if quick else _NUM_SOURCES)]
        command += ["--task-bytes", str(_QUICK_TASK_BYTES)] if quick else []
        _say(f"{name}, {num_units:,} units: until it is killed")
        killed = subprocess.run([*command, "--kill"], stdout=subprocess.DEVNULL, check=False)
        if killed.returncode != -signal.SIGKILL:
            raise SystemExit(
                f"error: exit code {killed.returncode}, but the process should have been killed"
            )
        _say(f"{name}, {num_units:,} units: from there to the end")
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def _table(runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Show the second run of each simulation: after the kill, to the end."""
    return [
        "",
        "many tasks, on 4,096 cores: CPU seconds of the driver, restarted after 60 %",
        "     units   input   tasks retried divide   find assign commit  us per unit  ready   peak",
        *(
            f"{run['units']:>10,} {run['input_bytes'] / 10**12:>4.0f} TB {run['tasks']:>7,}"
            f" {run['tasks_retried']:>7,} {_cpu(run, 'divide'):>6.2f} {_cpu(run, 'find'):>6.1f}"
            f" {_cpu(run, 'assign'):>6.1f} {_cpu(run, 'commit'):>6.1f}"
            f" {_cpu(run, 'commit') / run['units'] * 10**6:>12.1f} {_ready_and_peak(run)}"
            for run in runs["tasks"]
        ),
        "",
        "one machine: CPU seconds of the driver, restarted after 10 %",
        "     units  finished   find  us per unit  the rest  us per unit  ready   peak",
        *(
            f"{run['units']:>10,} {run['units_kept']:>9,} {_cpu(run, 'find'):>6.1f}"
            f" {_cpu(run, 'find') / run['units_kept'] * 10**6:>12.0f} {run['run_seconds']:>9.1f}"
            f" {run['run_seconds'] / (run['units'] - run['units_kept']) * 10**6:>12.0f}"
            f" {_ready_and_peak(run)}"
            for run in runs["machine"]
        ),
        "",
        "find: which tasks or units are finished; commit: its time is also given per unit",
        "ready: seconds until the driver knows what is left to do; peak: its memory",
    ]


def _cpu(run: dict[str, Any], phase: str) -> float:
    seconds: float = run["phases"][phase]["cpu_seconds"]
    return seconds


def _ready_and_peak(run: dict[str, Any]) -> str:
    return f"{run['ready_seconds']:>5.1f} s {run['peak_bytes'] / 10**6:>4.0f} MB"


def _check_room(num_units: int) -> None:
    needed, free = num_units * _DISK_BYTES, shutil.disk_usage(tempfile.gettempdir()).free
    if free < needed:
        raise SystemExit(
            f"error: journals and ledgers need {needed / 10**9:.1f} GB of disk, "
            f"{free / 10**9:.1f} GB are free\n"
            f"  where: {tempfile.gettempdir()}\n  next:  set TMPDIR to a folder with more room"
        )


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
