"""Law: content comes back, however it was divided into members and however it is read."""

from __future__ import annotations

import io

from compressed import compress, skippable_frame
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rounds

from penstok.inputs.compression import DecompressedStream, iter_zstd_frames
from penstok.inputs.compression.detection import COMPRESSIONS
from penstok.types import Compression

PIECES = st.lists(
    st.binary(max_size=400)
    | st.builds(bytes.__mul__, st.binary(max_size=9), st.integers(0, 60_000)),
    min_size=1,
    max_size=5,
)
SIZES = st.lists(st.integers(1, 200_000) | st.integers(1, 30), min_size=1, max_size=9)


@settings(max_examples=rounds(400))
@given(st.sampled_from(COMPRESSIONS), PIECES, SIZES, SIZES)
def test_content_comes_back(
    kind: Compression, pieces: list[bytes], given_sizes: list[int], read_sizes: list[int]
) -> None:
    data = b"".join(compress(piece, kind) for piece in pieces)
    expected = b"".join(pieces)
    file = io.BytesIO(data)
    num_reads = 0

    def read(num_bytes: int) -> bytes:
        nonlocal num_reads
        num_reads += 1
        return file.read(min(num_bytes, given_sizes[num_reads % len(given_sizes)]))

    stream = DecompressedStream(read, kind, "corpus.x")
    content = bytearray()
    for idx in range(len(expected) + 1):
        # Small reads are for the beginning only, or a long file takes as many.
        size = read_sizes[idx % len(read_sizes)] if idx < 200 else 1 << 20
        buffer = memoryview(bytearray(size))
        count = stream.readinto(buffer)
        content += buffer[:count]
        if count < size:
            break
    assert content == expected
    assert stream.position == len(expected)
    assert stream.readinto(memoryview(bytearray(9))) == 0
    assert stream.compressed_position == len(data)


@settings(max_examples=rounds(100))
@given(PIECES, st.binary(max_size=30))
def test_frames_entered_alone_give_the_same_content(pieces: list[bytes], note: bytes) -> None:
    data = skippable_frame(note).join(compress(piece, "zstd") for piece in pieces)
    contents = []
    for frame in iter_zstd_frames(lambda start, end: data[start:end], len(data), "corpus.zst"):
        file = io.BytesIO(data[frame.start : frame.end])
        stream = DecompressedStream(file.read, "zstd", "corpus.zst", start=frame.start)
        buffer = memoryview(bytearray((frame.content_bytes or 0) + 1))
        contents.append(bytes(buffer[: stream.readinto(buffer)]))
        assert stream.compressed_position == frame.end
        assert len(contents[-1]) == frame.content_bytes
    assert contents == pieces
