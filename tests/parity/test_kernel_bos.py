"""The kernel writes a begin-of-text id before each document, next to any end-of-text ids."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from parity.kernel_cases import ISAS, TINY_TABLE, block_of, gpt2, hostile_document
from support import reference

from penstok import _kernel
from penstok.engines.base import most_tokens

BOS, EOT = 50_257, 50_256
DOCUMENTS = ("first one", "", "\u4f60\u597d, it's", " ", "", "last")


def encode(encoder: Any, texts: list[str], begins: list[bool], closes: list[bool]) -> list[int]:
    block = block_of([text.encode() for text in texts], b"|")
    out = np.zeros(most_tokens(block), f"u{encoder.id_bytes}")
    count = encoder.encode(
        np.frombuffer(block.text, np.uint8),
        block.starts,
        block.ends,
        np.array(begins, np.bool_),
        np.array(closes, np.bool_),
        out,
    )
    ids: list[int] = out[:count].tolist()
    return ids


def expected_ids(texts: list[str], begins: list[bool], closes: list[bool], eot: str) -> list[int]:
    ids = []
    for text, begin, close in zip(texts, begins, closes, strict=True):
        ids += [EOT] * (eot == "prepend" and begin)
        ids += [BOS] * begin
        ids += reference().encode_ordinary(text)
        ids += [EOT] * (eot == "append" and close)
    return ids


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("eot", ["append", "prepend", "none"])
def test_every_document_that_begins_has_its_id(isa: str, eot: str) -> None:
    encoder = _kernel.Encoder(gpt2().ranks, EOT, eot, TINY_TABLE, isa, "gpt2", BOS)
    assert encoder.id_bytes == 2
    flags = list(product((False, True), repeat=2))
    for two in product(product(DOCUMENTS[:3], flags), repeat=2):
        texts = [text for text, _ in two]
        begins, closes = [flag for _, (flag, _) in two], [flag for _, (_, flag) in two]
        wanted = expected_ids(texts, begins, closes, eot)
        assert encode(encoder, texts, begins, closes) == wanted
    rng = random.Random(1)
    for size in (0, 1, 5, 40, 3000):  # the last fills many batches
        texts = rng.choices((*DOCUMENTS, hostile_document(rng)), k=size)
        begins = [rng.random() < 0.5 for _ in texts]
        closes = [rng.random() < 0.5 for _ in texts]
        wanted = expected_ids(texts, begins, closes, eot)
        assert encode(encoder, texts, begins, closes) == wanted


def test_empty_documents_have_room_for_both_ids() -> None:
    encoder = _kernel.Encoder(gpt2().ranks, EOT, "append", TINY_TABLE, "", "gpt2", BOS)
    every = [True] * 5000
    assert encode(encoder, [""] * 5000, every, every) == [BOS, EOT] * 5000


def test_a_large_id_makes_all_ids_wide() -> None:
    encoder = _kernel.Encoder(gpt2().ranks, EOT, "none", TINY_TABLE, "", "gpt2", 128_000)
    assert encoder.id_bytes == 4
    assert encode(encoder, ["hello"], [True], [True]) == [128_000, 31373]
