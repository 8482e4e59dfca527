"""What a check of an output finds: findings, and the report that lists them.

It checks nothing itself and prints nothing. `verify`, `proof` and `repair` fill a report; the
command line shows it.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Literal

from penstok.types import Struct, field

if TYPE_CHECKING:
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Segment, Split, Unit

__all__ = ["Finding", "FindingKind", "Report", "at_segment"]

FindingKind = Literal[
    "manifest", "ledger", "skipped", "file", "tokens", "ids", "index", "format", "source"
]

# Further findings are only counted: a missing disk must not fill the memory.
_MAX_FINDINGS = 1000


class Finding(Struct, frozen=True):
    """One thing that is not as it should be, and where.

    Attributes:
        kind: What was checked.
        what: What is wrong, in words.
        file: The file's name inside the output folder.
        start: The first damaged byte of that file; None if it is all of it.
        end: The byte after the last damaged one.
        unit: The unit whose tokens these are.
        input: The input of that unit.
        input_start: The unit's offset in it, in bytes, or in rows if `input_in_rows`.
        input_end: The offset of its end.
        is_repairable: Whether `--repair` can repair it.
        input_in_rows: Whether the unit's offsets count rows.
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
    """Make a finding about a segment, with the text that it was made from."""
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


class Report(Struct):
    """What was checked, and what was found.

    Attributes:
        folder: The output folder.
        seed: Of the sample; the same seed chooses the same units.
        findings: The first findings.
        num_findings: How many there are.
        num_units: Units of the job.
        units_read: Units whose tokens were all read.
        bytes_read: Bytes of tokens that were read.
        units_proved: Units that were re-encoded, or at least their first documents.
        documents_proved: Documents that were re-encoded.
        text_proved: Bytes of text that were re-encoded.
        is_all_proved: Whether everything was re-encoded.
        is_repairable: Whether `--repair` can repair all findings, as far as is known.
        kinds: The kinds of findings.
        damaged: Numbers of the units to re-encode, in order.
        damaged_files: Files to repair.
        repaired_findings: The first findings that were repaired.
        repaired: Names of the files that were repaired.
        units_repaired: How many units were re-encoded for it.
        notes: What else the reader should know.
        next_step: What to do about damage that `--repair` cannot repair; empty for the usual.
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
    repaired_findings: list[Finding] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    units_repaired: int = 0
    notes: list[str] = field(default_factory=list)
    next_step: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found."""
        return not self.num_findings

    def add(self, finding: Finding) -> None:
        """Count a finding, and list it unless there are many."""
        self.num_findings += 1
        self.is_repairable &= finding.is_repairable
        self.kinds.add(finding.kind)
        if len(self.findings) < _MAX_FINDINGS:
            self.findings.append(finding)
