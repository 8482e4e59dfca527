"""A lock file that allows one run at a time in a folder.

It knows nothing about what the folder is for. `folder` takes the lock; worker processes inherit it,
so it is released only when the last process that could write has exited.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from typing import TYPE_CHECKING

from penstok.errors import LockedError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["is_current", "take_lock"]

_ORPHAN_SECONDS = 30.0
# A worker of this process that was killed is gone much sooner.
_OWN_SECONDS = 2.0


def take_lock(path: Path) -> int:
    """Lock the file `path`, write our process id and host name to it, and return it open.

    Its folder is created if missing. The lock of a killed run is free, except that its workers hold
    it for a moment until they notice; so an owner that is dead is waited for.

    Raises:
        LockedError: If another run holds the lock.
    """
    started = time.monotonic()
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            if time.monotonic() - started > _orphan_seconds(path):
                raise _locked(path) from None
            time.sleep(0.05)
            continue
        if is_current(lock, path):
            _write_owner(lock, path)
            return lock
        os.close(lock)


def is_current(lock: int, path: Path) -> bool:
    """Return whether the locked file is still `path`: somebody may just have deleted it."""
    try:
        return os.fstat(lock).st_ino == path.stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return False


def _locked(path: Path) -> LockedError:
    return LockedError(
        f"another run is writing here ({_owner(path)})",
        where=str(path.parent.parent),
        next_step="wait for it to end, or choose another `-o`",
    )


def _write_owner(lock: int, path: Path) -> None:
    try:
        os.truncate(lock, 0)
        os.pwrite(lock, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except OSError:
        path.unlink()
        os.close(lock)
        raise


def _owner(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip() or "owner unknown"
    except (OSError, UnicodeDecodeError):
        return "owner unknown"


def _orphan_seconds(path: Path) -> float:
    """Return how long workers may hold the lock of an owner that has ended; 0 if it may be alive.

    On another machine that cannot be ruled out. An earlier run of this process has ended.
    """
    import psutil

    words = _owner(path).split()
    is_here = len(words) == 4 and words[3] == socket.gethostname()
    if not is_here or not words[1].isdecimal():
        return 0.0
    if int(words[1]) == os.getpid():
        return _OWN_SECONDS
    return 0.0 if psutil.pid_exists(int(words[1])) else _ORPHAN_SECONDS
