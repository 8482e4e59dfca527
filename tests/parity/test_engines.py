"""Each engine gives the ids of tiktoken on real, random and hostile text."""

from __future__ import annotations

import functools
import json
import os
import random
import string
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import EOT, EXAMPLES, HOSTILE_CHARACTERS, ROOT, part_of, reference, rounds

from penstok.engines import load_engine
from penstok.engines.base import Engine
from penstok.engines.tokenizer_json import format_tokenizer_json
from penstok.tokenizers import ByteLevel, load_tokenizer
from penstok.tokenizers.vocabulary import GPT2_PATTERN
from penstok.types import Block

CORPUS = Path(os.environ.get("PENSTOK_CORPUS", ROOT.parent / "shared" / "corpus"))
CONTEXTS = "a{0}a 1{0}1 {0} '{0} {0}'s {0}{0}\n{0}.{0} x"


@pytest.fixture(scope="module", params=["kernel", "fastokens", "tiktoken"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return load_engine(request.param, load_tokenizer("gpt2"), "append")


@functools.cache
def _fast() -> Engine:
    return load_engine("fastokens", load_tokenizer("gpt2"), "append")


def block_of(texts: list[str]) -> Block:
    """Put documents side by side, with a byte between them that no engine may read."""
    raw = [text.encode() for text in texts]
    ends = np.cumsum([len(text) + 1 for text in raw]) - 1
    starts = ends - [len(text) for text in raw]
    every = np.ones(len(raw), np.bool_)
    joined = memoryview(b"\xff".join(raw) + b"\xff")
    return Block(joined, starts, ends, every, every, ends)


def check(engine: Engine, texts: list[str]) -> None:
    expected = [ids for text in texts for ids in (*reference().encode_ordinary(text), EOT)]
    found = engine.encode(block_of(texts)).tolist()
    if found != expected:
        for text in texts:
            alone = engine.encode(block_of([text])).tolist()
            assert alone == [*reference().encode_ordinary(text), EOT], ascii(text)
        pytest.fail("documents differ only when they are encoded together")


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", ["kernel", "fastokens"])
def test_every_code_point_in_context(name: str) -> None:
    engine = load_engine(name, load_tokenizer("gpt2"), "append")
    points = part_of([code for code in range(0x11_0000) if not 0xD800 <= code < 0xE000])
    for first in range(0, len(points), 8192):
        check(engine, [CONTEXTS.format(chr(code)) for code in points[first : first + 8192]])


@pytest.mark.slow
def test_real_text(engine: Engine) -> None:
    for path in sorted(EXAMPLES.glob("*.txt")):
        check(engine, path.read_text(encoding="utf-8").split("<|endoftext|>"))


@pytest.mark.slow
def test_python_sources(engine: Engine) -> None:
    folder = Path(sysconfig.get_path("stdlib"))
    paths = sorted(folder.glob("*.py")) + sorted((folder / "encodings").glob("*.py"))
    texts = [path.read_bytes().decode(errors="replace") for path in paths]
    check(engine, texts if engine.name == "fastokens" else texts[:40])


def iter_corpus() -> Iterator[tuple[str, Path]]:
    for name in ("web", "multi", "code"):
        yield name, CORPUS / f"{name}.jsonl.zst"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "path"), list(iter_corpus()))
def test_real_corpora_where_present(name: str, path: Path) -> None:
    if not path.exists():
        pytest.skip(f"no corpus {name}: set PENSTOK_CORPUS")
    import zstandard

    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    check(_fast(), [json.loads(line)["text"] for line in lines[::3]])


@settings(max_examples=rounds(300))
@given(st.lists(st.text(st.sampled_from(HOSTILE_CHARACTERS)) | st.text(), min_size=1, max_size=8))
def test_hostile_text(texts: list[str]) -> None:
    check(_fast(), texts)


def test_hostile_words() -> None:
    chance = random.Random(7)
    letters = [
        "".join(chance.choices(string.ascii_letters, k=chance.randrange(1, 40)))
        for _ in range(20_000)
    ]
    check(_fast(), [" ".join(letters), "".join(letters)[:50_000], "a" * 100_000, " " * 30_000])


def test_end_of_text_inside_a_document_is_ordinary_text(engine: Engine) -> None:
    text = "before <|endoftext|> after"
    ids = engine.encode(block_of([text])).tolist()
    assert ids == [*reference().encode_ordinary(text), EOT]
    assert ids.count(EOT) == 1


def test_invalid_utf8_is_refused(engine: Engine) -> None:
    ends = np.array([3])
    every = np.ones(1, np.bool_)
    block = Block(memoryview(b"a\xffb"), np.array([0]), ends, every, every, ends)
    with pytest.raises(UnicodeDecodeError):
        engine.encode(block)


def test_vocabulary_json_has_the_merges_of_gpt2() -> None:
    ranks = load_tokenizer("gpt2").ranks
    model = json.loads(format_tokenizer_json(ByteLevel(ranks, GPT2_PATTERN)))["model"]
    assert len(model["vocab"]) == 50256
    assert len(model["merges"]) == 50000
    assert model["merges"][:3] == ["Ġ t", "Ġ a", "h e"]
    # The n-th merge produces the token of rank 256 + n.
    assert all(
        model["vocab"][merge.replace(" ", "")] == place + 256
        for place, merge in enumerate(model["merges"])
    )
