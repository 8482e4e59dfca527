"""A worker process: answers the parent's requests until the parent hangs up.

It tokenizes nothing itself and decides nothing: `worker` does the work, `executors.local` says
what comes next. When the parent dies, its end of the pipe closes, and this process ends too.
"""

from __future__ import annotations

import os
import signal
import traceback
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

import psutil

from penstok.errors import EngineError, PenstokError
from penstok.worker.worker import ShareReachedError, Worker, WorkerSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstok.types import Priority

__all__ = ["main"]

_NICE = 10


def main(file: int) -> None:
    """Serve the parent at the other end of the pipe `file`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Connection(file) as parent:
        try:
            spec, priority = parent.recv()
            _lower_priority(priority)
            requests: SimpleQueue[Any] = SimpleQueue()
            Thread(target=_drain, args=(parent, requests), daemon=True).start()
            _serve(parent, requests, spec)
        except (EOFError, OSError):
            return


def _drain(parent: Connection, requests: SimpleQueue[Any]) -> None:
    """Take requests off the pipe while the worker is busy.

    Else parent and worker could each wait for ever until the other reads what it sends.
    """
    try:
        while True:
            requests.put(parent.recv())
    except (EOFError, OSError):
        requests.put(None)


def _serve(parent: Connection, requests: SimpleQueue[Any], spec: WorkerSpec) -> None:
    """Make the worker at once, while others start too; then answer until the parent hangs up."""
    made, failure = _guarded(lambda: Worker(spec), "its start")
    while failure is None and (request := requests.get()) is not None:
        kind, payload = request
        answer, failure = _guarded(partial(_answer, made, kind, payload), payload)
        if failure is None and kind != "layout":
            parent.send((kind, answer))
    if failure is not None:
        parent.send(failure)


def _guarded(work: Callable[[], Any], payload: object) -> tuple[Any, tuple[str, object] | None]:
    """Do something; return its result, or what to tell the parent before this worker ends."""
    try:
        return work(), None
    except ShareReachedError:
        return None, ("full", None)
    except PenstokError as error:
        return None, ("error", error)
    except Exception as error:  # noqa: BLE001 the worker's border: wrap, say where, pass on
        return None, ("error", _bug(error, payload))


def _answer(worker: Worker, kind: str, payload: Any) -> Any:
    if kind == "encode":
        return [worker.encode(unit) for unit in payload]
    if kind == "write":
        return [worker.write(grant) for grant in payload]
    if kind == "layout":
        return worker.write_to(payload)
    if kind == "open":
        return worker.find_open_split(*payload)
    return worker.check(payload)


def _bug(error: Exception, payload: object) -> EngineError:
    details = "".join(traceback.format_exception(error))
    return EngineError(
        f"a bug: {type(error).__name__}: {error}\n{details}",
        where=f"a worker, at {str(payload)[:300]}",
        next_step="report this, with the version that `penstok --version` prints",
    )


def _lower_priority(priority: Priority) -> None:
    """Leave the machine to its user: last in line for the processor and the disk."""
    if priority == "normal":
        return
    os.nice(_NICE)
    if hasattr(psutil, "IOPRIO_CLASS_BE"):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_BE, 7)
