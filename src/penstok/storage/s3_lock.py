"""One job at a time in an object folder: a lock that is kept by a heartbeat.

No clock of another machine is trusted: a lock is stale when it stays the same for longer than its
owner would leave it, by the clock of the one who watches. It knows nothing of what the folder is
for; `s3_folder` makes its requests, `lock` does the same for folders of this machine.
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

import psutil

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
        beat_seconds: float = 10.0,
        stale_seconds: float = 45.0,
        poll_seconds: float = 1.0,
    ) -> None:
        """Take the folder to lock, and how long things last.

        Args:
            folder: Where the lock is.
            beat_seconds: How often the owner renews it.
            stale_seconds: How long it must stay the same to be nobody's.
            poll_seconds: How often somebody else's is looked at.
        """
        self._folder = folder
        self._beat_seconds = beat_seconds
        self._stale_seconds = stale_seconds
        self._poll_seconds = poll_seconds
        # No two locks are ever the same, and so no two ETags.
        self._token = secrets.token_hex(16)
        self._num_beats = 0
        self._etag = ""
        self._renewed = 0.0
        self._is_taken_over = False
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, name="lock", daemon=True)

    @property
    def is_lost(self) -> bool:
        """Tell whether another run has it, or may have: it was not renewed for too long."""
        return self._is_taken_over or time.monotonic() - self._renewed >= self._stale_seconds

    def __enter__(self) -> S3Lock:
        """Take the lock; watch somebody else's until it is clear whether its owner lives.

        Raises:
            LockedError: If another run holds it.
            WriteError: If the service would let two runs hold it.
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
        """Delete the lock, if it is still ours."""
        self._leaving.set()
        # A renewal that is under way finds nothing to renew.
        self._thread.join(timeout=1)
        # Nobody takes a lock over that was renewed in time, so it is ours until it is deleted. If
        # that fails, it goes stale.
        if not self.is_lost:
            with contextlib.suppress(PenstokError):
                self._delete()

    def _take_free(self) -> bool:
        began = time.monotonic()
        if not self._folder.put_if_absent(LOCK_NAME, self._next_content()):
            return False
        found = self._folder.look(LOCK_NAME)
        if found is None:
            return False
        self._etag, self._renewed = found[1], began
        return True

    def _take_from_other(self) -> bool:
        """Take over a lock whose owner is gone; False if it is gone itself.

        Raises:
            LockedError: If its owner lives.
        """
        found = self._folder.look(LOCK_NAME)
        content = self._folder.get(LOCK_NAME) if found else None
        if found is None or content is None:
            return False
        # What was read may be newer than the ETag: replacing it fails then.
        owner = _parse(content)
        if not _is_dead(owner) and not self._watch(found[1]):
            return False
        began = time.monotonic()
        etag = self._folder.put_if_match(LOCK_NAME, self._next_content(), found[1])
        if etag is None:
            if self._folder.look(LOCK_NAME) is None:
                return False
            raise self._locked()
        self._etag, self._renewed = etag, began
        return True

    def _watch(self, etag: str) -> bool:
        """Look at somebody else's lock until it is stale; False if it is deleted meanwhile."""
        deadline = time.monotonic() + self._stale_seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(self._poll_seconds, left))
            found = self._folder.look(LOCK_NAME)
            if found is None:
                return False
            if found[1] != etag:
                raise self._locked()
        return True

    def _check_service(self) -> None:
        """See that conditions are obeyed: a service that does not know them would say nothing."""
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
            next_step="choose a service or a version of it that does, or a folder of this machine",
        )

    def _keep_beating(self) -> None:
        while not self._leaving.wait(self._beat_seconds):
            began = time.monotonic()
            try:
                etag = self._folder.put_if_match(LOCK_NAME, self._next_content(), self._etag)
                etag = etag or self._find_own()
            except PenstokError:
                # It may pass; if it does not, `is_lost` tells by the clock.
                continue
            if etag is None:
                self._is_taken_over = True
                return
            self._etag, self._renewed = etag, began

    def _find_own(self) -> str | None:
        """Find the ETag of a renewal that arrived although it seemed to have failed."""
        found = self._folder.look(LOCK_NAME)
        content = self._folder.get(LOCK_NAME) if found else None
        is_own = content is not None and _parse(content).get("token") == self._token
        return found[1] if found and is_own else None

    def _delete(self) -> None:
        self._folder.delete([LOCK_NAME])

    def _next_content(self) -> bytes:
        self._num_beats += 1
        content = {
            "owner": f"pid {os.getpid()} on {socket.gethostname()}",
            "beat": self._num_beats,
            "pid": os.getpid(),
            "processes": _processes(),
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
    """Tell whether a lock's owner was a process of this machine and is gone."""
    pid, processes = owner.get("pid"), owner.get("processes")
    is_here = bool(processes) and processes == _processes()
    return is_here and isinstance(pid, int) and not psutil.pid_exists(pid)


def _processes() -> str:
    """Name the set of processes we can see; "" where that cannot be told.

    A host's name is not enough: containers that share it do not see each other's processes.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
