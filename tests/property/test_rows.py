"""Laws of files of rows: the texts that went in come out, however they were stored."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from row_cases import divide, make_readers, read_all, read_unit, write_rows
from support import HOSTILE_CHARACTERS, rounds

TEXTS = st.lists(
    st.one_of(st.none(), st.text(HOSTILE_CHARACTERS, max_size=60), st.just("long words " * 900)),
    max_size=60,
)
KINDS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()]
SUFFIXES = [".parquet", ".arrow", ".feather"]


@st.composite
def stored(draw: st.DrawFn) -> tuple[list[str | None], pa.Table, dict[str, object], str, str]:
    """Texts, a table that holds them, how it is written, its suffix, and the text key."""
    texts = draw(TEXTS)
    suffix = draw(st.sampled_from(SUFFIXES))
    plain = [kind for kind in KINDS if suffix != ".parquet" or kind != pa.string_view()]
    array = pa.array(texts, draw(st.sampled_from(plain)))
    if draw(st.booleans()) and array.type in (pa.string(), pa.binary()):
        array = array.dictionary_encode()
    columns = {"before": pa.array([[1, 2]] * len(texts), pa.list_(pa.int8())), "text": array}
    table, key = pa.table({**columns, "after": ["x"] * len(texts)}), "text"
    if draw(st.booleans()):
        names = ["number", "body"]
        outer = pa.StructArray.from_arrays([pa.array(range(len(texts)), pa.int32()), array], names)
        table, key = pa.table({"before": columns["before"], "doc": outer}), "doc.body"
    options: dict[str, object] = {
        "row_group_size": draw(st.integers(1, 70)),
        "compression": draw(st.sampled_from(["none", "zstd", "snappy", "lz4"])),
    }
    if suffix == ".parquet":
        options["use_dictionary"] = draw(st.booleans())
        options["data_page_size"] = draw(st.sampled_from([10, 1000, 1 << 20]))
        options["data_page_version"] = draw(st.sampled_from(["1.0", "2.0"]))
    return texts, table, options, suffix, key


@given(stored(), st.integers(1, 20_000), st.sampled_from([10, 500, 1 << 21]))
@settings(max_examples=rounds(100))
def test_what_went_in_comes_out(
    case: tuple[list[str | None], pa.Table, dict[str, object], str, str],
    unit_bytes: int,
    block_bytes: int,
) -> None:
    texts, table, options, suffix, key = case
    with tempfile.TemporaryDirectory() as folder:
        path = write_rows(Path(folder) / f"rows{suffix}", table, **options)
        documents, counts, skipped = read_all(
            path, key=key, unit_bytes=unit_bytes, on_error="skip", block_bytes=block_bytes
        )
    given_in = [text.encode() for text in texts if text]
    assert documents == given_in
    assert [record.position for record in skipped] == [
        idx for idx, text in enumerate(texts) if text is None
    ]
    assert counts.skipped_records == len(skipped)
    assert counts.empty_documents == texts.count("")
    assert counts.input_bytes == sum(map(len, given_in))
    assert counts.nul_bytes == sum(text.count(b"\0") for text in given_in)


@given(stored(), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8))
@settings(max_examples=rounds(60))
def test_any_range_in_any_order_gives_its_rows(
    case: tuple[list[str | None], pa.Table, dict[str, object], str, str],
    ranges: list[tuple[int, int]],
) -> None:
    texts, table, options, suffix, key = case
    with tempfile.TemporaryDirectory() as folder:
        path = write_rows(Path(folder) / f"rows{suffix}", table, **options)
        units = divide(path, key=key)
        assert [row for start, end in units for row in range(start, end)] == [*range(len(texts))]
        reader = make_readers(key, on_error="skip")
        for start, wanted_end in ranges:
            end = min(wanted_end, len(texts))
            found = read_unit(reader, path, min(start, end), end)
            assert found == [text.encode() for text in texts[start:end] if text]
