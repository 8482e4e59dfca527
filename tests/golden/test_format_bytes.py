"""Bytes of the formats that must never change: five documents, one file and two shards."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Literal

import pytest
from token_sources import EOT, Documents, with_eot, write_format, write_source

from penstok.output.formats.base import FormatOptions
from penstok.output.formats.registry import OUTPUT_FORMATS

FILES = Path(__file__).parent / "files" / "formats"
DOCUMENTS = with_eot([[1, 2, 3], [4], [], [5, 6, 7, 8, 9], [10]])
CASES: dict[str, tuple[Literal["uint16", "uint32"], int | None]] = {
    "uint16": ("uint16", None),
    "uint32": ("uint32", None),
    "shards": ("uint16", 8),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["megatron", "llmc", "torchtitan", "olmo", "datatrove"])
def test_formats_give_the_same_bytes(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, case: str
) -> None:
    dtype, shard_tokens = CASES[case]
    documents: Documents = DOCUMENTS
    if dtype == "uint32":
        documents = [[id_ + 100_000 if id_ != EOT else id_ for id_ in each] for each in documents]
    source = write_source(
        tmp_path, train=documents, val=documents[:1], dtype=dtype, shard_tokens=shard_tokens
    )
    options = FormatOptions(shard_tokens=shard_tokens)
    written = write_format(OUTPUT_FORMATS[name], source, tmp_path / name, options)
    found = dict(map(plain, written.items()))
    folder = FILES / name / case
    if request.config.getoption("--update-golden"):
        for file, content in found.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
    expected = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert found == expected


def plain(file: tuple[str, bytes]) -> tuple[str, bytes]:
    """Decompress; zlib may write other bytes for the same content in another version."""
    name, content = file
    if name.endswith(".gz"):
        return name.removesuffix(".gz"), gzip.decompress(content)
    return file
