"""Files of rows: how they are divided, which column is meant, and what is refused."""

from __future__ import annotations

import io
import itertools
import random
import shlex
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from row_cases import (
    divide,
    make_readers,
    open_rows,
    read_all,
    read_stream,
    read_unit,
    source_of,
    write_rows,
)

from penstok.errors import InputError
from penstok.jobs.plan import make_plan
from penstok.jobs.settings import JobSettings
from penstok.readers.columnar import RowFile
from penstok.readers.columnar.columns import find_kept_column
from penstok.readers.columnar.file import SourceStream
from penstok.readers.columnar.parquet import open_parquet
from penstok.readers.columnar.texts import MAX_TEXT_BYTES
from penstok.readers.formats import check_start, find_format
from penstok.readers.probe import probe_source
from penstok.types import Source

TEXTS = [f"document {idx} " + "word " * (idx * 37 % 211) for idx in range(500)]
BYTES = [text.encode() for text in TEXTS]
SUFFIXES = (".parquet", ".arrow", ".feather")


@pytest.fixture(params=SUFFIXES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"rows{request.param}"


def table_of(texts: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    numbers = list(range(len(texts)))
    return pa.table({"id": numbers, "text": pa.array(texts, kind or pa.string()), "n": numbers})


def test_units_cover_all_rows_and_depend_on_the_file_alone(path: Path) -> None:
    write_rows(path, table_of(TEXTS), row_group_size=20, use_dictionary=False)
    units = divide(path, 40_000)
    assert units[0][0] == 0
    assert units[-1][1] == 500
    assert all(left[1] == right[0] for left, right in itertools.pairwise(units))
    assert all(start % 20 == end % 20 == 0 for start, end in units)
    sizes = [sum(map(len, BYTES[start:end])) for start, end in units[:-1]]
    assert min(sizes) > 35_000
    assert max(sizes) < 80_000


def test_a_large_group_is_divided_by_rows(path: Path) -> None:
    write_rows(path, table_of(TEXTS), use_dictionary=False)
    units = divide(path, 10_000)
    assert abs(len(units) - sum(map(len, BYTES)) // 10_000) <= 1
    assert {end - start for start, end in units[:-1]} == {units[0][1]}


def test_short_rows_do_not_make_endless_units(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "same.parquet", table_of(["the same long text"] * 100_000))
    assert len(divide(path, 1 << 20)) >= 12


def test_the_cursor_goes_on_and_starts_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("parquet", "parquet_texts"):
        monkeypatch.setattr(f"penstok.readers.columnar.{module}._BATCH_BYTES", 3_000)
    monkeypatch.setattr("penstok.readers.columnar.arrow_plain._PIECE_BYTES", 3_000)
    write_rows(path, table_of(TEXTS), compression="zstd")
    reader = make_readers()
    ranges = [(0, 7), (7, 8), (30, 77), (77, 200), (10, 12), (499, 500), (0, 500), (499, 500)]
    for start, end in ranges:
        assert read_unit(reader, path, start, end) == BYTES[start:end]


def test_a_large_group_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstok.readers.columnar.parquet.find_layout", lambda file, key: None)
    path = write_rows(tmp_path / "a.parquet", table_of(TEXTS), row_group_size=250)
    opened: list[list[int]] = []
    real = pq.ParquetFile.iter_batches

    def iter_batches(self: Any, **options: Any) -> Any:
        opened.append(options["row_groups"])
        return real(self, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    reader = make_readers()
    for start in range(0, 500, 20):
        read_unit(reader, path, start, start + 10)
    assert opened == [[0], [1]]


def test_long_texts_that_repeat_are_decoded_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored says little about their length: a dictionary has each of them once."""
    monkeypatch.setattr("penstok.readers.columnar.parquet.find_layout", lambda file, key: None)
    texts = [f"{number} " * 12_000 for number in range(40)] * 50
    options = {"compression": "lz4", "dictionary_pagesize_limit": 1 << 24}
    path = write_rows(tmp_path / "a.parquet", table_of(texts), **options)
    source = Source(str(path), path.stat().st_size, 0, "", "parquet")
    with RowFile(source) as file:
        sizes = [each.num_bytes for each in open_parquet(file, "text").iter_texts(0, len(texts))]
    assert sum(sizes) == sum(map(len, texts))
    assert max(sizes) < 1 << 20


def test_a_summary_of_a_folder_is_left_out_of_it(tmp_path: Path) -> None:
    """Dask, fastparquet and Spark write `_metadata`, which has row groups of other files."""
    collected: list[Any] = []
    for number in range(2):
        name = f"part-{number}.parquet"
        with pq.ParquetWriter(tmp_path / name, table_of(TEXTS).schema) as writer:
            writer.write_table(table_of(TEXTS))
        collected.append(pq.read_metadata(tmp_path / name))
        collected[-1].set_file_path(name)
    pq.write_metadata(table_of(TEXTS).schema, tmp_path / "_metadata", collected)
    pq.write_metadata(table_of(TEXTS).schema, tmp_path / "_common_metadata")
    plan = make_plan(JobSettings(inputs=(str(tmp_path),), output=tmp_path / "out"))
    rows = {Path(each.path).name: each.num_rows for each in plan.sources}
    assert rows == {"_common_metadata": 0, "part-0.parquet": 500, "part-1.parquet": 500}
    assert list(plan.ignored) == [str(tmp_path / "_metadata")]
    with pytest.raises(InputError, match="only describes other parquet files") as raised:
        make_plan(JobSettings(inputs=(str(tmp_path / "_metadata"),), output=tmp_path / "out"))
    assert "`part-0.parquet`" in raised.value.next_step


KINDS = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_binary()),
    pa.string_view(),
    pa.binary_view(),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_every_kind_of_text_is_read(
    tmp_path: Path, kind: pa.DataType, suffix: str, codec: str
) -> None:
    if suffix == ".parquet" and "view" in str(kind) and int(pa.__version__.split(".")[0]) < 20:
        pytest.skip("this pyarrow writes no views to parquet")
    texts = [*TEXTS[:90], "ein schöner Tag\0", "字" * 999]
    options = {"compression": codec, "row_group_size": 40}
    if pa.types.is_dictionary(kind):
        table = table_of([text.encode() for text in texts], pa.binary())
        array = table["text"].combine_chunks().dictionary_encode().cast(kind)
        table = table.set_column(1, "text", array)
    else:
        table = table_of(texts, kind)
    path = write_rows(tmp_path / f"a{suffix}", table, **options)
    documents, counts, _ = read_all(path, unit_bytes=20_000)
    assert documents == [text.encode() for text in texts]
    assert counts.input_bytes == sum(map(len, documents))
    assert counts.nul_bytes == 1
    assert read_stream(path) == documents


def nested(path: Path) -> Path:
    inner = [None if idx % 7 == 3 else {"n": idx, "body": text} for idx, text in enumerate(TEXTS)]
    inner[5] = {"n": 5, "body": None}
    kind = pa.struct([("n", pa.int64()), ("body", pa.string())])
    outer_kind = pa.struct([("x", pa.string()), ("in", kind)])
    outer = pa.array([{"x": "y", "in": value} for value in inner], outer_kind)
    table = pa.table({"list": [[1, 2]] * len(TEXTS), "doc": outer})
    return write_rows(path, table, row_group_size=77, compression="zstd")


def test_a_nested_column_is_read_and_its_nulls_are_skipped(path: Path) -> None:
    documents, counts, skipped = read_all(nested(path), key="doc.in.body", on_error="skip")
    bad = [idx for idx in range(500) if idx % 7 == 3 or idx == 5]
    assert documents == [text for idx, text in enumerate(BYTES) if idx not in bad]
    assert [record.position for record in skipped] == bad
    assert {record.reason for record in skipped} == {"text key `doc.in.body` is null, not a string"}
    assert counts.skipped_records == len(bad)


def test_a_null_stops_with_its_row(path: Path) -> None:
    write_rows(path, table_of(["a", "b", None, "d"]))
    with pytest.raises(InputError, match="text key `text` is null, not a string") as raised:
        read_all(path)
    assert raised.value.where == f"{path}, row 2 (the first is row 0)"
    assert "--on-error skip" in raised.value.next_step


def test_a_column_of_just_that_name_wins(path: Path) -> None:
    inner = pa.array([{"b": "inner"}] * 3)
    write_rows(path, pa.table({"a": inner, "a.b": ["outer"] * 3}))
    assert read_all(path, key="a.b")[0] == [b"outer"] * 3


def test_a_missing_column_names_those_of_text(path: Path) -> None:
    write_rows(path, pa.table({"id": [1], "content": ["a"], "meta": [{"k": 1, "url": "u"}]}))
    with pytest.raises(InputError) as raised:
        divide(path)
    what = "text key `text` is missing; this file has `content`, `meta.url`"
    assert raised.value.what == what
    assert "--text-key" in raised.value.next_step


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("id", "text key `id` is of type int64, not text"),
        ("tags", "text key `tags` is a list, not text"),
        ("meta", "text key `meta` is a struct, not text"),
        ("meta.none", "text key `meta.none` is missing"),
        ("id.text", "text key `id.text` leads into `id`, which is of type int64"),
    ],
)
def test_what_is_no_text_is_refused_by_name(path: Path, key: str, what: str) -> None:
    table = pa.table({"id": [1], "tags": [["a"]], "meta": [{"url": "u"}], "ok": ["a"]})
    write_rows(path, table)
    with pytest.raises(InputError) as raised:
        divide(path, key=key)
    assert raised.value.what.startswith(what)
    assert "this file has `meta.url`, `ok`" in raised.value.what


def test_a_damaged_name_is_an_input_error(path: Path) -> None:
    write_rows(path, pa.table({"some name": ["a"]}))
    path.write_bytes(path.read_bytes().replace(b"some name", b"some\xffname"))
    with pytest.raises(InputError):
        divide(path)


@pytest.mark.parametrize("is_nested", [False, True])
def test_an_extension_type_is_read_as_it_is_stored(path: Path, is_nested: bool) -> None:
    class Marked(pa.ExtensionType):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(pa.string(), "marked")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage: pa.DataType, data: bytes) -> Marked:
            return cls()

    pa.register_extension_type(Marked())
    try:
        array = pa.ExtensionArray.from_storage(Marked(), pa.array(TEXTS))
        inner = pa.StructArray.from_arrays([array], ["body"])
        table = pa.table({"doc": inner}) if is_nested else pa.table({"text": array})
        write_rows(path, table, compression="lz4")
        assert read_all(path, key="doc.body" if is_nested else "text")[0] == BYTES
    finally:
        pa.unregister_extension_type("marked")


def test_two_columns_of_one_name_are_refused(path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    write_rows(path, table)
    with pytest.raises(InputError, match="two columns are named `text`"):
        divide(path)


@pytest.mark.parametrize("batches", [0, 1])
def test_no_rows_no_units(path: Path, batches: int) -> None:
    empty = table_of([])
    if path.suffix == ".parquet":
        with pq.ParquetWriter(path, empty.schema) as writer:
            for _ in range(batches):
                writer.write_table(empty)
    else:
        make = pa.ipc.new_stream if path.suffix == ".arrow" else pa.ipc.new_file
        with make(str(path), empty.schema) as writer:
            for _ in range(batches):
                writer.write_batch(pa.RecordBatch.from_pylist([], empty.schema))
    assert divide(path) == []


def test_a_long_document_comes_in_pieces(path: Path) -> None:
    long = "many words make a long document " * 9_000
    write_rows(path, table_of(["short", long, "", "short"]))
    documents, counts, _ = read_all(path, block_bytes=50_000)
    assert documents == [b"short", long.encode(), b"short"]
    assert counts.empty_documents == 1


def test_a_text_that_is_too_long_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("reader", "texts", "arrow_plain", "parquet_texts"):
        monkeypatch.setattr(f"penstok.readers.columnar.{module}.MAX_TEXT_BYTES", 1 << 20)
    long = "x" * ((1 << 20) + 1)
    write_rows(path, table_of(["short", long, long[1:], "short"]))
    with pytest.raises(InputError, match="text of more than 1 MiB") as raised:
        read_all(path)
    assert "row 1 " in raised.value.where
    documents, counts, skipped = read_all(path, on_error="skip")
    assert documents == [b"short", long[1:].encode(), b"short"]
    assert [record.position for record in skipped] == [1]
    assert counts.input_bytes == 10 + (1 << 20)


def test_a_group_of_rows_that_are_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstok.readers.columnar.division.MAX_TEXT_BYTES", 1 << 10)
    path = write_rows(tmp_path / "a.parquet", table_of(["x" * 9999, "y"] * 3), row_group_size=2)
    with pytest.raises(InputError, match="on average") as raised:
        divide(path)
    assert "rows 0 to 1" in raised.value.where


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_file_cut_short_is_refused_wherever_it_is_cut(path: Path, codec: str) -> None:
    whole = write_rows(path, table_of(TEXTS), row_group_size=100, compression=codec).read_bytes()
    for size in [4, 7, 8, 9, 20, 100, len(whole) // 2, len(whole) - 9, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(InputError) as raised:
            read_all(path)
        assert str(path) in raised.value.where
        assert raised.value.next_step


def test_garbage_is_refused(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(5_000))
    with pytest.raises(InputError, match="damaged or cut short"):
        divide(path)


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_damage_is_an_input_error_or_other_text_never_a_crash(
    path: Path, codec: str, kind: pa.DataType
) -> None:
    table = table_of(TEXTS)
    if pa.types.is_dictionary(kind):
        table = table.set_column(1, "text", table["text"].combine_chunks().dictionary_encode())
    whole = write_rows(path, table, row_group_size=100, compression=codec).read_bytes()
    chance = random.Random(1)
    refused: list[InputError] = []
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 4, 50])):
            damaged[chance.randrange(8, len(whole))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            read_all(path, on_error="skip")
        except InputError as error:
            refused.append(error)
    assert refused
    assert all(str(path) in error.where for error in refused)


def test_damaged_pages_are_named_by_their_rows(tmp_path: Path) -> None:
    path = write_rows(
        tmp_path / "a.parquet", table_of(TEXTS), row_group_size=100, compression="zstd"
    )
    record = pq.ParquetFile(path).metadata.row_group(2).column(1)
    damaged = bytearray(path.read_bytes())
    at = (record.dictionary_page_offset or record.data_page_offset) + 40
    damaged[at : at + record.total_compressed_size - 60] = bytes(record.total_compressed_size - 60)
    path.write_bytes(damaged)
    reader = make_readers()
    assert read_unit(reader, path, 0, 200) == BYTES[:200]
    with pytest.raises(InputError, match="these rows are damaged") as raised:
        read_unit(reader, path, 200, 300)
    assert raised.value.where == f"{path}, rows 200 to 299"
    assert read_unit(make_readers(), path, 300, 500) == BYTES[300:]


def test_a_file_that_shrank_is_an_input_error(path: Path) -> None:
    source = source_of(write_rows(path, table_of(TEXTS), row_group_size=10))
    with RowFile(source) as file:
        rows = open_rows(file, "text")
        path.write_bytes(path.read_bytes()[:500])
        with pytest.raises(InputError, match="changed while it was read"):
            list(rows.iter_texts(0, 500))


def test_a_unit_behind_the_last_row_is_refused(path: Path) -> None:
    write_rows(path, table_of(TEXTS))
    with pytest.raises(InputError, match="the file has 500 rows now"):
        read_unit(make_readers(), path, 490, 501)


def test_a_stream_that_fails_is_an_input_error(path: Path) -> None:
    write_rows(path, table_of(TEXTS), row_group_size=10)

    class Failing(io.BytesIO):
        fails = False

        def read(self, size: int | None = -1, /) -> bytes:
            if self.fails:
                raise OSError("the network is gone")
            return super().read(size)

        def readinto(self, buffer: Any, /) -> int:
            if self.fails:
                raise OSError("the network is gone")
            return super().readinto(buffer)

    stream = Failing(path.read_bytes())
    with RowFile(source_of(path), stream) as file:
        rows = open_rows(file, "text")
        stream.fails = True
        with pytest.raises(InputError, match="the network is gone") as raised:
            list(rows.iter_texts(0, 500))
    assert str(path) in raised.value.where


@pytest.mark.parametrize(
    ("name", "head", "wanted", "found"),
    [
        ("a.parquet", b"PAR1\x15", None, "parquet"),
        ("a.bin", b"PAR1\x15", None, "parquet"),
        ("a.arrow", b"ARROW1\0\0", None, "arrow"),
        ("a.feather", b"ARROW1\0\0", None, "arrow"),
        ("a.arrow", b"\xff\xff\xff\xff\x10", None, "arrow"),
        ("cache-1", b"\xff\xff\xff\xff\x10", "arrow", "arrow"),
        ("a.txt", b"\xff\xff\xff\xff\x10", None, "text"),
    ],
)
def test_a_file_of_rows_is_known_by_its_head(
    name: str, head: bytes, wanted: Any, found: str
) -> None:
    assert find_format(name, head, wanted).name == found


@pytest.mark.parametrize(
    ("name", "head", "wanted", "what"),
    [
        ("a.parquet", b"hello", None, "this is not a parquet file: it begins with b'hello'"),
        ("a.arrow", b"hello", None, "this is not an Arrow file"),
        ("a.parquet", b"", None, "this is not a parquet file"),
        ("a.parquet", b"PAR1", "text", "this is a parquet file, not text"),
        ("a.parquet", b"PAR1", "arrow", "this is a parquet file, not an Arrow file"),
        ("a.parquet", b"PARE", None, "this is an encrypted parquet file"),
        ("a.feather", b"FEA1", None, "this is a Feather file of version 1"),
    ],
)
def test_a_file_that_is_something_else_is_refused(
    name: str, head: bytes, wanted: Any, what: str
) -> None:
    with pytest.raises(InputError) as raised:
        check_start(find_format(name, head, wanted), name, head, wanted)
    assert raised.value.what.startswith(what)


def test_pyarrow_is_loaded_only_for_files_of_rows() -> None:
    import subprocess
    import sys

    code = (
        "import penstok.worker.worker, penstok.jobs.plan, sys; sys.exit('pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert MAX_TEXT_BYTES == 64 << 20


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string()])
def test_bytes_in_another_encoding_are_refused_with_a_command_that_decodes_them(
    path: Path, kind: pa.DataType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "今天的天气非常好，我们决定去公园散步。"
    good = [*BYTES, None] if kind != pa.string() else [*TEXTS, None]
    write_rows(path, table_of(good, kind))
    assert probe_source(str(path), None, "text").num_rows == 501
    if kind == pa.string():
        return
    write_rows(path, table_of([text.encode("gbk"), None] * 9, kind))
    with pytest.raises(InputError, match=r"column `text` is not UTF-8; .* gb18030") as raised:
        probe_source(str(path), None, "text", encoding="auto")
    command = shlex.split(raised.value.next_step.split("`")[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["-c", *command[3:]])
    exec(command[2], {})
    assert probe_source("utf8.parquet", None, "text").num_rows == 18
    assert pq.read_table("utf8.parquet")["text"].to_pylist() == [text, None] * 9


def test_bytes_that_are_not_text_are_refused(path: Path) -> None:
    write_rows(path, table_of([b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(99)], pa.binary()))
    with pytest.raises(InputError, match="the column `text` holds a PNG picture, not text"):
        probe_source(str(path), None, "text")


KEPT = {
    "nanoseconds": (pa.array([[1], None], pa.list_(pa.timestamp("ns"))), "1970-01-01 00:00:00.0"),
    "far years": (pa.array([[-(10**18)], None], pa.list_(pa.timestamp("us"))), '["-29719-04-05'),
    "durations": (pa.array([[1], None], pa.large_list(pa.duration("ns"))), '["1"]'),
    "no numbers": (pa.array([{"a": [float("nan"), 1.5]}, None]), '{"a":["nan",1.5]}'),
    "bytes": (pa.array([[b"\xff", b"x"], None]), '["\ufffd","x"]'),
    "maps": (pa.array([[("k", b"v")], None], pa.map_(pa.string(), pa.binary())), '[["k","v"]]'),
    "hashes": (pa.array([b"\x00\xff", None], pa.binary(2)), "00ff"),
    "hashes in lists": (pa.array([[b"\x00\xff"], None], pa.list_(pa.binary(2), 1)), '["00ff"]'),
    "nested nulls": (pa.array([[None, {"a": None}], None]), '[null,{"a":null}]'),
    "dictionaries": (
        pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array([[1]])),
        "[1]",
    ),
    "decimals": (pa.array([[1], None], pa.list_(pa.decimal128(9, 2))), '["1.00"]'),
}


@pytest.mark.parametrize("kind", KEPT)
def test_columns_of_every_type_are_kept_as_text(kind: str) -> None:
    array, expected = KEPT[kind]
    schema = pa.schema([("a", array.type)])
    column = find_kept_column(schema, "a", "a.arrow")
    # Slices too: their values do not begin at the first item.
    for part in (array, array[:1], array[1:], pa.concat_arrays([array, array])[1:3]):
        found = column.pick(pa.record_batch([part], schema=schema)).to_pylist()
        assert [value is None for value in found] == [not each.is_valid for each in part]
        assert all(expected in value for value in found if value is not None)


def test_a_local_file_is_read_up_to_its_end_and_refused_if_it_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"0123456789")
    with SourceStream(Source(str(path), 10, 0, "")) as stream:
        assert (stream.read(4), stream.read(4), stream.read(4)) == (b"0123", b"4567", b"89")
        assert (stream.read(4), stream.tell()) == (b"", 10)
        stream.seek(-3, io.SEEK_END)
        assert stream.read() == b"789"
        path.write_bytes(b"0123")
        stream.seek(2)
        with pytest.raises(InputError, match="changed while it was read"):
            stream.read(4)
