"""The tokens of one unit, per split, until its offsets are known.

They are in memory unless there are far more than a unit should have. It encodes nothing and
chooses no offsets. `worker` fills it block by block and writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.errors import EngineError
from penstok.output.spools import ENTRY_TYPES
from penstok.output.token_runs import TokenRun
from penstok.types import SPLITS
from penstok.worker.splits import CARRIED, TRAIN, VAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from penstok.engines.base import SplitIds
    from penstok.output.documents import DocumentFinder
    from penstok.output.fields import UnitFields
    from penstok.output.token_runs import TokenSpool
    from penstok.types import Block, RecordFields, Unit, UnitOffsets

__all__ = ["CODES", "SPLIT_OF", "UnitTokens"]

CODES = (TRAIN, VAL, CARRIED)
SPLIT_OF = dict(zip((TRAIN, VAL), SPLITS, strict=True))
# How many tokens of a unit there is room for from the start, at most: as many as it has bytes of
# text, which is not known of rows.
_MAX_UNIT_TOKENS = 32 << 20
_ROWS_UNIT_TOKENS = 16 << 20
# More are moved to disk. How much text a range of rows has is only estimated: texts that repeat are
# stored once, and in a row group the long texts may come first.
_MAX_HELD_TOKENS = 16 << 20


class UnitTokens:
    """The ids of one unit: per split, and of the carried document.

    End-of-text ids that are not wanted in the output are dropped, and it is kept where they were.
    If the job records origins, it also holds where each document begins in its input. Fields that
    the job keeps are passed on at once: they may be longer than the text.
    """

    def __init__(
        self,
        dtype: str,
        dropped_id: int | None,
        open_spool: Callable[[str], TokenSpool | None],
        *,
        has_origins: bool,
    ) -> None:
        self._arrays = {code: np.empty(1 << 12, dtype) for code in CODES}
        self._open_spool = open_spool
        self._spools: dict[int, TokenSpool | None] = {}
        self._dropped_id = dropped_id
        self._has_origins = has_origins
        self._source_idx = self._unit_start = self._unit_tokens = 0
        self._unit_fields: UnitFields | None = None
        self._is_empty = True
        self._continued: int | None = None
        self.clear()

    def start_unit(self, unit: Unit, unit_fields: UnitFields | None) -> None:
        """Take note of where the documents that follow are from, and where their fields go."""
        self._source_idx, self._unit_start = unit.source_idx, unit.start
        self._unit_fields = unit_fields
        num_tokens = _ROWS_UNIT_TOKENS if unit.source.is_rows else unit.end - unit.start
        self._unit_tokens = min(num_tokens, _MAX_UNIT_TOKENS)

    def finish_fields(self, assigned: UnitOffsets) -> None:
        """Give the fields of the unit their place."""
        if self._unit_fields is not None:
            self._unit_fields.finish(assigned.documents)

    def note_continued(self, block: Block, splits: NDArray[np.uint8]) -> None:
        """Take note of the split whose tokens begin with the rest of a passage of an earlier unit.

        Other documents that continue are `CARRIED`, and apart.
        """
        if self._is_empty:
            self._is_empty = False
            if block.spans and not block.begins[0]:
                self._continued = int(splits[0])

    def append(
        self,
        code: int,
        part: SplitIds,
        positions: NDArray[np.int64] | None,
        fields: RecordFields | None = None,
    ) -> None:
        """Keep ids that the engine wrote into `room`; copy others, narrowed to the dtype.

        Args:
            code: Their split.
            part: The ids.
            positions: Where the documents that begin there are in their input, if that is recorded.
            fields: The kept fields of these documents, and maybe of others.
        """
        ids = part.ids
        if self._unit_fields is not None and fields is not None and positions is not None:
            # A document that is carried began in an earlier unit.
            self._unit_fields.append(SPLIT_OF.get(code, "train"), fields, positions)
        if self._has_origins and positions is not None and len(positions):
            inside = positions - self._unit_start
            # Half the memory where documents are only a few bytes long; they ascend.
            is_narrow = inside[-1] <= np.iinfo(np.uint32).max
            self._positions[code].append(inside.astype(np.uint32 if is_narrow else np.uint64))
        if self._dropped_id is not None:
            ids = self._drop(code, ids)
        self._num_documents[code] += part.num_documents
        room = self.room(code, len(ids))[: len(ids)]
        if not np.may_share_memory(room, ids):
            if ids.itemsize > room.itemsize and len(ids) and ids.max() > np.iinfo(room.dtype).max:
                raise EngineError(
                    f"the engine returned id {ids.max()}, which does not fit {room.dtype}",
                    where="a block of text",
                    next_step="pass `--dtype uint32`, and report this with the tokenizer",
                )
            room[:] = ids
        self._held[code] += len(ids)
        self._counts[code] += len(ids)
        if self._held[code] > _MAX_HELD_TOKENS:
            self._move_to_disk(code)

    def _move_to_disk(self, code: int) -> None:
        array = self._arrays[code]
        if code not in self._spools:
            self._spools[code] = self._open_spool(array.dtype.name)
        spool = self._spools[code]
        if spool is not None:
            spool.append(array[: self._held[code]])
        self._held[code] = 0

    def _drop(
        self, code: int, ids: NDArray[np.unsignedinteger[Any]]
    ) -> NDArray[np.unsignedinteger[Any]]:
        ends = np.flatnonzero(ids == self._dropped_id)
        # Where the next document starts, once these are gone.
        starts = ends - np.arange(len(ends)) + self._counts[code]
        self._starts[code].append(starts.astype(np.uint32))
        return np.delete(ids, ends)

    def iter_starts(
        self, code: int, finder: DocumentFinder, offset: int
    ) -> Iterator[NDArray[np.uint64]]:
        """Yield where the documents of a split start; `offset` tokens come before this unit's."""
        if self._dropped_id is None:
            yield from finder.iter_first_starts(
                self.of(code).iter_pieces(),
                offset,
                self._num_documents[code],
                continues=code == self._continued,
            )
            return
        left = self._num_documents[code]
        first = np.zeros(int(code != self._continued), np.uint32)
        for starts in (first, *self._starts[code]):
            yield np.add(starts[:left], np.uint64(offset), dtype=np.uint64)
            left -= len(starts[:left])

    def iter_origins(self, code: int) -> Iterator[NDArray[Any]]:
        """Yield where the documents of a split came from."""
        for inside in self._positions[code]:
            entries = np.empty(len(inside), ENTRY_TYPES["origins"])
            entries["input"] = self._source_idx
            entries["position"] = inside + np.uint64(self._unit_start)
            yield entries

    def room(self, code: int, num_tokens: int) -> NDArray[np.unsignedinteger[Any]]:
        """Return an array for more ids of a split, large enough for this many.

        Most of it is never written to, and pages that are not written take no memory.
        """
        count, array = self._held[code], self._arrays[code]
        if count + num_tokens > len(array):
            size = max(2 * len(array), count + num_tokens)
            if count or code == TRAIN:
                # Room for the whole unit: an array that grows with it is cleared and copied three
                # times over, which took as long as a third of the first unit's encoding.
                size = max(size, self._unit_tokens)
            grown = np.empty(size, array.dtype)
            grown[:count] = array[:count]
            self._arrays[code] = array = grown
        return array[count:]

    def of(self, code: int) -> TokenRun:
        """Return the ids of a split."""
        return TokenRun(self._arrays[code][: self._held[code]], self._spools.get(code))

    def count(self, code: int) -> int:
        """Return how many ids a split has."""
        return self._counts[code]

    def clear(self) -> None:
        """Forget the unit; the memory is used for the next."""
        self._unit_fields = None
        for spool in self._spools.values():
            if spool is not None:
                spool.close()
        self._spools.clear()
        self._counts = dict.fromkeys(CODES, 0)
        self._held = dict.fromkeys(CODES, 0)
        self._num_documents = dict.fromkeys(CODES, 0)
        self._is_empty, self._continued = True, None
        self._starts: dict[int, list[NDArray[np.uint32]]] = {code: [] for code in CODES}
        self._positions: dict[int, list[NDArray[np.unsignedinteger[Any]]]]
        self._positions = {code: [] for code in CODES}
