"""The fields of records that `--keep` wrote beside the tokens, one row per document.

It reads the row groups that are asked for, through `output.fields`, and holds one. `dataset` opens
it; `show --document` prints a row.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from penstok.data.documents import PerDocument
from penstok.errors import DamageError, UsageError, quoted
from penstok.output.fields import open_parquet
from penstok.quantities import plural
from penstok.storage.object_paths import repair_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.output.documents import IndexRecord
    from penstok.output.manifest import Manifest
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Split

__all__ = ["FieldValues", "Fields"]

# What one document has, by the name of the field; None if its record has no such value.
FieldValues: TypeAlias = "dict[str, str | None]"
_READ_ROWS = 1 << 10


class Fields(PerDocument[FieldValues]):
    """The kept fields of a split: `fields[17]` are those of document 17.

    Values are text. Documents one after the other are read quickly; each one by itself takes the
    time to read a row group.
    """

    def __init__(self, folder: OutputPath, manifest: Manifest, split: Split) -> None:
        """Use the fields of a split.

        Raises:
            UsageError: If the output was made without `--keep`.
        """
        if not manifest.settings.get("keep"):
            raise UsageError(
                "this output has no fields of its records",
                where=str(folder),
                next_step="make it again with those you need: `penstok tokenize INPUT... "
                f"-o {quoted(folder)} --keep url,lang --overwrite`",
            )
        self._folder = folder
        self._split = split
        self._indexes = manifest.splits[split].indexes_of("fields")
        self._firsts = list(accumulate((each.documents for each in self._indexes), initial=0))
        self._held: tuple[int, int, list[FieldValues]] | None = None
        self.names: tuple[str, ...] = tuple(manifest.settings["keep"].split(","))

    def __len__(self) -> int:
        return self._firsts[-1]

    def __repr__(self) -> str:
        return f"<{', '.join(self.names)} of {plural(len(self), 'document')} of {self._split}>"

    def __iter__(self) -> Iterator[FieldValues]:
        """Yield the fields of document after document."""
        for index in self._indexes:
            with open_parquet(self._folder / index.path) as file:
                self._check(index, file)
                for batch in file.iter_batches(_READ_ROWS, use_threads=False):
                    yield from batch.to_pylist()

    def _read(self, number: int) -> FieldValues:
        idx = bisect_right(self._firsts, number) - 1
        row = number - self._firsts[idx]
        held = self._held
        if held is None or held[0] != idx or not 0 <= row - held[1] < len(held[2]):
            held = self._held = (idx, *self._load_group(self._indexes[idx], row))
        return dict(held[2][row - held[1]])

    def _load_group(self, index: IndexRecord, row: int) -> tuple[int, list[FieldValues]]:
        """Return the row group with a row, and its first row."""
        with open_parquet(self._folder / index.path) as file:
            self._check(index, file)
            metadata, first = file.metadata, 0
            for group in range(metadata.num_row_groups):
                count = metadata.row_group(group).num_rows
                if row < first + count:
                    return first, file.read_row_group(group, use_threads=False).to_pylist()
                first += count
            raise self._misfit(index)

    def _check(self, index: IndexRecord, file: Any) -> None:
        if file.metadata.num_rows != index.documents or set(file.schema_arrow.names) != {
            *self.names
        }:
            raise self._misfit(index)

    def _misfit(self, index: IndexRecord) -> DamageError:
        return DamageError(
            f"`{index.path}` does not fit the documents",
            where=str(self._folder / index.path),
            next_step=repair_step(self._folder),
        )
