"""Chooses the ids between documents: the requested ones, or those that the tokenizer's file names.

It never guesses silently: a file that names none is an error that lists the candidates, and an
unusual choice comes with a note. `load` calls it with a parsed tokenizer.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from penstok.errors import UsageError
from penstok.tokenizers.libraries import encode_text
from penstok.tokenizers.models import ByteLevel
from penstok.tokenizers.vocabulary import MAX_ID
from penstok.types import Struct

if TYPE_CHECKING:
    from penstok.tokenizers.models import ParsedTokenizer

__all__ = ["EndToken", "choose_bos", "choose_eot"]

EOT_TEXT = "<|endoftext|>"
# Names, without case and punctuation, that say that a token ends a text. Instruction-tuned models
# name the end of a turn as their `eos_token`, under names of every kind.
_BEST_ENDS = frozenset({"endoftext"})
_OTHER_ENDS = frozenset({"eos", "eostoken", "endofsentence", "endofdocument", "eod"})
_OTHER_END = "</s>"
# A file of ranks does not list its special tokens; Llama 3 has 256, o200k_harmony 1,090.
_MAX_UNLISTED = 4096
_SHOWN_SPECIAL = 8
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 12
_EOT_FLAG, _BOS_FLAG = "--eot-token", "--bos"
_PURPOSES = {_EOT_FLAG: "end", _BOS_FLAG: "begin"}


class EndToken(Struct, frozen=True):
    """The token that ends each document; the note says why, if that is not obvious."""

    text: str
    id: int
    note: str = ""


def choose_eot(
    name: str, parsed: ParsedTokenizer, requested: str | None, *, checks_range: bool = True
) -> EndToken:
    """Return the token that ends each document.

    Without a request: the token that the file names, if its name says that it ends a text; else the
    only special token whose name does; else the token that the file names.
    """
    if requested is not None:
        return EndToken(*_resolve(name, parsed, requested, _EOT_FLAG, checks_range=checks_range))
    special = parsed.special
    named = [text for text in parsed.ends if text in special]
    found = next((text for text in named if _ends_text(text)), None) or _find_by_name(special)
    if found is None and named:
        found = named[0]
    if found is None:
        raise UsageError(
            f"`{name}` does not say which token ends a text; {_candidates(special)}",
            where=_EOT_FLAG,
            next_step=f"pass its text or id, such as `{_EOT_FLAG} {_example(parsed)}`",
        )
    text, token_id = _resolve(name, parsed, found, _EOT_FLAG)
    return EndToken(text, token_id, _explain(parsed, text, token_id))


def choose_bos(
    name: str,
    parsed: ParsedTokenizer,
    requested: str,
    eot_id: int,
    *,
    checks_range: bool = True,
) -> int | None:
    """Return the id that begins each document; None for none.

    `auto` is the token that the tokenizer's own rules add before every text. A tokenizer that
    begins and ends texts with the same token needs it only once.
    """
    begins = parsed.begins
    if requested == "none" or (requested == "auto" and not begins):
        return None
    if requested == "auto" and len(begins) > 1:
        raise UsageError(
            f"`{name}` begins each text with {len(begins)} tokens "
            f"({', '.join(f'`{text}`' for text in begins)}), but documents can begin with only one",
            where=_BOS_FLAG,
            next_step=f"pass `{_BOS_FLAG} {shlex.quote(begins[-1])}`, another token, or "
            f"`{_BOS_FLAG} none`",
        )
    wanted = begins[0] if requested == "auto" else requested
    if requested == "auto" and wanted not in parsed.special:
        raise UsageError(
            f"`{name}` begins each text with `{wanted}`, which is not a special token of it",
            where=_BOS_FLAG,
            next_step=f"pass `{_BOS_FLAG} none`, or a special token; {_candidates(parsed.special)}",
        )
    _, bos_id = _resolve(name, parsed, wanted, _BOS_FLAG, checks_range=checks_range)
    if bos_id == eot_id:
        if requested == "auto":
            return None
        raise UsageError(
            f"`{requested}` already ends documents",
            where=_BOS_FLAG,
            next_step="pass `--eot prepend` to have it before documents instead",
        )
    return bos_id


# ---- the choice of an end ----


def _plain(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())


def _ends_text(text: str) -> bool:
    """Tell whether the name of a token says that it ends a text, not only a turn of a chat."""
    return text == _OTHER_END or _plain(text) in _BEST_ENDS | _OTHER_ENDS


def _find_by_name(special: dict[str, int]) -> str | None:
    """Return the only token whose name says that it ends a text; None if there are several."""
    best = [text for text in special if _plain(text) in _BEST_ENDS]
    found = best or [text for text in special if _ends_text(text)]
    return found[0] if len(found) == 1 else None


def _explain(parsed: ParsedTokenizer, text: str, token_id: int) -> str:
    """Say why a token was chosen, if the file names another one or its name is unusual."""
    shown = f"documents end with `{text}` ({token_id})"
    other = next((end for end in reversed(parsed.ends) if end != text), None)
    if not _ends_text(text):
        return (
            f"{shown}, which the tokenizer's files name, although its name does not say that it "
            f"ends a text; pass `{_EOT_FLAG}` if another token does"
        )
    if other is None:
        return ""
    way = f"; pass `{_EOT_FLAG} {shlex.quote(other)}` to use it" if other in parsed.special else ""
    return (
        f"{shown}, because its name says that it ends a text; the tokenizer's files also name "
        f"`{other}`, which may end only a turn of a chat{way}"
    )


# ---- one token, by its text or id ----


def _resolve(
    name: str, parsed: ParsedTokenizer, wanted: str, flag: str, *, checks_range: bool = True
) -> tuple[str, int]:
    """Find a special token by its text or id."""
    special = parsed.special
    if wanted in special:
        text, token_id = wanted, special[wanted]
    elif _INTEGER.fullmatch(wanted):
        token_id = _parse_id(name, parsed, wanted, flag, checks_range=checks_range)
        text = next((each for each, one in special.items() if one == token_id), EOT_TEXT)
    else:
        raise _no_special_token(name, parsed, wanted, flag)
    if _occurs_in_text(parsed, text, token_id):
        raise UsageError(
            f"{token_id} cannot {_PURPOSES[flag]} documents: text that contains `{text}` gets it "
            "too",
            where=flag,
            next_step=_free_id_step(parsed, flag),
        )
    ordinary = _ordinary_text(parsed, token_id)
    if ordinary is not None:
        raise UsageError(
            f"{token_id} cannot {_PURPOSES[flag]} documents: it is the ordinary token "
            f"`{ordinary}`, which occurs in text",
            where=flag,
            next_step=_free_id_step(parsed, flag),
        )
    return text, token_id


def _parse_id(
    name: str, parsed: ParsedTokenizer, wanted: str, flag: str, *, checks_range: bool
) -> int:
    """Parse an id; refuse one that is not in the vocabulary.

    If there are no special tokens that can be used, the ids after the last one can be.
    """
    token_id = int(wanted) if len(wanted) <= _MAX_DIGITS else -1
    last = parsed.vocab_size - 1
    if 0 <= token_id <= (last if checks_range else MAX_ID):
        return token_id
    more = ""
    if not _has_special_token(parsed):
        highest = min(last + _MAX_UNLISTED, MAX_ID)
        if last < token_id <= highest:
            return token_id
        more = f"; a special token that it does not list can have an id up to {highest}"
    shown = wanted if len(wanted) <= _MAX_DIGITS else f"{wanted[:_MAX_DIGITS]}..."
    raise UsageError(
        f"`{shown}` is not an id of `{name}`: its ids are 0 to {last}{more}",
        where=flag,
        next_step=_free_id_step(parsed, flag),
    )


def _no_special_token(name: str, parsed: ParsedTokenizer, wanted: str, flag: str) -> UsageError:
    import difflib

    special = parsed.special
    by_plain = {_plain(text): text for text in special}
    close = difflib.get_close_matches(wanted, special, n=1, cutoff=0.75)
    meant = by_plain.get(_plain(wanted)) or (close[0] if close else None)
    token_id = parsed.model.find_id(wanted) if wanted else None
    if token_id is not None:
        what = (
            f"`{wanted}` ({token_id}) cannot {_PURPOSES[flag]} documents: it is an ordinary token, "
            "which occurs in text"
        )
    else:
        what = f"`{name}` has no special token `{wanted}`"
    if meant is not None:
        return UsageError(
            f"{what}; did you mean `{meant}` ({special[meant]})?",
            where=flag,
            next_step=f"pass `{flag} {shlex.quote(meant)}`; {_candidates(special)}",
        )
    return UsageError(
        f"{what}; {_candidates(special)}", where=flag, next_step=_free_id_step(parsed, flag)
    )


def _occurs_in_text(parsed: ParsedTokenizer, text: str, token_id: int) -> bool:
    """Tell whether text can get a special token; some libraries allow that."""
    model = parsed.model
    return not isinstance(model, ByteLevel) and any(
        token_id in encode_text(model.library, model.content, sample)
        for sample in (text, f"a {text} b")
    )


def _has_special_token(parsed: ParsedTokenizer) -> bool:
    """Tell whether there is a special token that text never gets."""
    return any(not _occurs_in_text(parsed, *item) for item in parsed.special.items())


def _ordinary_text(parsed: ParsedTokenizer, token_id: int) -> str | None:
    """Return the text of an ordinary token; None if the id is free or special."""
    model, special = parsed.model, parsed.special
    if not isinstance(model, ByteLevel) and token_id in special.values():
        return None
    found = model.spell({token_id}).get(token_id)
    return None if found is None else found.decode(errors="backslashreplace")


def _candidates(special: dict[str, int]) -> str:
    shown = [f"`{text}` ({token_id})" for text, token_id in special.items()][:_SHOWN_SPECIAL]
    more = f" and {len(special) - len(shown)} more" if len(special) > len(shown) else ""
    return (
        f"its special tokens are {', '.join(shown)}{more}" if shown else "it has no special tokens"
    )


def _free_id_step(parsed: ParsedTokenizer, flag: str) -> str:
    example = _example(parsed, flag)
    if example == "none":
        return f"pass `{flag} none`"
    return f"pass a special token, as text or id, such as `{flag} {example}`"


def _example(parsed: ParsedTokenizer, flag: str = _EOT_FLAG) -> str:
    """Return the id of a token that could be meant; without any, the first free id, or `none`."""
    special = parsed.special
    ends = [text for text in special if _ends_text(text)]
    others = [text for text in special if text not in ends]
    likely = others if flag == _BOS_FLAG else ends or others
    usable = (text for text in likely if not _occurs_in_text(parsed, text, special[text]))
    found = next(usable, None)
    if found is not None:
        return str(special[found])
    return "none" if flag == _BOS_FLAG else str(parsed.vocab_size)
