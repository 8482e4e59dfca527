"""Where the documents of an output came from, read from the files that `--provenance` writes.

It opens no input, and reads only the entries that are asked for: documents are in the order of the
inputs, so those of one input are found by bisection. `api`, `find` and `show` use it.
"""

from __future__ import annotations

from bisect import bisect_left
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from penstok.errors import DamageError, UsageError, quoted
from penstok.output.documents import iter_entries
from penstok.output.manifest import Manifest
from penstok.quantities import plural
from penstok.readers.formats import FORMATS
from penstok.storage.object_paths import output_path
from penstok.types import SPLITS, UTF_8, Split, Struct

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from penstok.output.documents import IndexRecord
    from penstok.storage.object_paths import ObjectPath, OutputPath

__all__ = ["FoundDocument", "Origin", "Origins", "find_documents", "open_origins"]


class Origin(Struct, frozen=True):
    """Where a document came from.

    Attributes:
        path: Its input, as the manifest names it.
        position: Where it, or its record, begins there.
        unit: What `position` counts: bytes of the content, or rows; both from 0.
        content: What the bytes are of, if they are not those of the input as it is stored:
            `decompressed content`, or `text as UTF-8`.
    """

    path: str
    position: int
    unit: Literal["byte", "row"]
    content: str = ""

    @property
    def where(self) -> str:
        """The origin in words, such as `corpus/a.txt, byte 1234`."""
        content = f" of its {self.content}" if self.content else ""
        return f"{self.path}, {self.unit} {self.position}{content}"


class FoundDocument(Struct, frozen=True):
    """A document of an output, and where it came from.

    Attributes:
        split: Its split.
        document: Its number in the split, from 0, as in the document index.
        origin: Where it came from.
    """

    split: Split
    document: int
    origin: Origin


