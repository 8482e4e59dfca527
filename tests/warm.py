"""Python programs that start as forks of a warm interpreter, which has Penstok loaded already.

Starting Python and importing Penstok takes half a second of CPU time, for the command and again
for each of its workers; a fork takes milliseconds. A fork is a process like any other: it has its
own pid, environment, folder, streams and exit code, and it can be killed. What must be seen from a
cold start (memory, imports, the installed program) does not belong here.

`WarmPopen` is used as `subprocess.Popen` is. It passes `python -c CODE`, `python -m penstok` and
their file descriptors to a server, one per test process, which forks. In a fork, programs of the
same kind (the workers of a job) are forked directly and are children of the fork, as they would be
in real life.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import re
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

_HEAD = struct.Struct("<IIi")  # length of the request, number of descriptors; answer: pid
_MOST_DESCRIPTORS = 64
# Received descriptors are moved up here, so that none is in the way of the numbers they get.
_FREE_DESCRIPTOR = 100
# What the command line and the workers of a job load.
_MODULES = (
    "multiprocessing.connection",
    "numpy",
    "penstok.api",
    "penstok.cli",
    "penstok.data.dataset",
    "penstok.engines.tiktoken",
    "penstok.engines.kernel",
    "penstok.executors.worker_process",
    "penstok.jobs.run",
    "penstok.tokenizers",
    "penstok.verification",
    "psutil",
    "rich.console",
    "rich.table",
    "tiktoken",
)
# Code that runs a command or a worker. Other code may want to see what it loads, or takes.
_RUNS_PENSTOK = re.compile(r"from penstok\.(cli|executors|training)\b.* import main")


def can_be_warm(args: object, executable: object, preexec_fn: object, shell: object) -> bool:
    """Tell whether a command is a Python program that a warm interpreter can run."""
    return (
        isinstance(args, list | tuple)
        and len(args) > 2
        and os.fspath(args[0]) == sys.executable
        and (
            tuple(args[1:3]) == ("-m", "penstok")
            or (args[1] == "-c" and _RUNS_PENSTOK.search(args[2]) is not None)
        )
        and executable in (None, sys.executable)
        and preexec_fn is None
        and not shell
    )


class WarmPopen(subprocess.Popen[Any]):
    """A Python program in a fork of the warm interpreter; any other command as usual."""

    _status_file: int | None = None

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *rest: Any) -> None:
        (_close_fds, pass_fds, cwd, env, _startupinfo, _flags, shell, *pipes) = rest
        (read0, write0, read1, write1, read2, write2, _restore, *owner) = pipes
        (_gid, _gids, _uid, _umask, start_new_session, *_) = owner
        if not can_be_warm(args, executable, preexec_fn, shell):
            super()._execute_child(args, executable, preexec_fn, *rest)  # type: ignore[misc]
            return
        standard = [read0, write1, write2]
        program = {
            "arguments": [os.fspath(word) for word in args[1:]],
            "environment": dict(os.environ if env is None else env),
            "folder": str(Path(cwd or ".").resolve()),
            "new_session": bool(start_new_session),
            "path": sys.path,
        }
        files = [at if at >= 0 else number for number, at in enumerate(standard)]
        try:
            if _server is None or _server.is_here:
                server = _start_server()
                self.pid, self._status_file = server.fork(program, files, tuple(pass_fds))
            else:
                sys.stdout.flush()
                sys.stderr.flush()
                self.pid = os.fork()
                if self.pid == 0:
                    same = {number: number for number in pass_fds}
                    _run_program({**program, "is_alone": False}, files, same)
            self._child_created = True
        finally:
            self._close_pipe_fds(read0, write0, read1, write1, read2, write2)  # type: ignore[attr-defined]

    def _internal_poll(self, *how: Any, **more: Any) -> int | None:
        if self._status_file is None:
            return super()._internal_poll(*how, **more)  # type: ignore[misc,no-any-return]
        return self._take_status(0)

    def _wait(self, timeout: float | None) -> int:
        if self._status_file is None:
            return super()._wait(timeout)  # type: ignore[misc,no-any-return]
        code = self._take_status(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _take_status(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._status_file is not None:
            if not select.select([self._status_file], [], [], timeout)[0]:
                return None
            status = os.read(self._status_file, 64)
            os.close(self._status_file)
            # None means only that it is a child of the server, so the number stays set.
            self._status_file = -1
            self.returncode = int(status) if status else -signal.SIGKILL
        return self.returncode


class _Server:
    """The warm interpreter of this test process."""

    is_here = True

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PENSTOK_")
        }
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**environment, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )
        self._line = ours
        self._lock = threading.Lock()

    def fork(
        self, program: dict[str, Any], files: list[int], pass_fds: tuple[int, ...]
    ) -> tuple[int, int]:
        """Start a program; return its pid and the file from which its exit code is read."""
        status_out, status_in = os.pipe()
        request = json.dumps({**program, "is_alone": True, "pass_fds": pass_fds}).encode()
        given = [status_in, *files, *pass_fds]
        with self._lock:
            head = _HEAD.pack(len(request), len(given), 0)
            socket.send_fds(self._line, [head], given)
            self._line.sendall(request)
            answer = self._line.recv(_HEAD.size, socket.MSG_WAITALL)
        os.close(status_in)
        if len(answer) < _HEAD.size:
            raise RuntimeError("the warm interpreter has ended")
        return _HEAD.unpack(answer)[2], status_out

    def close(self) -> None:
        self._line.close()
        self._process.wait()


class _InFork:
    """Stands for the server in its forks, which fork by themselves."""

    is_here = False


_server: _Server | _InFork | None = None
_start_lock = threading.Lock()


def _start_server() -> _Server:
    global _server  # noqa: PLW0603 one for a process
    with _start_lock:
        if not isinstance(_server, _Server):
            _server = _Server()
            atexit.register(_server.close)
        return _server


# ---- the server ----


def serve(line: socket.socket) -> None:
    """Fork what is asked for until the test process hangs up."""
    global _server  # noqa: PLW0603 one for a process
    _server = _InFork()
    subprocess.Popen = WarmPopen  # type: ignore[misc]
    _warm_up()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended, wakeup = socket.socketpair()
    ended.setblocking(False)
    wakeup.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
    status_files: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([line, ended], [], [])
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                ended.recv(4096)
            _report_ended(status_files)
        if line in ready:
            head, given, _, _ = socket.recv_fds(line, _HEAD.size, _MOST_DESCRIPTORS)
            if not head:
                return
            _fork(line, head, given, status_files)


def _warm_up() -> None:
    """Load what most programs need, so that no fork has to."""
    for name in _MODULES:
        # Modules move; what is not found here is loaded by the fork.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # What the command line loads only when it is used.
    environment = dict(os.environ)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("some words")
        text.flush()
        given = io.TextIOWrapper(io.BytesIO())
        with contextlib.redirect_stdout(given), contextlib.redirect_stderr(given):
            _run_main(["-m", "penstok", "plan", text.name])
    os.environ.clear()
    os.environ.update(environment)
    gc.collect()
    gc.freeze()


def _report_ended(status_files: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            file = status_files.pop(pid)
            with contextlib.suppress(OSError):
                os.write(file, b"%d" % os.waitstatus_to_exitcode(status))
            os.close(file)


def _fork(line: socket.socket, head: bytes, given: list[int], status_files: dict[int, int]) -> None:
    while len(head) < _HEAD.size:
        head += line.recv(_HEAD.size - len(head))
    length, _, _ = _HEAD.unpack(head)
    request = b""
    while len(request) < length:
        request += line.recv(length - len(request))
    program = json.loads(request)
    status_file, *rest = given
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pass_fds = dict(zip(program["pass_fds"], rest[3:], strict=True))
        _run_program(program, rest[:3], pass_fds)
    status_files[pid] = status_file
    for file in rest:
        os.close(file)
    line.sendall(_HEAD.pack(0, 0, pid))


def _run_program(program: dict[str, Any], files: list[int], pass_fds: dict[int, int]) -> None:
    """Become the program in this fork, and end with its exit code."""
    code = 1
    try:
        _take_over(program, files, pass_fds)
        code = _run_main(program["arguments"])
        # As the interpreter does in the end. A worker may be forked by a thread of its parent, for
        # whose other threads it cannot wait.
        if program["is_alone"]:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001 the border of the process
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _take_over(program: dict[str, Any], files: list[int], pass_fds: dict[int, int]) -> None:
    """Set what a program finds when it starts: descriptors, folder, environment, streams."""
    wanted = {**dict(enumerate(files)), **pass_fds}
    moved = {
        number: fcntl.fcntl(file, fcntl.F_DUPFD, _FREE_DESCRIPTOR)
        for number, file in wanted.items()
    }
    for number, file in moved.items():
        os.dup2(file, number, inheritable=True)
    for number in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        if number not in wanted:
            with contextlib.suppress(OSError):
                os.close(number)
    if program["new_session"]:
        os.setsid()
    os.chdir(program["folder"])
    os.environ.clear()
    os.environ.update(program["environment"])
    sys.path[:] = program["path"]
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        stream = io.open(  # noqa: SIM115, UP020 the streams of the program
            number,
            mode,
            buffering=-1,
            encoding="utf-8",
            errors="backslashreplace" if name == "stderr" else "strict",
            closefd=False,
        )
        if mode == "w" and (name == "stderr" or stream.isatty()):
            stream.reconfigure(line_buffering=True)  # type: ignore[attr-defined]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    # It reads its variable when it is loaded.
    if "penstok.faults" in sys.modules:
        importlib.reload(sys.modules["penstok.faults"])


def _run_main(arguments: list[str]) -> int:
    """Run `-c CODE ...` or `-m penstok ...`; return the exit code."""
    try:
        if arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            names: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
            exec(compile(arguments[1], "<string>", "exec"), names)
        else:
            sys.argv = [arguments[1], *arguments[2:]]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        code: object = 0
    except SystemExit as ending:
        code = ending.code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        raise
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
