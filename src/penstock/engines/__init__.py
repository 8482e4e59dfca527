"""Engines: from blocks to ids. Which one ran never shows in the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.types import MemoryNeeds

if TYPE_CHECKING:
    from penstock.engines.base import Engine
    from penstock.tokenizer import Tokenizer
    from penstock.types import EotPlace

__all__ = ["ENGINE_MEMORY", "choose_engine", "load_engine"]

# What a worker with this engine needs at the least, block and unit buffers included, and what one
# block of the worst text may add; measured on fresh workers and hostile text (ADR 4).
ENGINE_MEMORY = {
    "kernel": MemoryNeeds(least_bytes=160 << 20, block_bytes=32 << 20),
    "fastokens": MemoryNeeds(least_bytes=400 << 20, block_bytes=112 << 20),
    "tiktoken": MemoryNeeds(least_bytes=260 << 20, block_bytes=112 << 20),
}


def choose_engine(name: str, tokenizer: Tokenizer) -> tuple[str, str]:
    """Resolve `auto` to the fastest engine there is.

    Returns the engine, and why the kernel is not used where it would be preferred.

    Raises:
        KernelUnavailableError: If the kernel was asked for and cannot be used.
    """
    if name not in ("auto", *ENGINE_MEMORY):
        raise UsageError(
            f"unknown engine `{name}`; known: auto, {', '.join(ENGINE_MEMORY)}",
            where="--engine",
            next_step="pass `--engine auto`",
        )
    if name not in ("auto", "kernel"):
        return name, ""
    from penstock.engines.native import KernelUnavailableError, NativeEngine

    try:
        # Made once here, so that a machine on which it fails its self-test is known at once.
        NativeEngine(tokenizer, "append", table_bytes=1 << 16)
    except KernelUnavailableError as error:
        if name == "kernel":
            raise
        return "fastokens", error.what
    return "kernel", ""


def load_engine(name: str, tokenizer: Tokenizer, eot: EotPlace) -> Engine:
    """Make the engine called `name`."""
    if name == "kernel":
        from penstock.engines.native import NativeEngine

        return NativeEngine(tokenizer, eot)
    if name == "fastokens":
        from penstock.engines.fast import FastEngine

        return FastEngine(tokenizer, eot)
    from penstock.engines.tik import TikEngine

    return TikEngine(tokenizer, eot)
