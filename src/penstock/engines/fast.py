"""The fastokens engine: a Rust BPE, exact wherever it was compared with the reference.

It keeps a word cache that is bounded but not given back when the object goes, so a worker that
reaches its memory share is replaced as a whole; see `executors.local`.
"""

from __future__ import annotations

import json
import os
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.engines.eot import decode_pieces, place_eot
from penstock.vocabulary import BYTE_SPELLING, GPT2_PATTERN, derive_merges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.tokenizer import Tokenizer
    from penstock.types import Block, EotPlace

__all__ = ["FastEngine", "huggingface_json"]


class FastEngine:
    """Encodes with fastokens on one core."""

    name: ClassVar[str] = "fastokens"

    def __init__(self, tokenizer: Tokenizer, eot: EotPlace) -> None:
        import fastokens

        self._eot, self._eot_id = eot, tokenizer.eot_id
        with _OneCore():
            self._fast = fastokens.Tokenizer.from_json_str(
                huggingface_json(tokenizer.ranks, _respell(tokenizer.pattern))
            )
            self._fast.encode_batch_flat(["the first call", "makes the thread pool"])

    def encode(self, block: Block, room: object = None) -> NDArray[np.uint32]:
        """Return the ids of all pieces, with the end-of-text ids in place."""
        ids, offsets = self._fast.encode_batch_flat(decode_pieces(block))
        bounds = np.frombuffer(offsets, np.uint64).astype(np.int64)
        return place_eot(np.frombuffer(ids, np.uint32), bounds[1:], block, self._eot, self._eot_id)


class _OneCore:
    """Stay on one core while the thread pool of fastokens is made.

    It makes one thread for each core it may run on and cannot be told otherwise. Afterwards the
    system may move the worker where it likes.
    """

    def __enter__(self) -> None:
        self._cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        if self._cores:
            os.sched_setaffinity(0, {min(self._cores)})

    def __exit__(self, *error: object) -> None:
        if self._cores:
            os.sched_setaffinity(0, self._cores)


def huggingface_json(ranks: dict[bytes, int], pattern: str = GPT2_PATTERN) -> str:
    """Write a vocabulary as the `tokenizer.json` that fastokens reads fastest."""
    spelled = {token: token.decode("latin-1").translate(BYTE_SPELLING) for token in ranks}
    vocab = {spelled[token]: rank for token, rank in sorted(ranks.items(), key=itemgetter(1))}
    # It wants every id to have a token: those of special ones get one that no byte spells.
    gaps = set(range(max(ranks.values()))) - set(ranks.values())
    merges = derive_merges(ranks).values()
    model = {
        "type": "BPE",
        "vocab": vocab | {f"\N{REPLACEMENT CHARACTER}{gap}": gap for gap in gaps},
        "merges": [[spelled[left], spelled[right]] for left, right in merges],
    }
    return json.dumps({"added_tokens": [], "pre_tokenizer": _divide_by(pattern), "model": model})


def _respell(pattern: str) -> str:
    """Keep fastokens from its shortcut for the cl100k family.

    It misses that a long s (U+017F) is an s after an apostrophe too. The general way is exact, at a
    third of the speed (0.3.5).
    """
    return pattern.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'(?i:[sdmt]|ll|ve|re)")


def _divide_by(pattern: str) -> dict[str, object]:
    """Write a pattern as a pre-tokenizer; GPT-2's is the one that `ByteLevel` has itself."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": True,
    }
    if pattern == GPT2_PATTERN:
        return byte_level
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]}
