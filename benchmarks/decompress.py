"""Decompression alone, with the library that Penstok uses: what a compressed input adds at least.

Run as `decompress.py FILE.zst` or `FILE.gz`. The content goes to one small buffer, again and again.
The usage that it prints is that of the loop, without startup.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from usage import Clock

from penstok.inputs.compression import DecompressedStream
from penstok.inputs.compression.detection import detect_compression

_BUFFER_BYTES = 1 << 20


def main() -> None:
    path = Path(sys.argv[1])
    with path.open("rb", buffering=0) as file:
        kind = detect_compression(file.read(64))
        if kind is None:
            raise SystemExit(f"error: not compressed\n  where: {path}")
        file.seek(0)
        stream = DecompressedStream(file.read, kind, str(path))
        buffer, num_bytes, clock = memoryview(bytearray(_BUFFER_BYTES)), 0, Clock()
        while count := stream.readinto(buffer):
            num_bytes += count
    print(json.dumps({"usage": clock.stop(num_bytes, 0).row()}))


if __name__ == "__main__":
    main()
