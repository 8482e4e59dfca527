"""Fuzz the kernel against tiktoken for some minutes, then compare whole files if given.

    python tests/soak/fuzz_kernel.py --minutes 60 corpus/*.txt

Every instruction set, a large and a tiny table, and random blocks: hostile documents, flags and
gaps. Files are divided at `<|endoftext|>`. Exits with 1 at the first difference and prints its
seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from parity.kernel_cases import (
    ISAS,
    LARGE_TABLE,
    TINY_TABLE,
    block_of,
    engine,
    expected_ids,
    hostile_document,
)

SEPARATOR = "<|endoftext|>"
FILE_BLOCK = 200


def agree(documents: list[str], gap: bytes, what: str) -> bool:
    """Encode with every engine; print which one differs from tiktoken."""
    expected = expected_ids(documents)
    block = block_of([document.encode() for document in documents], gap)
    for isa in ISAS:
        for table_bytes in (TINY_TABLE, LARGE_TABLE):
            if not np.array_equal(engine(isa, table_bytes).encode(block), expected):
                sys.stdout.write(f"DIFFERS: {what}, {isa}, table of {table_bytes} bytes\n")
                return False
    return True


def fuzz(minutes: float, seed: int) -> bool:
    """Encode random blocks until the time is over."""
    end = time.monotonic() + 60 * minutes
    first, num_documents = seed, 0
    while time.monotonic() < end:
        rng = random.Random(seed)
        documents = [hostile_document(rng) for _ in range(rng.randrange(60))]
        gap = rng.choice((b"", b"\xff", SEPARATOR.encode()))
        if not agree(documents, gap, f"seed {seed}"):
            return False
        num_documents += len(documents)
        seed += 1
    sys.stdout.write(f"{num_documents} documents, seeds {first} to {seed - 1}: all agree\n")
    return True


def compare(path: Path) -> bool:
    """Compare the documents of a file."""
    documents = path.read_bytes().decode().split(SEPARATOR)
    for at in range(0, len(documents), FILE_BLOCK):
        if not agree(documents[at : at + FILE_BLOCK], b"", f"{path}, document {at} on"):
            return False
    sys.stdout.write(f"{path}: {len(documents)} documents agree\n")
    return True


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    agreed = all(compare(path) for path in options.files)
    return 0 if agreed and fuzz(options.minutes, options.seed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
