"""An engine alone on one core, driven block by block: text in memory, no output.

`measure.EngineProcess` runs it as `engines.py ENGINE TEXT TOKENIZER` and writes requests to its
standard input, one per line, each answered by a line of JSON: `blocks` asks how many blocks the
text has, `load` makes a new engine, and a number encodes that block. Only the encoding is measured:
blocks are brought into the form an engine takes before the first request, and ids are dropped as
soon as they are counted. `bare_loop` has the blocks.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from bare_loop import BLOCK_BYTES, EOT, find_ends, load_kernel, make_block
from usage import Clock

from penstok.engines.tokenizer_json import drop_special_tokens, format_tokenizer_json
from penstok.tokenizers import ByteLevel, load_tokenizer
from penstok.tokenizers.libraries import load_library_model
from penstok.tokenizers.vocabulary import find_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstok.tokenizers import Tokenizer
    from penstok.types import Block

# A pre-release that must not replace the installed version; `make` puts it here.
TOKENIZERS_1 = Path(sys.prefix) / "tokenizers-1.0"
_SPECIAL = {"special": True, "normalized": False, "single_word": False}
_SPECIAL |= {"lstrip": False, "rstrip": False}


@dataclass(frozen=True, slots=True)
class Engine:
    """How a block is given to an engine, and how the engine is made.

    Attributes:
        prepare: Brings whole documents, each with its end-of-text, into the engine's form.
        load: Loads the tokenizer of that name, as a function that encodes a block and returns the
            number of ids, with those of end-of-text.
    """

    prepare: Callable[[bytes], Any]
    load: Callable[[str], Callable[[Any], int]]


def iter_blocks(text: bytes, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Yield whole documents, each with its end-of-text, in blocks of about that size."""
    start = 0
    while start < len(text):
        found = text.rfind(EOT, start, start + block_bytes)
        # A document longer than a block is a block of its own.
        found = found if found >= 0 else text.find(EOT, start)
        end = found + len(EOT) if found >= 0 else len(text)
        yield text[start:end]
        start = end


def _documents_of(block: bytes) -> list[str]:
    return block.decode().removesuffix(EOT.decode()).split(EOT.decode())


@cache
def _tokenizer(name: str) -> Tokenizer:
    # The others do not add a token before each document.
    return load_tokenizer(name, bos="none")


@cache
def _tokenizer_json(name: str) -> str:
    """Write a tokenizer as the other engines read it, with end-of-text as a special string.

    One that is not byte-level keeps its own file, without special strings.
    """
    tokenizer = _tokenizer(name)
    if not isinstance(tokenizer.model, ByteLevel):
        return drop_special_tokens(tokenizer.model.content)
    model = json.loads(format_tokenizer_json(ByteLevel(tokenizer.ranks, tokenizer.pattern)))
    model["added_tokens"] = [{"id": tokenizer.eot_id, "content": EOT.decode(), **_SPECIAL}]
    pattern = find_pattern(tokenizer.pattern)
    if pattern is not None and pattern.splits:
        # As the tokenizer's own file has it. Joined into one expression, gigatoken refuses it and
        # fastokens has a tenth of its speed.
        model["pre_tokenizer"]["pretokenizers"][:1] = map(_split_at, pattern.splits)
    return json.dumps(model)


def _split_at(expression: str) -> dict[str, object]:
    split = {"type": "Split", "pattern": {"Regex": expression}}
    return {**split, "behavior": "Isolated", "invert": False}


def _load_kernel(name: str, isa: str | None = None) -> Callable[[Block], int]:
    engine = load_kernel(_tokenizer(name), isa)
    return lambda block: len(engine.encode(block))


def _load_gigatoken(name: str) -> Callable[[bytes], int]:
    import gigatoken

    engine = gigatoken.Tokenizer.from_json(_tokenizer_json(name))

    def encode(block: bytes) -> int:
        return len(engine.encode_batch([block], parallel=False).layout.content.data)

    # The first call loads more modules.
    encode(b"the first call")
    return encode


def _load_fastokens(name: str) -> Callable[[list[str]], int]:
    import fastokens

    engine = fastokens.Tokenizer.from_json_str(_tokenizer_json(name))
    engine.encode_batch_flat(["the first call", "makes the thread pool"])

    def encode(documents: list[str]) -> int:
        ids, _ = engine.encode_batch_flat(documents)
        return len(np.frombuffer(ids, np.uint32)) + len(documents)

    return encode


def _load_tokenizers(name: str) -> Callable[[list[str]], int]:
    sys.path.insert(0, str(TOKENIZERS_1))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(_tokenizer_json(name))
        file.flush()
        engine: Any = tokenizers.Tokenizer.from_file(file.name)

    def encode(documents: list[str]) -> int:
        found = engine.encode_batch(documents, add_special_tokens=False)
        return sum(map(len, found)) + len(documents)

    return encode


def _load_sentencepiece(name: str) -> Callable[[list[str]], int]:
    engine = load_library_model("sentencepiece", Path(name).read_bytes())

    def encode(documents: list[str]) -> int:
        return sum(len(engine.EncodeAsIds(document)) + 1 for document in documents)

    return encode


def _load_tiktoken(name: str) -> Callable[[list[str]], int]:
    import tiktoken

    tokenizer = _tokenizer(name)
    engine = tiktoken.Encoding(
        name,
        pat_str=tokenizer.pattern,
        mergeable_ranks=tokenizer.ranks,
        special_tokens={},
    )

    def encode(documents: list[str]) -> int:
        return sum(len(engine.encode_ordinary(document)) + 1 for document in documents)

    return encode


def _kernel_block(block: bytes) -> Block:
    return make_block(memoryview(block), find_ends(block, len(block)))


ENGINES = {
    "kernel": Engine(_kernel_block, _load_kernel),
    "avx2": Engine(_kernel_block, partial(_load_kernel, isa="avx2")),
    "portable": Engine(_kernel_block, partial(_load_kernel, isa="portable")),
    "gigatoken": Engine(bytes, _load_gigatoken),
    "fastokens": Engine(_documents_of, _load_fastokens),
    "tokenizers": Engine(_documents_of, _load_tokenizers),
    "tiktoken": Engine(_documents_of, _load_tiktoken),
    "sentencepiece": Engine(_documents_of, _load_sentencepiece),
}


def pin() -> None:
    """Stay on one core: threads of an engine would otherwise run beside each other."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main() -> None:
    name, text, tokenizer = sys.argv[1:]
    pin()
    engine = ENGINES[name]
    texts = list(iter_blocks(Path(text).read_bytes()))
    blocks = [engine.prepare(block) for block in texts]
    encode: Callable[[Any], int] = len
    for line in sys.stdin:
        request = line.strip()
        answer: object = len(blocks)
        if request == "load":
            del encode
            encode = engine.load(tokenizer)
        elif request != "blocks":
            block = blocks[int(request)]
            clock = Clock()
            num_tokens = encode(block)
            answer = clock.stop(len(texts[int(request)]), num_tokens).row()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
