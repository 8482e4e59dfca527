"""Frozen records that several packages share: inputs, units, counts and segments.

They have no behaviour beyond arithmetic on their own fields, and this module imports no stage.
Every stage takes and returns them; `docs/concepts/glossary.md` defines the terms.
"""

from __future__ import annotations

import re
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import to_builtins

from penstok.choices import (
    DocumentIndex,
    EotPosition,
    InputFormat,
    InvalidUtf8,
    OnError,
    Priority,
    Split,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar, TypeVar

    import numpy as np
    from msgspec import field
    from numpy.typing import NDArray
    from typing_extensions import dataclass_transform
else:
    from msgspec import Struct, field
    from msgspec.structs import asdict, force_setattr, replace

__all__ = [
    "MAX_LISTED_RECORDS",
    "MAX_SEPARATOR_BYTES",
    "SPLITS",
    "TEXT_RULES_VERSION",
    "UNKNOWN_END",
    "UTF_8",
    "Block",
    "Compression",
    "Counts",
    "DocumentRule",
    "EncodedUnit",
    "EotPosition",
    "FailedTokenizer",
    "FieldColumn",
    "FinishedUnit",
    "InputFormat",
    "InvalidUtf8",
    "JobRecord",
    "MemoryNeeds",
    "OnError",
    "Priority",
    "RecordFields",
    "SampleTotals",
    "Segment",
    "SkippedRecord",
    "Source",
    "Split",
    "StreamCheckpoint",
    "Struct",
    "TextRules",
    "TokenizerRecord",
    "Unit",
    "UnitOffsets",
    "Window",
    "WrittenUnit",
    "asdict",
    "field",
    "force_setattr",
    "replace",
]

Compression = Literal["gzip", "zstd", "bzip2", "xz", "lz4"]
SPLITS: tuple[Split, Split] = ("train", "val")
MAX_SEPARATOR_BYTES = 1 << 14
# Incremented when a rule in `readers` that affects token bytes changes.
TEXT_RULES_VERSION = 2
# How many bad records of a unit are listed; all are counted. Without a limit, a file of nothing but
# bad records would fill the memory with reasons.
MAX_LISTED_RECORDS = 1000
_HASH = re.compile("[0-9a-f]{16}")
# Left out of records if they have their default.
_LATER_SETTINGS = {
    "document_index": "npy",
    "format": "raw",
    "sequence_length": None,
    "columns": "input_ids",
}
# Tokens that a unit without text can have: the end of one document, the beginning of another.
_MAX_TEXTLESS_TOKENS = 3
# The end of an input whose length is not known yet.
UNKNOWN_END = 1 << 62
# The encoding of an input unless another was chosen or detected, as Python names it.
UTF_8 = "utf-8"

if TYPE_CHECKING:
    # What msgspec says of its structs is incomplete for pyright's `--verifytypes`, and with it
    # every record would be.
    _Record = TypeVar("_Record", bound="Struct")

    @dataclass_transform(field_specifiers=(field,))
    class Struct:
        """A record; its fields are class annotations, as in a dataclass."""

        __struct_fields__: ClassVar[tuple[str, ...]]

        def __init_subclass__(
            cls, *, frozen: bool = False, kw_only: bool = False, eq: bool = True, **options: Any
        ) -> None:
            """Define the record."""

    def asdict(record: Struct, /) -> dict[str, Any]:
        """Return the fields and their values."""

    def replace(record: _Record, /, **changes: Any) -> _Record:
        """Return a copy with other values."""

    def force_setattr(record: Struct, name: str, value: Any, /) -> None:
        """Set a field of a frozen record that is being made."""


class MemoryNeeds(Struct, frozen=True, kw_only=True):
    """The memory that one part of a job needs; needs can be added.

    Attributes:
        parent_bytes: In the parent process.
        worker_bytes: In each worker.
        block_bytes: The most that encoding one block may add to a worker.
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


class Source(Struct, frozen=True):
    """One input, as it was when the job was planned.

    Attributes:
        path: The path or URL as given or found; `-` is standard input.
        num_bytes: Its size as stored; 0 if unknown.
        mtime_ns: Its modification time.
        edges: A hash of its first and last bytes; together with size and time it detects changes.
        format: How its content is read.
        compression: How its content is compressed.
        is_stream: It can only be read sequentially, from the start.
        is_empty: It has no content.
        window_bytes: The window size its decoder needs.
        num_rows: The number of rows of a columnar file; otherwise 0.
        content_bytes: The uncompressed size of a seekable compressed file; otherwise 0.
        version: The version of a remote file as reported by its server; changes with the content.
        index_bytes: The size of its list of row groups, held in memory while it is open.
        delimiter: What separates the fields of CSV; empty if it is that of the format.
        num_columns: The number of columns of CSV that has no header; otherwise 0.
        encoding: The encoding of its text; if it is not UTF-8, the input is a stream, and positions
            in it count bytes of UTF-8.
        archive: The archive that it is a member of, if it is one. Size and format are the member's,
            time, edges and version are the archive's.
        offset: Where a member begins in the content of its archive.
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
    delimiter: str = ""
    num_columns: int = 0
    encoding: str = UTF_8
    archive: Source | None = None
    offset: int = 0

    @property
    def stored(self) -> Source:
        """What is stored under a path or URL: the input itself, or the archive it is in."""
        return self.archive or self

    @property
    def is_rows(self) -> bool:
        """Whether positions in it are row numbers instead of byte offsets."""
        return self.num_rows > 0

    @property
    def size(self) -> int:
        """Its length in rows or bytes; `UNKNOWN_END` for a stream."""
        if self.is_empty:
            return 0
        if self.is_stream:
            return UNKNOWN_END
        return self.num_rows or self.content_bytes or self.num_bytes


class TokenizerRecord(Struct, frozen=True):
    """Which tokenizer produced the ids.

    `eot_text` and `bos_text` are the names of the tokens that end and begin documents; they are
    empty if the tokenizer has no name for the id, and in outputs of earlier versions.
    """

    name: str
    vocab_size: int
    eot_id: int
    fingerprint: str
    bos_id: int | None = None
    eot_text: str = ""
    bos_text: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return what is recorded; names that are empty are left out."""
        return {name: value for name, value in to_builtins(self).items() if value != ""}


class JobRecord(Struct, frozen=True):
    """A job without its inputs, as recorded before its first unit.

    `settings` holds everything that affects token bytes: two runs with the same settings and the
    same inputs are the same job. `unit_bytes` is the unit size this job was divided with.
    """

    penstok: str
    tokenizer: TokenizerRecord
    dtype: Literal["uint16", "uint32"]
    unit_bytes: int
    settings: dict[str, Any]


class DocumentRule(Struct, frozen=True):
    """How text files are divided into documents.

    `separator` is the delimiter between two documents; it is empty if each file is one document.
    If no input is plain text, the kind is `record`: each record is one document.
    """

    kind: Literal["separator", "line", "file", "record"]
    separator: bytes = b""


class TextRules(Struct, frozen=True):
    """Every setting that affects the bytes of an output.

    Two jobs with the same rules and the same inputs are the same job. Workers, resume, verify and
    Ray all receive this record, and the manifest stores it as `settings`.

    Attributes:
        tokenizer: The fingerprint of the tokenizer.
        dtype: The integer type of a token.
        text_rules: The version of the rules in `readers`.
        text_key: The field of a record that holds the text.
        docs_by: How text is divided into documents.
        doc_separator: The delimiter, if `docs_by` is `separator`.
        strip: Remove white space at both ends of a document.
        eot: Where end-of-text ids go.
        val_fraction: The share of documents that goes to val.
        seed: Seed for the train/val split.
        shard_tokens: Tokens per shard; None for one file, or for one shard per task.
        invalid_utf8: What happens to invalid UTF-8.
        limit_bytes: How much of the input is used; None for all of it.
        task_bytes: Input bytes per task, if each task writes its own shards; otherwise None.
        csv_delimiter: What separates the fields of CSV; None if the format says it.
        no_header: The columns of CSV have numbers instead of names.
        val_hash: The hash of the document that goes to val because `val_fraction` gives none; None
            if the fraction decides.
        document_index: Whether an index of the documents is written beside the tokens.
        format: The formats that are written, separated by commas, `raw` first.
        sequence_length: Tokens per row of formats that have rows.
        columns: The columns of formats that have some, separated by commas.
        provenance: Whether the origin of each document is written beside the index.
        keep: The fields of records that are written beside the index, separated by commas.
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
    csv_delimiter: str | None = None
    no_header: bool = False
    val_hash: str | None = None
    document_index: DocumentIndex = "npy"
    format: str = "raw"
    sequence_length: int | None = None
    columns: str = "input_ids"
    provenance: bool = False
    keep: str = ""

    def __post_init__(self) -> None:
        """Reject values out of range; `JobSettings` has reported them to the user before."""
        separator = (self.doc_separator or "").encode()
        has_separator = 0 < len(separator) <= MAX_SEPARATOR_BYTES
        valid = {
            "val_fraction": 0 <= self.val_fraction <= 1,
            "seed": 0 <= self.seed < 1 << 64,
            "text_key": self.text_key != "",
            "shard_tokens": self.shard_tokens is None or self.shard_tokens >= 1,
            "limit_bytes": self.limit_bytes is None or self.limit_bytes >= 1,
            "task_bytes": self.task_bytes is None or self.task_bytes >= 1,
            "doc_separator": self.docs_by != "separator" or has_separator,
            "val_hash": self.val_hash is None or _HASH.fullmatch(self.val_hash) is not None,
            "provenance": not self.provenance or self.document_index != "none",
            "keep": not self.keep or self.document_index != "none",
        }
        for name, is_valid in valid.items():
            if not is_valid:
                raise ValueError(f"`{name}` is out of range: {getattr(self, name)!r}")

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> TextRules:
        """Read the settings of a record.

        Raises:
            ValueError: If this version of Penstok could not have written them.
        """
        rules = msgspec.convert(settings, cls)
        if rules.text_rules != TEXT_RULES_VERSION:
            raise ValueError(f"text rules {rules.text_rules} belong to another version of penstok")
        return rules

    def to_settings(self) -> dict[str, Any]:
        """Return the settings as the ledger and the manifest record them."""
        settings: dict[str, Any] = to_builtins(self)
        for name in (
            *("task_bytes", "csv_delimiter", "no_header", "val_hash", "provenance", "keep"),
        ):
            # Left out by default, so that outputs of older versions are still the same job.
            if not settings[name]:
                del settings[name]
        for name, default in _LATER_SETTINGS.items():
            if settings[name] == default:
                del settings[name]
        return settings

    @property
    def kept_fields(self) -> tuple[str, ...]:
        """The names in `keep`."""
        return tuple(self.keep.split(",")) if self.keep else ()

    @property
    def val_hashes(self) -> tuple[int, int]:
        """Documents with a hash from the first to before the second go to val."""
        if self.val_hash is not None:
            return int(self.val_hash, 16), int(self.val_hash, 16) + 1
        return 0, round(self.val_fraction * 2**64)

    @property
    def document_rule(self) -> DocumentRule:
        """How text files are divided into documents."""
        if self.docs_by == "separator":
            return DocumentRule("separator", (self.doc_separator or "").encode())
        return DocumentRule(self.docs_by, b"\n" if self.docs_by == "line" else b"")


class StreamCheckpoint(Struct, frozen=True):
    """How far a stream was read at the end of a unit, as the ledger records it.

    Attributes:
        stored_bytes: How much of the stored input was read.
        digest: A hash of all content before the unit's end, so that a rerun can recognize it.
    """

    stored_bytes: int
    digest: str


class Window(Struct, frozen=True):
    """The part of a stream that the ring buffer holds for one unit.

    Attributes:
        base: The ring position of the content's first byte.
        start: The first byte of content in the ring.
        end: The end of the content in the ring.
        size: The length of the content; `UNKNOWN_END` until its end is reached.
        head: The first bytes of the content; for CSV, everything before the first data record.
        borders: Where the first record at or after the unit's start, and at or after its end,
            begins; None if the reader finds record borders itself.
        problem: Why the content ends early; empty if it does not.
    """

    base: int
    start: int
    end: int
    size: int
    head: bytes
    borders: tuple[int, int] | None
    problem: str = ""


class Unit(Struct, frozen=True):
    """A contiguous range of one input that one worker turns into tokens.

    In a columnar file, `start` and `end` are row numbers, and exact. Elsewhere they are byte
    offsets, and nominal: the worker moves both to the first record border at or after them, so that
    neighbouring units meet exactly. `source_end` is where the job stops reading this input: its
    size, or less with a limit; a document that reaches it ends there. In a stream, positions are
    offsets in its uncompressed content, and `source_end` may be `UNKNOWN_END`. `passed` is how far
    a stream had been read at the unit's end.
    """

    index: int
    source_idx: int
    source: Source
    start: int
    end: int
    source_end: int
    passed: StreamCheckpoint | None = None
    window: Window | None = None

    @property
    def where(self) -> str:
        """The input and range, for messages."""
        if self.source.is_rows:
            return f"{self.source.path}, rows {self.start} to {self.end - 1}"
        content = "content byte" if self.source.is_stream else "byte"
        return f"{self.source.path}, {content} {self.start} to {self.end}"

    @property
    def stored_end(self) -> int:
        """The unit's end as a byte offset in the input as stored."""
        return self._stored(self.end) if self.passed is None else self.passed.stored_bytes

    @property
    def stored_start(self) -> int:
        """The unit's start as a byte offset in the input as stored; approximate for a stream."""
        if self.passed is None:
            return self._stored(self.start)
        return self.passed.stored_bytes * self.start // max(self.end, 1)

    def stored_bytes(self, text_bytes: int) -> int:
        """Estimate how many stored bytes of the input hold this much of its text."""
        if self.window is not None and self.passed is not None:
            return self.passed.stored_bytes * text_bytes // self.window.end
        if self.source.is_rows:
            return self._stored(self.end) - self._stored(self.start)
        return self._stored(text_bytes)

    def _stored(self, position: int) -> int:
        size = self.source.num_rows or self.source.content_bytes
        return self.source.num_bytes * position // size if size else position


class FieldColumn(Struct, frozen=True):
    """The values of one field that a job keeps, for some records.

    Attributes:
        data: The bytes that the offsets refer to: UTF-8, unless the input has invalid bytes there.
        starts: Where each value begins.
        ends: Where it ends.
        valid: Whether the record has a value.
    """

    data: memoryview
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    valid: NDArray[np.bool_]


class RecordFields(Struct, frozen=True):
    """The fields that a job keeps, for some records in order.

    Attributes:
        positions: Where each record begins in its input, as `Block.positions` has it.
        columns: The values, in the order of the names in `TextRules.keep`.
    """

    positions: NDArray[np.int64]
    columns: list[FieldColumn]


class Block(Struct, frozen=True):
    """Pieces of text passed to the engine at once: documents, or parts of a long one.

    Attributes:
        text: The bytes that all offsets below refer to.
        starts: Where each piece begins.
        ends: Where each piece ends.
        begins: Whether the piece begins a document; otherwise it continues the previous piece.
        closes: Whether the piece ends its document; otherwise the next piece continues it.
        heads: For a piece that begins a document, the end of the text that decides its split.
        special: Whether the piece contains the end-of-text string; None if no piece does.
        origin: The offset of `text` in its file, for messages.
        spans: The pieces are spans of one giant document, and each has its own split.
        before: With `spans`: the span before the first piece; None at the document's start.
        after: With `spans`: the span after the last piece; None at the document's end.
        positions: Where each piece, or the record that it is from, begins in its input: a byte of
            the content, or a row number. None unless the job records origins or keeps fields.
        fields: The fields of all records that begin in the block, and maybe of others; None unless
            the job keeps some.
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
    positions: NDArray[np.int64] | None = None
    fields: RecordFields | None = None

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
            positions=None if self.positions is None else self.positions[chosen],
            fields=self.fields,
        )


class Counts(Struct, frozen=True):
    """What was read, dropped and repaired; the counts of several units can be added.

    `input_bytes` is the decompressed content of the inputs (of rows, their text), `text_bytes` the
    text of the documents as it was encoded: without separators, and without the syntax of records.
    Older versions did not count it, and then it is 0; a sum with such counts has none either.
    """

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
    text_bytes: int = 0

    def values(self) -> tuple[int, ...]:
        """Return all counts in the order of the fields."""
        return _count_values(self)

    def __add__(self, other: Counts) -> Counts:
        total = Counts(*map(add, _count_values(self), _count_values(other)))
        if self._has_uncounted_text or other._has_uncounted_text:
            return replace(total, text_bytes=0)
        return total

    @property
    def _has_uncounted_text(self) -> bool:
        return not self.text_bytes and self.tokens > _MAX_TEXTLESS_TOKENS


# Built once: the ledger of a terabyte corpus adds hundreds of thousands of `Counts`.
_count_values: Callable[[Counts], tuple[int, ...]] = attrgetter(*Counts.__struct_fields__)


class SkippedRecord(Struct, frozen=True):
    """A bad record that was skipped: where it begins in its input, and what is wrong with it."""

    position: int
    reason: str


class FailedTokenizer(Struct, frozen=True):
    """A tokenizer of a count that could not be used; it does not stop the others.

    Attributes:
        name: Its name, as it was asked for.
        what: What happened.
        where: Where.
        next_step: What to do about it.
    """

    name: str
    what: str
    where: str
    next_step: str


class SampleTotals(Struct, frozen=True):
    """What samples have together: from it, the size of an output is estimated.

    Attributes:
        stored_bytes: How much of the inputs they are, as it is stored.
        num_tokens: How many tokens they gave.
        spool_bytes: What their documents take in the spools of indexes and kept fields.
    """

    stored_bytes: int
    num_tokens: int
    spool_bytes: int


class EncodedUnit(Struct, frozen=True):
    """A unit whose tokens a worker holds in memory, not yet written.

    A unit can start inside a document whose split was decided in an earlier unit. Its part of that
    document is `carried_*`; only the parent, which receives all units in order, knows its split.

    Attributes:
        unit_idx: The number of the unit.
        counts: What was read in this unit; `tokens` includes the carried ones.
        tokens: Per split, the tokens of the documents that begin in this unit.
        documents: Per split, the number of documents that begin in this unit.
        carried_tokens: Tokens of the document that was open at the unit's start.
        carried_special: Whether the text of that document in this unit contains the end-of-text
            string.
        open_split: The split of the document that begins in this unit and is still open at its
            end; None if there is none.
        open_special: Whether the text of that document contains the end-of-text string.
        skipped: The bad records; only the first ones if there are more than `MAX_LISTED_RECORDS`.
        num_characters: Of the text, if the worker counts them; otherwise 0.
        by_tokenizer: In a count, what each tokenizer made of the unit, or why it failed.
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
    num_characters: int = 0
    by_tokenizer: tuple[EncodedUnit | FailedTokenizer, ...] = ()

    def equals_recorded(self, recorded: EncodedUnit) -> bool:
        """Compare with a record, which may be of a version that did not count the text."""
        if self.counts.text_bytes and not recorded.counts.text_bytes:
            return replace(self, counts=replace(self.counts, text_bytes=0)) == recorded
        return self == recorded


class UnitOffsets(Struct, frozen=True):
    """Where a unit's tokens go; assigned in unit order.

    Attributes:
        unit_idx: The number of the unit.
        carried_split: The split of the document that is open at the unit's start.
        offsets: Per split, the number of tokens before this unit.
        documents: Per split, the number of documents that begin before this unit.
    """

    unit_idx: int
    carried_split: Split
    offsets: dict[Split, int]
    documents: dict[Split, int]


class Segment(Struct, frozen=True):
    """A run of one unit's tokens inside one output file, with its checksum."""

    split: Split
    shard: int
    offset_tokens: int
    num_tokens: int
    digest: str


class WrittenUnit(Struct, frozen=True):
    """Where the tokens of a written unit are, with their checksums."""

    unit_idx: int
    segments: tuple[Segment, ...]


class FinishedUnit(Struct, frozen=True):
    """Everything known about a unit whose tokens are written: what its ledger line records."""

    unit: Unit
    encoded: EncodedUnit
    offsets: UnitOffsets
    written: WrittenUnit
