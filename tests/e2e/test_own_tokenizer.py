"""A tokenizer of one's own, from file to `train.bin` and back, as a user would."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import EXAMPLES
from vocabularies import gpt2_json, train, write_json

import penstok
from penstok.tokenizers import load_tokenizer
from penstok.tokenizers.vocabulary import format_ranks

pytestmark = pytest.mark.slow


def run(*arguments: Any, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstok", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def tokenize(folder: Path, *arguments: Any) -> subprocess.CompletedProcess[str]:
    return run("tokenize", EXAMPLES, "-o", "out", *arguments, folder=folder)


@pytest.mark.parametrize("engine", ["kernel", "fastokens", "tiktoken"])
def test_a_large_vocabulary_goes_through_as_uint32(engine: str, tmp_path: Path) -> None:
    library = train(70_000)
    write_json(tmp_path, library.to_str())
    done = tokenize(tmp_path, "-t", "tokenizer.json", "--engine", engine, "--val-fraction", 0)
    assert done.returncode == 0, done.stderr
    output = penstok.open(tmp_path / "out")
    assert output.manifest.dtype == "uint32"
    assert output.manifest.run["engine"] == engine
    record = output.manifest.tokenizer
    assert (record.name, record.vocab_size, record.eot_id) == ("tokenizer.json", 70_000, 0)
    assert record.fingerprint == load_tokenizer(str(tmp_path / "tokenizer.json")).fingerprint
    texts = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.txt"))]
    expected = [i for text in texts for i in (*library.encode(text).ids, 0)]
    assert output.train.tolist() == expected
    assert max(expected) > 1 << 16
    refused = tokenize(tmp_path, "-t", "tokenizer.json", "--dtype", "uint16", "--overwrite")
    assert refused.returncode == 2
    assert "uint16 cannot hold 70000 ids" in refused.stderr


def test_info_and_show_read_it_back_and_say_when_they_cannot(tmp_path: Path) -> None:
    path = write_json(tmp_path, train(4000).to_str())
    assert tokenize(tmp_path, "-t", ".").returncode == 0
    first = sorted(EXAMPLES.glob("*.txt"))[0].read_text(encoding="utf-8")
    shown = run("show", "out", "--tokens", 20, folder=tmp_path)
    assert shown.returncode == 0
    assert shown.stdout[:15] == first[:15]
    described = run("info", "out", folder=tmp_path).stdout
    assert "end-of-text <|endoftext|> (0) appended, uint16" in described
    ids = run("show", "out", "--ids", folder=tmp_path).stdout
    shutil.move(path, tmp_path / "elsewhere.json")
    without = run("info", "out", folder=tmp_path)
    assert without.returncode == 0
    assert "(no text: the folder has none of tokenizer.json" in without.stdout
    failed = run("show", "out", folder=tmp_path)
    assert failed.returncode == 2
    assert "the folder has none of tokenizer.json" in failed.stderr
    assert run("show", "out", "--ids", folder=tmp_path).stdout == ids


def test_the_same_ids_whatever_file_they_come_from(tmp_path: Path) -> None:
    (tmp_path / "ranks.tiktoken").write_bytes(format_ranks(load_tokenizer("gpt2").ranks))
    write_json(tmp_path, gpt2_json())
    ways = (
        ("-t", "gpt2"),
        ("-t", "tokenizer.json"),
        ("-t", "ranks.tiktoken", "--pattern", "gpt2", "--eot-token", "50256"),
    )
    found = []
    for way in ways:
        done = tokenize(tmp_path, *way, "--overwrite")
        assert done.returncode == 0, done.stderr
        content = json.loads((tmp_path / "out" / "manifest.json").read_text())
        found.append((np.fromfile(tmp_path / "out" / "train.bin", np.uint16), content["settings"]))
    for ids, settings in found[1:]:
        np.testing.assert_array_equal(ids, found[0][0])
        assert settings == found[0][1]


def test_another_tokenizer_is_another_job(tmp_path: Path) -> None:
    path = write_json(tmp_path, train(4000).to_str())
    assert tokenize(tmp_path, "-t", path).returncode == 0
    assert "nothing to do" in tokenize(tmp_path, "-t", path).stderr
    write_json(tmp_path, train(300).to_str())
    conflict = tokenize(tmp_path, "-t", path)
    assert conflict.returncode == 5
    assert "the same name, but its content" in conflict.stderr


def test_a_file_of_ranks_needs_its_pattern_and_end_of_text(tmp_path: Path) -> None:
    (tmp_path / "ranks.tiktoken").write_bytes(format_ranks(load_tokenizer("gpt2").ranks))
    done = tokenize(tmp_path, "-t", "ranks.tiktoken", "--pattern", "gpt2")
    assert done.returncode == 2
    assert "pass its text or id, such as `--eot-token 50256`" in done.stderr
    done = tokenize(tmp_path, "-t", "ranks.tiktoken", "--eot-token", "50256")
    assert done.returncode == 2
    assert "--pattern" in done.stderr
    assert not (tmp_path / "out").exists()
