"""Python programs that start as forks of a warm interpreter, which has Penstok loaded already.

Starting Python and importing Penstok takes half a second of CPU time, for the command and again
for each of its workers; a fork takes milliseconds. A fork is a process like any other: it has its
own pid, environment, folder, streams and exit code, and it can be killed. What must be seen from a
cold start (memory, imports, the installed program) does not belong here.

`WarmPopen` is used as `subprocess.Popen` is. It passes `python -m penstok`, code that calls a
`main` of Penstok, and their file descriptors to a server, one per test process, which forks. Each
command gets a server of its own in the same way, so that its workers are forks of an interpreter
in which nothing has happened yet, and not of the command with its open files and connections.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
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

import psutil

# Before a request: its length; before an answer: the pid.
_HEAD = struct.Struct("<I")
_MOST_DESCRIPTORS = 64
# Received descriptors are moved up here, so that none is in the way of the numbers they get.
_FREE_DESCRIPTOR = 400
_SERVER_NAME = "warm-server"
_PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h
# What the command line and the workers of a job load. A module that has moved is loaded by forks.
_MODULES = (
    "botocore.httpsession",
    "botocore.session",
    "multiprocessing.connection",
    "numpy",
    "penstok.api",
    "penstok.cli",
    "penstok.data.dataset",
    "penstok.engines.kernel",
    "penstok.engines.tiktoken",
    "penstok.executors.worker_process",
    "penstok.jobs.run",
    "penstok.tokenizers",
    "penstok.verification",
    "requests",
    "click",
    "tiktoken",
)
# Code that runs a command or a worker. Other code may want to see what it loads, or takes.
_RUNS_PENSTOK = re.compile(r"from penstok\.(cli|executors|training)\b.* import main")
_ColdPopen = subprocess.Popen


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


def children_of(pid: int) -> list[psutil.Process]:
    """Return the processes that a program has started: its workers, whoever forked them."""
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if name_of(child) not in ("", _SERVER_NAME)]


def name_of(process: psutil.Process) -> str:
    """Return the name of a process; nothing if it has ended."""
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


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
        program = {
            "arguments": [os.fspath(word) for word in args[1:]],
            "environment": dict(os.environ if env is None else env),
            "folder": str(Path(cwd or ".").resolve()),
            "new_session": bool(start_new_session),
            "pass_fds": list(pass_fds),
            "path": sys.path,
        }
        given = [at if at >= 0 else number for number, at in enumerate([read0, write1, write2])]
        try:
            self.pid, self._status_file = _get_server().fork(program, [*given, *pass_fds])
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
            # `communicate` passes what is left of its timeout, which may be less than nothing.
            left = None if timeout is None else max(0.0, timeout)
            if not select.select([self._status_file], [], [], left)[0]:
                return None
            status = os.read(self._status_file, 64)
            os.close(self._status_file)
            # It was no child of this process, which `None` would say.
            self._status_file = -1
            self.returncode = int(status) if status else -signal.SIGKILL
        return self.returncode


class _Server:
    """The warm interpreter that makes the forks of this process."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._lock = threading.Lock()

    def fork(self, program: dict[str, Any], files: list[int]) -> tuple[int, int]:
        """Start a program; return its pid and the file from which its exit code is read.

        Args:
            program: What to run, and how.
            files: Its standard streams, then those of its `pass_fds`.
        """
        status_out, status_in = os.pipe()
        request = json.dumps(program).encode()
        with self._lock:
            socket.send_fds(self._line, [_HEAD.pack(len(request))], [status_in, *files])
            self._line.sendall(request)
            answer = self._line.recv(_HEAD.size, socket.MSG_WAITALL)
        os.close(status_in)
        if len(answer) < _HEAD.size:
            raise RuntimeError("the warm interpreter has ended")
        return _HEAD.unpack(answer)[0], status_out


_server: _Server | None = None
_start_lock = threading.Lock()


