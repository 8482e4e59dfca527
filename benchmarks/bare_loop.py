"""A bare loop of read, encode and write with Penstok's kernel: what a job cannot be faster than.

Run as `bare_loop.py TEXT TOKENS [K/N]`; with K/N, only the Kth of N parts of the text. It reads a
block at a time, finds the documents, encodes them into the same buffer each time and writes it. No
splits, no checksums, no document index, nothing that survives a crash. The usage that it prints is
that of the loop, without startup.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from usage import Clock, Usage

from penstok.engines.kernel import KernelEngine
from penstok.tokenizers import load_tokenizer
from penstok.types import Block

EOT = b"<|endoftext|>"
# The size at which the fast engines are fastest: what they write stays in the cache.
BLOCK_BYTES = 2 << 20
# A part begins after the first end-of-text that begins here or later.
_SEARCHED_BYTES = 64 << 20


def make_block(text: memoryview, ends: list[int]) -> Block:
    """Name the documents of a text by their ends, each followed by end-of-text."""
    stops = np.array(ends, np.int64)
    starts = np.empty_like(stops)
    starts[0], starts[1:] = 0, stops[:-1] + len(EOT)
    every = np.ones(len(stops), np.bool_)
    return Block(text, starts, stops, every, every, stops)


def find_ends(text: bytes | bytearray, stop: int) -> list[int]:
    """Return where end-of-text begins, each time."""
    ends: list[int] = []
    place = text.find(EOT, 0, stop)
    while place >= 0:
        ends.append(place)
        place = text.find(EOT, place + len(EOT), stop)
    return ends


def find_part(source: Path, part: int, num_parts: int) -> int:
    """Return where one of several parts of about the same size begins."""
    size = source.stat().st_size
    place = size * part // num_parts
    if part in (0, num_parts):
        return place
    with source.open("rb") as file:
        file.seek(place)
        return place + file.read(_SEARCHED_BYTES).index(EOT) + len(EOT)


def encode_part(engine: KernelEngine, source: Path, target: Path, begin: int, end: int) -> Usage:
    """Encode what is between two document borders."""
    clock, num_tokens, left = Clock(), 0, end - begin
    buffer, held = bytearray(2 * BLOCK_BYTES), 0
    with source.open("rb", buffering=0) as file, target.open("wb", buffering=0) as output:
        file.seek(begin)
        while left or held:
            if len(buffer) - held < BLOCK_BYTES:
                buffer = buffer + bytearray(len(buffer))
            with memoryview(buffer) as view:
                count = file.readinto(view[held : held + min(BLOCK_BYTES, left)])
                left, held = left - count, held + count
                ends = find_ends(buffer, held)
                if not ends:
                    continue
                ids = engine.encode(make_block(view, ends))
                output.write(ids.data)
                num_tokens += len(ids)
                done = ends[-1] + len(EOT)
                view[: held - done], held = view[done:held], held - done
    return clock.stop(end - begin, num_tokens)


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    part, num_parts = map(int, (sys.argv[3] if len(sys.argv) > 3 else "1/1").split("/"))
    begin, end = (find_part(source, each, num_parts) for each in (part - 1, part))
    engine = KernelEngine(load_tokenizer("gpt2"), "append")
    usage = encode_part(engine, source, target, begin, end)
    print(json.dumps({"tokens": usage.num_tokens, "usage": usage.row()}))


if __name__ == "__main__":
    main()
