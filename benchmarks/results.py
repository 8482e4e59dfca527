"""The record of a run of the benchmark, as it is kept in `results/`.

It is read again to draw the page and to compare with a later run. What the figures mean is in
`figures`; records of earlier forms of the benchmark are not read.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures import Estimate, Figure
from sections import DEFAULT_SECTIONS, Row
from usage import Usage

if TYPE_CHECKING:
    from corpora import Text

RESULTS = Path(__file__).resolve().parent / "results"
_VERSION = 2
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Result:
    """One run: when and where, the texts with their sizes, every turn, all figures."""

    date: str
    commit: str
    command: str
    machine: dict[str, Any]
    texts: dict[str, int]
    rows: list[Row]
    figures: list[Figure]
    differences: list[str]

    def write(self, path: Path) -> None:
        """Write it with a line for each row and each figure."""
        rows = [asdict(row) | {"turns": list(map(_rounded, row.turns))} for row in self.rows]
        figures = [asdict(figure) | {"verdict": figure.verdict} for figure in self.figures]
        fields = {
            "version": _VERSION,
            "date": self.date,
            "commit": self.commit,
            "command": self.command,
            "machine": self.machine,
            "texts": self.texts,
            "differences": self.differences,
            "usage": list(Usage.__dataclass_fields__),
        }
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
        for name, values in (("figures", figures), ("rows", rows)):
            inner = ",\n  ".join(map(json.dumps, values))
            lines.append(f' "{name}": [\n  {inner}\n ]')
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read what `write` has written."""
        result = find_result(path)
        if result is None:
            raise SystemExit(
                f"error: this is not a result of the benchmark in its present form\n"
                f"  where: {path}\n  next:  run `make bench`"
            )
        return result

    @property
    def is_whole(self) -> bool:
        """Whether it has all that `make bench` measures."""
        return {row.section for row in self.rows} >= set(DEFAULT_SECTIONS)

    @property
    def place(self) -> tuple[Any, ...]:
        """The machine, as far as figures of the same program depend on it."""
        return tuple(self.machine[name] for name in ("cpu", "isas", "cores", "python"))


def find_result(path: Path) -> Result | None:
    """Read a result; return None if it has another form."""
    record = json.loads(path.read_text())
    if record.get("version") != _VERSION:
        return None
    rows = [
        Row(**row | {"turns": [Usage(*turn) for turn in row["turns"]]}) for row in record["rows"]
    ]
    figures = [
        Figure(
            **{name: value for name, value in figure.items() if name != "verdict"}
            | {"estimate": Estimate(**figure["estimate"])}
        )
        for figure in record["figures"]
    ]
    names = ("date", "commit", "command", "machine", "texts")
    known = {name: record[name] for name in names}
    return Result(**known, rows=rows, figures=figures, differences=record["differences"])


def find_last_committed(folder: Path = RESULTS) -> tuple[Path, Result] | None:
    """Return the newest result that git knows and that has the sections of `make bench`."""
    command = ["git", "-C", str(folder), "ls-files", "*.json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = [(folder / name, find_result(folder / name)) for name in listed.splitlines()]
    results = [(path, result) for path, result in found if result is not None and result.is_whole]
    return max(results, key=lambda each: each[1].date, default=None)


def sizes_of(texts: list[Text]) -> dict[str, int]:
    """Return the sizes of texts by name."""
    return {text.name: text.num_bytes for text in texts}


def _rounded(usage: Usage) -> list[float]:
    return [round(value, _DIGITS) for value in usage.row()]
