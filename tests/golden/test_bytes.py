"""Bytes that must never change: the shipped corpus, tokenized by every release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import EXAMPLES

import penstok

FILES = Path(__file__).parent / "files"


NAMES = ("train.bin", "train_documents.npy", "val.bin", "val_documents.npy", "manifest.json")


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_corpus_gives_the_same_bytes(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(EXAMPLES)
    penstok.tokenize(["english.txt", "japanese.txt"], tmp_path / "out", val_fraction=0.2)
    found = (tmp_path / "out" / name).read_bytes()
    if name == "manifest.json":
        found = timeless(found)
    if request.config.getoption("--update-golden"):
        FILES.mkdir(exist_ok=True)
        (FILES / name).write_bytes(found)
    assert found == (FILES / name).read_bytes()


def timeless(manifest: bytes) -> bytes:
    """Leave out what differs from machine to machine."""
    content = json.loads(manifest)
    content["run"] = sorted(content["run"])
    content["inputs_digest"] = "differs: it covers modification times"
    return (json.dumps(content, indent=2) + "\n").encode()
