"""The registry of input formats: one row for each, with all that depends on the format.

It reads no documents; a row points to the package that does. The probe finds a source's row by
name and first bytes, `Readers` takes the reader from it, the plan and the feed ask it how an input
is divided. The name of a format is compared nowhere else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstok.errors import InputError, UsageError
from penstok.inputs.compression import content_suffix
from penstok.inputs.streams import STANDARD_INPUT
from penstok.readers import columnar, csv, jsonl
from penstok.readers.text import TextReader
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from penstok.inputs.base import OpenScanner, RecordScanner
    from penstok.readers.base import MakeReader
    from penstok.types import InputFormat, MemoryNeeds, Source

__all__ = [
    "DATASET_SUFFIXES",
    "FORMATS",
    "Format",
    "check_start",
    "find_format",
    "format_needs",
    "open_scanner",
]

_CONTROLS = bytes([*range(7), *range(14, 27), *range(28, 32)])
_Divide: TypeAlias = "Callable[[Source, str, int], Iterator[tuple[int, int]]]"


def _accept(path: str, head: bytes) -> None:
    """Accept any first bytes."""


def _as_it_is(source: Source, text_key: str) -> Source:
    return source


def _no_scanner(source: Source) -> RecordScanner | None:
    return None


class Format(Struct, frozen=True):
    """One input format.

    Attributes:
        name: What `--input-format` and the manifest call it.
        display_name: What messages call it.
        content_name: What a size is of, as in "3 GB of JSON Lines".
        make_reader: Makes its reader.
        suffixes: Names that end in one of these have this format.
        magic: Content that begins with it has this format, whatever the name says.
        usual_start: Standard input that begins with it is refused until the format is named.
        check_head: Refuses first bytes that this format cannot have.
        probe: Completes a source that is not empty, or refuses it if it lacks the text key.
        has_records: Each record is a document; else `--docs-by` and `--doc-separator` apply.
        has_delimiter: `--csv-delimiter` and `--no-header` apply.
        is_sequential: It can only be read from front to back, compressed or not.
        open_scanner: Makes what finds records in a stream; it makes None if the reader does that.
        divide: Divides a source into ranges of rows with about so much text; None if units are
            ranges of bytes.
        memory_needs: What its libraries take: in the parent, and in each worker.
    """

    name: InputFormat
    display_name: str
    content_name: str
    make_reader: MakeReader
    suffixes: tuple[str, ...] = ()
    magic: bytes = b""
    usual_start: bytes = b""
    check_head: Callable[[str, bytes], None] = _accept
    probe: Callable[[Source, str], Source] = _as_it_is
    has_records: bool = True
    has_delimiter: bool = False
    is_sequential: bool = False
    open_scanner: OpenScanner = _no_scanner
    divide: _Divide | None = None
    memory_needs: Callable[[Sequence[Source]], MemoryNeeds] | None = None

    @property
    def is_rows(self) -> bool:
        """Whether positions count rows instead of bytes."""
        return self.divide is not None


_TEXT = Format("text", "text", "text", TextReader, has_records=False)
FORMATS: dict[InputFormat, Format] = {
    row.name: row
    for row in (
        _TEXT,
        Format(
            "jsonl",
            "JSON Lines",
            "JSON Lines",
            jsonl.JsonlReader,
            suffixes=(".jsonl", ".ndjson", ".json"),
            usual_start=b'{"',
            check_head=jsonl.check_head,
            open_scanner=jsonl.open_scanner,
        ),
        Format(
            "csv",
            "CSV",
            "CSV",
            partial(csv.CsvReader, csv.CSV),
            suffixes=(".csv",),
            check_head=csv.check_head,
            probe=partial(csv.check_column, csv.CSV),
            has_delimiter=True,
            is_sequential=True,
            open_scanner=partial(csv.open_scanner, csv.CSV),
        ),
        Format(
            "tsv",
            "TSV",
            "TSV",
            partial(csv.CsvReader, csv.TSV),
            suffixes=(".tsv",),
            check_head=csv.check_head,
            probe=partial(csv.check_column, csv.TSV),
            has_delimiter=True,
            is_sequential=True,
            open_scanner=partial(csv.open_scanner, csv.TSV),
        ),
        Format(
            "parquet",
            "a parquet file",
            "parquet",
            partial(columnar.ColumnarReader, columnar.open_parquet, columnar.open_parquet_field),
            suffixes=(".parquet",),
            magic=columnar.PARQUET_MAGIC,
            check_head=columnar.check_parquet,
            probe=partial(columnar.count_rows, columnar.open_parquet),
            divide=partial(columnar.divide_rows, columnar.open_parquet),
            memory_needs=columnar.memory_needs,
        ),
        Format(
            "arrow",
            "an Arrow file",
            "Arrow",
            partial(columnar.ColumnarReader, columnar.open_arrow, columnar.open_arrow_field),
            suffixes=(".arrow", ".feather"),
            magic=columnar.ARROW_MAGIC,
            check_head=columnar.check_arrow,
            probe=partial(columnar.count_rows, columnar.open_arrow),
            divide=partial(columnar.divide_rows, columnar.open_arrow),
            memory_needs=columnar.memory_needs,
        ),
    )
}
# Files beside which the `datasets` library writes some that only describe them.
DATASET_SUFFIXES = tuple(
    suffix for row in FORMATS.values() if row.is_rows for suffix in row.suffixes
)


def find_format(path: str, head: bytes, wanted: InputFormat | None) -> Format:
    """Decide how an input is read: as asked for, else by its first bytes, else by its name.

    Args:
        path: Its name; that of a compressed file may end in two suffixes.
        head: The first bytes of its content.
        wanted: What the user passed as `--input-format`; None to detect it.

    Raises:
        InputError: If the first bytes are those of another format.
    """
    suffix = content_suffix(path)
    # Text may begin with the same letters; in a file of rows, lengths and types follow.
    is_plain = head.translate(None, _CONTROLS) == head
    found = next(
        (
            row
            for row in FORMATS.values()
            if row.magic and head.startswith(row.magic) and (suffix in row.suffixes or not is_plain)
        ),
        None,
    )
    named = next((row for row in FORMATS.values() if suffix in row.suffixes), _TEXT)
    chosen = FORMATS[wanted] if wanted is not None else found or named
    if found is not None and found is not chosen:
        raise InputError(
            f"this is {found.display_name}, not {chosen.display_name}",
            where=path,
            next_step=f"leave out `--input-format`, or pass `--input-format {found.name}`",
        )
    return chosen


def check_start(chosen: Format, path: str, head: bytes, wanted: InputFormat | None) -> None:
    """Refuse first bytes, as UTF-8, that a format cannot have.

    Raises:
        InputError: If the first bytes are those of something else.
        UsageError: If standard input looks like another format.
    """
    if wanted is None and path == STANDARD_INPUT:
        _refuse_unnamed(head)
    chosen.check_head(path, head)


def _refuse_unnamed(head: bytes) -> None:
    """Refuse to guess where standard input, which has no name, looks like records."""
    for row in FORMATS.values():
        if row.usual_start and head.lstrip().startswith(row.usual_start):
            raise UsageError(
                f"standard input begins like {row.display_name}, and has no name that says so",
                where=f"INPUT `{STANDARD_INPUT}`",
                next_step=f"pass `--input-format {row.name}`, or `--input-format {_TEXT.name}` to "
                "read it as plain text",
            )


def open_scanner(source: Source) -> RecordScanner | None:
    """Make what finds the records of a stream; None if its reader finds boundaries itself."""
    return FORMATS[source.format].open_scanner(source)


def format_needs(sources: Sequence[Source]) -> list[MemoryNeeds]:
    """Return what the libraries for the formats of these inputs take, each library once."""
    needs = dict.fromkeys(FORMATS[source.format].memory_needs for source in sources)
    return [measure(sources) for measure in needs if measure is not None]
