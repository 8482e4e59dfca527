"""A feed: what it shows to workers, and how much of its ring it uses."""

from __future__ import annotations

import gzip
import json
import random
import select
from collections import deque
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from penstok.inputs import buffered_stream
from penstok.inputs.buffered_stream import StreamOptions
from penstok.inputs.feed import Feed, make_feed
from penstok.inputs.files import open_unit
from penstok.inputs.ring import Ring
from penstok.readers.base import ReaderOptions
from penstok.readers.formats import open_scanner
from penstok.readers.jsonl import reader as jsonl
from penstok.tokenizers import load_tokenizer
from penstok.tokenizers.cuts import find_cuts
from penstok.types import UNKNOWN_END, DocumentRule, Source, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstok.types import InputFormat

RING, WRAP, UNIT, PIECE, HELD = 1 << 16, 1 << 14, 1 << 12, 1 << 9, 2


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered_stream, "_PIECE_BYTES", PIECE)
    monkeypatch.setattr(buffered_stream, "_BEHIND_BYTES", 1 << 10)
    monkeypatch.setattr(buffered_stream, "_AHEAD_BYTES", 1 << 11)
    monkeypatch.setattr(buffered_stream, "_MAX_CARRIED_BYTES", 1 << 13)


def iter_shown(
    folder: Path, data: bytes, kind: InputFormat
) -> Iterator[tuple[Unit, list[int], bytes]]:
    """Yield each unit with the places in the ring that it sees, and what stands there."""
    path = folder / "data.gz"
    path.write_bytes(gzip.compress(data))
    source = Source(
        str(path), path.stat().st_size, 0, "", format=kind, compression="gzip", is_stream=True
    )
    units = [
        Unit(number, 0, source, start, start + UNIT, UNKNOWN_END)
        for number, start in enumerate(range(0, len(data), UNIT))
    ]
    made = Feed(RING, StreamOptions(open_scanner, WRAP, "stop", 1 << 20, give_back=False))
    held = []
    try:
        for unit in made.iter_filled(units):
            if unit is None:
                select.select([made.wake_file], [], [], 1)
                continue
            held.append(unit)
            if len(held) > HELD:
                yield _look(made, held[0])
                made.release(held.pop(0))
        for unit in held:
            yield _look(made, unit)
    finally:
        made.close()


def _look(made: Feed, unit: Unit) -> tuple[Unit, list[int], bytes]:
    window = unit.window
    assert window is not None
    shown = bytearray(window.end - window.start)
    made.ring.file.read_into(memoryview(shown), window.base + window.start)
    ends = [window.base + window.start, window.base + window.end - 1]
    return unit, [position % RING for position in ends], bytes(shown)


@pytest.mark.parametrize("kind", ["jsonl", "text"])
def test_units_show_the_content_and_leave_most_of_the_ring_alone(
    tmp_path: Path, kind: InputFormat
) -> None:
    data = b"".join(b"%d a line of some length\n" % number for number in range(20_000))
    num_units = 0
    for unit, places, shown in iter_shown(tmp_path, data, kind):
        assert unit.window is not None
        assert shown == data[unit.window.start : unit.window.end]
        assert max(places) < WRAP + UNIT + (1 << 11) + 2 * PIECE
        num_units += 1
    assert num_units == -(-len(data) // UNIT)


@pytest.mark.parametrize("kind", ["jsonl", "text"])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_ring_holds_two_units_per_worker_and_one_that_is_filled(
    tmp_path: Path, kind: InputFormat, num_workers: int
) -> None:
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress(b'{"text": "a line of some length"}\n' * 4000))
    source = Source(
        str(path), path.stat().st_size, 0, "", format=kind, compression="gzip", is_stream=True
    )
    made = make_feed(
        [source], num_workers, UNIT, open_scanner=open_scanner, on_error="stop", give_back=False
    )
    assert made is not None
    highest, held = 0, deque[Unit]()
    try:
        for number in range(30):
            start = number * UNIT
            # It would wait for ever if units that are held left no room.
            filled = made.fill(Unit(number, 0, source, start, start + UNIT, UNKNOWN_END))
            assert filled is not None
            assert filled.window is not None
            last = filled.window.base + filled.window.end - 1
            highest = max(highest, last % made.ring.num_bytes)
            held.append(filled)
            if len(held) == 2 * num_workers:
                made.release(held.popleft())
    finally:
        made.close()
    ahead = 0 if kind == "jsonl" else 1 << 11
    assert 2 * num_workers * UNIT < highest
    assert highest <= (2 * num_workers + 1) * UNIT + ahead + 2 * PIECE


def test_a_range_of_the_ring_is_mapped_if_it_is_in_one_piece() -> None:
    ring = Ring(1 << 16)
    content = random.Random(3).randbytes(1 << 16)
    ring.view(0, 1 << 16)[:] = content
    for start, end in ((0, 1), (5, 9000), (8191, 8193), (0, 1 << 16), (4096, 1 << 16)):
        for turn in (0, 3 << 16):
            mapped = ring.file.map_range(turn + start, turn + end)
            assert mapped is not None
            assert mapped.readonly
            assert mapped == content[start:end]
    assert ring.file.map_range(60_000, 70_000) is None
    kept = ring.file.map_range(10, 20)
    ring.close()
    assert kept is not None
    assert bytes(kept) == content[10:20]


@pytest.mark.parametrize("block_bytes", [100, 1000, 1 << 20])
@pytest.mark.parametrize("ends_with_line_feed", [True, False])
def test_lines_are_the_same_in_the_ring_and_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, ends_with_line_feed: bool
) -> None:
    monkeypatch.setattr(jsonl, "_TAIL_BYTES", 64)
    chance = random.Random(block_bytes)
    texts = [f"{idx} " + "x" * int(4000 * chance.random() ** 5) for idx in range(300)]
    data = "\n".join(json.dumps({"text": each}) for each in texts).encode()
    data += b"\n" * ends_with_line_feed
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(data))
    source = Source(
        str(path), path.stat().st_size, 0, "", format="jsonl", compression="gzip", is_stream=True
    )
    made = Feed(RING, StreamOptions(open_scanner, WRAP, "stop", 1 << 20, give_back=False))
    options = ReaderOptions(
        DocumentRule("line", b"\n"),
        "text",
        partial(open_unit, ring=made.ring.file),
        block_bytes,
        b"",
        strip=False,
        give_back=False,
    )
    tokenizer = load_tokenizer("gpt2")
    reader = jsonl.JsonlReader(find_cuts(tokenizer, 1 << 20), options)
    found = []
    with closing(made):
        for number, start in enumerate(range(0, len(data), UNIT)):
            unit = made.fill(Unit(number, 0, source, start, start + UNIT, UNKNOWN_END))
            if unit is not None:
                for block in reader.iter_blocks(unit):
                    pairs = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
                    found += [bytes(block.text[first:last]).decode() for first, last in pairs]
                made.release(unit)
    assert found == texts
    assert reader.take_counts().input_bytes == len(data)


def test_a_long_line_may_use_all_of_the_ring(tmp_path: Path) -> None:
    lines = [b"short"] * 2000 + [b"long" * 10_000] + [b"short"] * 20_000
    data = b"\n".join(lines)
    highest, last = 0, 0
    for unit, places, shown in iter_shown(tmp_path, data, "jsonl"):
        assert unit.window is not None
        assert shown == data[unit.window.start : unit.window.end]
        assert unit.window.borders is not None
        assert unit.window.borders[0] == last
        last = unit.window.borders[1]
        highest = max(highest, *places)
    assert last == len(data)
    assert highest > RING // 2
