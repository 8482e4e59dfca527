"""Which document goes to val in a small corpus, where `--val-fraction` gives none.

It reads documents with the readers of the workers and hashes them; it encodes and writes nothing.
The answer depends on inputs and settings alone and is part of `TextRules`: workers, resume, verify
and Ray receive it from `jobs.job`, which asks for it before the first unit.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING

from penstok.inputs.feed import make_feed
from penstok.inputs.streams import STANDARD_INPUT, read_head
from penstok.readers.formats import open_scanner
from penstok.storage import is_url
from penstok.types import replace
from penstok.worker.splits import SmallestHash
from penstok.worker.worker import make_hasher, make_readers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstok.inputs.feed import Feed
    from penstok.jobs.plan import Plan
    from penstok.output.manifest import Manifest
    from penstok.worker.worker import WorkerSpec

__all__ = ["find_val_hash", "was_searched"]

# A corpus with more content than this is not searched: reading it twice would cost more than a val
# split that may be empty (ADR 34). Remote inputs are slower; what is read of standard input is kept
# in memory until the job starts.
_MAX_LOCAL_BYTES = 1 << 30
_MAX_REMOTE_BYTES = 64 << 20
_MAX_PIPED_BYTES = 4 << 20
# Units of streams and remote inputs are read whole, and usually one of the first documents goes to
# val: a unit smaller than those of a job.
_UNIT_BYTES = 2 << 20
# Half a block of a job: less new memory, and no more time per byte.
_BLOCK_BYTES = 1 << 20


def find_val_hash(plan: Plan, spec: WorkerSpec, feed: Feed | None = None) -> str | None:
    """Return the hash of the documents for val if the fraction puts none there.

    It is the smallest that at most half of the documents have. None if the fraction puts one into
    val, if all documents are equal, or if the corpus is not small.

    Args:
        plan: What is read.
        spec: What the workers of the job are made from.
        feed: What will feed them, and can start over; if None, streams are read separately.
    """
    rules = spec.rules
    if not 0 < rules.val_fraction < 1 or plan.input_bytes > _max_bytes_of(plan):
        return None
    if plan.is_piped:
        # Damage is reported by the worker that reads up to it.
        head = read_head(plan.sources[0], _MAX_PIPED_BYTES + 1, on_error="skip")
        if len(head) > _MAX_PIPED_BYTES:
            return None
    smallest = SmallestHash(make_hasher(rules))
    if any(source.is_stream or is_url(source.path) for source in plan.sources):
        plan = plan.divided_by(min(_UNIT_BYTES, plan.unit_bytes))
    with _open_feed(plan, spec) if feed is None else nullcontext(feed) as used:
        if not _add_documents(plan, spec, smallest, used):
            return None
    chosen = smallest.choose()
    return None if chosen is None else f"{chosen:016x}"


def was_searched(manifest: Manifest) -> bool:
    """Return whether all documents of a finished job were searched for one to put into val."""
    paths = [record.path for record in manifest.inputs if record.reason is None]
    return manifest.counts["input_bytes"] <= _max_bytes(paths, is_piped=STANDARD_INPUT in paths)


def _max_bytes(paths: Iterable[str], *, is_piped: bool) -> int:
    if is_piped:
        return _MAX_PIPED_BYTES
    return _MAX_REMOTE_BYTES if any(map(is_url, paths)) else _MAX_LOCAL_BYTES


def _max_bytes_of(plan: Plan) -> int:
    return _max_bytes((source.path for source in plan.sources), is_piped=plan.is_piped)


@contextmanager
def _open_feed(plan: Plan, spec: WorkerSpec) -> Iterator[Feed | None]:
    feed = make_feed(
        plan.sources,
        1,
        plan.unit_bytes,
        open_scanner=open_scanner,
        on_error=spec.on_error,
        give_back=False,
        keeps_head=plan.is_piped,
    )
    with closing(feed) if feed else nullcontext():
        yield feed


def _add_documents(plan: Plan, spec: WorkerSpec, smallest: SmallestHash, feed: Feed | None) -> bool:
    """Add all documents; return False at the first that goes to val, or if there is too much."""
    left = _max_bytes_of(plan)
    ring = None if feed is None else feed.ring.file
    block_bytes = min(spec.block_bytes, _BLOCK_BYTES)
    readers = make_readers(replace(spec, block_bytes=block_bytes, ring=ring))
    for planned in plan.iter_units(lengths=None if feed is None else feed.lengths):
        unit = planned if feed is None else feed.fill(planned)
        if unit is None:
            continue
        reader = readers.choose(unit)
        for block in reader.iter_blocks(unit):
            smallest.add(block)
            if smallest.value is not None and smallest.value < spec.rules.val_hashes[1]:
                return False
        left -= reader.take_counts().input_bytes
        reader.take_skipped()
        if feed is not None:
            feed.release(unit)
        if left < 0:
            return False
    return True
