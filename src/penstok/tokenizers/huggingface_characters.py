"""Reads a `tokenizer.json` that was converted from SentencePiece: a BPE of characters, as ranks.

It accepts only files whose list of merges is proved to give the same ids as ranks; any other is
left to the library, with the reason. `huggingface` calls it, `character_bpe` makes the ranks.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstok.tokenizers.character_bpe import (
    SPACE_MARK,
    NotConvertibleError,
    convert_pieces,
    merge_pairs,
)

if TYPE_CHECKING:
    from penstok.tokenizers.character_bpe import CharacterBpe

__all__ = ["read_merge", "try_characters"]

# What a byte of an unknown character becomes.
_BYTE_NAME = re.compile("<0x[0-9A-F]{2}>")


def read_merge(merge: Any) -> tuple[str, str]:
    """Read a merge: a list, or in older files a string with a space."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return str(left), str(right)


def try_characters(
    settings: dict[str, Any], model: dict[str, Any], added: list[dict[str, Any]], why: str
) -> tuple[CharacterBpe | None, str]:
    """Return a model with a byte fallback as ranks, or why it is left to the library."""
    if model.get("type", "BPE") != "BPE" or not model.get("byte_fallback"):
        return None, why
    try:
        return _read_characters(settings, model, added), "its ids follow from merges of characters"
    except NotConvertibleError as error:
        return None, f"{why}, and {error}"


def _read_characters(
    settings: dict[str, Any], model: dict[str, Any], added: list[dict[str, Any]]
) -> CharacterBpe:
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if model.get(name):
            raise NotConvertibleError(f"its model has `{name}`")
    pre_tokenizer = settings.get("pre_tokenizer")
    if pre_tokenizer and not _never_divides(pre_tokenizer):
        raise NotConvertibleError(f"its pre-tokenizer is {pre_tokenizer['type']}")
    for token in added:
        if not token["special"]:
            raise NotConvertibleError(f"it finds {token['content']!r} in text")
    vocab, merges = dict(model["vocab"]), [read_merge(merge) for merge in model["merges"]]
    if any(map(_BYTE_NAME.fullmatch, set(chain.from_iterable(merges)))):
        raise NotConvertibleError("it merges bytes of unknown characters")
    # As in the library, the last of equal merges counts.
    positions = {pair: number for number, pair in enumerate(merges)}
    if len(positions) < len(merges):
        merges = sorted(positions, key=positions.__getitem__)
    longer = list(dict.fromkeys(left + right for left, right in merges))
    if not vocab.keys() >= set(longer):
        raise NotConvertibleError("the result of one of its merges is not a token")
    bpe = convert_pieces(
        {text: one for text, one in vocab.items() if len(text) == 1},
        [(text, vocab[text]) for text in longer],
        vocab,
        adds_space=_adds_space(settings.get("normalizer")),
    )
    _prove_positions(bpe, positions)
    return bpe


def _never_divides(pre_tokenizer: dict[str, Any]) -> bool:
    """Tell whether a pre-tokenizer divides only at spaces, of which normalized text has none."""
    pattern = pre_tokenizer.get("pattern")
    is_plain = pre_tokenizer["type"] == "Split" and not pre_tokenizer.get("invert")
    return is_plain and pattern == {"String": " "}


def _adds_space(normalizer: dict[str, Any] | None) -> bool:
    """Tell whether a normalizer that marks spaces also puts one before the text."""
    steps = [normalizer or {}]
    if steps[0].get("type") == "Sequence":
        steps = list(steps[0]["normalizers"])
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}
    if steps == [replace]:
        return False
    if steps != [{"type": "Prepend", "prepend": SPACE_MARK}, replace]:
        raise NotConvertibleError("its normalizer does more than mark spaces")
    return True


def _prove_positions(bpe: CharacterBpe, positions: dict[tuple[str, str], int]) -> None:
    """Prove that merging by rank gives the same ids as merging by the list.

    Two neighbours that together are a token are always the one pair that produces it. If all these
    pairs are listed, in the order of their ranks, the list has the same next merge as the ranks at
    any time, and the other pairs that it lists never apply.
    """
    pairs = merge_pairs(bpe)
    missing = next((pair for pair in pairs if pair not in positions), None)
    if missing is not None:
        raise NotConvertibleError(f"its merges do not produce {missing[0] + missing[1]!r}")
    order = [positions[pair] for pair in pairs]
    if order != sorted(order):
        raise NotConvertibleError("its merges are not in the order of their results")
