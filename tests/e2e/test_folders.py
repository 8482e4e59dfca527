"""Folders as inputs: what is not text is ignored and listed, and only that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import RunPenstok

IGNORED = {
    "corpus/old": "this folder is an output of penstok",
    "corpus/picture.png": "this is a PNG picture, not text",
}


@pytest.fixture
def corpus(penstok: RunPenstok, tmp_path: Path) -> Path:
    """A folder with two texts, a picture, and an output of another job."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text("the first text")
    (folder / "b.txt").write_text("the second text")
    penstok("tokenize", "corpus", "-o", "corpus/old", "--val-fraction", "0")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n")
    return folder


def manifest() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path("tokens/manifest.json").read_text())
    return content


@pytest.mark.usefixtures("corpus")
def test_what_is_not_text_is_listed_with_exit_0(penstok: RunPenstok) -> None:
    done = penstok("tokenize", "corpus", "--val-fraction", "0", "--json")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["skipped"] == IGNORED
    assert summary["counts"]["skipped_records"] == 0
    for path, why in IGNORED.items():
        assert f"  skipped: {path}: {why}" in done.stderr
    unused = [each for each in manifest()["inputs"] if each["reason"]]
    assert {each["path"]: each["reason"] for each in unused} == IGNORED
    assert [each["skipped"] for each in unused] == [0, 0]
    listed = [json.loads(line) for line in Path("tokens/skipped.jsonl").read_text().splitlines()]
    assert {each["path"]: each["reason"] for each in listed} == IGNORED
    assert "nothing to do" in penstok("tokenize", "corpus", "--val-fraction", "0").stderr
    plan = penstok("plan", "corpus").stdout
    assert "skipped:    corpus/picture.png: this is a PNG picture" in plan
    penstok("verify", "tokens", "--full")


@pytest.mark.usefixtures("corpus")
def test_verify_repairs_the_records_of_ignored_inputs(penstok: RunPenstok) -> None:
    penstok("tokenize", "corpus", "--val-fraction", "0")
    names = ("manifest.json", "skipped.jsonl", "segments.jsonl")
    contents = {name: Path("tokens", name).read_bytes() for name in names}
    for name in names:
        Path("tokens", name).write_bytes(contents[name][:-40])
        penstok("verify", "tokens", exit_code=6)
        penstok("verify", "tokens", "--repair")
        assert Path("tokens", name).read_bytes() == contents[name], name


def test_a_named_one_is_an_error_and_a_lost_one_is_exit_3(
    penstok: RunPenstok, corpus: Path
) -> None:
    penstok("tokenize", "corpus/a.txt", "corpus/picture.png", exit_code=4)
    penstok("tokenize", "corpus/*", exit_code=4)
    (corpus / "gone.txt").symlink_to("nowhere.txt")
    said = penstok("tokenize", "corpus", exit_code=4).stderr
    assert "a link to `nowhere.txt`, which does not exist" in said
    done = penstok("tokenize", "corpus", "--on-error", "skip", "--json", exit_code=3)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["skipped"].keys() == {"corpus/gone.txt", *IGNORED}
    assert summary["counts"]["skipped_records"] == 1
    penstok("verify", "tokens")


@pytest.mark.usefixtures("corpus")
def test_parts_and_training_ignore_the_same(penstok: RunPenstok) -> None:
    for part in ("1/2", "2/2"):
        penstok("tokenize", "corpus", "--part", part, "--val-fraction", "0")
    said = penstok("finish", "tokens").stderr
    assert "  skipped: corpus/picture.png: this is a PNG picture" in said
    assert {each["path"] for each in manifest()["inputs"] if each["reason"]} == IGNORED.keys()
    done = penstok("train-tokenizer", "corpus", "-o", "t.json", "--vocab-size", "260")
    assert "  skipped: corpus/picture.png: this is a PNG picture" in done.stderr


def test_a_folder_without_text_says_what_is_in_it(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for number in range(9):
        (tmp_path / "pictures" / f"{number}.png").write_bytes(b"\x89PNG\r\n")
    said = penstok("tokenize", "pictures", exit_code=4).stderr
    assert "no text in `pictures`: `pictures/0.png`: this is a PNG picture" in said
    (tmp_path / "a.txt").write_text("text")
    penstok("tokenize", "a.txt", "pictures", exit_code=4)
    done = penstok("tokenize", "a.txt", "pictures", "--on-error", "skip", exit_code=3)
    assert "  skipped: 5 more inputs" in done.stderr
