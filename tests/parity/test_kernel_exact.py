"""The kernel gives tiktoken's ids: every code point, hostile strings, every size and offset."""

from __future__ import annotations

import random
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from parity.kernel_cases import (
    ISAS,
    LARGE_TABLE,
    SNIPPETS,
    TINY_TABLE,
    ascii_text,
    block_of,
    engine,
    expected_ids,
    hostile_document,
    latin_text,
)
from support import part_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

CONTEXTS = (
    ("", ""),
    (" ", ""),
    ("a", ""),
    ("1", "1"),
    (".", "."),
    ("\n", "\n"),
    ("  ", "  "),
    ("'s", "'t"),
)
GROUP = 4096


def code_point_documents(context: tuple[str, str]) -> list[str]:
    before, after = context
    every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    characters = part_of(every)
    return [
        "".join(before + c + after for c in characters[at : at + GROUP])
        for at in range(0, len(characters), GROUP)
    ]


@cache
def code_point_ids(context: tuple[str, str]) -> NDArray[np.uint16]:
    return expected_ids(code_point_documents(context))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS, ids=repr)
def test_every_code_point_matches(context: tuple[str, str]) -> None:
    documents = [document.encode() for document in code_point_documents(context)]
    for isa in ISAS:
        ids = engine(isa, LARGE_TABLE).encode(block_of(documents))
        np.testing.assert_array_equal(ids, code_point_ids(context), err_msg=isa)


@cache
def hostile_documents() -> tuple[list[str], NDArray[np.uint16]]:
    rng = random.Random(20241)
    documents = [hostile_document(rng) for _ in range(4000)]
    return documents, expected_ids(documents)


@pytest.mark.parametrize("table_bytes", [TINY_TABLE, LARGE_TABLE])
@pytest.mark.parametrize("isa", ISAS)
def test_hostile_documents_match(isa: str, table_bytes: int) -> None:
    documents, expected = hostile_documents()
    block = block_of([document.encode() for document in documents])
    np.testing.assert_array_equal(engine(isa, table_bytes).encode(block), expected)


@pytest.mark.parametrize("table_bytes", [TINY_TABLE, LARGE_TABLE])
@pytest.mark.parametrize("isa", ISAS)
def test_runs_of_every_ascii_character_match(isa: str, table_bytes: int) -> None:
    """In a table with free entries too: 16 NUL bytes look like one."""
    documents = ["x" + chr(c) * count + "y" for c in range(128) for count in range(1, 36)]
    block = block_of([document.encode() for document in documents])
    np.testing.assert_array_equal(engine(isa, table_bytes).encode(block), expected_ids(documents))


@cache
def indented_documents() -> tuple[list[str], NDArray[np.uint16]]:
    """Indentation of every length, and the same with one other character in it."""
    firsts = ("", "\n", "\n\n", "\r\n", "\t", "\x00")
    documents = [first + " " * count + "x" for first in firsts for count in range(70)]
    documents += [
        "\n" + " " * at + other + " " * (count - at) + "x"
        for count in range(6, 33)
        for at in range(count + 1)
        for other in "\n\t\x0b"
    ]
    return documents, expected_ids(documents)


@pytest.mark.parametrize("table_bytes", [TINY_TABLE, LARGE_TABLE])
@pytest.mark.parametrize("isa", ISAS)
def test_indentation_matches(isa: str, table_bytes: int) -> None:
    documents, expected = indented_documents()
    block = block_of([document.encode() for document in documents])
    for _ in range(2):  # from the tables the second time
        np.testing.assert_array_equal(engine(isa, table_bytes).encode(block), expected)


@pytest.mark.parametrize("isa", ISAS)
def test_snippets_match_at_every_offset_in_64_bytes(isa: str) -> None:
    documents = [
        "x" * shift + first + second + "y"
        for shift in range(58, 68)
        for first, second in product(SNIPPETS, repeat=2)
    ]
    block = block_of([document.encode() for document in documents])
    np.testing.assert_array_equal(engine(isa).encode(block), expected_ids(documents))