class Origins:
    """The origins of all documents of an output."""

    def __init__(self, folder: OutputPath, manifest: Manifest) -> None:
        """Use the origins of an output.

        Raises:
            UsageError: If it was made without `--provenance`.
        """
        if not manifest.settings.get("provenance"):
            raise UsageError(
                "this output does not say where its documents came from",
                where=str(folder),
                next_step="make it again with `--provenance`: `penstok tokenize INPUT... "
                f"-o {quoted(folder)} --provenance --overwrite`",
            )
        self._folder = folder
        self._manifest = manifest

    def of(self, split: Split, document: int) -> Origin:
        """Return where a document came from.

        Raises:
            UsageError: If the split has no such document.
            DamageError: If the file that says so is missing or damaged.
        """
        before = 0
        for index in self._manifest.splits[split].indexes_of("origins"):
            if 0 <= document - before < index.documents:
                return self._origin(*self._read(index, document - before))
            before += index.documents
        raise UsageError(
            f"the {split} split has only {plural(before, 'document')}",
            where=f"document {document}",
            next_step=f"pass a number from 0 to {max(before - 1, 0)}, or another split",
        )

    def find_inputs(self, pattern: str) -> list[int]:
        """Return the numbers of the inputs with a name, or with names that match a glob pattern.

        Raises:
            UsageError: If there is none.
        """
        names = [record.path for record in self._manifest.inputs if record.reason is None]
        found = [idx for idx, name in enumerate(names) if name == pattern]
        found = found or [idx for idx, name in enumerate(names) if fnmatchcase(name, pattern)]
        if found:
            return found
        unused = {each.path: each.reason for each in self._manifest.inputs if each.reason}
        if pattern in unused:
            raise UsageError(
                f"`{pattern}` was not used: {unused[pattern]}",
                where="--input",
                next_step=f"name another of {plural(len(names), 'input')}; "
                f"`penstok info {quoted(self._folder)} --json` lists them",
            )
        close = get_close_matches(pattern, names, n=1) or [
            name for name in names if name.endswith(f"/{pattern}")
        ]
        raise UsageError(
            f"no input of this output is called `{pattern}`"
            + (f"; did you mean `{close[0]}`?" if close else ""),
            where="--input",
            next_step=f"pass `--input {quoted(close[0] if close else '*')}`; "
            f"`penstok info {quoted(self._folder)} --json` lists the inputs",
        )

    def iter_documents(self, inputs: list[int]) -> Iterator[FoundDocument]:
        """Yield the documents that came from some inputs, split by split and in order.

        Raises:
            DamageError: If a file with origins is missing or damaged.
        """
        ranges = list(_join(sorted(inputs)))
        for split in SPLITS:
            before = 0
            for index in self._manifest.splits[split].indexes_of("origins"):
                for first, stop in self._find_runs(index, ranges):
                    for document, origin in self._iter_run(index, first, stop):
                        yield FoundDocument(split, before + document, origin)
                before += index.documents

    def _find_runs(self, index: IndexRecord, ranges: list[range]) -> Iterator[tuple[int, int]]:
        """Find the documents of ranges of inputs in a file: the first, and the one after."""
        if not index.documents:
            return
        least, most = self._read(index, 0)[0], self._read(index, index.documents - 1)[0]
        rows = range(index.documents)
        for wanted in ranges:
            if wanted.start <= most and wanted.stop > least:
                first, stop = (
                    bisect_left(rows, number, key=lambda row: self._read(index, row)[0])
                    for number in (wanted.start, wanted.stop)
                )
                yield first, stop

    def _iter_run(self, index: IndexRecord, first: int, stop: int) -> Iterator[tuple[int, Origin]]:
        """Yield the number in its file and the origin of consecutive documents."""
        known, like = -1, Origin("", 0, "byte")
        for entries in iter_entries(self._path(index), "origins", first, stop):
            for input_idx, position in entries.tolist():
                if input_idx != known:
                    known, like = input_idx, self._origin(input_idx, position)
                yield first, Origin(like.path, position, like.unit, like.content)
                first += 1

    def _read(self, index: IndexRecord, row: int) -> tuple[int, int]:
        for entries in iter_entries(self._path(index), "origins", row, row + 1):
            return int(entries["input"][0]), int(entries["position"][0])
        raise DamageError(
            f"`{index.path}` ends too early",
            where=str(self._path(index)),
            next_step=f"`penstok verify {quoted(self._folder)}` says what is damaged",
        )

    def _path(self, index: IndexRecord) -> OutputPath:
        return self._folder / index.path

    def _origin(self, input_idx: int, position: int) -> Origin:
        inputs = self._manifest.inputs
        if input_idx >= len(inputs):
            raise DamageError(
                f"an origin names input {input_idx}; there are {len(inputs)}",
                where=str(self._folder),
                next_step=f"`penstok verify {quoted(self._folder)} --full` says what is damaged",
            )
        record = inputs[input_idx]
        is_rows = any(row.is_rows for name, row in FORMATS.items() if name == record.format)
        if is_rows:
            return Origin(record.path, position, "row")
        content = "" if record.compression is None else "decompressed content"
        content = content if record.encoding == UTF_8 else "text as UTF-8"
        return Origin(record.path, position, "byte", content)


def _join(numbers: list[int]) -> Iterator[range]:
    """Join consecutive numbers to ranges."""
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield range(members[0], members[-1] + 1)


def find_documents(
    folder: str | os.PathLike[str] | ObjectPath, pattern: str | None
) -> Iterator[FoundDocument]:
    """Return the documents of a finished output that came from some inputs, as an iterator.

    Args:
        folder: The output.
        pattern: The name of an input as the manifest has it, or a glob pattern.

    Raises:
        DamageError: If there is no finished job.
        UsageError: If it was made without `--provenance`, or has no such input.
    """
    if not pattern:
        raise UsageError(
            "no input is named",
            where="--input",
            next_step=f"name one, such as `penstok find {quoted(str(folder))} --input '*'`",
        )
    origins = open_origins(folder)
    return origins.iter_documents(origins.find_inputs(pattern))


def open_origins(folder: str | os.PathLike[str] | ObjectPath) -> Origins:
    """Open the origins of a finished output: a folder, or `s3://BUCKET/NAME`.

    Raises:
        DamageError: If there is no finished job.
        UsageError: If it was made without `--provenance`.
    """
    path = output_path(folder)
    return Origins(path, Manifest.load(path))
