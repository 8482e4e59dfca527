"""Compressed files are read to their end, or an error says what is wrong and where."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import itertools
import lzma
import random
import struct
import subprocess
import sys
import tarfile
import threading
import time
import zlib
from pathlib import Path

import lz4.frame
import pytest
from compressed import compress, compress_zstd, decompress_all, skippable_frame

import penstok
from penstok.errors import InputError, UsageError
from penstok.inputs.compression import (
    MAX_WINDOW_BYTES,
    DecompressedStream,
    detect_compression,
)
from penstok.inputs.compression.commands import run_on
from penstok.inputs.compression.detection import COMPRESSIONS
from penstok.types import Compression

RANDOM = random.Random(12)
WORDS = [b"the", b"of", b"water", b"penstok", "é".encode()]
# Repeats for the match finders, noise for the literals.
SMALL = b" ".join(RANDOM.choice(WORDS) for _ in range(120)) + RANDOM.randbytes(60)
LARGE = b" ".join(RANDOM.choice(WORDS) for _ in range(60_000)) + RANDOM.randbytes(100_000)

each_kind = pytest.mark.parametrize("kind", COMPRESSIONS)


def fails(data: bytes, kind: Compression) -> InputError:
    with pytest.raises(InputError) as caught:
        decompress_all(data, kind)
    assert "corpus.x" in caught.value.where
    assert "compressed byte" in caught.value.where
    assert "`" in caught.value.next_step
    return caught.value


@each_kind
def test_the_magic_bytes_tell_the_kind(kind: Compression) -> None:
    assert detect_compression(compress(SMALL, kind)) == kind
    assert detect_compression(compress(b"", kind)) == kind
    assert detect_compression(compress(SMALL, kind)[:18]) == kind


@pytest.mark.parametrize(
    "head", [b"", b"B", b"BZh", b"BZh9 is text", b"plain", b"{}", b"\x1f", b"P"]
)
def test_other_bytes_are_no_compression(head: bytes) -> None:
    assert detect_compression(head) is None


def test_skippable_frames_are_looked_behind() -> None:
    notes = skippable_frame(b"size") + skippable_frame(b"", 15)
    assert detect_compression(notes + compress(SMALL, "zstd")) == "zstd"
    assert detect_compression(notes + compress(SMALL, "lz4")) == "lz4"
    assert detect_compression(notes) == "zstd"
    assert detect_compression(notes + b"\x1f\x8b") == "zstd"
    assert detect_compression(skippable_frame(bytes(9999))[:4096]) == "zstd"
    assert detect_compression(skippable_frame(b"")[:5]) == "zstd"


@each_kind
def test_content_comes_back_for_any_read_size(kind: Compression) -> None:
    data = compress(LARGE, kind)
    for read_bytes in (997, 1 << 16, len(LARGE), len(LARGE) + 1, 1 << 20):
        assert decompress_all(data, kind, read_bytes=read_bytes) == LARGE
    assert decompress_all(compress(SMALL, kind), kind, read_bytes=1) == SMALL


@each_kind
def test_all_members_are_read(kind: Compression) -> None:
    pieces = [SMALL, b"", LARGE, b"x"]
    data = b"".join(compress(piece, kind) for piece in pieces)
    assert decompress_all(data, kind) == b"".join(pieces)


@pytest.mark.parametrize("kind", ["zstd", "lz4"])
def test_skippable_frames_are_skipped(kind: Compression) -> None:
    frame = compress(SMALL, kind)
    data = skippable_frame(bytes(300_000)) + frame + skippable_frame(b"", 7) + frame
    assert decompress_all(data + skippable_frame(b"end"), kind) == SMALL * 2
    assert decompress_all(skippable_frame(b"only"), kind) == b""


@each_kind
def test_positions_count_both_sides(kind: Compression) -> None:
    data = compress(LARGE, kind)
    stream = DecompressedStream(io.BytesIO(data).read, kind, "corpus.x", start=1000)
    assert (stream.position, stream.compressed_position) == (0, 1000)
    buffer = memoryview(bytearray(len(LARGE) // 2))
    seen = []
    while stream.readinto(buffer):
        seen.append(stream.compressed_position)
    assert stream.position == len(LARGE)
    assert stream.compressed_position == 1000 + len(data)
    assert seen == sorted(seen)
    assert stream.readinto(buffer) == 0


@each_kind
def test_nothing_compressed_is_nothing(kind: Compression) -> None:
    assert decompress_all(compress(b"", kind), kind) == b""


@each_kind
def test_a_file_without_a_byte_is_an_error(kind: Compression) -> None:
    assert fails(b"", kind).what == f"not {kind}: this is an empty file"


@each_kind
def test_another_kind_of_file_is_an_error(kind: Compression) -> None:
    assert fails(b"text in a file called .gz", kind).what.startswith(f"not {kind}")


@each_kind
def test_a_cut_at_any_byte_is_an_error(kind: Compression) -> None:
    member = compress(SMALL, kind)
    for length in range(len(member)):
        fails(member[:length], kind)
        if length:
            fails(member + member[:length], kind)


@each_kind
def test_a_cut_says_where_the_file_ends(kind: Compression) -> None:
    data = compress(LARGE, kind)[:-9]
    error = fails(data, kind)
    assert error.what == f"the {kind} data is cut off: the file ends inside it"
    assert f"compressed byte {len(data)}," in error.where
    # All that precedes the cut, whatever the size of a read.
    stream, num_bytes = DecompressedStream(io.BytesIO(data).read, kind, "corpus.x"), 0
    with contextlib.suppress(InputError):
        while count := stream.readinto(memoryview(bytearray(1000))):
            num_bytes += count
    assert num_bytes > 0
    assert error.where.endswith(f"after {num_bytes:,} bytes of content")


@each_kind
def test_a_flipped_bit_is_an_error_or_changes_nothing(kind: Compression) -> None:
    member = compress(SMALL, kind)
    for position in range(len(member)):
        for bit in range(8):
            flipped = bytearray(member)
            flipped[position] ^= 1 << bit
            check_flipped(bytes(flipped) + member, kind, SMALL * 2)
            check_flipped(member + bytes(flipped), kind, SMALL * 2)


@each_kind
def test_a_flipped_bit_in_a_larger_file_is_an_error_or_changes_nothing(kind: Compression) -> None:
    data = compress(LARGE, kind)
    for position in [*RANDOM.sample(range(len(data)), 25), len(data) - 5]:
        flipped = bytearray(data)
        flipped[position] ^= 1 << RANDOM.randrange(8)
        check_flipped(bytes(flipped), kind, LARGE)


def check_flipped(data: bytes, kind: Compression, content: bytes) -> None:
    with contextlib.suppress(InputError):
        assert decompress_all(data, kind) == content


@each_kind
def test_an_error_stays(kind: Compression) -> None:
    data = bytearray(compress(LARGE, kind))
    data[len(data) // 2] ^= 0x10
    stream = DecompressedStream(io.BytesIO(data).read, kind, "a corpus.x")
    buffer = memoryview(bytearray(len(LARGE) + 1))
    messages = []
    # What comes before the damage is handed out first.
    assert stream.readinto(buffer) < len(LARGE)
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            stream.readinto(buffer)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "'a corpus.x'`" in messages[0]


@each_kind
def test_garbage_behind_is_an_error(kind: Compression) -> None:
    data = compress(SMALL, kind)
    for garbage in (b"x", b"\n", bytes(4) + b"x", b"plain text behind it" * 10_000):
        error = fails(data + garbage, kind)
        assert error.what == f"the compressed data is followed by bytes that are not {kind}"
        zeros = 4 if garbage[0] == 0 and kind in ("gzip", "xz") else 0
        assert error.where.endswith(f"compressed byte {len(data) + zeros}")


@each_kind
def test_zeros_behind_are_taken_where_the_format_has_them(kind: Compression) -> None:
    data = compress(SMALL, kind)
    for zeros in (1, 4, 511, 512, 300_000):
        if kind == "gzip" or (kind == "xz" and zeros % 4 == 0):
            assert decompress_all(data + bytes(zeros), kind) == SMALL
            assert decompress_all(data + bytes(zeros) + data, kind) == SMALL * 2
        else:
            fails(data + bytes(zeros), kind)


def test_a_gzip_header_with_everything_is_read() -> None:
    head = b"\x1f\x8b\x08\x1e" + bytes(6) + struct.pack("<H", 3) + b"abc" + b"name\0" + b"note\0"
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    assert decompress_all(head + compress(SMALL, "gzip")[10:], "gzip") == SMALL


@pytest.mark.parametrize(
    "check", [lzma.CHECK_NONE, lzma.CHECK_CRC32, lzma.CHECK_CRC64, lzma.CHECK_SHA256]
)
def test_every_check_of_xz_is_read(check: int) -> None:
    assert decompress_all(lzma.compress(SMALL, check=check), "xz") == SMALL


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("linked", [False, True])
def test_every_block_size_of_lz4_is_read(block_size: int, linked: bool) -> None:
    data = lz4.frame.compress(
        LARGE * 10, block_size=block_size, block_linked=linked, block_checksum=True
    )
    assert decompress_all(data, "lz4") == LARGE * 10


def test_a_zstd_window_that_is_too_wide_is_an_error() -> None:
    wide = b"\x28\xb5\x2f\xfd\x00" + bytes([(28 - 10) << 3]) + b"\x01\x00\x00"
    error = fails(wide, "zstd")
    assert error.what == "this zstd data needs a window of 268 MB, more than the 134 MB allowed"
    assert "zstd -dc --long=31 < corpus.x | zstd -o" in error.next_step
    widest = b"\x28\xb5\x2f\xfd\x00" + bytes([(27 - 10) << 3]) + b"\x01\x00\x00"
    assert decompress_all(widest, "zstd") == b""
    stream = DecompressedStream(
        io.BytesIO(wide).read, "zstd", "corpus.x", max_window_bytes=MAX_WINDOW_BYTES * 2
    )
    assert stream.readinto(memoryview(bytearray(9))) == 0


def test_a_window_limit_between_powers_of_two_is_kept() -> None:
    limit = 3 << 20
    for code, fits in ((0b100, True), (0b101, False)):
        frame = b"\x28\xb5\x2f\xfd\x00" + bytes([(21 - 10) << 3 | code]) + b"\x01\x00\x00"
        stream = DecompressedStream(
            io.BytesIO(frame).read, "zstd", "corpus.x", max_window_bytes=limit
        )
        if fits:
            assert stream.readinto(memoryview(bytearray(9))) == 0
        else:
            with pytest.raises(InputError, match="needs a window"):
                stream.readinto(memoryview(bytearray(9)))


def test_an_xz_dictionary_that_is_too_wide_is_an_error() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 4 << 20}]
    data = lzma.compress(SMALL, filters=filters)
    stream = DecompressedStream(io.BytesIO(data).read, "xz", "corpus.x", max_window_bytes=1 << 20)
    with pytest.raises(InputError, match=r"needs a window of more than 1\.05 MB") as caught:
        stream.readinto(memoryview(bytearray(9)))
    assert "`xz -dc < corpus.x | xz > " in caught.value.next_step
    assert decompress_all(lzma.compress(SMALL, preset=9), "xz") == SMALL


def test_a_zstd_dictionary_is_named() -> None:
    frame = compress_zstd(SMALL)
    needs = frame[:4] + bytes([frame[4] | 1]) + frame[5:6] + b"\x07" + frame[6:]
    error = fails(needs, "zstd")
    assert "needs the dictionary" in error.what
    assert "zstd -D DICTIONARY" in error.next_step


def test_an_error_of_the_reader_is_left_alone() -> None:
    def read(_: int) -> bytes:
        raise ConnectionResetError

    for kind in COMPRESSIONS:
        with pytest.raises(ConnectionResetError):
            DecompressedStream(read, kind, "corpus.x").readinto(memoryview(bytearray(9)))


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(UsageError, match="lz4 files need the extra `lz4`") as caught:
        DecompressedStream(io.BytesIO().read, "lz4", "corpus.x")
    assert caught.value.next_step == "run `pip install 'penstok[lz4]'`"


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = "import penstok.inputs.compression, sys; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert not {b"isal", b"lz4", b"backports.zstd", b"zstandard"} & set(result.stdout.split())


@each_kind
def test_another_thread_runs_meanwhile(kind: Compression) -> None:
    data = compress(LARGE, kind)
    members = itertools.repeat(data, 4 if kind in ("bzip2", "xz") else 60)
    stream = DecompressedStream(lambda _: next(members, b""), kind, "corpus.x")
    buffer = memoryview(bytearray(1 << 16))

    def read_all() -> None:
        while stream.readinto(buffer):
            pass

    # With such an interval a thread goes on until it gives up the interpreter's lock by itself.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    seen = set()
    try:
        thread = threading.Thread(target=read_all)
        thread.start()
        while thread.is_alive():
            seen.add(stream.position)
            time.sleep(0)
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert seen - {0, stream.position}


# Endless files of zeros, from a little compressed data, read for 100 MB.
BOMB = """
import itertools, sys
from penstok.inputs.compression import DecompressedStream

