"""The lines of a ledger: how each is formatted, parsed, and protected by its own checksum.

It knows one line at a time, opens no file and adds nothing up. `journal` writes them, `reader`
reads them in order, `scan` reads lines on their own.

    {"format": "penstok ledger", ...}   what affects token bytes
    {"input": 0, "path": ...}            an input, before its first unit
    {"unit": 0, "input": 0, ...}         a finished unit
    {"task": 3}                          a task: its shards begin with the next unit
    {"run": {...}, "skipped": {...}}     the end of a finished job
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import xxhash
from msgspec import to_builtins

from penstok.errors import UsageError
from penstok.inputs.encodings import resolve_encoding
from penstok.types import (
    MAX_LISTED_RECORDS,
    SPLITS,
    UNKNOWN_END,
    UTF_8,
    Compression,
    Counts,
    EncodedUnit,
    FinishedUnit,
    InputFormat,
    JobRecord,
    Segment,
    SkippedRecord,
    Source,
    Split,
    StreamCheckpoint,
    Struct,
    WrittenUnit,
    field,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstok.types import Unit

__all__ = [
    "INPUT_START",
    "MAX_LINE_BYTES",
    "TASK_START",
    "UNIT_START",
    "Ending",
    "InputLines",
    "UnitLine",
    "format_ending",
    "format_input",
    "format_job",
    "format_line",
    "format_task",
    "format_unit",
    "line_body",
    "read_ending",
    "read_input",
    "read_job",
    "read_task",
    "read_unit",
    "renumber_unit",
]

_FORMAT, _VERSION = "penstok ledger", 1
_CHECK = b',"check":"'
UNIT_START, INPUT_START, TASK_START = b'{"unit":', b'{"input":', b'{"task":'
# No line of a job is longer; a file that is not a ledger may be one line of any size.
MAX_LINE_BYTES = 256 << 20
_MAX_NUMBER = 1 << 62
_Number = Annotated[int, msgspec.Meta(ge=0, lt=_MAX_NUMBER)]
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
_ContentDigest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
# Created once, for millions of lines: `json.dumps` creates an encoder each time, and `asdict`
# makes a deep copy.
_encode = json.JSONEncoder(separators=(",", ":")).encode
_COUNT_NAMES = list(Counts.__struct_fields__)
_segment_values: Callable[[Segment], tuple[Any, ...]] = attrgetter(*Segment.__struct_fields__)


class Ending(Struct, frozen=True):
    """The last line of a finished job: how it ran, and which inputs were skipped or ignored."""

    run: dict[str, Any]
    skipped: dict[str, str]
    ignored: dict[str, str] = field(default_factory=dict)

    @property
    def unused(self) -> dict[str, str]:
        """The inputs that were not used, and why."""
        return self.skipped | self.ignored


class _ArchiveLine(Struct, frozen=True):
    """The archive of a member; what the line of the member holds is not repeated."""

    path: str
    bytes: _Number
    compression: Compression | None = None
    stream: bool = False
    window: _Number = 0
    content: _Number = 0


class _InputLine(Struct, frozen=True):
    input: _Number
    path: str
    bytes: _Number
    mtime_ns: Annotated[int, msgspec.Meta(gt=-_MAX_NUMBER, lt=_MAX_NUMBER)]
    edges: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    format: InputFormat
    end: _Number | None
    compression: Compression | None = None
    stream: bool = False
    empty: bool = False
    window: _Number = 0
    rows: _Number = 0
    content: _Number = 0
    version: str = ""
    index: _Number = 0
    delimiter: Annotated[str, msgspec.Meta(pattern="^[\x01-\x7f]?$")] = ""
    columns: _Number = 0
    encoding: str = UTF_8
    archive: _ArchiveLine | None = None
    offset: _Number = 0


class _PerSplit(Struct, frozen=True):
    train: _Number
    val: _Number


class UnitLine(Struct, frozen=True):
    """The line of a unit."""

    unit: _Number
    input: _Number
    start: _Number
    end: _Number
    counts: Counts
    documents: _PerSplit
    carried: tuple[Split, _Number]
    carried_special: bool
    open: Split | None
    open_special: bool
    segments: list[tuple[Split, _Number, _Number, _Number, _Digest]]
    skipped: list[tuple[_Number, str]] = field(default_factory=list)
    stream: tuple[_Number, _ContentDigest, _Number | None] | None = None

    @property
    def passed(self) -> StreamCheckpoint | None:
        """How far a stream was read at the unit's end."""
        return None if self.stream is None else StreamCheckpoint(*self.stream[:2])

    def written(self) -> WrittenUnit:
        """Return where the unit's tokens are."""
        return WrittenUnit(self.unit, tuple(Segment(*fields) for fields in self.segments))

    def encoded(self) -> EncodedUnit:
        """Return what the run knew about the unit before it was written.

        Raises:
            ValueError: If its counts are inconsistent: a valid checksum alone does not prove that
                Penstok wrote the line.
        """
        carried_split, carried_tokens = self.carried
        tokens: dict[Split, int] = dict.fromkeys(SPLITS, 0)
        for split, _, _, num_tokens, _ in self.segments:
            tokens[split] += num_tokens
        tokens[carried_split] -= carried_tokens
        counts = self.counts.values()
        if (
            min(tokens.values()) < 0
            or sum(tokens.values()) + carried_tokens != self.counts.tokens
            or self.documents.train + self.documents.val != self.counts.documents
            or len(self.skipped) > self.counts.skipped_records
            or len(self.skipped) < min(self.counts.skipped_records, MAX_LISTED_RECORDS)
            or not 0 <= min(counts) <= max(counts) < _MAX_NUMBER
        ):
            raise ValueError(f"the counts of unit {self.unit} do not add up")
        return EncodedUnit(
            unit_idx=self.unit,
            counts=self.counts,
            tokens=tokens,
            documents={"train": self.documents.train, "val": self.documents.val},
            carried_tokens=carried_tokens,
            carried_special=self.carried_special,
            open_split=self.open,
            open_special=self.open_special,
            skipped=tuple(SkippedRecord(*fields) for fields in self.skipped),
        )


