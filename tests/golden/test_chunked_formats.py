"""Bytes of litdata and MDS that must never change."""

from __future__ import annotations

from pathlib import Path

import pytest
from token_sources import write_format, write_source

from penstok.output.formats.base import FormatOptions
from penstok.output.formats.registry import OUTPUT_FORMATS

FILES = Path(__file__).parent / "files" / "formats"
TRAIN = [[15496, 995, 50256], [464, 2068, 7586, 21831, 18045, 50256], [50256], [1, 2, 3, 50256]]
VAL = [[31373, 50256]]


@pytest.mark.parametrize("name", ["litdata", "mds"])
@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_a_format_gives_the_same_bytes(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, dtype: str
) -> None:
    source = write_source(
        tmp_path / "in",
        train=TRAIN,
        val=VAL,
        dtype="uint16" if dtype == "uint16" else "uint32",
        eot_id=50256,
        shard_tokens=5,
    )
    options = FormatOptions(sequence_length=3, shard_tokens=6)
    found = write_format(OUTPUT_FORMATS[name], source, tmp_path / "out", options)
    folder = FILES / f"{name}-{dtype}"
    if request.config.getoption("--update-golden"):
        for path, data in found.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
    kept = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert found == kept
