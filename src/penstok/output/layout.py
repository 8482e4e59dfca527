"""The layout of an output: the files of a split, their names, and which tokens each holds.

It opens no file. `output.segments`, the stores and `verification` use it;
`docs/reference/manifest.md` lists the names.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstok.errors import UsageError
from penstok.output.spools import ENTRY_TYPES
from penstok.storage.object_paths import output_path
from penstok.types import SPLITS, Struct, replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstok.output.manifest import Manifest
    from penstok.output.spools import IndexKind
    from penstok.storage.object_paths import OutputPath
    from penstok.types import JobRecord, Split

__all__ = [
    "JOB",
    "MANIFEST",
    "MAX_SHARDS",
    "RECORDS",
    "SEGMENTS",
    "SKIPPED",
    "WORK",
    "Layout",
    "is_final_name",
    "is_own_name",
]

JOB = "job.jsonl"
MANIFEST = "manifest.json"
SEGMENTS = "segments.jsonl"
SKIPPED = "skipped.jsonl"
RECORDS = (MANIFEST, SEGMENTS, SKIPPED)
WORK = ".penstok"
_OWN_NAME = re.compile(
    r"(train|val)(_shard_\d{5,})?(\.bin|\.idx|_documents\.npy|_origins\.npy|_fields\.parquet|_mask\.npy)"
    r"|manifest\.json|segments\.jsonl|skipped\.jsonl"
)
# With more shards, their names would no longer sort in order.
MAX_SHARDS = 100_000


def is_own_name(path: OutputPath, folder: OutputPath) -> bool:
    """Return whether a path is a file that a job writes in its output folder."""
    return bool(_OWN_NAME.fullmatch(path.name)) and path.parent.resolve() == folder.resolve()


def is_final_name(name: str) -> bool:
    """Return whether a name is one that a job gives to an output file."""
    return bool(_OWN_NAME.fullmatch(name))


class Layout(Struct, frozen=True):
    """Maps the tokens of a split to files and offsets.

    A split is one file, shards of `shard_tokens` each, or one shard per task.

    Attributes:
        folder: The output.
        token_bytes: The size of a token.
        shard_tokens: Tokens per shard; None for one file, or for one shard per task.
        starts: With one shard per task, per split, the offset at which each shard starts; otherwise
            None. The lists grow while a ledger is read.
        first_shard: The number of the first shard in `starts`.
        work: The folder in which files are written until the job is done.
        piece_bytes: Files are written in pieces of this size, each a separate file that is removed
            once it is full and uploaded; None for undivided files.
        has_index: Whether a document index is written for each file.
        has_origins: Whether the origins of its documents are written, too.
        kept_fields: The fields of records that are written, too.
    """

    folder: str
    token_bytes: int
    shard_tokens: int | None
    starts: Mapping[Split, Sequence[int]] | None = None
    first_shard: int = 0
    work: str = WORK
    piece_bytes: int | None = None
    has_index: bool = True
    has_origins: bool = False
    kept_fields: tuple[str, ...] = ()

    @classmethod
    def of_job(
        cls,
        folder: OutputPath | str,
        job: JobRecord,
        starts: Mapping[Split, Sequence[int]] | None = None,
    ) -> Layout:
        """Return the layout of a job's output; `starts` are the offsets of shards made by tasks.

        Raises:
            ValueError: If no job could have written the record.
        """
        shard_tokens, task_bytes = (
            job.settings.get(name) for name in ("shard_tokens", "task_bytes")
        )
        for size in (shard_tokens, task_bytes):
            if size is not None and (not isinstance(size, int) or size < 1):
                raise ValueError(f"invalid shard or task size {size!r}")
        if task_bytes is not None and starts is None:
            starts = {split: [] for split in SPLITS}
        return cls(
            str(folder),
            int(job.dtype[4:]) // 8,
            shard_tokens,
            starts,
            has_index=job.settings.get("document_index") != "none",
            has_origins=bool(job.settings.get("provenance")),
            kept_fields=_kept_fields(job.settings),
        )

    @classmethod
    def of_manifest(cls, folder: OutputPath | str, manifest: Manifest) -> Layout:
        """Return the layout of a finished job's output."""
        return cls(
            str(folder),
            int(manifest.dtype[4:]) // 8,
            manifest.settings.get("shard_tokens"),
            manifest.shard_starts(),
            has_index=manifest.settings.get("document_index") != "none",
            has_origins=bool(manifest.settings.get("provenance")),
            kept_fields=_kept_fields(manifest.settings),
        )

    def of_task(self, number: int, folder: str, work: str, piece_bytes: int | None) -> Layout:
        """Return the layout for one task: everything goes to the shard with the task's number."""
        return replace(
            self,
            folder=folder,
            starts={split: [0] for split in SPLITS},
            first_shard=number,
            work=work,
            piece_bytes=piece_bytes,
        )

    @property
    def is_by_task(self) -> bool:
        """Whether every task writes its own shard."""
        return self.starts is not None

    def file_name(self, split: Split, shard: int) -> str:
        """Return a file's final name."""
        is_one = self.shard_tokens is None and self.starts is None
        return f"{split}.bin" if is_one else f"{split}_shard_{shard:05}.bin"

    @property
    def index_kinds(self) -> tuple[IndexKind, ...]:
        """The indexes that are written beside each file."""
        wanted: dict[IndexKind, bool] = {
            "documents": True,
            "origins": self.has_origins,
            "fields": bool(self.kept_fields),
        }
        return tuple(kind for kind in wanted if self.has_index and wanted[kind])

    @property
    def entry_bytes(self) -> int:
        """What a document takes in the spools, and again in the indexes, without kept fields."""
        return sum(ENTRY_TYPES[kind].itemsize for kind in self.index_kinds if kind in ENTRY_TYPES)

    def spool_path(self, split: Split, kind: IndexKind) -> Path:
        """Return where workers write an entry per document while the job runs.

        That of fields is a folder with a file per unit: they have no fixed length.
        """
        return Path(self.folder, self.work, f"{split}_{kind}.spool")

    def partial_path(self, split: Split, shard: int) -> Path:
        """Return the path of a file while the job runs, for an output in a folder."""
        return Path(self.folder, self.work, self.file_name(split, shard) + ".partial")

    def final_path(self, split: Split, shard: int) -> Path:
        """Return the path of a file when the job is done, for an output in a folder."""
        return Path(self.folder, self.file_name(split, shard))

    def finished_path(self, split: Split, shard: int) -> OutputPath:
        """Return the path of a finished file, in a folder or in an object store."""
        return output_path(self.folder) / self.file_name(split, shard)

    def num_shards(self, split: Split, num_tokens: int) -> int:
        """Return how many files a split has; an empty split has one."""
        if self.starts is not None:
            return len(self.starts[split])
        return 1 if self.shard_tokens is None else max(-(-num_tokens // self.shard_tokens), 1)

    def shard_size(self, split: Split, num_tokens: int, shard: int) -> int:
        """Return how many tokens of a split of `num_tokens` one file holds."""
        if self.starts is not None:
            ends = [*self.starts[split][shard + 1 : shard + 2], num_tokens]
            return ends[0] - self.starts[split][shard]
        if self.shard_tokens is None:
            return num_tokens
        return min(num_tokens - shard * self.shard_tokens, self.shard_tokens)

    def iter_shards(self, split: Split, num_tokens: int) -> Iterator[tuple[int, int]]:
        """Yield the number of each file of a split of `num_tokens`, and its tokens."""
        for idx in range(self.num_shards(split, num_tokens)):
            yield self.first_shard + idx, self.shard_size(split, num_tokens, idx)

    def check_shards(self, num_tokens: int) -> None:
        """Refuse a shard count with which names would no longer sort in order."""
        if self.shard_tokens and num_tokens // self.shard_tokens >= MAX_SHARDS:
            num_shards = num_tokens // self.shard_tokens
            raise UsageError(
                f"about {num_shards} shards are too many; the limit is {MAX_SHARDS}",
                where="--shard-tokens",
                next_step=f"pass `--shard-tokens {num_tokens // 1000 + 1}` or more",
            )

    def iter_shard_ranges(
        self, split: Split, offset: int, num_tokens: int
    ) -> Iterator[tuple[int, int, int]]:
        """Divide a run of tokens at shard boundaries: (shard, offset in the shard, tokens)."""
        while num_tokens > 0:
            shard, inside, size = self._find(split, offset, num_tokens)
            fitting = min(num_tokens, size - inside)
            yield shard, inside, fitting
            offset, num_tokens = offset + fitting, num_tokens - fitting

    def _find(self, split: Split, offset: int, num_tokens: int) -> tuple[int, int, int]:
        """Return the shard at an offset, the offset in the shard, and the shard's capacity."""
        if self.starts is None:
            size = self.shard_tokens or offset + num_tokens
            return *divmod(offset, size), size
        starts = self.starts[split]
        # Empty shards start at the same offset as the next shard: bisect finds the last of them.
        idx = bisect_right(starts, offset) - 1
        end = starts[idx + 1] if idx + 1 < len(starts) else offset + num_tokens
        return self.first_shard + idx, offset - starts[idx], end - starts[idx]


def _kept_fields(settings: Mapping[str, Any]) -> tuple[str, ...]:
    kept = settings.get("keep")
    return tuple(kept.split(",")) if isinstance(kept, str) and kept else ()
