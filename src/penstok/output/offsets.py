"""Offsets in unit order: where in the output each unit's tokens go.

This is the only decision of a job that depends on the order of units, so only the parent makes it.
It writes nothing; `executors.batches` asks for the offsets, and the executor sends them to workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstok.errors import ConflictError
from penstok.types import SPLITS, Counts, Split, Struct, UnitOffsets, replace

if TYPE_CHECKING:
    from penstok.types import EncodedUnit, FinishedUnit, Unit

__all__ = ["AssignsOffsets", "Offsets", "RecordedOffsets", "TaskTotals"]

# Per input, in the manifest; `skipped.jsonl` lists all of them.
_MAX_REASONS = 3
_NO_COUNTS = Counts()


class TaskTotals(Struct, frozen=True):
    """The totals of one task, for `Offsets.add_task`.

    Attributes:
        tokens: Per split.
        documents: Per split, those that begin in the task.
        sources: The counts of each input, by its number.
        reasons: Why the first skipped records of each input were skipped.
        carried_special: Whether a document that continues from the previous task contains the
            end-of-text string here; that document is not counted in `sources`.
        open_split: The split of the last document that began in this task and continued into
            another unit.
        open_special: Whether that document contains the end-of-text string.
    """

    tokens: dict[Split, int]
    documents: dict[Split, int]
    sources: dict[int, Counts]
    reasons: dict[int, list[str]]
    carried_special: bool
    open_split: Split | None
    open_special: bool

    @property
    def counts(self) -> Counts:
        """The counts of all inputs."""
        return sum(self.sources.values(), _NO_COUNTS)


class AssignsOffsets(Protocol):
    """Assigns offsets to a unit once its number of tokens is known."""

    def grant(self, unit: Unit, encoded: EncodedUnit) -> UnitOffsets:
        """Return where the unit's tokens go."""
        ...


class Offsets:
    """Assigns offsets and keeps running totals; must see every unit, or task, in order."""

    def __init__(self) -> None:
        self.tokens: dict[Split, int] = dict.fromkeys(SPLITS, 0)
        self.documents: dict[Split, int] = dict.fromkeys(SPLITS, 0)
        self.counts: Counts = Counts()
        self._source_counts: dict[int, Counts] = {}
        self._reasons: dict[int, list[str]] = {}
        self._open_split: Split = "train"
        self._open_special = False
        self._last_open: Split | None = None

    @classmethod
    def of_task(cls, open_split: Split) -> Offsets:
        """Start at a task; a document of `open_split` may continue into it.

        Only `add_task` knows whether that document was already counted for its end-of-text strings.
        """
        offsets = cls()
        offsets._open_split, offsets._open_special = open_split, True
        return offsets

    def next_grant(self, unit_idx: int) -> UnitOffsets:
        """Return where the next unit's tokens go, without counting them."""
        return UnitOffsets(unit_idx, self._open_split, dict(self.tokens), dict(self.documents))

    def grant(self, unit: Unit, encoded: EncodedUnit) -> UnitOffsets:
        """Assign the offsets after all earlier units, and add the unit to the totals."""
        assigned = self.next_grant(encoded.unit_idx)
        self.tokens[self._open_split] += encoded.carried_tokens
        for split in SPLITS:
            self.tokens[split] += encoded.tokens[split]
            self.documents[split] += encoded.documents[split]
        self._add_counts(unit.source_idx, self._count_special(encoded))
        if encoded.skipped:
            reasons = self._reasons.setdefault(unit.source_idx, [])
            left = _MAX_REASONS - len(reasons)
            reasons += [f"{each.reason} (at {each.position})" for each in encoded.skipped[:left]]
        if encoded.open_split is not None:
            self._open_split = self._last_open = encoded.open_split
            self._open_special = encoded.open_special
        return assigned

    def _add_counts(self, source_idx: int, counts: Counts) -> None:
        self.counts += counts
        known = self._source_counts.get(source_idx)
        # Most inputs are in one task: their counts are shared with its record, not copied.
        self._source_counts[source_idx] = counts if known is None else known + counts

    def add_task(self, totals: TaskTotals) -> None:
        """Add the totals of a task; tasks must come in order."""
        for split in SPLITS:
            self.tokens[split] += totals.tokens[split]
            self.documents[split] += totals.documents[split]
        for source_idx, counts in totals.sources.items():
            self._add_counts(source_idx, counts)
        for source_idx, reasons in totals.reasons.items():
            known = self._reasons.setdefault(source_idx, [])
            known += reasons[: _MAX_REASONS - len(known)]
        if totals.carried_special and not self._open_special:
            self._add_counts(min(totals.sources), Counts(special_text_documents=1))
            self._open_special = True
        if totals.open_split is not None:
            self._open_split, self._open_special = totals.open_split, totals.open_special

    def totals(self, *, carried_special: bool) -> TaskTotals:
        """Return everything counted so far as the totals of one task.

        Args:
            carried_special: Whether a document that was open before the task contains end-of-text
                strings here.
        """
        return TaskTotals(
            tokens=dict(self.tokens),
            documents=dict(self.documents),
            sources=dict(self._source_counts),
            reasons=dict(self._reasons),
            carried_special=carried_special,
            open_split=self._last_open,
            open_special=self._open_special,
        )

    def of_source(self, source_idx: int) -> Counts:
        """Return the counts of one input."""
        return self._source_counts.get(source_idx, _NO_COUNTS)

    def reasons_of(self, source_idx: int) -> list[str]:
        """Return why the first skipped records of an input were skipped, and where they are."""
        return self._reasons.get(source_idx, [])

    def _count_special(self, encoded: EncodedUnit) -> Counts:
        """Count a document once, however many units its end-of-text strings are in."""
        if not encoded.carried_special or self._open_special:
            return encoded.counts
        self._open_special = True
        more = encoded.counts.special_text_documents + 1
        return replace(encoded.counts, special_text_documents=more)


