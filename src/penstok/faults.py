"""Named points at which the crash tests kill a run, to prove that nothing is lost there.

It does nothing unless `PENSTOK_FAULT` names a point. The code that writes output calls it where a
crash would do the most harm; `tests/crash` finds every call and fails if one is not tested.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

__all__ = ["fault_point"]

# `NAME` or `NAME:COUNT`: die the first time it is reached, or the COUNTth time.
_wanted, _colon, _times = os.environ.get("PENSTOK_FAULT", "").partition(":")
_reached: Counter[str] = Counter()
# Tests that act on a paused run replace this with SIGSTOP.
_SIGNAL = signal.SIGKILL


def fault_point(name: str) -> None:
    """Die as if by `kill -9` if the crash tests ask for it here."""
    if name != _wanted:
        return
    _reached[name] += 1
    if _reached[name] == int(_times or 1):
        os.kill(os.getpid(), _SIGNAL)
