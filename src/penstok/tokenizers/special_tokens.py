"""Chooses the ids between documents: the requested ones, or those that the tokenizer's file names.

It never guesses: a file that names none is an error that lists the candidates. `load` calls it with
a parsed tokenizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.errors import UsageError
from penstok.tokenizers.libraries import encode_text
from penstok.tokenizers.models import ByteLevel
from penstok.tokenizers.vocabulary import MAX_ID

if TYPE_CHECKING:
    from penstok.tokenizers.models import ParsedTokenizer

__all__ = ["choose_bos", "choose_eot"]

EOT_TEXT = "<|endoftext|>"
# Names that say that they end a text, then names that are known to.
_EOT_NAMES = (EOT_TEXT, "<|end_of_text|>")
_EOS_NAMES = ("</s>", "<eos>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "[EOS]")
_SHOWN_SPECIAL = 8
_MAX_DIGITS = 12


def choose_eot(name: str, parsed: ParsedTokenizer, requested: str | None) -> tuple[str, int]:
    """Return the text and id of the token that ends each document."""
    special = parsed.special
    if requested is not None:
        return _resolve(name, parsed, requested, "--eot-token")
    named = [text for text in _EOT_NAMES if text in special]
    known = [text for text in _EOS_NAMES if text in special]
    if len(named) == 1:
        found = named[0]
    elif parsed.end_text in special:
        found = str(parsed.end_text)
    elif not named and len(known) == 1:
        found = known[0]
    else:
        raise UsageError(
            f"`{name}` does not say which token ends a text; {_candidates(special)}",
            where="--eot-token",
            next_step=f"pass its text or id, such as `--eot-token {_example(parsed)}`",
        )
    return _resolve(name, parsed, found, "--eot-token")


def choose_bos(name: str, parsed: ParsedTokenizer, requested: str, eot_id: int) -> int | None:
    """Return the id that begins each document; None for none.

    `auto` is the token that the tokenizer's own rules add before every text. A tokenizer that
    begins and ends texts with the same token needs it only once.
    """
    if requested == "none" or (requested == "auto" and parsed.begin_text is None):
        return None
    wanted = str(parsed.begin_text) if requested == "auto" else requested
    _, bos_id = _resolve(name, parsed, wanted, "--bos")
    if bos_id == eot_id:
        if requested == "auto":
            return None
        raise UsageError(
            f"`{requested}` already ends documents",
            where="--bos",
            next_step="pass `--eot prepend` to have it before documents instead",
        )
    return bos_id


def _resolve(name: str, parsed: ParsedTokenizer, wanted: str, flag: str) -> tuple[str, int]:
    """Find a special token by its text or id."""
    special = parsed.special
    if wanted in special:
        text, token_id = wanted, special[wanted]
    elif wanted.isascii() and wanted.isdecimal() and len(wanted) <= _MAX_DIGITS:
        token_id = int(wanted)
        text = next((each for each, one in special.items() if one == token_id), EOT_TEXT)
    else:
        raise UsageError(
            f"`{name}` has no special token `{wanted}`; {_candidates(special)}",
            where=flag,
            next_step=f"pass a text or id, such as `{flag} {_example(parsed)}`",
        )
    _refuse_text(parsed, text, token_id, flag)
    taken = _text_of(parsed, token_id)
    if taken is not None or token_id > MAX_ID:
        why = f"above {MAX_ID}" if taken is None else f"the id of {taken!r}, which occurs in text"
        raise UsageError(
            f"{token_id} cannot separate documents: it is {why}",
            where=flag,
            next_step=f"pass `{flag}` with an id that text never gets",
        )
    return text, token_id


def _refuse_text(parsed: ParsedTokenizer, text: str, token_id: int, flag: str) -> None:
    """Refuse a token that text can get; some libraries allow that even for special tokens."""
    model = parsed.model
    if isinstance(model, ByteLevel):
        return
    for sample in (text, f"a {text} b"):
        if token_id in encode_text(model.library, model.content, sample):
            raise UsageError(
                f"{token_id} cannot separate documents: text that contains `{text}` gets it too",
                where=flag,
                next_step=f"pass `{flag}` with an id that text never gets",
            )


def _text_of(parsed: ParsedTokenizer, token_id: int) -> bytes | None:
    """Return the token of text that has an id; None if the id is free or special."""
    model, special = parsed.model, parsed.special
    if not isinstance(model, ByteLevel) and token_id in special.values():
        return None
    return model.spell({token_id}).get(token_id)


def _candidates(special: dict[str, int]) -> str:
    shown = [f"`{text}` ({token_id})" for text, token_id in special.items()][:_SHOWN_SPECIAL]
    more = f" and {len(special) - len(shown)} more" if len(special) > len(shown) else ""
    return (
        f"its special tokens are {', '.join(shown)}{more}" if shown else "it has no special tokens"
    )


def _example(parsed: ParsedTokenizer) -> str:
    return str(next(iter(parsed.special.values()), parsed.model.num_ids))
