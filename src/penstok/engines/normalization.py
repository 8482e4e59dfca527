"""An engine that normalizes text to NFC before another engine encodes it.

Nearly all text is in NFC already and is passed on unchanged. Other text is normalized by the
library `tokenizers`, as the reference does it; `registry` adds this engine where it is needed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.kernel import find_kernel_function
from penstok.tokenizers.libraries import import_library
from penstok.types import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from penstok.engines.base import Engine
    from penstok.types import Block

__all__ = ["NormalizingEngine"]

_PART_BYTES = 1 << 16
_ASCII = re.compile(rb"[\x00-\x7f]")


class NormalizingEngine:
    """Passes text to an engine in NFC, as `tokenizers` normalizes it."""

    def __init__(self, engine: Engine) -> None:
        self.name: str = engine.name
        self._engine = engine
        self._normalize: Callable[[str], str] = (
            import_library("tokenizers").normalizers.NFC().normalize_str
        )
        self._surely_nfc = find_kernel_function("surely_nfc")

    def encode(
        self, block: Block, out: NDArray[np.unsignedinteger[Any]] | None = None
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids of all documents, with those at boundaries in place."""
        changed = self._find_changed(block)
        if not changed:
            return self._engine.encode(block, out)
        # Normalized text may be longer than the text that `out` was made for.
        return self._engine.encode(_replace_texts(block, changed))

    def _find_changed(self, block: Block) -> dict[int, bytes]:
        """Normalize texts that may not be in NFC; return those that changed, by their index."""
        doubtful = np.flatnonzero(~self._is_surely_normal(block))
        changed: dict[int, bytes] = {}
        for idx in doubtful.tolist():
            text = bytes(block.text[int(block.starts[idx]) : int(block.ends[idx])])
            normal = b"".join(map(self._normalize_part, _iter_parts(text)))
            if normal != text:
                changed[idx] = normal
        return changed

    def _normalize_part(self, text: bytes) -> bytes:
        return self._normalize(text.decode()).encode()

    def _is_surely_normal(self, block: Block) -> NDArray[np.bool_]:
        if self._surely_nfc is not None:
            sure = np.zeros(len(block.starts), np.uint8)
            text = np.frombuffer(block.text, np.uint8)
            self._surely_nfc(text, block.starts, block.ends, sure)
            return sure.astype(np.bool_)
        bounds = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
        return np.array([bytes(block.text[a:b]).isascii() for a, b in bounds], np.bool_)


def _iter_parts(text: bytes) -> Iterator[bytes]:
    """Divide text before ASCII characters, which compose with nothing before them.

    The library takes a hundred bytes of memory for each byte that it normalizes.
    """
    start = 0
    while len(text) - start > _PART_BYTES:
        found = _ASCII.search(text, start + _PART_BYTES)
        if found is None:
            break
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def _replace_texts(block: Block, changed: dict[int, bytes]) -> Block:
    """Return the block with some of its texts replaced."""
    bounds = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
    texts = [
        changed.get(idx) or bytes(block.text[start:end]) for idx, (start, end) in enumerate(bounds)
    ]
    ends = np.cumsum([len(text) for text in texts])
    starts = np.concatenate(([0], ends[:-1]))
    joined = memoryview(b"".join(texts))
    return replace(block, text=joined, starts=starts, ends=ends, heads=ends)