def format_job(job: JobRecord) -> bytes:
    """Format the first line."""
    content = to_builtins(job) | {"tokenizer": job.tokenizer.to_dict()}
    return format_line({"format": _FORMAT, "version": _VERSION, **content})


def format_input(idx: int, source: Source, end: int) -> bytes:
    """Format the line of an input; `end` is where the job stops in it, or `UNKNOWN_END`."""
    marks = {
        "compression": source.compression,
        "stream": source.is_stream,
        "empty": source.is_empty,
        "window": source.window_bytes,
        "rows": source.num_rows,
        "content": source.content_bytes,
        "version": source.version,
        "index": source.index_bytes,
        "delimiter": source.delimiter,
        "columns": source.num_columns,
        "encoding": "" if source.encoding == UTF_8 else source.encoding,
        "archive": None if source.archive is None else _format_archive(source.archive),
        "offset": source.offset,
    }
    return format_line(
        {
            "input": idx,
            "path": source.path,
            "bytes": source.num_bytes,
            "mtime_ns": source.mtime_ns,
            "edges": source.edges,
            "format": source.format,
            "end": None if end == UNKNOWN_END else end,
            **{name: mark for name, mark in marks.items() if mark},
        }
    )


def _format_archive(archive: Source) -> dict[str, Any]:
    marks = {
        "compression": archive.compression,
        "stream": archive.is_stream,
        "window": archive.window_bytes,
        "content": archive.content_bytes,
    }
    return {
        "path": archive.path,
        "bytes": archive.num_bytes,
        **{name: mark for name, mark in marks.items() if mark},
    }


@lru_cache(maxsize=16)
def _read_archive(line: _ArchiveLine, mtime_ns: int, edges: str, version: str) -> Source:
    """Make the record of an archive once for all its members."""
    os.fsencode(line.path)
    return Source(
        line.path,
        line.bytes,
        mtime_ns,
        edges,
        compression=line.compression,
        is_stream=line.stream,
        window_bytes=line.window,
        content_bytes=line.content,
        version=version,
    )


class InputLines:
    """Formats the line of each input before its first unit, or the next input's if it has none."""

    def __init__(self, sources: Sequence[Source], num_written: int = 0, first: int = 0) -> None:
        """Continue with the first input whose line is not written.

        Args:
            sources: The inputs.
            num_written: The number of the first input whose line is not written yet.
            first: The number in the job of the first input in `sources`.
        """
        self._sources = sources
        self._num_written = max(num_written, first)
        self._first = first

    def before(self, unit: Unit) -> list[bytes]:
        """Return the lines of inputs that must precede a unit; units must come in order."""
        return self._write_up_to(unit.source_idx + 1, unit.source_end)

    def rest(self) -> list[bytes]:
        """Return the lines of the inputs after the last unit."""
        return self._write_up_to(self._first + len(self._sources), 0)

    def _write_up_to(self, num_inputs: int, last_end: int) -> list[bytes]:
        first, self._num_written = self._num_written, max(num_inputs, self._num_written)
        return [
            format_input(
                idx, self._sources[idx - self._first], last_end if idx == num_inputs - 1 else 0
            )
            for idx in range(first, num_inputs)
        ]


