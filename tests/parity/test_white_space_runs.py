"""Tokenizers with tokens for runs of spaces or tabs (GPT-NeoX, CodeGen) get their library's ids."""

from __future__ import annotations

import json
import random
import unicodedata
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parity.kernel_cases import block_of
from parity.test_patterns import NEW_PATTERNS, hostile_texts, ids_of, unnormalized_texts
from support import few
from vocabularies import EOT_TEXT, all_pairs, write_json

from penstok.engines import choose_engine, load_engine
from penstok.engines.tokenizer_json import format_tokenizer_json
from penstok.errors import UsageError
from penstok.tokenizers import ByteLevel, LibraryModel, Tokenizer, load_tokenizer
from penstok.tokenizers.cuts import ByteLevelCuts
from penstok.tokenizers.libraries import make_library_model
from penstok.tokenizers.vocabulary import PATTERNS, UnsupportedError, check_ids
from penstok.types import replace

NEVER_IN_UTF8 = (0xC0, 0xC1, *range(0xF5, 0x100))
FIRST_ID = 40_000
# As in the files: the longest first. Others than runs are found in text too.
RUNS = [" " * length for length in range(7, 1, -1)] + ["\t" * length for length in (3, 2)]
ADDED = [*RUNS, "|||EMAIL|||", "<|x|"]
PARTS = [*ADDED, " ", "   ", " " * 8, " " * 15, "\t", "a", "b ", "\n", "\n\n", "\r", ".", "'s", "1"]
PARTS += ["\u3000", "\u00e9", "e\u0301", "\u0301", "\u5b57", "|||", "EMAIL", "K\u212a"]


def file_of(
    pattern: str, added: list[str], *, normalizer: str | None = None, ranks: Any = None
) -> dict[str, Any]:
    """Return a `tokenizer.json` with added tokens that are found in normalized text."""
    model = ByteLevel(ranks or all_pairs(most_ids=22_000), PATTERNS[pattern])
    content: dict[str, Any] = json.loads(format_tokenizer_json(model))
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": True}
    tokens = {text: FIRST_ID + number for number, text in enumerate(added)}
    content["model"]["vocab"] |= {EOT_TEXT: FIRST_ID - 1, **tokens}
    content["added_tokens"] = [
        {"id": token_id, "content": text, "special": False, **flags}
        for text, token_id in tokens.items()
    ]
    end = {"id": FIRST_ID - 1, "content": EOT_TEXT, "special": True, **flags}
    content["added_tokens"].append({**end, "normalized": False})
    content["normalizer"] = normalizer and {"type": normalizer}
    return content


def load(content: dict[str, Any], folder: Path) -> tuple[Tokenizer, Any]:
    """Return the tokenizer, and the library that reads the same file."""
    path = write_json(folder, content)
    return load_tokenizer(path), make_library_model("tokenizers", Path(path).read_bytes())


def texts_with_runs(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(PARTS, k=rng.randrange(1, 9))) for _ in range(count)]


@pytest.mark.parametrize(
    ("pattern", "normalizer"),
    few([("gpt2", "NFC"), ("cl100k", None), *((one, "NFC") for one in NEW_PATTERNS)], 2),
)
def test_every_engine_gives_the_ids_of_the_library(
    pattern: str, normalizer: str | None, tmp_path: Path
) -> None:
    tokenizer, library = load(file_of(pattern, ADDED, normalizer=normalizer), tmp_path)
    assert choose_engine("auto", tokenizer) == ("kernel", "")
    texts = ["".join(made) for length in range(1, 5) for made in product(" \t\na.", repeat=length)]
    texts += ["x" + " " * length + after for length in range(40) for after in ("", "y", " \n", ".")]
    texts += [*texts_with_runs(1, 1500), *hostile_texts(2, 600), *unnormalized_texts(3, 300)]
    expected = [library.encode(text, add_special_tokens=False).ids for text in texts]
    marked = replace(tokenizer, eot_id=FIRST_ID + 100, bos_id=FIRST_ID + 101)
    joined = [one for ids in expected for one in (FIRST_ID + 101, *ids, FIRST_ID + 100)]
    for name in ("kernel", "fastokens", "tiktoken", "tokenizers"):
        engine = load_engine(name, tokenizer, "none")
        if ids_of(engine, texts) != [one for ids in expected for one in ids]:
            for text, ids in zip(texts, expected, strict=True):
                assert ids_of(engine, [text]) == ids, (name, ascii(text))
    # Runs end with their documents, and ids between them stay in place.
    assert ids_of(load_engine("kernel", marked, "append"), texts) == joined


