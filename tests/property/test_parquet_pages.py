"""Laws of parquet pages: the kernel decodes what pyarrow decodes, and damage is left to pyarrow."""

from __future__ import annotations

import io
import itertools
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_cases import take_texts
from support import HOSTILE_CHARACTERS, rounds

from penstok.errors import InputError
from penstok.kernel import find_kernel_function
from penstok.readers.columnar import RowFile, open_parquet, parquet_snappy
from penstok.readers.columnar.base import Rows
from penstok.readers.columnar.parquet import ParquetRows
from penstok.readers.columnar.parquet_pages import PageRows
from penstok.types import Source

pytestmark = pytest.mark.skipif(
    find_kernel_function("read_parquet_page") is None, reason="the kernel is not built"
)

TEXT = st.text(HOSTILE_CHARACTERS, max_size=40)
# Few different ones make dictionaries, many different ones end them.
TEXTS: st.SearchStrategy[Any] = st.one_of(
    st.lists(st.one_of(TEXT, st.none(), st.just("long words " * 300)), max_size=120),
    st.lists(st.sampled_from(["", "a", "bb", "many words " * 40, None]), max_size=300),
    st.integers(1, 300).map(lambda count: [f"document {idx} " * (idx % 9) for idx in range(count)]),
    st.integers(1, 300).map(lambda count: [None if idx % 3 else "x" for idx in range(count)]),
    st.integers(1, 9).map(lambda count: [None] * count),
)
# What the kernel decodes, and what it leaves to pyarrow.
OWN_CODECS = ["none", "zstd", "snappy", "gzip"]
OTHER_CODECS = ["lz4", "brotli"]
# Not left to pyarrow, which would reserve memory for it.
CLAIM = "a page claims more bytes"


class Case:
    """A file, and the column of text in it."""

    def __init__(self, content: bytes, key: str, num_rows: int, *, is_own: bool) -> None:
        self.content = content
        self.key = key
        self.num_rows = num_rows
        self.is_own = is_own

    def __repr__(self) -> str:
        return f"Case({len(self.content)} bytes, {self.key}, {self.num_rows} rows)"


@st.composite
def files(draw: st.DrawFn) -> Case:
    texts: list[str | None] = draw(TEXTS)
    is_required = None not in texts and draw(st.booleans())
    kind = draw(st.sampled_from([pa.string(), pa.binary(), pa.large_string()]))
    array = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    field = pa.field("text", kind, nullable=not is_required)
    table = pa.Table.from_arrays([array.cast(kind)], schema=pa.schema([field]))
    key = "text"
    if draw(st.booleans()):
        other = pa.array(range(len(texts)), pa.int64())
        table = table.add_column(0, "id", other)
    elif kind == pa.string() and draw(st.booleans()):
        # The whole dictionary is written to every row group.
        table = table.set_column(0, "text", table["text"].combine_chunks().dictionary_encode())
    if draw(st.integers(0, 3)) == 0:
        inner = pa.StructArray.from_arrays(
            [array.cast(kind), pa.array([1] * len(texts), pa.int8())],
            ["body", "n"],
            mask=pa.array([idx % 5 == 4 for idx in range(len(texts))], pa.bool_()),
        )
        table, key = pa.table({"doc": inner}), "doc.body"
    codec = draw(st.sampled_from([*OWN_CODECS * 3, *OTHER_CODECS]))
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression=codec,
        row_group_size=draw(st.sampled_from([7, 50, 1000])),
        use_dictionary=draw(st.booleans()),
        dictionary_pagesize_limit=draw(st.sampled_from([64, 1000, 1 << 20])),
        data_page_size=draw(st.sampled_from([10, 500, 1 << 20])),
        write_batch_size=draw(st.sampled_from([1, 16, 1024])),
        data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
        write_page_index=draw(st.booleans()),
        write_page_checksum=draw(st.booleans()),
        write_statistics=draw(st.booleans()),
        store_schema=draw(st.booleans()),
    )
    return Case(sink.getvalue(), key, len(texts), is_own=codec in OWN_CODECS)


