"""The ledger: one line for each finished unit, in unit order.

It records and adds up; it decides nothing. The pipeline appends to it while the job runs; the
store renames it to `segments.jsonl` when the job is done.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

import xxhash

from penstock.store import write_errors

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from penstock.types import Finished, Split

__all__ = ["Ledger"]


class Ledger:
    """An open ledger; use it in a `with`.

    The digest of an output file is an xxh3_128 over the digests of its segments in order, so that
    no token is read a second time to make it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digests: dict[tuple[Split, int], xxhash.xxh3_128] = {}

    def __enter__(self) -> Ledger:
        with write_errors(self._path):
            self._file: TextIO = self._path.open("w", encoding="utf-8")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with write_errors(self._path):
            self._file.close()

    def append(self, finished: Finished) -> None:
        """Record a finished unit; units must come in order.

        The line holds all that `Offsets` took from the unit, so that it can be made from lines.
        """
        unit, encoded = finished.unit, finished.encoded
        counts = {name: count for name, count in asdict(encoded.counts).items() if count}
        line = {
            "unit": unit.index,
            "input": unit.source_idx,
            "start": unit.start,
            "end": unit.end,
            "counts": counts,
            "documents": encoded.documents,
            "carried": [finished.grant.carried_split, encoded.carried_tokens],
            "carried_special": encoded.carried_special,
            "open": encoded.open_split,
            "open_special": encoded.open_special,
            "segments": [list(asdict(segment).values()) for segment in finished.receipt.segments],
        }
        with write_errors(self._path):
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        for segment in finished.receipt.segments:
            running = self._digests.setdefault((segment.split, segment.shard), xxhash.xxh3_128())
            running.update(bytes.fromhex(segment.digest))

    def file_digest(self, split: Split, shard: int) -> str:
        """Return the digest of an output file over the segments recorded so far."""
        return self._digests.get((split, shard), xxhash.xxh3_128()).hexdigest()
