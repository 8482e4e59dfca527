"""A feed: what it shows to workers, and how much of its ring it uses."""

from __future__ import annotations

import gzip
import select
from collections import deque
from typing import TYPE_CHECKING

import pytest

from penstok.inputs import buffered_stream
from penstok.inputs.buffered_stream import StreamOptions
from penstok.inputs.feed import Feed, make_feed
from penstok.readers.formats import open_scanner
from penstok.types import UNKNOWN_END, Source, Unit

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
