"""Starts worker processes: forks of this process, or new interpreters where a fork is not safe.

It sends workers nothing but what they are made from, and decides neither when one starts nor when
it ends. `processes` does, and `worker_process` is what a worker runs (ADR 39).
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import stat
import sys
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NoReturn

from penstok.executors.worker_process import serve
from penstok.worker.memory import own_bytes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from penstok.types import Priority
    from penstok.worker.worker import WorkerSpec

__all__ = ["Child", "start_child"]

# One thread per process: a worker has one core. numpy and the Rust libraries read these.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
# A fork has the records of this process too, one per input, and they count as its memory.
_MAX_FORKED_BYTES = 128 << 20
_TASKS, _FILES = "/proc/self/task", "/proc/self/fd"
# Keep connections that two processes must not share.
_NETWORK_LIBRARIES = ("aiohttp", "botocore", "fsspec", "urllib3")
_START_WORKER = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from penstok.executors.worker_process import main; main(int(sys.argv[1]))"
)


class Child:
    """A worker process, and this end of the pipe to it."""

    def __init__(self, pid: int, pipe: Connection, popen: subprocess.Popen[bytes] | None) -> None:
        self.pid = pid
        self.pipe: Connection = pipe
        self._popen = popen
        self._code: int | None = None

    def wait(self) -> int:
        """Wait until it has ended; return its exit code, or the negative number of a signal."""
        if self._code is None:
            self._code = _wait_for(self.pid) if self._popen is None else self._popen.wait()
        return self._code

    def stop(self) -> None:
        """Kill it: nothing unfinished has a final name, so nothing can be corrupted."""
        self.pipe.close()
        if self._code is None:
            if self._popen is not None:
                self._popen.kill()
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            self.wait()


def start_child(spec: WorkerSpec, priority: Priority, inherited: Sequence[int]) -> Child:
    """Start a worker process, which keeps the files `inherited` open.

    A fork has everything that this process has loaded, tokenizer and engine included.
    """
    ours, theirs = socket.socketpair()
    pipe = Connection(ours.detach())
    with theirs:
        if _can_fork():
            pid = os.fork()
            if pid == 0:
                _run_fork(theirs, spec, priority)
            return Child(pid, pipe, None)
        popen = _start_interpreter(theirs, inherited)
    child = Child(popen.pid, pipe, popen)
    with contextlib.suppress(ConnectionError):
        child.pipe.send((spec.to_send(), priority))
    return child


def _wait_for(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        # Whoever started this process ignores SIGCHLD: the system keeps no exit codes then.
        return 0


def _can_fork() -> bool:
    """Return whether this process is small, has one thread and never used the network.

    Other threads do not exist in a fork, but the locks that they hold do. Apple's libraries
    have such threads of their own.
    """
    if any(name in sys.modules for name in _NETWORK_LIBRARIES):
        return False
    try:
        num_threads = len(os.listdir(_TASKS))  # noqa: PTH208 pathlib would build paths
    except OSError:
        return False
    return num_threads == 1 and own_bytes() <= _MAX_FORKED_BYTES


def _run_fork(theirs: socket.socket, spec: WorkerSpec, priority: Priority) -> NoReturn:
    """Serve the parent, in its fork.

    Nothing of the parent may be cleaned up here: no `finally` of its functions, no finalizer of an
    object whose file is closed here, no buffer of its streams.
    """
    code = 1
    try:
        gc.freeze()
        # A Ctrl-C in the terminal is for the parent, which stops its workers.
        os.setsid()
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        # Standard input is for the parent too: here it is a pipe that has ended.
        os.dup2(os.pipe()[0], 0)
        _close_sockets_except(theirs.fileno())
        os.environ.update(_ONE_THREAD)
        serve(Connection(theirs.detach()), spec, priority)
        code = 0
    except BaseException:  # noqa: BLE001 what the parent would catch must end here
        with contextlib.suppress(OSError):
            os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code)


def _close_sockets_except(kept: int) -> None:
    """Close the pipes of other workers: they must end when the parent does."""
    for name in os.listdir(_FILES):  # noqa: PTH208
        file = int(name)
        with contextlib.suppress(OSError):
            if file > 2 and file != kept and stat.S_ISSOCK(os.fstat(file).st_mode):
                os.close(file)


def _start_interpreter(theirs: socket.socket, inherited: Sequence[int]) -> subprocess.Popen[bytes]:
    import subprocess

    return subprocess.Popen(
        [sys.executable, "-c", _START_WORKER, str(theirs.fileno()), *sys.path],
        pass_fds=[theirs.fileno(), *inherited],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **_ONE_THREAD},
        start_new_session=True,
    )
