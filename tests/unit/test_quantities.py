from __future__ import annotations

import pytest

from penstok.errors import UsageError
from penstok.quantities import (
    format_bytes,
    format_count,
    format_seconds,
    parse_bytes,
    parse_count,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1GiB", 1 << 30), ("900MB", 900_000_000), ("1.5kib", 1536), ("7", 7), ("2 G", 2 * 10**9)],
)
def test_bytes_are_read(text: str, number: int) -> None:
    assert parse_bytes(text, "--memory") == number


@pytest.mark.parametrize(("text", "number"), [("500M", 5 * 10**8), ("1k", 1000), ("12", 12)])
def test_counts_are_read(text: str, number: int) -> None:
    assert parse_count(text, "--shard-tokens") == number


@pytest.mark.parametrize("text", ["", "-1", "1GiBB", "much", "1e9", "0x10"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_bytes(text, "--memory")
    with pytest.raises(UsageError):
        parse_count("1MiB", "--shard-tokens")


def test_numbers_are_written_shortly() -> None:
    assert format_count(412) == "412"
    assert format_count(61_234) == "61.2K"
    assert format_count(999_960) == "1M"
    assert format_bytes(1.52e9) == "1.52 GB"
    assert format_bytes(0) == "0 B"
    assert format_seconds(3.21) == "3.2 s"
    assert format_seconds(724) == "12:04"
    assert format_seconds(12011) == "3:20:11"
