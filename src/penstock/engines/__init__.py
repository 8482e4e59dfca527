"""Engines: from blocks to ids. Which one ran never shows in the output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.engines.base import Engine, EotPlace
    from penstock.tokenizer import Tokenizer

__all__ = ["ENGINE_SHARE_BYTES", "EngineName", "choose_engine", "load_engine"]

EngineName = Literal["auto", "fastokens", "tiktoken"]

# What a worker with this engine needs at the least, block and unit buffers included; measured as
# the peak of a fresh worker on a unit of hostile text (ADR 0004).
ENGINE_SHARE_BYTES = {"fastokens": 400 << 20, "tiktoken": 200 << 20}


def choose_engine(name: str) -> str:
    """Resolve `auto` to the fastest engine there is; refuse an unknown name."""
    if name == "auto":
        return "fastokens"
    if name not in ENGINE_SHARE_BYTES:
        raise UsageError(
            f"unknown engine `{name}`; known: auto, {', '.join(ENGINE_SHARE_BYTES)}",
            where="--engine",
            next_step="pass `--engine auto`",
        )
    return name


def load_engine(name: str, tokenizer: Tokenizer, eot: EotPlace) -> Engine:
    """Make the engine called `name`."""
    if name == "fastokens":
        from penstock.engines.fast import FastEngine

        return FastEngine(tokenizer, eot)
    from penstock.engines.tik import TikEngine

    return TikEngine(tokenizer, eot)
