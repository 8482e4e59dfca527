"""A preview of a job: its inputs, its first documents with ids, and an estimate from a sample.

It writes nothing and starts no process: a `Worker` encodes in this process for about a second.
`cli` shows the result for `--dry-run`, before hours are spent on the wrong flag.
"""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from penstok.engines.alternatives import (
    SAMPLE_BYTES,
    advise,
    has_short_tokens,
)
from penstok.jobs.formats import count_copied_bytes, find_requests
from penstok.jobs.job import prepare
from penstok.jobs.tasks import divide_tasks
from penstok.jobs.warnings import way_to_val
from penstok.readers.formats import FORMATS
from penstok.types import SPLITS, UTF_8, Counts, Struct, UnitOffsets, replace
from penstok.worker.memory import MemoryShare
from penstok.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstok.jobs.job import Job
    from penstok.jobs.settings import JobSettings
    from penstok.types import Source, TokenizerRecord, Unit

__all__ = ["InputKind", "Preview", "ShownDocument", "make_preview"]

_NUM_DOCUMENTS = 3
_SHOWN_IDS = 6
_SAMPLE_BYTES = 1 << 20
_SAMPLE_ROWS = 256
_SAMPLE_SOURCES = 8
_SAMPLE_SECONDS = 1.5
_OFTEN_EMPTY = 0.1


class InputKind(Struct, frozen=True):
    """The inputs with the same format, compression and encoding; their size as it is stored."""

    format: str
    compression: str | None
    num_inputs: int
    num_bytes: int
    encoding: str = UTF_8


class ShownDocument(Struct, frozen=True):
    """One of the first documents; each id comes with its text."""

    path: str
    num_bytes: int
    num_tokens: int
    head: str
    tail: str
    first_ids: list[tuple[int, str]]
    last_ids: list[tuple[int, str]]


class Sample(Struct, frozen=True):
    """The sample that estimates are based on.

    `stored_bytes` is how many bytes of the stored inputs it covers.
    """

    stored_bytes: int
    seconds: float
    counts: Counts

    @property
    def ids_per_second(self) -> float:
        """The speed of one worker."""
        return self.counts.tokens / max(self.seconds, 1e-6)


class Estimate(Struct, frozen=True):
    """An estimate of the whole job, assuming that the sample is representative."""

    documents: int
    tokens: int
    output_bytes: int
    seconds: float
    text_bytes: int


class Preview(Struct, frozen=True):
    """What `tokenize` would do, and an estimate of the result.

    Attributes:
        inputs: The paths and URLs of the inputs, in order.
        kinds: How many of them have which format, compression and encoding.
        input_bytes: Their stored size, up to the limit; 0 if it is unknown.
        skipped: What would not be read, and why.
        output: Where the tokens would go.
        settings: The settings that shape the tokens, as the manifest records them.
        tokenizer: The tokenizer, and which ids begin and end a document.
        dtype: The type of the ids, `uint16` or `uint32`.
        documents: The first documents, with ids.
        sample: What was encoded for this preview.
        estimate: What the whole job would give; None if the size of the input is unknown.
        free_bytes: The free space on the output's disk; None if it is not a local one.
        engine: What would encode the text.
        num_workers: How many workers there would be.
        num_units: In how many units they would do the work; None if that is not known yet.
        num_tasks: In how many tasks; None if the job is one task.
        memory_bytes: The memory for all of them.
        worker_bytes: The memory for each worker.
        warnings: What to check before the job runs.
        hints: What would make it faster or the output smaller.
    """

    inputs: list[str]
    kinds: list[InputKind]
    input_bytes: int
    skipped: dict[str, str]
    output: str
    settings: dict[str, Any]
    tokenizer: TokenizerRecord
    dtype: str
    documents: list[ShownDocument]
    sample: Sample
    estimate: Estimate | None
    free_bytes: int | None
    engine: str
    num_workers: int
    num_units: int | None
    num_tasks: int | None
    memory_bytes: int
    worker_bytes: int
    warnings: list[str]
    hints: list[str]


