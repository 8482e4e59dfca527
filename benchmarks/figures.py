"""From runs to figures: best of the repeats, startup subtracted, ratios against the marks.

The marks are those the project has set itself: for the kernel, which `penstok tokenize` uses, and
for fastokens, which it uses where the kernel is not built.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

from contenders import (
    CONTENDERS,
    FASTOKENS,
    FASTOKENS_WORKER,
    GIGATOKEN,
    KERNEL,
    ONE_WORKER,
    PLAIN,
    PORTABLE,
    TWO_WORKERS,
)

from penstok.engines.kernel import available_isas

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contenders import Run
    from corpora import Text

SHORT, LONG, LARGE = "short", "long", "large"

_PLAIN_MARKS = {"web": 30.0, "multi": 18.0, "code": 30.0}
_PLAIN_FASTOKENS_MARKS = {"web": 9.0, "multi": 4.0, "code": 9.0}
_GIGATOKEN_MARKS = {"web": 1.6, "multi": 3.5, "code": 1.6}
_KERNEL_MARKS = {
    "avx512": {"web": 2.0, "multi": 4.5, "code": 2.0},
    "avx2": {"web": 1.3, "multi": 3.0, "code": 1.3},
}
_HOSTILE_MARK = 3.0
_HARD_TEXTS = ("one letter", "DNA", "new words", "random Han")
# Below it `--engine auto` would be wrong to take the kernel on a machine without AVX2.
_PORTABLE_MARK = 1.0
_ENGINE_MARK = 0.8
_WORKERS_MARK = 1.85
_FLAT_MARK = 1.05
_MEMORY_MARK_MIB = 1024.0


def start_up_of(text: str) -> str:
    """Name the few documents of a corpus that stand for start-up."""
    return f"start-up {text}"


@dataclass(frozen=True, slots=True)
class Time:
    """The least of several measured times, and how far the middle one lies above it.

    The spread is None where a single run leaves it unknown.
    """

    seconds: float
    spread: float | None

    @classmethod
    def from_repeats(cls, seconds: Iterable[float]) -> Time:
        """Sum up repeated measurements of the same thing."""
        values = list(seconds)
        least = min(values)
        return cls(least, median(values) - least if len(values) > 1 else None)

    def less(self, other: Time) -> Time:
        """Subtract; what is uncertain adds up."""
        is_known = self.spread is not None and other.spread is not None
        spread = (self.spread or 0) + (other.spread or 0) if is_known else None
        return Time(self.seconds - other.seconds, spread)


@dataclass(frozen=True, slots=True)
class Figure:
    """A contender on a corpus, over all repeats; None where noise or start-up hides it."""

    contender: str
    text: str
    mb_per_cpu_second: float | None
    steady_cpu_seconds: float | None
    cpu_seconds: float
    wall_seconds: float
    start_up_cpu_seconds: float
    start_up_wall_seconds: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure to compare with a mark; without one (`mark` is None) it is for information.

    `spread` is how far repeats differ, as a share of the value; None where it is unknown.
    """

    label: str
    text: str
    value: float | None
    spread: float | None
    unit: str
    mark: float | None
    is_limit: bool = False

    @property
    def verdict(self) -> Literal["reached", "missed", "unclear", ""]:
        """Whether the value is at least the mark (at most a limit) by more than its spread."""
        if self.mark is None:
            return ""
        if self.value is None or self.spread is None:
            return "unclear"
        if abs(self.value - self.mark) < self.value * self.spread:
            return "unclear"
        return "reached" if (self.value <= self.mark) == self.is_limit else "missed"


class Runs:
    """All runs of one benchmark: the best of the repeats, and what they disagree about."""

    def __init__(self, runs: list[Run]) -> None:
        self._runs = runs

    def has(self, text: str) -> bool:
        """Tell whether anybody ran on a text."""
        return any(run.text == text for run in self._runs)

    def num_tokens(self, text: str) -> int:
        """Return what the first run on a text gave."""
        return next(run.num_tokens for run in self._runs if run.text == text)

    def figure(self, contender: str, text: Text) -> Figure:
        """Sum up a contender on a text."""
        # A few documents start only one of two workers, so their start-up is not known.
        steady = 0.0 if contender == TWO_WORKERS else self.steady_cpu(contender, text.name).seconds
        return Figure(
            contender=contender,
            text=text.name,
            mb_per_cpu_second=text.num_bytes / 1e6 / steady if steady > 0 else None,
            steady_cpu_seconds=steady if steady > 0 else None,
            cpu_seconds=self.cpu(contender, text.name).seconds,
            wall_seconds=self.wall(contender, text.name).seconds,
            start_up_cpu_seconds=self.cpu(contender, start_up_of(text.name)).seconds,
            start_up_wall_seconds=self.wall(contender, start_up_of(text.name)).seconds,
            peak_mib=self.peak_mib(contender, text.name),
        )

    def differences(self) -> list[str]:
        """Name every run that gave another number of tokens, or other bytes, than the first."""
        found = []
        for text in {run.text: None for run in self._runs}:
            runs = [run for run in self._runs if run.text == text]
            written = [run for run in runs if run.digests]
            found += [
                f"{text}: {run.contender} has {run.num_tokens} tokens, "
                f"{runs[0].contender} {runs[0].num_tokens}"
                for run in runs
                if run.num_tokens != runs[0].num_tokens
            ]
            found += [
                f"{text}: the files of {run.contender} differ from those of {written[0].contender}"
                for run in written
                if run.digests != written[0].digests
            ]
        return found

    def steady_cpu(self, contender: str, text: str) -> Time:
        """Return the CPU time without start-up.

        Engines in memory have a clock of their own, which runs only while they encode.
        """
        own_clock = [run.encode_cpu_seconds for run in self._of(contender, text)]
        if own_clock[0] is not None:
            return Time.from_repeats(seconds for seconds in own_clock if seconds is not None)
        return self.cpu(contender, text).less(self.cpu(contender, start_up_of(text)))

    def cpu(self, contender: str, text: str) -> Time:
        return Time.from_repeats(run.cpu_seconds for run in self._of(contender, text))

    def wall(self, contender: str, text: str) -> Time:
        return Time.from_repeats(run.wall_seconds for run in self._of(contender, text))

    def peak_mib(self, contender: str, text: str) -> float:
        return max(run.peak_bytes for run in self._of(contender, text)) / (1 << 20)

    def _of(self, contender: str, text: str) -> list[Run]:
        return [run for run in self._runs if (run.contender, run.text) == (contender, text)]