class RecordedOffsets:
    """Gives recorded units that are encoded again the offsets they had.

    Units are streamed; only those being worked on are held in memory.

    Attributes:
        files: The split and shard of every file whose tokens were checked.
    """

    def __init__(self, *, refuse_changed: bool = True) -> None:
        """Start without units.

        Args:
            refuse_changed: Raise if a unit's text gives other counts than were recorded.
        """
        self.files: set[tuple[Split, int]] = set()
        self._refuse_changed = refuse_changed
        self._in_work: dict[int, FinishedUnit] = {}

    def add(self, recorded: FinishedUnit) -> Unit:
        """Remember what was recorded of a unit; return the unit."""
        self._in_work[recorded.unit.index] = recorded
        return recorded.unit

    def grant(self, unit: Unit, encoded: EncodedUnit) -> UnitOffsets:
        """Return the unit's recorded offsets.

        Raises:
            ConflictError: If its text gives something else now, and that is refused.
        """
        recorded = self._in_work[unit.index]
        if self._refuse_changed and not encoded.equals_recorded(recorded.encoded):
            raise self._changed(unit)
        return recorded.offsets

    def pop(self, unit_idx: int) -> FinishedUnit:
        """Return what was recorded of a unit, and forget it."""
        return self._in_work.pop(unit_idx)

    def check(self, finished: FinishedUnit) -> None:
        """Compare the checksums of a unit with the recorded ones, and forget it.

        Raises:
            ConflictError: If one differs.
        """
        recorded = self.pop(finished.unit.index)
        if finished.written != recorded.written:
            raise self._changed(finished.unit)
        self.files |= {(segment.split, segment.shard) for segment in recorded.written.segments}

    def _changed(self, unit: Unit) -> ConflictError:
        return ConflictError(
            "the input gives other tokens than it did: it has changed since",
            where=unit.where,
            next_step="restore the input, or re-encode everything: pass `--overwrite`",
        )
