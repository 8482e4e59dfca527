"""Vocabularies of byte-level BPE: ranks, patterns, and the merges that follow from ranks.

Ranks are plain data from `.tiktoken` files or derived from others; nothing in a file is ever run.
`load` and `huggingface` make tokenizers from them; `engines` writes them for other libraries.
"""

from __future__ import annotations

import base64
import binascii
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from penstok.kernel import find_kernel_function
from penstok.types import Struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "BLOOM_PATTERN",
    "BLOOM_SPLIT",
    "BYTE_OF",
    "BYTE_SPELLING",
    "CL100K_PATTERN",
    "DEEPSEEK_PATTERN",
    "DEEPSEEK_SPLITS",
    "GPT2_PATTERN",
    "ID_BITS",
    "KIMI_PATTERN",
    "MAX_ID",
    "NANOCHAT_PATTERN",
    "NOT_MADE",
    "O200K_PATTERN",
    "PATTERNS",
    "PATTERN_RECORDS",
    "QWEN2_PATTERN",
    "QWEN35_PATTERN",
    "SPELLINGS",
    "STARCODER_PATTERN",
    "TEKKEN_PATTERN",
    "Pattern",
    "UnsupportedError",
    "check_ids",
    "find_merges",
    "find_pattern",
    "find_splits",
    "find_whole_tokens",
    "format_ranks",
    "last_merges",
    "parse_ranks",
    "read_spelling",
]

