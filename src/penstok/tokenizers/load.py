"""From a name to a tokenizer.

The content of files is read as data and never run. Where ids cannot be proved to follow from ranks,
the file's own library encodes.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from penstok.errors import UsageError
from penstok.tokenizers.described import Described
from penstok.tokenizers.encodings import ENCODINGS, find_encoding, read_encoding
from penstok.tokenizers.files import find_file
from penstok.tokenizers.huggingface import read_huggingface
from penstok.tokenizers.libraries import try_library
from penstok.tokenizers.models import ByteLevel, LibraryModel, Tokenizer, fingerprint
from penstok.tokenizers.separators import choose_bos, choose_eot
from penstok.tokenizers.templates import read_config
from penstok.tokenizers.vocabulary import PATTERNS, UnsupportedError, check_ids, parse_ranks

if TYPE_CHECKING:
    from penstok.tokenizers.files import TokenizerFile
    from penstok.types import TokenizerRecord

__all__ = ["load_recorded_tokenizer", "load_tokenizer"]


def load_tokenizer(
    name: str, *, eot_token: str | None = None, bos: str = "auto", pattern: str | None = None
) -> Tokenizer:
    """Load a tokenizer by its name, from its file or folder, or from the hub.

    Args:
        name: An encoding or model of OpenAI; the path of a `tokenizer.json`, of a `.tiktoken` or
            SentencePiece `.model` file, or of a folder with one; an id of the hub.
        eot_token: What ends a document, by its text or id; by default what the tokenizer says.
        bos: `none`, or what begins a document, by its text or id; by default what the tokenizer's
            own rules put there.
        pattern: What divides text before merging, for a `.tiktoken` file, which does not say it.
    """
    described = _describe(name, pattern)
    eot = choose_eot(name, described, eot_token)
    bos_id = choose_bos(name, described, bos, eot[1])
    ids = (*described.special.values(), eot[1], -1 if bos_id is None else bos_id)
    return Tokenizer(
        name=name,
        model=described.model,
        eot_text=eot[0],
        eot_id=eot[1],
        vocab_size=max(described.model.num_ids, 1 + max(ids)),
        fingerprint=fingerprint(described.model, eot, bos_id),
        bos_id=bos_id,
        special=described.special,
    )


def load_recorded_tokenizer(record: TokenizerRecord) -> Tokenizer:
    """Load the tokenizer that made an output.

    Raises:
        UsageError: If its file is gone, or no longer what it was.
    """
    different = {text: name for name, text in reversed(PATTERNS.items())}
    bos = "none" if record.bos_id is None else str(record.bos_id)
    for pattern in (None, *reversed(different.values())):
        try:
            found = load_tokenizer(
                record.name, eot_token=str(record.eot_id), bos=bos, pattern=pattern
            )
        except _PatternError:
            continue
        if found.fingerprint == record.fingerprint:
            return found
    raise UsageError(
        f"`{record.name}` is no longer the tokenizer that made this output",
        where="the manifest's tokenizer",
        next_step="put the file back, or look at the ids: `penstok show OUT --ids`",
    )


class _PatternError(UsageError):
    """A pattern that is missing, unknown, or asked for in vain."""


def _describe(name: str, pattern: str | None) -> Described:
    if pattern is not None and pattern not in PATTERNS:
        raise _PatternError(
            f"unknown pattern `{pattern}`; known: {', '.join(PATTERNS)}",
            where="--pattern",
            next_step="pass `--pattern gpt2`",
        )
    file = None if name in ENCODINGS else find_file(name)
    if file is not None and file.kind == "ranks":
        return _read_ranks(file, name, pattern)
    encoding = find_encoding(name) if file is None else None
    described = read_encoding(encoding) if encoding else _read(file, name)
    if pattern is not None:
        found = described.model.pattern if isinstance(described.model, ByteLevel) else None
        if found != PATTERNS[pattern]:
            raise _PatternError(
                f"`{name}` has a pattern of its own, which is not `{pattern}`",
                where="--pattern",
                next_step="leave `--pattern` out",
            )
    return described


def _read(file: TokenizerFile | None, name: str) -> Described:
    if file is None:
        raise _unknown(name)
    try:
        if file.kind == "sentencepiece":
            return _read_sentencepiece(file)
        described = read_huggingface(file.content, file.config)
        if isinstance(described.model, LibraryModel):
            try_library(described.model.library, described.model.content)
    except UnsupportedError as error:
        raise _refusal(file, error) from error
    return described


def _read_ranks(file: TokenizerFile, name: str, pattern: str | None) -> Described:
    if pattern is None:
        raise _PatternError(
            f"`{name}` does not say by which pattern text is divided",
            where="--pattern",
            next_step=f"pass the one it was trained with; known: {', '.join(PATTERNS)}",
        )
    try:
        ranks = parse_ranks(file.content)
        check_ids(ranks)
    except UnsupportedError as error:
        raise _refusal(file, error) from error
    return Described(ByteLevel(ranks, PATTERNS[pattern]), {})


def _read_sentencepiece(file: TokenizerFile) -> Described:
    """Read a SentencePiece model; what begins a text is said by the configuration, if at all."""
    if not file.content:
        raise UnsupportedError("it is empty")
    model = LibraryModel("sentencepiece", file.content, 0, "SentencePiece has its own rules")
    library = try_library(model.library, model.content)
    num_ids = int(library.GetPieceSize())
    special = {str(library.IdToPiece(one)): one for one in range(num_ids) if library.IsControl(one)}
    begins = read_config(file.config).get("add_bos_token") and library.bos_id() >= 0
    return Described(
        LibraryModel(model.library, model.content, num_ids, model.why),
        special,
        end_text=str(library.IdToPiece(library.eos_id())) if library.eos_id() >= 0 else None,
        begin_text=str(library.IdToPiece(library.bos_id())) if begins else None,
    )


def _refusal(file: TokenizerFile, error: UnsupportedError) -> UsageError:
    return UsageError(
        f"this tokenizer cannot be used: {error}",
        where=str(file.path),
        next_step="pass another file, or a name such as `-t gpt2`",
    )


def _unknown(name: str) -> UsageError:
    close = difflib.get_close_matches(name, ENCODINGS, n=1)
    hint = f"; did you mean `{close[0]}`?" if close else ""
    return UsageError(
        f"unknown tokenizer `{name}`{hint}; known: {', '.join(ENCODINGS)}, names of OpenAI's "
        "models, ids of the hub (`owner/name`), files",
        where="--tokenizer",
        next_step="pass `-t gpt2`, or the path of a `tokenizer.json`, `.tiktoken` or `.model` file",
    )
