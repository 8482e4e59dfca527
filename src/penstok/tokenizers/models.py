"""What a tokenizer is: a model, the ids between documents, and a fingerprint of both.

Nothing is read or downloaded here. There are two kinds of models: those whose ids follow from ranks
and a pattern, and those whose ids the library of their file defines. Some of the latter are proved
to be a `CharacterBpe`, which the kernel encodes too.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

from penstok.errors import DamageError
from penstok.tokenizers.libraries import Library, find_id, spell_ids
from penstok.tokenizers.vocabulary import format_ranks
from penstok.types import Struct, TokenizerRecord, field, force_setattr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.tokenizers.character_bpe import CharacterBpe

__all__ = [
    "ByteLevel",
    "LibraryModel",
    "ParsedTokenizer",
    "Tokenizer",
    "fingerprint",
    "is_white_space_run",
]


def is_white_space_run(text: str) -> bool:
    """Tell whether a token is several spaces, or several tabs."""
    return len(text) > 1 and text in (" " * len(text), "\t" * len(text))


class ByteLevel(Struct, frozen=True):
    """A byte-level BPE whose ids follow from its ranks, as in tiktoken.

    A piece that is a token has its id. In any other piece the two neighbours that form the token of
    lowest rank are merged first, the leftmost of equals.

    Attributes:
        ranks: The id of each token, which is its rank.
        pattern: The regular expression that divides text into pieces.
        normalizer: How text is normalized first.
        added: Tokens that are found in text before it is divided, the longest first. Those that are
            runs of spaces or tabs have every length from 2 on, and are in `ranks` too.
        num_ids: One more than the largest id; computed.
    """

    ranks: dict[bytes, int]
    pattern: str
    normalizer: Literal["NFC"] | None = None
    added: dict[str, int] = field(default_factory=dict)
    num_ids: int = 0

    def __post_init__(self) -> None:
        largest = max(max(self.ranks.values(), default=-1), *self.added.values(), -1)
        force_setattr(self, "num_ids", 1 + largest)

    def __repr__(self) -> str:
        return f"ByteLevel({len(self.ranks)} ranks)"

    @property
    def is_plain(self) -> bool:
        """Whether text is neither normalized nor searched for added tokens."""
        return not (self.normalizer or self.added)

    @property
    def white_space_runs(self) -> dict[str, int]:
        """The added tokens that are runs of spaces or tabs."""
        return {text: one for text, one in self.added.items() if is_white_space_run(text)}

    def iter_parts(self) -> Iterator[bytes]:
        """Yield everything that determines an id."""
        yield format_ranks(self.ranks)
        yield self.pattern.encode()
        if not self.is_plain:
            yield repr((self.normalizer, sorted(self.added.items()))).encode()

    def find_id(self, text: str) -> int | None:
        """Return the id of a token that text can get; None if it is not one token."""
        return self.added.get(text, self.ranks.get(text.encode(errors="surrogateescape")))

    def spell(self, ids: set[int]) -> dict[int, bytes]:
        """Return the bytes of ids; unknown ones are left out."""
        added = {token_id: text.encode() for text, token_id in self.added.items()}
        ranked = self._find_in_order(ids)
        if ranked is None:
            ranked = {rank: token for token, rank in self.ranks.items() if rank in ids}
        return ranked | {token_id: text for token_id, text in added.items() if token_id in ids}

    def _find_in_order(self, ids: set[int]) -> dict[int, bytes] | None:
        """Return the bytes of ids if ranks are in order, as in most files; None if they are not."""
        if self.num_ids != len(self.ranks):
            return None
        tokens = list(self.ranks)
        found = {one: tokens[one] for one in ids if 0 <= one < len(tokens)}
        is_in_order = list(found) == [self.ranks[token] for token in found.values()]
        return found if is_in_order else None


class LibraryModel(Struct, frozen=True):
    """A model whose ids its own library defines.

    Attributes:
        library: The library.
        content: What the library reads: a `tokenizer.json` without the parts that add tokens around
            a text, or a SentencePiece model.
        num_ids: One more than its largest id.
        why: Why its ids do not follow from ranks and a pattern.
        shape: A digest of everything but the vocabulary; engines are proved for shapes.
        bpe: The same model as ranks, if it is proved to be one. Everything in it follows from
            `content`.
    """

    library: Library
    content: bytes
    num_ids: int
    why: str
    shape: str = ""
    bpe: CharacterBpe | None = None

    def __repr__(self) -> str:
        return f"LibraryModel({self.library}, {len(self.content)} bytes)"

    def iter_parts(self) -> Iterator[bytes]:
        """Yield everything that determines an id."""
        yield self.library.encode()
        yield self.content

    def find_id(self, text: str) -> int | None:
        """Return the id of a token that text can get; None if it is not one token."""
        return find_id(self.library, self.content, text)

    def spell(self, ids: set[int]) -> dict[int, bytes]:
        """Return the bytes of ids; unknown ones are left out."""
        return spell_ids(self.library, self.content, {one for one in ids if one < self.num_ids})


class ParsedTokenizer(Struct, frozen=True):
    """What the file of a tokenizer says.

    Attributes:
        special: The ids that text never gets, by their names in the file.
        ends: The tokens that the file names as the end of a text or turn, the most likely first.
        begins: The tokens that the file puts before every text.
    """

    model: ByteLevel | LibraryModel
    special: dict[str, int]
    ends: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self.model.num_ids, *(1 + one for one in self.special.values()), 0)


class Tokenizer(Struct, frozen=True):
    """A model, and the ids between documents.

    Attributes:
        special: Ids that text never gets, by their names.
        bos_id: The id that begins each document; None for none.
        vocab_size: One more than the largest id.
        eot_note: Why this token ends documents, if its file names another one or an unusual one.
    """

    name: str
    model: ByteLevel | LibraryModel
    eot_text: str
    eot_id: int
    vocab_size: int
    fingerprint: str
    bos_id: int | None = None
    special: dict[str, int] = field(default_factory=dict)
    eot_note: str = ""

    @property
    def ranks(self) -> dict[bytes, int]:
        """The ranks of a byte-level model; empty for others."""
        return self.model.ranks if isinstance(self.model, ByteLevel) else {}

    @property
    def pattern(self) -> str:
        """The pattern of a byte-level model; empty for others."""
        return self.model.pattern if isinstance(self.model, ByteLevel) else ""

    @property
    def record(self) -> TokenizerRecord:
        """What outputs record about it."""
        return TokenizerRecord(
            self.name,
            self.vocab_size,
            self.eot_id,
            self.fingerprint,
            self.bos_id,
            self.find_name(self.eot_id),
            self.find_name(self.bos_id),
        )

    def find_name(self, token_id: int | None) -> str:
        """Return the name of a special token; empty if the tokenizer has none for this id."""
        return next((text for text, one in self.special.items() if one == token_id), "")

    def spell(self, ids: set[int]) -> dict[int, bytes]:
        """Return the bytes of ids, and of special ones their names; unknown ones are left out."""
        tokens = {token_id: text.encode() for text, token_id in self.special.items()}
        tokens[self.eot_id] = self.eot_text.encode()
        return tokens | self.model.spell(ids - tokens.keys())

    def decode_bytes(self, ids: list[int]) -> bytes:
        """Decode ids to bytes (special ones to their names)."""
        wanted = set(ids)
        tokens = self.spell(wanted)
        unknown = wanted - tokens.keys()
        if unknown:
            raise DamageError(
                f"id {max(unknown)} is not one of the {self.vocab_size} of `{self.name}`",
                where="the output's tokens",
                next_step="tokenize the inputs again with `--overwrite`",
            )
        return b"".join(tokens[token_id] for token_id in ids)


def fingerprint(model: ByteLevel | LibraryModel, eot: tuple[str, int], bos_id: int | None) -> str:
    """Return a digest of everything that determines an id, to compare tokenizers by."""
    digest = hashlib.sha256()
    ends = [repr([eot]).encode()] + ([] if bos_id is None else [b"bos %d" % bos_id])
    for part in (*model.iter_parts(), *ends):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return "sha256:" + digest.hexdigest()