def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

kind, num_head = sys.argv[1], int(sys.argv[2])
data = sys.stdin.buffer.read()
head, repeated = data[:num_head], data[num_head:]
repeated *= 100_000 // len(repeated) + 1
pieces = itertools.chain([head] if head else [], itertools.repeat(repeated))
buffer = memoryview(bytearray(b"x") * (1 << 20))
before = peak_bytes()
stream = DecompressedStream(lambda _: next(pieces), kind, "bomb")
while stream.position < 100_000_000:
    assert stream.readinto(buffer) == len(buffer)
    assert not any(buffer[::4096])
print(peak_bytes() - before)
"""


def bomb_of(kind: Compression) -> tuple[bytes, bytes]:
    """Return how an endless file of zeros begins, and what then repeats."""
    zeros = bytes(20_000_000)
    match kind:
        case "gzip":
            deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
            return gzip.compress(b"")[:10], deflate.compress(zeros) + deflate.flush(
                zlib.Z_FULL_FLUSH
            )
        case "zstd":
            # Blocks of one byte repeated 128 KiB times: 4 bytes each, 10 GB from 320 kB.
            return b"\x28\xb5\x2f\xfd\x00\x58", ((128 << 10) << 3 | 1 << 1).to_bytes(
                3, "little"
            ) + b"\0"
        case "bzip2":
            return b"", bz2.compress(zeros)
        case "xz":
            return b"", lzma.compress(zeros, preset=1)
        case "lz4":
            return b"", bytes(lz4.frame.compress(zeros, block_size=7))


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@each_kind
def test_a_bomb_takes_no_memory(kind: Compression) -> None:
    head, repeated = bomb_of(kind)
    command = [sys.executable, "-c", BOMB, kind, str(len(head))]
    result = subprocess.run(command, input=head + repeated, stdout=subprocess.PIPE, check=True)
    assert int(result.stdout) < 50_000_000


@pytest.mark.parametrize("archive", ["plain.tar", "packed.tgz"])
@pytest.mark.parametrize("name", ["./inner.gz", "my folder/inner.gz"])
def test_the_command_for_a_damaged_member_works_as_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = gzip.compress(b"text " * 1000)
    command = run_on("gzip -t", f"{archive}/{name.removeprefix('./')}", archive)
    for data, exit_code in ((whole, 0), (whole[:-9], 1)):
        with tarfile.open(archive, "w:gz" if archive.endswith("gz") else "w") as tar:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        run = subprocess.run(command, shell=True, capture_output=True, check=False)
        assert run.returncode == exit_code
    with pytest.raises(InputError, match="cut off") as caught:
        penstok.tokenize(archive, "out")
    assert f"`{command}`" in caught.value.next_step


def test_commands_for_what_is_not_in_a_local_file() -> None:
    assert run_on("xz -t", "my file.xz") == "xz -t < 'my file.xz'"
    assert run_on("xz -t", "https://a.org/b?c&d") == "curl -sL 'https://a.org/b?c&d' | xz -t"
    assert run_on("xz -t", "s3://a/b.xz") == run_on("xz -t", "-") == "xz -t < FILE"
    command = run_on("xz -t", "https://a.org/b.tar/c.xz (2)", "https://a.org/b.tar")
    assert command == (
        "curl -sLo FILE https://a.org/b.tar && tar -xOf FILE --no-anchored c.xz | xz -t"
    )
