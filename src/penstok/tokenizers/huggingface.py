"""Reads a Hugging Face `tokenizer.json`, and the `tokenizer_config.json` beside it, as data.

A byte-level BPE is turned into ranks if that is proved to give the library's ids; so is a BPE of
characters, as converted from SentencePiece. Any other model is left to the library, with the
reason. It opens no files: `files` finds them, `load` calls it.
"""

from __future__ import annotations

import hashlib
import json
import re
from operator import add
from typing import TYPE_CHECKING, Any, Literal

from penstok.tokenizers.huggingface_characters import read_merges, try_characters
from penstok.tokenizers.libraries import try_library
from penstok.tokenizers.models import (
    ByteLevel,
    LibraryModel,
    ParsedTokenizer,
    is_white_space_run,
)
from penstok.tokenizers.vocabulary import (
    BYTE_OF,
    GPT2_PATTERN,
    ID_BITS,
    MAX_ID,
    NOT_MADE,
    STARCODER_PATTERN,
    UnsupportedError,
    check_ids,
    find_merges,
    find_pattern,
    find_splits,
    read_spelling,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstok.tokenizers.character_bpe import CharacterBpe

__all__ = ["read_config", "read_huggingface"]


# Two non-ASCII characters, between which text can be cut.
_WIDE_PAIR = re.compile(r"[^\x00-\x7f]{2}")
# Text that NFC neither produces nor changes, whatever surrounds it: ASCII without the characters
# that others are normalized to, and not a letter or one of `<=>` before a mark.
_STABLE_IN_NFC = re.compile(r"(?![^K;`]*[K;`])[\x00-\x7f]*[\x00-;?-@\[-`{-\x7f]")
_SHOWN_KEYS = 6
_SHOWN_CHARACTERS = 40


class _LibraryOnlyError(Exception):
    """Something in a file that only its own library does."""


def read_huggingface(content: bytes, config: bytes | None) -> ParsedTokenizer:
    """Read a `tokenizer.json`, and the `tokenizer_config.json` beside it if there is one.

    Raises:
        UnsupportedError: If it is not one, or its ids are random.
    """
    settings = _read_object(content)
    try:
        model = settings["model"]
        added = list(settings.get("added_tokens") or [])
        special = {str(token["content"]): int(token["id"]) for token in added if token["special"]}
        if model.get("dropout"):
            raise UnsupportedError("its model has a `dropout`: its ids are random")
        _check_prefix(model)
        ids = _check_ids(_vocab_of(model), added, content)
        begins, ends = _find_ends(settings.get("post_processor"), config)
        special |= _unlisted_special(model, added, {*begins, *ends} - special.keys())
        try:
            found: ByteLevel | LibraryModel = _read_ranks(settings, model, added)
        except _LibraryOnlyError as error:
            bpe, why = try_characters(settings, model, added, str(error))
            found = _leave_to_library(settings, added, ids, why, bpe)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnsupportedError(f"it is not a `tokenizer.json` ({error!r})") from error
    return ParsedTokenizer(found, special, ends=ends, begins=begins)


def _read_object(content: bytes) -> dict[str, Any]:
    """Parse a `tokenizer.json`; say what another file is."""
    try:
        settings = json.loads(content)
    except (ValueError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UnsupportedError(f"it is not a `tokenizer.json`: not valid JSON ({what})") from error
    if not isinstance(settings, dict):
        raise UnsupportedError("it is not a `tokenizer.json`: it is not a JSON object")
    if "model" not in settings:
        keys = [f"`{key[:_SHOWN_CHARACTERS]}`" for key in settings][:_SHOWN_KEYS]
        has = f"it has {', '.join(keys)}" if keys else "it is empty"
        raise UnsupportedError(f"it is not a `tokenizer.json`: it has no `model`; {has}")
    return settings


def _check_prefix(model: dict[str, Any]) -> None:
    """Refuse merges that are shorter than the prefix that the library removes from them.

    The library (0.23) would end the process.
    """
    prefix = str(model.get("continuing_subword_prefix") or "")
    for right in read_merges(model.get("merges") or [])[1] if prefix else ():
        if not right.startswith(prefix):
            raise UnsupportedError(
                f"its merge of {right!r} lacks the `continuing_subword_prefix` {prefix!r}"
            )


def _vocab_of(model: dict[str, Any]) -> dict[str, int]:
    """Return the ids of a model's tokens; some models list them in order, each with a score."""
    vocab = model["vocab"]
    if isinstance(vocab, list):
        return {str(piece[0]): token_id for token_id, piece in enumerate(vocab)}
    return dict(vocab)


def _check_ids(vocab: dict[str, int], added: list[dict[str, Any]], content: bytes) -> set[int]:
    """Return all ids; refuse added tokens whose id in the library differs from the file.

    The library uses the id of the vocabulary for a token that is in it, and the next free id for
    others. If that differs from the file, the library itself is asked.
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
    if not {int}.issuperset(map(type, ids)) or (ids and not 0 <= min(ids) <= max(ids) <= MAX_ID):
        raise UnsupportedError(f"it has ids outside 0 to {MAX_ID}")
    return ids


def _ask_library(content: bytes, text: str) -> int | None:
    library = try_library("tokenizers", content)
    found: int | None = library.token_to_id(text)
    return found


# ---- ranks, if they are proved to determine all ids ----


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
    found_in_text = _find_added(added, normalizes=normalizer is not None)
    vocab, merges = dict(model["vocab"]), list(zip(*read_merges(model["merges"]), strict=True))
    # Special tokens are in `vocab` too, but no merge produces them.
    unmerged = set(vocab) - {left + right for left, right in merges} - set(BYTE_OF)
    special_only = unmerged & {token["content"] for token in added}
    if special_only and model.get("ignore_merges"):
        _check_never_pieces(special_only, pattern)
    # Nor does text ever get a token that no merge produces and no bytes spell; Command R has some.
    # (The largest id stays, because it determines the size of the vocabulary.)
    largest = max(vocab.values(), default=0)
    unused = {text for text in unmerged if read_spelling(text) is None and vocab[text] < largest}
    dropped = special_only | unused
    spelled = {_bytes_of(text): text for text in vocab if text not in dropped}
    ranks = {token: vocab[text] for token, text in spelled.items()}
    _check_order(vocab, merges)
    _prove_merges(ranks, spelled, merges, takes_whole=bool(model.get("ignore_merges")))
    # Tokens of white space become ordinary ones: no other piece has two such characters side by
    # side, so that tokens with the same bytes, or merges that they are part of, never apply.
    is_run = is_white_space_run
    runs = {text.encode(): token_id for text, token_id in found_in_text.items() if is_run(text)}
    return ByteLevel(ranks | runs, pattern, normalizer, found_in_text)


def _check_never_pieces(texts: set[str], pattern: str) -> None:
    """Refuse special tokens that a library that looks up whole pieces would find in text.

    A text without white space that is several pieces alone is never one piece inside another text:
    a match that covers it there would cover it alone, because only white space looks ahead.
    """
    import tiktoken

    found = {spelled for text in texts if (spelled := read_spelling(text)) is not None}
    ranks = {bytes([byte]): byte for byte in range(256)}
    ranks |= {token: 256 + number for number, token in enumerate(sorted(found - ranks.keys()))}
    divide = tiktoken.Encoding(
        "pieces", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
    ).encode_ordinary
    for token in found:
        text = token.decode(errors="replace")
        if "\ufffd" in text or any(map(str.isspace, text)) or len(divide(text)) == 1:
            raise _LibraryOnlyError("it looks up whole pieces, including special tokens")


def _check_order(vocab: dict[str, int], merges: list[tuple[str, str]]) -> None:
    order = [vocab.get(left + right, -1) for left, right in merges]
    if -1 in order:
        raise _LibraryOnlyError("the result of one of its merges is not a token")
    if order != sorted(order):
        raise _LibraryOnlyError("its merges are not in order of id")


def _prove_merges(
    ranks: dict[bytes, int],
    spelled: dict[bytes, str],
    merges: list[tuple[str, str]],
    *,
    takes_whole: bool,
) -> None:
    """Prove that merging by rank gives the same ids as merging by a list in order of id.

    The list must contain the one merge that can produce each token; any others never apply (Llama 3
    lists all possible ones). Tokens that no merges produce require that the library looks up whole
    pieces first, as ranks do.
    """
    try:
        check_ids(ranks)
    except UnsupportedError as error:
        raise _LibraryOnlyError(str(error)) from error
    import numpy as np

    find_id = dict(zip(spelled.values(), ranks.values(), strict=True)).get
    # Pairs of ids, as numbers; a part that is not a token of text makes a negative one.
    listed = [find_id(left, -1) << ID_BITS | find_id(right, -1) for left, right in merges]
    ids, lefts, rights = find_merges(ranks)
    is_made = lefts != NOT_MADE
    is_listed = np.isin(lefts.astype(np.int64) << ID_BITS | rights, np.array(listed, np.int64))
    for at in np.flatnonzero(~is_listed & (is_made | (not takes_whole)))[:1]:
        token = next(token for token, rank in ranks.items() if rank == ids[at])
        if not is_made[at]:
            raise _LibraryOnlyError(f"no merges produce its token {token!r}")
        raise _LibraryOnlyError(f"its merges do not produce {token!r} as its ids require")


def _find_pattern(pre_tokenizer: dict[str, Any] | None) -> str:
    """Return the pattern of a byte-level pre-tokenizer, built in or of a split before it."""
    steps = [pre_tokenizer or {"type": None}]
    if steps[0]["type"] == "Sequence":
        steps = steps[0]["pretokenizers"]
    *splits, byte_level = steps
    kinds = [step["type"] for step in splits]
    if byte_level["type"] != "ByteLevel" or kinds not in ([], ["Digits"], ["Split"], ["Split"] * 3):
        shown = " and ".join(str(step["type"]) for step in steps)
        raise _LibraryOnlyError(f"its pre-tokenizer is {shown}")
    if byte_level.get("add_prefix_space", True):
        raise _LibraryOnlyError("its pre-tokenizer adds a space to the text")
    has_split, uses_own = "Split" in kinds, byte_level.get("use_regex", True)
    if has_split == uses_own:
        raise _LibraryOnlyError("its pre-tokenizer has no pattern, or two")
    if kinds == ["Digits"]:
        if not splits[0].get("individual_digits"):
            raise _LibraryOnlyError("its pre-tokenizer divides text at numbers of several digits")
        return STARCODER_PATTERN
    return _split_pattern(splits) if has_split else GPT2_PATTERN


def _split_pattern(splits: list[dict[str, Any]]) -> str:
    """Return the pattern that one split or several in a row have, by its spelling."""
    found = tuple(str(split["pattern"].get("Regex")) for split in splits)
    record, kept = find_splits(found), [("Isolated", False)]
    if record is None and len(found) == 1:
        # Known patterns match all text, so that keeping what matches is the same as isolating it.
        record, kept = find_pattern(found[0]), [*kept, ("Removed", True)]
    if record is None or any((one["behavior"], one["invert"]) not in kept for one in splits):
        raise _LibraryOnlyError("its pre-tokenizer has an unknown pattern")
    return record.text


def _find_normalizer(normalizer: dict[str, Any] | None) -> Literal["NFC"] | None:
    steps = [normalizer] if normalizer else []
    if normalizer and normalizer["type"] == "Sequence":
        steps = normalizer["normalizers"]
    if not steps:
        return None
    if [step["type"] for step in steps] != ["NFC"]:
        raise _LibraryOnlyError("its normalizer is not NFC")
    return "NFC"


def _find_added(added: list[dict[str, Any]], *, normalizes: bool) -> dict[str, int]:
    """Return the tokens that are found in text before it is divided.

    Only tokens that no cut can divide are accepted; and if text is normalized, only those that
    normalizing neither produces nor changes, so that it does not matter which is done first.
    """
    found = {}
    if len({bool(token.get("normalized")) for token in added if not token["special"]}) > 1:
        raise _LibraryOnlyError("it finds some tokens in text before, some after normalizing it")
    for token in added:
        text = str(token["content"])
        if token["special"]:
            continue
        if _is_hidden(text, added):
            raise _LibraryOnlyError(f"{text!r} in text can be a part of a special token")
        is_simple = text.isascii() if normalizes else not _WIDE_PAIR.search(text)
        is_simple = is_simple and text.isprintable() and " " not in text
        is_simple = is_simple or is_white_space_run(text)
        if not is_simple or any(token.get(n) for n in ("lstrip", "rstrip", "single_word")):
            raise _LibraryOnlyError(f"it finds {text!r} in text before it is divided")
        if normalizes and token.get("normalized") and not _STABLE_IN_NFC.fullmatch(text):
            raise _LibraryOnlyError(f"it finds {text!r} in normalized text")
        found[text] = int(token["id"])
    _check_runs(found)
    return found


def _check_runs(added: dict[str, int]) -> None:
    """Refuse tokens of white space between whose lengths there are gaps.

    If every length from 2 on has a token, no two of these characters are side by side in the text
    between such tokens; otherwise merging would be needed to know its ids.
    """
    for character in {text[0] for text in added if is_white_space_run(text)}:
        lengths = [len(text) for text in added if is_white_space_run(text) and text[0] == character]
        if sorted(lengths) != list(range(2, max(lengths) + 1)):
            raise _LibraryOnlyError(f"it finds some runs of {character!r} in text, not all lengths")


def _bytes_of(text: str) -> bytes:
    found = read_spelling(text)
    if found is None:
        raise _LibraryOnlyError(f"token {text!r} is not spelled in bytes")
    return found


# ---- models that are left to the library ----


def _leave_to_library(
    settings: dict[str, Any],
    added: list[dict[str, Any]],
    ids: set[int],
    why: str,
    bpe: CharacterBpe | None,
) -> LibraryModel:
    """Keep what determines the ids of text; drop what adds tokens around it or truncates it."""
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
    return LibraryModel("tokenizers", content.encode(), 1 + max(ids), why, digest[:16], bpe)


def _is_hidden(text: str, added: list[dict[str, Any]]) -> bool:
    """Tell whether a special token contains a token, or the beginning of it.

    There the library finds the special one first, treats it as text, and continues after it.
    """
    names = [str(token["content"]) for token in added if token["special"]]
    return any(
        text in name or any(text.startswith(name[at:]) for at in range(1, len(name)))
        for name in names
    )


def _flags_of(token: dict[str, Any]) -> str:
    names = ("lstrip", "rstrip", "single_word", "normalized")
    return " ".join(name for name in names if token.get(name))


# ---- the tokens before and after a text ----


def _find_ends(
    post_processor: dict[str, Any] | None, config: bytes | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tokens before every text, and those that are named as the end of one.

    If the configuration has `add_bos_token`, it decides whether there is one before. The template's
    last token is the most likely end; the configuration's `eos_token` may end only a turn.
    """
    options = read_config(config)
    begins, ends = _template_ends(post_processor)
    if options.get("add_bos_token") is False:
        begins = []
    elif options.get("add_bos_token") and not begins:
        begins = _config_token(options, "bos")
    return tuple(begins), tuple(dict.fromkeys(ends[::-1] + _config_token(options, "eos")))


def _unlisted_special(
    model: dict[str, Any], added: list[dict[str, Any]], named: set[str]
) -> dict[str, int]:
    """Return tokens that are named as begin or end, but are only in the vocabulary of a BPE.

    Text never gets them if no merge produces them; InternLM 2 has such tokens.
    """
    named -= {str(token["content"]) for token in added}
    if not named or model.get("type", "BPE") != "BPE" or model.get("ignore_merges"):
        return {}
    made = set(map(add, *read_merges(model["merges"])))
    vocab = model["vocab"]
    return {text: vocab[text] for text in named - made if len(text) > 1 and text in vocab}


def read_config(config: bytes | None) -> dict[str, Any]:
    """Read a `tokenizer_config.json`; return an empty dict if there is none."""
    try:
        options = json.loads(config) if config else {}
    except ValueError as error:
        raise UnsupportedError(
            f"the `tokenizer_config.json` beside it is not valid JSON ({error})"
        ) from error
    if not isinstance(options, dict):
        raise UnsupportedError("the `tokenizer_config.json` beside it is not a JSON object")
    return options


def _template_ends(post_processor: dict[str, Any] | None) -> tuple[list[str], list[str]]:
    """Return the tokens that the file's post-processor adds before and after a text."""
    before: list[str] = []
    after: list[str] = []
    for step in _steps(post_processor):
        if step["type"] in ("BertProcessing", "RobertaProcessing"):
            before.append(str(step["cls"][0]))
            after.append(str(step["sep"][0]))
        elif step["type"] == "TemplateProcessing":
            names = before
            for part in step["single"]:
                if "Sequence" in part:
                    names = after
                else:
                    names += _tokens_of(str(part["SpecialToken"]["id"]), step)
        elif step["type"] != "ByteLevel":
            raise UnsupportedError(f"its post-processor is `{step['type']}`")
    return before, after


def _tokens_of(name: str, template: dict[str, Any]) -> list[str]:
    """Return the tokens that a template has under a name; there may be several."""
    named = (template.get("special_tokens") or {}).get(name)
    return [name] if named is None else [str(token) for token in named["tokens"]]


def _steps(post_processor: dict[str, Any] | None) -> Iterable[dict[str, Any]]:
    if post_processor and post_processor["type"] == "Sequence":
        return list(post_processor["processors"])
    return [post_processor] if post_processor else []


def _config_token(config: dict[str, Any], name: str) -> list[str]:
    """Return a token of a configuration, given as text or as an object; empty if there is none."""
    token = config.get(f"{name}_token")
    text = token["content"] if isinstance(token, dict) else token
    return [str(text)] if text else []
