"""What a run ends with: a finished job, or a part of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstok.output.manifest import Manifest

__all__ = ["Outcome", "PartOutcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished job, and what its user should hear of it."""

    manifest: Manifest
    is_new: bool
    eot_text: str
    hints: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    found_separator: bool = True


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """A part of a job that is done; the job is not finished by it.

    Attributes:
        part: Which, of how many.
        num_tasks: How many tasks it has.
        num_kept: How many of them were done before.
        text_bytes: How much text this run did.
        num_tokens: How many tokens that gave.
        seconds: How long it took.
        hints: What would make it faster.
        num_skipped: How many records this run left out.
    """

    part: tuple[int, int]
    num_tasks: int
    num_kept: int
    text_bytes: int
    num_tokens: int
    seconds: float
    hints: list[str]
    num_skipped: int = 0
