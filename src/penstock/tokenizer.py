"""What a tokenizer is: its tokens, its pattern, its end-of-text id.

It encodes nothing (that is an engine's work) and fetches nothing. Engines and cuts are made from a
`Tokenizer`; the manifest keeps its fingerprint.
"""

from __future__ import annotations

import binascii
import difflib
import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources

from penstock.errors import DamageError, EngineError, UsageError

__all__ = ["GPT2_PATTERN", "Tokenizer", "load_tokenizer"]

# Splits text into pieces that are merged alone; the original GPT-2 spelling. The possessive
# spelling of newer tiktoken releases matches the same pieces.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT2_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
_NAMES = {"gpt2": "gpt2.tiktoken", "r50k_base": "gpt2.tiktoken"}


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A byte-level BPE vocabulary with the pattern that divides text before merging."""

    name: str
    ranks: dict[bytes, int] = field(repr=False)
    pattern: str
    eot_text: str
    eot_id: int
    fingerprint: str

    @property
    def vocab_size(self) -> int:
        """Number of ids, the end-of-text id included: every id is below it."""
        return max(len(self.ranks), self.eot_id + 1)

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


@lru_cache(maxsize=4)
def load_tokenizer(name: str) -> Tokenizer:
    """Load the tokenizer called `name` from the package."""
    file_name = _NAMES.get(name)
    if file_name is None:
        close = difflib.get_close_matches(name, _NAMES, n=1)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        raise UsageError(
            f"unknown tokenizer `{name}`{hint}; known: {', '.join(sorted(_NAMES))}",
            where="--tokenizer",
            next_step="pass `--tokenizer gpt2`",
        )
    content = resources.files("penstock").joinpath("vocab", file_name).read_bytes()
    if hashlib.sha256(content).hexdigest() != _GPT2_SHA256:
        raise EngineError(
            f"the vocabulary file `{file_name}` is damaged",
            where="the installed package",
            next_step="install penstock again: `pip install --force-reinstall penstock`",
        )
    ranks = _parse_ranks(content)
    eot_text = "<|endoftext|>"
    eot_id = len(ranks)
    return Tokenizer(
        name=name,
        ranks=ranks,
        pattern=GPT2_PATTERN,
        eot_text=eot_text,
        eot_id=eot_id,
        fingerprint=_fingerprint(content, GPT2_PATTERN, {eot_text: eot_id}),
    )


def _parse_ranks(content: bytes) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for line in content.splitlines():
        token, _, rank = line.partition(b" ")
        ranks[binascii.a2b_base64(token)] = int(rank)
    return ranks


def _fingerprint(ranks_content: bytes, pattern: str, special_tokens: dict[str, int]) -> str:
    """Cover everything that decides an id, so that two jobs can be compared."""
    digest = hashlib.sha256()
    for part in (ranks_content, pattern.encode(), repr(sorted(special_tokens.items())).encode()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return "sha256:" + digest.hexdigest()
