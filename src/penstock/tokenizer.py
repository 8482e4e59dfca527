"""What a tokenizer is: its tokens, its pattern, its end-of-text id.

It encodes nothing (that is an engine's work) and fetches nothing: a tokenizer comes from the
package or from a file, which `vocabulary` reads. Engines and cuts are made from a `Tokenizer`; the
manifest keeps its name and fingerprint.
"""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import DamageError, EngineError, UsageError
from penstock.vocabulary import (
    GPT2_PATTERN,
    MAX_ID,
    PATTERNS,
    UnsupportedError,
    Vocabulary,
    derive_merges,
    format_ranks,
    parse_huggingface,
    parse_ranks,
)

if TYPE_CHECKING:
    from penstock.types import TokenizerRecord

__all__ = ["Tokenizer", "load_recorded_tokenizer", "load_tokenizer"]

EOT_TEXT = "<|endoftext|>"
_GPT2_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
_NAMES = {"gpt2": "gpt2.tiktoken", "r50k_base": "gpt2.tiktoken"}
_RANKS_SUFFIX, _HUGGINGFACE_SUFFIX, _HUGGINGFACE_NAME = ".tiktoken", ".json", "tokenizer.json"
# The largest vocabularies in use have files of 30 MB; reading one takes ten times its size.
_MAX_FILE_BYTES = 64 << 20
_SHOWN_SPECIAL = 8


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A byte-level BPE vocabulary with the pattern that divides text before merging.

    `vocab_size` counts the special ids too: every id is below it.
    """

    name: str
    ranks: dict[bytes, int] = field(repr=False)
    pattern: str
    eot_text: str
    eot_id: int
    vocab_size: int
    fingerprint: str

    def decode_bytes(self, ids: list[int]) -> bytes:
        """Turn ids back into the bytes they stand for (end-of-text as its text)."""
        wanted = set(ids)
        tokens = {rank: token for token, rank in self.ranks.items() if rank in wanted}
        tokens[self.eot_id] = self.eot_text.encode()
        unknown = wanted - tokens.keys()
        if unknown:
            raise DamageError(
                f"id {max(unknown)} is none of the {self.vocab_size} of `{self.name}`",
                where="the output's tokens",
                next_step="make the output anew with `--overwrite`",
            )
        return b"".join(tokens[token_id] for token_id in ids)


def load_tokenizer(
    name: str, *, eot_token: str | None = None, pattern: str | None = None
) -> Tokenizer:
    """Load a tokenizer of the package by its name, or the user's own from a file or folder.

    Args:
        name: `gpt2`, or the path of a `.tiktoken` file, of a `tokenizer.json`, or of its folder.
        eot_token: The end-of-text token, by its text or id; by default `<|endoftext|>`, which the
            file must then have.
        pattern: What divides text before merging, for a `.tiktoken` file, which does not say it.
    """
    vocabulary, ranks_content = _load_own(name) if name in _NAMES else _read_file(name)
    used_pattern = _choose_pattern(name, vocabulary.pattern, pattern)
    eot_text, eot_id = _choose_eot(name, vocabulary, eot_token)
    return Tokenizer(
        name=name,
        ranks=vocabulary.ranks,
        pattern=used_pattern,
        eot_text=eot_text,
        eot_id=eot_id,
        vocab_size=1 + max(*vocabulary.ranks.values(), *vocabulary.special.values(), eot_id),
        fingerprint=_fingerprint(ranks_content, used_pattern, {eot_text: eot_id}),
    )


def load_recorded_tokenizer(record: TokenizerRecord) -> Tokenizer:
    """Load the tokenizer that made an output.

    Raises:
        UsageError: If its file is gone, or no longer what it was.
    """
    says_no_pattern = record.name.endswith(_RANKS_SUFFIX)
    different = {text: name for name, text in reversed(PATTERNS.items())}
    for pattern in reversed(different.values()) if says_no_pattern else (None,):
        found = load_tokenizer(record.name, eot_token=str(record.eot_id), pattern=pattern)
        if found.fingerprint == record.fingerprint:
            return found
    raise UsageError(
        f"`{record.name}` is no longer the tokenizer that made this output",
        where="the manifest's tokenizer",
        next_step="put the file back, or look at the ids: `penstock show OUT --ids`",
    )


@lru_cache(maxsize=1)
def _load_own(name: str) -> tuple[Vocabulary, bytes]:
    """Read a vocabulary that ships with the package."""
    file_name = _NAMES[name]
    content = resources.files("penstock").joinpath("vocab", file_name).read_bytes()
    if hashlib.sha256(content).hexdigest() != _GPT2_SHA256:
        raise EngineError(
            f"the vocabulary file `{file_name}` is damaged",
            where="the installed package",
            next_step="install penstock again: `pip install --force-reinstall penstock`",
        )
    ranks = parse_ranks(content)
    return Vocabulary(ranks, {EOT_TEXT: len(ranks)}, GPT2_PATTERN), content


def _read_file(name: str) -> tuple[Vocabulary, bytes]:
    """Read a vocabulary of the user's and prove that it can be used."""
    path = _find_file(name)
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise UnsupportedError(f"it has more than {_MAX_FILE_BYTES >> 20} MiB")
        content = path.read_bytes()
        if path.suffix == _RANKS_SUFFIX:
            vocabulary = Vocabulary(parse_ranks(content), {}, None)
            derive_merges(vocabulary.ranks)
        else:
            vocabulary = parse_huggingface(content)
    except OSError as error:
        raise UsageError(
            f"the tokenizer cannot be read: {error.strerror}",
            where=str(path),
            next_step="check the file with `ls -l`",
        ) from error
    except UnsupportedError as error:
        raise UsageError(
            f"this tokenizer cannot be used: {error}",
            where=str(path),
            next_step="pass a byte-level BPE with a known pattern "
            f"({', '.join(PATTERNS)}), such as `-t gpt2`",
        ) from error
    return vocabulary, format_ranks(vocabulary.ranks)


