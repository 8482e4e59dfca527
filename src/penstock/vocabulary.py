"""Vocabularies of byte-level BPE as they stand in files, and the proof that one can be used.

It reads a `.tiktoken` file of ranks and a Hugging Face `tokenizer.json`, as plain data: nothing in
a file is ever run. What it cannot turn into the same ids as the file's own library is refused, with
its name. `tokenizer` makes tokenizers from it; engines write vocabularies with it.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BYTE_SPELLING",
    "CL100K_PATTERN",
    "GPT2_PATTERN",
    "MAX_ID",
    "PATTERNS",
    "QWEN2_PATTERN",
    "UnsupportedError",
    "Vocabulary",
    "derive_merges",
    "format_ranks",
    "parse_huggingface",
    "parse_ranks",
]

# Splits text into pieces that are merged alone; the original GPT-2 spelling. The possessive
# spelling of newer tiktoken releases matches the same pieces.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# As `tokenizer.json` files spell it, and tiktoken before it had possessive quantifiers.
CL100K_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The same with numbers taken digit by digit.
QWEN2_PATTERN = CL100K_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
# By the name that `--pattern` takes. Llama 3 took that of cl100k, letter by letter.
PATTERNS = {
    "gpt2": GPT2_PATTERN,
    "cl100k": CL100K_PATTERN,
    "llama3": CL100K_PATTERN,
    "qwen2": QWEN2_PATTERN,
}

# The kernel packs three ids into 64 bits; the largest vocabularies in use have 262,144.
MAX_ID = (1 << 21) - 1
_MAX_TOKEN_BYTES = 1 << 10


class UnsupportedError(Exception):
    """What in a file stands against using it; `tokenizer` adds where, and what to do."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a file says.

    Attributes:
        ranks: The id of each token; of two possible merges the one with the lower id comes first.
        special: The ids that text never has, by the name the file gives them.
        pattern: How text is divided before merging; None where the file does not say.
    """

    ranks: dict[bytes, int] = field(repr=False)
    special: dict[str, int]
    pattern: str | None


def _spell_bytes() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + place) for place, byte in enumerate(others)
    }


# The printable character that stands for each byte in a `tokenizer.json`.
BYTE_SPELLING = _spell_bytes()
_BYTE_OF = {character: byte for byte, character in BYTE_SPELLING.items()}


def parse_ranks(content: bytes) -> dict[bytes, int]:
    """Read the lines of a `.tiktoken` file: a token in base64, a blank, its rank."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        token, _, rank = line.partition(b" ")
        try:
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except ValueError as error:
            raise UnsupportedError(f"line {number} is no token in base64 and its rank") from error
        if len(ranks) != number:
            raise UnsupportedError(f"line {number} has a token that an earlier line has")
    return ranks


def format_ranks(ranks: dict[bytes, int]) -> bytes:
    """Write a vocabulary as a `.tiktoken` file, in order of rank."""
    return b"".join(
        binascii.b2a_base64(token, newline=False) + b" %d\n" % rank
        for token, rank in sorted(ranks.items(), key=lambda item: item[1])
    )


