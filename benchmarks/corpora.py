"""The texts of the benchmark: real corpora where they are present, made ready as plain files.

Nothing is written into the tree. Where no corpus is present, the Python standard library's own
sources are used instead; `long` texts are made from the others with changed letters, because an
engine that remembers words would find a repeated text too easy.
"""

from __future__ import annotations

import io
import json
import os
import random
import sysconfig
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CORPORA = ("web", "multi", "code")
STAND_IN = "stdlib"
EOT = b"<|endoftext|>"

_ROOT = Path(__file__).resolve().parent.parent
_START_UP_DOCUMENTS = 5
_HOSTILE_BYTES = 2 * 10**6
# After this many the changes of the letters begin again.
_NUM_COPIES = 1680
_VOWELS = b"aeiou"
_CONSONANTS = bytes(letter for letter in range(ord("a"), ord("z") + 1) if letter not in _VOWELS)


@dataclass(frozen=True, slots=True)
class Text:
    """A file of documents, each followed by `<|endoftext|>`."""

    name: str
    path: Path
    num_bytes: int
    num_documents: int


def find_corpora(names: Iterable[str]) -> list[str]:
    """Return those of the wanted corpora that are present."""
    return [name for name in names if corpus_path(name).exists()]


def write_corpus(name: str, folder: Path, limit_bytes: int | None) -> Text:
    """Write one corpus, or the head of it, as plain text."""
    documents = _iter_stdlib() if name == STAND_IN else _iter_jsonl(corpus_path(name))
    return _write_text(name, _iter_head(documents, limit_bytes), folder)


def write_start_up(text: Text, name: str, folder: Path) -> Text:
    """Write a few documents: what a contender spends on them is its start-up."""
    with text.path.open("rb") as file:
        head = file.read(16 << 20)
    documents = islice(head.split(EOT), min(_START_UP_DOCUMENTS, head.count(EOT)))
    return _write_text(name, documents, folder)


def write_hostile(folder: Path) -> list[Text]:
    """Write texts that no table of words helps with, and that the pattern hardly divides."""
    return [_write_text(name, documents, folder) for name, documents in _hostile_texts().items()]


def write_long(name: str, texts: list[Text], num_bytes: int, folder: Path) -> Text:
    """Write `num_bytes` made of the texts, then of copies with other words."""
    path = folder / f"{name}.txt"
    num_documents, left = 0, num_bytes
    with path.open("wb") as file:
        for copy, text in product(range(_NUM_COPIES), texts):
            changed = _change(text.path.read_bytes(), copy)
            if len(changed) > left:
                changed = changed[: changed.rfind(EOT, 0, left) + len(EOT)]
                left = 0
            left -= file.write(changed)
            num_documents += changed.count(EOT)
            if left <= 0:
                break
        _flush(file)
        return Text(name, path, file.tell(), num_documents)


def _hostile_texts() -> dict[str, list[bytes]]:
    rng = random.Random(1)
    size = _HOSTILE_BYTES

    def letters(alphabet: str, count: int) -> str:
        return "".join(rng.choices(alphabet, k=count))

    words = (letters("abcdefghijklmnopqrstuvwxyz", rng.randrange(4, 13)) for _ in range(size // 9))
    han = "".join(map(chr, range(0x4E00, 0x9FA6)))
    return {
        "one letter": [b"a" * size],
        "DNA": [letters("ACGT", size).encode()],
        "new words": [" ".join(words).encode()],
        "random Han": [letters(han, size // 3).encode()],
        "spaces": [b" " * size],
    }


def _change(text: bytes, copy: int) -> bytes:
    """Exchange letters, differently for each copy; copy 0 is the text itself.

    Vowels stay vowels, so that words stay pronounceable. Beyond ASCII the low four bits of every
    continuation byte are turned, which keeps UTF-8 valid: which of them may follow a lead byte
    is decided by the bits above. Short words may come again, other scripts do every 16 copies.
    """
    if copy == 0:
        return text
    table = bytearray(range(256))
    for letters in (_VOWELS, _CONSONANTS, _VOWELS.upper(), _CONSONANTS.upper()):
        for place, letter in enumerate(letters):
            table[letter] = letters[(place + copy) % len(letters)]
    for byte in range(0x80, 0xC0):
        table[byte] = byte ^ copy % 16
    return text.translate(table).replace(EOT.translate(table), EOT)


def corpus_path(name: str) -> Path:
    """Return where a corpus would be."""
    folder = os.environ.get("PENSTOK_CORPUS") or _ROOT.parent / "shared" / "corpus"
    return Path(folder) / f"bench-{name}.jsonl.zst"


def _iter_jsonl(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        for line in io.BufferedReader(stream):
            yield json.loads(line)["text"].encode()


def _iter_stdlib() -> Iterator[bytes]:
    """Yield the sources of the standard library, leaving out installed packages."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        if "site-packages" not in path.parts and _is_utf8(content):
            yield content


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _iter_head(documents: Iterable[bytes], limit_bytes: int | None) -> Iterator[bytes]:
    left = limit_bytes
    for document in documents:
        if left is not None:
            if left <= 0:
                return
            left -= len(document)
        yield document


def _write_text(name: str, documents: Iterable[bytes], folder: Path) -> Text:
    """Write documents; empty ones and those that hold the separator would be counted unlike."""
    path = folder / f"{name}.txt"
    num_documents = 0
    with path.open("wb") as file:
        for document in documents:
            if document and EOT not in document:
                file.write(document)
                file.write(EOT)
                num_documents += 1
        _flush(file)
        return Text(name, path, file.tell(), num_documents)


def _flush(file: io.BufferedWriter) -> None:
    """Have the text on disk before a clock starts, so that nobody pays for writing it."""
    file.flush()
    os.fsync(file.fileno())