@contextmanager
def opened(content: bytes, key: str, *, with_pyarrow: bool = False) -> Iterator[Rows]:
    source = Source("a.parquet", len(content), 0, "", "parquet")
    left = mock.patch("penstok.readers.columnar.parquet.find_layout", return_value=None)
    with RowFile(source, io.BytesIO(content)) as file, left if with_pyarrow else nullcontext():
        yield open_parquet(file, key)


def without_pyarrow() -> Any:
    """Fail if pyarrow is asked to decode something."""
    return mock.patch.object(ParquetRows, "__init__", side_effect=AssertionError("pyarrow"))


@given(files(), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=6))
@settings(max_examples=rounds(300))
def test_the_kernel_reads_any_range_as_pyarrow_does(
    case: Case, ranges: list[tuple[int, int]]
) -> None:
    ranges = [(0, case.num_rows), *((start, min(end, case.num_rows)) for start, end in ranges)]
    with opened(case.content, case.key, with_pyarrow=True) as rows:
        assert isinstance(rows, ParquetRows)
        expected = take_texts(rows, 0, case.num_rows)
        known = rows.num_rows, rows.index_bytes, rows.is_binary
        units = [list(rows.divide(size)) for size in (1, 500, 1 << 20)]
    with opened(case.content, case.key) as rows:
        assert isinstance(rows, PageRows)
        assert (rows.num_rows, rows.index_bytes, rows.is_binary) == known
        if case.is_own:
            with without_pyarrow():
                for start, end in ranges:
                    assert take_texts(rows, start, end) == expected[start:end]
                assert [list(rows.divide(size)) for size in (1, 500, 1 << 20)] == units
        for start, end in ranges:
            assert take_texts(rows, start, end) == expected[start:end]
        assert [list(rows.divide(size)) for size in (1, 500, 1 << 20)] == units


def outcome(content: bytes, key: str, num_rows: int, *, with_pyarrow: bool) -> Any:
    try:
        with opened(content, key, with_pyarrow=with_pyarrow) as rows:
            return take_texts(rows, 0, min(rows.num_rows, num_rows))
    except InputError as error:
        return error.what


def damage(content: bytes, start: int, end: int, chance: random.Random) -> bytes:
    """Change some bytes, or move them."""
    damaged = bytearray(content)
    for _ in range(chance.choice([1, 1, 3, 30])):
        damaged[chance.randrange(start, end)] = chance.choice([0, 1, 127, 128, 255])
    if chance.random() < 0.2:
        at, size = chance.randrange(start, end), chance.choice([1, 2, 50])
        damaged[at:end] = damaged[at + size : end] + bytes(min(size, end - at))
    return bytes(damaged[: len(content)])


@given(files(), st.randoms(use_true_random=False))
@settings(max_examples=rounds(200))
def test_damaged_pages_give_what_pyarrow_gives(case: Case, chance: random.Random) -> None:
    undamaged = outcome(case.content, case.key, case.num_rows, with_pyarrow=True)
    footer_bytes = struct.unpack("<I", case.content[-8:-4])[0]
    end = len(case.content) - 8 - footer_bytes
    if end == 4:
        return
    for _ in range(5):
        damaged = damage(case.content, 4, end, chance)
        own = outcome(damaged, case.key, case.num_rows, with_pyarrow=False)
        others = outcome(damaged, case.key, case.num_rows, with_pyarrow=True)
        # Damage without consequence, such as unused flags of gzip, may be an error for one of them.
        assert own in (others, undamaged) or (isinstance(own, str) and CLAIM in own)


@given(files(), st.randoms(use_true_random=False))
@settings(max_examples=rounds(100))
def test_a_damaged_footer_gives_no_crash(case: Case, chance: random.Random) -> None:
    # pyarrow itself ends the process on some of these: it is not asked.
    footer_bytes = struct.unpack("<I", case.content[-8:-4])[0]
    start = len(case.content) - 8 - footer_bytes
    refusal = mock.patch.object(ParquetRows, "__init__", side_effect=InputError("no", where=""))
    for _ in range(20):
        damaged = damage(case.content, start, len(case.content), chance)
        with suppress(InputError), refusal, opened(damaged, case.key) as rows:
            take_texts(rows, 0, min(rows.num_rows, case.num_rows))


