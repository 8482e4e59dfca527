"""The content of a compressed file as a stream, through its last member.

It opens nothing, cannot seek, and keeps no more than a few buffers and the decoder's window,
whatever the input asks for. `decoders` does the work; `streams` and `framed` pass a `read`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.errors import InputError
from penstok.inputs.compression.commands import run_on
from penstok.inputs.compression.decoders import load_codec
from penstok.inputs.compression.detection import is_skippable, starts_member
from penstok.inputs.compression.frames import FRAME_HEADER_BYTES, parse_frame_header
from penstok.quantities import format_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstok.inputs.compression.decoders import Decoder
    from penstok.types import Compression

__all__ = ["MAX_WINDOW_BYTES", "DecompressedStream"]

# What `zstd -d` accepts without `--long`; `xz -9` needs half of it.
MAX_WINDOW_BYTES = 128 << 20
# Speed hardly depends on these (ADR 14). Input that is not used is copied at the end of every
# member, and an error names the last input: so less is passed to a decoder than is read.
_READ_BYTES = 128 << 10
_FEED_BYTES = 32 << 10
_PIECE_BYTES = 128 << 10
_TEST_COMMANDS: dict[Compression, str] = {
    "gzip": "gzip -t",
    "zstd": "zstd -t",
    "bzip2": "bzip2 -t",
    "xz": "xz -t",
    "lz4": "lz4 -t",
}
# Zeros allowed after a member: a multiple of this many (tapes, disk blocks).
_PADDING: dict[Compression, int] = {"gzip": 1, "xz": 4}


class DecompressedStream:
    """The content of all members, frames or streams of a compressed file.

    Content is complete, and its checksums verified, when `readinto` has returned 0. zstd, xz and
    lz4 files may have no checksums; then only damage that breaks the format is found.

    Args:
        read: Returns up to this many compressed bytes, none at the end.
        kind: What `detect_compression` returned for the first bytes.
        path: The file's name, for messages.
        archive: The archive that it is a member of, if it is one, for messages.
        start: The offset in the file at which `read` begins, for messages.
        max_window_bytes: The largest window that a decoder may use; a member that needs more is
            an error.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        kind: Compression,
        path: str,
        *,
        archive: str = "",
        start: int = 0,
        max_window_bytes: int = MAX_WINDOW_BYTES,
    ) -> None:
        self.kind = kind
        self.path = path
        self._archive = archive
        self._read = read
        self._max_window_bytes = max_window_bytes
        self._codec = load_codec(kind, max_window_bytes, path)
        self._decoder: Decoder | None = None
        self._num_members = 0
        self._position = 0
        # Compressed bytes that were read; those before `_next` were passed to the decoder.
        self._chunk = b""
        self._next = 0
        self._chunk_start = start
        self._fed_start = start
        self._failure: InputError | None = None

    @property
    def position(self) -> int:
        """How many bytes of content were decompressed."""
        return self._position

    @property
    def compressed_position(self) -> int:
        """The offset in the file of the next compressed bytes; at the end, its size."""
        return self._chunk_start + self._next

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer`; return less than its length only at the end or before damage.

        What comes before damage is returned first, the next call raises.
        """
        if self._failure is not None:
            raise self._failure
        done = 0
        try:
            while done < len(buffer):
                piece = self._next_piece(min(len(buffer) - done, _PIECE_BYTES))
                if not piece:
                    break
                buffer[done : done + len(piece)] = piece
                done += len(piece)
                self._position += len(piece)
        except InputError as error:
            self._failure = error
            if not done:
                raise
        return done

    def _next_piece(self, max_bytes: int) -> bytes:
        """Return some content, none at the end."""
        while self._decoder is not None or self._find_member():
            piece = self._feed(max_bytes)
            if piece:
                return piece
        return b""

    def _find_member(self) -> bool:
        """Start the next member, if there is one."""
        padding = self._skip_padding() if self._num_members else 0
        head = self._peek(FRAME_HEADER_BYTES)
        self._fed_start = self.compressed_position
        if padding % _PADDING.get(self.kind, 1):
            raise self._garbage(self.compressed_position - padding)
        if not head and self._num_members:
            return False
        if not starts_member(self.kind, head):
            raise self._garbage(self.compressed_position) if self._num_members else self._other()
        if self.kind == "zstd" and not is_skippable(head):
            self._check_frame(head)
        self._decoder = self._codec.start()
        self._num_members += 1
        return True

    def _feed(self, max_bytes: int) -> bytes:
        """Decompress some more; at the end of a member, take back what its decoder did not use."""
        decoder = self._decoder
        if decoder is None:
            return b""
        fed: bytes | memoryview = b""
        if decoder.needs_input:
            if not self._refill():
                # That of gzip wants input although it has output that did not fit the last time.
                piece = decoder.decompress(b"", max_bytes)
                if not piece:
                    raise self._truncated()
                return piece
            fed = memoryview(self._chunk)[self._next : self._next + _FEED_BYTES]
            self._fed_start = self.compressed_position
            self._next += len(fed)
        try:
            piece = decoder.decompress(fed, max_bytes)
        except self._codec.errors as error:
            raise self._damaged(str(error)) from error
        if decoder.eof:
            self._next -= len(decoder.unused_data or b"")
            self._decoder = None
        return piece

    def _refill(self) -> bool:
        """Read more if all was used; tell whether there is any input left."""
        if self._next == len(self._chunk):
            self._chunk_start += self._next
            self._chunk, self._next = self._read(_READ_BYTES), 0
        return bool(self._chunk)

    def _peek(self, num_bytes: int) -> bytes:
        """Return the next compressed bytes without using them; fewer at the end of the file."""
        while len(self._chunk) - self._next < num_bytes:
            more = self._read(_READ_BYTES)
            if not more:
                break
            self._chunk_start += self._next
            self._chunk, self._next = self._chunk[self._next :] + more, 0
        return self._chunk[self._next : self._next + num_bytes]

    def _skip_padding(self) -> int:
        """Skip zeros after a member if its format allows them; return their number."""
        start = self.compressed_position
        while self.kind in _PADDING and self._refill() and self._chunk[self._next] == 0:
            self._next = len(self._chunk) - len(self._chunk[self._next :].lstrip(b"\0"))
        return self.compressed_position - start

    def _check_frame(self, head: bytes) -> None:
        """Refuse a zstd frame that cannot be decompressed, with the reason."""
        header = parse_frame_header(head)
        if isinstance(header, str):
            raise self._damaged(header)
        if header is None:
            raise self._truncated(len(head))
        if header.window_bytes > self._max_window_bytes:
            raise self._too_wide(
                f"{format_bytes(header.window_bytes)}, more than the "
                f"{format_bytes(self._max_window_bytes)} allowed"
            )
        if header.dictionary_id:
            raise InputError(
                f"this zstd frame needs the dictionary {header.dictionary_id} it was made with",
                where=f"{self.path}, compressed byte {self.compressed_position}",
                next_step=f"compress it again without: `{self._run('zstd -D DICTIONARY -dc')} "
                "| zstd -o plain.zst`",
            )

    def _run(self, command: str) -> str:
        return run_on(command, self.path, self._archive)

    @property
    def _repair(self) -> str:
        return (
            f"check it with `{self._run(_TEST_COMMANDS[self.kind])}`, then download or "
            "compress it again"
        )

    def _other(self) -> InputError:
        size = "an empty file" if not self._peek(1) else "something else"
        return InputError(
            f"not {self.kind}: this is {size}",
            where=f"{self.path}, compressed byte {self.compressed_position}",
            next_step=f"check its first bytes with `{self._run('head -c 16')} | xxd`",
        )

    def _garbage(self, position: int) -> InputError:
        return InputError(
            f"the compressed data is followed by bytes that are not {self.kind}",
            where=f"{self.path}, compressed byte {position}",
            next_step=f"if what precedes them is complete, keep only that: "
            f"`{self._run(f'head -c {position}')} > complete`",
        )

    def _truncated(self, num_left: int = 0) -> InputError:
        return InputError(
            f"the {self.kind} data is cut off: the file ends inside it",
            where=f"{self.path}, compressed byte {self.compressed_position + num_left}, "
            f"after {plural(self._position, 'byte')} of content",
            next_step=self._repair,
        )

    def _damaged(self, reason: str) -> InputError:
        if self.kind == "xz" and "limit" in reason:
            return self._too_wide(f"more than {format_bytes(self._max_window_bytes)}")
        return InputError(
            f"damaged {self.kind} data: {reason}",
            where=f"{self.path}, between compressed bytes {self._fed_start} and "
            f"{self.compressed_position}, after {plural(self._position, 'byte')} of content",
            next_step=self._repair,
        )

    def _too_wide(self, needs: str) -> InputError:
        commands = {
            "zstd": f"{self._run('zstd -dc --long=31')} | zstd -o narrow.zst",
            "xz": f"{self._run('xz -dc')} | xz > narrow.xz",
        }
        return InputError(
            f"this {self.kind} data needs a window of {needs}",
            where=f"{self.path}, compressed byte {self.compressed_position}",
            next_step=f"compress it again with a smaller one: `{commands[self.kind]}`",
        )
