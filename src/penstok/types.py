"""What flows between the stages: frozen records of ranges, counts and places.

It holds no behaviour beyond arithmetic on its own fields, and imports no stage. Every stage
takes and returns these; the glossary in `docs/concepts/glossary.md` has the words.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "MAX_LISTED_RECORDS",
    "MAX_SEPARATOR_BYTES",
    "SPLITS",
    "TEXT_RULES_VERSION",
    "UNKNOWN_END",
    "Block",
    "Compression",
    "Counts",
    "DocumentRule",
    "EncodedUnit",
    "EotPosition",
    "FinishedUnit",
    "InputFormat",
    "InvalidUtf8",
    "JobRecord",
    "MemoryNeeds",
    "OnError",
    "Priority",
    "Segment",
    "SkippedRecord",
    "Source",
    "Split",
    "StreamCheckpoint",
    "TextRules",
    "TokenizerRecord",
    "Unit",
    "UnitOffsets",
    "Window",
    "WrittenUnit",
]

Split = Literal["train", "val"]
EotPosition = Literal["append", "prepend", "none"]
InvalidUtf8 = Literal["replace", "ignore", "stop"]
InputFormat = Literal["text", "jsonl", "csv", "tsv", "parquet", "arrow"]
Compression = Literal["gzip", "zstd", "bzip2", "xz", "lz4"]
OnError = Literal["stop", "skip"]
Priority = Literal["low", "normal"]
SPLITS: tuple[Split, Split] = ("train", "val")
MAX_SEPARATOR_BYTES = 1 << 14
# Raised when a rule in `readers` that shapes bytes changes.
TEXT_RULES_VERSION = 2
# Bad records of a unit that are listed; all are counted. Else a file of nothing but bad records
# would fill the memory with reasons.
MAX_LISTED_RECORDS = 1000
# Where an input ends whose end was not seen yet.
UNKNOWN_END = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeds:
    """The memory that a part of a job needs; the needs of several parts add up.

    Attributes:
        parent_bytes: In the parent process.
        worker_bytes: In each worker.
        block_bytes: What encoding one block may add to a worker at the most.
    """

    parent_bytes: int = 0
    worker_bytes: int = 0
    block_bytes: int = 0

    def __add__(self, other: MemoryNeeds) -> MemoryNeeds:
        return MemoryNeeds(
            parent_bytes=self.parent_bytes + other.parent_bytes,
            worker_bytes=self.worker_bytes + other.worker_bytes,
            block_bytes=self.block_bytes + other.block_bytes,
        )


@dataclass(frozen=True, slots=True)
class Source:
    """One input, as it was when the job was planned.

    Attributes:
        path: Its name as it was given or found; `-` is standard input.
        num_bytes: Its stored size; 0 if that is not known.
        mtime_ns: Its modification time.
        edges: A hash of its first and last bytes; with size and time, it reveals changes.
        format: How its content is read.
        compression: How its content is compressed.
        is_stream: It can only be read once, from front to back.
        is_empty: It has no content.
        window_bytes: The window that its decoder needs.
        num_rows: The number of rows of a file of rows.
        content_bytes: The length of the content of a seekable compressed file.
        version: What its server calls the version of a remote file; changes with the content.
        index_bytes: The size of the list of its row groups, which is kept while it is open.
    """

    path: str
    num_bytes: int
    mtime_ns: int
    edges: str
    format: InputFormat = "text"
    compression: Compression | None = None
    is_stream: bool = False
    is_empty: bool = False
    window_bytes: int = 0
    num_rows: int = 0
    content_bytes: int = 0
    version: str = ""
    index_bytes: int = 0

    @property
    def is_rows(self) -> bool:
        """Whether positions in it count rows, not bytes."""
        return self.num_rows > 0

    @property
    def size(self) -> int:
        """Where it ends, in rows or bytes; `UNKNOWN_END` for a stream."""
        if self.is_empty:
            return 0
        if self.is_stream:
            return UNKNOWN_END
        return self.num_rows or self.content_bytes or self.num_bytes


@dataclass(frozen=True, slots=True)
class TokenizerRecord:
    """Which tokenizer makes the ids."""

    name: str
    vocab_size: int
    eot_id: int
    fingerprint: str
    bos_id: int | None = None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a job is, apart from its inputs: recorded before its first unit.

    `settings` is everything that shapes the bytes; two runs with the same ones and the same inputs
    are the same job. Units of `unit_bytes` are how this one was divided.
    """

    penstok: str
    tokenizer: TokenizerRecord
    dtype: Literal["uint16", "uint32"]
    unit_bytes: int
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DocumentRule:
    """How the documents of a text file are told apart.

    `separator` is what stands between two documents; it is empty when one file is one document.
    Where no input is text the kind is `record`: one record is one document.
    """

    kind: Literal["separator", "line", "file", "record"]
    separator: bytes = b""


