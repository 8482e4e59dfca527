"""Text becomes blocks through a window, and tokens become segments in pieces."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import xxhash

from penstok.inputs.files import open_unit
from penstok.kernel import find_kernel_function
from penstok.output import segments as segments_module
from penstok.output.layout import Layout
from penstok.output.segments import SegmentWriter
from penstok.output.token_runs import TokenRun
from penstok.readers import borders as borders_module
from penstok.readers.base import CutRule, ReaderOptions
from penstok.readers.borders import Borders
from penstok.readers.buffer import UnitBuffer
from penstok.readers.text import HEAD_BYTES, TextReader
from penstok.tokenizers import load_tokenizer
from penstok.tokenizers.cuts import find_cuts
from penstok.types import Counts, DocumentRule, Source, Unit
from penstok.worker import memory

SEPARATORS = [b"<|endoftext|>", b"\n\n", b"\n", b"aba", b"\r\n\r\n"]
RULES = [DocumentRule("separator", separator) for separator in SEPARATORS]
RULES += [DocumentRule("line", b"\n"), DocumentRule("file")]


@cache
def gpt2_cuts() -> CutRule:
    return find_cuts(load_tokenizer("gpt2"), 1 << 30)


def text_reader(rule: DocumentRule, block_bytes: int, *, strip: bool = False) -> TextReader:
    options = ReaderOptions(
        rule=rule,
        text_key="",
        open_unit=partial(open_unit, ring=None),
        block_bytes=block_bytes,
        special_text=b"",
        strip=strip,
        give_back=False,
    )
    return TextReader(gpt2_cuts(), options)


def iter_units(path: Path, unit_bytes: int) -> Iterator[Unit]:
    size = path.stat().st_size
    source = Source(str(path), size, 0, "")
    for index, start in enumerate(range(0, size, unit_bytes)):
        yield Unit(index, 0, source, start, min(start + unit_bytes, size), size)


def read_documents(reader: TextReader, path: Path, unit_bytes: int) -> tuple[list[bytes], Counts]:
    """Join the pieces of all units to documents; check their heads on the way."""
    documents: list[bytearray] = []
    is_open = False
    for unit in iter_units(path, unit_bytes):
        for block in reader.iter_blocks(unit):
            fields = (block.starts, block.ends, block.heads, block.begins, block.closes)
            for start, end, head, begins, closes in zip(*(f.tolist() for f in fields), strict=True):
                assert begins is not is_open
                if begins:
                    documents.append(bytearray())
                    assert head <= start + HEAD_BYTES
                    assert head == min(end, start + HEAD_BYTES) or not closes
                documents[-1] += block.text[start:end]
                is_open = not closes
    return [bytes(document) for document in documents], reader.take_counts()


def expected_documents(data: bytes, rule: DocumentRule) -> list[bytes]:
    documents = data.split(rule.separator) if rule.separator else [data]
    if rule.kind == "line":
        documents[:-1] = [line.removesuffix(b"\r") for line in documents[:-1]]
    return [document for document in documents if document]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_any_block_size_gives_the_same_documents(rule: DocumentRule, tmp_path: Path) -> None:
    rng = random.Random(7)
    path = tmp_path / "in.txt"
    words = [rule.separator, b"word ", b"two words\n", b"\r", b"\0", b"ab", b"\xc3\xa9", b"\n"]
    for _ in range(6):
        data = b"".join(rng.choices(words, k=400)) * rng.choice((1, 8))
        path.write_bytes(data)
        expected = expected_documents(data, rule)
        for block_bytes in (1 << 10, 1 << 21):
            unit_bytes = rng.choice((1 << 11, 1 << 20))
            found, counts = read_documents(text_reader(rule, block_bytes), path, unit_bytes)
            slow = text_reader(rule, block_bytes)
            slow._find_documents = None
            assert (found, counts) == read_documents(slow, path, unit_bytes)
            assert found == expected
            assert counts.nul_bytes == data.count(0)
            assert counts.input_bytes == len(data)


def test_a_document_longer_than_the_window_is_held_whole(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    long = b"some words \0" * 30_000
    path.write_bytes(b"short\n\n" + long + b"\n\nlast\n\n\n\n")
    rule = DocumentRule("separator", b"\n\n")
    for strip in (False, True):
        reader = text_reader(rule, 1 << 12, strip=strip)
        found, counts = read_documents(reader, path, 1 << 16)
        assert found == [b"short", long, b"last"]
        assert (counts.nul_bytes, counts.empty_documents) == (30_000, 1)


def test_the_window_of_short_documents_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"a line of text\n" * 100_000)
    reader = text_reader(DocumentRule("line", b"\n"), 1 << 14)
    for unit in iter_units(path, 1 << 24):
        for _ in reader.iter_blocks(unit):
            pass
    assert len(reader._buffer._bytes) < 2 << 14


@pytest.mark.parametrize("separator", [b"", b"\n\n", b"<|endoftext|>"])
def test_forced_cuts_are_those_of_a_search_from_each_place(
    separator: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(borders_module, "MAX_RUN_BYTES", 512)
    cuts = gpt2_cuts()
    rng = random.Random(3)
    path = tmp_path / "in.txt"
    num_forced = 0
    for _ in range(40):
        runs = (b"x" * rng.randrange(1500), b"some words ", separator, b"\xe4\xbd\xa0" * 300)
        path.write_bytes(b"".join(rng.choices(runs, k=12)) + b"end")
        size = path.stat().st_size
        unit = Unit(0, 0, Source(str(path), size, 0, ""), 0, size, size)
        with open_unit(unit, None) as file:
            found = Borders(file, separator, cuts)
            every = found.forced_cuts(0, size)
            monkeypatch.setattr(
                Borders, "_have_near_cuts", lambda _, grids: np.zeros(len(grids), np.bool_)
            )
            assert found.forced_cuts(0, size) == every
            monkeypatch.undo()
            monkeypatch.setattr(borders_module, "MAX_RUN_BYTES", 512)
        num_forced += len(every)
    assert num_forced > 20


def test_separators_that_overlap_are_taken_from_the_left() -> None:
    for find_all in (None, find_kernel_function("find_all")):
        buffer = UnitBuffer(find_all)
        buffer.view = memoryview(b"\n\n\n\n\nababa aba")
        assert buffer.find_all(b"\n\n", 0, 14, 9).tolist() == [0, 2]
        assert buffer.find_all(b"aba", 0, 14, 9).tolist() == [5, 11]


@pytest.mark.parametrize("shard_tokens", [None, 250_000])
def test_long_runs_of_tokens_are_hashed_and_written_in_pieces(
    shard_tokens: int | None, tmp_path: Path
) -> None:
    layout = Layout(str(tmp_path), 2, shard_tokens)
    layout.partial_path("train", 0).parent.mkdir(parents=True, exist_ok=True)
    tokens = np.random.default_rng(5).integers(0, 50_000, 700_001).astype(np.uint16)
    writer = SegmentWriter(layout)
    segments = writer.write("train", 10, TokenRun(tokens))
    writer.close()
    assert sum(segment.num_tokens for segment in segments) == len(tokens)
    at = 0
    for segment in segments:
        expected = tokens[at : at + segment.num_tokens].tobytes()
        written = layout.partial_path("train", segment.shard).read_bytes()
        assert written[2 * segment.offset_tokens :] == expected
        assert segment.digest == xxhash.xxh3_128_hexdigest(expected)
        at += segment.num_tokens


def test_reserved_space_is_not_part_of_the_file(tmp_path: Path) -> None:
    reserve = find_kernel_function("reserve_disk_space")
    with (tmp_path / "tokens").open("w+b") as file:
        file.write(b"first")
        file.flush()
        is_reserved = reserve(file.fileno(), 5, 1 << 20)
        status = os.fstat(file.fileno())
        assert status.st_size == 5
        if is_reserved:
            assert status.st_blocks * 512 >= 1 << 20
        file.seek(5)
        file.write(b"second")
    assert (tmp_path / "tokens").read_bytes() == b"firstsecond"
    assert not reserve(-1, 0, 1 << 20)


def test_a_run_is_written_where_no_space_can_be_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def refuse(_: int, start: int, num_bytes: int) -> bool:
        asked.append((start, num_bytes))
        return False

    monkeypatch.setattr(segments_module, "find_kernel_function", lambda _: refuse)
    layout = Layout(str(tmp_path), 2, None)
    layout.partial_path("train", 0).parent.mkdir(parents=True, exist_ok=True)
    writer = SegmentWriter(layout)
    tokens = np.arange(600_000, dtype=np.uint16)
    writer.write("train", 0, TokenRun(tokens))
    writer.write("train", 600_000, TokenRun(tokens[:1000]))
    writer.close()
    assert asked == [(0, 1_200_000)]
    written = layout.partial_path("train", 0).read_bytes()
    assert written == tokens.tobytes() + tokens[:1000].tobytes()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc")
def test_own_memory_is_what_psutil_says() -> None:
    ours, theirs = memory.own_bytes(), psutil.Process().memory_info().rss
    assert abs(ours - theirs) < 8 << 20