def format_unit(finished: FinishedUnit) -> bytes:
    """Format the line of a unit: everything that `Offsets` used, and its segments."""
    unit, encoded = finished.unit, finished.encoded
    counts = zip(_COUNT_NAMES, encoded.counts.values(), strict=True)
    skipped = [[record.position, record.reason] for record in encoded.skipped]
    stream = None
    if unit.passed is not None:
        end = None if unit.source_end == UNKNOWN_END else unit.source_end
        stream = [unit.passed.stored_bytes, unit.passed.digest, end]
    return format_line(
        {
            "unit": unit.index,
            "input": unit.source_idx,
            "start": unit.start,
            "end": unit.end,
            "counts": {name: count for name, count in counts if count},
            "documents": encoded.documents,
            "carried": [finished.offsets.carried_split, encoded.carried_tokens],
            "carried_special": encoded.carried_special,
            "open": encoded.open_split,
            "open_special": encoded.open_special,
            "segments": list(map(_segment_values, finished.written.segments)),
            **({"skipped": skipped} if skipped else {}),
            **({"stream": stream} if stream else {}),
        }
    )


def format_ending(ending: Ending) -> bytes:
    """Format the last line of a finished job."""
    content = to_builtins(ending)
    if not ending.ignored:
        del content["ignored"]
    return format_line(content)


def format_task(number: int) -> bytes:
    """Format the line that precedes the units of a task."""
    return format_line({"task": number})


def format_line(content: dict[str, Any]) -> bytes:
    """Format a line with its checksum."""
    return _with_check(_encode(content).encode())


def _with_check(body: bytes) -> bytes:
    return body[:-1] + _CHECK + xxhash.xxh3_64_hexdigest(body).encode() + b'"}\n'


def renumber_unit(body: bytes, number: int) -> bytes:
    """Format the line of a unit again with another number.

    The rest is not parsed: a job of ten million units has as many lines to renumber.
    """
    return _with_check(b"%b%d%b" % (UNIT_START, number, body[body.index(b",") :]))


def line_body(line: bytes) -> bytes | None:
    """Return a line without its checksum; None if it is incomplete or damaged."""
    at = line.rfind(_CHECK)
    body = line[:at] + b"}"
    return body if at >= 0 and line == _with_check(body) else None


def read_job(body: bytes) -> JobRecord:
    """Parse the first line.

    Raises:
        ValueError: If it is not a first line, has another version, or holds impossible values.
    """
    content = json.loads(body)
    if (content.pop("format", None), content.pop("version", None)) != (_FORMAT, _VERSION):
        raise ValueError(f"not a `{_FORMAT}` of version {_VERSION}")
    job = msgspec.convert(content, JobRecord)
    tokenizer = job.tokenizer
    if not (0 <= tokenizer.eot_id < tokenizer.vocab_size <= 1 << int(job.dtype[4:])):
        raise ValueError(f"{tokenizer.vocab_size} ids do not fit {job.dtype}")
    if not 0 <= (tokenizer.bos_id or 0) < tokenizer.vocab_size:
        raise ValueError(f"begin-of-text id {tokenizer.bos_id} is not in the vocabulary")
    if not 0 < job.unit_bytes < _MAX_NUMBER:
        raise ValueError(f"invalid unit size {job.unit_bytes}")
    return job


def read_input(body: bytes) -> tuple[int, Source, int]:
    """Parse the line of an input: its number, the input, and where the job stops in it.

    Raises:
        ValueError: If it is not such a line, or its path is not valid on any system.
    """
    line = msgspec.convert(json.loads(body), _InputLine)
    end = UNKNOWN_END if line.end is None else line.end
    os.fsencode(line.path)
    try:
        encoding = resolve_encoding(line.encoding)
    except UsageError as error:
        raise ValueError(error.what) from error
    source = Source(
        line.path,
        line.bytes,
        line.mtime_ns,
        line.edges,
        line.format,
        line.compression,
        is_stream=line.stream,
        is_empty=line.empty,
        window_bytes=line.window,
        num_rows=line.rows,
        content_bytes=line.content,
        version=line.version,
        index_bytes=line.index,
        delimiter=line.delimiter,
        num_columns=line.columns,
        encoding=encoding,
        archive=None
        if line.archive is None
        else _read_archive(line.archive, line.mtime_ns, line.edges, line.version),
        offset=line.offset,
    )
    is_outside = source.archive is not None and (
        "\0" in source.archive.path or source.offset + source.num_bytes > source.archive.size
    )
    is_streamed = encoding == UTF_8 or line.stream
    if end > source.size or "\0" in line.path or is_outside or not is_streamed:
        raise ValueError(f"input {line.input} has an invalid end, path or encoding")
    return line.input, source, end


def read_unit(body: bytes) -> UnitLine:
    """Parse the line of a unit.

    Raises:
        ValueError: If it is not such a line.
    """
    return msgspec.json.decode(body, type=UnitLine)


def read_task(body: bytes) -> int:
    """Parse the line that begins a task.

    Raises:
        ValueError: If it is not such a line.
    """
    return msgspec.json.decode(body, type=dict[str, _Number])["task"]


def read_ending(body: bytes) -> Ending:
    """Parse the last line of a finished job.

    Raises:
        ValueError: If it is not such a line.
    """
    return msgspec.convert(json.loads(body), Ending)
