"""From runs on other kinds of files to ratios against plain text, with the marks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contenders import ONE_CORE, TWO_CORES
from figures import LONG, SHORT, Ratio, start_up_of, time_ratio
from formats import FORMATS, JSONL, JSONL_GZ, JSONL_ZST, PARQUET, in_format

if TYPE_CHECKING:
    from corpora import Text
    from figures import Figure, Runs, Time

_SPEED_MARKS = {JSONL: 0.65, PARQUET: 0.6, JSONL_ZST: 0.45, JSONL_GZ: 0.4}
_WORKERS_MARKS = {"": 1.8, JSONL_GZ: 1.5}
# What two workers are measured on: plain text, and one stream that only one process can read.
SCALED_FORMATS = tuple(kind for kind in _WORKERS_MARKS if kind)


class FormatFigures:
    """What the runs on other formats of the same documents amount to."""

    def __init__(self, runs: Runs, texts: list[Text]) -> None:
        """Take the runs, and the corpora as plain text and in all formats."""
        self._runs = runs
        self._texts = texts
        names = {text.name for text in texts}
        self._plain = [name for name in names if in_format(name, JSONL) in names]
        self._plain.sort(key=[text.name for text in texts].index)

    def figures(self) -> list[Figure]:
        """Return a figure for each format of each corpus."""
        return [self._runs.figure(ONE_CORE, text) for text in self._texts]

    def ratios(self) -> list[Ratio]:
        """Return what each format reaches of the speed of text, what two workers give, memory."""
        pairs = [(name, kind) for kind in FORMATS for name in self._plain]
        return [
            *(self._cpu(*pair) for pair in pairs),
            *(self._wall(*pair) for pair in pairs),
            *(self._scaling(kind, mark) for kind, mark in _WORKERS_MARKS.items()),
            *(self._memory(*pair) for pair in pairs),
        ]

    def differences(self) -> list[str]:
        """Name the formats that gave another number of tokens than the text."""
        pairs = [(name, in_format(name, kind)) for name in self._plain for kind in FORMATS]
        return [
            f"{other} has {self._runs.num_tokens(other)} tokens, {name} {tokens}"
            for name, other in pairs
            if self._runs.num_tokens(other) != (tokens := self._runs.num_tokens(name))
        ]

    def _cpu(self, name: str, kind: str) -> Ratio:
        text, other = (
            self._runs.steady_cpu(ONE_CORE, each) for each in (name, in_format(name, kind))
        )
        return time_ratio(
            f"CPU, one core: {kind} against text", name, text, other, _SPEED_MARKS[kind]
        )

    def _wall(self, name: str, kind: str) -> Ratio:
        text, other = (self._steady_wall(each) for each in (name, in_format(name, kind)))
        return time_ratio(f"wall, one core: {kind} against text", name, text, other, None)

    def _steady_wall(self, name: str) -> Time:
        return self._runs.wall(ONE_CORE, name).less(self._runs.wall(ONE_CORE, start_up_of(name)))

    def _scaling(self, kind: str, mark: float) -> Ratio:
        """Compare wall time on a long text, less that on a short one (see `Figures`)."""
        long, short = (in_format(name, kind) if kind else name for name in (LONG, SHORT))
        one, two = (
            self._runs.wall(name, long).less(self._runs.wall(name, short))
            for name in (ONE_CORE, TWO_CORES)
        )
        label = f"wall: two workers on two cores, {kind or 'text'}"
        return time_ratio(label, LONG, one, two, mark)

    def _memory(self, name: str, kind: str) -> Ratio:
        text, other = (
            self._runs.peak_mib(ONE_CORE, each) for each in (name, in_format(name, kind))
        )
        return Ratio(f"peak memory: {kind} against text", name, other / text, 0.0, "x", None)
