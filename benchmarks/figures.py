"""From turns to figures: medians with a confidence interval, marks, and what became slower.

A figure compares two contenders turn by turn, so that what disturbed a turn disturbed both. Its
interval is a bootstrap of the median over the turns, always with the same random numbers, so the
same turns give the same figure. It measures nothing and prints nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usage import Usage

Quantity = Literal["CPU", "wall"]

# The interpreter alone, by which seconds of two runs are made comparable.
INTERPRETER = "wall: python alone"

_RESAMPLES = 2000
_CONFIDENCE = 0.95
# A difference of two runs counts if it is larger than the two intervals together by this factor.
# With 1.0, 2.6 % of all figures would be called slower if nothing changed; so it is 0.3 %.
_CAUTION = 1.5
# Two processes of the same program differ by about this much: where its memory lies, for example.
_LEAST_NOISE = 0.03
# A shorter difference between two runs is within the noise of the clock.
_LEAST_SECONDS = 1e-3


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value that was measured in several turns.

    Attributes:
        median: The middle of all turns.
        low: The lower end of the 95 % confidence interval of the median.
        high: The upper end.
        num_turns: How many turns there were.
    """

    median: float
    low: float
    high: float
    num_turns: int

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Estimate:
        """Sum up the values of all turns."""
        array = np.array(values)
        chosen = np.random.default_rng(0).integers(len(array), size=(_RESAMPLES, len(array)))
        medians = np.median(array[chosen], axis=1)
        tail = (1 - _CONFIDENCE) / 2
        low, high = np.quantile(medians, (tail, 1 - tail)).tolist()
        return cls(float(np.median(array)), low, high, len(array))


@dataclass(frozen=True, slots=True)
class Figure:
    """A value to compare with a mark; without one (`mark` is None) it is for information.

    Attributes:
        label: What is compared.
        text: On which text.
        unit: `x` for a ratio, `s` or ` MiB`.
        estimate: The value.
        mark: The target.
        is_limit: The value is to be at most the mark, not at least.
    """

    label: str
    text: str
    unit: str
    estimate: Estimate
    mark: float | None = None
    is_limit: bool = False

    @property
    def verdict(self) -> Literal["reached", "missed", "unclear", ""]:
        """Say whether the whole interval is on one side of the mark."""
        if self.mark is None:
            return ""
        low, high = self.estimate.low, self.estimate.high
        if self.is_limit:
            low, high = -high, -low
        mark = -self.mark if self.is_limit else self.mark
        return "reached" if low >= mark else "missed" if high < mark else "unclear"


def seconds_of(usage: Usage, quantity: Quantity) -> float:
    """Return CPU time or wall time; always above 0, which a difference of two runs may not be."""
    seconds = usage.cpu_seconds if quantity == "CPU" else usage.wall_seconds
    return max(seconds, _LEAST_SECONDS)


def speed_ratio(ours: Iterable[Usage], theirs: Iterable[Usage], quantity: Quantity) -> Estimate:
    """Say how many times as fast as theirs ours is, per byte of text, turn by turn."""
    return _ratio(_seconds_per_byte(theirs, quantity), _seconds_per_byte(ours, quantity))


def time_ratio(ours: Iterable[Usage], theirs: Iterable[Usage], quantity: Quantity) -> Estimate:
    """Say how many times as long as theirs ours takes."""
    return _ratio(
        [seconds_of(each, quantity) for each in ours],
        [seconds_of(each, quantity) for each in theirs],
    )


def scaling_ratio(
    ours: tuple[Sequence[Usage], Sequence[Usage]], bare: tuple[Sequence[Usage], Sequence[Usage]]
) -> Estimate:
    """Divide what a second worker gives by what a second copy gives the bare loop, in wall time.

    Each pair is one worker or copy, and two, on the same text.
    """
    gains = [
        [one.wall_seconds / two.wall_seconds for one, two in zip(*pair, strict=True)]
        for pair in (ours, bare)
    ]
    return _ratio(*gains)


def core_use(two: Iterable[Usage], one: Iterable[Usage], start: Iterable[Usage]) -> Estimate:
    """Divide the least time that two cores need for a job by the time that two workers took.

    The least is the time of the startup, and half of the CPU time that a job with one worker takes
    beyond its startup: no core is ever idle then, and the second worker costs nothing.
    """
    least = [
        begin.wall_seconds + (each.cpu_seconds - begin.cpu_seconds) / 2
        for each, begin in zip(one, start, strict=True)
    ]
    return _ratio(least, [each.wall_seconds for each in two])


def share_of_parts(whole: Iterable[Usage], *parts: Iterable[Usage]) -> Estimate:
    """Divide the CPU time of parts that are measured alone by that of the whole job."""
    sums = [sum(seconds_of(each, "CPU") for each in turn) for turn in zip(*parts, strict=True)]
    return _ratio(sums, [seconds_of(each, "CPU") for each in whole])


def seconds_per_gb(turns: Iterable[Usage]) -> Estimate:
    """Return the wall time for 10^9 bytes."""
    return Estimate.from_values([1e9 * each for each in _seconds_per_byte(turns, "wall")])


def _seconds_per_byte(turns: Iterable[Usage], quantity: Quantity) -> list[float]:
    return [seconds_of(each, quantity) / each.num_bytes for each in turns]


def _ratio(upper: Sequence[float], lower: Sequence[float]) -> Estimate:
    pairs = zip(upper, lower, strict=True)
    return Estimate.from_values([above / below for above, below in pairs])


@dataclass(frozen=True, slots=True)
class Change:
    """How a figure differs from that of an earlier run.

    Attributes:
        label: As in the figure.
        text: As in the figure.
        gain: How much better it is than before; negative if it is worse.
        noise: How much two runs of the same program may differ.
    """

    label: str
    text: str
    gain: float
    noise: float

    @property
    def verdict(self) -> Literal["slower", "faster", "same"]:
        """Say whether the difference is larger than the noise."""
        if abs(self.gain) <= self.noise:
            return "same"
        return "faster" if self.gain > 0 else "slower"


def compare(before: Iterable[Figure], after: Iterable[Figure]) -> list[Change]:
    """Compare the figures that both runs have: ratios, and seconds relative to the interpreter."""
    old = {(each.label, each.text): each for each in before}
    new = {(each.label, each.text): each for each in after}
    changes = []
    for key in [key for key in new if key in old]:
        pairs = [(old[key], new[key])]
        if new[key].unit == "s":
            # Divided by the interpreter's own time, by which busy machines differ as well.
            interpreter = next((each for each in new if each[0] == INTERPRETER), None)
            if interpreter not in old or interpreter is None or key == interpreter:
                continue
            pairs.append((new[interpreter], old[interpreter]))
        elif new[key].unit != "x":
            continue
        rise, noise = 1.0, 0.0
        for earlier, later in pairs:
            rise *= later.estimate.median / earlier.estimate.median
            noise = hypot(noise, _half_width(earlier.estimate), _half_width(later.estimate))
        gain = 1 / rise - 1 if new[key].is_limit else rise - 1
        changes.append(Change(*key, gain, max(_CAUTION * noise, _LEAST_NOISE)))
    return changes


def _half_width(estimate: Estimate) -> float:
    return (estimate.high - estimate.low) / 2 / estimate.median
