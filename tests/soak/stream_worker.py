"""Stream gigabytes through one worker and watch its memory: the same after 100 MB and at the end.

    python tests/soak/stream_worker.py --gb 10

The text is that of the examples and of Python's own library, with the letters permuted in every
copy, so that words hardly repeat and every cache of words fills up. It is written one round at a
time by another process, whose memory is not counted. Exits with 1 if memory grew.
"""

from __future__ import annotations

import argparse
import random
import resource
import string
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from specs import worker_spec

from penstok.jobs.plan import make_plan
from penstok.jobs.settings import JobSettings
from penstok.output.offsets import Offsets
from penstok.output.store import FolderStore
from penstok.worker.worker import Worker

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "corpus"
SEPARATOR = b"<|endoftext|>"
ROUND_COPIES, COPY_BYTES = 4, 16 << 20
FIRST_SAMPLE_BYTES = 100 * 10**6
MAX_GROWTH = 1.05
MAX_WORKER_MIB = 130.0


def write_round(number: int, path: Path) -> None:
    """Write about 64 MB of text that no other round has; the first collects the text to permute."""
    found = path.with_name("found.txt")
    if number == 0:
        texts = [*EXAMPLES.glob("*.txt"), *Path(sysconfig.get_path("stdlib")).glob("**/*.py")]
        whole = b"".join(text.read_bytes() + SEPARATOR for text in sorted(texts))
        found.write_bytes(whole[:COPY_BYTES].decode(errors="ignore").encode())
    base = found.read_bytes()
    with path.open("wb") as file:
        for copy in range(ROUND_COPIES):
            rng = random.Random(number * ROUND_COPIES + copy)
            letters = "".join(rng.sample(string.ascii_lowercase, 26))
            table = bytes.maketrans(
                string.ascii_letters.encode(), (letters + letters.upper()).encode()
            )
            file.write(base.translate(table).replace(SEPARATOR.translate(table), SEPARATOR))


class Streamer:
    """One worker in this process, as an executor would drive it."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "output"
        self._worker: Worker | None = None

    def run(self, path: Path) -> int:
        """Encode and write every unit of a file; return the file's size."""
        job = JobSettings(inputs=(str(path),), output=self._output)
        plan = make_plan(job)
        spec = worker_spec(job, "kernel")
        # One worker for all rounds: its tables and buffers are what is measured.
        self._worker = worker = self._worker or Worker(spec)
        offsets = Offsets()
        # Each round writes to new files.
        files = FolderStore(str(self._output)).begin_task(spec.layout, 0, None)
        worker.write_to(files.layout)
        for unit in plan.iter_units():
            worker.write(offsets.grant(unit, worker.encode(unit)))
        files.discard()
        return plan.input_bytes


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=10.0)
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_round(int(options.write[0]), Path(options.write[1]))
        return 0
    with tempfile.TemporaryDirectory(prefix="penstok-soak-") as name:
        return watch(Path(name), round(options.gb * 10**9))


def watch(folder: Path, num_bytes: int) -> int:
    """Stream so many bytes; compare the memory after the first 100 MB with the maximum after it."""
    streamer, path = Streamer(folder), folder / "text.txt"
    done, number, early, late = 0, 0, 0, 0
    started = time.monotonic()
    while done < num_bytes:
        command = [sys.executable, __file__, "--write", str(number), str(path)]
        subprocess.run(command, check=True)
        done, number = done + streamer.run(path), number + 1
        resident = psutil.Process().memory_info().rss
        if done <= FIRST_SAMPLE_BYTES + ROUND_COPIES * COPY_BYTES:
            early = resident
        else:
            late = max(late, resident)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(
        f"{done / 1e9:.1f} GB in {time.monotonic() - started:.0f} s: {early / 2**20:.1f} MiB after "
        f"the first rounds, at most {late / 2**20:.1f} MiB after them, peak {peak_mib:.1f} MiB\n"
    )
    return 0 if late <= early * MAX_GROWTH and peak_mib <= MAX_WORKER_MIB else 1


if __name__ == "__main__":
    raise SystemExit(main())
