"""Finds the files of the tokenizer that `-t` names: a path, a folder, or an id of the hub.

It reads whole files, which are small, and does not parse them; `load` does. It downloads from the
Hugging Face hub only what is not in the hub's cache.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Literal

from penstok.errors import UsageError, quoted
from penstok.types import Struct

__all__ = ["TokenizerFile", "find_file", "is_hub_id"]

_CONFIG = "tokenizer_config.json"
# In order of preference in a folder.
_NAMES = ("tokenizer.json", "tokenizer.model")
_SUFFIXES = (".json", ".tiktoken", ".model")
_HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*(@[\w./-]+)?")
# A line of a `.tiktoken` file; Llama 3's is named like a SentencePiece model.
_RANKS_LINE = re.compile(rb"[A-Za-z0-9+/]+=* [0-9]+\s")
_FILES = "a `tokenizer.json` or its folder, a `.tiktoken` or a SentencePiece `.model` file"
_MAX_SHOWN = 8
_RETRY_SECONDS = 1.0
# Above every level of `logging`.
_SILENT = 100
# The largest files in use have 30 MB; parsing one takes ten times its size in memory.
_MAX_FILE_BYTES = 64 << 20


class TokenizerFile(Struct, frozen=True):
    """A file, its kind, and the content of the configuration beside it."""

    path: Path
    kind: Literal["ranks", "huggingface", "sentencepiece"]
    content: bytes
    config: bytes | None = None


def is_hub_id(name: str) -> bool:
    """Tell whether a name can be an id of the hub: owner, name and an optional revision."""
    return _HUB_ID.fullmatch(name) is not None and not name.endswith(_SUFFIXES)


def find_file(name: str) -> TokenizerFile | None:
    """Read a tokenizer from a path or from the hub; None if the name is neither.

    Raises:
        UsageError: If the name is a path, and there is no tokenizer that can be read.
    """
    if not name.strip() or "\0" in name:
        raise UsageError(
            "the name of the tokenizer is empty" if not name.strip() else "the name has a NUL byte",
            where="--tokenizer",
            next_step=f"pass `-t gpt2`, or {_FILES}",
        )
    if "://" in name:
        raise _remote(name)
    path = _expand(name)
    try:
        if path.is_dir():
            return _read(_find_in_folder(path))
        if path.exists() or path.is_symlink():
            return _read(path)
        has_parent = path.parent.exists()
    except (OSError, RuntimeError) as error:
        # A loop of links is a RuntimeError before Python 3.13.
        raise _unreadable(path, error) from error
    # A name inside an existing folder is a mistyped path: do not wait for the hub.
    if is_hub_id(name) and not has_parent:
        return _read(_download(name))
    if _looks_like_path(name):
        raise _missing(path)
    return None


def _expand(name: str) -> Path:
    """Return a path; the shell does not expand `~` in quotes or after `=`."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def _looks_like_path(name: str) -> bool:
    return "/" in name or name.startswith(("~", ".")) or name.endswith(_SUFFIXES)


def _remote(name: str) -> UsageError:
    """Return the error for a URL; the hub's are names with an address before them."""
    repo = re.fullmatch(r"(?:hf://|https?://huggingface\.co/)([\w.-]+/[\w.-]+).*", name)
    return UsageError(
        f"a tokenizer cannot be read from the URL `{name}`",
        where="--tokenizer",
        next_step=f"pass `-t {repo[1]}`" if repo else "download the file and pass its path",
    )


def _missing(path: Path) -> UsageError:
    """Return the error for a path that does not exist, with what could have been meant."""
    parent = path.parent
    if not parent.is_dir():
        repo = "/".join(path.parts[:2])
        hub = f"; if it is on the Hugging Face hub, pass `-t {repo}`" if is_hub_id(repo) else ""
        nearest = next((each for each in parent.parents if each.is_dir()), Path())
        return UsageError(
            f"the tokenizer `{path}` does not exist: there is no folder `{parent}`",
            where="--tokenizer",
            next_step=f"check the path with `ls {quoted(nearest)}`{hub}",
        )
    import difflib

    names = _list(parent)
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.75)
    listing = f"check the path with `ls {quoted(parent)}`"
    meant = f"pass `-t {quoted(parent / close[0])}`" if close else listing
    return UsageError(
        f"the tokenizer `{path}` does not exist"
        + (f"; did you mean `{parent / close[0]}`?" if close else ""),
        where="--tokenizer",
        next_step=meant,
    )


