"""Difficult texts, and the kernel beside tiktoken; shared by the kernel tests."""

from __future__ import annotations

import random
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from support import reference

from penstok.engines.kernel import KernelEngine, available_isas
from penstok.tokenizers import Tokenizer, load_tokenizer
from penstok.types import Block

if TYPE_CHECKING:
    from numpy.typing import NDArray

ISAS = available_isas()
TINY_TABLE, LARGE_TABLE = 1 << 10, 1 << 24
SCRIPTS = (
    0x41,
    0xC0,
    0x391,
    0x410,
    0x5D0,
    0x627,
    0x905,
    0xE01,
    0x3041,
    0x30A1,
    0x4E00,
    0xAC00,
)
MORE_SCRIPTS = (
    0x1100,
    0x2000,
    0x2190,
    0x1F600,
    0x1D400,
    0x20000,
    0xE0100,
    0x660,
    0x966,
)
REPEATED = ("a", "=", "-", "#", "0", "ab", "\u4e00", "\u0430", "\n")
SNIPPETS = (
    *(
        "'s",
        "'t",
        "'re",
        "'ve",
        "'m",
        "'ll",
        "'d",
        "'l",
        "'v",
        "'r",
        "''",
        "'S",
        "'",
        "\u2019s",
    ),
    *(
        " ",
        "  ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "\x0b",
        "\x85",
        "\xa0",
        "\u3000",
        "\u2028",
        "\u200b",
    ),
    *(
        "<|endoftext|>",
        "don't",
        "we'll've",
        "1,234.5",
        "e\u0301",
        "\u1e9b\u0323",
        "\ufb01",
        "\x00",
    ),
)


def gpt2() -> Tokenizer:
    return load_tokenizer("gpt2")


@cache
def engine(isa: str, table_bytes: int = 1 << 22, eot: Any = "none") -> KernelEngine:
    """Make an engine whose tables have their full size from the start.

    It gives them that after a short text: here one run of spaces, from which it learns no piece.
    """
    made = KernelEngine(gpt2(), eot, isa=isa, table_bytes=table_bytes)
    made.encode(block_of([b" " * (1 << 18), b" "]))
    return made


def block_of(documents: list[bytes], gap: bytes = b"") -> Block:
    """Put whole documents into one block, with a gap before each."""
    text = b"".join(gap + document for document in documents)
    ends = np.array(
        list(accumulate(len(gap) + len(document) for document in documents)),
        dtype=np.int64,
    )
    starts = ends - np.array([len(document) for document in documents], dtype=np.int64)
    whole = np.ones(len(documents), np.bool_)
    return Block(memoryview(text), starts, ends, whole, whole.copy(), ends)


def expected_ids(documents: list[str]) -> NDArray[np.uint16]:
    return np.array(
        [token for document in documents for token in reference().encode_ordinary(document)],
        dtype=np.uint16,
    )


def hostile_document(rng: random.Random) -> str:
    """A document of one to some hundred unrelated parts."""
    return "".join(_part(rng) for _ in range(rng.choice((1, 2, 5, 20, 120))))


def _part(rng: random.Random) -> str:
    kind = rng.randrange(10)
    if kind == 0:
        code_point = rng.randrange(0x110000)
        return "\n" if 0xD800 <= code_point < 0xE000 else chr(code_point)
    if kind == 1:
        return rng.choice(SNIPPETS)
    if kind == 2:
        first = rng.choice(SCRIPTS + MORE_SCRIPTS)
        return "".join(chr(first + rng.randrange(60)) for _ in range(rng.randrange(1, 40)))
    if kind == 3:
        return " " * rng.randrange(1, 700 if rng.random() < 0.05 else 20)
    if kind == 4:
        return rng.choice(REPEATED) * rng.randrange(80)
    if kind == 5:
        return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(1, 60)))
    if kind == 6:
        return "".join(rng.choices("acgt", k=rng.randrange(1, 3000 if rng.random() < 0.02 else 80)))
    if kind == 7:
        return " " + "".join(rng.choices("0123456789abcdefABCDEF+/=", k=rng.randrange(1, 50)))
    if kind == 8:
        return ascii_text(rng, rng.randrange(1, 400))
    return rng.choice(_utf8_tokens())


def ascii_text(rng: random.Random, length: int) -> str:
    """ASCII in which borders of all kinds meet every position of 64 bytes."""
    common = "aaeettnosl  '.,10\n\t"
    return "".join(
        rng.choice(common) if rng.randrange(8) else chr(rng.randrange(128)) for _ in range(length)
    )


def latin_text(rng: random.Random, length: int) -> str:
    """The same with a few letters and punctuation of European languages."""
    others = "\u00e9\u00fc\u00df\u00f1\u0142\u2019\u201c\u2013\u00bf\u00ab"
    text = ascii_text(rng, length)
    return "".join(rng.choice(others) if rng.randrange(24) == 0 else one for one in text)


@cache
def _utf8_tokens() -> tuple[str, ...]:
    return tuple(
        token.decode() for token in gpt2().ranks if token.decode(errors="replace").encode() == token
    )
