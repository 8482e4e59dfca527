"""Who is compared: how each command and each engine is started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from measure import Command, EngineProcess

import penstok

if TYPE_CHECKING:
    from corpora import Text

KERNEL = "kernel"
KERNEL_AVX2 = "kernel, AVX2"
PORTABLE = "kernel, portable"
GIGATOKEN = "gigatoken"
FASTOKENS = "fastokens"
TOKENIZERS = "tokenizers 1.0"
TIKTOKEN = "tiktoken"
SENTENCEPIECE = "sentencepiece"

PYTHON = "python alone"
PLAIN = "plain script"
SCRIPT = "gigatoken script"
IN_MEMORY = "gigatoken, not written"
BARE = "bare loop"
TWO_BARE = "bare loop, two copies"
STEADY = "penstok -j 1, start-up apart"
NO_INDEX = "penstok -j 1, no index"
COPY = "cp"
DECOMPRESSION = "decompression alone"

# As a user starts it.
PENSTOK = str(Path(sys.prefix) / "bin" / "penstok")

_HERE = Path(__file__).resolve().parent
_RANKS = Path(penstok.__file__).parent / "tokenizers" / "vocab" / "gpt2.tiktoken"
# The name that `engines` knows, and of how many blocks one is enough.
_ENGINES = {
    KERNEL: ("kernel", 1),
    KERNEL_AVX2: ("avx2", 1),
    PORTABLE: ("portable", 1),
    GIGATOKEN: ("gigatoken", 1),
    FASTOKENS: ("fastokens", 1),
    TOKENIZERS: ("tokenizers", 2),
    TIKTOKEN: ("tiktoken", 20),
    SENTENCEPIECE: ("sentencepiece", 20),
}


def engine(name: str, text: Text, tokenizer: str = "gpt2") -> EngineProcess:
    """Start an engine alone, on one core; a slow one does not encode every block."""
    known_as, stride = _ENGINES[name]
    return EngineProcess(name, known_as, text, tokenizer, stride)


def workers(num_workers: int) -> str:
    """Name `penstok tokenize` by its worker count."""
    return f"penstok -j {num_workers}"


def tokenize(
    text: Text, num_workers: int, *flags: str, name: str = "", num_cores: int | None = None
) -> Command:
    """Run the real command: it reads, decodes, encodes, splits, hashes, writes and syncs."""
    words = ["tokenize", str(text.path), "-o", "OUTPUT/tokens", "-j", str(num_workers), *flags]
    manners = ["--priority", "normal", "--no-progress", "--json"]
    command = [PENSTOK, *words, *manners]
    return Command(name or workers(num_workers), text.name, [command], text.num_bytes, num_cores)


def plain_script(text: Text) -> Command:
    """Run the script that people write: tiktoken in one process, ids written."""
    command = _script("plain_script.py", _RANKS, text.path, "OUTPUT/train.bin")
    return Command(PLAIN, text.name, [command], text.num_bytes)


def gigatoken_script(text: Text, *, is_written: bool = True) -> Command:
    """Run gigatoken on all cores, here two of them; ids are written, or dropped."""
    target = ("OUTPUT/train.bin",) if is_written else ()
    command = _script("gigatoken_script.py", _RANKS, text.path, *target)
    name = SCRIPT if is_written else IN_MEMORY
    return Command(name, text.name, [command], text.num_bytes, num_cores=2)


def bare_loop(text: Text, num_copies: int = 1, *, is_self_timed: bool = False) -> Command:
    """Run the bare loop, or two at once that share the text."""
    parts = range(1, num_copies + 1)
    commands = [
        _script("bare_loop.py", text.path, f"OUTPUT/{part}.bin", f"{part}/{num_copies}")
        for part in parts
    ]
    name = BARE if num_copies == 1 else TWO_BARE
    return Command(name, text.name, commands, text.num_bytes, 2, is_self_timed=is_self_timed)


def decompress(text: Text) -> Command:
    """Decompress a text and drop it."""
    command = _script("decompress.py", text.path)
    return Command(DECOMPRESSION, text.name, [command], text.num_bytes, is_self_timed=True)


def convert(output: Path, kind: str, text: str, num_bytes: int) -> Command:
    """Write another format of a finished output; the size is that of its tokens."""
    command = [PENSTOK, "convert", str(output), "--format", kind, "-o", f"OUTPUT/{kind}", "--json"]
    return Command(f"convert to {kind}", text, [command], num_bytes)


def copy(output: Path, text: str, num_bytes: int) -> Command:
    """Copy the token files, of uint16, and sync them: the least that a conversion does."""
    report = f'{{"tokens": {num_bytes // 2}}}'
    script = f"cp --reflink=never \"$0\"/*.bin OUTPUT && sync -f OUTPUT && echo '{report}'"
    return Command(COPY, text, [["sh", "-c", script, str(output)]], num_bytes)


def small_command(*words: str, name: str = "") -> Command:
    """Run something that works on no text, named by its first words unless it has a name."""
    return Command(name or " ".join(words[:2]).replace(PENSTOK, "penstok"), "", [[*words]])


def _script(name: str, *arguments: object) -> list[str]:
    return [sys.executable, str(_HERE / name), *map(str, arguments)]
