"""Engines: from blocks to ids. Which one ran never shows in the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.engines.base import ENGINES
from penstok.errors import UsageError
from penstok.kernel import KernelUnavailableError
from penstok.tokenizers import ByteLevel
from penstok.tokenizers.vocabulary import GPT2_PATTERN
from penstok.types import MemoryNeeds

if TYPE_CHECKING:
    from penstok.engines.base import Engine
    from penstok.tokenizers import LibraryModel, Tokenizer
    from penstok.types import EotPlace
    from penstok.worker.memory import MemoryShare

__all__ = ["choose_engine", "engine_needs", "load_engine", "longest_document", "name_reference"]

# The shapes of tokenizer.json files with which fastokens gave the ids of `tokenizers` everywhere;
# `tests/parity/test_tokenizers.py` proves each, and prints the shape of one that is not here.
PROVED_SHAPES = frozenset(
    {
        "9c0158798c49857c",  # Llama 2, Mistral 7B
        "0ec49a22318a5593",  # Gemma
        "1009c5d158225623",  # DeepSeek V3
    }
)


# What a worker needs at the least, block and unit buffers included, and what one block of the
# worst text may add; measured on fresh workers and hostile text (ADR 4), with GPT-2.
_NEEDS = {
    "kernel": MemoryNeeds(least_bytes=200 << 20, block_bytes=32 << 20),
    "fastokens": MemoryNeeds(least_bytes=400 << 20, block_bytes=112 << 20),
    "tiktoken": MemoryNeeds(least_bytes=260 << 20, block_bytes=112 << 20),
    "tokenizers": MemoryNeeds(least_bytes=420 << 20, block_bytes=16 << 20),
    "sentencepiece": MemoryNeeds(least_bytes=260 << 20, block_bytes=16 << 20),
}
# For each id above GPT-2's, and for each byte of a file that a library reads.
_ID_BYTES = {"kernel": 500, "fastokens": 1800, "tiktoken": 1000, "tokenizers": 1600}
_CONTENT_BYTES = 20
_NORMALIZER_BYTES = 128 << 20
_GPT2_IDS = 50_257
# What a document takes that is encoded as a whole, for each of its bytes (ADR 20).
_DOCUMENT_BYTES = {"fastokens": 60, "tokenizers": 220, "sentencepiece": 60}
# How long a document may be in the least memory.
_DOCUMENT_ROOM = 1 << 20
# Longer records are refused when they are read.
_LONGEST_BYTES = 64 << 20


# fastokens takes it for white space in the patterns of cl100k and o200k (0.3.5).
_TAKEN_FOR_SPACE = "\u180e"


def engine_needs(name: str, tokenizer: Tokenizer) -> MemoryNeeds:
    """Return what a worker with an engine needs."""
    needs, model = _NEEDS[name], tokenizer.model
    if isinstance(model, ByteLevel):
        more = _ID_BYTES[name] * max(model.num_ids - _GPT2_IDS, 0)
        # Another library is loaded, and one worker compares with it.
        more += 0 if model.is_plain else _NORMALIZER_BYTES
    else:
        more = _CONTENT_BYTES * len(model.content)
    return MemoryNeeds(needs.least_bytes + more, needs.block_bytes)


def longest_document(name: str, tokenizer: Tokenizer, share: MemoryShare) -> int:
    """Return how long a document may be that is encoded as a whole."""
    room = share.limit_bytes - engine_needs(name, tokenizer).least_bytes
    more = room // _DOCUMENT_BYTES.get(name, 1)
    return min(_DOCUMENT_ROOM + more, _LONGEST_BYTES)


def name_reference(tokenizer: Tokenizer) -> str:
    """Return the engine whose ids are right by definition."""
    model = tokenizer.model
    if isinstance(model, ByteLevel):
        return "tiktoken" if model.is_plain else "tokenizers"
    return model.library


def choose_engine(name: str, tokenizer: Tokenizer) -> tuple[str, str]:
    """Resolve `auto` to the fastest engine that is proved for a tokenizer.

    Returns the engine, and why a faster one is not used.

    Raises:
        UsageError: If an engine was asked for that cannot be used.
    """
    if name not in ("auto", *ENGINES):
        raise UsageError(
            f"unknown engine `{name}`; known: auto, {', '.join(ENGINES)}",
            where="--engine",
            next_step="pass `--engine auto`",
        )
    model = tokenizer.model
    if not isinstance(model, ByteLevel):
        return _choose_for_library(name, tokenizer, model)
    if name == "sentencepiece":
        raise _cannot(name, tokenizer, "it is no SentencePiece model")
    if name not in ("auto", "kernel"):
        return name, ""
    from penstok.engines.kernel import KernelEngine

    try:
        # Made once here, so that a machine on which it fails its self-test is known at once.
        KernelEngine(tokenizer, "append", table_bytes=1 << 16)
    except KernelUnavailableError as error:
        if name == "kernel":
            raise
        return "fastokens", error.what
    return "kernel", ""


def _choose_for_library(name: str, tokenizer: Tokenizer, model: LibraryModel) -> tuple[str, str]:
    own = model.library
    if name in ("kernel", "tiktoken") or (name in ENGINES[-2:] and name != own):
        raise _cannot(name, tokenizer, model.why)
    is_proved = own == "tokenizers" and model.shape in PROVED_SHAPES
    if name == "fastokens" and not is_proved:
        raise _cannot(name, tokenizer, "it was not proved to give the same ids")
    if name == "auto":
        name = "fastokens" if is_proved else own
    return name, f"the kernel cannot encode with `{tokenizer.name}` exactly: {model.why}"


def _cannot(name: str, tokenizer: Tokenizer, why: str) -> UsageError:
    return UsageError(
        f"engine `{name}` cannot encode with `{tokenizer.name}` exactly: {why}",
        where="--engine",
        next_step="pass `--engine auto`",
    )


def load_engine(name: str, tokenizer: Tokenizer, eot: EotPlace) -> Engine:
    """Make the engine called `name`."""
    engine = _load(name, tokenizer, eot)
    model, reference = tokenizer.model, name_reference(tokenizer)
    if not isinstance(model, ByteLevel) or name == reference:
        return engine
    if name == "fastokens" and model.pattern != GPT2_PATTERN:
        from penstok.engines.prepared import GuardedEngine

        engine = GuardedEngine(engine, lambda: _load("tiktoken", tokenizer, eot), _TAKEN_FOR_SPACE)
    if model.normalizer is not None:
        from penstok.engines.prepared import NormalizedEngine

        engine = NormalizedEngine(engine)
    if model.added:
        from penstok.engines.added import AddedTokensEngine

        engine = AddedTokensEngine(engine, model.added)
    return engine


def _load(name: str, tokenizer: Tokenizer, eot: EotPlace) -> Engine:
    if name == "kernel":
        from penstok.engines.kernel import KernelEngine

        return KernelEngine(tokenizer, eot)
    if name == "fastokens":
        from penstok.engines.fastokens import FastokensEngine

        return FastokensEngine(tokenizer, eot)
    if name == "tiktoken":
        from penstok.engines.tiktoken import TiktokenEngine

        return TiktokenEngine(tokenizer, eot)
    from penstok.engines.library import SentencePieceEngine, TokenizersEngine

    kind = TokenizersEngine if name == "tokenizers" else SentencePieceEngine
    return kind(tokenizer, eot)
