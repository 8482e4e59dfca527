"""The parent's side of the trainer process: starts it, sends it text, monitors and stops it.

It chooses no text and writes no files. `train` passes it the sample; `trainer` is what runs in the
process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from penstok.errors import EngineError, UsageError
from penstok.jobs.progress import Status
from penstok.quantities import format_bytes, format_seconds
from penstok.resources import Resource
from penstok.training.trainer import LENGTH_BYTES
from penstok.types import Struct
from penstok.worker.memory import num_cores, tree_bytes

if TYPE_CHECKING:
    from penstok.jobs.progress import Progress
    from penstok.training.sample import Sample
    from penstok.types import Priority

__all__ = ["TrainerOptions", "TrainerProcess", "TrainingMonitor"]

# Each thread of the library counts words in a table of its own.
_MAX_THREADS = 8
_UPDATE_SECONDS = 0.2
# The memory of both processes without text, and per byte of the worst text: 20 MB of random letters
# took 80 times their size, English a tenth of that (docs/adr/0021-training.md).
_BASE_BYTES = 256 << 20
_MAX_FACTOR = 80
_START_TRAINER = (
    "import os, sys; os.nice(int(sys.argv[1])); sys.path[:] = sys.argv[2:]; "
    "from penstok.training.trainer import main; main()"
)


class TrainerOptions(Struct, frozen=True):
    """What the trainer process learns."""

    pattern: str
    vocab_size: int
    special: tuple[str, ...]


class _TrainingStatus(Status, frozen=True):
    """The progress of a training; bytes are those of the content that was read or skipped."""

    stage: str = "reading"

    def line(self) -> str:
        """Return the progress as one line."""
        taken = f"{format_bytes(self.text_bytes)} of text"
        memory = f"memory {format_bytes(self.memory_bytes)}"
        if self.stage == "reading":
            share = f"{self.fraction:4.0%}  " if self.total_bytes else ""
            return f"{share}{taken}  {memory}"
        return f"learning from {taken} for {format_seconds(self.elapsed_seconds)}  {memory}"


class TrainingMonitor:
    """Shows the progress of a training, and stops it if it exceeds its memory."""

    def __init__(self, memory_bytes: int, sample: Sample, progress: Progress) -> None:
        self.peak_bytes: int = 0
        self.elapsed_seconds: float = 0.0
        self._memory_bytes = memory_bytes
        self._sample = sample
        self._progress = progress
        self._started = time.monotonic()
        self._next = 0.0

    def update(self, trainer: TrainerProcess, stage: str = "reading") -> None:
        """Check the memory and report progress, at most five times per second."""
        self.elapsed_seconds = elapsed = time.monotonic() - self._started
        if elapsed < self._next:
            return
        self._next = elapsed + _UPDATE_SECONDS
        memory_bytes = tree_bytes([trainer.pid])
        self.peak_bytes = max(self.peak_bytes, memory_bytes)
        if memory_bytes > self._memory_bytes:
            raise self._too_little_memory()
        sample = self._sample
        self._progress.update(
            _TrainingStatus(
                elapsed_seconds=elapsed,
                done_bytes=sample.passed_bytes,
                kept_bytes=0,
                total_bytes=sample.total_bytes,
                text_bytes=sample.text_bytes,
                kept_text_bytes=0,
                num_units_done=0,
                num_units=None,
                num_tokens=0,
                kept_tokens=0,
                num_documents=sample.counts.documents,
                memory_bytes=memory_bytes,
                stage=stage,
            )
        )

    def _too_little_memory(self) -> UsageError:
        memory_bytes, taken = self._memory_bytes, self._sample.text_bytes
        fitting = (memory_bytes - _BASE_BYTES) // _MAX_FACTOR
        smaller = f"`--sample {fitting >> 20}MiB`, which fits whatever the text is, or "
        return UsageError(
            f"learning from {format_bytes(taken)} of this text takes more than "
            f"{format_bytes(memory_bytes)} of memory",
            where="--memory",
            next_step=f"pass {smaller if (1 << 20) <= fitting < taken else ''}"
            f"`--memory {max(2 * memory_bytes, 2 * _BASE_BYTES) >> 20}MiB` if the machine has that",
        )


class TrainerProcess(Resource):
    """The trainer process; use it in a `with`, which stops it in any case."""

    def __init__(self, options: TrainerOptions, priority: Priority) -> None:
        threads = str(min(num_cores(), _MAX_THREADS))
        nice = "10" if priority == "low" else "0"
        self._popen = subprocess.Popen(
            [sys.executable, "-c", _START_TRAINER, nice, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "true"},
            # Ctrl-C in the terminal must reach only the parent, which stops it.
            start_new_session=True,
        )
        self.pid: int = self._popen.pid
        self._send(json.dumps(to_builtins(options)).encode() + b"\n")

    def close(self) -> None:
        """Stop the process, whatever it does."""
        self._popen.kill()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._popen.wait()

    def send(self, texts: list[bytes]) -> None:
        """Send texts, which must be valid UTF-8; empty ones are skipped."""
        for text in texts:
            if text:
                self._send(len(text).to_bytes(LENGTH_BYTES, "little"))
                self._send(text)

    def finish(self, monitor: TrainingMonitor) -> dict[str, Any]:
        """Mark the end of the text, wait, and return the result."""
        self._send(bytes(LENGTH_BYTES))
        while True:
            try:
                output, _ = self._popen.communicate(timeout=_UPDATE_SECONDS)
            except subprocess.TimeoutExpired:
                monitor.update(self, "learning")
                continue
            if self._popen.returncode:
                raise self._early_exit()
            result: dict[str, Any] = json.loads(output)
            return result

    def _send(self, data: bytes) -> None:
        pipe = self._popen.stdin
        try:
            if pipe is not None:
                pipe.write(data)
        except BrokenPipeError:
            self._popen.wait()
            raise self._early_exit() from None

    def _early_exit(self) -> EngineError:
        return EngineError(
            f"the trainer process ended too early (exit code {self._popen.returncode})",
            where="the `tokenizers` library",
            next_step="pass a smaller `--sample` if memory was short; otherwise report it with "
            "what it printed",
        )
