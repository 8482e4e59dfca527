"""Where every token goes: the files of a split, their names, and the places inside them.

It touches no file. Worker, store and verify ask it; `docs/reference/manifest.md` shows the names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.types import JobRecord, Split

__all__ = ["LEDGER", "MANIFEST", "SEGMENTS", "SKIPPED", "WORK", "Layout", "is_own_name"]

LEDGER = "ledger.jsonl"
MANIFEST = "manifest.json"
SEGMENTS = "segments.jsonl"
SKIPPED = "skipped.jsonl"
WORK = ".penstock"
_OWN_NAME = re.compile(
    r"(train|val)(_shard_\d{5,})?\.bin|manifest\.json|segments\.jsonl|skipped\.jsonl"
)
_MAX_SHARDS = 100_000


def is_own_name(path: Path, folder: Path) -> bool:
    """Tell whether a path is one that a job writes in its output folder."""
    return bool(_OWN_NAME.fullmatch(path.name)) and path.parent.resolve() == folder.resolve()


@dataclass(frozen=True, slots=True)
class Layout:
    """Which file and place a token of a split goes to."""

    folder: str
    token_bytes: int
    shard_tokens: int | None

    @classmethod
    def of_job(cls, folder: Path, job: JobRecord) -> Layout:
        """Return the layout of a job's output.

        Raises:
            ValueError: If the record is not one that a job could have made.
        """
        shard_tokens = job.settings.get("shard_tokens")
        if shard_tokens is not None and (not isinstance(shard_tokens, int) or shard_tokens < 1):
            raise ValueError(f"shards of {shard_tokens!r} tokens")
        return cls(str(folder), int(job.dtype[4:]) // 8, shard_tokens)

    def file_name(self, split: Split, shard: int) -> str:
        """Return a file's final name."""
        return f"{split}.bin" if self.shard_tokens is None else f"{split}_shard_{shard:05}.bin"

    def partial_path(self, split: Split, shard: int) -> Path:
        """Return where a file is written until the job is done."""
        return Path(self.folder, WORK, self.file_name(split, shard) + ".partial")

    def final_path(self, split: Split, shard: int) -> Path:
        """Return where a file stands when the job is done."""
        return Path(self.folder, self.file_name(split, shard))

    def num_shards(self, num_tokens: int) -> int:
        """Return how many files a split has; an empty one has one."""
        return 1 if self.shard_tokens is None else max(-(-num_tokens // self.shard_tokens), 1)

    def shard_size(self, num_tokens: int, shard: int) -> int:
        """Return how many tokens of a split of `num_tokens` one file holds."""
        if self.shard_tokens is None:
            return num_tokens
        return min(num_tokens - shard * self.shard_tokens, self.shard_tokens)

    def check_shards(self, num_tokens: int) -> None:
        """Refuse so many shards that their names would no longer sort in order."""
        if self.shard_tokens and num_tokens // self.shard_tokens >= _MAX_SHARDS:
            raise UsageError(
                f"about {num_tokens // self.shard_tokens} shards are too many",
                where="--shard-tokens",
                next_step=f"pass `--shard-tokens {num_tokens // 1000 + 1}` or more",
            )

    def iter_places(self, offset: int, num_tokens: int) -> Iterator[tuple[int, int, int]]:
        """Divide a run of tokens at shard borders: (shard, offset inside it, tokens)."""
        size = self.shard_tokens or max(offset + num_tokens, 1)
        while num_tokens > 0:
            shard, inside = divmod(offset, size)
            fitting = min(num_tokens, size - inside)
            yield shard, inside, fitting
            offset, num_tokens = offset + fitting, num_tokens - fitting
