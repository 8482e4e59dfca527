"""Loads a tokenizer by its name, file, folder or hub id.

Files are read as data and never run. If the ids are not proved to follow from ranks, the model is
left to the file's own library. `files`, `encodings`, `huggingface` and
`sentencepiece` do the reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.errors import UsageError, quoted
from penstok.tokenizers.encodings import ENCODINGS, find_encoding, read_encoding
from penstok.tokenizers.files import find_file, is_hub_id
from penstok.tokenizers.huggingface import read_huggingface
from penstok.tokenizers.libraries import try_library
from penstok.tokenizers.models import (
    ByteLevel,
    LibraryModel,
    ParsedTokenizer,
    Tokenizer,
    fingerprint,
)
from penstok.tokenizers.sentencepiece import read_sentencepiece
from penstok.tokenizers.special_tokens import choose_bos, choose_eot
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
        eot_token: The token that ends documents, by text or id; default: as the tokenizer says.
        bos: `none`, or the token that begins documents, by text or id; default: as the tokenizer's
            own rules say.
        pattern: The pattern for a `.tiktoken` file, which does not contain it.
    """
    return _load(name, eot_token, bos, pattern, checks_range=True)


def _load(
    name: str, eot_token: str | None, bos: str, pattern: str | None, *, checks_range: bool
) -> Tokenizer:
    parsed = _parse(name, pattern)
    eot = choose_eot(name, parsed, eot_token, checks_range=checks_range)
    bos_id = choose_bos(name, parsed, bos, eot.id, checks_range=checks_range)
    return Tokenizer(
        name=name,
        model=parsed.model,
        eot_text=eot.text,
        eot_id=eot.id,
        vocab_size=max(parsed.vocab_size, 1 + eot.id, 0 if bos_id is None else 1 + bos_id),
        fingerprint=fingerprint(parsed.model, (eot.text, eot.id), bos_id),
        bos_id=bos_id,
        special=parsed.special,
        eot_note=eot.note,
    )


def load_recorded_tokenizer(record: TokenizerRecord) -> Tokenizer:
    """Load the tokenizer that made an output.

    Raises:
        UsageError: If its file is missing or has changed; the next step is how to get it back.
    """
    different = {text: name for name, text in reversed(PATTERNS.items())}
    bos = "none" if record.bos_id is None else str(record.bos_id)
    for pattern in (None, *reversed(different.values())):
        try:
            # An output from before ids were checked may have any.
            found = _load(record.name, str(record.eot_id), bos, pattern, checks_range=False)
        except _PatternError:
            continue
        except UsageError as error:
            # What is wrong is true; flags of `tokenize` cannot help.
            raise _lost(record.name, error.what) from error
        if found.fingerprint == record.fingerprint:
            return found
    raise _lost(record.name, f"`{record.name}` is no longer the tokenizer that made this output")


def _lost(name: str, what: str) -> UsageError:
    if name in ENCODINGS:
        next_step = "use the version of penstok that made the output"
    elif is_hub_id(name):
        next_step = (
            f"make {quoted(name)} available as it was: connect to the network, or restore it"
        )
    else:
        next_step = f"restore the tokenizer as it was under its recorded name, {quoted(name)}"
    return UsageError(what, where="the recorded tokenizer", next_step=next_step)


class _PatternError(UsageError):
    """A pattern that is missing, unknown, or not that of the file."""


def _parse(name: str, pattern: str | None) -> ParsedTokenizer:
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
    parsed = read_encoding(encoding) if encoding else _read(file, name)
    if pattern is not None:
        found = parsed.model.pattern if isinstance(parsed.model, ByteLevel) else None
        if found != PATTERNS[pattern]:
            raise _PatternError(
                f"`{name}` has its own pattern, which is not `{pattern}`",
                where="--pattern",
                next_step="leave `--pattern` out",
            )
    return parsed


def _read(file: TokenizerFile | None, name: str) -> ParsedTokenizer:
    if file is None:
        raise _unknown(name)
    try:
        if file.kind == "sentencepiece":
            return read_sentencepiece(file.content, file.config)
        parsed = read_huggingface(file.content, file.config)
        if isinstance(parsed.model, LibraryModel):
            try_library(parsed.model.library, parsed.model.content)
    except UnsupportedError as error:
        raise _refusal(file, error) from error
    return parsed


def _read_ranks(file: TokenizerFile, name: str, pattern: str | None) -> ParsedTokenizer:
    if pattern is None:
        raise _PatternError(
            f"`{name}` does not contain the pattern that divides text",
            where="--pattern",
            next_step=f"pass the one it was trained with; known: {', '.join(PATTERNS)}",
        )
    try:
        ranks = parse_ranks(file.content)
        check_ids(ranks)
    except UnsupportedError as error:
        raise _refusal(file, error) from error
    return ParsedTokenizer(ByteLevel(ranks, PATTERNS[pattern]), {})


def _refusal(file: TokenizerFile, error: UnsupportedError) -> UsageError:
    beside = file.path.with_name("tokenizer.json")
    is_beside = file.path != beside and beside.is_file()
    return UsageError(
        f"this tokenizer cannot be used: {error}",
        where=str(file.path),
        next_step=f"pass the file beside it: `-t {quoted(beside)}`"
        if is_beside
        else "pass another file, or a name such as `-t gpt2`",
    )


def _unknown(name: str) -> UsageError:
    import difflib

    close = difflib.get_close_matches(name.strip().lower(), ENCODINGS, n=1)
    hint = f"; did you mean `{close[0]}`? known:" if close else "; known:"
    return UsageError(
        f"unknown tokenizer `{name}`{hint} {', '.join(ENCODINGS)}, names of OpenAI "
        "models, ids of the Hugging Face hub (`owner/name`), files",
        where="--tokenizer",
        next_step=f"pass `-t {close[0] if close else 'gpt2'}`, or the path of a `tokenizer.json`, "
        "`.tiktoken` or `.model` file",
    )
