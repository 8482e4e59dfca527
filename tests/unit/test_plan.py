"""A plan counts its units without walking through them."""

from __future__ import annotations

import pytest

from penstok.jobs.plan import Plan
from penstok.types import DocumentRule, Source

SIZES = (0, 1, 99, 100, 101, 250, 1000)


def plan_of(*sources: Source, limit_bytes: int | None = None) -> Plan:
    return Plan(list(sources), {}, DocumentRule("line", b"\n"), False, 100, limit_bytes)


def source_of(size: int) -> Source:
    return Source("in.txt", size, 0, "0" * 16, is_empty=size == 0)


@pytest.mark.parametrize("limit_bytes", [None, 1, 100, 201, 450, 451, 1551, 5000])
def test_num_units_is_how_many_there_are(limit_bytes: int | None) -> None:
    plan = plan_of(*map(source_of, SIZES), limit_bytes=limit_bytes)
    assert plan.num_units == sum(1 for _ in plan.iter_units())


def test_num_units_of_a_stream_is_not_known() -> None:
    assert plan_of(source_of(10), Source("-", 0, 0, "", is_stream=True)).num_units is None