@dataclass(frozen=True, slots=True)
class TextRules:
    """Every setting that shapes the bytes of an output.

    Two jobs with the same rules and the same inputs are the same job. Workers, resume, verify and
    Ray receive it whole, and the manifest records it as `settings`.

    Attributes:
        tokenizer: The fingerprint of the tokenizer.
        dtype: The type of a token.
        text_rules: The version of the rules in `readers`.
        text_key: The field of a record that holds the text.
        docs_by: How documents are told apart.
        doc_separator: What separates them, where `docs_by` says so.
        strip: Remove white space at both ends of a document.
        eot: Where end-of-text ids go.
        val_fraction: The share of documents that goes to val.
        seed: Of the split.
        shard_tokens: The size of a shard; None for one file, or one shard per task.
        invalid_utf8: What happens to invalid UTF-8.
        limit_bytes: How much of the input is used.
        task_bytes: The size of a task, where each task writes its own shards.
    """

    tokenizer: str
    dtype: Literal["uint16", "uint32"]
    text_rules: int
    text_key: str
    docs_by: Literal["separator", "line", "file", "record"]
    doc_separator: str | None
    strip: bool
    eot: EotPosition
    val_fraction: float
    seed: int
    shard_tokens: int | None
    invalid_utf8: InvalidUtf8
    limit_bytes: int | None
    task_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no job could have; `JobSettings` says it in the user's words before."""
        sizes = (self.shard_tokens, self.limit_bytes, self.task_bytes)
        separator = (self.doc_separator or "").encode()
        has_separator = 0 < len(separator) <= MAX_SEPARATOR_BYTES
        if (
            not 0 <= self.val_fraction <= 1
            or not 0 <= self.seed < 1 << 64
            or not self.text_key
            or any(size is not None and size < 1 for size in sizes)
            or (self.docs_by == "separator" and not has_separator)
        ):
            raise ValueError("a value is out of range")

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> TextRules:
        """Read the settings of a record.

        Raises:
            ValueError: If they are not what this version of Penstok could have written.
        """
        rules = msgspec.convert(settings, cls)
        if rules.text_rules != TEXT_RULES_VERSION:
            raise ValueError(f"text rules {rules.text_rules} are of another version of penstok")
        return rules

    def to_settings(self) -> dict[str, Any]:
        """Return them as they are recorded."""
        settings = asdict(self)
        if self.task_bytes is None:
            del settings["task_bytes"]
        return settings

    @property
    def document_rule(self) -> DocumentRule:
        """How the documents of a text file are told apart."""
        if self.docs_by == "separator":
            return DocumentRule("separator", (self.doc_separator or "").encode())
        return DocumentRule(self.docs_by, b"\n" if self.docs_by == "line" else b"")


@dataclass(frozen=True, slots=True)
class StreamCheckpoint:
    """How far a stream was read at the end of a unit, as the ledger records it.

    Attributes:
        stored_bytes: How much of the stored input was read.
        digest: A hash of all content before the unit's end, by which a rerun recognizes it.
    """

    stored_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a stream that is in the ring for one unit.

    Attributes:
        base: The ring position of the content's first byte.
        start: The first byte of content in the ring.
        end: The end of the content in the ring.
        size: The length of the content; `UNKNOWN_END` until its end is reached.
        head: The first bytes of the content; of CSV, all before the first record after the header.
        borders: The first records at or after the unit's start and its end; None if the reader
            finds borders itself.
        problem: Why the content ends early, if it does.
    """

    base: int
    start: int
    end: int
    size: int
    head: bytes
    borders: tuple[int, int] | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """A contiguous piece of one input that one worker turns into tokens.

    In a file of rows, `start` and `end` are numbers of rows, and exact. Elsewhere they are bytes,
    and nominal: the worker moves both to the first border at or after them, so that neighbouring
    units meet exactly. `source_end` is where the job ends in this input: its size, or less with a
    limit; what reaches the border there closes its document. In a stream positions count in its
    content, and `source_end` may be `UNKNOWN_END`.
    """

    index: int
    source_idx: int
    source: Source
    start: int
    end: int
    source_end: int
    passed: StreamCheckpoint | None = None
    window: Window | None = field(default=None, compare=False)

    @property
    def where(self) -> str:
        """Say which text it is, for messages."""
        if self.source.is_rows:
            return f"{self.source.path}, rows {self.start} to {self.end - 1}"
        content = "content byte" if self.source.is_stream else "byte"
        return f"{self.source.path}, {content} {self.start} to {self.end}"

    @property
    def stored_end(self) -> int:
        """How much of the input as it is stored lies before the unit's end."""
        return self._stored(self.end) if self.passed is None else self.passed.stored_bytes

    @property
    def stored_start(self) -> int:
        """How much of it lies before the unit's start; of a stream only about."""
        if self.passed is None:
            return self._stored(self.start)
        return self.passed.stored_bytes * self.start // max(self.end, 1)

    def stored_bytes(self, text_bytes: int) -> int:
        """Return about what so much text of it takes in the input as it is stored."""
        if self.window is not None and self.passed is not None:
            return self.passed.stored_bytes * text_bytes // self.window.end
        if self.source.is_rows:
            return self._stored(self.end) - self._stored(self.start)
        return self._stored(text_bytes)

    def _stored(self, position: int) -> int:
        size = self.source.num_rows or self.source.content_bytes
        return self.source.num_bytes * position // size if size else position


