"""Parquet pages that the kernel decodes: what is read of them, and what is left to pyarrow."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from row_cases import make_readers, read_unit, source_of, take_texts, write_rows

from penstok.errors import InputError
from penstok.kernel import find_kernel_function, load_kernel
from penstok.readers.columnar import RowFile, open_parquet, parquet_chunk
from penstok.readers.columnar.parquet import ParquetRows
from penstok.readers.columnar.parquet_chunk import ChunkPages
from penstok.readers.columnar.parquet_pages import PageRows

pytestmark = pytest.mark.skipif(
    find_kernel_function("read_parquet_page") is None, reason="the kernel is not built"
)

TEXTS = [f"document {idx} " + "word " * (idx * 37 % 211) for idx in range(500)]
BYTES = [text.encode() for text in TEXTS]
# Pages of 16 rows.
SMALL_PAGES: dict[str, Any] = {
    "data_page_size": 10,
    "write_batch_size": 16,
    "use_dictionary": False,
}


def write(path: Path, texts: list[str] = TEXTS, **options: Any) -> Path:
    return write_rows(path / "a.parquet", pa.table({"text": texts}), **options)


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    real = getattr(owner, name)

    def counted(self: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return real(self, *arguments)

    monkeypatch.setattr(owner, name, counted)
    return calls


@pytest.mark.parametrize("codec", ["none", "zstd", "snappy", "gzip"])
def test_pyarrow_is_not_loaded_for_usual_files(tmp_path: Path, codec: str) -> None:
    path = write(tmp_path, compression=codec)
    code = (
        "import sys; from penstok.readers.columnar import RowFile, open_parquet\n"
        "from penstok.types import Source\n"
        f"with RowFile(Source({str(path)!r}, {path.stat().st_size}, 0, '', 'parquet')) as file:\n"
        "    rows = open_parquet(file, 'text')\n"
        "    list(rows.divide(1 << 20))\n"
        "    size = sum(texts.num_bytes for texts in rows.iter_texts(0, 500))\n"
        "print(size, 'pyarrow' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == f"{sum(map(len, BYTES))} False\n"


@pytest.mark.parametrize("codec", ["none", "zstd", "snappy", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_pages_may_arrive_in_pieces_that_end_anywhere(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    codec: str,
    version: str,
    use_dictionary: bool,
) -> None:
    """Also inside the length of a text, the rest of which is read over it."""
    texts = [None if idx % 11 == 5 else TEXTS[idx][: idx * 7 % 90] for idx in range(200)]
    options = {"use_dictionary": use_dictionary, "data_page_version": version}
    path = write_rows(
        tmp_path / "a.parquet", pa.table({"text": texts}), compression=codec, **options
    )
    monkeypatch.setattr(PageRows, "_pyarrow_rows", None)
    expected = [None if text is None else text.encode() for text in texts]
    for num_bytes in (1, 2, 3, 5, 97, 256):
        monkeypatch.setattr(parquet_chunk, "READ_BYTES", num_bytes)
        monkeypatch.setattr(parquet_chunk, "_PIECE_BYTES", num_bytes)
        with RowFile(source_of(path)) as file:
            assert take_texts(open_parquet(file, "text"), 0, 200) == expected


def test_pages_before_the_wanted_rows_are_not_decompressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, compression="zstd", **SMALL_PAGES)
    decompressed = count_calls(monkeypatch, ChunkPages, "_iter_content")
    with RowFile(source_of(path)) as file:
        assert take_texts(open_parquet(file, "text"), 490, 500) == BYTES[490:]
    assert len(decompressed) == 2


def test_a_row_group_is_opened_once_for_many_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, row_group_size=250)
    opened = count_calls(monkeypatch, PageRows, "_open_group")
    reader = make_readers()
    for start in range(0, 500, 20):
        assert read_unit(reader, path, start, start + 10) == BYTES[start : start + 10]
    assert opened == [(0,), (1,)]


@pytest.mark.parametrize("codec", ["none", "zstd", "snappy", "gzip"])
@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("with_checksum", [True, False])
def test_a_large_page_is_not_held(
    tmp_path: Path, codec: str, use_dictionary: bool, with_checksum: bool
) -> None:
    # A dictionary for the first 1,024 rows, or a page; the writer gives the dictionary up then.
    texts = [f"{idx} " + f"some words {idx}" * 2000 for idx in range(1100)]
    path = write(
        tmp_path,
        texts,
        compression=codec,
        use_dictionary=use_dictionary,
        write_page_checksum=with_checksum,
    )
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    assert column.has_dictionary_page == use_dictionary
    with RowFile(source_of(path)) as file:
        rows = open_parquet(file, "text")
        assert isinstance(rows, PageRows)
        assert take_texts(rows, 0, 1100) == [text.encode() for text in texts]
        buffers = rows._buffers
        assert rows._decoded is None
    held = [buffers.page.data, buffers.dictionary.data, buffers._stored, buffers._snappy_room]
    # Pages of up to 16 MiB may be held, such as the second one, and stored ones with a checksum.
    stored_bytes = 16 << 20 if with_checksum else 0
    assert sum(map(len, held)) < stored_bytes + (6 << 20)


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_a_dictionary_is_held_if_its_texts_are_not_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    texts = [f"{idx} " + "some words " * 6000 for idx in range(400)]
    texts = [*texts, *texts[::-1]]
    path = write(tmp_path, texts, compression=codec)
    for max_bytes, is_held in ((1 << 27, True), (1 << 24, False)):
        monkeypatch.setattr(parquet_chunk, "_MAX_DICTIONARY_BYTES", max_bytes)
        with RowFile(source_of(path)) as file:
            rows = open_parquet(file, "text")
            assert isinstance(rows, PageRows)
            found = [text[:20] for text in take_texts(rows, 0, 800) if text]
            assert (rows._decoded is None) == is_held
        assert found == [text[:20].encode() for text in texts]


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_a_dictionary_in_order_may_be_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """It is read like a plain page once, and held if another page needs it."""
    monkeypatch.setattr(PageRows, "_pyarrow_rows", None)
    texts = [f"{idx} text" for idx in range(64)]
    again = [*texts, *texts, *texts[::-1], *texts]
    path = write(
        tmp_path,
        again,
        compression=codec,
        write_batch_size=64,
        data_page_size=1,
        row_group_size=256,
    )
    expected = [text.encode() for text in again]
    loaded = count_calls(monkeypatch, ChunkPages, "_load_dictionary")
    for start in (0, 1, 63, 64, 100, 128, 190, 192, 255):
        with RowFile(source_of(path)) as file:
            rows = open_parquet(file, "text")
            assert take_texts(rows, start, 256) == expected[start:]
    # In the last page only, it is needed once, and in order.
    assert len(loaded) == 7


def test_pages_of_millions_of_rows_are_not_left_to_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PageRows, "_pyarrow_rows", None)
    num_rows = (1 << 20) + 5
    texts = ["a", None, "bcd"] * (num_rows // 3) + ["end"] * (num_rows % 3)
    one_page = {"data_page_size": 1 << 30, "write_batch_size": num_rows, "use_dictionary": False}
    path = write_rows(
        tmp_path / "a.parquet", pa.table({"text": texts}), row_group_size=num_rows, **one_page
    )
    with RowFile(source_of(path)) as file:
        found = take_texts(open_parquet(file, "text"), num_rows - 4, num_rows)
    assert found == [None if text is None else text.encode() for text in texts[-4:]]


def test_bytes_after_the_last_text_of_a_page_do_not_count(tmp_path: Path) -> None:
    """fastparquet leaves some."""
    path = write(tmp_path, ["abc", "defgh", ""], compression="none", use_dictionary=False)
    data = path.read_bytes()
    # The second text becomes shorter: what is left of it follows the third, which is empty.
    at = data.index(b"\x05\0\0\0defgh")
    path.write_bytes(data[:at] + b"\x01\0\0\0d\0\0\0\0rest" + data[at + 13 :])
    with RowFile(source_of(path)) as file:
        rows = open_parquet(file, "text")
        assert take_texts(rows, 0, 3) == [b"abc", b"d", b""]
        assert isinstance(rows, PageRows)
        assert rows._decoded is None


@pytest.mark.parametrize("head", [0x05, 0x1C, 0x2C, 0x3C])
def test_a_footer_that_lists_too_few_row_groups_is_damaged(tmp_path: Path, head: int) -> None:
    path = write(tmp_path, row_group_size=125, store_schema=False)
    data = bytearray(path.read_bytes())
    # The field of the row groups, and a list of four structures.
    at = data.rindex(b"\x19\x4c") + 1
    data[at] = head
    path.write_bytes(data)
    with RowFile(source_of(path)) as file, pytest.raises(InputError, match="damaged or cut short"):
        open_parquet(file, "text")


@pytest.mark.parametrize("is_schema", [True, False])
def test_a_footer_that_lists_millions_is_left_to_pyarrow(is_schema: bool) -> None:
    # Elements with a name, or empty row groups: a field 2 or 4, a list of a million, 3 bytes each.
    number, item = (2, b"\x48\x00\x00") if is_schema else (4, b"\x26\x00\x00")
    footer = bytes([number << 4 | 9, 0xFC]) + b"\xc0\x84\x3d" + item * 1_000_000 + b"\x00"
    read = load_kernel().read_parquet_schema if is_schema else load_kernel().read_parquet_chunks
    arguments = () if is_schema else (0,)
    with pytest.raises(ValueError, match="very long"):
        read(np.frombuffer(footer, np.uint8), *arguments)


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        # Before the list of row groups comes an empty one with the same number.
        (b"\x16\xe8\x07\x19\x0c\x09\x08\x4c", "a list is repeated"),
        (b"\x16\xe6\x07\x19\x4c", "more rows than the file"),
        (b"\x16\xea\x07\x19\x4c", "fewer rows than the file"),
    ],
)
def test_a_footer_whose_row_groups_are_not_those_of_the_file_is_refused(
    tmp_path: Path, damaged: bytes, problem: str
) -> None:
    data = write(tmp_path, row_group_size=125, store_schema=False).read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    usual = b"\x16\xe8\x07\x19\x4c"  # 500 rows, and a list of four structures
    assert footer.count(usual) == 1
    read = load_kernel().read_parquet_chunks
    assert len(read(np.frombuffer(footer, np.uint8), 0)) == 4
    with pytest.raises(ValueError, match=problem):
        read(np.frombuffer(footer.replace(usual, damaged), np.uint8), 0)


def test_a_column_that_ends_outside_of_the_file_is_left_to_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path)
    size = path.stat().st_size

    def find(name: str) -> Any:
        function = find_kernel_function(name)
        if name != "read_parquet_chunks" or function is None:
            return function
        return lambda *arguments: [
            (rows, values, start + size, *rest)
            for rows, values, start, *rest in function(*arguments)
        ]

    monkeypatch.setattr("penstok.readers.columnar.parquet_layout.find_kernel_function", find)
    with RowFile(source_of(path)) as file:
        rows = open_parquet(file, "text")
        assert isinstance(rows, ParquetRows)
        assert take_texts(rows, 0, 500) == BYTES


@pytest.mark.parametrize("names", [("text", "text"), ("d", "d")])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    """Also if only one of them can be meant, because the other has no column of that path."""
    inner = [pa.StructArray.from_arrays([pa.array(["in"])], [name]) for name in ("x", "y")]
    columns = [pa.array(["a"]), inner[0]] if names[0] == "text" else inner
    path = write_rows(tmp_path / "a.parquet", pa.Table.from_arrays(columns, list(names)))
    key = "text" if names[0] == "text" else "d.x"
    with RowFile(source_of(path)) as file, pytest.raises(InputError, match="two columns are named"):
        open_parquet(file, key)


def test_a_footer_that_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    path = write(tmp_path)
    stream = FlakyFile(path.read_bytes(), 1)
    with RowFile(source_of(path), stream) as file, pytest.raises(InputError, match="not this time"):
        open_parquet(file, "text")


def test_rows_after_a_read_error_are_the_right_ones(tmp_path: Path) -> None:
    path = write(tmp_path, **SMALL_PAGES, compression="none")
    num_errors = 0
    for number in range(2, 40):
        stream = FlakyFile(path.read_bytes(), number)
        with RowFile(source_of(path), stream) as file:
            rows = open_parquet(file, "text")
            try:
                take_texts(rows, 0, 160)
            except InputError:
                num_errors += 1
            stream.num_left = 0
            for start in range(0, 160, 16):
                assert take_texts(rows, start, start + 16) == BYTES[start : start + 16]
    assert num_errors > 10


class FlakyFile(io.BytesIO):
    """A file that cannot be read once."""

    def __init__(self, data: bytes, num_reads: int) -> None:
        super().__init__(data)
        self.num_left = num_reads

    def readinto(self, buffer: Any, /) -> int:
        self.num_left -= 1
        if not self.num_left:
            raise OSError("not this time")
        return super().readinto(buffer)


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_other_encodings_are_left_to_pyarrow(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path, use_dictionary=False, column_encoding={"text": encoding})
    with RowFile(source_of(path)) as file:
        rows = open_parquet(file, "text")
        assert take_texts(rows, 0, 500) == BYTES
        assert isinstance(rows, PageRows)
        assert isinstance(rows._decoded, ParquetRows)


def test_without_the_kernel_pyarrow_reads_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = "penstok.readers.columnar.parquet_layout.find_kernel_function"
    monkeypatch.setattr(missing, lambda name: None)
    with RowFile(source_of(write(tmp_path))) as file:
        rows = open_parquet(file, "text")
        assert isinstance(rows, ParquetRows)
        assert take_texts(rows, 0, 500) == BYTES


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("is_held", [True, False])
def test_a_wrong_checksum_is_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_held: bool
) -> None:
    if not is_held:
        monkeypatch.setattr(parquet_chunk, "_MAX_WHOLE_BYTES", 10)
        monkeypatch.setattr(parquet_chunk, "READ_BYTES", 1000)
    path = write(
        tmp_path, compression="none", write_page_checksum=True, data_page_version=version,
        **SMALL_PAGES,
    )  # fmt: skip
    content = path.read_bytes()
    path.write_bytes(content.replace(b"document 300 ", b"document 3OO "))
    reader = make_readers()
    with monkeypatch.context() as patched:
        patched.setattr(PageRows, "_pyarrow_rows", None)
        assert read_unit(reader, path, 0, 288) == BYTES[:288]
    with pytest.raises(InputError, match="CRC") as raised:
        read_unit(reader, path, 288, 310)
    assert "these rows are damaged" in raised.value.what


def test_what_a_unit_gives_does_not_depend_on_the_units_before(tmp_path: Path) -> None:
    path = write(tmp_path, compression="none", write_page_checksum=True, **SMALL_PAGES)
    path.write_bytes(path.read_bytes().replace(b"document 300 ", b"document 3OO "))
    reader = make_readers()
    for start, end in [(288, 304), (304, 400)]:
        for each in (reader, make_readers()):
            if start == 288:
                with pytest.raises(InputError, match="CRC"):
                    read_unit(each, path, start, end)
            else:
                assert read_unit(each, path, start, end) == BYTES[start:end]


def test_the_kernel_refuses_the_footer_of_an_encrypted_file() -> None:
    # Version, schema, rows and row groups are plain; field 8 says how columns are encrypted.
    footer = b"\x15\x04\x19\x1c\x48\x04root\x00\x16\x00\x19\x0c\x4c\x00\x00"
    with pytest.raises(ValueError, match="encrypted"):
        load_kernel().read_parquet_chunks(np.frombuffer(footer, np.uint8), 0)


def test_rows_of_short_texts_are_divided_as_pyarrow_divides_them(tmp_path: Path) -> None:
    texts = [f"a text that is repeated {idx % 7}" for idx in range(30_000)]
    path = write(tmp_path, texts, row_group_size=9_000)
    with RowFile(source_of(path)) as file:
        own = open_parquet(file, "text")
        assert isinstance(own, PageRows)
        other = own._pyarrow_rows()
        for size in (1 << 10, 1 << 16, 1 << 20, 1 << 24):
            assert list(own.divide(size)) == list(other.divide(size))
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size < 9_000 * 9


def test_a_header_whose_fields_have_impossible_numbers_is_refused() -> None:
    """The next number is counted from the last one, which must not overflow."""
    largest = b"\x05" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00"  # an i32, numbered 2^63 - 1
    header = np.frombuffer(largest + b"\x15\x00" + b"\x00", np.uint8)
    with pytest.raises(ValueError, match="a field has a wrong number"):
        load_kernel().read_parquet_page(header)
