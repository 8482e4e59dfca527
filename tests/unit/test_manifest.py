from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstok import tokenizers
from penstok.cli import info, job_summary
from penstok.cli.messages import escape
from penstok.data.dataset import Dataset, open_dataset
from penstok.data.settings import ShowSettings
from penstok.errors import DamageError, UsageError
from penstok.jobs.differences import find_differences
from penstok.output.ledger.lines import format_job
from penstok.output.manifest import (
    FileRecord,
    ForeignManifestError,
    InputRecord,
    Manifest,
    SplitRecord,
)
from penstok.types import Counts, JobRecord, TokenizerRecord, asdict, replace

FILE = FileRecord("train.bin", 4, 2, "00")
MANIFEST = Manifest(
    penstok="0.1.0",
    tokenizer=TokenizerRecord("gpt2", 50257, 50256, "sha256:0"),
    dtype="uint16",
    byte_order="little",
    splits={"train": SplitRecord(1, 2, [FILE]), "val": SplitRecord(0, 0, [])},
    inputs=[InputRecord('a "file".txt', 3, 1, 2, 0, 0), InputRecord("b", 0, 0, 0, 1, 0, "gone")],
    inputs_digest="00",
    counts=asdict(Counts(documents=1, tokens=2, skipped_records=3)),
    settings={"seed": 0, "eot": "append", "docs_by": "file", "val_fraction": 0.0},
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


@pytest.mark.parametrize(
    ("skipped_records", "lines"),
    [
        (2, ["2 records skipped, see `skipped.jsonl`", "2 inputs skipped, see `skipped.jsonl`"]),
        (0, ["2 inputs skipped, see `skipped.jsonl`"]),
    ],
)
def test_what_is_not_text_is_no_skipped_record(skipped_records: int, lines: list[str]) -> None:
    counts = asdict(Counts(documents=1, tokens=2, skipped_records=skipped_records + 1))
    ignored = InputRecord("picture", 0, 0, 0, 0, 0, "not text")
    settings = MANIFEST.settings | {"invalid_utf8": "replace"}
    run = {"tasks": 1, "seconds": 1.0, "engine": "kernel", "peak_memory_bytes": 1}
    inputs = [*MANIFEST.inputs, ignored]
    splits = {**MANIFEST.splits, "val": SplitRecord(0, 0, [FILE])}
    made = replace(
        MANIFEST, counts=counts, inputs=inputs, settings=settings, run=run, splits=splits
    )
    said = job_summary.finished_lines(made, "out", is_new=True)
    assert [line.strip() for line in said if "see `skipped" in line] == lines


@cache
def _gpt2() -> TokenizerRecord:
    gpt2 = tokenizers.load_tokenizer("gpt2")
    return TokenizerRecord("gpt2", gpt2.vocab_size, gpt2.eot_id, gpt2.fingerprint)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else items:
        yield (*place, key)
        yield from _places(each, (*place, key))


@pytest.mark.parametrize(
    "value",
    ["delete", None, "", 0, 2**70, 1.5, "float9", "\ud800", "a\0b", [], {}],
)
def test_a_manifest_with_any_other_value_is_shown_or_is_damage(
    value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Also as it was before text was counted.
    counts = {name: each for name, each in MANIFEST.counts.items() if name != "text_bytes"}
    content = json.loads(replace(MANIFEST, counts=counts).to_json())
    content["tokenizer"] = asdict(_gpt2())
    content["settings"] |= {"limit_bytes": 1, "task_bytes": None}
    content["inputs"][0] |= {"format": "text", "compression": "gzip"}
    (tmp_path / "train.bin").write_bytes(b"ab\0\0")
    monkeypatch.setattr(
        tokenizers, "load_recorded_tokenizer", cache(tokenizers.load_recorded_tokenizer)
    )
    num_shown = 0
    for *place, last in _places(content):
        changed = copy.deepcopy(content)
        inner = changed
        for key in place:
            inner = inner[key]
        inner[last] = value
        if value == "delete":
            del inner[last]
        (tmp_path / "manifest.json").write_text(json.dumps(changed))
        with suppress(DamageError, UsageError):
            dataset = open_dataset(tmp_path)
            for line in info._lines(dataset):
                escape(line).encode()
            dataset.decode_stored(dataset.read_shown(ShowSettings()))
            num_shown += 1
    assert 0 < num_shown < 70


def test_tokens_are_a_list_or_an_array() -> None:
    dataset = Dataset(Path("out"), replace(MANIFEST, tokenizer=_gpt2()))
    assert dataset.decode_stored([1, 2]) == dataset.decode([1, 2]) == '"#'
    with pytest.raises(UsageError, match="these are not ids"):
        dataset.decode_stored("ab")  # type: ignore[arg-type]


def test_a_lost_tokenizer_gets_advice_that_works(tmp_path: Path) -> None:
    lost = replace(_gpt2(), name=str(tmp_path / "m.json"))
    (tmp_path / "n.json").write_text("{}")
    dataset = Dataset(tmp_path, replace(MANIFEST, tokenizer=lost))
    with pytest.raises(UsageError, match=r"m\.json` does not exist") as caught:
        dataset.decode([1])
    step = (
        f"recorded name, {tmp_path}/m.json; or print ids instead: `penstok show {tmp_path} --ids`"
    )
    assert caught.value.next_step.endswith(step)
    (tmp_path / "segments.jsonl").write_bytes(
        format_job(JobRecord("0.1.0", _gpt2(), "uint16", 1, MANIFEST.settings))
    )
    with pytest.raises(DamageError, match="`tokenizer` differs from the ledger") as damage:
        dataset.decode([1])
    assert damage.value.next_step.startswith(f"`penstok verify {tmp_path} --repair`")


def test_a_job_in_parts_is_finished_by_finish(tmp_path: Path) -> None:
    (tmp_path / ".penstok" / "parts").mkdir(parents=True)
    (tmp_path / ".penstok" / "job.jsonl").touch()
    with pytest.raises(DamageError, match="the job here is not finished") as caught:
        Manifest.load(tmp_path)
    assert f"`penstok finish {tmp_path}`" in caught.value.next_step
    settings = [MANIFEST.settings | {"task_bytes": size} for size in (1 << 26, None)]
    there, here = (replace(MANIFEST, settings=each) for each in settings)
    assert find_differences(there, here) == [
        "many tasks (`--task-size`, `--part` or Ray) there, one task here"
    ]
