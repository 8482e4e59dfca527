"""The engines: one row per engine, and which one encodes with a tokenizer.

An engine's name is tested nowhere else. What an engine can encode is decided in its own file;
memory figures are here, where `divide_memory` gets them from.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstok.errors import UsageError
from penstok.tokenizers import ByteLevel
from penstok.types import MemoryNeeds, Struct

if TYPE_CHECKING:
    from penstok.engines.base import Engine, EngineClass
    from penstok.tokenizers import LibraryModel, Tokenizer
    from penstok.types import EotPosition

__all__ = [
    "ENGINES",
    "EngineInfo",
    "choose_engine",
    "engine_needs",
    "load_engine",
    "loads_library",
    "max_document_bytes",
    "name_reference",
]

# For each byte of a tokenizer file that a library reads.
_CONTENT_BYTES = 20
# The library `tokenizers`, which normalizes, and which one worker compares with.
_NORMALIZER_BYTES = 128 << 20
# What dividing a block at runs of white space takes, if there is one between every two letters.
_RUNS_BYTES = 112 << 20
_GPT2_IDS = 50_257
# The library `sentencepiece`, for a block of text that has symbols: 52 bytes for each byte.
_SYMBOLS_BYTES = 128 << 20
# The longest document that is encoded as a whole in the least memory.
_LEAST_DOCUMENT_BYTES = 1 << 20
# Readers refuse longer records.
_MAX_RECORD_BYTES = 64 << 20


class EngineInfo(Struct, frozen=True):
    """One engine.

    Attributes:
        name: The name that `--engine` takes.
        class_name: Its class, in the module of `penstok.engines` that has the engine's name. It is
            imported when it is needed.
        needs: The memory of a worker with GPT-2, buffers included, and what one block of the worst
            text may add; measured on fresh workers and hostile text (ADR 4).
        id_bytes: What each id above GPT-2's adds.
        document_bytes: What each byte of a document adds that is encoded as a whole (ADR 20).
        encodes_characters: Whether it uses the ranks of a `CharacterBpe` instead of a library.
    """

    name: str
    class_name: str
    needs: MemoryNeeds
    id_bytes: int = 0
    document_bytes: int = 1
    encodes_characters: bool = False

    def load_class(self) -> EngineClass:
        """Import the engine's class."""
        found: EngineClass = getattr(import_module(f"penstok.engines.{self.name}"), self.class_name)
        return found


# The fastest first: `auto` is the first that can encode with the tokenizer.
ENGINES = (
    EngineInfo(
        "kernel",
        "KernelEngine",
        MemoryNeeds(worker_bytes=200 << 20, block_bytes=32 << 20),
        id_bytes=500,
        encodes_characters=True,
    ),
    EngineInfo(
        "fastokens",
        "FastokensEngine",
        MemoryNeeds(worker_bytes=400 << 20, block_bytes=112 << 20),
        id_bytes=1800,
        document_bytes=60,
    ),
    EngineInfo(
        "tiktoken",
        "TiktokenEngine",
        MemoryNeeds(worker_bytes=260 << 20, block_bytes=112 << 20),
        id_bytes=1000,
    ),
    EngineInfo(
        "tokenizers",
        "TokenizersEngine",
        MemoryNeeds(worker_bytes=420 << 20, block_bytes=16 << 20),
        id_bytes=1600,
        document_bytes=220,
    ),
    EngineInfo(
        "sentencepiece",
        "SentencePieceEngine",
        MemoryNeeds(worker_bytes=260 << 20, block_bytes=16 << 20),
        document_bytes=60,
    ),
)
_BY_NAME = {engine.name: engine for engine in ENGINES}


def choose_engine(name: str, tokenizer: Tokenizer) -> tuple[str, str]:
    """Resolve `auto` to the fastest engine that is proved for a tokenizer.

    Returns the engine, and why a faster one is not used.

    Raises:
        UsageError: If the requested engine is unknown or cannot be used.
    """
    if name == "auto":
        return _choose_fastest(tokenizer)
    if name not in _BY_NAME:
        raise UsageError(
            f"unknown engine `{name}`; known: auto, {', '.join(_BY_NAME)}",
            where="--engine",
            next_step="pass `--engine auto`",
        )
    obstacle = _BY_NAME[name].load_class().find_obstacle(tokenizer)
    if obstacle is not None:
        raise obstacle
    return name, ""


def _choose_fastest(tokenizer: Tokenizer) -> tuple[str, str]:
    why_not_faster = ""
    for engine in ENGINES:
        obstacle = engine.load_class().find_obstacle(tokenizer)
        if obstacle is None:
            return engine.name, why_not_faster
        why_not_faster = why_not_faster or obstacle.what
    raise UsageError(
        f"no engine can encode with `{tokenizer.name}`: {why_not_faster}",
        where="--tokenizer",
        next_step="pass another tokenizer, such as `-t gpt2`",
    )


def name_reference(tokenizer: Tokenizer) -> str:
    """Return the engine whose ids are correct by definition."""
    return next(each.name for each in ENGINES if each.load_class().is_reference(tokenizer))


def load_engine(name: str, tokenizer: Tokenizer, eot: EotPosition) -> Engine:
    """Make the engine called `name`.

    Only the reference normalizes text and finds added tokens itself; it is done for the others.
    """
    kind = _BY_NAME[name].load_class()
    engine, model = kind(tokenizer, eot), tokenizer.model
    if not isinstance(model, ByteLevel) or kind.is_reference(tokenizer):
        return engine
    runs = model.white_space_runs
    if runs:
        from penstok.engines.white_space_runs import WhiteSpaceRunsEngine

        engine = WhiteSpaceRunsEngine(engine, runs)
    if model.normalizer is not None:
        from penstok.engines.normalization import NormalizingEngine

        engine = NormalizingEngine(engine)
    others = {text: one for text, one in model.added.items() if text not in runs}
    if others:
        from penstok.engines.added_tokens import AddedTokensEngine

        engine = AddedTokensEngine(engine, others)
    return engine


def engine_needs(name: str, tokenizer: Tokenizer) -> MemoryNeeds:
    """Return the memory that a worker with an engine needs."""
    engine, model = _BY_NAME[name], tokenizer.model
    if isinstance(model, ByteLevel):
        more = engine.id_bytes * max(model.num_ids - _GPT2_IDS, 0)
        more += 0 if model.is_plain else _NORMALIZER_BYTES
        block_bytes = _RUNS_BYTES if model.white_space_runs else 0
    elif model.bpe is not None and engine.encodes_characters:
        more = engine.id_bytes * max(model.num_ids - _GPT2_IDS, 0) + len(model.content)
        more += _SYMBOLS_BYTES if model.bpe.symbols else 0
        block_bytes = 0
    else:
        more, block_bytes = _CONTENT_BYTES * len(model.content), 0
    return engine.needs + MemoryNeeds(worker_bytes=more, block_bytes=block_bytes)


def loads_library(name: str, model: LibraryModel) -> bool:
    """Tell whether an engine loads the library of a model to encode with it."""
    return model.bpe is None or bool(model.bpe.symbols) or not _BY_NAME[name].encodes_characters


def max_document_bytes(name: str, tokenizer: Tokenizer, limit_bytes: int) -> int:
    """Return how long a document may be that a worker encodes as a whole in its memory share."""
    spare_bytes = limit_bytes - engine_needs(name, tokenizer).worker_bytes
    more = spare_bytes // _BY_NAME[name].document_bytes
    return min(_LEAST_DOCUMENT_BYTES + more, _MAX_RECORD_BYTES)
