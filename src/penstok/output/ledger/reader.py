"""The ledger: what a job is, its inputs, and one line for each finished unit, in unit order.

It reads; it writes no file (`checkpoints` does) and decides nothing; `ledger_lines` has the lines.
Reading adds up: at its end the reader holds all that the run held when it wrote the last line, so a
job can go on from it, and the manifest can be made from it.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import xxhash

from penstok.errors import DamageError
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
from penstok.types import SPLITS, UNKNOWN_END, FinishedUnit, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstok.output.ledger.lines import Ending, UnitLine
    from penstok.storage.object_paths import OutputPath
    from penstok.types import EncodedUnit, Segment, Source, Split, UnitOffsets, WrittenUnit

__all__ = [
    "Digests",
    "LedgerReader",
    "Start",
    "iter_skipped",
    "list_skipped",
    "list_skipped_inputs",
    "lists_skipped",
]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run starts: at the beginning, or behind what an earlier one has done.

    Attributes:
        unit_idx: The number of its first unit.
        source_idx: The input in which that is.
        position: Where in that input.
        ends: For each input before that one, where the job ended in it.
    """

    unit_idx: int = 0
    source_idx: int = 0
    position: int = 0
    ends: Sequence[int] = ()


class Digests:
    """The digest of each output file: an xxh3_128 over the digests of its segments in order.

    So no token is read a second time to make it.
    """

    def __init__(self) -> None:
        self._running: dict[tuple[Split, int], xxhash.xxh3_128] = {}

    def add(self, written: WrittenUnit) -> None:
        """Cover the next segments; receipts must come in unit order."""
        for segment in written.segments:
            running = self._running.setdefault((segment.split, segment.shard), xxhash.xxh3_128())
            running.update(bytes.fromhex(segment.digest))

    def of(self, split: Split, shard: int) -> str:
        """Return the digest of a file over what was covered so far."""
        return self._running.get((split, shard), xxhash.xxh3_128()).hexdigest()


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
        last: The last unit that was met.
        starts: Where the shards of tasks start in each split, as far as they were met; None where
            tasks make no shards.
    """

    def __init__(self, path: OutputPath) -> None:
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
        self.last: Unit | None = None
        try:
            with path.open("rb") as file:
                first = file.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise self._damage(f"cannot be read: {error.strerror}") from error
        try:
            self.job = read_job(line_body(first) or b"{}")
            is_by_task = self.job.settings.get("task_bytes") is not None
            self.starts = {split: list[int]() for split in SPLITS} if is_by_task else None
            self._layout = Layout.of_job(path.parent, self.job, self.starts)
        except (ValueError, RecursionError) as error:
            raise self._damage("the first line is damaged, or of another version") from error
        self.valid_bytes = len(first)

    def iter_units(self) -> Iterator[FinishedUnit]:
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

    def _take(self, body: bytes) -> FinishedUnit | None:
        if self.ending is not None:
            raise ValueError("stands behind the end")
        if body.startswith(UNIT_START):
            return self._take_unit(read_unit(body))
        if body.startswith(INPUT_START):
            self._take_input(*read_input(body))
        elif body.startswith(TASK_START):
            self._take_task(read_task(body))
        elif self._next_place()[0] < len(self._ends):
            raise ValueError("an end before the last unit")
        else:
            self.ending = read_ending(body)
        return None

    def _take_input(self, idx: int, source: Source, end: int) -> None:
        if idx != len(self.sources):
            raise ValueError("an input out of order")
        self.sources.append(source)
        self._ends.append(end)

    def _take_task(self, number: int) -> None:
        if self.starts is None or number != len(self.starts["train"]):
            raise ValueError("a task out of order")
        for split in SPLITS:
            self.starts[split].append(self.offsets.tokens[split])

    def _take_unit(self, line: UnitLine) -> FinishedUnit:
        """Rebuild what the run knew of a unit; refuse one that does not follow from the last."""
        if self.starts is not None and not self.starts["train"]:
            raise ValueError("a unit before the first task")
        unit = self._next_unit(line)
        encoded, written = line.encoded(), line.written()
        place = self.offsets.next_grant(line.unit)
        # A task does not know what was open before it, unless that goes on in it.
        is_known = self.starts is None or line.carried[1] > 0
        if is_known and line.carried[0] != place.carried_split:
            raise ValueError("a unit that goes on from another split")
        self._check_places(place, encoded, written.segments)
        grant = self.offsets.grant(unit, encoded)
        self.digests.add(written)
        self.num_units += 1
        self.last = unit
        return FinishedUnit(unit, encoded, grant, written)

    def _next_place(self) -> tuple[int, int]:
        """Return the input in which the next unit must be, and where in it."""
        idx, start = (self.last.source_idx, self.last.end) if self.last else (0, 0)
        while idx < len(self._ends) and start == self._ends[idx]:
            idx, start = idx + 1, 0
        return idx, start

    def _next_unit(self, line: UnitLine) -> Unit:
        idx, start = self._next_place()
        is_next = (line.unit, line.input, line.start) == (self.num_units, idx, start)
        if not is_next or not line.input < len(self.sources):
            raise ValueError("a unit out of order")
        source, end = self.sources[line.input], self._find_end(line)
        is_whole = line.start < line.end <= end
        if not source.is_rows:
            is_whole = line.end == min(line.start + self.job.unit_bytes, end)
        if not is_whole:
            raise ValueError("a unit that ends where none does")
        return Unit(line.unit, line.input, source, line.start, line.end, end, line.passed)

    def _find_end(self, line: UnitLine) -> int:
        """Return where the job ends in the input of a unit; of a stream its units tell."""
        end = self._ends[line.input]
        if (line.stream is None) == self.sources[line.input].is_stream:
            raise ValueError("a unit of another kind than its input")
        if line.stream is not None and line.stream[2] is not None:
            if end not in (UNKNOWN_END, line.stream[2]):
                raise ValueError("an input with two ends")
            end = self._ends[line.input] = line.stream[2]
        return end

    def start(self) -> Start:
        """Return where a run goes on from here."""
        source_idx, position = self._next_place()
        return Start(self.num_units, source_idx, position, self._ends[:source_idx])

    def end_of(self, source_idx: int) -> int:
        """Return where the job ends in an input."""
        return self._ends[source_idx]

    def _check_places(
        self, grant: UnitOffsets, encoded: EncodedUnit, segments: tuple[Segment, ...]
    ) -> None:
        found = ((each.split, each.shard, each.offset_tokens, each.num_tokens) for each in segments)
        # One by one: numbers without sense would make a list without end.
        if any(one != other for one, other in zip_longest(found, self._places(grant, encoded))):
            raise ValueError("a unit whose segments are in the wrong place")

    def _places(
        self, grant: UnitOffsets, encoded: EncodedUnit
    ) -> Iterator[tuple[Split, int, int, int]]:
        for split in SPLITS:
            offset = grant.offsets[split]
            runs = [encoded.tokens[split]]
            if split == grant.carried_split:
                runs.insert(0, encoded.carried_tokens)
            for run in runs:
                for place in self._layout.iter_shard_ranges(split, offset, run):
                    yield split, *place
                offset += run

    def _damage(self, what: str) -> DamageError:
        return DamageError(
            f"the ledger `{self._path.name}` is of no use: {what}",
            where=str(self._path),
            next_step="pass `--overwrite` to make the output anew",
        )


def iter_skipped(path: OutputPath) -> Iterator[str]:
    """Yield what a finished ledger says was left out, a line of JSON each: records, then inputs."""
    reader = LedgerReader(path)
    for finished in reader.iter_units():
        yield from list_skipped(finished.unit.source.path, finished.unit.end, finished.encoded)
    yield from list_skipped_inputs(reader.ending.skipped if reader.ending else {})


def list_skipped(path: str, end: int, encoded: EncodedUnit) -> list[str]:
    """List the records that were left out of a unit that ends there, a line of JSON each."""
    lines = [_skipped_line(path, record.position, record.reason) for record in encoded.skipped]
    num_more = encoded.counts.skipped_records - len(encoded.skipped)
    if num_more:
        reason = f"{num_more} more records up to {end} are counted, not listed"
        lines.append(_skipped_line(path, None, reason))
    return lines


def list_skipped_inputs(skipped: dict[str, str]) -> list[str]:
    """List the inputs that were left out whole."""
    return [_skipped_line(name, None, reason) for name, reason in skipped.items()]


def lists_skipped(path: OutputPath, ledger: OutputPath) -> bool:
    """Tell whether a file is the list of what a ledger says was left out."""
    try:
        with io.TextIOWrapper(path.open("rb"), encoding="utf-8", newline="\n") as found:
            return all(here == there for here, there in zip_longest(found, iter_skipped(ledger)))
    except (OSError, UnicodeDecodeError):
        return False


def _skipped_line(path: str, position: int | None, reason: str) -> str:
    return json.dumps({"path": path, "position": position, "reason": reason}) + "\n"
