"""Frames of a zstd file are found without decompressing, and no header is believed blindly."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable, Sequence

import pytest
from compressed import compress_zstd, decompress_all, skippable_frame

from penstok.errors import InputError
from penstok.inputs.compression import ZstdFrame, iter_zstd_frames

RANDOM = random.Random(5)
PIECES = [
    b"one",
    b"",
    b"water " * 60_000,
    RANDOM.randbytes(300_000),
    bytes(1 << 20),
    b"x" * 255,
    b"y" * 256,
    b"z" * 70_000,
]
MAGIC = b"\x28\xb5\x2f\xfd"


def reader_of(data: bytes) -> Callable[[int, int], bytes]:
    return lambda start, end: data[max(start, 0) : min(end, len(data))]


def list_frames(data: bytes) -> list[ZstdFrame]:
    return list(iter_zstd_frames(reader_of(data), len(data), "corpus.zst"))


def seek_table(sizes: Sequence[tuple[int, int]], *, checksums: bool = False) -> bytes:
    entries = b"".join(
        struct.pack("<II", *size) + (b"\xaa\xbb\xcc\xdd" if checksums else b"") for size in sizes
    )
    footer = struct.pack("<IBI", len(sizes), 0x80 if checksums else 0, 0x8F92EAB1)
    return struct.pack("<II", 0x184D2A5E, len(entries) + 9) + entries + footer


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("known_size", [False, True])
def test_frames_are_found_and_stand_alone(checksum: bool, known_size: bool) -> None:
    frames = [compress_zstd(p, checksum=checksum, known_size=known_size) for p in PIECES]
    data = skippable_frame(b"note") + b"".join(
        frame + skippable_frame(b"", idx) for idx, frame in enumerate(frames)
    )
    found = list_frames(data)
    assert [data[frame.start : frame.end] for frame in found] == frames
    for frame, piece in zip(found, PIECES, strict=True):
        assert frame.content_bytes == (len(piece) if known_size else None)
        assert decompress_all(data[frame.start : frame.end], "zstd") == piece


def test_only_a_part_of_the_file_is_read() -> None:
    data = compress_zstd(RANDOM.randbytes(8 << 20)) * 2
    num_read = 0

    def read_at(start: int, end: int) -> bytes:
        nonlocal num_read
        num_read += end - start
        return data[start:end]

    assert len(list(iter_zstd_frames(read_at, len(data), "corpus.zst"))) == 2
    assert num_read < len(data) / 20


def test_an_empty_file_has_no_frames() -> None:
    assert list_frames(b"") == []
    assert list_frames(skippable_frame(b"only a note")) == []


def test_a_cut_at_any_byte_is_an_error_or_the_end_of_a_frame() -> None:
    frames = [compress_zstd(p) for p in (b"one " * 50, b"", b"two")]
    data = b"".join([frames[0], skippable_frame(b"note"), *frames[1:]])
    ends = {frame.end for frame in list_frames(data)} | {0, len(frames[0]) + 12}
    for length in range(len(data)):
        if length in ends:
            assert all(frame.end <= length for frame in list_frames(data[:length]))
        else:
            with pytest.raises(InputError, match=r"ends inside a frame|no frame begins"):
                list_frames(data[:length])


def test_a_flipped_bit_is_an_error_or_frames_that_stay_inside_the_file() -> None:
    data = compress_zstd(b"one " * 50) + compress_zstd(PIECES[3][:1000], known_size=False)
    data += seek_table([(len(data), 1200)])
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            check_hostile(bytes(flipped))


def test_random_headers_are_an_error_or_frames_that_stay_inside_the_file() -> None:
    for _ in range(3000):
        check_hostile(MAGIC + RANDOM.randbytes(RANDOM.randrange(60)))


def check_hostile(data: bytes) -> None:
    position = 0
    with contextlib.suppress(InputError):
        for frame in list_frames(data):
            assert position <= frame.start < frame.end <= len(data)
            position = frame.end


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"plain text, no frame", "no frame begins here"),
        (MAGIC + b"\x08\x00", "reserved bit"),
        (MAGIC + b"\xc0\x58" + struct.pack("<Q", 1 << 60) + b"\x01\0\0", "too short"),
        (MAGIC + b"\x00\x58\x07\0\0", "reserved type"),
        (MAGIC + b"\x00\x58\xfd\xff\xff" + bytes(99), "a block of 2097151 bytes"),
        (MAGIC + b"\x00\x58\x81\0\0" + bytes(3), "ends inside a frame"),
        (MAGIC + b"\x04\x58\x01\0\0" + bytes(3), "ends inside a frame"),
        (b"\x50\x2a\x4d\x18\xff\xff\xff\xff" + bytes(99), "ends inside a frame"),
    ],
)
def test_a_hostile_header_is_an_error(data: bytes, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        list_frames(data)
    assert "compressed byte" in caught.value.where
    assert caught.value.next_step.startswith("check it with `zstd -t < corpus.zst`")


@pytest.mark.parametrize("checksums", [False, True])
def test_a_seek_table_is_followed_without_a_look_at_the_blocks(checksums: bool) -> None:
    frames = [compress_zstd(p, known_size=False) for p in PIECES]
    sizes = [(len(frame), len(piece)) for frame, piece in zip(frames, PIECES, strict=True)]
    data = b"".join(frames) + seek_table(sizes, checksums=checksums)
    found = list_frames(data)
    assert [data[frame.start : frame.end] for frame in found] == frames
    assert [frame.content_bytes for frame in found] == [len(piece) for piece in PIECES]


def test_a_large_seek_table_is_read_in_pieces() -> None:
    frame = compress_zstd(b"tiny")
    data = frame * 10_000 + seek_table([(len(frame), 4)] * 10_000)
    longest = 0

    def read_at(start: int, end: int) -> bytes:
        nonlocal longest
        longest = max(longest, end - start)
        return data[start:end]

    assert len(list(iter_zstd_frames(read_at, len(data), "corpus.zst"))) == 10_000
    assert longest < 64 << 10


def test_a_seek_table_that_does_not_fit_is_not_followed() -> None:
    frames = [compress_zstd(p) for p in PIECES[:3]]
    sizes = [(len(frame), len(piece)) for frame, piece in zip(frames, PIECES, strict=False)]
    body = b"".join(frames)
    expected = [(frame.start, frame.end, frame.content_bytes) for frame in list_frames(body)]
    whole = body + seek_table(sizes)
    for table in (
        seek_table(sizes[1:]),
        seek_table([*sizes, (9, 0)]),
        seek_table([(sizes[0][0] + 1, 3), (sizes[1][0] - 1, 0), sizes[2]]),
        seek_table([(sizes[0][0], 4), *sizes[1:]]),
        seek_table([(0, 3), *sizes]),
        seek_table([]),
        seek_table(sizes)[:-9] + struct.pack("<IBI", 0xFFFFFFFF, 0, 0x8F92EAB1),
        seek_table(sizes)[:-9] + struct.pack("<IBI", 3, 0x40, 0x8F92EAB1),
    ):
        found = list_frames(body + table)
        assert [(f.start, f.end, f.content_bytes) for f in found] == expected
    assert len(list_frames(whole + whole)) == 2 * len(frames)
