"""What a job of tasks is, kept in its output while it runs: all that take part compare themselves.

It reads and writes text only. `distributed` keeps it in a place before the first task; a receipt
names it by its digest, so that no task of another job is ever taken for one of this.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import msgspec
import xxhash

from penstok.errors import ConflictError, DamageError
from penstok.jobs.settings import settings_differences
from penstok.output import layout
from penstok.output.ledger.lines import format_job, format_line, line_body, read_job
from penstok.types import JobRecord  # noqa: TC001 msgspec reads annotations

if TYPE_CHECKING:
    from penstok.output.manifest import Manifest
    from penstok.output.store.base import Place

__all__ = ["JOB", "JobFile", "claim_job", "read_job_file"]

JOB = f"{layout.WORK}/{layout.JOB}"


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The second line: which inputs, and into how many tasks they are divided."""

    inputs: str
    num_inputs: int
    num_tasks: int
    skipped: dict[str, str]


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job that is divided into tasks.

    Attributes:
        job: What shapes the bytes.
        inputs_digest: Covers the inputs, as in the manifest.
        num_inputs: How many there are.
        num_tasks: How many tasks.
        skipped: The inputs that are left out, and why.
    """

    job: JobRecord
    inputs_digest: str
    num_inputs: int
    num_tasks: int
    skipped: dict[str, str]

    @property
    def digest(self) -> str:
        """What receipts name the job by."""
        return xxhash.xxh3_128_hexdigest(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Write it."""
        inputs = _Inputs(self.inputs_digest, self.num_inputs, self.num_tasks, self.skipped)
        return format_job(self.job) + format_line(asdict(inputs))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> JobFile:
        """Read it.

        Raises:
            DamageError: If it is not whole, or of another version.
        """
        try:
            first, second = (line_body(line) or b"" for line in data.splitlines(keepends=True))
            inputs = msgspec.json.decode(second, type=_Inputs)
            job = read_job(first)
        except ValueError as error:
            raise DamageError(
                f"the record of the job is damaged, or of another version: {error}",
                where=where,
                next_step="choose another `-o`, or pass `--overwrite` to start again",
            ) from error
        return cls(job, inputs.inputs, inputs.num_inputs, inputs.num_tasks, inputs.skipped)

    def has_made(self, manifest: Manifest) -> bool:
        """Tell whether a finished job is this one."""
        is_same = manifest.settings == self.job.settings
        return is_same and manifest.inputs_digest == self.inputs_digest

    def differences(self, other: JobFile) -> list[str]:
        """Say how another job differs from this one, which is there."""
        found = settings_differences(self.job.settings, other.job.settings)
        if self.job.unit_bytes != other.job.unit_bytes:
            found.append(f"units of {self.job.unit_bytes} bytes there, {other.job.unit_bytes} here")
        if self.num_inputs != other.num_inputs:
            found.append(f"{self.num_inputs} inputs there, {other.num_inputs} here")
        elif self.inputs_digest != other.inputs_digest:
            found.append("an input was changed, or is another one")
        if self.skipped.keys() != other.skipped.keys():
            found.append(f"{len(self.skipped)} inputs skipped there, {len(other.skipped)} here")
        return found


def read_job_file(place: Place) -> JobFile | None:
    """Return the job that is unfinished in a place; None if there is none."""
    data = place.read(JOB)
    return None if data is None else JobFile.from_bytes(data, f"{place.name}/{JOB}")


def claim_job(place: Place, job: JobFile) -> JobFile:
    """Write down which job a place is for, or join it if it is the same; return it as it is there.

    Raises:
        ConflictError: If it is another one.
    """
    if not place.write_new(JOB, job.to_bytes()):
        there = read_job_file(place)
        differing = [] if there is None else there.differences(job)
        if differing:
            raise ConflictError(
                f"another job is unfinished here ({'; '.join(differing)})",
                where=f"{place.name}/{JOB}",
                next_step="run the command that was started here, choose another `-o`, or pass "
                "`--overwrite` to drop what is done and start again",
            )
        return there or job
    return job
