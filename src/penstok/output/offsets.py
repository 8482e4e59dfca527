"""Offsets in unit order: which place in the output a unit's tokens get.

It is the one thing about a job that must be decided in order, so the parent does it alone. It
writes nothing; the executor passes its grants to the workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from penstok.errors import ConflictError
from penstok.types import SPLITS, Counts, Split, UnitOffsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstok.types import EncodedUnit, FinishedUnit, Unit

__all__ = ["AssignsOffsets", "Offsets", "RecordedOffsets", "TaskTotals"]


# Of an input, in the manifest; `skipped.jsonl` has all.
_MAX_REASONS = 3
_NO_COUNTS = Counts()


@dataclass(frozen=True, slots=True)
class TaskTotals:
    """What a task came to, for `Offsets` to add up.

    Attributes:
        tokens: For each split.
        documents: For each split, those that begin in it.
        sources: What was seen in each input, by its number.
        reasons: Why the first records of an input were skipped.
        carried_special: Whether what goes on from the task before holds the end-of-text string;
            that document is not counted here.
        open_split: The split of the document that began here last and went on into another unit.
        open_special: Whether that one holds the end-of-text string.
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
        """What was seen in all inputs."""
        return sum(self.sources.values(), _NO_COUNTS)


class AssignsOffsets(Protocol):
    """Assigns offsets to a unit once it is known how many tokens it has."""

    def grant(self, unit: Unit, encoded: EncodedUnit) -> UnitOffsets:
        """Say where the unit's tokens go."""
        ...


class Offsets:
    """Gives out offsets and keeps the running totals; must see every unit, or task, in order."""

    def __init__(self) -> None:
        self.tokens: dict[Split, int] = dict.fromkeys(SPLITS, 0)
        self.documents: dict[Split, int] = dict.fromkeys(SPLITS, 0)
        self.counts = Counts()
        self._source_counts: dict[int, Counts] = {}
        self._reasons: dict[int, list[str]] = {}
        self._open_split: Split = "train"
        self._open_special = False
        self._last_open: Split | None = None

    @classmethod
    def of_task(cls, open_split: Split) -> Offsets:
        """Begin with a task, before which a document of this split may be open.

        Whether that one was counted for its end-of-text strings, only `add_task` can know.
        """
        offsets = cls()
        offsets._open_split, offsets._open_special = open_split, True
        return offsets

    def next_grant(self, unit_idx: int) -> UnitOffsets:
        """Say where the next unit goes."""
        return UnitOffsets(unit_idx, self._open_split, dict(self.tokens))

    def grant(self, unit: Unit, encoded: EncodedUnit) -> UnitOffsets:
        """Place a unit behind all units before it."""
        grant = self.next_grant(encoded.unit_idx)
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
        return grant

    def _add_counts(self, source_idx: int, counts: Counts) -> None:
        self.counts += counts
        self._source_counts[source_idx] = self.of_source(source_idx) + counts

    def add_task(self, totals: TaskTotals) -> None:
        """Add what a whole task came to; tasks must come in order."""
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
        """Return what was counted, as that of one task.

        Args:
            carried_special: Whether what was open before the task goes on with end-of-text strings.
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
        """Return what was seen in one input."""
        return self._source_counts.get(source_idx, _NO_COUNTS)

    def reasons_of(self, source_idx: int) -> list[str]:
        """Return why the first records of an input were skipped, and where they are."""
        return self._reasons.get(source_idx, [])

    def _count_special(self, encoded: EncodedUnit) -> Counts:
        """Count a document once, however many units its end-of-text strings stand in."""
        if not encoded.carried_special or self._open_special:
            return encoded.counts
        self._open_special = True
        more = encoded.counts.special_text_documents + 1
        return replace(encoded.counts, special_text_documents=more)


class RecordedOffsets:
    """Gives units that were finished before, and are done again, the places they had.

    Units come one by one, and only those in work are held.

    Attributes:
        files: The split and shard of every file that was written to again.
    """

    def __init__(self) -> None:
        self.files: set[tuple[Split, int]] = set()
        self._in_work: dict[int, FinishedUnit] = {}

    def iter_units(self, finished: Iterable[FinishedUnit]) -> Iterator[Unit]:
        """Yield the units to do again."""
        for each in finished:
            self._in_work[each.unit.index] = each
            yield each.unit

    def grant(self, unit: Unit, encoded: EncodedUnit) -> UnitOffsets:
        """Return the unit's old place.

        Raises:
            ConflictError: If its text gives something else now.
        """
        recorded = self._in_work[unit.index]
        if encoded != recorded.encoded:
            raise self._changed(unit)
        return recorded.offsets

    def check(self, finished: FinishedUnit) -> None:
        """Refuse tokens that are not those that were there, and forget the unit.

        Raises:
            ConflictError: If a checksum differs.
        """
        recorded = self._in_work.pop(finished.unit.index)
        if finished.written != recorded.written:
            raise self._changed(finished.unit)
        self.files |= {(segment.split, segment.shard) for segment in recorded.written.segments}

    def _changed(self, unit: Unit) -> ConflictError:
        return ConflictError(
            "the input gives other tokens than it did: it was changed since",
            where=unit.where,
            next_step="restore the input, or make the output anew with `--overwrite`",
        )
