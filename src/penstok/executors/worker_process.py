"""The main function of a worker process: it answers requests until the parent closes the pipe.

It tokenizes nothing itself and decides nothing: `worker.worker` does the work, `children` starts
it and `processes` sends requests. When the parent dies, its end of the pipe closes, and this
process exits too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from penstok.errors import EngineError, PenstokError, expected_error
from penstok.worker.counting import CountingWorker
from penstok.worker.worker import ShareReachedError, Worker, WorkerSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstok.types import Priority

__all__ = ["main", "serve"]

_NICE = 10


def main(file: int) -> None:
    """Serve the parent at the other end of the pipe `file`, as a new interpreter."""
    parent = Connection(file)
    with contextlib.suppress(EOFError, OSError):
        serve(parent, *parent.recv())


def serve(parent: Connection, spec: WorkerSpec, priority: Priority) -> None:
    """Serve the parent until it closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with parent, contextlib.suppress(EOFError, OSError):
        _lower_priority(priority)
        requests: SimpleQueue[Any] = SimpleQueue()
        Thread(target=_drain, args=(parent, requests), daemon=True).start()
        _answer_requests(parent, requests, spec)


def _drain(parent: Connection, requests: SimpleQueue[Any]) -> None:
    """Read requests from the pipe while the worker is busy.

    Otherwise parent and worker could deadlock, each waiting for the other to read what it sends.
    """
    try:
        while True:
            requests.put(parent.recv())
    except (EOFError, OSError):
        requests.put(None)


def _answer_requests(parent: Connection, requests: SimpleQueue[Any], spec: WorkerSpec) -> None:
    """Create the worker before the first request, then answer until the parent hangs up."""
    make = CountingWorker if spec.sink == "count" else Worker
    worker, failure = _guarded(lambda: make(spec), "startup")
    while failure is None and (request := requests.get()) is not None:
        kind, payload = request
        answer, failure = _guarded(partial(_answer, worker, kind, payload), payload)
        if failure is None and kind != "layout":
            parent.send((kind, answer))
    if failure is not None:
        parent.send(failure)


def _guarded(work: Callable[[], Any], payload: object) -> tuple[Any, tuple[str, object] | None]:
    """Call `work`; return its result, or the message to send before this worker exits."""
    try:
        return work(), None
    except ShareReachedError:
        return None, ("full", None)
    except PenstokError as error:
        return None, ("error", error)
    except Exception as error:  # noqa: BLE001 the worker boundary: wrap, attach the unit, pass on
        expected = expected_error(error, reads_only=False)
        return None, ("error", expected or _bug(error, payload))


def _answer(worker: Worker | CountingWorker, kind: str, payload: Any) -> Any:
    if kind == "encode":
        return [worker.encode(unit) for unit in payload]
    if kind == "write":
        return [worker.write(offsets) for offsets in payload]
    if kind == "sample":
        return worker.sample(payload)
    if kind == "compare" or isinstance(worker, CountingWorker):
        return worker.compare(payload)
    if kind == "layout":
        return worker.write_to(payload)
    return worker.find_open_split(*payload)


def _bug(error: Exception, payload: object) -> EngineError:
    details = "".join(traceback.format_exception(error))
    return EngineError(
        f"unexpected {type(error).__name__} in a worker: {error}\n{details}",
        where=f"a worker, while it handled {str(payload)[:300]}",
        next_step="report this, with the version that `penstok --version` prints",
    )


def _lower_priority(priority: Priority) -> None:
    """Lower the CPU priority, and on Linux that of I/O with it: the machine stays usable."""
    if priority != "normal":
        os.nice(_NICE)