@dataclass(frozen=True, slots=True)
class Block:
    """Pieces of text handed to the engine at once: whole documents, or parts of a long one.

    Attributes:
        text: The bytes all positions below point into.
        starts: Where each piece begins.
        ends: Where each piece ends.
        begins: Whether the piece begins a document (else it goes on from the piece before).
        closes: Whether the piece ends its document (else the next piece goes on).
        heads: Where the text that decides the split of a document that begins here ends.
        special: Whether the piece holds the end-of-text string; None when no piece does.
        origin: Where `text` begins in its file, for messages.
        spans: The pieces are spans of one giant document: each has a split of its own.
        before: With `spans`: the span before the first piece; None at the document's start.
        after: With `spans`: the span after the last piece; None at the document's end.
    """

    text: memoryview
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    begins: NDArray[np.bool_]
    closes: NDArray[np.bool_]
    heads: NDArray[np.int64]
    special: NDArray[np.bool_] | None = None
    origin: int = 0
    spans: bool = False
    before: memoryview | None = None
    after: memoryview | None = None

    def select(self, chosen: NDArray[np.bool_]) -> Block:
        """Keep the pieces where `chosen` is true."""
        return Block(
            self.text,
            self.starts[chosen],
            self.ends[chosen],
            self.begins[chosen],
            self.closes[chosen],
            self.heads[chosen],
            None if self.special is None else self.special[chosen],
            self.origin,
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """What was seen, dropped and repaired; adds up over units."""

    documents: int = 0
    tokens: int = 0
    input_bytes: int = 0
    empty_documents: int = 0
    invalid_utf8: int = 0
    special_text_documents: int = 0
    byte_order_marks: int = 0
    nul_bytes: int = 0
    forced_cuts: int = 0
    skipped_records: int = 0

    def values(self) -> tuple[int, ...]:
        """Return all of them in order."""
        return _count_values(self)

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, _count_values(self), _count_values(other)))


# Made once: a ledger of terabytes adds up hundreds of thousands.
_count_values: Callable[[Counts], tuple[int, ...]] = attrgetter(
    *(field.name for field in fields(Counts))
)


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A bad record that was left out: where it begins in its input, and what is wrong with it."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class EncodedUnit:
    """What a worker knows of a unit before it may write.

    A unit can start inside a document whose split was decided in an earlier unit. What belongs to
    that document is `carried_*`; only the parent, which hears of all units in order, can say in
    which split it goes.

    Attributes:
        unit_idx: Which unit.
        counts: What was seen here; `tokens` counts the carried ones too.
        tokens: For each split, the tokens of the documents that begin here.
        documents: For each split, the documents that begin here.
        carried_tokens: Tokens of the document that was open at the start.
        carried_special: Whether its text here holds the end-of-text string.
        open_split: The split of a document that begins here and is still open at the end.
        open_special: Whether the text of that one holds the end-of-text string.
        skipped: The bad records that were left out; the first ones, if there are very many.
    """

    unit_idx: int
    counts: Counts
    tokens: dict[Split, int]
    documents: dict[Split, int]
    carried_tokens: int
    carried_special: bool
    open_split: Split | None
    open_special: bool
    skipped: tuple[SkippedRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitOffsets:
    """Where a unit's tokens go, given out in unit order."""

    unit_idx: int
    carried_split: Split
    offsets: dict[Split, int]


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of one unit's tokens inside one output file, and its checksum."""

    split: Split
    shard: int
    offset_tokens: int
    num_tokens: int
    digest: str


@dataclass(frozen=True, slots=True)
class WrittenUnit:
    """Proof that a unit's tokens were written."""

    unit_idx: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class FinishedUnit:
    """All that is known of a unit whose tokens are written: what a ledger line records."""

    unit: Unit
    encoded: EncodedUnit
    offsets: UnitOffsets
    written: WrittenUnit
