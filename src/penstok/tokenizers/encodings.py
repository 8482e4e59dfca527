"""OpenAI's encodings by name: their ranks, patterns and special tokens.

GPT-2's ranks are part of the package. The others come from tiktoken's cache or are downloaded into
it, and every file is checked against a known digest.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import lru_cache
from pathlib import Path

from penstok.errors import EngineError, UsageError
from penstok.tokenizers.models import ByteLevel, ParsedTokenizer
from penstok.tokenizers.vocabulary import CL100K_PATTERN, GPT2_PATTERN, O200K_PATTERN, parse_ranks
from penstok.types import Struct

__all__ = ["ENCODINGS", "find_encoding", "is_at_hand", "read_encoding"]

_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/"
_PACKAGED = "gpt2.tiktoken"


class _Encoding(Struct, frozen=True):
    """The file of an encoding's ranks, its pattern and its special tokens."""

    file: str
    sha256: str
    pattern: str
    special: dict[str, int]


_GPT2 = _Encoding(
    "r50k_base.tiktoken",
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    GPT2_PATTERN,
    {"<|endoftext|>": 50256},
)
_P50K = _Encoding(
    "p50k_base.tiktoken",
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    GPT2_PATTERN,
    {"<|endoftext|>": 50256},
)
_CL100K = _Encoding(
    "cl100k_base.tiktoken",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    CL100K_PATTERN,
    {
        "<|endoftext|>": 100257,
        "<|fim_prefix|>": 100258,
        "<|fim_middle|>": 100259,
        "<|fim_suffix|>": 100260,
        "<|endofprompt|>": 100276,
    },
)
_O200K = _Encoding(
    "o200k_base.tiktoken",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    O200K_PATTERN,
    {"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
)
_HARMONY_NAMES = {
    199998: "startoftext",
    199999: "endoftext",
    200002: "return",
    200003: "constrain",
    200005: "channel",
    200006: "start",
    200007: "end",
    200008: "message",
    200012: "call",
}
_HARMONY = _Encoding(
    _O200K.file,
    _O200K.sha256,
    _O200K.pattern,
    {
        f"<|{_HARMONY_NAMES.get(token_id, f'reserved_{token_id}')}|>": token_id
        for token_id in range(199998, 201088)
    },
)
ENCODINGS = {
    "gpt2": _GPT2,
    "r50k_base": _GPT2,
    "p50k_base": _P50K,
    "cl100k_base": _CL100K,
    "o200k_base": _O200K,
    "o200k_harmony": _HARMONY,
}


def find_encoding(name: str) -> str | None:
    """Return the encoding for its own name or that of a model; None if there is none."""
    if name in ENCODINGS:
        return name
    import tiktoken.model

    try:
        found = tiktoken.model.encoding_name_for_model(name)
    except KeyError:
        return None
    return found if found in ENCODINGS else None


def is_at_hand(name: str) -> bool:
    """Tell whether an encoding can be read without the network."""
    encoding = ENCODINGS[name]
    cached = None if encoding is _GPT2 else _cache_path(_ADDRESS + encoding.file)
    return encoding is _GPT2 or (cached is not None and cached.is_file())


@lru_cache(maxsize=1)
def read_encoding(name: str) -> ParsedTokenizer:
    """Read an encoding: from the package, tiktoken's cache, or the network, in that order."""
    encoding = ENCODINGS[name]
    content = _read_packaged() if encoding is _GPT2 else _read_cached(name, encoding)
    return ParsedTokenizer(ByteLevel(parse_ranks(content), encoding.pattern), encoding.special)


def _read_packaged() -> bytes:
    content = (Path(__file__).parent / "vocab" / _PACKAGED).read_bytes()
    if hashlib.sha256(content).hexdigest() != _GPT2.sha256:
        raise EngineError(
            f"the vocabulary file `{_PACKAGED}` is damaged",
            where="the installed package",
            next_step="pip install --force-reinstall penstok",
        )
    return content


def _read_cached(name: str, encoding: _Encoding) -> bytes:
    """Read a file as tiktoken does, so that both use the same cache."""
    address = _ADDRESS + encoding.file
    known = _cache_path(address)
    if known is not None and known.is_file():
        content = known.read_bytes()
        if hashlib.sha256(content).hexdigest() == encoding.sha256:
            return content
    import requests
    from tiktoken.load import read_file_cached

    try:
        return read_file_cached(address, encoding.sha256)
    except (OSError, ValueError, requests.RequestException) as error:
        cached = _cache_path(address)
        raise UsageError(
            f"the vocabulary of `{name}` is not in tiktoken's cache and cannot be downloaded: "
            f"{type(error).__name__}",
            where=address,
            next_step=f"download it on another machine and copy it to `{cached}`"
            if cached
            else f"unset TIKTOKEN_CACHE_DIR, or pass `-t {encoding.file} --pattern ...`",
        ) from error


def _cache_path(address: str) -> Path | None:
    """Return where tiktoken caches a file; None if its cache is turned off."""
    default = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", default))
    if not folder:
        return None
    return Path(folder) / hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
