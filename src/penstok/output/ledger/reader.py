"""Reading a ledger or journal: the job, its inputs, and its finished units in order.

It writes no file (`journal` does) and decides nothing; `lines` parses single lines. It keeps the
same totals as the run that wrote the lines, so that `jobs.resume` can continue from where they end,
and `verification` can rebuild the manifest.
"""

from __future__ import annotations

import io
import json
from itertools import zip_longest
from typing import TYPE_CHECKING

import xxhash

from penstok.errors import DamageError, is_refused, read_error
from penstok.output.layout import Layout
from penstok.output.ledger.lines import (
    INPUT_START,
    MAX_LINE_BYTES,
    TASK_START,
    UNIT_START,
    line_body,
    read_ending,
    read_input,
    read_job,
    read_task,
    read_unit,
)
from penstok.output.offsets import Offsets
from penstok.quantities import plural
from penstok.types import SPLITS, UNKNOWN_END, FinishedUnit, Struct, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstok.output.ledger.lines import Ending, UnitLine
    from penstok.storage.object_paths import OutputPath
    from penstok.types import (
        EncodedUnit,
        JobRecord,
        Segment,
        Source,
        Split,
        UnitOffsets,
        WrittenUnit,
    )

__all__ = [
    "Digests",
    "LedgerReader",
    "Start",
    "iter_skipped",
    "list_skipped",
    "list_skipped_inputs",
    "lists_skipped",
]


class Start(Struct, frozen=True):
    """Where a run starts: at the beginning, or after the units that an earlier run finished.

    Attributes:
        unit_idx: The number of its first unit.
        source_idx: The number of the input that this unit is in.
        position: Where the unit starts in that input.
        ends: For each earlier input, where the job stopped in it.
    """

    unit_idx: int = 0
    source_idx: int = 0
    position: int = 0
    ends: Sequence[int] = ()


class Digests:
    """The digest of each output file: an xxh3_128 over the digests of its segments in order.

    Computing it this way needs no second read of the tokens.
    """

    def __init__(self) -> None:
        self._running: dict[tuple[Split, int], xxhash.xxh3_128] = {}

    def add(self, written: WrittenUnit) -> None:
        """Add the segments of the next unit; units must come in order."""
        for segment in written.segments:
            running = self._running.setdefault((segment.split, segment.shard), xxhash.xxh3_128())
            running.update(bytes.fromhex(segment.digest))

    def of(self, split: Split, shard: int) -> str:
        """Return the digest of a file over the segments added so far."""
        return self._running.get((split, shard), xxhash.xxh3_128()).hexdigest()


