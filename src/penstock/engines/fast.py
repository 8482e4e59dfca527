"""The fastokens engine: a Rust BPE, exact wherever it was compared with the reference.

It keeps a word cache that is bounded but not given back when the object goes, so a worker that
reaches its memory share is replaced as a whole; see `executors.local`.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.engines.eot import decode_pieces, place_eot

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
            self._fast = fastokens.Tokenizer.from_json_str(huggingface_json(tokenizer.ranks))
            self._fast.encode_batch_flat(["the first call", "makes the thread pool"])

    def encode(self, block: Block) -> NDArray[np.uint32]:
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


def huggingface_json(ranks: dict[bytes, int]) -> str:
    """Write a vocabulary as the `tokenizer.json` that fastokens reads fastest.

    From the ranks themselves: a token's rank is its id, and its merge is the last one that BPE
    makes when it builds the token.
    """
    spell = _byte_alphabet()
    spelled = {token: token.decode("latin-1").translate(spell) for token in ranks}
    ordered = sorted(ranks, key=ranks.__getitem__)
    merges = [_last_merge(token, ranks) for token in ordered if len(token) > 1]
    model = {
        "type": "BPE",
        "vocab": {spelled[token]: ranks[token] for token in ordered},
        "merges": [[spelled[left], spelled[right]] for left, right in merges],
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    return json.dumps({"added_tokens": [], "pre_tokenizer": byte_level, "model": model})


def _byte_alphabet() -> dict[int, str]:
    """Map each byte to the printable character that stands for it in such files."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + place) for place, byte in enumerate(others)
    }


def _last_merge(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """Divide a token into the two that BPE joins last to make it."""
    limit = ranks[token]
    splits = [
        (token[:at], token[at:])
        for at in range(1, len(token))
        if ranks.get(token[:at], limit) < limit and ranks.get(token[at:], limit) < limit
    ]
    return splits[0] if len(splits) == 1 else _merge_to_two(token, ranks)


def _merge_to_two(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    parts = [token[at : at + 1] for at in range(len(token))]
    never = len(ranks)
    pair_ranks = [ranks.get(a + b, never) for a, b in pairwise(parts)]
    while len(parts) > 2:
        at = pair_ranks.index(min(pair_ranks))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del pair_ranks[at]
        if at > 0:
            pair_ranks[at - 1] = ranks.get(parts[at - 1] + parts[at], never)
        if at < len(pair_ranks):
            pair_ranks[at] = ranks.get(parts[at] + parts[at + 1], never)
    return parts[0], parts[1]
