"""What begins and ends a text, as a `tokenizer.json` and the configuration beside it say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstok.tokenizers.vocabulary import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["find_ends", "read_config"]


def find_ends(
    post_processor: dict[str, Any] | None, config: bytes | None
) -> tuple[str | None, str | None]:
    """Return the tokens that stand before and behind every text.

    `add_bos_token` of the configuration decides, where it is given, whether there is one before.
    """
    options = read_config(config)
    begin, end = _template_ends(post_processor)
    if options.get("add_bos_token") is False:
        begin = None
    elif options.get("add_bos_token") and begin is None:
        begin = _config_token(options, "bos")
    return begin, end or _config_token(options, "eos")


def read_config(config: bytes | None) -> dict[str, Any]:
    """Read a `tokenizer_config.json`; nothing if there is none."""
    try:
        options = json.loads(config) if config else {}
    except ValueError as error:
        raise UnsupportedError(f"`tokenizer_config.json` beside it is no JSON ({error})") from error
    if not isinstance(options, dict):
        raise UnsupportedError("`tokenizer_config.json` beside it is no JSON object")
    return options


def _template_ends(post_processor: dict[str, Any] | None) -> tuple[str | None, str | None]:
    """Return the tokens that the file's own post-processor puts before and behind a text."""
    before: list[str] = []
    behind: list[str] = []
    for step in _steps(post_processor):
        if step["type"] in ("BertProcessing", "RobertaProcessing"):
            before.append(str(step["cls"][0]))
            behind.append(str(step["sep"][0]))
        elif step["type"] == "TemplateProcessing":
            names = before
            for part in step["single"]:
                if "Sequence" in part:
                    names = behind
                else:
                    names += _tokens_of(str(part["SpecialToken"]["id"]), step)
        elif step["type"] != "ByteLevel":
            raise UnsupportedError(f"its post-processor is `{step['type']}`")
    if len(before) > 1 or len(behind) > 1:
        around = ", ".join(map(repr, before + behind))
        raise UnsupportedError(f"its template puts {around} around each text")
    return before[0] if before else None, behind[0] if behind else None


def _tokens_of(name: str, template: dict[str, Any]) -> list[str]:
    """Return the tokens that a template has under a name; they may be several."""
    named = (template.get("special_tokens") or {}).get(name)
    return [name] if named is None else [str(token) for token in named["tokens"]]


def _steps(post_processor: dict[str, Any] | None) -> Iterable[dict[str, Any]]:
    if post_processor and post_processor["type"] == "Sequence":
        return list(post_processor["processors"])
    return [post_processor] if post_processor else []


def _config_token(config: dict[str, Any], name: str) -> str | None:
    """Return a token that a configuration names, by its text or as an object."""
    token = config.get(f"{name}_token")
    return str(token["content"]) if isinstance(token, dict) else token
