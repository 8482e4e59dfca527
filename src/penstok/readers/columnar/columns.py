"""Finds the columns that `--text-key` and `--keep` name, or says which columns there are.

It reads no rows. `parquet` and `arrow` call it once per file.
"""

from __future__ import annotations

import json
import math
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstok.errors import InputError
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["KeptColumn", "TextColumn", "find_kept_column", "find_text_column", "storage_type"]

_MAX_NAMES = 12  # in a message
_STEP = "pass another `--text-key`, or leave such files out with `--on-error skip`"


class TextColumn(Struct, frozen=True):
    """A column of text.

    Attributes:
        key: Its name as the user typed it.
        names: The path to it; more than one name if it is inside a struct.
        type: Text or bytes, maybe in a dictionary.
    """

    key: str
    names: tuple[str, ...]
    type: pa.DataType

    @property
    def is_binary(self) -> bool:
        """Whether it is a column of bytes, so that it may be text in any encoding."""
        import pyarrow as pa

        kind = self.type.value_type if pa.types.is_dictionary(self.type) else self.type
        return kind in (pa.binary(), pa.large_binary(), pa.binary_view())

    def pick(self, batch: pa.RecordBatch) -> pa.Array:
        """Return this column of a batch; a row is null if a struct around it is."""
        columns, names = batch.columns, batch.schema.names
        array = None
        for name in self.names:
            if name not in names:
                raise ValueError(f"a batch has no column `{self.key}`")
            array = columns[names.index(name)]
            kind = storage_type(array.type)
            array = array if kind == array.type else array.storage
            columns = array.flatten() if _is_struct(kind) else []
            names = [field.name for field in _children(kind)]
        if array is None or array.type != self.type:
            raise ValueError(f"column `{self.key}` has another type in this batch")
        return array


class KeptColumn(TextColumn, frozen=True):
    """A column of any type whose values are kept as text."""

    def pick(self, batch: pa.RecordBatch) -> pa.Array:
        """Return this column of a batch as text or bytes."""
        return _as_text(super().pick(batch))


def find_kept_column(schema: pa.Schema, key: str, path: str) -> KeptColumn:
    """Find the column that a kept field names, as `find_text_column` does.

    Raises:
        KeyError: If there is none.
        InputError: If two columns have the name.
    """
    fields = list(schema)
    names = (key,) if any(field.name == key for field in fields) else tuple(key.split("."))
    kind = None
    for name in names:
        named = [field for field in fields if field.name == name]
        if not named:
            raise KeyError(key)
        if len(named) > 1:
            raise InputError(
                f"two columns are named `{name}`",
                where=path,
                next_step=f"rename one, or leave `{key}` out of `--keep`",
            )
        kind = storage_type(named[0].type)
        fields = _children(kind)
    return KeptColumn(key, names, kind)


def _as_text(array: pa.Array) -> pa.Array:
    """Return values as text: numbers and times as pyarrow has them, lists and structs as JSON."""
    import pyarrow as pa

    array = _plain(array)
    kind = array.type
    if _is_text(kind):
        return array
    if pa.types.is_nested(kind):
        values = [None if value is None else _as_json(value) for value in _to_values(array)]
    elif pa.types.is_fixed_size_binary(kind):
        # Hashes and UUIDs: never text.
        values = [None if value is None else value.hex() for value in array.to_pylist()]
    else:
        try:
            return array.cast(pa.large_string())
        except pa.ArrowNotImplementedError:
            values = [None if value is None else str(value) for value in array.to_pylist()]
    return pa.array(values, pa.large_string())


def _plain(array: pa.Array) -> pa.Array:
    """Return the values without an extension type, a dictionary that is not text, or runs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if storage_type(array.type) != array.type:
        return _plain(array.storage)
    if pa.types.is_run_end_encoded(array.type):
        return _plain(pc.run_end_decode(array))
    if pa.types.is_dictionary(array.type) and not _is_text(array.type):
        return _plain(array.dictionary.take(array.indices))
    return array


def _to_values(array: pa.Array) -> list[Any]:
    """Return values as Python objects that JSON has; what it does not have is text.

    `to_pylist` would fail for nanoseconds and years that Python's types do not have.
    """
    import pyarrow as pa

    array = _plain(array)
    kind = array.type
    if pa.types.is_struct(kind):
        names = [kind.field(idx).name for idx in range(kind.num_fields)]
        columns = [_to_values(column) for column in array.flatten()]
        valid = array.is_valid().to_pylist()
        return [
            {name: column[row] for name, column in zip(names, columns, strict=True)}
            if is_valid
            else None
            for row, is_valid in enumerate(valid)
        ]
    if pa.types.is_map(kind):
        pairs = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        rows = _to_values(array.cast(pairs))
        return [row and [[pair["key"], pair["value"]] for pair in row] for row in rows]
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        items, lengths = iter(_to_values(array.flatten())), array.value_lengths().to_pylist()
        return [None if length is None else list(islice(items, length)) for length in lengths]
    if pa.types.is_floating(kind):
        return [_finite(value) for value in array.to_pylist()]
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_union(kind):
        return list(array.to_pylist())
    values = _as_text(array).to_pylist()
    return [
        value.decode(errors="replace") if isinstance(value, bytes) else value for value in values
    ]


def _finite(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def find_text_column(schema: pa.Schema, key: str, path: str) -> TextColumn:
    """Find the column a text key names.

    A column of exactly that name is preferred; else dots lead into structs.

    Raises:
        InputError: If it is missing, ambiguous, or not text; it names the columns of text.
    """
    fields = list(schema)
    names = (key,) if any(field.name == key for field in fields) else tuple(key.split("."))
    found = None
    for depth, name in enumerate(names):
        named = [field for field in fields if field.name == name]
        if len(named) != 1:
            shown = ".".join(names[: depth + 1])
            what = f"two columns are named `{shown}`" if named else f"text key `{key}` is missing"
            raise _refusal(what, schema, path)
        found = storage_type(named[0].type)
        if depth + 1 < len(names) and not _is_struct(found):
            outer = ".".join(names[: depth + 1])
            what = f"text key `{key}` leads into `{outer}`, which is {_describe(found)}"
            raise _refusal(what, schema, path)
        fields = _children(found)
    if found is None or not _is_text(found):
        raise _refusal(f"text key `{key}` is {_describe(found)}, not text", schema, path)
    return TextColumn(key, names, found)


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that values are stored as; only extension types have another."""
    import pyarrow as pa

    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_struct(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind))


def _children(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(idx) for idx in range(kind.num_fields)] if _is_struct(kind) else []


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    texts = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return kind in texts or kind in (pa.string_view(), pa.binary_view())


def _describe(kind: pa.DataType | None) -> str:
    import pyarrow as pa

    if kind is None or _is_struct(kind):
        return "a struct"
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return "a list" if is_list or pa.types.is_fixed_size_list(kind) else f"of type {kind}"


def _refusal(what: str, schema: pa.Schema, path: str) -> InputError:
    names = list(_iter_text_names(list(schema), ""))
    shown = ", ".join(f"`{name}`" for name in names[:_MAX_NAMES]) or "no column of text"
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return InputError(f"{what}; this file has {shown}{more}", where=path, next_step=_STEP)


def _iter_text_names(fields: list[pa.Field], prefix: str) -> Iterator[str]:
    for field in fields:
        kind = storage_type(field.type)
        if _is_text(kind):
            yield prefix + field.name
        yield from _iter_text_names(_children(kind), f"{prefix}{field.name}.")
