"""The plan of a job: its inputs, its document rule, and its units in output order.

It reads only the heads of inputs and starts nothing; the same inputs and settings always give the
same units. `jobs.tasks` divides a plan into tasks, `jobs.task` runs its units, and `jobs.preview`
shows it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstok.errors import InputError, UsageError
from penstok.inputs.compression import MAX_FRAME_BYTES
from penstok.inputs.discovery import OutputRules, read_list
from penstok.inputs.encodings import AUTO, has_single_bytes
from penstok.inputs.feed import feed_needs
from penstok.inputs.files import open_unit
from penstok.inputs.probe import probe_stored
from penstok.inputs.streams import STANDARD_INPUT, read_head
from penstok.output.layout import MANIFEST, WORK, is_own_name
from penstok.output.ledger.reader import Start
from penstok.output.manifest import is_manifest
from penstok.quantities import plural
from penstok.readers.formats import FORMATS, format_needs
from penstok.readers.probe import CsvOptions, find_sources
from penstok.storage import REMOTE_BYTES, is_url
from penstok.storage.object_paths import output_path
from penstok.types import (
    UNKNOWN_END,
    DocumentRule,
    MemoryNeeds,
    Struct,
    Unit,
    field,
    force_setattr,
    replace,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstok.jobs.settings import JobSettings
    from penstok.storage.object_paths import OutputPath
    from penstok.types import OnError, Source

__all__ = ["Plan", "input_needs", "make_plan", "nothing_found", "output_rules"]

_DEFAULT_SEPARATOR = b"<|endoftext|>"
_HEAD_BYTES = 4 << 20
_SHORT_HEAD_BYTES = 64 << 10
_HEAD_SOURCES = 16
_SAMPLE_BYTES = 32 << 10
_SAMPLE_ROWS = 16
_SAMPLE_SOURCES = 4
_SLOW_SECONDS = 10.0
_MAX_LISTED = 5
# Estimates of the output size are increased by this factor: text is not uniform.
_ROOM_MARGIN = 1.1
_BEGINNING = Start()


class Plan(Struct, frozen=True):
    """What a job is going to do.

    Attributes:
        sources: The inputs; in the plan of a task, only those it reads.
        skipped: The inputs that cannot be used, and why.
        rule: How text files are divided into documents.
        found_separator: Whether the separator was found in the text, not set by the user.
        unit_bytes: The size of a unit.
        limit_bytes: How much of the input is used; None for all of it.
        text_key: The field of a record that holds the text.
        first_source: The number in the job of the first input in `sources`.
        ignored: What was found in folders and is not text, and why; unlike `skipped`, nothing that
            was asked for is missing.
        hints: What would make planning faster, or a setting effective.
        input_bytes: The stored size of the inputs, up to the limit.
    """

    sources: list[Source]
    skipped: dict[str, str]
    rule: DocumentRule
    found_separator: bool
    unit_bytes: int
    limit_bytes: int | None
    text_key: str = "text"
    first_source: int = 0
    ignored: dict[str, str] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    input_bytes: int = 0

    def __post_init__(self) -> None:
        total = sum(source.num_bytes for source in self.sources)
        planned = total if self.limit_bytes is None else min(total, self.limit_bytes)
        force_setattr(self, "input_bytes", planned)

    def estimate_most(self, num_bytes: int, amount: int) -> int:
        """Estimate the largest amount of something, of which `num_bytes` of input gave `amount`."""
        return round(self.input_bytes * amount / max(num_bytes, 1) * _ROOM_MARGIN)

    @property
    def is_piped(self) -> bool:
        """Whether the input is standard input, which can be neither read again nor compared."""
        return any(source.path == STANDARD_INPUT for source in self.sources)

    @property
    def has_streams(self) -> bool:
        """Whether any input can only be read sequentially."""
        return any(source.is_stream for source in self.sources)

    @property
    def num_units(self) -> int | None:
        """How many units there are; None if that is known only after reading the inputs."""
        if any(source.is_stream or source.is_rows for source in self.sources):
            return None
        return sum(-(-end // self.unit_bytes) for _, _, end in self.iter_ends())

    def divided_by(self, unit_bytes: int) -> Plan:
        """Return the same plan with units of another size."""
        return replace(self, unit_bytes=unit_bytes)

    def iter_units(
        self,
        start: Start = _BEGINNING,
        lengths: Mapping[int, int] | None = None,
        stop: int | None = None,
    ) -> Iterator[Unit]:
        """Yield the units in the order of the output.

        Args:
            start: Where to begin.
            lengths: The length of each stream's content, by input; the reader of the stream adds it
                at its end, before it asks for the next unit.
            stop: In the last input, the position before which the last unit begins.
        """
        lengths = {} if lengths is None else lengths
        left = UNKNOWN_END if self.limit_bytes is None else self.limit_bytes
        for source, end in zip(self.sources, start.ends, strict=False):
            left -= source.num_bytes if source.is_rows else end
        index = start.unit_idx
        for idx in range(start.source_idx - self.first_source, len(self.sources)):
            source, source_idx = self.sources[idx], self.first_source + idx
            position = start.position if source_idx == start.source_idx else 0
            end = self._end_of(source, left)
            last = end if stop is None or idx + 1 < len(self.sources) else stop
            for begin, unit_end in self._divide(source, position, end):
                if begin >= min(lengths.get(source_idx, end), last):
                    break
                yield Unit(index, source_idx, source, begin, unit_end, end)
                index += 1
            left -= source.num_bytes if source.is_rows else min(end, lengths.get(source_idx, end))

    def iter_ends(self) -> Iterator[tuple[Source, int, int]]:
        """Yield each input, how much of the limit is left before it, and where the job stops in it.

        Without a limit, `UNKNOWN_END` is left before every input.
        """
        left = UNKNOWN_END if self.limit_bytes is None else self.limit_bytes
        for source in self.sources:
            end = self._end_of(source, left)
            yield source, left, end
            if self.limit_bytes is not None:
                left -= source.num_bytes if source.is_rows else end

    def _end_of(self, source: Source, left: int) -> int:
        """Return where the job stops in an input; for rows, in proportion to the file's bytes."""
        if not source.is_rows:
            return max(min(source.size, left), 0)
        share = min(max(left, 0), source.num_bytes)
        return -(-source.num_rows * share // source.num_bytes)

    def _divide(self, source: Source, position: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each unit of an input, from `position` on."""
        divide = FORMATS[source.format].divide
        if divide is None or source.is_empty:
            for begin in range(position, end, self.unit_bytes):
                yield begin, min(begin + self.unit_bytes, end)
            return
        for begin, stop in divide(source, self.text_key, self.unit_bytes):
            if position <= begin < end:
                yield begin, min(stop, end)

    def samples(
        self,
        num_bytes: int = _SAMPLE_BYTES,
        num_rows: int = _SAMPLE_ROWS,
        max_sources: int = _SAMPLE_SOURCES,
    ) -> list[Unit]:
        """Choose small units: at the start of a few inputs, and in the middle if that is cheap."""
        sources = [(idx, source) for idx, source in enumerate(self.sources) if not source.is_empty]
        step = max(len(sources) // max_sources, 1)
        return [
            Unit(0, idx, source, start, min(start + size, source.size), source.size)
            for idx, source in sources[::step][:max_sources]
            for size in (num_rows if source.is_rows else num_bytes,)
            for start in _sample_starts(source, size)
        ]


def _sample_starts(source: Source, size: int) -> list[int]:
    """Return where samples of an input begin: in its middle too, if that can be read cheaply."""
    middle = source.size // 2
    is_cheap = not source.is_stream and not source.is_rows and middle >= size
    return [0, middle] if is_cheap else [0]


def nothing_found(sources: Sequence[Source], num_empty: int) -> InputError:
    """Return the error for inputs without documents; `num_empty` were found empty and dropped."""
    num_empty += sum(1 for source in sources if source.is_empty)
    more = f" and {plural(len(sources) - 1, 'other input')}" if len(sources) > 1 else ""
    has_texts = any(not FORMATS[source.format].has_records for source in sources)
    return InputError(
        "no document in the input"
        + (f": {plural(num_empty, 'empty one')} dropped" if num_empty else ""),
        where=f"{sources[0].path}{more}",
        next_step="check the text and `--doc-separator`"
        if has_texts
        else "check the records, and pass the field that holds the text as `--text-key`",
    )


def input_needs(sources: Sequence[Source], unit_bytes: int) -> list[MemoryNeeds]:
    """Return the memory that reading these inputs needs."""
    has_frames = any(source.content_bytes for source in sources)
    is_remote = any(is_url(source.path) for source in sources)
    return [
        feed_needs(sources, unit_bytes),
        *format_needs(sources),
        *([MemoryNeeds(worker_bytes=3 * MAX_FRAME_BYTES)] if has_frames else []),
        *(
            [MemoryNeeds(parent_bytes=REMOTE_BYTES, worker_bytes=REMOTE_BYTES + unit_bytes)]
            if is_remote
            else []
        ),
    ]


def make_plan(settings: JobSettings) -> Plan:
    """Find the inputs and decide how they are divided into documents."""
    path = settings.files_from
    listed = [] if path is None else read_list(path, is_null=settings.null)
    inputs = (*settings.inputs, *listed)
    started = time.monotonic()
    found = find_sources(
        inputs,
        outputs=output_rules(settings.output),
        on_error=settings.on_error,
        input_format=None if settings.input_format == "auto" else settings.input_format,
        text_key=settings.text_key,
        csv=CsvOptions(settings.csv_delimiter or "", settings.no_header),
        encoding=settings.encoding,
    )
    sources = found.sources
    rule, found_separator = _choose_rule(settings, sources)
    return Plan(
        sources,
        found.skipped,
        rule,
        found_separator,
        settings.unit_bytes,
        settings.limit_bytes,
        settings.text_key,
        ignored=found.ignored,
        hints=(
            *_listing_hints(sources, time.monotonic() - started),
            *_encoding_hints(settings, sources),
        ),
    )


def _encoding_hints(settings: JobSettings, sources: Sequence[Source]) -> tuple[str, ...]:
    """Name the inputs whose detected encoding gives every byte a meaning, right or wrong."""
    if settings.encoding != AUTO:
        return ()
    guesses = [each for each in sources if has_single_bytes(each.encoding)]
    if not guesses:
        return ()
    named = ", ".join(f"{each.path} ({each.encoding})" for each in guesses[:_MAX_LISTED])
    more = f" and {len(guesses) - _MAX_LISTED:,} more" if len(guesses) > _MAX_LISTED else ""
    return (
        f"the encoding of {plural(len(guesses), 'input')} is a guess that no error can refute: "
        f"{named}{more}; look at the text with `penstok show`, and pass another `--encoding` if "
        "letters are wrong",
    )


def _listing_hints(sources: Sequence[Source], seconds: float) -> tuple[str, ...]:
    """Say why finding the inputs took long, if it was because of compressed archives."""
    path = next(
        (each.stored.path for each in sources if each.archive and each.stored.is_stream), None
    )
    if path is None or seconds < _SLOW_SECONDS:
        return ()
    return (
        f"finding the members of `{path}` and other inputs took {seconds:.0f} s, because "
        "compressed archives have to be decompressed for that; uncompressed ones do not",
    )


def output_rules(output: Path | str) -> OutputRules:
    """Return how the output of this job, and outputs of other jobs, are told from text."""

    def is_own_folder(folder: str) -> bool:
        return _is_own(f"{folder.rstrip('/')}/{MANIFEST}", output)

    def is_other(folder: str, marks: Iterable[str]) -> bool:
        if is_own_folder(folder):
            return False
        if WORK in marks:
            return True
        with suppress(InputError):
            return is_manifest(probe_stored(f"{folder.rstrip('/')}/{MANIFEST}")[1].head)
        return False

    marks = frozenset({MANIFEST, WORK})
    return OutputRules(lambda path: _is_own(path, output), is_own_folder, marks, is_other)


def _is_own(path: str, output: Path | str) -> bool:
    """Return whether an input is a file that the job itself writes."""
    if isinstance(output, Path):
        return not is_url(path) and is_own_name(Path(path), output)
    is_object = path.lower().startswith(("s3://", "s3a://"))
    return is_object and is_own_name(_plain(path), _plain(output))


def _plain(url: str) -> OutputPath:
    """Return the output path of an S3 URL: `s3a://` is another spelling of `s3://`."""
    return output_path("s3://" + url.partition("://")[2])


def _choose_rule(settings: JobSettings, sources: list[Source]) -> tuple[DocumentRule, bool]:
    """Return how text is divided into documents, and whether the text decided that."""
    texts = [source for source in sources if not FORMATS[source.format].has_records]
    if not texts:
        if settings.doc_separator is not None or settings.docs_by != "auto":
            raise UsageError(
                "every input consists of records, and each record is already a document",
                where="--docs-by, --doc-separator",
                next_step="leave it out, or pass `--input-format text` to read them as plain text",
            )
        return DocumentRule("record"), False
    if settings.doc_separator is not None:
        return DocumentRule("separator", settings.doc_separator.encode()), False
    if settings.docs_by == "line":
        return DocumentRule("line", b"\n"), False
    if settings.docs_by == "file":
        return DocumentRule("file"), False
    for source in texts[:_HEAD_SOURCES]:
        # Nearly always the first documents are short; a server is asked once.
        sizes = (_HEAD_BYTES,) if is_url(source.path) else (_SHORT_HEAD_BYTES, _HEAD_BYTES)
        heads = (_read_head(source, size, settings.on_error) for size in sizes)
        if any(_DEFAULT_SEPARATOR in head for head in heads):
            return DocumentRule("separator", _DEFAULT_SEPARATOR), True
    return DocumentRule("file"), False


def _read_head(source: Source, num_bytes: int, on_error: OnError) -> bytes:
    if source.compression is not None or source.is_stream:
        return read_head(source, num_bytes, on_error=on_error)
    with open_unit(Unit(0, 0, source, 0, num_bytes, 0), None) as file:
        return file.read_at(0, num_bytes)
