"""What looking at an output brings to light: findings, and the report they stand in.

It looks at nothing itself and prints nothing. `look`, `proof` and `restore` fill a report;
the command line shows it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Segment, Split, Unit

__all__ = ["Finding", "FindingKind", "Report", "at_segment"]

FindingKind = Literal["manifest", "ledger", "skipped", "file", "tokens", "ids", "source"]

# Findings beyond these are counted, not kept: a missing disk must not fill the memory.
_MAX_FINDINGS = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be, and where.

    Attributes:
        kind: What was looked at.
        what: What is wrong, in words.
        file: The file's name inside the output folder.
        start: Where the damage begins in that file, in bytes; None if it is all of it.
        end: Where it ends.
        unit: The unit whose tokens these are.
        input: The input that unit is from.
        input_start: Where the unit begins in it, in bytes, or in rows where it has them.
        input_end: Where it ends.
        is_repairable: Whether `--repair` can make it whole.
        input_in_rows: Whether the input is counted in rows.
    """

    kind: FindingKind
    what: str
    file: str
    start: int | None = None
    end: int | None = None
    unit: int | None = None
    input: str | None = None
    input_start: int | None = None
    input_end: int | None = None
    is_repairable: bool = True
    input_in_rows: bool = False


def at_segment(
    kind: FindingKind,
    what: str,
    unit: Unit,
    segment: Segment,
    *,
    file: str,
    token_bytes: int,
    is_repairable: bool = True,
) -> Finding:
    """Locate a finding: the place of a run of tokens, and the text it was made from."""
    start = segment.offset_tokens * token_bytes
    return Finding(
        kind,
        what,
        file,
        start,
        start + segment.num_tokens * token_bytes,
        unit.index,
        unit.source.path,
        unit.start,
        unit.end,
        is_repairable,
        unit.source.is_rows,
    )


@dataclass(slots=True)
class Report:
    """What was looked at, and what was found.

    Attributes:
        folder: The output folder.
        seed: Chose the sample; the same one chooses the same again.
        findings: The first of them.
        num_findings: How many there are.
        num_units: Units of the job.
        units_read: Units whose tokens were read whole.
        bytes_read: Bytes of tokens that were read.
        units_proved: Units that were encoded again, from their start at least.
        documents_proved: Documents that were.
        text_proved: Bytes of text that were.
        is_all_proved: Whether that is all there is.
        is_repairable: Whether `--repair` can make all of it whole, as far as is known.
        kinds: What kinds of findings there are.
        damaged: Numbers of the units to make anew, in order.
        damaged_files: Files to make whole.
        mended: The first of what was found before a repair.
        repaired: Names of the files that were made whole.
        units_repaired: How many units were made anew for it.
        notes: What the reader should know besides.
    """

    folder: OutputPath
    seed: int = 0
    findings: list[Finding] = field(default_factory=list)
    num_findings: int = 0
    num_units: int = 0
    tokens: dict[Split, int] = field(default_factory=dict)
    documents: dict[Split, int] = field(default_factory=dict)
    units_read: int = 0
    bytes_read: int = 0
    units_proved: int = 0
    documents_proved: int = 0
    text_proved: int = 0
    is_all_proved: bool = False
    is_repairable: bool = True
    kinds: set[FindingKind] = field(default_factory=set)
    damaged: array[int] = field(default_factory=lambda: array("q"))
    damaged_files: set[tuple[Split, int]] = field(default_factory=set)
    mended: list[Finding] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    units_repaired: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found."""
        return not self.num_findings

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it unless there are many."""
        self.num_findings += 1
        self.is_repairable &= finding.is_repairable
        self.kinds.add(finding.kind)
        if len(self.findings) < _MAX_FINDINGS:
            self.findings.append(finding)