@pytest.mark.parametrize("isa", ISAS)
def test_snippets_match_at_every_offset_inside_long_ascii(isa: str) -> None:
    rng = random.Random(64)
    # Letters, digits and white space of other scripts, before something of the same kind.
    pairs = (
        "\u00e9t",
        "\u044fa",
        "\u4e2da",
        "\u0e01a",
        "\U00020000a",
        "\u06631",
        "\xa0  a",
        "\u3000 \n",
    )
    documents = [
        ascii_text(rng, 128 + shift) + snippet + ascii_text(rng, 200)
        for shift in range(65)
        for snippet in (*SNIPPETS, *pairs)
    ]
    block = block_of([document.encode() for document in documents])
    np.testing.assert_array_equal(engine(isa).encode(block), expected_ids(documents))


@cache
def latin_documents() -> tuple[list[str], NDArray[np.uint16]]:
    """Every character of two bytes, and those near the quotation marks, inside Latin text."""
    rng = random.Random(66)
    documents = [
        ascii_text(rng, 128 + rng.randrange(64)) + before + chr(code_point) + latin_text(rng, 200)
        for code_point in (*range(0x80, 0x800), *range(0x1FF0, 0x2080))
        for before in ("", "a", " ", "1", "\u00e9")
    ]
    return documents, expected_ids(documents)


@pytest.mark.parametrize("isa", ISAS)
def test_characters_inside_latin_text_match(isa: str) -> None:
    documents, expected = latin_documents()
    block = block_of([document.encode() for document in documents])
    np.testing.assert_array_equal(engine(isa).encode(block), expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("make_text", [ascii_text, latin_text])
def test_long_text_matches(make_text: Callable[[random.Random, int], str], isa: str) -> None:
    rng = random.Random(65)
    documents = [ascii_text(rng, 128) + make_text(rng, rng.randrange(700)) for _ in range(1500)]
    block = block_of([document.encode() for document in documents])
    np.testing.assert_array_equal(engine(isa).encode(block), expected_ids(documents))


@pytest.mark.parametrize("isa", ISAS)
def test_documents_of_every_length_match(isa: str) -> None:
    rng = random.Random(7)
    text = "".join(hostile_document(rng) for _ in range(20))[:400]
    documents = [text[:length] for length in range(len(text))]
    for gap in (b"", b"<|endoftext|>", b"\xff"):
        ids = engine(isa).encode(block_of([d.encode() for d in documents], gap))
        np.testing.assert_array_equal(ids, expected_ids(documents))


@pytest.mark.parametrize("isa", ISAS)
def test_neighbouring_documents_do_not_see_each_other(isa: str) -> None:
    rng = random.Random(8)
    halves = [hostile_document(rng)[:90] for _ in range(400)]
    halves += ["it'", "s", "x'l", "l", "a ", "b", " ", " ", "\u4f60", "\u597d", "", "", "1", "2"]
    block = block_of([half.encode() for half in halves])
    np.testing.assert_array_equal(engine(isa).encode(block), expected_ids(halves))


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "unit", ["a", "=", "\u0430", "\u4e00", "ab", " a", "acgtgca", "\U0001f600", "\n ", "0123456789"]
)
def test_one_giant_piece_matches(isa: str, unit: str) -> None:
    document = unit * (60_000 // len(unit.encode()))
    ids = engine(isa).encode(block_of([document.encode()]))
    np.testing.assert_array_equal(ids, expected_ids([document]))


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS)
def test_random_giant_pieces_match(isa: str) -> None:
    rng = random.Random(9)
    documents = [
        "".join(rng.choices(letters, k=length))
        for letters in ("acgt", "abcdefghijklmnopqrstuvwxyz", "\u0430\u0431\u0432\u0433", "=-")
        for length in (33, 64, 100, 252, 253, 2047, 2048, 2049, 5000, 40_000)
    ]
    ids = engine(isa).encode(block_of([document.encode() for document in documents]))
    np.testing.assert_array_equal(ids, expected_ids(documents))