class Figures:
    """What the runs of all contenders amount to."""

    def __init__(self, runs: Runs, texts: list[Text], hostile: list[Text]) -> None:
        self._runs = runs
        self._texts = texts
        self._hostile = hostile

    def figures(self) -> list[Figure]:
        """Return a figure for each contender and corpus."""
        return [self._runs.figure(name, text) for text in self._texts for name in CONTENDERS]

    def ratios(self) -> list[Ratio]:
        """Return everything that DESIGN sets a mark for, and gigatoken."""
        engine_marks = {text.name: _ENGINE_MARK for text in self._texts}
        portable_marks = {text.name: _PORTABLE_MARK for text in self._texts}
        hostile_marks = dict.fromkeys(_HARD_TEXTS, _HOSTILE_MARK)
        kernel_marks = _KERNEL_MARKS.get(available_isas()[0], {})
        return [
            *self._against(KERNEL, GIGATOKEN, kernel_marks),
            *self._against(KERNEL, GIGATOKEN, hostile_marks, self._hostile),
            *self._against(PORTABLE, FASTOKENS, portable_marks),
            *self._against(ONE_WORKER, PLAIN, _PLAIN_MARKS),
            *self._against(ONE_WORKER, GIGATOKEN, _GIGATOKEN_MARKS),
            *self._against(ONE_WORKER, KERNEL, engine_marks),
            *self._against(FASTOKENS_WORKER, PLAIN, _PLAIN_FASTOKENS_MARKS),
            *self._against(FASTOKENS_WORKER, FASTOKENS, engine_marks),
            self._scaling(),
            *self._memory(),
        ]

    def _against(
        self, ours_name: str, rival: str, marks: dict[str, float], texts: list[Text] | None = None
    ) -> list[Ratio]:
        """Compare the CPU time of two contenders on each corpus, or on the texts given."""
        label = f"CPU: {ours_name} against {rival}"
        ratios = []
        for name in (text.name for text in texts or self._texts):
            theirs, ours = (
                self._runs.steady_cpu(rival, name),
                self._runs.steady_cpu(ours_name, name),
            )
            ratios.append(time_ratio(label, name, theirs, ours, marks.get(name)))
        return ratios

    def _scaling(self) -> Ratio:
        """Compare wall time on a long text, less that on a short one.

        A few documents do not start a second worker, and a corpus of a few units cannot be
        halved; the difference between two texts of many units is free of both.
        """
        one, two = (
            self._runs.wall(name, LONG).less(self._runs.wall(name, SHORT))
            for name in (ONE_WORKER, TWO_WORKERS)
        )
        return time_ratio("wall: two workers against one", LONG, one, two, _WORKERS_MARK)

    def _memory(self) -> list[Ratio]:
        has_large = self._runs.has(LARGE)
        names = [text.name for text in self._texts] + [LONG] + ([LARGE] if has_large else [])
        peaks = {name: self._runs.peak_mib(TWO_WORKERS, name) for name in names}
        label = "peak memory, two workers"
        ratios = [
            Ratio(label, name, peak, 0.0, " MiB", _MEMORY_MARK_MIB, is_limit=True)
            for name, peak in peaks.items()
        ]
        if has_large:
            value = peaks[LARGE] / peaks[LONG]
            label = "peak memory: large against long"
            ratios.append(Ratio(label, LARGE, value, 0.0, "x", _FLAT_MARK, is_limit=True))
        return ratios


def time_ratio(label: str, text: str, theirs: Time, ours: Time, mark: float | None) -> Ratio:
    """Say how many times faster ours is; nothing where noise ate the whole difference."""
    if min(theirs.seconds, ours.seconds) <= 0:
        return Ratio(label, text, None, None, "x", mark)
    spread = None
    if theirs.spread is not None and ours.spread is not None:
        spread = theirs.spread / theirs.seconds + ours.spread / ours.seconds
    return Ratio(label, text, theirs.seconds / ours.seconds, spread, "x", mark)
