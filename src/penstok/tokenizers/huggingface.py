"""A Hugging Face `tokenizer.json`, read as data.

A byte-level BPE is turned into ranks where that is proved to give the library's ids; any other is
left to the library, with the reason. Which ids part documents is told apart, by the file and the
`tokenizer_config.json` beside it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from penstok.tokenizers.described import Described
from penstok.tokenizers.libraries import try_library
from penstok.tokenizers.models import ByteLevel, LibraryModel
from penstok.tokenizers.templates import find_ends
from penstok.tokenizers.vocabulary import (
    BYTE_OF,
    GPT2_PATTERN,
    MAX_ID,
    PATTERNS,
    UnsupportedError,
    check_ids,
    last_merges,
    read_spelling,
)

__all__ = ["read_huggingface"]


class _LibraryOnlyError(Exception):
    """What in a file only its own library does."""


def read_huggingface(content: bytes, config: bytes | None) -> Described:
    """Read a `tokenizer.json`, and the `tokenizer_config.json` beside it if there is one.

    Raises:
        UnsupportedError: If it is none, or gives other ids each time.
    """
    try:
        settings = json.loads(content)
        model = settings["model"]
        added = list(settings.get("added_tokens") or [])
        special = {str(token["content"]): int(token["id"]) for token in added if token["special"]}
        if model.get("dropout"):
            raise UnsupportedError("its model has a `dropout`: it gives other ids each time")
        ids = _check_ids(_vocab_of(model), added, content)
        begin, end = find_ends(settings.get("post_processor"), config)
        try:
            found: ByteLevel | LibraryModel = _read_ranks(settings, model, added)
        except _LibraryOnlyError as error:
            found = _leave_to_library(settings, added, ids, str(error))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnsupportedError(f"this is no `tokenizer.json` ({error!r})") from error
    return Described(found, special, end_text=end, begin_text=begin)


def _vocab_of(model: dict[str, Any]) -> dict[str, int]:
    """Return the ids of a model's tokens; some list them in order, with a number for each."""
    vocab = model["vocab"]
    if isinstance(vocab, list):
        return {str(piece[0]): place for place, piece in enumerate(vocab)}
    return dict(vocab)


def _check_ids(vocab: dict[str, int], added: list[dict[str, Any]], content: bytes) -> set[int]:
    """Return all ids; refuse added tokens that the library gives other ids than the file.

    It takes the id of the vocabulary for a token that is there, and the next free one for others;
    where that is not what the file says, it is asked.
    """
    ids = set(vocab.values())
    following = len(vocab)
    for token in added:
        text, token_id = str(token["content"]), int(token["id"])
        if token_id != vocab.get(text, following):
            given = _ask_library(content, text)
            if token_id != given:
                raise UnsupportedError(
                    f"the added token {text!r} has the id {token_id}; its library gives {given}"
                )
        following += text not in vocab
        ids.add(token_id)
    if not all(type(one) is int and 0 <= one <= MAX_ID for one in ids):
        raise UnsupportedError(f"it has ids that are not from 0 to {MAX_ID}")
    return ids


def _ask_library(content: bytes, text: str) -> int | None:
    library = try_library("tokenizers", content)
    found: int | None = library.token_to_id(text)
    return found


# ---- ranks, where they are proved to say all ----


def _read_ranks(
    settings: dict[str, Any], model: dict[str, Any], added: list[dict[str, Any]]
) -> ByteLevel:
    """Turn a byte-level BPE into ranks."""
    if model.get("type", "BPE") != "BPE":
        raise _LibraryOnlyError(f"its model is `{model['type']}`")
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(name):
            raise _LibraryOnlyError(f"its model has `{name}`")
    pattern = _find_pattern(settings.get("pre_tokenizer"))
    normalizer = _find_normalizer(settings.get("normalizer"))
    found_in_text = _find_added(added)
    vocab, merges = dict(model["vocab"]), [_pair(merge) for merge in model["merges"]]
    # Special tokens stand in `vocab` too, where no merge makes them.
    unmerged = set(vocab) - {left + right for left, right in merges} - set(BYTE_OF)
    special_only = unmerged & {token["content"] for token in added}
    if special_only and model.get("ignore_merges"):
        raise _LibraryOnlyError("it looks up whole pieces, special tokens among them")
    spelled = {_bytes_of(text): text for text in vocab.keys() - special_only}
    ranks = {token: vocab[text] for token, text in spelled.items()}
    _check_order(vocab, merges)
    _prove_merges(ranks, spelled, set(merges), takes_whole=bool(model.get("ignore_merges")))
    return ByteLevel(ranks, pattern, normalizer, found_in_text)


def _check_order(vocab: dict[str, int], merges: list[tuple[str, str]]) -> None:
    order = [vocab.get(left + right, -1) for left, right in merges]
    if -1 in order:
        raise _LibraryOnlyError("it merges to what is no token")
    if order != sorted(order):
        raise _LibraryOnlyError("its merges are not in order of id")


