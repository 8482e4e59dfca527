"""Every kind of damage is found by the mode that promises it, located, and repaired."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import penstok
from penstok.errors import ConflictError, DamageError, InputError
from penstok.output.ledger.reader import LedgerReader
from penstok.types import FinishedUnit

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    "engine": "tiktoken",
    "unit_bytes": 100_000,
    "block_bytes": 50_000,
    "val_fraction": 0.2,
    "shard_tokens": 40_000,
    "workers": 1,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output of two inputs, eight units and several shards, and a folder that was skipped."""
    folder = tmp_path_factory.mktemp("made")
    for number, count in enumerate((300, 100)):
        text = "<|endoftext|>".join(
            f"document {idx} of {number}: " + f"some words, {idx * 7} of them; " * (40 + idx % 30)
            for idx in range(count)
        )
        (folder / f"input{number}.txt").write_text(text)
    (folder / "picture.txt").write_bytes(b"\x89PNG and so on")
    names = [folder / "input0.txt", folder / "input1.txt", folder / "picture.txt"]
    penstok.tokenize(names, folder / "out", on_error="skip", **SETTINGS)
    return folder


@pytest.fixture
def output(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "out", tmp_path / "out")
    return tmp_path / "out"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def units_of(output: Path) -> list[FinishedUnit]:
    return list(LedgerReader(output / "segments.jsonl").iter_units())


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def flip_a_token(output: Path) -> None:
    flip(output / "train_shard_00001.bin", 4001)


def flip_the_last_token(output: Path) -> None:
    flip(output / "val_shard_00000.bin", -2)


def write_no_id(output: Path) -> None:
    (first, *_) = units_of(output)[2].written.segments
    path = output / f"{first.split}_shard_{first.shard:05}.bin"
    ids = np.fromfile(path, np.uint16)
    ids[first.offset_tokens] = 65535
    ids.tofile(path)


def truncate(output: Path) -> None:
    os.truncate(output / "train_shard_00000.bin", 30_001)


def truncate_to_nothing(output: Path) -> None:
    os.truncate(output / "train_shard_00000.bin", 0)


def append(output: Path) -> None:
    with (output / "val_shard_00000.bin").open("ab") as file:
        file.write(b"more")


def swap_shards(output: Path) -> None:
    (output / "train_shard_00000.bin").rename(output / "x")
    (output / "train_shard_00001.bin").rename(output / "train_shard_00000.bin")
    (output / "x").rename(output / "train_shard_00001.bin")


def delete_shard(output: Path) -> None:
    (output / "train_shard_00001.bin").unlink()


def edit_manifest(output: Path) -> None:
    text = (output / "manifest.json").read_text()
    (output / "manifest.json").write_text(text.replace('"documents": ', '"documents": 1', 1))


def edit_a_name_in_the_manifest(output: Path) -> None:
    text = (output / "manifest.json").read_text()
    name = json.dumps("../train_shard_00000.bin")
    (output / "manifest.json").write_text(text.replace('"train_shard_00000.bin"', name))


def add_to_the_manifest(output: Path) -> None:
    text = (output / "manifest.json").read_text()
    (output / "manifest.json").write_text(text.replace("{", '{"more": 1,', 1))


def delete_manifest(output: Path) -> None:
    (output / "manifest.json").unlink()


def garble_manifest(output: Path) -> None:
    (output / "manifest.json").write_bytes(b"\xff\x00{" * 1000)


def delete_skipped(output: Path) -> None:
    (output / "skipped.jsonl").unlink()


def edit_lines(output: Path, edit: Callable[[list[bytes]], None]) -> None:
    path = output / "segments.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    edit(lines)
    path.write_bytes(b"".join(lines))


