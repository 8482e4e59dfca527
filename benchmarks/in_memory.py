"""An engine alone, on one core: text in memory, cut into blocks before the clock starts, no output.

Run as `in_memory.py gigatoken|fastokens|kernel|portable TEXT [RANKS PATTERN]`; `portable` is the
kernel without the instructions of this machine, RANKS a `.tiktoken` file in place of GPT-2's. The
ids of every block are dropped as soon as they are counted, so this is the most the engine can give;
end-of-text ids are part of the count.
"""

from __future__ import annotations

import json
import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import limited_cores

import penstok
from penstok.engines.kernel import KernelEngine
from penstok.engines.tokenizer_json import format_tokenizer_json
from penstok.tokenizers import ByteLevel, load_tokenizer
from penstok.types import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstok.tokenizers import Tokenizer

EOT = b"<|endoftext|>"
# The size at which both engines are fastest: what they write stays in the cache.
BLOCK_BYTES = 2 << 20
SPECIAL = {
    "special": True,
    "normalized": False,
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
}


def iter_blocks(text: bytes) -> Iterator[bytes]:
    """Yield whole documents, each with its end-of-text, in blocks of about `BLOCK_BYTES`."""
    start = 0
    while start < len(text):
        found = text.rfind(EOT, start, start + BLOCK_BYTES)
        # A document longer than a block is a block of its own.
        found = found if found >= 0 else text.find(EOT, start)
        end = found + len(EOT) if found >= 0 else len(text)
        yield text[start:end]
        start = end


@cache
def chosen_tokenizer() -> tuple[Path, str, Tokenizer]:
    """Return the file of ranks, the name of its pattern, and the two as a tokenizer."""
    if len(sys.argv) <= 3:
        path = Path(penstok.__file__).parent / "tokenizers" / "vocab" / "gpt2.tiktoken"
        return path, "gpt2", load_tokenizer("gpt2")
    path, pattern = Path(sys.argv[3]), sys.argv[4]
    num_ranks = len(path.read_bytes().splitlines())
    return path, pattern, load_tokenizer(str(path), pattern=pattern, eot_token=str(num_ranks + 1))


def load_gigatoken(text: bytes) -> tuple[list[Any], Callable[[Any], int]]:
    """Take bytes as they are: end-of-text is a special string of the tokenizer."""
    import gigatoken

    path, pattern, chosen = chosen_tokenizer()
    if pattern == "llama3":
        # It reads these ranks only in the other form.
        model = json.loads(format_tokenizer_json(ByteLevel(chosen.ranks, chosen.pattern)))
        model["added_tokens"] = [{"id": chosen.eot_id, "content": EOT.decode(), **SPECIAL}]
        tokenizer = gigatoken.Tokenizer.from_json(json.dumps(model))
    else:
        tokenizer = gigatoken.Tokenizer.from_tiktoken(path, pattern, {EOT.decode(): chosen.eot_id})

    def encode(block: bytes) -> int:
        ids = tokenizer.encode_batch([block], parallel=False)
        return len(ids.layout.content.data)

    # The first call loads more modules, which is start-up too.
    encode(b"the first call")
    return list(iter_blocks(text)), encode


def load_fastokens(text: bytes) -> tuple[list[Any], Callable[[Any], int]]:
    """Take lists of `str`; decoding is Penstok's cost, so it is done before the clock starts."""
    import fastokens

    _, _, chosen = chosen_tokenizer()
    with limited_cores(1):
        tokenizer = fastokens.Tokenizer.from_json_str(
            format_tokenizer_json(ByteLevel(chosen.ranks, chosen.pattern))
        )
        tokenizer.encode_batch_flat(["the first call", "makes the thread pool"])

    def encode(documents: list[str]) -> int:
        ids, _ = tokenizer.encode_batch_flat(documents)
        return len(np.frombuffer(ids, np.uint32)) + len(documents)

    separator = EOT.decode()
    blocks = (block.decode().removesuffix(separator) for block in iter_blocks(text))
    return [block.split(separator) for block in blocks], encode


def load_kernel(text: bytes, isa: str | None = None) -> tuple[list[Any], Callable[[Any], int]]:
    """Take documents as ranges of bytes; end-of-text ids in place, as they are written."""
    engine = KernelEngine(chosen_tokenizer()[2], "append", isa=isa)

    def encode(block: Block) -> int:
        return len(engine.encode(block))

    return [_block_of(block.removesuffix(EOT)) for block in iter_blocks(text)], encode


def _block_of(text: bytes) -> Block:
    lengths = [len(document) for document in text.split(EOT)]
    ends = np.cumsum([length + len(EOT) for length in lengths]) - len(EOT)
    every = np.ones(len(lengths), np.bool_)
    starts = ends - np.array(lengths, np.int64)
    return Block(memoryview(text), starts, ends, every, every, ends)


def main() -> None:
    loaders: dict[str, Callable[[bytes], tuple[list[Any], Callable[[Any], int]]]] = {
        "gigatoken": load_gigatoken,
        "fastokens": load_fastokens,
        "kernel": load_kernel,
        "portable": partial(load_kernel, isa="portable"),
    }
    load = loaders[sys.argv[1]]
    blocks, encode = load(Path(sys.argv[2]).read_bytes())
    started = time.process_time()
    num_tokens = sum(map(encode, blocks))
    seconds = time.process_time() - started
    print(json.dumps({"tokens": num_tokens, "encode_cpu_seconds": seconds}))


if __name__ == "__main__":
    main()
