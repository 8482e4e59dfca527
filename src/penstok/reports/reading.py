"""The reading room: documents of an output with the borders of their tokens, as HTML.

Text comes from anywhere, so nothing of it is trusted: it is escaped, and what cannot be printed is
written as an escape sequence. Tokens that are no whole characters are joined with their neighbours
until they are; bytes that never are get shown as numbers. `page` puts the result into the page.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from penstok.errors import UsageError
from penstok.types import SPLITS, Split, Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstok.data.dataset import Dataset
    from penstok.tokenizers import Tokenizer

__all__ = ["ReadDocument", "mark_tokens", "read_documents", "show_text", "spell_ids"]

_NUM_DOCUMENTS = {"train": 28, "val": 12}
_MAX_TOKENS = 420
# The longest run of tokens that are joined to whole characters.
_MAX_JOINED = 6
_VISIBLE = {" ": " ", "\n": "\u21b5\n", "\t": "\u2192\t"}


class ReadDocument(Struct, frozen=True):
    """A document to read.

    Attributes:
        split: Its split.
        number: Its number in the split, from 0.
        num_tokens: How many tokens it has.
        ids: Its first ids.
        html: The same as text with marked tokens.
    """

    split: Split
    number: int
    num_tokens: int
    ids: list[int]
    html: str


def read_documents(dataset: Dataset, tokenizer: Tokenizer | None) -> list[ReadDocument]:
    """Read documents that are spread evenly over each split, and cut them off if they are long."""
    found = [each for split in SPLITS for each in _iter_chosen(dataset, split)]
    names = spell_ids(tokenizer, {one for *_, ids in found for one in ids})
    special = frozenset(() if tokenizer is None else tokenizer.special.values())
    return [
        ReadDocument(split, number, size, ids, mark_tokens(ids, names, special))
        for split, number, size, ids in found
    ]


def _iter_chosen(dataset: Dataset, split: Split) -> Iterator[tuple[Split, int, int, list[int]]]:
    documents = dataset.documents(split)
    if not len(documents):
        return
    places = np.linspace(0, len(documents) - 1, min(_NUM_DOCUMENTS[split], len(documents)))
    for number in np.unique(places.astype(np.int64)).tolist():
        ids = documents[number]
        yield split, number, len(ids), ids[:_MAX_TOKENS].tolist()


def spell_ids(tokenizer: Tokenizer | None, ids: set[int]) -> dict[int, bytes]:
    """Return the bytes of ids; none of those that the tokenizer does not know."""
    if tokenizer is None:
        return {}
    try:
        return tokenizer.spell(ids)
    except UsageError:  # a library that is not installed
        return {}


def mark_tokens(ids: list[int], names: Mapping[int, bytes], special: frozenset[int]) -> str:
    """Write ids as text: an `<i>` per token, or per run of tokens that are whole characters.

    `n` is the number of tokens in a run, if there are several.
    """
    parts, at = [], 0
    while at < len(ids):
        number, shown, kind = _take(ids, at, names, special)
        mark = f' class="{kind}"' if kind else ""
        mark += f' data-n="{number}"' if number > 1 else ""
        parts.append(f"<i{mark}>{shown}</i>")
        at += number
    return "".join(parts)


def _take(
    ids: list[int], at: int, names: Mapping[int, bytes], special: frozenset[int]
) -> tuple[int, str, str]:
    """Return how many tokens the next run has, its HTML and its class."""
    if ids[at] not in names:
        return 1, f"#{ids[at]}", "x"
    if ids[at] in special:
        return 1, show_text(names[ids[at]].decode(errors="replace")), "s"
    joined = b""
    for number, one in enumerate(ids[at : at + _MAX_JOINED], 1):
        if one in special or one not in names:
            break
        joined += names[one]
        try:
            return number, show_text(joined.decode()), ""
        except UnicodeDecodeError:
            continue
    return 1, " ".join(f"{byte:02X}" for byte in names[ids[at]]), "x"


def show_text(text: str) -> str:
    """Escape text for HTML; show line ends and tabs, and write what cannot be printed as codes."""
    return "".join(
        _VISIBLE[one] if one in _VISIBLE else escape(one) if one.isprintable() else _code(one)
        for one in text
    )


def _code(character: str) -> str:
    return character.encode("unicode_escape").decode()