# Divides text into pieces that are merged separately; the original GPT-2 spelling. The possessive
# spelling of newer tiktoken releases matches the same pieces.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# As in `tokenizer.json` files, and in tiktoken before it had possessive quantifiers.
CL100K_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The same with two digits, and with each digit as a piece.
NANOCHAT_PATTERN = CL100K_PATTERN.replace(r"{1,3}", r"{1,2}")
QWEN2_PATTERN = CL100K_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
# Here marks belong to words, and not to punctuation.
QWEN35_PATTERN = QWEN2_PATTERN.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(
    r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"
)
_GPT4_SPELLING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
# o200k: a word also ends before a capital letter that follows a small one.
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+{_CONTRACTION}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*{_CONTRACTION}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Mistral's: the same without contractions, and each digit is a piece.
TEKKEN_PATTERN = O200K_PATTERN.replace(_CONTRACTION, "").replace(r"\p{N}{1,3}", r"\p{N}")
# Kimi's: o200k with runs of Han as pieces of their own, and without slashes after newlines.
KIMI_PATTERN = "[\\p{Han}]+|" + O200K_PATTERN.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace(
    r"[\r\n/]*", r"[\r\n]*"
)
# StarCoder, SmolLM and Command R divide text at every digit and then by GPT-2's pattern. This is
# the same in one expression: white space before a digit is not divided, as at the end of a text.
# The library's step for digits has those of Unicode 17; its patterns, and tiktoken's, those of 16.
_DIGIT = "\\p{N}\U00011de0-\U00011de9\U00016ff4-\U00016ff6"
STARCODER_PATTERN = (
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+|[{_DIGIT}]| ?[^\s\p{{L}}{_DIGIT}]+"
    rf"|\s+(?![^\s{_DIGIT}])|\s+"
)
# DeepSeek V3 divides text at groups of digits, then at runs of kana and Han, then by a pattern.
# What that pattern does not match (controls, format characters) is a piece too.
_KANA_HAN = "\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff"
DEEPSEEK_SPLITS = (
    r"\p{N}{1,3}",
    f"[{_KANA_HAN}]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)


def _join_deepseek_splits() -> str:
    """Return one expression that divides text as the three do; a test compares them."""
    inside, outside = f"[{_KANA_HAN}]", f"[^{_KANA_HAN}]"

    def words(part: str) -> str:
        letters = rf"[\p{{L}}\p{{M}}&&{part}]"
        lead = rf"[[^\r\n\p{{L}}\p{{N}}\p{{P}}\p{{S}}]&&{part}]"
        unmatched = rf"[[^\s\p{{L}}\p{{M}}\p{{N}}\p{{P}}\p{{S}}]&&{part}]"
        return rf"{lead}?{letters}+|(?:{unmatched}(?!{letters}))+"

    return (
        rf"\p{{N}}{{1,3}}|{words(inside)}|[\p{{P}}\p{{S}}&&{inside}]+"
        rf"|[!-/:-@\[-`{{-~][A-Za-z]+|{words(outside)}| ?[\p{{P}}\p{{S}}&&{outside}]+[\r\n]*"
        rf"|\s*[\r\n]+|\s+(?![^\s\p{{N}}{_KANA_HAN}])|\s+"
    )


DEEPSEEK_PATTERN = _join_deepseek_splits()

# BLOOM: a word is all but white space and some punctuation, with the space before it. The inner
# brackets are a set, and the parentheses and the bar belong to the outer one.
_BLOOM_APART = "(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])"
BLOOM_SPLIT = f" ?[^{_BLOOM_APART}]+"
# The split does not match all text, and what it leaves out are pieces too; here as an alternative.
BLOOM_PATTERN = f"{BLOOM_SPLIT}|(?:(?! [^{_BLOOM_APART}])[{_BLOOM_APART}])+"


class Pattern(Struct, frozen=True):
    """What is known about a pattern.

    Attributes:
        name: The name that `--pattern` takes, which is also the kernel's.
        text: The regular expression.
        spellings: Other expressions that match the same pieces in every text.
        splits: The expressions of the steps that files have in its place, one after the other.
            What they do not match is kept.
        newer: Finds characters that the kernel does not classify as the expression does; text that
            has one is encoded by the reference. None if there are none.
    """

    name: str
    text: str
    spellings: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    newer: re.Pattern[bytes] | None = None


# A new one also needs a row in the kernel (`bpe/variant.cpp`) and a rule for cuts.
PATTERN_RECORDS = (
    Pattern(
        "gpt2",
        GPT2_PATTERN,
        spellings=(
            r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
            r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
        ),
    ),
    Pattern(
        "starcoder",
        STARCODER_PATTERN,
        newer=re.compile(rb"\xf0(?:\x91\xb7[\xa0-\xa9]|\x96\xbf[\xb4-\xb6])"),
    ),
    Pattern("cl100k", CL100K_PATTERN, spellings=(_GPT4_SPELLING,)),
    # Exactly that of cl100k; Llama 4's is that of o200k.
    Pattern("llama3", CL100K_PATTERN),
    Pattern("nanochat", NANOCHAT_PATTERN, spellings=(_GPT4_SPELLING.replace(r"{1,3}", r"{1,2}"),)),
    Pattern("qwen2", QWEN2_PATTERN),
    Pattern("qwen35", QWEN35_PATTERN),
    Pattern("o200k", O200K_PATTERN),
    Pattern("tekken", TEKKEN_PATTERN),
    Pattern("kimi", KIMI_PATTERN),
    Pattern("deepseek", DEEPSEEK_PATTERN, splits=DEEPSEEK_SPLITS),
    Pattern("bloom", BLOOM_PATTERN, splits=(BLOOM_SPLIT,)),
)
PATTERNS = {record.name: record.text for record in PATTERN_RECORDS}
SPELLINGS = {text: record.text for record in PATTERN_RECORDS for text in record.spellings}
_RECORDS = {
    text: record
    for record in reversed(PATTERN_RECORDS)
    for text in (record.text, *record.spellings)
}


def find_pattern(text: str) -> Pattern | None:
    """Return what is known about a pattern, by any of its expressions; None if nothing is."""
    return _RECORDS.get(text)


def find_splits(splits: tuple[str, ...]) -> Pattern | None:
    """Return the pattern that divides text as splits in a row do; None if none does."""
    return next((record for record in PATTERN_RECORDS if record.splits == splits), None)


# The kernel packs three ids into 64 bits; the largest vocabularies in use have 262,144.
ID_BITS = 21
MAX_ID = (1 << ID_BITS) - 1
_NEVER_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
# In place of the parts of a token that no merges produce; the kernel's number for it.
NOT_MADE = 0xFFFF_FFFF


class UnsupportedError(Exception):
    """Why a file cannot be used; `load` adds where, and what to do."""


def _spell_bytes() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted({*range(256)} - {*printable})
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + idx) for idx, byte in enumerate(others)
    }


# The printable character that represents each byte in a `tokenizer.json`.
BYTE_SPELLING = _spell_bytes()
BYTE_OF = {character: byte for byte, character in BYTE_SPELLING.items()}
# The same for `translate`; a character that spells no byte becomes one that latin-1 does not have.
_LATIN = dict.fromkeys(range(256), "\uffff") | {ord(c): byte for c, byte in BYTE_OF.items()}


def read_spelling(text: str) -> bytes | None:
    """Return the bytes that a token of a `tokenizer.json` spells; None if it spells none."""
    try:
        return text.translate(_LATIN).encode("latin-1")
    except UnicodeEncodeError:
        return None


