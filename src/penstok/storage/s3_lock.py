"""A lock with a heartbeat, so that one job at a time writes to an object folder.

It trusts no other machine's clock: a lock is stale if it stays unchanged for longer than its owner
would leave it, by the clock of the process that waits. `s3_folder` makes its requests; local
folders have a lock of their own in `output.store`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstok.errors import LockedError, PenstokError, WriteError

if TYPE_CHECKING:
    from types import TracebackType

    from penstok.storage.s3_folder import S3Folder

__all__ = ["LOCK_NAME", "S3Lock"]

LOCK_NAME = ".penstok/lock"
_NO_ETAG = '"00000000000000000000000000000000"'


class S3Lock:
    """The lock of an object folder, held inside one `with`; there is no file to inherit."""

    file: int | None = None

    def __init__(
        self,
        folder: S3Folder,
        *,
        heartbeat_seconds: float = 10.0,
        stale_seconds: float = 45.0,
        poll_seconds: float = 1.0,
    ) -> None:
        """Take the folder to lock, and the timing.

        Args:
            folder: The folder to lock.
            heartbeat_seconds: How often the owner renews the lock.
            stale_seconds: After how long without a change the lock counts as abandoned.
            poll_seconds: How often another run's lock is checked.
        """
        self._folder = folder
        self._heartbeat_seconds = heartbeat_seconds
        self._stale_seconds = stale_seconds
        self._poll_seconds = poll_seconds
        # Makes the content of every lock unique, and so its ETag.
        self._token = secrets.token_hex(16)
        self._num_heartbeats = 0
        self._etag = ""
        self._renewed_at = 0.0
        self._is_taken_over = False
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_released, name="lock", daemon=True)

    @property
    def is_lost(self) -> bool:
        """Whether another run has taken it, or may have: it was not renewed for too long."""
        return self._is_taken_over or time.monotonic() - self._renewed_at >= self._stale_seconds

    def __enter__(self) -> S3Lock:
        """Take the lock; if another run has it, wait until it is clear whether that run is alive.

        Raises:
            LockedError: If another run holds it.
            WriteError: If the service would let two runs hold it at once.
        """
        while not (self._take_free() or self._take_from_other()):
            pass
        try:
            self._check_service()
        except BaseException:
            self._delete()
            raise
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Delete the lock, unless it was lost."""
        self._released.set()
        # A renewal in progress finds nothing to renew.
        self._thread.join(timeout=1)
        # Nobody takes over a lock that was renewed in time, so it is ours until it is deleted. If
        # deleting fails, it becomes stale.
        if not self.is_lost:
            with contextlib.suppress(PenstokError):
                self._delete()

    def _take_free(self) -> bool:
        began = time.monotonic()
        if not self._folder.put_if_absent(LOCK_NAME, self._next_content()):
            return False
        found = self._folder.find_info(LOCK_NAME)
        if found is None:
            return False
        self._etag, self._renewed_at = found[1], began
        return True

    def _take_from_other(self) -> bool:
        """Take over a lock whose owner is dead; False if the lock is gone.

        Raises:
            LockedError: If its owner is alive.
        """
        found = self._folder.find(LOCK_NAME)
        if found is None:
            return False
        content, old_etag = found
        if not _is_dead(_parse(content)) and not self._wait_until_stale(old_etag):
            return False
        began = time.monotonic()
        etag = self._folder.put_if_match(LOCK_NAME, self._next_content(), old_etag)
        if etag is None:
            if self._folder.find_info(LOCK_NAME) is None:
                return False
            raise self._locked()
        self._etag, self._renewed_at = etag, began
        return True

    def _wait_until_stale(self, etag: str) -> bool:
        """Check another run's lock until it is stale; False if it is deleted meanwhile."""
        deadline = time.monotonic() + self._stale_seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(self._poll_seconds, left))
            found = self._folder.find_info(LOCK_NAME)
            if found is None:
                return False
            if found[1] != etag:
                raise self._locked()
        return True

    def _check_service(self) -> None:
        """Check that conditions are obeyed: a service that ignores them reports no error."""
        other = self._next_content() + b"\n"
        if (
            not self._folder.put_if_absent(LOCK_NAME, other)
            and self._folder.put_if_match(LOCK_NAME, other, _NO_ETAG) is None
        ):
            return
        raise WriteError(
            "two runs could write here at once: the service does not obey conditional writes "
            "(`If-None-Match`, `If-Match`)",
            where=self._folder.url,
            next_step="choose a service, or a version of it, that does, or a local folder",
        )

    def _renew_until_released(self) -> None:
        while not self._released.wait(self._heartbeat_seconds):
            began = time.monotonic()
            try:
                etag = self._folder.put_if_match(LOCK_NAME, self._next_content(), self._etag)
                etag = etag or self._find_own()
            except PenstokError:
                # A later renewal may succeed; if none does, `is_lost` becomes true in time.
                continue
            if etag is None:
                self._is_taken_over = True
                return
            self._etag, self._renewed_at = etag, began

    def _find_own(self) -> str | None:
        """Find the ETag of a renewal that succeeded although its response was lost."""
        content, etag = self._folder.find(LOCK_NAME) or (b"", None)
        return etag if _parse(content).get("token") == self._token else None

    def _delete(self) -> None:
        self._folder.delete([LOCK_NAME])

    def _next_content(self) -> bytes:
        self._num_heartbeats += 1
        content = {
            "owner": f"pid {os.getpid()} on {socket.gethostname()}",
            "beat": self._num_heartbeats,
            "pid": os.getpid(),
            "processes": _process_namespace(),
            "token": self._token,
        }
        return json.dumps(content).encode()

    def _locked(self) -> LockedError:
        owner = _parse(self._folder.get(LOCK_NAME) or b"").get("owner", "owner unknown")
        return LockedError(
            f"another run is writing here ({owner})",
            where=self._folder.url,
            next_step="wait for it, or choose another `-o`",
        )


def _parse(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_dead(owner: dict[str, Any]) -> bool:
    """Tell whether a lock's owner was a process of this machine and has ended."""
    import psutil

    pid, processes = owner.get("pid"), owner.get("processes")
    is_here = bool(processes) and processes == _process_namespace()
    return is_here and isinstance(pid, int) and not psutil.pid_exists(pid)


def _process_namespace() -> str:
    """Identify the boot and the pid namespace; "" if that is unknown.

    A host's name is not enough: containers with the same one do not see each other's processes.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