def parse_huggingface(content: bytes) -> Vocabulary:
    """Read a `tokenizer.json`.

    Raises:
        UnsupportedError: Unless it is a byte-level BPE whose ids the ranks alone decide.
    """
    try:
        settings = json.loads(content)
        model = settings["model"]
        _refuse_model(settings, model)
        vocab, merges = dict(model["vocab"]), [_pair(merge) for merge in model["merges"]]
        added = [(str(token["content"]), int(token["id"])) for token in _added(settings)]
        special = [bool(token["special"]) for token in _added(settings)]
        pattern = _find_pattern(settings.get("pre_tokenizer"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnsupportedError(f"this is no `tokenizer.json` of a BPE ({error!r})") from error
    for (text, token_id), is_special in zip(added, special, strict=True):
        # The library looks for the others in text before anything else: other ids than ours.
        if not is_special:
            raise UnsupportedError(f"the added token {text!r} is not special")
        if not 0 <= token_id <= MAX_ID:
            raise UnsupportedError(f"the added token {text!r} has the id {token_id}")
    # Special tokens stand in `vocab` too, where no merge makes them.
    unmerged = set(vocab) - {left + right for left, right in merges} - set(_BYTE_OF)
    special_only = unmerged & dict(added).keys()
    ranks = {_bytes_of(text): vocab[text] for text in vocab.keys() - special_only}
    _refuse_other_merges(ranks, merges)
    return Vocabulary(ranks, dict(added), pattern)


def derive_merges(ranks: dict[bytes, int]) -> dict[bytes, tuple[bytes, bytes]]:
    """Find the two tokens that BPE joins last to make each longer one.

    This is the proof that ids are decided by ranks alone, whatever library merges: every token is
    reached from its bytes by merges of lower rank, and so always by the same last one
    (`docs/concepts/kernel.md` has the argument; the kernel makes the same proof when it is built).

    Raises:
        UnsupportedError: If there is a token that is not, or a byte that is no token.
    """
    _check_ids(ranks)
    made: dict[bytes, tuple[bytes, bytes]] = {}
    known: dict[tuple[bytes, bytes], int] = {}
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) == 1:
            continue
        parts = _merge_to_two(token, known)
        if len(parts) != 2:
            raise UnsupportedError(f"token {rank} ({token!r}) cannot be reached by lower ranks")
        made[token] = parts[0], parts[1]
        known[parts[0], parts[1]] = rank
    return made


def _check_ids(ranks: dict[bytes, int]) -> None:
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise UnsupportedError(f"byte {missing[0]} is no token: the vocabulary is not byte-level")
    tokens: dict[int, bytes] = {}
    for token, rank in ranks.items():
        if not 0 < len(token) <= _MAX_TOKEN_BYTES:
            raise UnsupportedError(
                f"token {rank} has {len(token)} bytes; 1 to {_MAX_TOKEN_BYTES} can be"
            )
        if type(rank) is not int or not 0 <= rank <= MAX_ID:
            raise UnsupportedError(f"token {token!r} has the id {rank}; 0 to {MAX_ID} can be")
        if rank in tokens:
            raise UnsupportedError(f"tokens {tokens[rank]!r} and {token!r} share the id {rank}")
        tokens[rank] = token


def _merge_to_two(token: bytes, known: dict[tuple[bytes, bytes], int]) -> list[bytes]:
    """Merge the bytes of a token until two parts are left, or more if no merge applies."""
    parts = [token[at : at + 1] for at in range(len(token))]
    never = MAX_ID + 1
    pair_ranks = [known.get(pair, never) for pair in pairwise(parts)]
    while len(parts) > 2:
        lowest = min(pair_ranks)
        if lowest == never:
            break
        at = pair_ranks.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del pair_ranks[at]
        if at > 0:
            pair_ranks[at - 1] = known.get((parts[at - 1], parts[at]), never)
        if at < len(pair_ranks):
            pair_ranks[at] = known.get((parts[at], parts[at + 1]), never)
    return parts


def _pair(merge: Any) -> tuple[str, str]:
    """Take a merge as it is written today, as a list, or as it was before, with a blank."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return str(left), str(right)


def _added(settings: dict[str, Any]) -> Iterable[dict[str, Any]]:
    return settings.get("added_tokens") or []


def _bytes_of(text: str) -> bytes:
    try:
        return bytes(_BYTE_OF[character] for character in text)
    except KeyError as error:
        raise UnsupportedError(f"token {text!r} is not spelled in bytes") from error


def _find_pattern(pre_tokenizer: dict[str, Any] | None) -> str:
    """Return the pattern of a byte-level pre-tokenizer, its own or that of a split before it."""
    steps = [pre_tokenizer or {"type": None}]
    if steps[0]["type"] == "Sequence":
        steps = steps[0]["pretokenizers"]
    kinds = [step["type"] for step in steps]
    if kinds not in (["ByteLevel"], ["Split", "ByteLevel"]):
        shown = " and ".join(f"`{kind}`" for kind in kinds)
        raise UnsupportedError(f"its pre-tokenizer is {shown}; `ByteLevel` is supported")
    byte_level = steps[-1]
    if byte_level.get("add_prefix_space", True):
        raise UnsupportedError("its pre-tokenizer adds a blank to the text (`add_prefix_space`)")
    has_split, uses_own = len(steps) > 1, byte_level.get("use_regex", True)
    if has_split == uses_own:
        raise UnsupportedError("its pre-tokenizer divides text by no pattern, or by two")
    return _split_pattern(steps[0]) if has_split else GPT2_PATTERN


def _split_pattern(split: dict[str, Any]) -> str:
    pattern = str(split["pattern"].get("Regex"))
    if split["behavior"] != "Isolated" or split["invert"] or pattern not in PATTERNS.values():
        raise UnsupportedError(
            f"it divides text by the pattern {pattern!r}; those of {', '.join(PATTERNS)} are known"
        )
    return pattern


def _refuse_model(settings: dict[str, Any], model: dict[str, Any]) -> None:
    """Refuse what changes ids beside merges and pattern."""
    if model.get("type", "BPE") != "BPE":
        raise UnsupportedError(f"its model is `{model['type']}`; `BPE` is supported")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise UnsupportedError(f"its model has a `{name}`")
    if settings.get("normalizer"):
        raise UnsupportedError(
            f"it changes text by a normalizer (`{settings['normalizer']['type']}`)"
        )
    post_processor = settings.get("post_processor") or {"type": "ByteLevel"}
    if post_processor["type"] != "ByteLevel":
        raise UnsupportedError(
            f"its post-processor `{post_processor['type']}` adds tokens to each text"
        )


def _refuse_other_merges(ranks: dict[bytes, int], merges: list[tuple[str, str]]) -> None:
    """Prove that merging by rank is merging by this list: the same merges, in order of id."""
    derived = derive_merges(ranks)
    if len(merges) != len(derived):
        raise UnsupportedError(f"it has {len(merges)} merges for {len(derived)} tokens")
    last = -1
    for left, right in merges:
        pair = _bytes_of(left), _bytes_of(right)
        token = pair[0] + pair[1]
        if token not in ranks or derived.get(token) != pair:
            raise UnsupportedError(f"no rank stands for its merge of {pair[0]!r} and {pair[1]!r}")
        if ranks[token] <= last:
            raise UnsupportedError(f"its merges are not in order of id, first at {token!r}")
        last = ranks[token]