def make_preview(settings: JobSettings) -> Preview:
    """Find a job's inputs, and encode a sample of them."""
    with closing(prepare(settings)) as job:
        documents, sample, advice = _encode_sample(job)
    plan = job.plan
    estimate = _estimate(job, sample)
    is_remote = isinstance(settings.output, str)
    free_bytes = None if is_remote else shutil.disk_usage(_existing(settings.folder)).free
    task_bytes = job.rules.task_bytes
    return Preview(
        inputs=[source.path for source in plan.sources],
        kinds=_group_inputs(plan.sources),
        input_bytes=plan.input_bytes,
        skipped=plan.skipped | plan.ignored,
        output=str(settings.output),
        settings=job.record.settings,
        tokenizer=job.record.tokenizer,
        dtype=job.record.dtype,
        documents=documents,
        sample=sample,
        estimate=estimate,
        free_bytes=free_bytes,
        engine=job.engine,
        num_workers=job.num_workers,
        num_units=plan.num_units,
        num_tasks=None if task_bytes is None else len(divide_tasks(plan, task_bytes)),
        memory_bytes=settings.memory_bytes,
        worker_bytes=job.share.limit_bytes,
        warnings=_warnings(job, sample, estimate, free_bytes),
        hints=[*job.hints, *([advice] if advice else [])],
    )


def _encode_sample(job: Job) -> tuple[list[ShownDocument], Sample, str]:
    """Encode a sample; return its first documents, what it gave, and advice about the tokenizer."""
    if job.feed is not None:
        job.feed.start_over()
    spec = replace(
        job.workers.spec,
        share=MemoryShare(1 << 62, 0),
        # Nothing is written, so one file per split is enough.
        layout=replace(job.layout, shard_tokens=None, starts=None),
        sink="digest",
        ring=None if job.feed is None else job.feed.ring.file,
    )
    documents: list[ShownDocument] = []
    sample, advice = Sample(0, 0.0, Counts()), ""
    worker = Worker(spec)
    for unit in _iter_samples(job):
        if len(documents) < _NUM_DOCUMENTS:
            documents += _show(worker, job, unit, _NUM_DOCUMENTS - len(documents))
        sample = _add_to_sample(worker, unit, sample)
        advice = advice or _advise(worker, job, unit, sample)
        if sample.seconds > _SAMPLE_SECONDS:
            break
    return documents, sample, advice


def _iter_samples(job: Job) -> Iterator[Unit]:
    feed = job.feed
    for unit in job.plan.samples(_SAMPLE_BYTES, _SAMPLE_ROWS, _SAMPLE_SOURCES):
        if feed is None or not unit.source.is_stream:
            yield unit
        elif (filled := feed.fill_sample(unit)) is not None:
            yield filled
            feed.release(filled)


def _show(worker: Worker, job: Job, unit: Unit, most: int) -> list[ShownDocument]:
    """Return the first documents of a unit, up to `most`."""
    shown: list[ShownDocument] = []
    for text, ids in worker.iter_documents(unit):
        shown.append(
            ShownDocument(
                unit.source.path,
                len(text),
                len(ids),
                text[:200].decode(errors="replace"),
                text[-200:].decode(errors="replace"),
                _ids_with_text(job, ids[:_SHOWN_IDS]),
                _ids_with_text(job, ids[-_SHOWN_IDS:]),
            )
        )
        if len(shown) == most:
            break
    return shown


def _advise(worker: Worker, job: Job, unit: Unit, sample: Sample) -> str:
    """Name a tokenizer that needs far fewer tokens for the documents of a unit, if there is one."""
    tokenizer, counts = job.tokenizer, sample.counts
    if not has_short_tokens(tokenizer, counts.tokens, counts.text_bytes):
        return ""
    text, num_tokens = bytearray(), 0
    for document, ids in worker.iter_documents(unit):
        used = document[: SAMPLE_BYTES - len(text)]
        text += used
        num_tokens += len(ids) * len(used) // max(len(document), 1)
        if len(text) >= SAMPLE_BYTES:
            break
    return advise(tokenizer, bytes(text), num_tokens, job.layout.token_bytes, measures=True)


def _ids_with_text(job: Job, ids: list[int]) -> list[tuple[int, str]]:
    """Return ids with their text; bytes that are only a part of a character are shown as such."""
    tokens = [(one, job.tokenizer.decode_bytes([one])) for one in ids]
    return [(one, token.decode(errors="backslashreplace")) for one, token in tokens]


