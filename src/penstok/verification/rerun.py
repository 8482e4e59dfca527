"""Workers for a job that was recorded: its settings checked, its inputs compared, processes made.

It decides nothing about what they do. `proof` lets them compare, `restore` lets them write,
`rebuild` lets them make checksums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import psutil

from penstok.engines import choose_engine, engine_needs, name_reference
from penstok.errors import DamageError, UsageError
from penstok.executors import ProcessExecutor
from penstok.inputs.feed import make_feed
from penstok.jobs.plan import input_needs
from penstok.jobs.settings import JobSettings
from penstok.output.segments import REMOTE_READ_BYTES
from penstok.readers.formats import open_scanner
from penstok.storage import REMOTE_BYTES, is_url
from penstok.storage.object_paths import OPEN_OBJECT_BYTES
from penstok.tokenizers import load_recorded_tokenizer
from penstok.types import DocumentRule, EotPlace, InvalidUtf8, MemoryNeeds
from penstok.worker.memory import divide_memory
from penstok.worker.worker import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstok.output.layout import Layout
    from penstok.output.segments import SinkKind
    from penstok.tokenizers import Tokenizer
    from penstok.types import JobRecord, Source

__all__ = ["default_unit_bytes", "make_executor", "rule_of_job"]

_TEXT_RULES = 2


@dataclass(frozen=True, slots=True)
class _Shaping:
    """What shapes the bytes, as it must stand in a record."""

    text_rules: int
    text_key: str
    docs_by: Literal["separator", "line", "file", "record"]
    doc_separator: str | None
    strip: bool
    eot: EotPlace
    val_fraction: float
    seed: int
    shard_tokens: int | None
    invalid_utf8: InvalidUtf8
    limit_bytes: int | None


def default_unit_bytes() -> int:
    """Return the size of a unit in a job that was asked for no other."""
    return JobSettings(inputs=("any",)).unit_bytes


def rule_of_job(job: JobRecord) -> DocumentRule:
    """Return how the documents of a recorded job were told apart.

    Raises:
        DamageError: If its settings make no sense.
    """
    settings = _settings(job)
    if settings.docs_by == "separator":
        return DocumentRule("separator", (settings.doc_separator or "").encode())
    if job.settings["docs_by"] == "record":
        return DocumentRule("record")
    return DocumentRule("line", b"\n") if settings.docs_by == "line" else DocumentRule("file")


def make_executor(
    job: JobRecord,
    layout: Layout,
    sources: Sequence[Source],
    sink: SinkKind,
    *,
    engine: Literal["auto", "reference"],
    workers: int | None,
    memory_bytes: int,
    lock_file: int | None = None,
) -> ProcessExecutor:
    """Make workers that encode units of a recorded job again.

    Args:
        job: What shaped the bytes.
        layout: Where the tokens are.
        sources: The inputs.
        sink: What the workers do with the tokens.
        engine: The fastest, or the one whose ids are right by definition.
        workers: How many; None for as many as there are cores.
        memory_bytes: For all of them and this process.
        lock_file: The folder's lock, for workers that write.

    Raises:
        DamageError: If the record makes no sense, or its tokenizer is not known.
    """
    settings = _settings(job)
    tokenizer = _load_tokenizer(job)
    wanted = name_reference(tokenizer) if engine == "reference" else engine
    chosen, _ = choose_engine(wanted, tokenizer)
    num_workers, share, _ = divide_memory(
        memory_bytes,
        engine_needs(chosen, tokenizer),
        len(sources),
        workers,
        [*input_needs(sources, job.unit_bytes), *_output_needs(layout)],
    )
    total = sum(source.num_bytes for source in sources)
    give_back = total > psutil.virtual_memory().total // 4
    spec = WorkerSpec(
        tokenizer=tokenizer,
        engine=chosen,
        rule=rule_of_job(job),
        eot=settings.eot,
        val_fraction=settings.val_fraction,
        seed=settings.seed,
        strip=settings.strip,
        text_key=settings.text_key,
        # What was a bad record then is one now, and was left out or stopped the job.
        on_error="skip",
        invalid_utf8=settings.invalid_utf8,
        dtype=job.dtype,
        block_bytes=settings.block_bytes,
        layout=layout,
        share=share,
        give_back=give_back,
        sink=sink,
    )
    return ProcessExecutor(
        spec,
        num_workers=num_workers,
        batch_bytes=job.unit_bytes,
        priority="low",
        lock_file=lock_file,
        feed=make_feed(
            sources,
            num_workers,
            job.unit_bytes,
            open_scanner=open_scanner,
            on_error="skip",
            give_back=give_back,
        ),
    )


def _output_needs(layout: Layout) -> list[MemoryNeeds]:
    """Return what comparing with objects takes, in this process and in each worker."""
    if not is_url(layout.folder):
        return []
    reading_bytes = REMOTE_BYTES + REMOTE_READ_BYTES + OPEN_OBJECT_BYTES
    return [MemoryNeeds(REMOTE_BYTES, reading_bytes)]


def _settings(job: JobRecord) -> JobSettings:
    """Check the recorded settings as if a user had typed them."""
    try:
        shaping = msgspec.convert(job.settings, _Shaping)
        if shaping.text_rules != _TEXT_RULES:
            raise _senseless(f"text rules {shaping.text_rules} are of another version of penstok")
        known: dict[str, Any] = {
            name: getattr(shaping, name)
            for name in ("strip", "eot", "val_fraction", "seed", "shard_tokens", "invalid_utf8")
        }
        return JobSettings(
            inputs=("as recorded",),
            doc_separator=shaping.doc_separator,
            docs_by="auto" if shaping.docs_by == "record" else shaping.docs_by,
            text_key=shaping.text_key,
            limit_bytes=shaping.limit_bytes,
            **known,
        )
    except (UsageError, ValueError) as error:
        raise _senseless(f"the recorded settings make no sense: {error}") from error


def _load_tokenizer(job: JobRecord) -> Tokenizer:
    try:
        tokenizer = load_recorded_tokenizer(job.tokenizer)
    except UsageError as error:
        raise _senseless(error.what) from error
    if (tokenizer.vocab_size, tokenizer.eot_id) != (job.tokenizer.vocab_size, job.tokenizer.eot_id):
        raise _senseless(f"the job's tokenizer was another `{tokenizer.name}` than the one here")
    return tokenizer


def _senseless(what: str) -> DamageError:
    return DamageError(
        what,
        where="the first line of segments.jsonl",
        next_step="use the version of penstok that made the output, or make it anew with "
        "`penstok tokenize INPUT... --overwrite`",
    )
