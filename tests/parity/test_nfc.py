"""Text that passes the kernel's check is NFC to Python and `tokenizers`; real text passes."""

from __future__ import annotations

import json
import os
import random
import sys
import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support import EXAMPLES, ROOT
from tokenizers import normalizers

from penstok import _kernel

CORPUS = Path(os.environ.get("PENSTOK_CORPUS", ROOT.parent / "shared" / "corpus"))
SURROGATES = range(0xD800, 0xE000)


def surely_nfc(contents: list[bytes]) -> list[bool]:
    lengths = np.array([len(content) for content in contents], np.int64)
    ends = np.cumsum(lengths)
    out = np.full(len(contents), 7, np.uint8)
    _kernel.surely_nfc(np.frombuffer(b"".join(contents), np.uint8), ends - lengths, ends, out)
    assert set(out.tolist()) <= {0, 1}
    return out.astype(bool).tolist()


def check(texts: list[str]) -> int:
    """Return how many pass, and check that each is NFC."""
    library = normalizers.NFC()
    sure = [
        text
        for text, is_sure in zip(texts, surely_nfc([t.encode() for t in texts]), strict=True)
        if is_sure
    ]
    for text in sure:
        assert unicodedata.is_normalized("NFC", text), ascii(text)
        assert unicodedata.normalize("NFC", text) == text, ascii(text)
        assert library.normalize_str(text) == text, ascii(text)
    return len(sure)


@cache
def assigned() -> list[str]:
    """All characters that this Python knows."""
    found = (chr(code) for code in range(sys.maxunicode + 1) if code not in SURROGATES)
    return [char for char in found if unicodedata.category(char) != "Cn"]


@cache
def marks() -> list[str]:
    """All marks: characters with a combining class, and those that may compose."""
    found = {char for char in assigned() if unicodedata.combining(char)}
    for char in assigned():
        found.update(unicodedata.normalize("NFD", char)[1:])
    return sorted(found)


@cache
def bases() -> list[str]:
    """Characters that compose or decompose, and some that do not."""
    whole = [char for char in assigned() if unicodedata.normalize("NFD", char) != char]
    first = {unicodedata.normalize("NFD", char)[0] for char in whole}
    rng = random.Random(1)
    return [*rng.sample(whole, 600), *sorted(first), *rng.sample(assigned(), 400)]


def test_every_code_point_alone() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1) if code not in SURROGATES]
    below = [char for char in assigned() if ord(char) < 0x40000]
    unchanged = sum(unicodedata.normalize("NFC", char) == char for char in below)
    assert check(every) > 0.9 * unchanged
    assert check([f"a{char}a" for char in every]) > 0.9 * unchanged


@pytest.mark.slow
def test_every_mark_after_many_characters() -> None:
    rng = random.Random(2)
    found = 0
    for mark in marks():
        found += check([base + mark for base in rng.sample(bases(), 300)])
    assert found > 100 * len(marks())


def test_random_runs_of_marks() -> None:
    rng = random.Random(3)
    classes: dict[int, list[str]] = {}
    for mark in marks():
        classes.setdefault(unicodedata.combining(mark), []).append(mark)
    texts = []
    for _ in range(150_000):
        row = [rng.choice(rng.choice(list(classes.values()))) for _ in range(rng.randrange(1, 4))]
        if rng.random() < 0.7:
            row.sort(key=unicodedata.combining)
        texts.append(
            rng.choice(bases()) + "".join(row) + rng.choice(("", "a", rng.choice(bases())))
        )
    assert 20_000 < check(texts) < 120_000


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.txt")), ids=lambda path: path.stem)
def test_the_shipped_texts_pass(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    normal = [unicodedata.normalize("NFC", line) for line in lines]
    assert check(normal) >= 0.98 * len(normal)
    decomposed = [unicodedata.normalize("NFD", line) for line in lines]
    assert check(decomposed) <= sum(map(str.__eq__, normal, decomposed))


def test_text_of_nine_languages_mostly_passes() -> None:
    path = CORPUS / "multi.jsonl.zst"
    if not path.exists():
        pytest.skip("NOT TESTED: no corpus of other languages")
    import zstandard

    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    by_language: dict[str, list[str]] = {}
    for line in lines:
        record = json.loads(line)
        by_language.setdefault(record["id"][:2], []).append(record["text"])
    for language, texts in by_language.items():
        normal = [text for text in texts if unicodedata.is_normalized("NFC", text)]
        assert check(texts) >= 0.98 * len(normal), language


MALFORMED = (
    *(
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\x80",
        b"\xff",
    ),
    *(b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80"),
    *(b"\xc3", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xe4\xb8\xad\xad", b"\xc3\xa9\xa9", b"\xe4a\xad"),
)


def test_malformed_text_never_passes() -> None:
    contents = [
        b"x" * before + sequence + tail
        for sequence in MALFORMED
        for before in range(40)
        for tail in (b"", b"a", b"\xc3\xa9", b"tail" * 8)
    ]
    assert not any(surely_nfc(contents))
    rng = random.Random(4)
    text = "The caf\u00e9 \u4e2d\u6587 \u0440\u0443\u0441 \U0001f600 end " * 3
    damaged = []
    for _ in range(20_000):
        flipped = bytearray(text.encode())
        flipped[rng.randrange(len(flipped))] = rng.randrange(256)
        damaged.append(bytes(flipped[: rng.randrange(1, len(flipped))]))
    for content, is_sure in zip(damaged, surely_nfc(damaged), strict=True):
        if is_sure:
            assert unicodedata.is_normalized("NFC", content.decode()), content


def test_positions_outside_the_text_are_refused() -> None:
    text, out = np.zeros(4, np.uint8), np.zeros(1, np.uint8)
    for start, end in ((-1, 2), (3, 2), (0, 5)):
        with pytest.raises(ValueError, match="outside"):
            _kernel.surely_nfc(text, np.array([start]), np.array([end]), out)
    with pytest.raises(ValueError, match="differ in length"):
        _kernel.surely_nfc(text, np.array([0]), np.array([1]), np.zeros(2, np.uint8))
