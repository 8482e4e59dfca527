"""Which ids part documents: what was asked for, else what the tokenizer itself says; no guess."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstok.errors import UsageError
from penstok.tokenizers.libraries import load_library_model
from penstok.tokenizers.models import ByteLevel
from penstok.tokenizers.vocabulary import MAX_ID

if TYPE_CHECKING:
    from penstok.tokenizers.described import Described

__all__ = ["choose_bos", "choose_eot"]

EOT_TEXT = "<|endoftext|>"
# What says itself that it ends a text, and then what is known to.
_EOT_NAMES = (EOT_TEXT, "<|end_of_text|>")
_EOS_NAMES = ("</s>", "<eos>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "[EOS]")
_SHOWN_SPECIAL = 8
_MAX_DIGITS = 12


def choose_eot(name: str, described: Described, asked: str | None) -> tuple[str, int]:
    """Return the text and id of what ends each document."""
    special = described.special
    if asked is not None:
        return _resolve(name, described, asked, "--eot-token")
    named = [text for text in _EOT_NAMES if text in special]
    known = [text for text in _EOS_NAMES if text in special]
    if len(named) == 1:
        found = named[0]
    elif described.end_text in special:
        found = str(described.end_text)
    elif not named and len(known) == 1:
        found = known[0]
    else:
        raise UsageError(
            f"`{name}` does not say which token ends a text; {_candidates(special)}",
            where="--eot-token",
            next_step=f"pass the text or id that does, such as `--eot-token {_example(described)}`",
        )
    return _resolve(name, described, found, "--eot-token")


def choose_bos(name: str, described: Described, asked: str, eot_id: int) -> int | None:
    """Return the id that begins each document; None for nothing.

    `auto` is what the tokenizer's own rules put before every text. A tokenizer that begins and ends
    texts with one and the same token needs it once.
    """
    if asked == "none" or (asked == "auto" and described.begin_text is None):
        return None
    wanted = str(described.begin_text) if asked == "auto" else asked
    _, bos_id = _resolve(name, described, wanted, "--bos")
    if bos_id == eot_id:
        if asked == "auto":
            return None
        raise UsageError(
            f"{asked} ends documents already",
            where="--bos",
            next_step="pass `--eot prepend` to have it before them instead",
        )
    return bos_id


def _resolve(name: str, described: Described, wanted: str, flag: str) -> tuple[str, int]:
    """Find a special token by its text or id."""
    special = described.special
    if wanted in special:
        text, token_id = wanted, special[wanted]
    elif wanted.isascii() and wanted.isdecimal() and len(wanted) <= _MAX_DIGITS:
        token_id = int(wanted)
        text = next((each for each, one in special.items() if one == token_id), EOT_TEXT)
    else:
        raise UsageError(
            f"`{name}` has no special token `{wanted}`; {_candidates(special)}",
            where=flag,
            next_step=f"pass a text or id, such as `{flag} {_example(described)}`",
        )
    _refuse_text(described, text, token_id, flag)
    taken = _text_of(described, token_id)
    if taken is not None or token_id > MAX_ID:
        why = f"above {MAX_ID}" if taken is None else f"that of the token {taken!r}, which text has"
        raise UsageError(
            f"{token_id} cannot stand between documents: it is {why}",
            where=flag,
            next_step=f"pass `{flag}` with an id that no token of text has",
        )
    return text, token_id


def _refuse_text(described: Described, text: str, token_id: int, flag: str) -> None:
    """Refuse a token that text gets, which some libraries allow even if it is special."""
    model = described.model
    if isinstance(model, ByteLevel):
        return
    library = load_library_model(model.library, model.content)
    is_pieces = model.library == "sentencepiece"
    for sample in (text, f"a {text} b"):
        ids = library.EncodeAsIds(sample) if is_pieces else _encode(library, sample)
        if token_id in ids:
            raise UsageError(
                f"{token_id} cannot stand between documents: text that holds `{text}` gets it too",
                where=flag,
                next_step=f"pass `{flag}` with an id that no text gets",
            )


def _encode(library: Any, text: str) -> list[int]:
    try:
        return list(library.encode(text, add_special_tokens=False).ids)
    except Exception as error:
        raise UsageError(
            f"`tokenizers` cannot encode {text!r} with this tokenizer: {error}",
            where="--tokenizer",
            next_step="give it a token for what it does not know",
        ) from error


def _text_of(described: Described, token_id: int) -> bytes | None:
    """Return the token of text that has an id; None if that is free or special."""
    model, special = described.model, described.special
    if not isinstance(model, ByteLevel) and token_id in special.values():
        return None
    return model.spell({token_id}).get(token_id)


def _candidates(special: dict[str, int]) -> str:
    shown = [f"`{text}` ({token_id})" for text, token_id in special.items()][:_SHOWN_SPECIAL]
    more = f" and {len(special) - len(shown)} more" if len(special) > len(shown) else ""
    return f"its special tokens are {', '.join(shown)}{more}" if shown else "it has no special ones"


def _example(described: Described) -> str:
    return str(next(iter(described.special.values()), described.model.num_ids))
