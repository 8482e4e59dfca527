"""Totals estimated from a sample of units: how often the true one is within the margin."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from penstok.counting.estimate import SampleTotals, choose_strata
from penstok.kernel import load_kernel
from penstok.types import Source, Unit
from penstok.worker.counting import UnitSample

SOURCE = Source("a.txt", 1, 0, "")


def unit(index: int) -> Unit:
    return Unit(index, 0, SOURCE, 0, 0, 0)


def make_units(rng: random.Random, number: int) -> list[tuple[float, float]]:
    """Make up units whose ratio changes slowly, in jumps and at random; some are empty."""
    units, ratio = [], 0.25
    for _ in range(number):
        ratio = rng.uniform(0.2, 0.6) if rng.random() < 0.02 else ratio
        content = 0.0 if rng.random() < 0.05 else rng.uniform(0.2, 2.0) * 65536
        units.append((content, content * max(rng.gauss(ratio, 0.03), 0.05)))
    return units


@pytest.mark.parametrize("stratum_units", [8, 40])
def test_the_truth_is_within_the_margin_in_most_cases(stratum_units: int) -> None:
    num_within, widths = 0, []
    for seed in range(200):
        rng = random.Random(seed)
        units = make_units(rng, 1600)
        sample = UnitSample(stratum_units)
        totals = SampleTotals(sample, 1)
        shift = rng.randrange(10**6) * stratum_units
        for index, (content, tokens) in enumerate(units, shift):
            if sample.has(index):
                totals.add(unit(index), content, [tokens])
        truth = sum(tokens for _, tokens in units)
        estimate = totals.estimate(sum(content for content, _ in units))
        num_within += abs(estimate.values[0] - truth) <= estimate.margins[0]
        widths.append(estimate.margins[0] / truth)
    # The margin is wider than regular units need: 199 of 200 are expected.
    assert num_within >= 194
    assert 0.001 < np.median(widths) < 0.1


def test_two_units_of_each_stratum_are_chosen() -> None:
    sample = UnitSample(7)
    for stratum in range(50):
        units = range(7 * stratum, 7 * stratum + 7)
        assert sum(map(sample.has, units)) == 2
        assert {sample.stratum_of(each) for each in units} == {stratum}
    places = {each % 7 for each in range(700) if sample.has(each)}
    assert places == set(range(7))


def test_without_differences_there_is_no_margin() -> None:
    totals = SampleTotals(UnitSample(4), 2)
    for index in range(0, 40, 2):
        totals.add(unit(index), 100.0, [25.0, 50.0])
    estimate = totals.estimate(8000.0)
    assert estimate.values.tolist() == [2000.0, 4000.0]
    assert estimate.margins.tolist() == [0.0, 0.0]


def test_a_sample_without_text_says_nothing() -> None:
    assert SampleTotals(UnitSample(4), 1).estimate(8000.0).values.tolist() == [0.0]


def test_strata_are_as_many_as_the_sample_allows() -> None:
    assert choose_strata(10**9, 10**11, 16 << 20) == (10**9 // 256, 200)
    assert choose_strata(10**6, 10**7, 16 << 20) == (1 << 16, 20)
    assert choose_strata(10**12, 10**13, 16 << 20) == (16 << 20, 20)
    assert choose_strata(9, 10, 1 << 20)[1] == 2


@pytest.mark.parametrize("text", ["", "a", "ä" * 300, "字漢👍🏽 " * 5000, "plain text " * 5000])
def test_the_kernel_counts_characters(text: str) -> None:
    data = np.frombuffer(b"xx" + text.encode() + b"yy", np.uint8)
    count: Any = load_kernel().count_characters
    ends = np.array([len(data) - 2], np.int64)
    assert count(data, np.array([2], np.int64), ends) == len(text)
    both = np.array([0, 2], np.int64), np.array([2, len(data) - 2], np.int64)
    assert count(data, *both) == len(text) + 2
    with pytest.raises(ValueError, match="outside"):
        count(data, np.array([2], np.int64), np.array([len(data) + 1], np.int64))