def _find_in_folder(folder: Path) -> Path:
    """Return the tokenizer's file in a folder."""
    found = next((folder / each for each in _NAMES if (folder / each).is_file()), None)
    if found is not None:
        return found
    names = _list(folder)
    files = [name for name in names if name.endswith((".tiktoken", ".model"))]
    shown = ", ".join(f"`{name}`" for name in names[:_MAX_SHOWN])
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    has = f"it has {shown}{more}" if names else "it is empty"
    if {"vocab.json", "merges.txt"} <= set(names):
        step = (
            "write a `tokenizer.json` with `transformers`: "
            "`AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)`"
        )
    elif len(files) == 1:
        step = f"pass the file: `-t {quoted(folder / files[0])}`"
    else:
        step = f"pass a folder with one of them, or {_FILES}"
    raise UsageError(
        f"the folder has none of {', '.join(_NAMES)}; {has}", where=str(folder), next_step=step
    )


def _list(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def _read(path: Path) -> TokenizerFile:
    try:
        if path.is_symlink() and not path.exists():
            raise UsageError(
                f"the tokenizer is a link to `{path.readlink()}`, which does not exist",
                where=str(path),
                next_step=f"pass {_FILES}",
            )
        if not path.is_file() or path.stat().st_size > _MAX_FILE_BYTES:
            raise UsageError(
                f"not a tokenizer: not a regular file, or larger than {_MAX_FILE_BYTES >> 20} MiB",
                where=str(path),
                next_step=f"pass {_FILES}",
            )
        content = path.read_bytes()
        if not content.strip():
            raise UsageError(
                "not a tokenizer: the file is empty",
                where=str(path),
                next_step="download or copy it again, or pass another file",
            )
        config = path.with_name(_CONFIG)
        has_config = path.name in _NAMES and config.is_file()
        return TokenizerFile(
            path, _kind_of(path, content), content, config.read_bytes() if has_config else None
        )
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError | RuntimeError) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) else "a loop of links"
    return UsageError(
        f"the tokenizer cannot be read: {reason}",
        where=str(path),
        next_step=f"check it with `ls -ld {quoted(path)}`",
    )


def _kind_of(path: Path, content: bytes) -> Literal["ranks", "huggingface", "sentencepiece"]:
    if path.suffix == ".json":
        return "huggingface"
    if path.suffix == ".tiktoken":
        return "ranks"
    if ".model" in path.suffixes:
        return "ranks" if _RANKS_LINE.match(content) else "sentencepiece"
    kind = f"a `{path.suffix}` file" if path.suffix else "a file without a suffix"
    raise UsageError(
        f"a tokenizer cannot be read from {kind}",
        where=str(path),
        next_step=f"pass {_FILES}",
    )


# ---- the hub ----


def _download(name: str) -> Path:
    """Return the tokenizer's file in the hub's cache, downloaded if it is missing."""
    try:
        import huggingface_hub
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
        from huggingface_hub.utils import logging
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

    # The library writes of every retry; the error at the end says it all.
    level = logging.get_verbosity()
    logging.set_verbosity(_SILENT)
    try:
        for cached in (True, False):
            if not cached:
                _refuse_without_network(name, repo)
            for file in _NAMES:
                if (found := find(file, cached=cached)) is not None:
                    # Without it the begin-of-text token could be lost: the hub must confirm that
                    # there is no such file.
                    if find(_CONFIG, cached=True) is None:
                        find(_CONFIG, cached=False)
                    return found
    except (OSError, ValueError) as error:
        raise _download_error(name, repo, error) from error
    finally:
        logging.set_verbosity(level)
    raise UsageError(
        f"`{name}` on the hub has none of {', '.join(_NAMES)}",
        where="--tokenizer",
        next_step="pass the path of a tokenizer",
    )


def _refuse_without_network(name: str, repo: str) -> None:
    """Ask the hub for a file, twice; the library itself would try for half a minute."""
    if _find_connection_error(repo) is not None:
        time.sleep(_RETRY_SECONDS)
        if (error := _find_connection_error(repo)) is not None:
            raise _download_error(name, repo, error) from error


def _find_connection_error(repo: str) -> Exception | None:
    import huggingface_hub

    try:
        huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(repo, _NAMES[0]))
    except Exception as error:  # noqa: BLE001 its class depends on the library for HTTP
        # All else is an answer, or worth more tries.
        if type(error).__name__ in ("ConnectError", "ConnectionError"):
            return error
    return None


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