def headers(*, size: int, num_values: int) -> bytes:
    """The header of a plain data page that claims these numbers, in Thrift's compact protocol."""

    def integer(value: int) -> bytes:
        number, out = (value << 1) ^ (value >> 63), bytearray()
        number &= (1 << 64) - 1
        while number >= 128:
            out.append(number & 127 | 128)
            number >>= 7
        return bytes([*out, number])

    page = b"\x15" + integer(num_values) + b"\x15\x00\x15\x06\x15\x06\x00"
    return b"\x15\x00\x15" + integer(size) + b"\x15" + integer(size) + b"\x2c" + page + b"\x00"


@pytest.mark.parametrize("size", [-1, 0, 1, (1 << 31) - 1, -(1 << 31), 1 << 31, 1 << 40])
@pytest.mark.parametrize("num_values", [-1, 0, 3, (1 << 31) - 1])
def test_claimed_sizes_are_not_believed(size: int, num_values: int) -> None:
    sink = io.BytesIO()
    table = pa.table({"text": ["some words"] * 3})
    pq.write_table(table, sink, compression="none", use_dictionary=False, write_statistics=False)
    content = sink.getvalue()
    start = pq.ParquetFile(sink).metadata.row_group(0).column(0).data_page_offset
    header = headers(size=size, num_values=num_values)
    damaged = content[:start] + header + content[start + len(header) :]
    own = outcome(damaged, "text", 3, with_pyarrow=False)
    assert isinstance(own, str)
    if num_values >= 0 and 1000 < size < 1 << 31:
        assert CLAIM in own
    else:
        assert own == outcome(damaged, "text", 3, with_pyarrow=True)


NUMBERS = st.lists(st.integers(0, 2**32 - 1), max_size=60)


