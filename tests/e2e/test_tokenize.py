"""The real program on real files: what a user types, and what is there afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support import EOT, EXAMPLES, expected_splits, reference

import penstok as library
from penstok.choices import EngineChoice

if TYPE_CHECKING:
    from conftest import RunPenstok

DOCUMENTS = ["the first document", "the second, 二つ目", "le troisième"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("<|endoftext|>".join(DOCUMENTS), encoding="utf-8")
    return path


def read(path: Path) -> list[int]:
    return list(map(int, np.fromfile(path, "<u2")))


def expected(documents: list[str], **options: float) -> dict[str, list[int]]:
    return expected_splits([text.encode() for text in documents], **options)  # type: ignore[arg-type]


@pytest.mark.cold
def test_a_text_becomes_train_and_val(penstok: RunPenstok, corpus: Path, tmp_path: Path) -> None:
    done = penstok("tokenize", corpus, "--val-fraction", "0.5")
    splits = expected(DOCUMENTS, val_fraction=0.5)
    assert read(tmp_path / "tokens" / "train.bin") == splits["train"]
    assert read(tmp_path / "tokens" / "val.bin") == splits["val"]
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == "next: penstok verify tokens/"
    assert sorted(path.name for path in (tmp_path / "tokens").iterdir()) == [
        "manifest.json",
        "segments.jsonl",
        "train.bin",
        "train_documents.npy",
        "val.bin",
        "val_documents.npy",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["kernel", "fastokens", "tiktoken"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_engines_and_workers_give_the_same_bytes(
    tmp_path: Path, engine: EngineChoice, workers: int
) -> None:
    documents = [
        text
        for path in sorted(EXAMPLES.glob("*.txt"))
        for text in path.read_bytes().split(b"<|endoftext|>")
    ]
    library.tokenize(
        EXAMPLES,
        tmp_path / "out",
        engine=engine,
        workers=workers,
        memory=4 << 30,
        unit_bytes=5000,
        block_bytes=2000,
        val_fraction=0.2,
    )
    splits = expected_splits(documents, val_fraction=0.2)
    assert read(tmp_path / "out" / "train.bin") == splits["train"]
    assert read(tmp_path / "out" / "val.bin") == splits["val"]


def test_shards_joined_are_the_single_files(
    penstok: RunPenstok, corpus: Path, tmp_path: Path
) -> None:
    penstok("tokenize", corpus, "-o", "one", "--val-fraction", "0.5")
    penstok("tokenize", corpus, "-o", "many", "--val-fraction", "0.5", "--shard-tokens", "4")
    for split in ("train", "val"):
        shards = sorted((tmp_path / "many").glob(f"{split}_shard_*.bin"))
        assert (
            b"".join(path.read_bytes() for path in shards)
            == (tmp_path / "one" / f"{split}.bin").read_bytes()
        )
    assert (tmp_path / "many" / "train_shard_00001.bin").stat().st_size == 8
    dataset = library.open(tmp_path / "many")
    one = library.open(tmp_path / "one")
    assert dataset.read("train", 2, 9).tolist() == one.train[2:11].tolist()
    assert len(dataset.shards("train")) == -(-len(one.train) // 4)


def test_files_folders_and_globs_keep_their_order(penstok: RunPenstok, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "deep"
    folder.mkdir(parents=True)
    for name in ("part-10.txt", "part-2.txt", "part-1.txt"):
        (folder / name).write_text(f"text of {name}")
    (folder / ".hidden.txt").write_text("hidden")
    (folder / "loop").symlink_to(tmp_path / "in")
    (tmp_path / "last.md").write_text("the last")
    penstok("tokenize", "in", "*.md")
    manifest = json.loads((tmp_path / "tokens" / "manifest.json").read_text())
    assert [record["path"] for record in manifest["inputs"]] == [
        "in/deep/part-1.txt",
        "in/deep/part-2.txt",
        "in/deep/part-10.txt",
        "last.md",
    ]
    assert manifest["settings"]["docs_by"] == "file"
    assert manifest["counts"]["documents"] == 4


def test_documents_by_line(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_bytes(b"one\r\n\r\ntwo\n\nthree")
    done = penstok("tokenize", "lines.txt", "--docs-by", "line", "--val-fraction", "0")
    assert read(tmp_path / "tokens" / "train.bin") == expected(["one", "two", "three"])["train"]
    assert "2 empty documents dropped" in done.stderr


@pytest.mark.parametrize("eot", ["append", "prepend", "none"])
def test_end_of_text_goes_where_asked(
    penstok: RunPenstok, corpus: Path, tmp_path: Path, eot: str
) -> None:
    penstok("tokenize", corpus, "--eot", eot, "--val-fraction", "0")
    documents = [text.encode() for text in DOCUMENTS]
    assert (
        read(tmp_path / "tokens" / "train.bin")
        == expected_splits(documents, val_fraction=0, eot=eot)["train"]
    )


def test_special_text_is_counted_and_stays_ordinary(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a <|endoftext|> b\n\nplain\n\n<|endoftext|>")
    done = penstok("tokenize", "text.txt", "--doc-separator", r"\n\n", "--val-fraction", "0")
    ids = read(tmp_path / "tokens" / "train.bin")
    assert ids.count(EOT) == 3
    assert reference().decode(ids).count("<|endoftext|>") == 5
    assert "the text `<|endoftext|>` occurs in 2 documents" in done.stderr


def test_the_manifest_adds_up(penstok: RunPenstok, corpus: Path, tmp_path: Path) -> None:
    penstok("tokenize", corpus, "--val-fraction", "0.5", "--memory", "900MiB", "-j", "1")
    manifest = json.loads((tmp_path / "tokens" / "manifest.json").read_text())
    assert manifest["format"] == "penstok"
    assert manifest["version"] == 1
    assert manifest["dtype"] == "uint16"
    assert manifest["byte_order"] == "little"
    assert manifest["tokenizer"]["vocab_size"] == 50257
    assert manifest["tokenizer"]["eot_id"] == EOT
    assert manifest["counts"]["input_bytes"] == corpus.stat().st_size
    for split in ("train", "val"):
        record = manifest["splits"][split]
        assert record["tokens"] == sum(file["tokens"] for file in record["files"])
        for file in record["files"]:
            path = tmp_path / "tokens" / file["path"]
            assert path.stat().st_size == file["bytes"] == 2 * file["tokens"]
    total = sum(manifest["splits"][split]["tokens"] for split in ("train", "val"))
    assert total == manifest["counts"]["tokens"] == manifest["inputs"][0]["tokens"]
    assert manifest["run"]["workers"] == 1
    assert manifest["run"]["engine"] == "tiktoken"


@pytest.mark.cold
def test_json_lines_have_a_summary(penstok: RunPenstok, corpus: Path) -> None:
    done = penstok("tokenize", corpus, "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["type"] for line in lines} == {"status", "summary"}
    assert lines[-1]["type"] == "summary"
    assert lines[-1]["counts"]["documents"] == 3
    assert lines[-1]["is_new"] is True


@pytest.mark.cold
def test_json_lines_have_the_error(penstok: RunPenstok) -> None:
    done = penstok("tokenize", "missing.txt", "--json", exit_code=4)
    error = json.loads(done.stdout)
    assert error["type"] == "error"
    assert error["exit_code"] == 4
    assert "missing.txt" in error["what"]


@pytest.mark.cold
def test_quiet_says_nothing(penstok: RunPenstok, corpus: Path) -> None:
    done = penstok("tokenize", corpus, "-q")
    assert done.stdout == done.stderr == ""


def test_dry_run_writes_nothing(penstok: RunPenstok, corpus: Path, tmp_path: Path) -> None:
    done = penstok("tokenize", corpus, "--dry-run")
    assert "separated by '<|endoftext|>'" in done.stdout
    assert not (tmp_path / "tokens").exists()


def test_the_limit_keeps_whole_documents(penstok: RunPenstok, corpus: Path, tmp_path: Path) -> None:
    penstok("tokenize", corpus, "--limit", "10", "--val-fraction", "0")
    assert read(tmp_path / "tokens" / "train.bin") == expected(DOCUMENTS[:1])["train"]


def test_a_finished_job_is_not_done_again(
    penstok: RunPenstok, corpus: Path, tmp_path: Path
) -> None:
    penstok("tokenize", corpus)
    before = (tmp_path / "tokens" / "train.bin").stat().st_mtime_ns
    done = penstok("tokenize", corpus)
    assert "nothing to do" in done.stderr
    assert (tmp_path / "tokens" / "train.bin").stat().st_mtime_ns == before


@pytest.mark.cold
def test_info_and_show(penstok: RunPenstok, corpus: Path) -> None:
    penstok("tokenize", corpus, "--val-fraction", "0")
    shown = penstok("info", "tokens")
    assert "3 documents" in shown.stdout
    assert "the first document" in shown.stdout
    assert json.loads(penstok("info", "tokens", "--json").stdout)["dtype"] == "uint16"
    assert penstok("show", "tokens", "--tokens", "4").stdout == "the first document<|endoftext|>\n"
    assert penstok("show", "tokens", "--ids", "--tokens", "2").stdout == "1169 717\n"
    penstok("show", "tokens", "--split", "val", exit_code=2)
    penstok("show", "tokens", "--split", "test", exit_code=2)


def test_control_sequences_of_a_corpus_do_not_reach_the_terminal(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("red \x1b[31m alert\x07\x9b\u202e!", encoding="utf-8")
    penstok("tokenize", "text.txt", "--val-fraction", "0")
    for command in (("info", "tokens"), ("show", "tokens")):
        shown = penstok(*command).stdout
        assert "\\x1b[31m" in shown
        assert not set(shown) & set("\x1b\x07\x9b\u202e")


def test_python_gets_read_only_maps(penstok: RunPenstok, corpus: Path, tmp_path: Path) -> None:
    penstok("tokenize", corpus, "--val-fraction", "0")
    dataset = library.open(tmp_path / "tokens")
    assert dataset.train.dtype == np.uint16
    assert isinstance(dataset.train, np.memmap)
    assert not dataset.train.flags.writeable
    assert dataset.val.tolist() == []
    with pytest.raises(library.PenstokError, match="no finished job"):
        library.open(tmp_path)


@pytest.mark.cold
def test_python_returns_the_manifest(corpus: Path, tmp_path: Path) -> None:
    manifest = library.tokenize(corpus, tmp_path / "out", engine="tiktoken")
    assert manifest.counts["documents"] == 3
    with pytest.raises(library.PenstokError, match="unknown tokenizer"):
        library.tokenize(corpus, tmp_path / "other", tokenizer="gpt3")