def flip_in_the_ledger(output: Path) -> None:
    path = output / "segments.jsonl"
    flip(path, path.stat().st_size // 2)


def cut_the_ledger(output: Path) -> None:
    edit_lines(output, lambda lines: lines.__delitem__(slice(5, None)))


def lose_two_units(output: Path) -> None:
    edit_lines(output, lambda lines: lines.__delitem__(slice(3, 8, 4)))


def swap_two_units(output: Path) -> None:
    edit_lines(output, lambda lines: lines.insert(3, lines.pop(4)))


def lose_the_first_line(output: Path) -> None:
    edit_lines(output, lambda lines: lines.__setitem__(0, b"{}\n"))


def delete_ledger(output: Path) -> None:
    (output / "segments.jsonl").unlink()


def lose_an_input(output: Path) -> None:
    edit_lines(output, lambda lines: lines.__setitem__(1, lines[1][:20] + b"?" + lines[1][21:]))


def lose_the_end(output: Path) -> None:
    edit_lines(output, lambda lines: lines.__delitem__(-1))


def all_together(output: Path) -> None:
    for damage in (flip_a_token, truncate, append, delete_manifest, delete_skipped):
        damage(output)


def deleted_and_edited(output: Path) -> None:
    swap_shards(output)
    delete_shard(output)
    edit_manifest(output)


QUICK = [
    truncate,
    truncate_to_nothing,
    append,
    delete_shard,
    edit_manifest,
    edit_a_name_in_the_manifest,
    add_to_the_manifest,
    delete_manifest,
    garble_manifest,
    delete_skipped,
    flip_the_last_token,
    write_no_id,
    flip_in_the_ledger,
    cut_the_ledger,
    lose_two_units,
    swap_two_units,
    lose_the_first_line,
    lose_an_input,
    lose_the_end,
    all_together,
    deleted_and_edited,
]
FULL = [flip_a_token, swap_shards]


def test_a_whole_output_passes_every_mode_and_nothing_is_written(made: Path) -> None:
    before = {path.name: path.stat() for path in (made / "out").iterdir()}
    for settings in ({}, {"full": True}, {"source": True}):
        assert penstok.verify(made / "out", workers=1, **settings).is_whole
    report = penstok.verify(made / "out", workers=1, full=True, source=True)
    assert report.is_whole, report.findings
    assert report.is_all_proved
    assert report.documents_proved == 400 == sum(report.documents.values())
    assert report.units_read == report.num_units == len(units_of(made / "out"))
    assert report.bytes_read == 2 * sum(report.tokens.values())
    after = {path.name: path.stat() for path in (made / "out").iterdir()}
    for name in before:
        assert after[name].st_mtime_ns == before[name].st_mtime_ns
    assert set(before) == set(after)


@pytest.mark.parametrize("damage", QUICK, ids=lambda damage: damage.__name__)
def test_damage_a_quick_look_finds(
    output: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    # No unit is read whole but one, so that sizes, records and edges alone must show it.
    monkeypatch.setattr("penstok.verification.verify._SAMPLE_BYTES", 0)
    damage(output)
    report = penstok.verify(output, seed=0)
    assert not report.is_whole


# Without its first line a ledger can only be repaired if units have the usual size.
REPAIRABLE = [damage for damage in (*QUICK, *FULL) if damage is not lose_the_first_line]


@pytest.mark.parametrize("damage", REPAIRABLE, ids=lambda damage: damage.__name__)
def test_damage_is_found_by_reading_all_and_repaired(
    made: Path, output: Path, damage: Callable[[Path], None]
) -> None:
    whole = contents(made / "out")
    damage(output)
    assert contents(output) != whole
    report = penstok.verify(output, full=True)
    assert not report.is_whole
    assert report.is_repairable
    repaired = penstok.verify(output, repair=True, full=True, workers=1)
    assert repaired.is_whole, repaired.findings
    assert repaired.repaired_findings
    assert contents(output) == whole


def test_exactly_the_damaged_unit_is_reencoded_and_named(made: Path, output: Path) -> None:
    flip_a_token(output)
    report = penstok.verify(output, full=True)
    (finding,) = report.findings
    (unit,) = [
        unit
        for unit in units_of(output)
        for segment in unit.written.segments
        if (segment.split, segment.shard) == ("train", 1)
        and segment.offset_tokens <= 2000 < segment.offset_tokens + segment.num_tokens
    ]
    assert list(report.damaged) == [unit.unit.index]
    assert finding.file == "train_shard_00001.bin"
    assert (finding.start or 0) <= 4001 < (finding.end or 0)
    assert finding.input == str(made / "input0.txt")
    assert (finding.unit, finding.input_start) == (unit.unit.index, unit.unit.start)
    assert finding.input_end == unit.unit.end
    assert penstok.verify(output, repair=True, workers=1).units_repaired == 1


def test_the_sample_finds_a_flipped_byte_sooner_or_later(output: Path) -> None:
    flip_a_token(output)
    assert not penstok.verify(output).is_whole  # All of a small output is in the sample.


def test_the_same_seed_looks_at_the_same_units(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstok.verification.verify._SAMPLE_BYTES", 120_000)
    flip_a_token(output)
    seen = [{penstok.verify(output, seed=seed).is_whole for _ in range(3)} for seed in range(12)]
    assert all(len(answers) == 1 for answers in seen)
    assert {True, False} == set.union(*seen)


def test_a_ledger_that_is_very_long_is_sampled_and_that_is_said(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstok.verification.records._QUICK_LEDGER_BYTES", 100)
    report = penstok.verify(output)
    assert report.is_whole, report.findings
    assert "very large" in report.notes[0]
    flip_in_the_ledger(output)
    report = penstok.verify(output)
    assert report.kinds == {"ledger"}
    assert penstok.verify(output, repair=True, workers=1).is_whole
    flip_a_token(output)
    assert penstok.verify(output).kinds == {"tokens"}
    edit_manifest(output)
    assert not penstok.verify(output).is_whole


def rewrite_unit(output: Path, edit: Callable[[dict[str, Any]], None], line: int = 2) -> None:
    """Change a line of the ledger and give it the right checksum, as only a liar would."""

    def change(lines: list[bytes]) -> None:
        content = json.loads(lines[line])
        del content["check"]
        edit(content)
        body = json.dumps(content, separators=(",", ":")).encode()
        check = b',"check":"' + xxhash.xxh3_64_hexdigest(body).encode() + b'"}\n'
        lines[line] = body[:-1] + check

    edit_lines(output, change)


def test_tokens_that_were_recorded_wrong_are_found_and_not_called_repairable(
    made: Path, output: Path
) -> None:
    # As if the job itself had been wrong: file, ledger and manifest agree.
    segment = units_of(output)[0].written.segments[0]
    path = output / f"{segment.split}_shard_{segment.shard:05}.bin"
    ids = np.fromfile(path, np.uint16)
    end = segment.offset_tokens + segment.num_tokens
    for wrong, kinds in ((65000, {"ids"}), (50256, {"ids"}), (11, set())):
        ids[segment.offset_tokens + 5] = wrong
        ids.tofile(path)
        digest = xxhash.xxh3_128_hexdigest(ids[segment.offset_tokens : end].tobytes())

        def lie(content: dict[str, Any], digest: str = digest) -> None:
            content["segments"][0][4] = digest

        rewrite_unit(output, lie)
        penstok.verify(output, repair=True)  # It can at least make the manifest fit.
        report = penstok.verify(output, full=True)
        assert report.kinds == kinds
        assert report.is_repairable == report.is_whole
        assert {finding.unit for finding in report.findings} <= {0, None}
        assert report.is_whole or report.findings[0].unit == 0
    report = penstok.verify(output, full=True, source=True, workers=1)
    (finding,) = report.findings
    assert finding.start == (segment.offset_tokens + 5) * 2 == (finding.end or 0) - 2
    assert penstok.verify(output, repair=True, source=True, workers=1).kinds == {"source"}


def test_counts_that_were_recorded_wrong_are_found_in_the_source(output: Path) -> None:
    def lie(content: dict[str, Any]) -> None:
        content["counts"]["nul_bytes"] = 5

    rewrite_unit(output, lie)
    assert penstok.verify(output, repair=True, full=True).is_whole
    report = penstok.verify(output, source=True, workers=1)
    assert [(finding.kind, finding.unit) for finding in report.findings] == [("source", 0)]


def test_counts_of_a_stream_that_were_recorded_wrong_are_found(tmp_path: Path) -> None:
    """A unit of a stream is read from the ring; the recorded one is not."""
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(b"some words of a text\n" * 1000))
    output = tmp_path / "out"
    penstok.tokenize(tmp_path / "in.txt.gz", output, docs_by="line", val_fraction=0)

    def lie(content: dict[str, Any]) -> None:
        content["counts"]["nul_bytes"] = 5

    rewrite_unit(output, lie)
    assert penstok.verify(output, repair=True, full=True).is_whole
    report = penstok.verify(output, source=True, workers=1)
    assert [(finding.kind, finding.unit) for finding in report.findings] == [("source", 0)]


def test_a_ledger_whose_last_units_are_gone_is_not_believed(output: Path) -> None:
    edit_lines(output, lambda lines: lines.__delitem__(slice(-3, -1)))
    (output / "manifest.json").unlink()
    report = penstok.verify(output)
    assert "the job ends before its last unit" in report.findings[0].what
    with pytest.raises(DamageError):
        penstok.verify(output, repair=True)


def test_a_document_in_the_wrong_split_is_found_in_the_source(made: Path, tmp_path: Path) -> None:
    # The same job with another seed has the same documents in other splits.
    names = [made / "input0.txt", made / "input1.txt"]
    penstok.tokenize(names, tmp_path / "other", **SETTINGS, seed=1)
    path = tmp_path / "other" / "segments.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines))

    def lie(content: dict[str, Any]) -> None:
        content["settings"]["seed"] = 0

    rewrite_unit(tmp_path / "other", lie, line=0)
    (tmp_path / "other" / "manifest.json").unlink()
    assert penstok.verify(tmp_path / "other", repair=True, full=True).is_whole
    report = penstok.verify(tmp_path / "other", source=True, workers=1)
    assert report.kinds == {"source"}


def test_missing_and_changed_inputs_are_named(
    made: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy2(made / "input0.txt", tmp_path / "input.txt")
    monkeypatch.chdir(tmp_path)
    penstok.tokenize("input.txt", "mine", **SETTINGS)
    source = Path("input.txt")
    before = source.stat()
    text = source.read_bytes()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"`input\.txt` is missing") as missing:
        penstok.verify("../mine", source=True)
    assert "folder in which the job was started" in missing.value.next_step
    monkeypatch.chdir(tmp_path)
    os.utime(source)
    with pytest.raises(ConflictError, match="written to since") as touched:
        penstok.verify("mine", source=True)
    assert touched.value.where == "input.txt"
    command = touched.value.next_step.split("`")[1]
    assert os.system(command) == 0
    assert source.stat().st_mtime_ns == before.st_mtime_ns
    assert penstok.verify("mine", source=True, workers=1).is_whole
    source.write_bytes(b"D" + text[1:])
    with pytest.raises(ConflictError, match="content of the input changed"):
        penstok.verify("mine", source=True)
    source.write_bytes(text + b"more")
    with pytest.raises(ConflictError, match="bytes now"):
        penstok.verify("mine", source=True)
    assert penstok.verify("mine", full=True).is_whole
    flip_a_token(Path("mine"))
    whole = contents(Path("mine"))
    with pytest.raises(ConflictError, match="bytes now"):
        penstok.verify("mine", repair=True)
    assert contents(Path("mine")) == whole  # Nothing was touched.
    source.write_bytes(text[:50_000] + b"\n" + text[50_001:])
    Path("mine/train_shard_00000.bin").unlink()
    with pytest.raises(ConflictError, match="other tokens"):
        penstok.verify("mine", repair=True, workers=1)
    assert not Path("mine/train_shard_00000.bin").exists()
    source.write_bytes(text)
    assert penstok.verify("mine", repair=True, workers=1).is_whole


def test_too_little_left_is_said_with_what_to_type(output: Path) -> None:
    delete_manifest(output)
    cut_the_ledger(output)
    assert not penstok.verify(output).is_repairable
    with pytest.raises(DamageError) as hopeless:
        penstok.verify(output, repair=True)
    assert "--overwrite" in hopeless.value.next_step or "tokenize" in hopeless.value.next_step


def test_a_ledger_and_a_manifest_that_both_lie_are_not_joined(output: Path) -> None:
    lose_two_units(output)
    edit_manifest(output)
    before = contents(output)
    with pytest.raises(DamageError, match="does not fit the manifest"):
        penstok.verify(output, repair=True, workers=1)
    assert contents(output) == before


@pytest.mark.parametrize("damage", [delete_ledger, lose_the_first_line])
def test_a_lost_ledger_is_rewritten_from_the_inputs(
    made: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    # With units of the usual size, which is assumed if the first line is lost.
    settings = {key: value for key, value in SETTINGS.items() if key != "unit_bytes"}
    penstok.tokenize([made / "input0.txt", made / "input1.txt"], tmp_path / "o", **settings)
    whole = contents(tmp_path / "o")
    damage(tmp_path / "o")
    flip_a_token(tmp_path / "o")
    assert penstok.verify(tmp_path / "o", repair=True, full=True, workers=1).is_whole
    assert contents(tmp_path / "o") == whole


def test_a_ledger_without_its_first_line_is_not_guessed(output: Path) -> None:
    lose_the_first_line(output)
    before = contents(output)
    with pytest.raises(DamageError, match="does not fit the manifest") as unrepairable:
        penstok.verify(output, repair=True, workers=1)
    assert "tokenize INPUT..." in unrepairable.value.next_step
    assert contents(output) == before


def test_only_units_after_the_damage_are_reencoded(made: Path, output: Path) -> None:
    edit_lines(output, lambda lines: lines.__delitem__(-2))
    num_units = len(units_of(made / "out"))
    assert penstok.verify(output, repair=True, workers=1).units_repaired == 1
    assert contents(output) == contents(made / "out")
    edit_lines(output, lambda lines: lines.__setitem__(3, b"{}\n"))
    assert penstok.verify(output, repair=True, workers=1).units_repaired == num_units - 1
    assert contents(output) == contents(made / "out")


@pytest.mark.parametrize("damage", [lose_two_units, lose_the_first_line, lose_the_end])
def test_a_ledger_with_bad_records_is_repaired(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    lines = [
        json.dumps({"text" if idx % 50 else "body": f"document {idx}, {'words ' * 400}"})
        for idx in range(400)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    (tmp_path / "picture.jsonl").write_bytes(b"\x89PNG and so on")
    output = tmp_path / "out"
    names = [tmp_path / "in.jsonl", tmp_path / "picture.jsonl"]
    settings = {key: value for key, value in SETTINGS.items() if key != "unit_bytes"}
    settings = settings if damage is lose_the_first_line else SETTINGS
    penstok.tokenize(names, output, on_error="skip", **settings)
    whole = contents(output)
    damage(output)
    assert not penstok.verify(output).is_whole
    assert penstok.verify(output, repair=True, full=True, workers=1).is_whole
    assert contents(output) == whole


@pytest.mark.parametrize(
    "damage", [flip_in_the_ledger, cut_the_ledger, lose_an_input, lose_the_end]
)
def test_a_ledger_of_several_tasks_is_repaired(
    made: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    settings = {key: value for key, value in SETTINGS.items() if key != "shard_tokens"}
    names, output = [made / "input0.txt", made / "input1.txt"], tmp_path / "out"
    penstok.tokenize_part(names, output, 1, 1, task_size=250_000, **settings)
    penstok.finish(output)
    whole = contents(output)
    assert (output / "segments.jsonl").read_bytes().count(b'{"task":') > 2
    damage(output)
    assert penstok.verify(output, repair=True, full=True, workers=1).is_whole
    assert contents(output) == whole


@pytest.mark.parametrize("name", ["train_shard_00001.bin", "val_shard_00000.bin"])
def test_what_is_no_file_is_found_and_never_followed(
    output: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "target").write_bytes(b"mine")
    (output / name).unlink()
    (output / name).symlink_to(tmp_path / "target")
    assert not penstok.verify(output).is_whole
    with pytest.raises(ConflictError, match="a link, a folder or a pipe"):
        penstok.verify(output, repair=True)
    (output / name).unlink()
    os.mkfifo(output / name)
    assert "not a regular file" in penstok.verify(output, full=True).findings[0].what
    assert (tmp_path / "target").read_bytes() == b"mine"


def test_a_shard_too_many_is_found(output: Path) -> None:
    shutil.copy(output / "train_shard_00000.bin", output / "train_shard_00077.bin")
    (finding,) = penstok.verify(output).findings
    assert finding.file == "train_shard_00077.bin"
    assert not finding.is_repairable


def test_folders_without_a_finished_job_never_pass(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "train.bin").write_bytes(b"1234")
    (tmp_path / "file").write_text("text")
    for name in ("missing", "empty", "foreign", "file"):
        for repair in (False, True):
            with pytest.raises(DamageError, match="no finished job"):
                penstok.verify(tmp_path / name, repair=repair)
    assert list((tmp_path / "empty").iterdir()) == []
    (tmp_path / "foreign" / ".penstok").mkdir()
    (tmp_path / "foreign" / ".penstok" / "job.jsonl").touch()
    with pytest.raises(DamageError, match="not finished"):
        penstok.verify(tmp_path / "foreign")


@pytest.mark.parametrize(
    ("eot", "docs_by"),
    [
        ("append", "line"),
        ("append", "file"),
        ("prepend", "file"),
        ("append", "separator"),
        ("prepend", "separator"),
        ("none", "separator"),
    ],
)
def test_end_of_text_ids_fit_the_documents(tmp_path: Path, eot: str, docs_by: str) -> None:
    text = "".join(f"line {idx} " + "of words " * (idx % 40) + "\n" for idx in range(12_000))
    (tmp_path / "giant.txt").write_text(text[:1_500_000])
    (tmp_path / "small.txt").write_text(text[:90_000] + "\x00\n\n  \n")
    settings = SETTINGS | {"docs_by": docs_by, "eot": eot, "strip": docs_by == "line"}
    if docs_by == "separator":
        settings["doc_separator"] = "line 7"
    inputs = [tmp_path / "giant.txt", tmp_path / "small.txt"]
    penstok.tokenize(inputs, tmp_path / "out", **settings, limit=1_540_000)
    report = penstok.verify(tmp_path / "out", full=True)
    assert report.is_whole, report.findings