def encode_runs(numbers: list[int], bit_width: int, chance: random.Random) -> bytes:
    """Write numbers in runs of both kinds."""

    def header(value: int) -> bytes:
        out = bytearray()
        while value >= 128:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes([*out, value])

    out, at = b"", 0
    while at < len(numbers):
        if chance.random() < 0.5:
            length = chance.randrange(1, 4)
            run = numbers[at : at + 1] * length
            numbers[at : at + 1] = run
            out += header(length << 1) + numbers[at].to_bytes((bit_width + 7) // 8, "little")
        else:
            groups = chance.randrange(1, 3)
            run = numbers[at : at + groups * 8]
            padded = run + [0] * (groups * 8 - len(run))
            bits = sum(value << (idx * bit_width) for idx, value in enumerate(padded))
            out += header(groups << 1 | 1) + bits.to_bytes(groups * bit_width, "little")
        at += len(run)
    return out


@given(NUMBERS, st.integers(0, 32), st.randoms(use_true_random=False))
@settings(max_examples=rounds(400))
def test_runs_of_every_width_are_decoded(
    numbers: list[int], bit_width: int, chance: random.Random
) -> None:
    decode_runs = find_kernel_function("decode_runs")
    # All numbers are below the limit, so the largest number of 32 bits cannot be among them.
    numbers = [min(number & ((1 << bit_width) - 1), 2**32 - 2) for number in numbers]
    data = np.frombuffer(encode_runs(numbers, bit_width, chance), np.uint8)
    found = np.empty(len(numbers), np.uint32)
    limit = max(numbers, default=0)
    decode_runs(data, bit_width, limit + 1, found)
    assert found.tolist() == numbers
    if numbers:
        with pytest.raises(ValueError, match="too large"):
            decode_runs(data, bit_width, limit, found)
        with pytest.raises(ValueError, match=r"fewer|damaged"):
            decode_runs(data[:-1], bit_width, 2**32 - 1, np.empty(len(numbers) + 16, np.uint32))


def unpack_snappy(
    stored: bytes | bytearray, size: int, piece_bytes: int, *, is_held: bool = True
) -> bytes:
    pieces = (
        memoryview(stored)[at : at + piece_bytes] for at in range(0, len(stored), piece_bytes)
    )
    max_bytes = parquet_snappy._MAX_WHOLE_BYTES if is_held else -1
    with mock.patch.object(parquet_snappy, "_MAX_WHOLE_BYTES", max_bytes):
        room = np.empty(parquet_snappy.room_bytes(size), np.uint8)
    return b"".join(map(bytes, parquet_snappy.iter_snappy(pieces, size, room)))


@given(
    st.binary(max_size=300), st.integers(0, 40_000), st.integers(1, 300), st.integers(0, 1 << 20)
)
@settings(max_examples=rounds(200))
def test_snappy_is_decompressed_in_pieces_and_damage_refused(
    some: bytes, num_repeats: int, piece_bytes: int, at: int
) -> None:
    # Text that repeats, and text that hardly does, longer than the window or not.
    random_bytes = random.Random(num_repeats).randbytes(at % 400_000 if at % 3 == 0 else 9)
    data = b"x" + some * 3 + random_bytes + b"again and again " * num_repeats + random_bytes
    stored = bytearray(pa.compress(data, codec="snappy", asbytes=True))
    for size in (piece_bytes, 1 << 18):
        for is_held in (True, False):
            assert unpack_snappy(stored, len(data), size, is_held=is_held) == data
    for size in (len(data) - 1, len(data) + 1):
        with pytest.raises(ValueError, match="another size"):
            unpack_snappy(stored, size, 1 << 18)
    with pytest.raises(ValueError, match="cut short"):
        unpack_snappy(stored[: at % len(stored)], len(data), piece_bytes)
    stored[at % len(stored)] ^= 1 << at % 8
    for is_held in (True, False):
        try:
            found = unpack_snappy(stored, len(data), 1 << 18, is_held=is_held)
        except ValueError:
            continue
        assert found == pa.decompress(stored, len(data), codec="snappy", asbytes=True)


def go_back(offset: int) -> tuple[bytes, bytes]:
    """Return text, and the same compressed, with an element that copies text from far back."""
    literal = random.Random(0).randbytes(300_000)
    data = literal + (literal[-offset:] * 64)[:64]
    size = bytes([len(data) & 127 | 128, len(data) >> 7 & 127 | 128, len(data) >> 14])
    elements = b"\xf8" + (len(literal) - 1).to_bytes(3, "little") + literal
    return data, size + elements + b"\xff" + offset.to_bytes(4, "little")


@pytest.mark.parametrize("offset", [1, 15, 16, 65535, 65536, 250_000, 300_000, 300_001])
def test_snappy_goes_back_as_far_as_text_is_kept(offset: int) -> None:
    data, stored = go_back(offset)
    for is_held in (True, False):
        if offset <= (300_000 if is_held else 65536):
            assert pa.decompress(stored, len(data), codec="snappy", asbytes=True) == data
            assert unpack_snappy(stored, len(data), 1 << 18, is_held=is_held) == data
        else:
            with pytest.raises(ValueError, match="damaged"):
                unpack_snappy(stored, len(data), 1 << 18, is_held=is_held)


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        (b"\x83\x80\x80\x80\x00", None),
        (b"\x83\x80\x80\x80\x80", "the size"),
        (b"\x83\x80\x80\x80\x80\x00", "the size"),
        (b"\x04", "another size"),
        (b"", "another size"),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1, 100])
def test_the_size_of_snappy_is_checked(start: bytes, problem: str | None, piece_bytes: int) -> None:
    stored = start + b"\x08abc"
    if problem is None:
        assert unpack_snappy(stored, 3, piece_bytes) == b"abc"
    else:
        with pytest.raises(ValueError, match=problem):
            unpack_snappy(stored, 3, piece_bytes)


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(1, 40), st.integers(1, 9))
@settings(max_examples=rounds(200))
def test_texts_are_copied_from_pieces_of_any_size(
    texts: list[bytes], piece_bytes: int, count: int
) -> None:
    from penstok.readers.columnar.parquet_texts import PlainValues, TextBuffer

    data = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    pieces = (data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes))
    buffer = TextBuffer()
    buffer.start(count, pieces)
    values = PlainValues(buffer, len(texts))
    found: list[bytes] = []
    while len(found) < len(texts):
        text, offsets = values.take(min(count, len(texts) - len(found)))
        edges = offsets.tolist()
        assert 1 < len(edges) <= count + 1
        found += [text[a:b].tobytes() for a, b in itertools.pairwise(edges)]
    assert found == texts
