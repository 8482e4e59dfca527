"""Bad input gets a clear error or a counted repair, and nothing is lost."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import expected_splits, reference

if TYPE_CHECKING:
    from conftest import RunPenstok


def tokenize(
    penstok: RunPenstok, data: bytes, *flags: str
) -> tuple[list[int], dict[str, Any], str]:
    """Tokenize bytes without val; return the ids, the counts and what was said."""
    Path("text.txt").write_bytes(data)
    done = penstok("tokenize", "text.txt", "--val-fraction", "0", "--overwrite", *flags)
    manifest = json.loads(Path("tokens/manifest.json").read_text())
    return np.fromfile("tokens/train.bin", "<u2").tolist(), manifest["counts"], done.stderr


def ids_of(*documents: bytes) -> list[int]:
    return expected_splits(list(documents), val_fraction=0)["train"]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["missing.txt"], 4, "no such file or folder: `missing.txt`"),
        (["*.nothing"], 4, "no file matches `*.nothing`"),
        (["empty_folder"], 4, "no files in the folder `empty_folder`"),
        (["empty.txt"], 4, "no text in the input"),
        (["separators.txt"], 4, "no document in the input: 2 empty ones dropped"),
        (["pipe"], 4, "not a regular file"),
        (["text.txt.gz"], 4, "the gzip data is cut off"),
        (["data.parquet"], 4, "this parquet file is damaged or cut short"),
        (["utf16.txt"], 4, "--encoding utf-16-le"),
        (["records.csv"], 4, "column `text` is missing; the header has `id`, `body`"),
        (["-", "text.txt"], 2, "standard input cannot be combined with other inputs"),
        (["text.txt", "./text.txt"], 2, "named twice"),
        (["text.txt", "--val-fraction", "-1"], 2, "the val fraction must be between 0 and 1"),
        (["text.txt", "--val-fraction", "1.5"], 2, "the val fraction must be between 0 and 1"),
        (["text.txt", "--val-fraction", "nan"], 2, "the val fraction must be between 0 and 1"),
        (["text.txt", "--tokenizer", "gpt3"], 2, "did you mean `gpt2`?"),
        (["text.txt", "--engine", "warp"], 2, "known: auto, kernel, fastokens, tiktoken"),
        (["text.txt", "--eot", "both"], 2, "known: append, prepend, none"),
        (["text.txt", "--docs-by", "page"], 2, "known: auto, separator, line, file"),
        (["text.txt", "--docs-by", "separator"], 2, "no separator"),
        (["text.txt", "--docs-by", "line", "--doc-separator", "x"], 2, "pass one of the two"),
        (["text.txt", "--doc-separator", ""], 2, "the separator has 0 bytes"),
        (["text.txt", "--dtype", "int8"], 2, "known: auto, uint16, uint32"),
        (["text.txt", "--invalid-utf8", "maybe"], 2, "known: replace, ignore, stop"),
        (["text.txt", "--memory", "10MiB"], 2, "too little memory"),
        (["text.txt", "--memory", "much"], 2, "a size such as `1GiB`"),
        (["text.txt", "--memory", "300MiB", "-j", "4"], 2, "fewer `--workers`"),
        (["text.txt", "--shard-tokens", "0"], 2, "`0` is too small"),
        (["text.txt", "--shard-tokens", "5X"], 2, "a count such as `500M`"),
        (["text.txt", "--seed", "-1"], 2, "out of range"),
        (["text.txt", "-j", "0"], 2, "`0` is too small"),
        (["text.txt", "--no-such-flag"], 2, "unknown flag `--no-such-flag`"),
        (["text.txt", "--val-fraction", "few"], 2, "`few` is not a number"),
        (["text.txt", "-o", "text.txt/out"], 8, "cannot be written"),
        (["text.txt", "-o", "/proc/penstok"], 8, "cannot be written"),
        (["text.txt", "-o", "foreign"], 5, "`train.bin` exists and is not from a finished job"),
        (["text.txt", "-o", "broken"], 5, "`manifest.json` exists and is not from penstok"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else None,
)
def test_errors_say_what_and_what_next(
    penstok: RunPenstok, tmp_path: Path, arguments: list[str], exit_code: int, words: str
) -> None:
    (tmp_path / "text.txt").write_text("some text")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "separators.txt").write_text("<|endoftext|>" * 2)
    (tmp_path / "text.txt.gz").write_bytes(b"\x1f\x8b\x08\x00")
    (tmp_path / "data.parquet").write_bytes(b"PAR1....PAR1")
    (tmp_path / "utf16.txt").write_bytes("text".encode("utf-16"))
    (tmp_path / "records.csv").write_text("id,body\n1,hello\n")
    os.mkfifo(tmp_path / "pipe")
    for folder in ("empty_folder", "foreign", "broken"):
        (tmp_path / folder).mkdir()
    (tmp_path / "foreign" / "train.bin").write_bytes(b"mine")
    (tmp_path / "broken" / "manifest.json").write_text("{")
    done = penstok("tokenize", *arguments, exit_code=exit_code)
    assert words in done.stderr
    assert "error: " in done.stderr
    assert "  next:  " in done.stderr
    assert (tmp_path / "foreign" / "train.bin").read_bytes() == b"mine"
    assert not (tmp_path / "tokens").exists()


def test_unusable_files_can_be_skipped(penstok: RunPenstok, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "good.txt").write_text("good")
    (folder / "bad.gz").write_bytes(b"\x1f\x8b")
    (folder / "gone.txt").symlink_to("nowhere")
    done = penstok("tokenize", "in", "--on-error", "skip", "--val-fraction", "0", exit_code=3)
    assert "skipped: in/bad.gz: the gzip data is cut off" in done.stderr
    manifest = json.loads((tmp_path / "tokens" / "manifest.json").read_text())
    assert manifest["counts"]["skipped_records"] == 2
    assert [record["skipped"] for record in manifest["inputs"]] == [0, 1, 1]


def test_text_before_the_damage_of_a_short_file_is_used(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    text = random.Random(1).randbytes(9000).hex().encode()
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(text)[:9000])
    for words in ("wrote", "nothing to do"):
        done = penstok("tokenize", "cut.txt.gz", "--on-error", "skip", exit_code=3)
        assert words in done.stderr
    (line,) = (tmp_path / "tokens" / "skipped.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert 10_000 < found["position"] < len(text)
    assert f"after {found['position']:,} bytes of content" in found["reason"]
    penstok("verify", "tokens", "--full")
    penstok("tokenize", "cut.txt.gz", "-o", "new", exit_code=4)


def test_invalid_utf8_is_replaced_and_counted(penstok: RunPenstok) -> None:
    ids, counts, said = tokenize(penstok, b"ok \xff\xfe bad \xe2\x82 cut \xef\xbf\xbd kept")
    assert ids == ids_of("ok \ufffd\ufffd bad \ufffd cut \ufffd kept".encode())
    assert counts["invalid_utf8"] == 3
    assert "3 invalid UTF-8 sequences replaced" in said


def test_invalid_utf8_can_be_ignored_or_refused(penstok: RunPenstok) -> None:
    ids, counts, _ = tokenize(penstok, b"ok \xff\xfe bad", "--invalid-utf8", "ignore")
    assert ids == ids_of(b"ok  bad")
    assert counts["invalid_utf8"] == 2
    done = penstok("tokenize", "text.txt", "-o", "other", "--invalid-utf8", "stop", exit_code=4)
    assert "text.txt, byte 3" in done.stderr
    assert not Path("other").exists()


def test_nul_bytes_marks_and_line_ends(penstok: RunPenstok) -> None:
    ids, counts, said = tokenize(penstok, b"\xef\xbb\xbfa\0b\r\nno final newline")
    assert ids == ids_of(b"a\0b\r\nno final newline")
    assert counts["nul_bytes"] == 1
    assert counts["byte_order_marks"] == 1
    assert "1 byte order mark removed" in said


def test_a_mark_inside_the_text_is_text(penstok: RunPenstok) -> None:
    text = "a\ufeffb".encode()
    assert tokenize(penstok, text)[0] == ids_of(text)


@pytest.mark.slow
def test_one_word_of_5_mb_is_cut_and_counted(penstok: RunPenstok) -> None:
    ids, counts, said = tokenize(penstok, b"before " + b"a" * 5_000_000 + b" after")
    assert counts["forced_cuts"] == 3
    assert "3 forced cuts" in said
    assert reference().decode(ids[:-1]) == "before " + "a" * 5_000_000 + " after"


@pytest.mark.slow
def test_a_run_of_1_mib_stays_exact(penstok: RunPenstok) -> None:
    data = b"x " * 300_000 + b"a" * (1 << 20) + b" end"
    ids, counts, _ = tokenize(penstok, data)
    assert counts["forced_cuts"] == 0
    assert ids == ids_of(data)


@pytest.mark.slow
def test_one_long_line_stays_exact(penstok: RunPenstok) -> None:
    data = b" ".join(b"%d words" % number for number in range(1_500_000))
    assert len(data) > 16 << 20
    ids, counts, _ = tokenize(penstok, data, "--docs-by", "line")
    assert ids == ids_of(data)
    assert counts["documents"] == 1


def test_a_separator_across_a_block_border(penstok: RunPenstok) -> None:
    filler = b"word " * 419_430
    data = filler[: (2 << 20) - 5] + b"<|endoftext|>second"
    ids, counts, _ = tokenize(penstok, data, "--doc-separator", "<|endoftext|>")
    assert counts["documents"] == 2
    assert ids[-2:] == ids_of(b"second")


def test_extreme_val_fractions(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one\ntwo\nthree\n")
    for fraction, full, empty in (("0", "train", "val"), ("1", "val", "train")):
        penstok(
            "tokenize", "text.txt", "--docs-by", "line", "--val-fraction", fraction, "-o", fraction
        )
        assert (tmp_path / fraction / f"{full}.bin").stat().st_size > 0
        assert (tmp_path / fraction / f"{empty}.bin").stat().st_size == 0
    done = penstok("tokenize", "text.txt", "--docs-by", "line", "-o", "default")
    assert "val: 1 document was taken, chosen by its hash" in done.stderr


def test_another_jobs_output_is_a_conflict(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text")
    penstok("tokenize", "text.txt")
    before = (tmp_path / "tokens" / "train.bin").read_bytes()
    done = penstok("tokenize", "text.txt", "--seed", "7", exit_code=5)
    assert "`--seed` 0 there, 7 here" in done.stderr
    assert "`--overwrite` to delete 4 files" in done.stderr
    (tmp_path / "text.txt").write_text("some other text")
    done = penstok("tokenize", "text.txt", exit_code=5)
    assert "input `text.txt`: 9 bytes there, 15 here" in done.stderr
    assert (tmp_path / "tokens" / "train.bin").read_bytes() == before
    penstok("tokenize", "text.txt", "--overwrite")
    assert (tmp_path / "tokens" / "train.bin").read_bytes() != before


def test_overwriting_shards_leaves_none_behind(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text of a few tokens")
    penstok("tokenize", "text.txt", "--shard-tokens", "2")
    penstok("tokenize", "text.txt", "--overwrite")
    names = sorted(path.name for path in (tmp_path / "tokens").iterdir())
    assert names == [
        *("manifest.json", "segments.jsonl"),
        *("train.bin", "train_documents.npy", "val.bin", "val_documents.npy"),
    ]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("text.txt", "`text.txt` is an input"),
        ("/dev/null", "is not a folder"),
        ("pipe", "is not a"),
    ],
)
def test_nobody_is_told_to_move_inputs_and_devices(
    penstok: RunPenstok, tmp_path: Path, output: str, words: str
) -> None:
    (tmp_path / "text.txt").write_text("some text")
    os.mkfifo(tmp_path / "pipe")
    said = penstok("tokenize", "text.txt", "-o", output, exit_code=5).stderr
    assert words in said
    assert "choose another `-o`" in said
    assert "mv " not in said


def test_a_manifest_of_another_program_is_left_alone(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.json").write_text('{"name":"webapp"}')
    for command in (["info"], ["show"], ["verify"], ["verify", "--repair"]):
        said = penstok(*command, tmp_path / "web", exit_code=6).stderr
        assert "there is no output of penstok here" in said
        assert "--overwrite" not in said
    said = penstok("tokenize", "text.txt", "-o", "web", exit_code=5).stderr
    assert "`manifest.json` exists and is not from penstok" in said
    assert "--overwrite" not in said
    assert [path.name for path in (tmp_path / "web").iterdir()] == ["manifest.json"]


def test_a_damaged_manifest_is_repaired_as_every_command_advises(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("some text")
    penstok("tokenize", "text.txt")
    manifest = tmp_path / "tokens" / "manifest.json"
    whole = bytearray(manifest.read_bytes())
    manifest.write_bytes(whole[:30] + b"\xaa" + whole[31:])
    for command, code in (("info tokens", 6), ("show tokens", 6), ("tokenize text.txt", 5)):
        said = penstok(*command.split(), exit_code=code).stderr
        assert "the manifest is damaged" in said
        assert "penstok verify tokens --repair" in said
        assert "--overwrite" not in said
    penstok("verify", "tokens", "--repair")
    assert manifest.read_bytes() == whole


def test_nothing_to_look_at_is_damage(penstok: RunPenstok, tmp_path: Path) -> None:
    for command in ("info", "show"):
        assert "no finished job" in penstok(command, tmp_path, exit_code=6).stderr
    (tmp_path / "text.txt").write_text("some text")
    penstok("tokenize", "text.txt")
    (tmp_path / "tokens" / "train.bin").write_bytes(b"x")
    assert "has 1 byte instead of" in penstok("info", "tokens", exit_code=6).stderr


def test_a_finished_job_without_its_files_is_a_conflict(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("some text")
    penstok("tokenize", "text.txt")
    (tmp_path / "tokens" / "train.bin").unlink()
    assert "is missing" in penstok("tokenize", "text.txt", exit_code=5).stderr
    penstok("tokenize", "text.txt", "--overwrite")


def test_a_job_does_not_overwrite_its_input(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_text("precious text")
    penstok("tokenize", "train.bin", "-o", ".", "--overwrite", exit_code=2)
    assert (tmp_path / "train.bin").read_text() == "precious text"


def test_the_output_may_be_the_input_folder(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text")
    penstok("tokenize", ".", "-o", ".", "--val-fraction", "0")
    assert json.loads((tmp_path / "manifest.json").read_text())["counts"]["documents"] == 1


def test_a_folder_under_an_output_name_is_a_conflict(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text")
    (tmp_path / "tokens" / "val.bin").mkdir(parents=True)
    for flags in ([], ["--overwrite"]):
        penstok("tokenize", "text.txt", *flags, exit_code=5)
        assert not (tmp_path / "tokens" / ".penstok").exists()


def test_empty_files_are_counted(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text")
    (tmp_path / "b.txt").touch()
    (tmp_path / "c.txt").write_bytes(b"\xef\xbb\xbf")
    penstok("tokenize", "a.txt", "b.txt", "c.txt")
    counts = json.loads((tmp_path / "tokens" / "manifest.json").read_text())["counts"]
    assert counts["empty_documents"] == 2
    assert counts["byte_order_marks"] == 1


def test_a_skipped_file_is_said_again_when_nothing_is_to_do(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("some text")
    (tmp_path / "b\n.gz").write_bytes(b"\x1f\x8b")
    for words in ("wrote", "nothing to do"):
        done = penstok("tokenize", "a.txt", "b\n.gz", "--on-error", "skip", exit_code=3)
        assert words in done.stderr
        assert "skipped: b\\n.gz: the gzip data is cut off" in done.stderr


def test_the_reference_says_what_it_cannot_do(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(b"a" + b" " * 1_040_000 + b"b")
    command = [sys.executable, "-m", "penstok", "tokenize", "text.txt", "--engine", "tiktoken"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "tiktoken cannot encode this text" in done.stderr
    assert "pass `--engine auto`" in done.stderr


def test_a_limit_beside_a_unit_border_closes_the_document(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    text = b"a few words " * 1_500_000
    (tmp_path / "text.txt").write_bytes(text)
    for rule in (["--docs-by", "file"], ["--doc-separator", "@@"]):
        for limit in ((16 << 20) - 1, 16 << 20, (16 << 20) + 1):
            flags = [*rule, "--limit", str(limit), "--val-fraction", "0", "--overwrite"]
            penstok("tokenize", "text.txt", *flags, "--engine", "auto")
            ids = np.fromfile(tmp_path / "tokens" / "train.bin", "<u2")
            assert ids[-1] == 50256
            assert (ids == 50256).sum() == 1


def test_short_lines_beside_a_forced_cut_are_quick(penstok: RunPenstok, tmp_path: Path) -> None:
    lines = b"x\n" * 500_000
    (tmp_path / "text.txt").write_bytes(lines + b"y" * (2 << 20) + b"\n" + lines)
    penstok("tokenize", "text.txt", "--docs-by", "line", "--engine", "auto")
    counts = json.loads((tmp_path / "tokens" / "manifest.json").read_text())["counts"]
    assert counts["documents"] == 1_000_001
    assert counts["forced_cuts"] >= 1


@pytest.mark.parametrize("size", [1000, 1_500_000])
def test_a_file_of_white_space_is_an_empty_document_when_stripped(
    penstok: RunPenstok, tmp_path: Path, size: int
) -> None:
    (tmp_path / "blank.txt").write_bytes(b" " * size)
    (tmp_path / "text.txt").write_text(" some text ")
    flags = ["--strip", "--docs-by", "file", "--val-fraction", "0"]
    penstok("tokenize", "blank.txt", "text.txt", *flags)
    counts = json.loads((tmp_path / "tokens" / "manifest.json").read_text())["counts"]
    assert (counts["documents"], counts["empty_documents"]) == (1, 1)
    ids = np.fromfile(tmp_path / "tokens" / "train.bin", "<u2").tolist()
    assert ids == ids_of(b"some text")


def test_what_leaves_nothing_to_read_is_named(penstok: RunPenstok) -> None:
    Path("a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    Path("header.csv").write_bytes(b"id,text\n")
    Path("two words.txt").write_bytes(b"")
    skipped = penstok("tokenize", "a.png", "--on-error", "skip", exit_code=4).stderr
    assert "1 input skipped; `a.png`: this is a PNG picture" in skipped
    assert "ls -l" not in skipped
    assert "no document in the input\n" in penstok("tokenize", "header.csv", exit_code=4).stderr
    assert "`ls -l 'two words.txt'`" in penstok("tokenize", "two words.txt", exit_code=4).stderr


def test_skipped_inputs_are_no_records(penstok: RunPenstok) -> None:
    Path("a.txt").write_bytes(b"text")
    Path("b.jsonl").write_bytes(b'{"text": "one"}\n{bad}\n')
    Path("a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    names = ("a.txt", "b.jsonl", "a.png")
    done = penstok("tokenize", *names, "--on-error", "skip", exit_code=3)
    assert "  1 record skipped, see" in done.stderr
    assert "  1 input skipped, see" in done.stderr


def test_a_line_break_in_a_name_does_not_break_an_error(penstok: RunPenstok) -> None:
    name = "a\nnext: $(touch b).txt"
    Path(name).write_bytes(b"\0\x01\x02" * 100)
    said = penstok("tokenize", name, exit_code=4).stderr
    assert "where: a\\nnext: $(touch b).txt" in said
    said = penstok("tokenize", "not\nthere", exit_code=4).stderr
    assert "no such file or folder: `not\\nthere`" in said


def test_a_task_size_without_effect_gets_a_hint(penstok: RunPenstok) -> None:
    Path("a.txt").write_bytes(b"some text\n" * 100)
    done = penstok("tokenize", "a.txt", "--part", "1/1", "--task-size", "30", "-o", "parts")
    assert "hint: `--task-size 30` is less than a unit, 16MiB" in done.stderr
