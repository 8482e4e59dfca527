"""A feed: what it shows to workers, and how much of its ring it uses."""

from __future__ import annotations

import gzip
import json
import random
import select
from collections import deque
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from penstok.errors import InputError
from penstok.inputs import buffered_stream
from penstok.inputs.buffered_stream import StreamOptions
from penstok.inputs.compression import stream
from penstok.inputs.feed import Feed, make_feed
from penstok.inputs.files import open_unit
from penstok.inputs.ring import Ring
from penstok.inputs.streams import ContentStream
from penstok.readers.base import ReaderOptions
from penstok.readers.formats import open_scanner
from penstok.readers.jsonl import reader as jsonl
from penstok.tokenizers import load_tokenizer
from penstok.tokenizers.cuts import find_cuts
from penstok.types import UNKNOWN_END, DocumentRule, Source, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstok.types import InputFormat, OnError

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


class _Reading:
    """Fills units of one stream one after the other, and counts how often it is opened."""

    def __init__(self, source: Source, monkeypatch: pytest.MonkeyPatch, on_error: OnError) -> None:
        self.num_opened = 0
        self._source = source
        options = StreamOptions(
            open_scanner, WRAP, on_error, 1 << 20, give_back=False, keeps_head=True
        )
        self.feed = Feed(RING, options)
        monkeypatch.setattr(buffered_stream, "ContentStream", self._open)

    def _open(self, *args: Any, **options: Any) -> ContentStream:
        self.num_opened += 1
        return ContentStream(*args, **options)

    def fill(self, start: int, num_bytes: int) -> Unit | None:
        """Fill a unit, and let its memory be used again."""
        unit = self.feed.fill(Unit(0, 0, self._source, start, start + num_bytes, UNKNOWN_END))
        if unit is not None:
            self.feed.release(unit)
        return unit

    def fill_all(self, first: int) -> list[tuple[Unit, bytes]]:
        """Return all units from a position on, with the content that they show."""
        found = []
        while (unit := self.fill(first, UNIT)) is not None:
            found.append((unit, _look(self.feed, unit)[2]))
            first += UNIT
        return found


def _without_read_ahead(found: list[tuple[Unit, bytes]]) -> list[tuple[object, ...]]:
    """Return what does not depend on how much was read at a time."""
    rest: list[tuple[object, ...]] = []
    for unit, shown in found:
        assert unit.window is not None
        assert unit.passed is not None
        start = unit.window.start
        content = shown[: unit.end - start]
        rest.append((unit.start, unit.end, unit.passed.digest, start, unit.window.borders, content))
    return rest


def write_stream(path: Path, kind: InputFormat, cut_off: int | None) -> Source:
    chance = random.Random(1)
    lines = [b'{"text": "a line, %d"}' % chance.getrandbits(50) for _ in range(1100)]
    data = gzip.compress(b"\n".join([b"text" if kind == "csv" else lines[0], *lines]))
    path.write_bytes(data if cut_off is None else data[: len(data) * cut_off // 100])
    size = path.stat().st_size
    return Source(str(path), size, 0, "", format=kind, compression="gzip", is_stream=True)


@pytest.mark.parametrize("kind", ["jsonl", "text", "csv"])
@pytest.mark.parametrize("cut_off", [None, 10, 40, 70, 99])
@pytest.mark.parametrize("num_read", [0, 1, 5, 24, 25, 26, 90])
def test_a_feed_that_starts_over_shows_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: InputFormat,
    cut_off: int | None,
    num_read: int,
) -> None:
    monkeypatch.setattr(buffered_stream, "_KEPT_BYTES", WRAP * 3 // 4)
    monkeypatch.setattr(stream, "_FEED_BYTES", 100)
    source = write_stream(tmp_path / "data.gz", kind, cut_off)
    fresh = _Reading(source, monkeypatch, "skip")
    with closing(fresh.feed):
        fresh.feed.start_over()
        expected = fresh.fill_all(0)
    last = expected[-1][0].window
    assert last is not None
    assert bool(last.problem) == (cut_off is not None)
    for first in (0, min(2, len(expected) - 1), len(expected) - 1):
        again = _Reading(source, monkeypatch, "skip")
        with closing(again.feed):
            for number in range(num_read):
                again.fill(number * UNIT // 8, UNIT // 8)
            # A search ends inside a unit, whose memory is still held then.
            again.feed.ring.hold(again.feed.ring.position)
            again.feed.start_over()
            found = again.fill_all(first * UNIT)
            assert again.feed.lengths == fresh.feed.lengths
        assert again.num_opened == (1 if num_read <= 24 else 2) or cut_off is not None
        assert _without_read_ahead(found) == _without_read_ahead(expected[first:])
        if first == 0 and again.num_opened == 1:
            assert found == expected


@pytest.mark.parametrize("num_read", [0, 1, 8])
def test_damage_is_the_same_error_after_a_feed_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_read: int
) -> None:
    source = write_stream(tmp_path / "data.gz", "jsonl", 80)
    errors = []
    for num_before in (0, num_read):
        reading = _Reading(source, monkeypatch, "stop")
        with closing(reading.feed):
            for number in range(num_before):
                reading.fill(number * UNIT // 8, UNIT // 8)
            reading.feed.start_over()
            with pytest.raises(InputError, match="is cut off") as caught:
                reading.fill_all(0)
            errors.append(caught.value.where)
        assert reading.num_opened == 1
    assert errors[0] == errors[1]
