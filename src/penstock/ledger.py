"""The ledger: what a job is, its inputs, and one line for each finished unit, in unit order.

It reads and formats lines, each with a checksum of its own; it writes no file (`checkpoints` does)
and decides nothing. Reading adds up: at its end the reader holds all that the run held when it
wrote the last line, so a job can go on from it, and the manifest can be made from it.

    {"format": "penstock ledger", ...}   what shapes the bytes
    {"input": 0, "path": ...}            an input, before its first unit
    {"unit": 0, "input": 0, ...}         a finished unit
    {"run": {...}, "skipped": {...}}     the end of a finished job
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import xxhash

from penstock.errors import DamageError
from penstock.layout import Layout
from penstock.offsets import Offsets
from penstock.types import (
    SPLITS,
    Counts,
    Encoded,
    Finished,
    Grant,
    InputFormat,
    JobRecord,
    Receipt,
    Segment,
    SkippedRecord,
    Source,
    Split,
    Unit,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "INPUT_START",
    "MAX_LINE_BYTES",
    "UNIT_START",
    "Digests",
    "Ending",
    "LedgerReader",
    "UnitLine",
    "format_ending",
    "format_input",
    "format_job",
    "format_unit",
    "iter_skipped",
    "line_body",
    "lists_skipped",
    "read_input",
    "read_unit",
]

_FORMAT, _VERSION = "penstock ledger", 1
_CHECK = b',"check":"'
UNIT_START, INPUT_START = b'{"unit":', b'{"input":'
# No line of a job is longer; a file that is no ledger may be one line of any size.
MAX_LINE_BYTES = 256 << 20
_MAX_NUMBER = 1 << 62
_Number = Annotated[int, msgspec.Meta(ge=0, lt=_MAX_NUMBER)]
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class Digests:
    """The digest of each output file: an xxh3_128 over the digests of its segments in order.

    So no token is read a second time to make it.
    """

    def __init__(self) -> None:
        self._running: dict[tuple[Split, int], xxhash.xxh3_128] = {}

    def add(self, receipt: Receipt) -> None:
        """Cover the next segments; receipts must come in unit order."""
        for segment in receipt.segments:
            running = self._running.setdefault((segment.split, segment.shard), xxhash.xxh3_128())
            running.update(bytes.fromhex(segment.digest))

    def of(self, split: Split, shard: int) -> str:
        """Return the digest of a file over what was covered so far."""
        return self._running.get((split, shard), xxhash.xxh3_128()).hexdigest()


@dataclass(frozen=True, slots=True)
class Ending:
    """The last line of a finished job: how it ran, and which inputs were skipped."""

    run: dict[str, Any]
    skipped: dict[str, str]


@dataclass(frozen=True, slots=True)
class _InputLine:
    input: _Number
    path: str
    bytes: _Number
    mtime_ns: Annotated[int, msgspec.Meta(gt=-_MAX_NUMBER, lt=_MAX_NUMBER)]
    edges: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    format: InputFormat
    end: _Number


@dataclass(frozen=True, slots=True)
class _PerSplit:
    train: _Number
    val: _Number


@dataclass(frozen=True, slots=True)
class UnitLine:
    """What a line says of a unit."""

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

    def receipt(self) -> Receipt:
        """Return where the unit's tokens stand."""
        return Receipt(self.unit, tuple(Segment(*fields) for fields in self.segments))

    def encoded(self) -> Encoded:
        """Return what the run knew of the unit before it had a place.

        Raises:
            ValueError: If its numbers do not add up: whoever can write a ledger can write a
                checksum.
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
            or len(self.skipped) != self.counts.skipped_records
            or not 0 <= min(counts) <= max(counts) < _MAX_NUMBER
        ):
            raise ValueError("a unit whose counts do not add up")
        return Encoded(
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
    """Write the first line."""
    return _checked({"format": _FORMAT, "version": _VERSION, **asdict(job)})


def format_input(idx: int, source: Source, end: int) -> bytes:
    """Write the line of an input; `end` is where the job ends in it."""
    return _checked(
        {
            "input": idx,
            "path": source.path,
            "bytes": source.num_bytes,
            "mtime_ns": source.mtime_ns,
            "edges": source.edges,
            "format": source.format,
            "end": end,
        }
    )


def format_unit(finished: Finished) -> bytes:
    """Write the line of a unit: all that `Offsets` took from it, and its segments."""
    unit, encoded = finished.unit, finished.encoded
    counts = {name: count for name, count in asdict(encoded.counts).items() if count}
    skipped = [[record.position, record.reason] for record in encoded.skipped]
    return _checked(
        {
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
            **({"skipped": skipped} if skipped else {}),
        }
    )


def format_ending(ending: Ending) -> bytes:
    """Write the last line of a finished job."""
    return _checked(asdict(ending))


def iter_skipped(path: Path) -> Iterator[str]:
    """Yield what a finished ledger says was left out, a line of JSON each: records, then inputs."""
    reader = LedgerReader(path)
    for finished in reader.iter_units():
        for record in finished.encoded.skipped:
            yield _skipped_line(finished.unit.source.path, record.position, record.reason)
    for name, reason in reader.ending.skipped.items() if reader.ending else ():
        yield _skipped_line(name, None, reason)


def lists_skipped(path: Path, ledger: Path) -> bool:
    """Tell whether a file is the list of what a ledger says was left out."""
    try:
        with path.open(encoding="utf-8", newline="\n") as found:
            return all(here == there for here, there in zip_longest(found, iter_skipped(ledger)))
    except (OSError, UnicodeDecodeError):
        return False


def _skipped_line(path: str, position: int | None, reason: str) -> str:
    return json.dumps({"path": path, "position": position, "reason": reason}) + "\n"


def _checked(content: dict[str, Any]) -> bytes:
    body = json.dumps(content, separators=(",", ":")).encode()
    return body[:-1] + _CHECK + xxhash.xxh3_64_hexdigest(body).encode() + b'"}\n'


def line_body(line: bytes) -> bytes | None:
    """Return a line without its checksum; None if it is torn or damaged."""
    at = line.rfind(_CHECK)
    body = line[:at] + b"}"
    whole = body[:-1] + _CHECK + xxhash.xxh3_64_hexdigest(body).encode() + b'"}\n'
    return body if at >= 0 and line == whole else None


def _read_job(body: bytes) -> JobRecord:
    content = json.loads(body)
    if (content.pop("format", None), content.pop("version", None)) != (_FORMAT, _VERSION):
        raise ValueError("of another version")
    job = msgspec.convert(content, JobRecord)
    tokenizer = job.tokenizer
    if not (0 <= tokenizer.eot_id < tokenizer.vocab_size <= 1 << int(job.dtype[4:])):
        raise ValueError("ids that do not fit")
    if not 0 < job.unit_bytes < _MAX_NUMBER:
        raise ValueError("units without sense")
    return job


def read_input(body: bytes) -> tuple[int, Source, int]:
    """Read the line of an input: its number, what it was, and where the job ends in it.

    Raises:
        ValueError: If it is none, or names what no system allows.
    """
    line = msgspec.convert(json.loads(body), _InputLine)
    if line.end > line.bytes or "\0" in line.path:
        raise ValueError("an input without sense")
    os.fsencode(line.path)
    source = Source(line.path, line.bytes, line.mtime_ns, line.edges, line.format)
    return line.input, source, line.end


def read_unit(body: bytes) -> UnitLine:
    """Read the line of a unit.

    Raises:
        ValueError: If it is none.
    """
    return msgspec.json.decode(body, type=UnitLine)


class LedgerReader:
    """Walks through a ledger's lines up to the first that is torn or damaged.

    Attributes:
        job: What shapes the bytes.
        sources: The inputs met so far.
        offsets: The totals of the units met so far.
        digests: The digests of the files, likewise.
        num_units: How many units were met.
        valid_bytes: Where the last good line ends, that of the end left out.
        problem: What is wrong behind it; empty if nothing is there.
        ending: The last line of a finished job.
    """

    def __init__(self, path: Path) -> None:
        """Open a ledger and read its first line.

        Raises:
            DamageError: If there is no ledger, or one this version cannot know.
        """
        self._path = path
        self.sources: list[Source] = []
        self.offsets = Offsets()
        self.digests = Digests()
        self.num_units = 0
        self.valid_bytes = 0
        self.problem = ""
        self.ending: Ending | None = None
        self._ends: list[int] = []
        self._last: Unit | None = None
        try:
            with path.open("rb") as file:
                first = file.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise self._damage(f"cannot be read: {error.strerror}") from error
        try:
            self.job = _read_job(line_body(first) or b"{}")
            self._layout = Layout.of_job(path.parent, self.job)
        except (ValueError, RecursionError) as error:
            raise self._damage("the first line is damaged, or of another version") from error
        self.valid_bytes = len(first)

    def iter_units(self) -> Iterator[Finished]:
        """Yield the finished units in order; stop at the first line that is not good."""
        with self._path.open("rb") as file:
            file.seek(self.valid_bytes)
            while line := file.readline(MAX_LINE_BYTES):
                body = line_body(line)
                try:
                    if body is None:
                        raise ValueError("torn or damaged")
                    finished = self._take(body)
                except (ValueError, RecursionError) as error:
                    self.problem = f"line at byte {self.valid_bytes}: {error}"
                    return
                if self.ending is None:
                    self.valid_bytes += len(line)
                if finished is not None:
                    yield finished

    def _take(self, body: bytes) -> Finished | None:
        if self.ending is not None:
            raise ValueError("stands behind the end")
        if body.startswith(UNIT_START):
            return self._take_unit(read_unit(body))
        if body.startswith(INPUT_START):
            self._take_input(*read_input(body))
        elif self._next_place()[0] < len(self._ends):
            raise ValueError("an end before the last unit")
        else:
            self.ending = msgspec.convert(json.loads(body), Ending)
        return None

    def _take_input(self, idx: int, source: Source, end: int) -> None:
        if idx != len(self.sources):
            raise ValueError("an input out of order")
        self.sources.append(source)
        self._ends.append(end)

    def _take_unit(self, line: UnitLine) -> Finished:
        """Rebuild what the run knew of a unit; refuse one that does not follow from the last."""
        unit = self._next_unit(line)
        encoded, receipt = line.encoded(), line.receipt()
        place = self.offsets.place(line.unit)
        if line.carried[0] != place.carried_split:
            raise ValueError("a unit that goes on from another split")
        self._check_places(place, encoded, receipt.segments)
        grant = self.offsets.grant(unit, encoded)
        self.digests.add(receipt)
        self.num_units += 1
        self._last = unit
        return Finished(unit, encoded, grant, receipt)

    def _next_place(self) -> tuple[int, int]:
        """Return the input in which the next unit must be, and where in it."""
        idx, start = (self._last.source_idx, self._last.end) if self._last else (0, 0)
        while idx < len(self._ends) and start == self._ends[idx]:
            idx, start = idx + 1, 0
        return idx, start

    def _next_unit(self, line: UnitLine) -> Unit:
        idx, start = self._next_place()
        if (
            (line.unit, line.input, line.start) != (self.num_units, idx, start)
            or not line.input < len(self.sources)
            or line.end != min(line.start + self.job.unit_bytes, self._ends[line.input])
        ):
            raise ValueError("a unit out of order")
        source = self.sources[line.input]
        return Unit(line.unit, line.input, source, line.start, line.end, self._ends[line.input])

    def _check_places(self, grant: Grant, encoded: Encoded, segments: tuple[Segment, ...]) -> None:
        found = ((each.split, each.shard, each.offset_tokens, each.num_tokens) for each in segments)
        # One by one: numbers without sense would make a list without end.
        if any(one != other for one, other in zip_longest(found, self._places(grant, encoded))):
            raise ValueError("a unit whose segments are in the wrong place")

    def _places(self, grant: Grant, encoded: Encoded) -> Iterator[tuple[Split, int, int, int]]:
        for split in SPLITS:
            offset = grant.offsets[split]
            runs = [encoded.tokens[split]]
            if split == grant.carried_split:
                runs.insert(0, encoded.carried_tokens)
            for run in runs:
                for place in self._layout.iter_places(offset, run):
                    yield split, *place
                offset += run

    def _damage(self, what: str) -> DamageError:
        return DamageError(
            f"the ledger `{self._path.name}` is of no use: {what}",
            where=str(self._path),
            next_step="pass `--overwrite` to make the output anew",
        )