def _prove_merges(
    ranks: dict[bytes, int],
    spelled: dict[bytes, str],
    listed: set[tuple[str, str]],
    *,
    takes_whole: bool,
) -> None:
    """Prove that merging by rank is merging by a list that is in order of id.

    It must have the one merge that can make each token; others that it has never apply (Llama 3
    lists all there are). Tokens that no merges make need the library to look up whole pieces first,
    as ranks do.
    """
    try:
        check_ids(ranks)
    except UnsupportedError as error:
        raise _LibraryOnlyError(str(error)) from error
    for token, merge in last_merges(ranks).items():
        if merge is None and not takes_whole:
            raise _LibraryOnlyError(f"its token {token!r} is made by no merges")
        if merge is not None and (spelled[merge[0]], spelled[merge[1]]) not in listed:
            raise _LibraryOnlyError(f"its merges do not make {token!r} as its ids do")


def _find_pattern(pre_tokenizer: dict[str, Any] | None) -> str:
    """Return the pattern of a byte-level pre-tokenizer, its own or that of a split before it."""
    steps = [pre_tokenizer or {"type": None}]
    if steps[0]["type"] == "Sequence":
        steps = steps[0]["pretokenizers"]
    kinds = [step["type"] for step in steps]
    if kinds not in (["ByteLevel"], ["Split", "ByteLevel"]):
        raise _LibraryOnlyError(f"its pre-tokenizer is {' and '.join(map(str, kinds))}")
    byte_level = steps[-1]
    if byte_level.get("add_prefix_space", True):
        raise _LibraryOnlyError("its pre-tokenizer adds a blank to the text")
    has_split, uses_own = len(steps) > 1, byte_level.get("use_regex", True)
    if has_split == uses_own:
        raise _LibraryOnlyError("its pre-tokenizer divides text by no pattern, or by two")
    return _split_pattern(steps[0]) if has_split else GPT2_PATTERN


def _split_pattern(split: dict[str, Any]) -> str:
    pattern = str(split["pattern"].get("Regex"))
    if split["behavior"] != "Isolated" or split["invert"] or pattern not in PATTERNS.values():
        raise _LibraryOnlyError("it divides text by a pattern of its own")
    return pattern


def _find_normalizer(normalizer: dict[str, Any] | None) -> Literal["NFC"] | None:
    steps = [normalizer] if normalizer else []
    if normalizer and normalizer["type"] == "Sequence":
        steps = normalizer["normalizers"]
    if not steps:
        return None
    if [step["type"] for step in steps] != ["NFC"]:
        raise _LibraryOnlyError("it changes text by a normalizer of its own")
    return "NFC"


def _find_added(added: list[dict[str, Any]]) -> dict[str, int]:
    """Return the tokens that are found in text before it is divided.

    Only such as no cut can divide and no normalizer can make.
    """
    found = {}
    for token in added:
        text = str(token["content"])
        if token["special"]:
            continue
        if _is_hidden(text, added):
            raise _LibraryOnlyError(f"{text!r} in text can be a part of a special token")
        is_simple = text.isascii() and text.isprintable() and " " not in text
        if not is_simple or any(token.get(n) for n in ("lstrip", "rstrip", "single_word")):
            raise _LibraryOnlyError(f"it finds {text!r} in text before anything else")
        if token.get("normalized"):
            raise _LibraryOnlyError(f"it finds {text!r} in normalized text")
        found[text] = int(token["id"])
    return found


def _pair(merge: Any) -> tuple[str, str]:
    """Take a merge as it is written today, as a list, or as it was before, with a blank."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return str(left), str(right)


def _bytes_of(text: str) -> bytes:
    found = read_spelling(text)
    if found is None:
        raise _LibraryOnlyError(f"token {text!r} is not spelled in bytes")
    return found


# ---- the library ----


def _leave_to_library(
    settings: dict[str, Any], added: list[dict[str, Any]], ids: set[int], why: str
) -> LibraryModel:
    """Keep what decides the ids of text, less what puts others around it or cuts it off."""
    model = {name: value for name, value in settings["model"].items() if value is not None}
    steps = {name: settings.get(name) for name in ("normalizer", "pre_tokenizer")}
    kept = {"version": "1.0", "added_tokens": added, "model": model, **steps}
    content = json.dumps(kept, sort_keys=True)
    found = [token for token in added if not token["special"]]
    shape = {
        "model": {n: v for n, v in model.items() if n not in ("vocab", "merges")},
        "added": sorted({_flags_of(token) for token in found}),
        "hidden": any(_is_hidden(str(token["content"]), added) for token in found),
        "gaps": len(ids) <= max(ids),
        **steps,
    }
    digest = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()
    return LibraryModel("tokenizers", content.encode(), 1 + max(ids), why, digest[:16])


def _is_hidden(text: str, added: list[dict[str, Any]]) -> bool:
    """Tell whether a special token can hold a token, or the beginning of it.

    There the library finds the special one first, which is text then, and goes on behind it.
    """
    names = [str(token["content"]) for token in added if token["special"]]
    return any(
        text in name or any(text.startswith(name[at:]) for at in range(1, len(name)))
        for name in names
    )


def _flags_of(token: dict[str, Any]) -> str:
    names = ("lstrip", "rstrip", "single_word", "normalized")
    return " ".join(name for name in names if token.get(name))
