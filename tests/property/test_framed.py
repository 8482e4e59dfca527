"""Law: the content of a zstd file of many frames can be read at any place."""

from __future__ import annotations

from compressed import compress_zstd, skippable_frame
from hypothesis import given
from hypothesis import strategies as st

from penstok.inputs.compression import MAX_FRAME_BYTES, FramedContent, find_frames


@given(
    st.lists(st.binary(max_size=50), min_size=2, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.data(),
)
def test_any_range_of_content(parts: list[bytes], marks: list[bool], data: st.DataObject) -> None:
    stored = b"".join(
        (skippable_frame(b"mark") if mark else b"") + compress_zstd(part)
        for part, mark in zip(parts, marks, strict=False)
    )
    table = find_frames(lambda start, end: stored[start:end], len(stored), "a.zst")
    assert table is not None
    content = b"".join(parts)
    assert table.content_bytes == len(content)
    framed = FramedContent(table, lambda start, end: stored[start:end])
    for _ in range(4):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, len(content)))
        buffer = bytearray(end - start)
        framed.read_into(memoryview(buffer), start)
        assert bytes(buffer) == content[start:end]


def test_what_cannot_be_entered_is_left_to_the_stream() -> None:
    for stored in (
        compress_zstd(b"one frame"),
        compress_zstd(b"a", known_size=False) + compress_zstd(b"b"),
        compress_zstd(b"a") + compress_zstd(b"b", known_size=False),
        compress_zstd(bytes(MAX_FRAME_BYTES + 1)) + compress_zstd(b"b"),
    ):
        assert find_frames(lambda at, end, data=stored: data[at:end], len(stored), "a") is None  # type: ignore[misc]