class LedgerReader:
    """Reads the lines of a ledger up to the first that is incomplete or damaged.

    Attributes:
        job: The settings that affect token bytes.
        sources: The inputs read so far.
        offsets: The totals of the units read so far.
        digests: The digests of the files, from the units read so far.
        num_units: How many units were read so far.
        valid_bytes: Where the last valid line ends; the line that ends a job does not count.
        problem: What is wrong with the line after that; empty if there is none.
        ending: The last line of a finished job.
        last: The last unit that was read.
        starts: Per split, where the shards of the tasks read so far start; None if tasks do not
            write their own shards.
    """

    def __init__(self, path: OutputPath, job: JobRecord | None = None) -> None:
        """Open a ledger and read its first line.

        Args:
            path: The ledger.
            job: Used instead of a first line that is damaged, or of a ledger that is missing.

        Raises:
            DamageError: If there is no ledger, or its first line is damaged.
            InputError: If there is no permission to read it.
        """
        self._path = path
        self.sources: list[Source] = []
        self.offsets: Offsets = Offsets()
        self.digests: Digests = Digests()
        self.num_units: int = 0
        self.valid_bytes: int = 0
        self.problem: str = ""
        self.ending: Ending | None = None
        self._ends: list[int] = []
        self.last: Unit | None = None
        first = b""
        try:
            with path.open("rb") as file:
                first = file.readline(MAX_LINE_BYTES)
        except OSError as error:
            if is_refused(error):
                raise read_error(error, str(path)) from error
            if job is None:
                raise self._damage(f"cannot be read: {error.strerror}") from error
        try:
            self.job: JobRecord = job or read_job(line_body(first) or b"{}")
            is_by_task = self.job.settings.get("task_bytes") is not None
            self.starts: dict[Split, list[int]] | None = (
                {split: list[int]() for split in SPLITS} if is_by_task else None
            )
            self._layout = Layout.of_job(path.parent, self.job, self.starts)
        except (ValueError, RecursionError) as error:
            raise self._damage("the first line is damaged or has another version") from error
        self.valid_bytes = len(first)

    def iter_units(self) -> Iterator[FinishedUnit]:
        """Yield the finished units in order; stop at the first line that is not valid."""
        with self._path.open("rb") as file:
            file.seek(self.valid_bytes)
            while line := file.readline(MAX_LINE_BYTES):
                body = line_body(line)
                try:
                    if body is None:
                        raise ValueError("incomplete or damaged")
                    finished = self._take(body)
                except (ValueError, RecursionError) as error:
                    self.problem = f"line at byte {self.valid_bytes}: {error}"
                    return
                if self.ending is None:
                    self.valid_bytes += len(line)
                if finished is not None:
                    yield finished

    def _take(self, body: bytes) -> FinishedUnit | None:
        if self.ending is not None:
            raise ValueError("it follows the line that ends the job")
        if body.startswith(UNIT_START):
            return self._take_unit(read_unit(body))
        if body.startswith(INPUT_START):
            self._take_input(*read_input(body))
        elif body.startswith(TASK_START):
            self._take_task(read_task(body))
        elif self._next_position()[0] < len(self._ends):
            raise ValueError("the job ends before its last unit")
        else:
            self.ending = read_ending(body)
        return None

    def _take_input(self, idx: int, source: Source, end: int) -> None:
        if idx != len(self.sources):
            raise ValueError(f"input {idx} is out of order")
        self.sources.append(source)
        self._ends.append(end)

    def _take_task(self, number: int) -> None:
        if self.starts is None or number != len(self.starts["train"]):
            raise ValueError(f"task {number} is out of order")
        for split in SPLITS:
            self.starts[split].append(self.offsets.tokens[split])

    def _take_unit(self, line: UnitLine) -> FinishedUnit:
        """Rebuild what the run knew about a unit; refuse one that does not follow the last one."""
        if self.starts is not None and not self.starts["train"]:
            raise ValueError(f"unit {line.unit} precedes the first task")
        unit = self._next_unit(line)
        encoded, written = line.encoded(), line.written()
        expected = self.offsets.next_grant(line.unit)
        # A task knows the split of the document open before it only if that continues in the task.
        is_known = self.starts is None or line.carried[1] > 0
        if is_known and line.carried[0] != expected.carried_split:
            raise ValueError(f"unit {line.unit} continues a document of another split")
        self._check_segments(expected, encoded, written.segments)
        assigned = self.offsets.grant(unit, encoded)
        self.digests.add(written)
        self.num_units += 1
        self.last = unit
        return FinishedUnit(unit, encoded, assigned, written)

    def _next_position(self) -> tuple[int, int]:
        """Return the input that the next unit must be in, and where it must start."""
        idx, start = (self.last.source_idx, self.last.end) if self.last else (0, 0)
        while idx < len(self._ends) and start == self._ends[idx]:
            idx, start = idx + 1, 0
        return idx, start

    def _next_unit(self, line: UnitLine) -> Unit:
        idx, start = self._next_position()
        is_next = (line.unit, line.input, line.start) == (self.num_units, idx, start)
        if not is_next or not line.input < len(self.sources):
            raise ValueError(f"unit {line.unit} is out of order")
        source, end = self.sources[line.input], self._find_end(line)
        is_valid = line.start < line.end <= end
        if not source.is_rows:
            is_valid = line.end == min(line.start + self.job.unit_bytes, end)
        if not is_valid:
            raise ValueError(f"unit {line.unit} cannot end at {line.end}")
        return Unit(line.unit, line.input, source, line.start, line.end, end, line.passed)

    def _find_end(self, line: UnitLine) -> int:
        """Return where the job stops in the input of a unit; for a stream its units say so."""
        end = self._ends[line.input]
        if (line.stream is None) == self.sources[line.input].is_stream:
            raise ValueError(f"unit {line.unit} and its input disagree on being a stream")
        if line.stream is not None and line.stream[2] is not None:
            if end not in (UNKNOWN_END, line.stream[2]):
                raise ValueError(f"input {line.input} has two different ends")
            end = self._ends[line.input] = line.stream[2]
        return end

    def start(self) -> Start:
        """Return where a run continues after the units read so far."""
        source_idx, position = self._next_position()
        return Start(self.num_units, source_idx, position, self._ends[:source_idx])

    def end_of(self, source_idx: int) -> int:
        """Return where the job stops in an input."""
        return self._ends[source_idx]

    def _check_segments(
        self, assigned: UnitOffsets, encoded: EncodedUnit, segments: tuple[Segment, ...]
    ) -> None:
        found = ((each.split, each.shard, each.offset_tokens, each.num_tokens) for each in segments)
        expected = self._iter_ranges(assigned, encoded)
        # Compared one by one: with absurd numbers, a list of all ranges would not fit in memory.
        if any(one != other for one, other in zip_longest(found, expected)):
            raise ValueError(f"unit {assigned.unit_idx} has segments at unexpected offsets")

    def _iter_ranges(
        self, assigned: UnitOffsets, encoded: EncodedUnit
    ) -> Iterator[tuple[Split, int, int, int]]:
        for split in SPLITS:
            offset = assigned.offsets[split]
            runs = [encoded.tokens[split]]
            if split == assigned.carried_split:
                runs.insert(0, encoded.carried_tokens)
            for run in runs:
                for shard_range in self._layout.iter_shard_ranges(split, offset, run):
                    yield split, *shard_range
                offset += run

    def _damage(self, what: str) -> DamageError:
        return DamageError(
            f"the ledger `{self._path.name}` cannot be used: {what}",
            where=str(self._path),
            next_step="run the command that made this output again, with `--overwrite`",
        )


