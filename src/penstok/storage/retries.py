"""How often a request is made again, and how long it waits before.

It knows no transport and decides for none what is worth another try: they raise `PassingError`.
Files, streams and object folders make every request through it.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from penstok.storage.base import READING, PassingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstok.storage.base import Purpose

__all__ = ["Retries"]

_Result = TypeVar("_Result")
# A server that asks for more would keep a worker for nothing: it is asked again after this.
_MOST_ASKED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Retries:
    """Waits that double, less up to half at random: many workers must not come back at once.

    With the defaults the waits before the last try add up to half a minute at most.
    """

    num_tries: int = 6
    first_seconds: float = 1.0
    most_seconds: float = 30.0

    def run(
        self, attempt: Callable[[], _Result], where: str, purpose: Purpose = READING
    ) -> _Result:
        """Call `attempt` until it succeeds.

        Raises:
            PenstokError: If the last try fails, too: the error of the purpose.
        """
        num_failed = 0
        while True:
            try:
                return attempt()
            except PassingError as error:  # noqa: PERF203 each turn is a request
                num_failed += 1
                if num_failed >= self.num_tries:
                    raise purpose.error(
                        f"cannot be {purpose.done} after {num_failed} tries: {error.answer}",
                        where=where,
                        next_step="run the same command again: it continues",
                    ) from error
                time.sleep(self.pause_seconds(num_failed, error.wait_seconds))

    def pause_seconds(self, num_failed: int, asked_seconds: float = 0) -> float:
        """Return how long to wait after so many failures; at least what the server asks for."""
        share = random.uniform(0.5, 1.0)
        pause = min(self.first_seconds * (1 << num_failed - 1), self.most_seconds) * share
        return max(pause, min(asked_seconds, _MOST_ASKED_SECONDS))
