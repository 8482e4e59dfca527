"""Repair of invalid UTF-8: replaced, removed or refused, and always counted.

It sees only blocks that an engine has rejected, so valid text costs nothing. `worker` calls it and
passes the repaired block to the engine again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstok.errors import InputError
from penstok.inputs.streams import locate
from penstok.types import UTF_8, Counts, replace

if TYPE_CHECKING:
    from penstok.types import Block, InvalidUtf8, Unit

__all__ = ["repair_block"]

_REPLACEMENT = "\ufffd"


def repair_block(block: Block, policy: InvalidUtf8, unit: Unit) -> tuple[Block, Counts]:
    """Return the block with valid text, and count its invalid sequences.

    A document that is empty after the repair is dropped, and counted as empty.

    A sequence is what a decoder replaces by one U+FFFD: the longest prefix of a character, or one
    stray byte. Pieces are divided between characters, so the count does not depend on where the
    text was divided.
    """
    pieces: list[bytes] = []
    num_invalid = 0
    for start, end in zip(block.starts.tolist(), block.ends.tolist(), strict=True):
        raw = bytes(block.text[start:end])
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            if policy == "stop":
                raise _refusal(unit, block.origin + start + error.start, error) from error
            replaced = raw.decode(errors="replace")
            num_invalid += replaced.count(_REPLACEMENT) - raw.count(_REPLACEMENT.encode())
            raw = (replaced if policy == "replace" else raw.decode(errors="ignore")).encode()
        pieces.append(raw)
    ends = np.cumsum([len(piece) for piece in pieces])
    starts = np.concatenate(([0], ends[:-1]))
    text = memoryview(b"".join(pieces))
    kept = (ends > starts) | ~(block.begins & block.closes)
    repaired = replace(block, text=text, starts=starts, ends=ends, heads=ends).select(kept)
    num_empty = int(len(kept) - kept.sum())
    return repaired, Counts(invalid_utf8=num_invalid, empty_documents=num_empty)


def _refusal(unit: Unit, position: int, error: UnicodeDecodeError) -> InputError:
    source, found = unit.source, error.object[error.start : error.end]
    # In a columnar file, bytes are counted from the unit's first row.
    where = f"{unit.where if source.is_rows else source.path}, byte {position}"
    if source.encoding != UTF_8:
        located = locate(source, position)
        where, found = f"{source.path}, byte {position} of its text as UTF-8", b""
        if located is not None:
            where, found = f"{source.path}, byte {located[0]}", located[1]
    named = source.encoding.upper() if source.encoding == UTF_8 else source.encoding
    return InputError(
        f"invalid {named}" + (f": bytes {found.hex(' ')}" if found else ""),
        where=where,
        next_step="repair the file, or pass `--invalid-utf8 replace` or `--invalid-utf8 ignore`",
    )
