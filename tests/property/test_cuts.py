"""Law: dividing text at a cut changes no token; tried at every candidate."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import EXAMPLES, HOSTILE_CHARACTERS, part_of, reference, rounds

from penstok.tokenizers import load_tokenizer
from penstok.tokenizers.cuts import ByteLevelCuts

WINDOW = 120


RULE = ByteLevelCuts(load_tokenizer("gpt2"))


def find_cuts(data: bytes) -> list[int]:
    return [int(cut) for cut in np.flatnonzero(RULE.mask(np.frombuffer(data, np.uint8)))]


def encode(data: bytes) -> list[int]:
    return reference().encode_ordinary(data.decode())


def around(data: bytes, position: int) -> tuple[bytes, bytes]:
    """The text before and after a position, whole characters only."""
    left = data[max(position - WINDOW, 0) : position].decode(errors="ignore").encode()
    right = data[position : position + WINDOW].decode(errors="ignore").encode()
    return left, right


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.txt")))
def test_every_cut_in_real_text_changes_no_token(name: str) -> None:
    data = (EXAMPLES / name).read_bytes()
    cuts = find_cuts(data)
    # About one candidate every ten bytes, also where a language writes no spaces.
    assert len(cuts) > len(data) / 30
    for cut in cuts:
        left, right = around(data, cut)
        assert encode(left) + encode(right) == encode(left + right), (cut, left, right)


@settings(max_examples=rounds(1500))
@given(st.text(st.sampled_from(HOSTILE_CHARACTERS), max_size=60))
def test_every_cut_in_hostile_text_changes_no_token(text: str) -> None:
    data = text.encode()
    for cut in find_cuts(data):
        assert encode(data[:cut]) + encode(data[cut:]) == encode(data)


@settings(max_examples=rounds(300))
@given(st.text(max_size=60))
def test_every_cut_in_any_text_changes_no_token(text: str) -> None:
    data = text.encode()
    for cut in find_cuts(data):
        assert encode(data[:cut]) + encode(data[cut:]) == encode(data)


@pytest.mark.sampled
@pytest.mark.slow
def test_cuts_hold_beside_every_code_point() -> None:
    # All of the planes that hold letters, and a sample of the empty rest.
    points = [*range(0xD800), *range(0xE000, 0x3_4000), *range(0x3_4000, 0x11_0000, 97)]
    points = list(part_of(points))
    for first in range(0, len(points), 256):
        # A newline after a full stop parts the contexts: what one does cannot reach the next.
        text = ".\n".join(
            template.format(chr(code))
            for code in points[first : first + 256]
            for template in ("x{} y", "字{}字", " {}  z", "é{}\né", "{0}{0} {0}")
        )
        data = text.encode()
        edges = [0, *find_cuts(data), len(data)]
        pieces = [data[a:b] for a, b in pairwise(edges)]
        assert [token for piece in pieces for token in encode(piece)] == encode(data), hex(first)


@settings(max_examples=rounds(300))
@given(st.binary(max_size=80))
def test_cuts_stand_between_valid_characters(data: bytes) -> None:
    for cut in find_cuts(data):
        for policy in ("replace", "ignore"):
            left, right = data[:cut].decode(errors=policy), data[cut:].decode(errors=policy)
            assert left + right == data.decode(errors=policy)
            assert encode(left.encode()) + encode(right.encode()) == encode((left + right).encode())
