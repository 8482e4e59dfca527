"""Writes the `tokenizer.json` content that fastokens and `tokenizers` read.

It writes strings, not files, and reads no user file. What a user's `tokenizer.json` means is
decided in `tokenizers.huggingface`.
"""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING

from penstok.tokenizers.vocabulary import BYTE_SPELLING, GPT2_PATTERN, last_merges

if TYPE_CHECKING:
    from penstok.tokenizers import ByteLevel

__all__ = ["drop_special_tokens", "format_tokenizer_json"]


def format_tokenizer_json(model: ByteLevel) -> str:
    """Return a byte-level model as the content of a `tokenizer.json`."""
    ranks = model.ranks
    spelled = {token: token.decode("latin-1").translate(BYTE_SPELLING) for token in ranks}
    vocab = {spelled[token]: rank for token, rank in sorted(ranks.items(), key=itemgetter(1))}
    # fastokens requires a token for every id: special ones get a token that no bytes can spell.
    gaps = set(range(model.num_ids)) - set(ranks.values()) - set(model.added.values())
    merges = last_merges(ranks).values()
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
                # Whole pieces are looked up if there are tokens that no merges produce.
                "ignore_merges": None in merges,
                # Added tokens keep their ids by being listed here too.
                "vocab": vocab
                | {f"\N{REPLACEMENT CHARACTER}{gap}": gap for gap in gaps}
                | model.added,
                # As strings: `tokenizers` needs twice as much memory to read them as lists. No
                # spelling has a space.
                "merges": [f"{spelled[pair[0]]} {spelled[pair[1]]}" for pair in merges if pair],
            },
        }
    )


def drop_special_tokens(content: bytes) -> str:
    """Return a `tokenizer.json` of a BPE with its special tokens as tokens that no merges produce.

    Then they are never found in text. The other added tokens keep their ids by being listed in the
    vocabulary too.
    """
    settings = json.loads(content)
    added = settings["added_tokens"] or []
    for token in added:
        settings["model"]["vocab"].setdefault(token["content"], token["id"])
    settings["added_tokens"] = [token for token in added if not token["special"]]
    return json.dumps(settings)


def _divide_by(pattern: str) -> dict[str, object]:
    """Return a pattern as a pre-tokenizer; GPT-2's pattern is built into `ByteLevel`."""
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
