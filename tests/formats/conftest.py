"""Samples of every output format, for the tests that open them with their owners' readers.

These tests run in environments of their own, without Penstok: `tools/format_readers.py` writes the
samples, makes the environments and names the folder in `PENSTOK_FORMAT_SAMPLES`. Without that they
are not collected. An argument of a test that is the name of a format is a sample of that format.
"""

from __future__ import annotations

import pytest
from format_samples import SAMPLES, load_samples

FORMATS = (
    *("datatrove", "litdata", "llmc", "mds", "megatron", "olmo", "parquet", "raw", "torchtitan"),
)

collect_ignore_glob = [] if SAMPLES else ["test_*.py"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name in FORMATS:
        if name in metafunc.fixturenames:
            samples = load_samples(name)
            if not samples:
                pytest.fail(f"there are no samples of `{name}`: is it in the registry?")
            metafunc.parametrize(name, samples.values(), ids=list(samples))
