from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstok.errors import DamageError
from penstok.output.manifest import (
    FileRecord,
    ForeignManifestError,
    InputRecord,
    Manifest,
    SplitRecord,
)
from penstok.types import TokenizerRecord

FILE = FileRecord("train.bin", 4, 2, "00")
MANIFEST = Manifest(
    penstok="0.1.0",
    tokenizer=TokenizerRecord("gpt2", 50257, 50256, "sha256:0"),
    dtype="uint16",
    byte_order="little",
    splits={"train": SplitRecord(1, 2, [FILE]), "val": SplitRecord(0, 0, [])},
    inputs=[InputRecord('a "file".txt', 3, 1, 2, 0, 0), InputRecord("b", 0, 0, 0, 1, 0, "gone")],
    inputs_digest="00",
    counts={"documents": 1},
    settings={"seed": 0},
    run={"seconds": 1.0},
)


def test_what_is_written_is_read_again() -> None:
    assert Manifest.from_json(MANIFEST.to_json(), Path("m")) == MANIFEST


def test_additions_of_later_releases_are_passed_over() -> None:
    content = json.loads(MANIFEST.to_json())
    content["colour"] = content["inputs"][0]["colour"] = "blue"
    assert Manifest.from_json(json.dumps(content), Path("m")) == MANIFEST


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "not a penstok manifest"),
        ({"version": 2}, "version 2 is newer"),
        ({"version": None}, "damaged: its version"),
        ({"version": "2"}, "damaged: its version"),
        ({"splits": {}}, "damaged"),
        ({"tokenizer": None}, "damaged"),
        ({"inputs": [{}]}, "damaged"),
    ],
)
def test_what_is_no_manifest_is_damage(change: dict[str, object], words: str) -> None:
    content = json.loads(MANIFEST.to_json()) | change
    with pytest.raises(DamageError, match=words):
        Manifest.from_json(json.dumps(content), Path("m"))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "\0"])
def test_any_text_is_damage_and_no_crash(text: str) -> None:
    with pytest.raises(DamageError):
        Manifest.from_json(text, Path("m"))


@pytest.mark.parametrize(
    "text", [b"", b"{}", b'{"format": "penst', b'{"format": "penstok", "v\xaar": 1}']
)
def test_beside_a_ledger_a_damaged_manifest_is_ours_and_can_be_repaired(
    text: bytes, tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").write_bytes(text)
    with (
        pytest.raises(ForeignManifestError)
        if b"penstok" not in text
        else pytest.raises(DamageError, match="damaged")
    ):
        Manifest.load(tmp_path)
    (tmp_path / "segments.jsonl").touch()
    with pytest.raises(DamageError, match="the manifest is damaged") as caught:
        Manifest.load(tmp_path)
    assert caught.value.next_step.startswith(f"`penstok verify {tmp_path} --repair`")
    assert "Error" not in caught.value.what
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(DamageError, match="the manifest is missing") as caught:
        Manifest.load(tmp_path)
    assert "--repair" in caught.value.next_step


@pytest.mark.parametrize("name", ["../train.bin", "/etc/passwd", "a/b.bin"])
def test_paths_that_leave_the_folder_are_refused(name: str) -> None:
    text = MANIFEST.to_json().replace('"train.bin"', json.dumps(name))
    with pytest.raises(DamageError, match="outside its folder"):
        Manifest.from_json(text, Path("m"))