def _add_to_sample(worker: Worker, unit: Unit, before: Sample) -> Sample:
    """Encode a unit and add it to the sample."""
    start = time.perf_counter()
    encoded = worker.encode(unit)
    seconds = time.perf_counter() - start
    zeros = dict.fromkeys(SPLITS, 0)
    worker.write(UnitOffsets(unit.index, "train", zeros, zeros))
    return Sample(
        before.stored_bytes + unit.stored_bytes(encoded.counts.input_bytes),
        before.seconds + seconds,
        before.counts + encoded.counts,
    )


def _estimate(job: Job, sample: Sample) -> Estimate | None:
    if not job.plan.input_bytes or not sample.stored_bytes:
        return None
    times = max(job.plan.input_bytes / sample.stored_bytes, 1.0)
    tokens = round(sample.counts.tokens * times)
    documents = round(sample.counts.documents * times)
    has_records = any(FORMATS[source.format].has_records for source in job.plan.sources)
    if job.plan.rule.kind == "file" and not has_records:
        # The sample is of the first files, which may be smaller than others.
        documents = min(documents, len(job.plan.sources))
    return Estimate(
        documents=documents,
        tokens=tokens,
        output_bytes=tokens * job.layout.token_bytes
        + documents * job.layout.entry_bytes
        + count_copied_bytes(find_requests(job.record.settings), job.rules.dtype, tokens),
        seconds=tokens / max(sample.ids_per_second, 1e-6) / job.num_workers,
        text_bytes=round(sample.counts.text_bytes * times),
    )


def _group_inputs(sources: Sequence[Source]) -> list[InputKind]:
    kinds: dict[tuple[str, str | None, str], list[int]] = {}
    for source in sources:
        kind = source.format, source.compression, source.encoding
        sums = kinds.setdefault(kind, [0, 0])
        sums[0] += 1
        sums[1] += source.num_bytes
    return [
        InputKind(name, compression, sums[0], sums[1], encoding)
        for (name, compression, encoding), sums in kinds.items()
    ]


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def _warnings(
    job: Job, sample: Sample, estimate: Estimate | None, free_bytes: int | None
) -> list[str]:
    """List what the user should check before running the job."""
    counts, settings = sample.counts, job.settings
    warnings = []
    if job.plan.rule.kind == "file" and settings.docs_by == "auto":
        warnings.append(
            "no separator was found: each file is one document; pass `--doc-separator TEXT` or "
            "`--docs-by line` if it holds several, `--docs-by file` if not"
        )
    seen = counts.documents + counts.empty_documents + counts.skipped_records
    for number, what in (
        (counts.empty_documents, "are empty and will be dropped"),
        (counts.skipped_records, "cannot be used and will be skipped"),
    ):
        if number > _OFTEN_EMPTY * seen:
            of_key = f" (text key `{settings.text_key}`)" if job.plan.rule.kind == "record" else ""
            warnings.append(f"{number:,} of the first {seen:,} documents{of_key} {what}")
    if counts.special_text_documents:
        warnings.append(
            f"{counts.special_text_documents:,} of the first {seen:,} documents contain the text "
            f"`{job.tokenizer.eot_text}`: it is encoded as ordinary text"
        )
    if job.layout.token_bytes > 2:
        warnings.append(
            f"{job.tokenizer.vocab_size:,} ids do not fit uint16: tokens take 4 bytes (uint32)"
            if job.tokenizer.vocab_size > 1 << 16
            else "`--dtype uint32`: tokens take twice the space they need"
        )
    is_full = estimate is not None and free_bytes is not None and estimate.output_bytes > free_bytes
    if is_full:
        warnings.append("too little disk space: the output will not fit; choose another `-o`")
    if job.rules.val_hash is not None:
        warnings.append(
            f"`--val-fraction {settings.val_fraction}` gives val no document: one will be "
            "chosen by its hash; pass a larger `--val-fraction` for more"
        )
    elif estimate is not None and 0 < settings.val_fraction * estimate.documents < 1:
        way = way_to_val(estimate.documents, job.rules.to_settings())
        warnings.append(f"val may be empty: {way}")
    return warnings
