"""A script that does with gigatoken what `penstok tokenize` does: text to a file of uint16 ids.

Run as `gigatoken_script.py RANKS TEXT [TOKENS]`; without TOKENS the ids are only counted. It knows
nothing of Penstok. It uses all cores: 32 MiB of text at a time, in blocks of 256 KiB, with which
gigatoken was fastest. What Penstok does besides it leaves out: splits, checksums, an index, fsync.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import gigatoken
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

EOT = b"<|endoftext|>"
READ_BYTES = 32 << 20
BLOCK_BYTES = 256 << 10


def iter_blocks(source: Path) -> Iterator[list[bytes]]:
    """Yield lists of blocks of whole documents, each document with its end-of-text."""
    rest = b""
    with source.open("rb") as file:
        while data := file.read(READ_BYTES):
            part, blocks, start = rest + data, [], 0
            while (end := part.find(EOT, start + BLOCK_BYTES)) >= 0:
                blocks.append(part[start : end + len(EOT)])
                start = end + len(EOT)
            rest = part[start:]
            yield blocks
    yield [rest]


def main() -> None:
    ranks, source, *targets = map(Path, sys.argv[1:])
    special = {EOT.decode(): ranks.read_bytes().count(b"\n")}
    tokenizer = gigatoken.Tokenizer.from_tiktoken(ranks, "gpt2", special)
    num_tokens = 0
    with (targets or [Path("/dev/null")])[0].open("wb") as file:
        for blocks in iter_blocks(source):
            ids = tokenizer.encode_batch(blocks).layout.content.data
            num_tokens += len(ids)
            if targets:
                np.asarray(ids).astype(np.uint16).tofile(file)
    print(json.dumps({"tokens": num_tokens}))


if __name__ == "__main__":
    main()