def parse_ranks(content: bytes) -> dict[bytes, int]:
    """Parse a `.tiktoken` file: each line is a token in base64, a space, and its rank.

    The kernel reads a file that has nothing unusual, ten times as fast.
    """
    parse = find_kernel_function("parse_ranks")
    found: dict[bytes, int] | None = None if parse is None else parse(content)
    if found is not None:
        return found
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        token, _, rank = line.partition(b" ")
        try:
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except ValueError as error:
            raise UnsupportedError(f"line {number} is not a base64 token and its rank") from error
        if len(ranks) != number:
            raise UnsupportedError(f"line {number} repeats a token of an earlier line")
    return ranks


def format_ranks(ranks: dict[bytes, int]) -> bytes:
    """Return a vocabulary as the content of a `.tiktoken` file, in order of rank."""
    format_all = find_kernel_function("format_ranks")
    content: bytes | None = None if format_all is None else format_all(ranks)
    if content is not None:
        return content
    return b"".join(
        binascii.b2a_base64(token, newline=False) + b" %d\n" % rank
        for token, rank in sorted(ranks.items(), key=lambda item: item[1])
    )


def last_merges(ranks: dict[bytes, int]) -> dict[bytes, tuple[bytes, bytes] | None]:
    """Find the two tokens that BPE merges last to produce each longer one, in order of id.

    Only these two ever produce it, whatever surrounds them (`docs/concepts/kernel.md` has the
    proof). A token that no merges produce has None: it is matched only as a whole piece.
    """
    tokens = {rank: token for token, rank in ranks.items()}
    return {
        tokens[one]: None if left == NOT_MADE else (tokens[left], tokens[right])
        for one, left, right in zip(*(part.tolist() for part in find_merges(ranks)), strict=True)
    }


def find_whole_tokens(ranks: dict[bytes, int]) -> list[bytes]:
    """Find the tokens that no merges produce, in little memory, because every worker does it."""
    ids, lefts, _ = find_merges(ranks)
    whole = set(ids[lefts == NOT_MADE].tolist())
    return [token for token, rank in ranks.items() if rank in whole] if whole else []


def find_merges(
    ranks: dict[bytes, int],
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """Return what `last_merges` does as three arrays of ids: the token and its two parts.

    The parts of a token that no merges produce are `NOT_MADE`.
    """
    find_last_merges = find_kernel_function("last_merges")
    if find_last_merges is not None:
        found: tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]
        found = find_last_merges(ranks)
        return found
    import numpy as np

    longer = sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__)
    merges = [_merge_token(token, ranks) for token in longer]
    lefts = [NOT_MADE if merge is None else ranks[merge[0]] for merge in merges]
    rights = [NOT_MADE if merge is None else ranks[merge[1]] for merge in merges]
    ids = [ranks[token] for token in longer]
    return np.array(ids, np.uint32), np.array(lefts, np.uint32), np.array(rights, np.uint32)


def _merge_token(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """Merge the bytes of a token and return the last two parts; None if more remain."""
    parts = [token[at : at + 1] for at in range(len(token))]
    never = MAX_ID + 1
    pair_ranks = [ranks.get(left + right, never) for left, right in pairwise(parts)]
    while len(parts) > 2:
        lowest = min(pair_ranks)
        if lowest == never:
            return None
        at = pair_ranks.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del pair_ranks[at]
        if at > 0:
            pair_ranks[at - 1] = ranks.get(parts[at - 1] + parts[at], never)
        if at < len(pair_ranks):
            pair_ranks[at] = ranks.get(parts[at] + parts[at + 1], never)
    return parts[0], parts[1]


def check_ids(ranks: dict[bytes, int]) -> None:
    """Refuse a vocabulary that is not byte-level, or has ids that are not supported."""
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    needed = [byte for byte in missing if byte not in _NEVER_IN_UTF8]
    if needed:
        raise UnsupportedError(f"byte {needed[0]} is not a token: the vocabulary is not byte-level")
    tokens: dict[int, bytes] = {}
    for token, rank in ranks.items():
        if not token:
            raise UnsupportedError(f"token {rank} is empty")
        if type(rank) is not int or not 0 <= rank <= MAX_ID:
            raise UnsupportedError(
                f"token {token!r} has the id {rank}; it must be from 0 to {MAX_ID}"
            )
        if rank in tokens:
            raise UnsupportedError(f"tokens {tokens[rank]!r} and {token!r} share the id {rank}")
        tokens[rank] = token
    if missing:
        # Text never has these bytes, and GPT-NeoX has no tokens for them.
        find = re.compile(b"[" + b"".join(b"\\x%02x" % byte for byte in missing) + b"]").search
        for token in filter(find, ranks):
            raise UnsupportedError(f"token {token!r} has a byte that is not a token")