def _find_file(name: str) -> Path:
    path = Path(name)
    if path.is_dir():
        path = path / _HUGGINGFACE_NAME
    if not path.exists():
        close = difflib.get_close_matches(name, _NAMES, n=1)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        raise UsageError(
            f"unknown tokenizer `{name}`{hint}; known: {', '.join(sorted(_NAMES))}, or a file",
            where="--tokenizer" if path == Path(name) else str(path),
            next_step="pass `--tokenizer gpt2`, or the path of a tokenizer.json or .tiktoken file",
        )
    if path.suffix not in (_RANKS_SUFFIX, _HUGGINGFACE_SUFFIX):
        raise UsageError(
            f"a tokenizer cannot be read from a `{path.suffix}` file",
            where=str(path),
            next_step=f"pass a `{_HUGGINGFACE_NAME}` or a `{_RANKS_SUFFIX}` file",
        )
    return path


def _choose_pattern(name: str, found: str | None, asked: str | None) -> str:
    """Take the pattern a file names, else the one asked for; never guess."""
    known = ", ".join(PATTERNS)
    if asked is not None and asked not in PATTERNS:
        raise UsageError(
            f"unknown pattern `{asked}`; known: {known}",
            where="--pattern",
            next_step="pass `--pattern gpt2`",
        )
    if found is None and asked is None:
        raise UsageError(
            f"`{name}` does not say by which pattern text is divided",
            where="--pattern",
            next_step=f"pass the one it was trained with; known: {known}",
        )
    if found is not None and asked is not None and found != PATTERNS[asked]:
        raise UsageError(
            f"`{name}` has a pattern of its own, which is not `{asked}`",
            where="--pattern",
            next_step="leave `--pattern` out",
        )
    return found or PATTERNS[asked or ""]


def _choose_eot(name: str, vocabulary: Vocabulary, asked: str | None) -> tuple[str, int]:
    """Return the text and id of the end-of-text token: what was asked for, or the usual one."""
    special = vocabulary.special
    wanted = EOT_TEXT if asked is None else asked
    if wanted in special:
        eot_text, eot_id = wanted, special[wanted]
    elif wanted.isascii() and wanted.isdecimal():
        eot_id = int(wanted)
        eot_text = next((text for text, token in special.items() if token == eot_id), EOT_TEXT)
    else:
        candidates = [f"`{text}` ({token})" for text, token in special.items()][:_SHOWN_SPECIAL]
        raise UsageError(
            f"`{name}` has no special token `{wanted}`; it has {', '.join(candidates) or 'none'}",
            where="--eot-token",
            next_step="pass the id that ends a text, such as "
            f"`--eot-token {next(iter(special.values()), 1 + max(vocabulary.ranks.values()))}`",
        )
    taken = next((token for token, rank in vocabulary.ranks.items() if rank == eot_id), None)
    if taken is not None or eot_id > MAX_ID:
        why = f"above {MAX_ID}" if taken is None else f"that of the token {taken!r}, which text has"
        raise UsageError(
            f"{eot_id} cannot end a text: it is {why}",
            where="--eot-token" if asked is not None else name,
            next_step="pass `--eot-token` with an id that no token has",
        )
    return eot_text, eot_id


def _fingerprint(ranks_content: bytes, pattern: str, special_tokens: dict[str, int]) -> str:
    """Cover everything that decides an id, so that two jobs can be compared."""
    digest = hashlib.sha256()
    for part in (ranks_content, pattern.encode(), repr(sorted(special_tokens.items())).encode()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return "sha256:" + digest.hexdigest()