@pytest.mark.parametrize("pattern", few(("gpt2", *NEW_PATTERNS), 2))
def test_no_cut_divides_a_run(pattern: str, tmp_path: Path) -> None:
    found = 0
    for added in (RUNS, ADDED):
        tokenizer, library = load(file_of(pattern, added, normalizer="NFC"), tmp_path)
        rule = ByteLevelCuts(tokenizer)
        for text in [*texts_with_runs(4, 1500), *unnormalized_texts(5, 300)]:
            data, whole = text.encode(), library.encode(text, add_special_tokens=False).ids
            array = np.frombuffer(data, np.uint8)
            assert not (rule.line_mask(array) & ~rule.mask(array)).any()
            for cut in np.flatnonzero(rule.mask(array)).tolist():
                halves = (data[:cut].decode(), data[cut:].decode())
                parts = [library.encode(half, add_special_tokens=False).ids for half in halves]
                assert parts[0] + parts[1] == whole, (ascii(text), cut)
                found += 1
    assert found > 1000


def test_documents_may_have_gaps_between_them_and_be_empty(tmp_path: Path) -> None:
    tokenizer, library = load(file_of("gpt2", RUNS), tmp_path)
    block = block_of([b"a  ", b"", b"  b   ", b"   ", b"c"])
    # Also the first and last bytes of the text are outside of all documents.
    starts, ends = block.starts + np.array([0, 0, 1, 0, 0]), block.ends - np.array([0, 0, 0, 1, 0])
    moved = replace(block, starts=starts, ends=ends)
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    texts = [bytes(block.text[start:end]).decode() for start, end in bounds]
    assert texts == ["a  ", "", " b   ", "  ", "c"]
    expected = [one for text in texts for one in library.encode(text).ids]
    engine = load_engine("kernel", tokenizer, "none")
    assert engine.encode(moved).tolist() == expected
    out = np.zeros(3, np.uint32)  # too small for the divided texts: it must not be used
    assert engine.encode(moved, out).tolist() == expected


def test_lengths_with_gaps_and_other_white_space_are_left_to_the_library(tmp_path: Path) -> None:
    for added in ([" " * 4, " " * 2], [" " * 3], ["\n\n"], [" \t"], [" "], ["  ", "\u3000\u3000"]):
        tokenizer, _ = load(file_of("gpt2", added), tmp_path)
        assert isinstance(tokenizer.model, LibraryModel), added
        assert tokenizer.model.why.startswith("it finds")


def test_only_text_that_nfc_leaves_alone_is_found_after_normalizing(tmp_path: Path) -> None:
    for text, is_accepted in (("a>", False), ("|K|", False), ("x`|", False), ("|a", False)):
        tokenizer, _ = load(file_of("gpt2", [text], normalizer="NFC"), tmp_path)
        assert isinstance(tokenizer.model, ByteLevel) == is_accepted, text
        assert is_accepted or "normalized text" in getattr(tokenizer.model, "why", "")


def test_which_ascii_characters_nfc_produces_and_changes() -> None:
    produced, composed = set(), set()
    for code in range(0x80, 0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        character = chr(code)
        produced |= set(filter(str.isascii, unicodedata.normalize("NFC", character)))
        first = unicodedata.normalize("NFD", character)[0]
        if first.isascii() and unicodedata.normalize("NFC", character) == character:
            composed.add(first)
    assert produced == set("K;`")
    assert {one for one in composed if not one.isalpha()} == set("<=>")


def test_bytes_that_text_never_has_need_no_token(tmp_path: Path) -> None:
    ranks = {
        token: rank
        for token, rank in all_pairs(most_ids=30_000).items()
        if not set(token) & set(NEVER_IN_UTF8)
    }
    tokenizer, library = load(file_of("gpt2", RUNS, ranks=ranks, normalizer="NFC"), tmp_path)
    assert len(tokenizer.ranks) < 30_000
    texts = [*texts_with_runs(6, 1000), *hostile_texts(7, 1500)]
    expected = [one for text in texts for one in library.encode(text).ids]
    for name in ("kernel", "fastokens", "tiktoken"):
        assert ids_of(load_engine(name, tokenizer, "none"), texts) == expected


def test_other_bytes_need_a_token() -> None:
    ranks = {bytes([byte]): byte for byte in range(256)}
    for byte, why in ((0x41, "byte 65 is not a token"), (0xFF, "has a byte that is not a token")):
        missing = {token: rank for token, rank in ranks.items() if token != bytes([byte])}
        missing[b"x" + bytes([byte])] = 256
        with pytest.raises(UnsupportedError, match=why):
            check_ids(missing)
        tokenizer = Tokenizer("test", ByteLevel(missing, PATTERNS["gpt2"]), "", 257, 258, "none")
        with pytest.raises(UsageError, match=why):
            choose_engine("kernel", tokenizer)
