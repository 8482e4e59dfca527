"""Finds the files of the tokenizer that `-t` names: a path, a folder, or an id of the hub.

It reads whole files, which are small, and does not parse them; `load` does. It downloads from the
Hugging Face hub only what is not in the hub's cache.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstok.errors import UsageError

__all__ = ["TokenizerFile", "find_file", "is_hub_id"]

_CONFIG = "tokenizer_config.json"
# In order of preference in a folder.
_NAMES = ("tokenizer.json", "tokenizer.model")
_SUFFIXES = (".json", ".tiktoken", ".model")
_HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*(@[\w./-]+)?")
# A line of a `.tiktoken` file; Llama 3's is named like a SentencePiece model.
_RANKS_LINE = re.compile(rb"[A-Za-z0-9+/]+=* [0-9]+\s")
# The largest files in use have 30 MB; parsing one takes ten times its size in memory.
_MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """A file, its kind, and the content of the configuration beside it."""

    path: Path
    kind: Literal["ranks", "huggingface", "sentencepiece"]
    content: bytes
    config: bytes | None = None


def is_hub_id(name: str) -> bool:
    """Tell whether a name can be an id of the hub: owner, name and an optional revision."""
    return _HUB_ID.fullmatch(name) is not None and not name.endswith(_SUFFIXES)


def find_file(name: str) -> TokenizerFile | None:
    """Read a tokenizer from a path or from the hub; None if the name is neither."""
    path = Path(name)
    if path.is_dir():
        found = next((path / each for each in _NAMES if (path / each).is_file()), None)
        if found is None:
            raise UsageError(
                f"the folder has none of {', '.join(_NAMES)}",
                where=name,
                next_step="pass the tokenizer's file",
            )
        return _read(found)
    if path.exists():
        return _read(path)
    # A name inside an existing folder is a mistyped path: do not wait for the hub.
    return _read(_download(name)) if is_hub_id(name) and not path.parent.exists() else None


def _read(path: Path) -> TokenizerFile:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_FILE_BYTES:
            raise UsageError(
                f"not a tokenizer: not a regular file, or larger than {_MAX_FILE_BYTES >> 20} MiB",
                where=str(path),
                next_step="pass a `tokenizer.json`, a `.tiktoken` or a SentencePiece `.model` file",
            )
        content = path.read_bytes()
        config = path.with_name(_CONFIG)
        has_config = path.name in _NAMES and config.is_file()
        return TokenizerFile(
            path, _kind_of(path, content), content, config.read_bytes() if has_config else None
        )
    except OSError as error:
        raise UsageError(
            f"the tokenizer cannot be read: {error.strerror}",
            where=str(path),
            next_step="check the file with `ls -l`",
        ) from error


def _kind_of(path: Path, content: bytes) -> Literal["ranks", "huggingface", "sentencepiece"]:
    if path.suffix == ".json":
        return "huggingface"
    if path.suffix == ".tiktoken":
        return "ranks"
    if ".model" in path.suffixes:
        return "ranks" if _RANKS_LINE.match(content) else "sentencepiece"
    raise UsageError(
        f"a tokenizer cannot be read from a `{path.suffix}` file",
        where=str(path),
        next_step="pass a `tokenizer.json`, a `.tiktoken` or a SentencePiece `.model` file",
    )


# ---- the hub ----


def _download(name: str) -> Path:
    """Return the tokenizer's file in the hub's cache, downloaded if it is missing."""
    try:
        import huggingface_hub
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    except ImportError as error:
        raise UsageError(
            f"`{name}` is not a file, and loading it from the hub needs `huggingface_hub`",
            where="--tokenizer",
            next_step="pip install 'penstok[hf]', or pass the path of a tokenizer",
        ) from error

    repo, _, revision = name.partition("@")

    def find(file: str, *, cached: bool) -> Path | None:
        try:
            return Path(
                huggingface_hub.hf_hub_download(
                    repo, file, revision=revision or None, local_files_only=cached
                )
            )
        except LocalEntryNotFoundError:
            if cached:
                return None
            raise
        except EntryNotFoundError:
            return None

    try:
        for cached in (True, False):
            for file in _NAMES:
                if (found := find(file, cached=cached)) is not None:
                    # Without it the begin-of-text token could be lost: the hub must confirm that
                    # there is no such file.
                    if find(_CONFIG, cached=True) is None:
                        find(_CONFIG, cached=False)
                    return found
    except (OSError, ValueError) as error:
        raise _download_error(name, repo, error) from error
    raise UsageError(
        f"`{name}` on the hub has none of {', '.join(_NAMES)}",
        where="--tokenizer",
        next_step="pass the path of a tokenizer",
    )


def _download_error(name: str, repo: str, error: Exception) -> UsageError:
    reason = str(error).strip().splitlines() or [""]
    return UsageError(
        f"`{name}` is not a file, not in the hub's cache, and cannot be downloaded: "
        f"{type(error).__name__}: {reason[0]}",
        where="--tokenizer",
        next_step=f"log in (`hf auth login`) if it is gated; or, on a machine with a network, run "
        f"`hf download {repo} {_NAMES[0]} {_CONFIG} --local-dir my`, copy `my` here and pass "
        "`-t my`",
    )
