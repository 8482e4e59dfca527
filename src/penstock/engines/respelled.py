"""Ranks written as the `tokenizer.json` that other engines read."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING

from penstock.vocabulary import (
    BYTE_SPELLING,
    GPT2_PATTERN,
    UnsupportedError,
    derive_merges,
    list_all_merges,
)

if TYPE_CHECKING:
    from penstock.tokenizer import ByteLevel

__all__ = ["huggingface_json"]


def huggingface_json(model: ByteLevel) -> str:
    """Write a byte-level model as a `tokenizer.json`."""
    ranks = model.ranks
    spelled = {token: token.decode("latin-1").translate(BYTE_SPELLING) for token in ranks}
    vocab = {spelled[token]: rank for token, rank in sorted(ranks.items(), key=itemgetter(1))}
    # fastokens wants every id to have a token: those of special ones get one that no byte spells.
    gaps = set(range(max(ranks.values()))) - set(ranks.values()) - set(model.added.values())
    try:
        merges, takes_whole_pieces = list(derive_merges(ranks).values()), False
    except UnsupportedError:
        # Some token is reached by no merges of lower rank, only as a whole piece.
        merges, takes_whole_pieces = list_all_merges(ranks), True
    added = [
        {
            "id": token_id,
            "content": text,
            "special": False,
            "normalized": False,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
        }
        for text, token_id in model.added.items()
    ]
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": added,
            "normalizer": {"type": model.normalizer} if model.normalizer else None,
            "pre_tokenizer": _divide_by(model.pattern),
            "model": {
                "type": "BPE",
                "ignore_merges": takes_whole_pieces,
                "vocab": vocab | {f"\N{REPLACEMENT CHARACTER}{gap}": gap for gap in gaps},
                "merges": [[spelled[left], spelled[right]] for left, right in merges],
            },
        }
    )


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
