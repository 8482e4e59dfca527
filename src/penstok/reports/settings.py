"""Which page to write: the settings of `penstok report`.

It reads nothing, and imports nothing heavy, since `--help` reads it. `cli` and `api` make the
record; `report` takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstok.jobs.definition import PATH, SWITCH, Kind, setting

if TYPE_CHECKING:
    from penstok.storage.object_paths import OutputPath

__all__ = ["ReportSettings"]


def _parse_path(text: str, _flag: str) -> Path:
    return Path(text)


_FILE = Kind(*PATH[:3], _parse_path, is_parsed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """What to write."""

    output: OutputPath
    page: Path = setting(
        "Output", "-o --page FILE", "Page to write.", kind=_FILE, default="report.html"
    )
    overwrite: bool = setting(
        "Output",
        "--overwrite",
        "Replace the file even if it is not a report.",
        kind=SWITCH,
        default=False,
    )
