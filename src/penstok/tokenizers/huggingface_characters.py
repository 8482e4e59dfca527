"""Reads a `tokenizer.json` that was converted from SentencePiece: a BPE of characters, as ranks.

It accepts only files whose list of merges is proved to give the same ids as ranks; any other is
left to the library, with the reason. `huggingface` calls it, `character_bpe` makes the ranks.
"""

from __future__ import annotations

from itertools import chain, repeat
from operator import add, methodcaller
from typing import TYPE_CHECKING, Any

from penstok.tokenizers.character_bpe import (
    SPACE_MARK,
    NotConvertibleError,
    convert_pieces,
    find_pairs,
    spell_all,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstok.tokenizers.character_bpe import CharacterBpe

__all__ = ["read_merges", "try_characters"]

# What a byte of an unknown character becomes.
_BYTE_NAMES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
_BYTE_NAME_LENGTH = len("<0x00>")
# The length of a token, in characters, has fewer.
_LENGTH_BITS = 32
_COUNT_SPACES = methodcaller("count", " ")


def read_merges(merges: list[Any]) -> tuple[list[str], list[str]]:
    """Return the first and second parts of merges: lists, or in older files strings with a space.

    Raises:
        ValueError: If one has not two parts.
    """
    if {str}.issuperset(map(type, merges)):
        # All at once: a list for each would take half a second in Gemma's file.
        is_pair = {1}.issuperset(map(_COUNT_SPACES, merges))
        flat = " ".join(merges).split(" ") if merges else []
    else:
        parts = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
        is_pair = {2}.issuperset(map(len, parts))
        flat = list(map(str, chain.from_iterable(parts)))
    if not is_pair:
        raise ValueError("one of its merges has not two parts")
    return flat[::2], flat[1::2]


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
    vocab, merges = dict(model["vocab"]), _Merges(*read_merges(model["merges"]))
    longer = merges.find_results()
    ids: list[Any] = list(map(vocab.get, longer))
    if None in ids:
        raise NotConvertibleError("the result of one of its merges is not a token")
    bpe = convert_pieces(
        {text: one for text, one in vocab.items() if len(text) == 1},
        list(zip(longer, ids, strict=True)),
        vocab,
        adds_space=_adds_space(settings.get("normalizer")),
    )
    merges.prove(bpe)
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


class _Merges:
    """A list of merges, as arrays: Gemma has 580,604.

    A merge is known by its result and the length of its first part. As in the library, the last of
    equal merges counts.
    """

    def __init__(self, lefts: list[str], rights: list[str]) -> None:
        import numpy as np

        lengths = [_check_parts(parts) for parts in (lefts, rights)]
        results = list(map(add, lefts, rights))
        self._texts = list(dict.fromkeys(results))
        number_of = dict(zip(self._texts, range(len(self._texts)), strict=True))
        count = len(results)
        self._results = np.fromiter(map(number_of.__getitem__, results), np.int64, count)
        # Keys in order, and where each is the last time.
        self._keys, from_end = np.unique(
            (self._results << _LENGTH_BITS | lengths[0])[::-1], return_index=True
        )
        self._positions = count - 1 - from_end

    def find_results(self) -> list[str]:
        """Return the results of the merges that count, in their order."""
        import numpy as np

        if len(self._keys) == len(self._results):
            return self._texts
        numbers = self._results[np.sort(self._positions)].tolist()
        return [self._texts[number] for number in dict.fromkeys(numbers)]

    def prove(self, bpe: CharacterBpe) -> None:
        """Prove that merging by rank gives the same ids as merging by the list.

        Two neighbours that together are a token are always the one pair that produces it. If all
        these pairs are listed, in the order of their ranks, the list has the same next merge as the
        ranks at any time, and the other pairs that it lists never apply.
        """
        import numpy as np

        made, left_lengths = find_pairs(bpe)
        keys = self._number_ranks(bpe)[made] << _LENGTH_BITS | left_lengths
        found = np.searchsorted(self._keys, keys)
        is_listed = self._keys.take(found, mode="clip") == keys if len(self._keys) else keys < 0
        for key in keys[~is_listed][:1].tolist():
            text = self._texts[key >> _LENGTH_BITS]
            raise NotConvertibleError(f"its merges do not produce {text!r}")
        if (np.diff(self._positions[found]) < 0).any():
            raise NotConvertibleError("its merges are not in the order of their results")

    def _number_ranks(self, bpe: CharacterBpe) -> NDArray[np.int64]:
        """Return the number that the text of each rank has here; any for other ranks."""
        import numpy as np

        tokens = spell_all(self._texts)
        # Rank 0 is a byte: tokens that have no rank leave it wrong, and nothing asks for it.
        ranks = np.fromiter(map(bpe.ranks.get, tokens, repeat(0)), np.int64, len(tokens))
        numbers = np.zeros(len(bpe.ranks), np.int64)
        numbers[ranks] = np.arange(len(tokens))
        return numbers


def _check_parts(parts: list[str]) -> NDArray[np.int64]:
    """Return the lengths of parts of merges; refuse those that are empty or bytes."""
    import numpy as np

    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    if not lengths.all():
        raise NotConvertibleError("one of its merges has an empty part")
    # Few parts are as long as the name of a byte.
    candidates = np.flatnonzero(lengths == _BYTE_NAME_LENGTH).tolist()
    if not _BYTE_NAMES.isdisjoint(parts[at] for at in candidates):
        raise NotConvertibleError("it merges bytes of unknown characters")
    return lengths
