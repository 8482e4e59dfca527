"""The inner line: read, cut, split and encode one unit, then write its tokens.

It knows nothing about processes, queues or the order of units. `executors.worker_process` creates a
`Worker`, calls `encode` with a unit, and calls `write` once the unit's offsets are known.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.engines import load_engine, max_document_bytes, name_reference
from penstok.engines.base import SplitEngine, SplitIds, most_tokens
from penstok.inputs.files import open_unit
from penstok.kernel import find_kernel_function
from penstok.output.documents import DocumentFinder
from penstok.output.fields import FieldRows
from penstok.output.segments import make_sink
from penstok.readers import Readers
from penstok.readers.base import ReaderOptions
from penstok.tokenizers import LibraryModel
from penstok.tokenizers.cuts import find_cuts
from penstok.types import (
    SPLITS,
    Block,
    Counts,
    EncodedUnit,
    SkippedRecord,
    Struct,
    WrittenUnit,
    replace,
)
from penstok.worker.comparison import ComparedText
from penstok.worker.repair import repair_block
from penstok.worker.splits import CARRIED, TRAIN, Hasher, Splitter
from penstok.worker.unit_tokens import CODES, SPLIT_OF, UnitTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from numpy.typing import NDArray

    from penstok.inputs.base import OpenInput
    from penstok.inputs.ring import RingFile
    from penstok.output.layout import Layout
    from penstok.output.segments import SinkKind
    from penstok.output.token_runs import TokenSpool
    from penstok.readers.base import Reader
    from penstok.tokenizers import Tokenizer
    from penstok.types import (
        EotPosition,
        OnError,
        Segment,
        Split,
        TextRules,
        Unit,
        UnitOffsets,
    )
    from penstok.worker.comparison import Comparison
    from penstok.worker.counting import UnitSample
    from penstok.worker.memory import MemoryShare

    OpenUnit: TypeAlias = Callable[[Unit], OpenInput]

__all__ = [
    "Sample",
    "ShareReachedError",
    "Worker",
    "WorkerSpec",
    "make_hasher",
    "make_readers",
]

_MAX_SPARE_TOKENS = 3
# Bytes that continue a character of UTF-8 are less than this, as signed numbers.
_FIRST_START = -64
# The reference engine is slow, and needs memory of a hundred times the length of a text: of each
# sample it is given this much, which takes it 3 ms.
_COMPARED_BYTES = 32 << 10
_MAX_CHARACTER_BYTES = 4


class ShareReachedError(Exception):
    """The worker has reached its share of memory and must be replaced."""


class WorkerSpec(Struct, frozen=True):
    """Everything needed to create a worker; the same for all workers of a job.

    With the sink `count`, a worker counts tokens and drops them, with the tokenizers of `others`
    too, and leaves out units that are not in `sample` (`counting`). `needs_library` is False if the
    worker never loads the library of its tokenizer: its ranks encode, and another process compares.
    """

    tokenizer: Tokenizer
    engine: str
    rules: TextRules
    on_error: OnError
    block_bytes: int
    layout: Layout
    share: MemoryShare
    give_back: bool
    sink: SinkKind = "write"
    ring: RingFile | None = None
    others: tuple[WorkerSpec, ...] = ()
    sample: UnitSample | None = None
    needs_library: bool = True

    @property
    def eot(self) -> EotPosition:
        """Where the engine puts end-of-text ids.

        With `--eot none` it still ends every document if there is an index, because those ids show
        where documents end; they are dropped afterwards.
        """
        is_needed = self.rules.eot == "none" and self.layout.has_index
        return "append" if is_needed else self.rules.eot

    def to_send(self) -> WorkerSpec:
        """Return it without what only the library reads, if it is not needed: 15 MB with Gemma."""
        model = self.tokenizer.model
        if self.needs_library or not isinstance(model, LibraryModel):
            return self
        return replace(self, tokenizer=replace(self.tokenizer, model=replace(model, content=b"")))


class Sample(Struct, frozen=True):
    """What a worker has seen of the inputs before the job: for estimates, and to compare engines.

    Attributes:
        input_bytes: How much text it was.
        num_tokens: How many tokens the engine made of it.
        spool_bytes: What its documents take in the spools of indexes and kept fields.
        texts: Some of the text; none if the engine is the reference.
    """

    input_bytes: int
    num_tokens: int
    spool_bytes: int
    texts: list[ComparedText]


def make_readers(spec: WorkerSpec, open_input: OpenUnit | None = None) -> Readers:
    """Make the readers of a worker, which open inputs with `open_unit` unless told otherwise."""
    tokenizer, rules = spec.tokenizer, spec.rules
    eot_text = tokenizer.eot_text.encode()
    is_kept = spec.sink in ("write", "fields") and "fields" in spec.layout.index_kinds
    kept = spec.layout.kept_fields if is_kept else ()
    options = ReaderOptions(
        rule=rules.document_rule,
        text_key=rules.text_key,
        open_unit=open_input or partial(open_unit, ring=spec.ring),
        block_bytes=spec.block_bytes,
        special_text=b"" if rules.document_rule.separator == eot_text else eot_text,
        strip=rules.strip,
        give_back=spec.give_back,
        on_error=spec.on_error,
        invalid_utf8=rules.invalid_utf8,
        has_positions=rules.provenance or bool(kept),
        kept_fields=kept,
    )
    longest = max_document_bytes(spec.engine, tokenizer, spec.share.limit_bytes)
    return Readers(find_cuts(tokenizer, longest), options)


def make_hasher(rules: TextRules) -> Hasher:
    """Make what hashes documents for their split."""
    return Hasher(rules.seed, find_kernel_function("hash_documents"))


class Worker:
    """Turns units into tokens on one core."""

    def __init__(self, spec: WorkerSpec, open_input: OpenUnit | None = None) -> None:
        """Load the engine.

        Args:
            spec: What it is made from.
            open_input: Opens the input of a unit, if `open_unit` should not.
        """
        tokenizer, rules = spec.tokenizer, spec.rules
        self._spec = spec
        self._tokenizer = tokenizer
        self._readers = make_readers(spec, open_input)
        self._splitter = Splitter(rules.val_hashes, make_hasher(rules))
        self._eot = spec.eot
        self._drops_eot = rules.eot != self._eot
        self._finder = DocumentFinder(tokenizer.eot_id, self._eot)
        self._engine = load_engine(spec.engine, tokenizer, self._eot)
        self._is_reference = spec.engine == name_reference(tokenizer)
        self._split_engine = self._engine if isinstance(self._engine, SplitEngine) else None
        self._sink = make_sink(spec.sink, spec.layout)
        self._count_characters = _make_counter() if spec.sink == "count" else None
        self._waiting: dict[int, UnitTokens] = {}
        self._spare: list[UnitTokens] = []

    def write_to(self, layout: Layout) -> None:
        """Write to other files from now on; no unit may be waiting for its offsets."""
        self._sink.close()
        self._sink = make_sink(self._spec.sink, layout)

    def encode(self, unit: Unit) -> EncodedUnit:
        """Read, cut, split and encode one unit; hold its tokens until its offsets are known."""
        reader = self._readers.choose(unit)
        tokens = self._spare.pop() if self._spare else self._make_tokens()
        tokens.start_unit(unit, self._sink.begin_fields(unit.index))
        tally = _Tally()
        self._splitter.start_unit()
        with ExitStack() as on_error:
            on_error.callback(tokens.clear)
            for read in reader.iter_blocks(unit):
                block, splits = self._splitter.assign(read)
                tokens.note_continued(block, splits)
                for code, part, positions in self._encode_splits(
                    block, splits, unit, tally, tokens
                ):
                    tokens.append(code, part, positions, block.fields)
                    tally.add(code, part)
                tally.end_block(block, splits)
                if self._spec.share.is_reached():
                    raise ShareReachedError
            on_error.pop_all()
        if unit.window is not None and unit.window.problem:
            tally.skipped.append(SkippedRecord(unit.end, unit.window.problem))
        self._waiting[unit.index] = tokens
        return tally.encoded(unit.index, reader, tokens)

    def write(self, assigned: UnitOffsets) -> WrittenUnit:
        """Write the tokens of an encoded unit at the offsets assigned to it."""
        tokens = self._waiting.pop(assigned.unit_idx)
        segments: list[Segment] = []
        for code, split in SPLIT_OF.items():
            offset = assigned.offsets[split]
            if split == assigned.carried_split:
                segments += self._sink.write(split, offset, tokens.of(CARRIED))
                offset += tokens.count(CARRIED)
            segments += self._sink.write(split, offset, tokens.of(code))
            num_before = assigned.documents.get(split, 0)
            starts = tokens.iter_starts(code, self._finder, offset)
            self._sink.write_entries(split, "documents", num_before, starts)
            self._sink.write_entries(split, "origins", num_before, tokens.iter_origins(code))
        tokens.finish_fields(assigned)
        tokens.clear()
        if len(self._spare) < _MAX_SPARE_TOKENS:
            self._spare.append(tokens)
        return WrittenUnit(assigned.unit_idx, tuple(segments))

    def find_open_split(self, unit: Unit, unit_bytes: int) -> Split:
        """Return the split of the document that is open at a unit's start; train if none is.

        It reads backwards, unit by unit, to where that document begins: usually the previous unit.
        """
        position = unit.start if self._readers.can_carry(unit) else 0
        while position > 0:
            before = replace(unit, start=max(position - unit_bytes, 0), end=position)
            tally = self._find_open_document(before)
            if not tally.is_carried:
                return tally.open_split or "train"
            position = before.start
        return "train"

    def _find_open_document(self, unit: Unit) -> _Tally:
        """Read, cut and split a unit without encoding it."""
        reader = self._readers.choose(unit)
        tally = _Tally()
        self._splitter.start_unit()
        for read in reader.iter_blocks(unit):
            tally.end_block(*self._splitter.assign(read))
        reader.take_counts()
        reader.take_skipped()
        return tally

    def sample(self, units: list[Unit]) -> list[Sample]:
        """Encode a few small units for estimates, and keep some of their text for `compare`."""
        samples: list[Sample] = []
        for unit in units:
            reader = self._readers.choose(unit)
            num_tokens, spool_bytes, texts = 0, 0, list[ComparedText]()
            left = 0 if self._is_reference else _COMPARED_BYTES
            for read in reader.iter_blocks(unit):
                room = self._make_tokens().room(TRAIN, most_tokens(read))
                block, ids = self._encode_block(read, unit, _Tally(), room)
                num_tokens += len(ids)
                spool_bytes += self._count_spooled(read)
                chosen = _take_sample(block, left)
                if len(chosen.starts):
                    texts.append(ComparedText.from_block(unit.where, chosen))
                    left -= len(texts[-1].text)
            input_bytes = reader.take_counts().input_bytes
            samples.append(Sample(input_bytes, num_tokens, spool_bytes, texts))
            reader.take_skipped()
        return samples

    def _count_spooled(self, block: Block) -> int:
        """Return how much would be written to the spools for the documents of a block."""
        spooled = int(block.begins.sum()) * self._spec.layout.entry_bytes
        if block.fields is not None and block.positions is not None:
            rows = FieldRows.choose(block.fields, block.positions[block.begins])
            spooled += len(rows.to_frame())
        return spooled

    def compare(self, comparison: Comparison, number: int = 0) -> None:
        """Compare the engine with the reference; `number` is that of the tokenizer.

        Raises:
            EngineError: If the ids differ.
        """
        if not self._is_reference:
            comparison.check(self._engine, self._tokenizer, self._eot, number)

    def iter_documents(self, unit: Unit) -> Iterator[tuple[bytes, list[int]]]:
        """Yield the documents that begin in a unit, cut off at its end, with their ids."""
        reader = self._readers.choose(unit)
        text, ids = bytearray(), list[int]()
        try:
            for read in reader.iter_blocks(unit):
                for idx in range(len(read.starts)):
                    chosen = np.arange(len(read.starts)) == idx
                    block, found = self._encode_block(read.select(chosen), unit, _Tally(), None)
                    pieces = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
                    text += b"".join(block.text[start:end] for start, end in pieces)
                    ids += (
                        found[found != self._tokenizer.eot_id] if self._drops_eot else found
                    ).tolist()
                    if read.closes[idx] or read.spans:
                        yield bytes(text), ids
                        text, ids = bytearray(), []
            if text:
                yield bytes(text), ids
        finally:
            reader.take_counts()
            reader.take_skipped()

    def _make_tokens(self) -> UnitTokens:
        dropped = self._tokenizer.eot_id if self._drops_eot else None
        rules = self._spec.rules
        return UnitTokens(rules.dtype, dropped, self._open_spool, has_origins=rules.provenance)

    def _open_spool(self, dtype: str) -> TokenSpool | None:
        return self._sink.open_spool(dtype)

    def _encode_splits(
        self,
        block: Block,
        splits: NDArray[np.uint8],
        unit: Unit,
        tally: _Tally,
        tokens: UnitTokens,
    ) -> Iterator[tuple[int, SplitIds, NDArray[np.int64] | None]]:
        """Yield the ids of each split, encoded in one call if the engine can and the text is valid.

        With them come the positions of the documents that begin there, if the job records origins.
        Each part must be appended before the next is asked for.
        """
        if self._split_engine is not None:
            num_tokens = most_tokens(block)
            rooms = [tokens.room(code, num_tokens) for code in CODES]
            parts = self._split_engine.encode_splits(block, splits, rooms)
            if parts is not None:
                self._add_characters(block, tally)
                for code, found in enumerate(parts):
                    positions = block.positions
                    if positions is not None:
                        positions = positions[block.begins & (splits == code)]
                    yield code, found, positions
                return
        for code in CODES:
            chosen = splits == code
            if chosen.any():
                part = block if chosen.all() else block.select(chosen)
                room = tokens.room(code, most_tokens(part))
                part, ids = self._encode_block(part, unit, tally, room)
                self._add_characters(part, tally)
                text_bytes = int((part.ends - part.starts).sum())
                found = SplitIds(ids, int(part.begins.sum()), text_bytes)
                positions = part.positions
                yield code, found, None if positions is None else positions[part.begins]

    def _add_characters(self, block: Block, tally: _Tally) -> None:
        if self._count_characters is not None:
            tally.num_characters += self._count_characters(block)

    def _encode_block(
        self, block: Block, unit: Unit, tally: _Tally, room: NDArray[np.unsignedinteger[Any]] | None
    ) -> tuple[Block, NDArray[np.unsignedinteger[Any]]]:
        try:
            return block, self._engine.encode(block, room)
        except UnicodeDecodeError:
            repaired, counts = repair_block(block, self._spec.rules.invalid_utf8, unit)
            tally.repairs += counts
            if not len(repaired.starts):
                return repaired, np.empty(0, np.uint32)
            return repaired, self._engine.encode(repaired)


def _make_counter() -> Callable[[Block], int]:
    """Return what counts the characters of valid text."""
    count_characters = find_kernel_function("count_characters")

    def count(block: Block) -> int:
        text = np.frombuffer(block.text, np.uint8)
        if count_characters is not None:
            return int(count_characters(text, block.starts, block.ends))
        # Where each byte is in the numbering of characters; a few documents can have many bytes.
        numbers = np.concatenate(([0], np.cumsum(text.view(np.int8) >= _FIRST_START)))
        return int((numbers[block.ends] - numbers[block.starts]).sum())

    return count


def _take_sample(block: Block, num_bytes: int) -> Block:
    """Return the first pieces of a block; the last of them may be the beginning of one."""
    lengths = block.ends - block.starts
    left = num_bytes - np.cumsum(lengths) + lengths
    chosen = block.select(left >= _MAX_CHARACTER_BYTES)
    if not len(chosen.starts):
        return chosen
    end = int(chosen.starts[-1]) + int(left[len(chosen.starts) - 1])
    if end >= chosen.ends[-1]:
        return chosen
    while chosen.text[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    chosen.ends[-1], chosen.closes[-1] = end, False
    return chosen


class _Tally:
    """The totals of a unit's blocks, and the document that is open between two blocks."""

    def __init__(self) -> None:
        self.repairs = Counts()
        self.skipped: list[SkippedRecord] = []
        self.num_characters = 0
        self._documents = dict.fromkeys(SPLITS, 0)
        self._num_special = 0
        self._text_bytes = 0
        self.is_carried = True
        self._carried_special = False
        self._open_special = False
        self.open_split: Split | None = None

    def add(self, code: int, part: SplitIds) -> None:
        """Count the text of one split in a block, and the documents that begin there."""
        self._text_bytes += part.text_bytes
        if code != CARRIED:
            self._documents[SPLIT_OF[code]] += part.num_documents

    def end_block(self, block: Block, splits: NDArray[np.uint8]) -> None:
        """Follow the open document through a block, and count documents with special text."""
        if block.special is not None:
            self._follow_special(block, block.special)
        elif block.begins.any():
            self.is_carried = self._open_special = False
        is_open = not (block.closes[-1] or self.is_carried)
        self.open_split = SPLIT_OF[int(splits[-1])] if is_open else None

    def _follow_special(self, block: Block, marks: NDArray[np.bool_]) -> None:
        # Numbers the documents of the block from 1; 0 is the one that was open before the block.
        document = np.cumsum(block.begins)
        special = set(document[marks].tolist())
        self._count_special(special)
        last = int(document[-1])
        if last > 0:
            self.is_carried = False
            self._open_special = last in special

    def _count_special(self, special: set[int]) -> None:
        """Count each document once; only the parent knows whether to count the carried one."""
        self._num_special += len(special - {0})
        if 0 in special:
            if self.is_carried:
                self._carried_special = True
            elif not self._open_special:
                self._num_special += 1
            self._open_special = True

    def encoded(self, unit_idx: int, reader: Reader, tokens: UnitTokens) -> EncodedUnit:
        """Return the totals of the unit."""
        counts = Counts(
            documents=sum(self._documents.values()),
            tokens=sum(map(tokens.count, CODES)),
            special_text_documents=self._num_special,
            skipped_records=len(self.skipped),
            text_bytes=self._text_bytes,
        )
        return EncodedUnit(
            unit_idx=unit_idx,
            counts=counts + reader.take_counts() + self.repairs,
            tokens={split: tokens.count(code) for code, split in SPLIT_OF.items()},
            documents=self._documents,
            carried_tokens=tokens.count(CARRIED),
            carried_special=self._carried_special,
            open_split=self.open_split,
            open_special=self._open_special,
            skipped=(*reader.take_skipped(), *self.skipped),
            num_characters=self.num_characters,
        )
