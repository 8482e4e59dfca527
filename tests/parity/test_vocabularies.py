"""Vocabularies from files: every engine gives tiktoken's ids, and the file's own library's."""

from __future__ import annotations

import functools
import random
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
import tokenizers
from parity.kernel_cases import ISAS, TINY_TABLE, block_of, hostile_document
from tokenizers import models, pre_tokenizers, trainers
from vocabularies import EOT_TEXT, example_texts, train, write_json

from penstok import _kernel
from penstok.engines import choose_engine, load_engine
from penstok.engines.kernel import KernelEngine
from penstok.tokenizers import Tokenizer, load_tokenizer
from penstok.tokenizers.cuts import ByteLevelCuts
from penstok.tokenizers.vocabulary import PATTERNS

SMALL, MEDIUM, LARGE = 300, 4000, 70_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabularies")


def load(folder: Path, size: int) -> Tokenizer:
    return load_tokenizer(write_json(folder, train(size).to_str(), f"{size}.json"))


def documents(seed: int) -> list[str]:
    rng = random.Random(seed)
    return [*example_texts(), *(hostile_document(rng) for _ in range(400))]


def reference_ids(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    encoding = tiktoken.Encoding(
        name="from a file",
        pat_str=tokenizer.pattern,
        mergeable_ranks=tokenizer.ranks,
        special_tokens={},
    )
    return [i for text in texts for i in (*encoding.encode_ordinary(text), tokenizer.eot_id)]


def ids_of(engine: Any, texts: list[str]) -> Any:
    return engine.encode(block_of([text.encode() for text in texts]))


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, MEDIUM, LARGE])
def test_every_engine_gives_the_ids_of_the_reference(folder: Path, size: int) -> None:
    tokenizer, texts = load(folder, size), documents(size)
    expected = reference_ids(tokenizer, texts)
    engines = [load_engine(name, tokenizer, "append") for name in ("tiktoken", "fastokens")]
    engines += [KernelEngine(tokenizer, "append", isa=isa) for isa in ISAS]
    engines += [KernelEngine(tokenizer, "append", isa=isa, table_bytes=TINY_TABLE) for isa in ISAS]
    for engine in engines:
        ids = ids_of(engine, texts)
        assert ids.tolist() == expected, engine.name
        if engine.name == "kernel":
            assert ids.dtype == (np.uint16 if size <= 1 << 16 else np.uint32)
    if size == LARGE:
        assert max(expected) > 1 << 16


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, MEDIUM, LARGE])
def test_the_ids_are_those_of_the_library_that_made_the_file(folder: Path, size: int) -> None:
    tokenizer, library = load(folder, size), train(size)
    texts = documents(size + 1)
    # The library finds special tokens in text; Penstok never does.
    texts = [text.replace(tokenizer.eot_text, "") for text in texts]
    expected = [i for text in texts for i in (*library.encode(text).ids, tokenizer.eot_id)]
    assert ids_of(KernelEngine(tokenizer, "append"), texts).tolist() == expected


@pytest.mark.slow
def test_several_vocabularies_work_side_by_side(folder: Path) -> None:
    loaded = [load_tokenizer("gpt2"), *(load(folder, size) for size in (SMALL, MEDIUM, LARGE))]
    engines = [KernelEngine(tokenizer, "append") for tokenizer in loaded]
    for seed in range(5):
        rng = random.Random(seed)
        texts = [hostile_document(rng) for _ in range(100)]
        for tokenizer, engine in zip(loaded, engines, strict=True):
            assert ids_of(engine, texts).tolist() == reference_ids(tokenizer, texts)


RUNS = (" ", "-", "\x00", "\n", "=", "ab", "\u4e00", "\u3000")


@functools.cache
def train_on_runs(pattern: str) -> tokenizers.Tokenizer:
    """Train on runs of thousands of characters, without a limit for the length of tokens."""
    made = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(tokenizers.Regex(PATTERNS[pattern]), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    texts = [f"x{run * 5000}y" for run in RUNS] * 3
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        show_progress=False,
        special_tokens=[EOT_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(texts, trainer)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k"])
def test_tokens_of_thousands_of_bytes_run_in_the_kernel(folder: Path, pattern: str) -> None:
    library = train_on_runs(pattern)
    path = write_json(folder, library.to_str(), f"runs-{pattern}.json")
    tokenizer = load_tokenizer(path)
    for byte in (b" ", b"-", b"\x00", b"="):
        assert max(len(token) for token in tokenizer.ranks if token == byte * len(token)) >= 4096
    assert choose_engine("auto", tokenizer) == ("kernel", "")
    rng = random.Random(pattern)
    lengths = (1, 2, 63, 64, 65, 511, 512, 513, 1023, 4095, 4096, 4097, 5000, 8192, 9001)
    texts = [
        "".join(rng.choice(RUNS) * rng.choice(lengths) + rng.choice("xA1. \n") for _ in range(4))
        for _ in range(15)
    ]
    texts += [run * length for run in RUNS for length in lengths]
    expected = [i for text in texts for i in library.encode(text).ids]
    rule = ByteLevelCuts(tokenizer)
    for isa in ISAS:
        engine = KernelEngine(tokenizer, "none", isa=isa)
        assert ids_of(engine, texts).tolist() == expected
        for text in texts:
            data = text.encode()
            cuts = np.flatnonzero(rule.mask(np.frombuffer(data, np.uint8))).tolist()
            edges = [0, *rng.sample(cuts, min(len(cuts), 20)), len(data)]
            parts = [data[a:b].decode() for a, b in pairwise(sorted(edges))]
            assert ids_of(engine, parts).tolist() == ids_of(engine, [text]).tolist()


def test_a_token_of_262144_bytes_loads_quickly() -> None:
    ranks = {bytes([byte]): byte for byte in range(256)}
    for power in range(1, 19):
        ranks[b"-" * (1 << power)] = 255 + power
    start = time.process_time()
    encoder = _kernel.Encoder(ranks, 300, "none", TINY_TABLE)
    assert time.process_time() - start < 5
    text = np.full((1 << 18) + 3, ord("-"), np.uint8)
    out = np.empty(_kernel.room_for(len(text), 1), f"u{encoder.id_bytes}")
    whole = np.ones(1, np.bool_)
    count = encoder.encode(text, np.array([0]), np.array([len(text)]), whole, whole, out)
    assert out[:count].tolist() == [273, 256, ord("-")]