def iter_skipped(path: OutputPath) -> Iterator[str]:
    """Yield what a finished ledger lists as skipped, as lines of JSON: records, then inputs."""
    reader = LedgerReader(path)
    for finished in reader.iter_units():
        yield from list_skipped(finished.unit.source.path, finished.unit.end, finished.encoded)
    yield from list_skipped_inputs(reader.ending.unused if reader.ending else {})


def list_skipped(path: str, end: int, encoded: EncodedUnit) -> list[str]:
    """List the skipped records of a unit that ends at `end`, as lines of JSON."""
    lines = [_skipped_line(path, record.position, record.reason) for record in encoded.skipped]
    num_more = encoded.counts.skipped_records - len(encoded.skipped)
    if num_more:
        reason = f"{plural(num_more, 'more record')} up to {end}, counted but not listed"
        lines.append(_skipped_line(path, None, reason))
    return lines


def list_skipped_inputs(skipped: dict[str, str]) -> list[str]:
    """List the inputs that were not used, as lines of JSON."""
    return [_skipped_line(name, None, reason) for name, reason in skipped.items()]


def lists_skipped(path: OutputPath, ledger: OutputPath) -> bool:
    """Return whether a file lists exactly what a ledger lists as skipped."""
    try:
        with io.TextIOWrapper(path.open("rb"), encoding="utf-8", newline="\n") as found:
            return all(here == there for here, there in zip_longest(found, iter_skipped(ledger)))
    except OSError as error:
        if is_refused(error):
            raise read_error(error, str(path)) from error
        return False
    except UnicodeDecodeError:
        return False


def _skipped_line(path: str, position: int | None, reason: str) -> str:
    return json.dumps({"path": path, "position": position, "reason": reason}) + "\n"