def _get_server() -> _Server:
    """Return the server of this process; a test process starts it when it is first needed."""
    global _server  # noqa: PLW0603 one for a process
    with _start_lock:
        if _server is None:
            ours, theirs = socket.socketpair()
            names = [name for name in os.environ if not name.startswith("PENSTOK_")]
            with theirs:
                process = _ColdPopen(
                    [sys.executable, __file__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={**{name: os.environ[name] for name in names}, "OPENBLAS_NUM_THREADS": "1"},
                    start_new_session=True,
                )
            _server = _Server(ours)
            atexit.register(_end_server, ours, process)
        return _server


def _end_server(line: socket.socket, process: subprocess.Popen[bytes]) -> None:
    line.close()
    process.wait()


# ---- the server ----


def _serve(line: socket.socket, *, are_commands: bool) -> None:
    """Fork what is asked for until the other end hangs up: commands, or workers of one."""
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
            head, files, _, _ = socket.recv_fds(line, _HEAD.size, _MOST_DESCRIPTORS)
            if not head:
                return
            program = _read_request(line, head)
            if program is None:
                return
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _run_program(program, files[1:], is_command=are_commands)
            status_files[pid], *rest = files
            for file in rest:
                os.close(file)
            line.sendall(_HEAD.pack(pid))


def _read_request(line: socket.socket, head: bytes) -> dict[str, Any] | None:
    """Return what to run; None if the other end was killed in the middle of its request."""
    while len(head) < _HEAD.size:
        if not (piece := line.recv(_HEAD.size - len(head))):
            return None
        head += piece
    (length,) = _HEAD.unpack(head)
    request = b""
    while len(request) < length:
        if not (piece := line.recv(length - len(request))):
            return None
        request += piece
    program: dict[str, Any] = json.loads(request)
    return program


def _report_ended(status_files: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            file = status_files.pop(pid, None)
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    os.write(file, b"%d" % os.waitstatus_to_exitcode(status))
                os.close(file)


def _adopt_orphans() -> None:
    """Become the parent of forks whose parent ends first, so that they are waited for."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _warm_up() -> None:
    """Load what most programs need, so that no fork has to."""
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # What the command line loads only when it is used.
    environment = dict(os.environ)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("some words")
        text.flush()
        given = io.TextIOWrapper(io.BytesIO())
        with (
            contextlib.redirect_stdout(given),
            contextlib.redirect_stderr(given),
            contextlib.suppress(SystemExit),
        ):
            # Not `main`, which ends the process.
            importlib.import_module("penstok.cli").app.main(["plan", text.name])
    os.environ.clear()
    os.environ.update(environment)
    gc.collect()
    gc.freeze()


# ---- a fork ----


def _run_program(program: dict[str, Any], files: list[int], *, is_command: bool) -> None:
    """Become the program in this fork, and end with its exit code."""
    code = 1
    try:
        line = _fork_server() if is_command else None
        _take_over(program, files, line)
        code = _run_main(program["arguments"])
        # As the interpreter does in the end.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except KeyboardInterrupt:
        # So does the interpreter, also if a second one comes while the first is handled.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 the border of the process
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _fork_server() -> socket.socket:
    """Make the server of a command's workers, before anything has happened in the command."""
    ours, theirs = socket.socketpair()
    _set_name(_SERVER_NAME)
    if os.fork() == 0:
        try:
            _close_all_but({theirs.fileno()})
            _serve(theirs, are_commands=False)
        finally:
            os._exit(0)
    theirs.close()
    return ours


def _take_over(program: dict[str, Any], files: list[int], line: socket.socket | None) -> None:
    """Set what a program finds when it starts: descriptors, folder, environment, streams."""
    global _server  # noqa: PLW0603 one for a process
    wanted = dict(zip([0, 1, 2, *program["pass_fds"]], files, strict=True))
    moved = {
        number: fcntl.fcntl(file, fcntl.F_DUPFD, _FREE_DESCRIPTOR)
        for number, file in wanted.items()
    }
    if line is not None:
        kept = fcntl.fcntl(line.fileno(), fcntl.F_DUPFD_CLOEXEC, 2 * _FREE_DESCRIPTOR)
        line.close()
        _server = _Server(socket.socket(fileno=kept))
        subprocess.Popen = WarmPopen  # type: ignore[misc]
        wanted[kept] = kept
    for number, file in moved.items():
        os.dup2(file, number, inheritable=True)
    _close_all_but(set(wanted))
    _set_name("penstok")
    if program["new_session"]:
        os.setsid()
    os.chdir(program["folder"])
    os.environ.clear()
    os.environ.update(program["environment"])
    sys.path[:] = program["path"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        stream = open(  # noqa: SIM115 it stays open
            number,
            mode,
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


def _set_name(name: str) -> None:
    """Set the name under which this process is listed, where that can be done."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def _close_all_but(kept: set[int]) -> None:
    for number in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


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
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


if __name__ == "__main__":
    test_process = socket.socket(fileno=int(sys.argv[1]))
    _adopt_orphans()
    _warm_up()
    _serve(test_process, are_commands=True)
