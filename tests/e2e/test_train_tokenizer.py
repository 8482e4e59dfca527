"""A vocabulary learnt from a corpus: the real program, from text to ids and back."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from parity.kernel_cases import block_of, hostile_document
from processes import ENDED, status_of, wait_for
from support import EXAMPLES
from vocabularies import example_texts
from warm import children_of

import penstok
from penstok.engines import load_engine
from penstok.errors import WriteError
from penstok.tokenizers import load_tokenizer

pytestmark = pytest.mark.slow
EOT = "<|endoftext|>"
WITHOUT_LIBRARY = """
import sys
sys.modules["tokenizers"] = None
from penstok.cli import main
main()
"""


def run(folder: Path, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstok", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def train(folder: Path, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    return run(folder, "train-tokenizer", *arguments, **options)


def write_text(folder: Path, texts: list[str]) -> Path:
    path = folder / "corpus.txt"
    path.write_text(EOT.join(texts), encoding="utf-8")
    return path


def write_gzip(folder: Path, texts: list[str]) -> Path:
    path = folder / "corpus.jsonl.gz"
    lines = (json.dumps({"text": text, "id": idx}) for idx, text in enumerate(texts))
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    return path


def write_parquet(folder: Path, texts: list[str]) -> Path:
    path = folder / "corpus.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=500)
    return path


WRITERS = pytest.mark.parametrize("write", [write_text, write_gzip, write_parquet])
Writer = Callable[[Path, list[str]], Path]


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@WRITERS
def test_a_vocabulary_is_learnt_from_every_kind_of_input(write: Writer, tmp_path: Path) -> None:
    write(tmp_path, example_texts())
    done = train(tmp_path, *files_in(tmp_path), "--vocab-size", 3000, "-o", "my.json")
    assert done.returncode == 0, done.stderr
    assert "wrote my.json: 3,000 tokens, pattern cl100k, <|endoftext|> is 2999" in done.stderr
    assert "bytes per token" in done.stderr
    assert f"next: penstok tokenize {files_in(tmp_path)[0]} -t my.json" in done.stderr
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "my.json"))
    assert library.get_vocab_size() == 3000
    assert library.token_to_id(EOT) == 2999
    text = example_texts()[0].replace(EOT, "")
    assert library.decode(library.encode(text).ids) == text


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "llama3", "qwen2"])
def test_every_engine_gives_the_ids_of_the_library(pattern: str, tmp_path: Path) -> None:
    done = train(
        tmp_path, EXAMPLES, "--vocab-size", 2000, "--pattern", pattern, "-o", "my.json", "-q"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "my.json"))
    tokenizer = load_tokenizer(str(tmp_path / "my.json"))
    rng = random.Random(6)
    texts = [*example_texts(), *(hostile_document(rng) for _ in range(300))]
    texts = [text.replace(EOT, "") for text in texts]
    expected = [i for text in texts for i in (*library.encode(text).ids, tokenizer.eot_id)]
    block = block_of([text.encode() for text in texts])
    for name in ("kernel", "fastokens", "tiktoken"):
        ids = load_engine(name, tokenizer, "append").encode(block)
        assert ids.tolist() == expected, name


@pytest.mark.thorough
@WRITERS
def test_the_same_bytes_every_time_and_on_any_number_of_cores(
    write: Writer, tmp_path: Path
) -> None:
    """A sample that is smaller than the text, so that what is taken matters too."""
    write(tmp_path, example_texts() * 40)
    cores = os.sched_getaffinity(0)
    found = []
    for used in (cores, cores, {min(cores)}):
        options = {"preexec_fn": lambda used=used: os.sched_setaffinity(0, used)}
        done = train(
            tmp_path,
            *(name for name in files_in(tmp_path) if name != "my.json"),
            *("--vocab-size", 1500, "--sample", "300kB", "-o", "my.json", "--overwrite"),
            **options,
        )
        assert done.returncode == 0, done.stderr
        found.append((tmp_path / "my.json").read_bytes())
    assert found[0] == found[1] == found[2]


@pytest.mark.cold
def test_it_is_used_by_tokenize_and_read_back_by_show(tmp_path: Path) -> None:
    assert train(tmp_path, EXAMPLES, "--vocab-size", "2K", "-o", "my.json").returncode == 0
    done = run(tmp_path, "tokenize", EXAMPLES, "-t", "my.json", "-o", "out", "--val-fraction", 0)
    assert done.returncode == 0, done.stderr
    manifest = penstok.open(tmp_path / "out").manifest
    assert (manifest.tokenizer.vocab_size, manifest.tokenizer.eot_id) == (2000, 1999)
    shown = run(tmp_path, "show", "out", "--tokens", 50)
    first = sorted(EXAMPLES.glob("*.txt"))[0].read_text(encoding="utf-8")
    assert shown.returncode == 0
    assert shown.stdout[:30] == first[:30]


@WRITERS
def test_the_sample_is_spread_over_the_input(write: Writer, tmp_path: Path) -> None:
    """The head of the corpus alone would know no Japanese, its end no English."""
    english = (EXAMPLES / "english.txt").read_text(encoding="utf-8")
    japanese = (EXAMPLES / "japanese.txt").read_text(encoding="utf-8")
    write(tmp_path, [english] * 400 + [japanese] * 400)
    done = train(
        tmp_path, *files_in(tmp_path), *("--vocab-size", 2000, "--sample", "400kB", "--json")
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert 200_000 < summary["sample_bytes"] < 900_000
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in (english, japanese):
        # A language of which nothing was seen has hardly more than one.
        assert len(text.encode()) / len(library.encode(text).ids) > 2.5


def test_special_tokens_come_last_and_are_not_learnt_from_text(tmp_path: Path) -> None:
    line = json.dumps({"text": f"a {EOT} in a text is text <|pad|> "})
    (tmp_path / "corpus.jsonl").write_text("\n".join([line] * 50))
    done = train(
        tmp_path,
        *("corpus.jsonl", "--vocab-size", 290, "-o", "my.json", "--json"),
        *("--special", EOT, "--special", "<|pad|>", "--special", "<｜終｜>"),
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    size = summary["vocab_size"]
    ids = {EOT: size - 3, "<|pad|>": size - 2, "<｜終｜>": size - 1}
    assert (summary["type"], summary["special"]) == ("summary", ids)
    tokenizer = load_tokenizer(str(tmp_path / "my.json"))
    assert EOT.encode() not in tokenizer.ranks
    assert b"endoftext" in tokenizer.ranks
    assert load_tokenizer(str(tmp_path / "my.json"), eot_token="<｜終｜>").eot_id == size - 1


def test_too_little_text_is_said_with_the_number_it_is_enough_for(tmp_path: Path) -> None:
    (tmp_path / "small.txt").write_text("one two one two")
    done = train(tmp_path, "small.txt", "-o", "my.json")
    assert done.returncode == 0
    size = tokenizers.Tokenizer.from_file(str(tmp_path / "my.json")).get_vocab_size()
    assert f"wrote my.json: {size} tokens" in done.stderr
    assert f"warning: the vocabulary has {size} tokens instead of 32,000" in done.stderr


def test_bad_records_and_bytes_are_counted(tmp_path: Path) -> None:
    good = [json.dumps({"text": text}).encode() for text in example_texts()]
    (tmp_path / "corpus.jsonl").write_bytes(
        b"\n".join([*good, b'{"no": 1}', b'{"text": "a\xff b"}'])
    )
    stopped = train(tmp_path, "corpus.jsonl", "--vocab-size", 500)
    assert stopped.returncode == 4
    assert "tokenizer.json" not in files_in(tmp_path)
    done = train(tmp_path, "corpus.jsonl", "--vocab-size", 500, "--on-error", "skip")
    assert done.returncode == 3, done.stderr
    assert "note: 1 bad record skipped" in done.stderr
    assert "note: 1 invalid UTF-8 sequence" in done.stderr


def test_standard_input_is_taken_from_its_beginning_and_that_is_said(tmp_path: Path) -> None:
    text = EOT.join(example_texts() * 20)
    done = train(tmp_path, "-", "--vocab-size", 500, "--sample", "200kB", "--json", input=text)
    assert done.returncode == 0, done.stderr
    assert "the sample is its beginning" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["sample_bytes"] < 400_000


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--vocab-size", "257"], 2, "258 (256 bytes, 1 special, one to learn)"),
        (["--vocab-size", "3M"], 2, "--vocab-size"),
        (["--pattern", "gpt5"], 2, "unknown value `gpt5`; known: gpt2, starcoder, cl100k"),
        (["--special", "the"], 2, "`the` can be a token of ordinary text"),
        (["--special", EOT, "--special", EOT], 2, "is named twice"),
        (["--special", "a\udcff b"], 2, "cannot be printed"),
        (["--sample", "much"], 2, "`much` is not a size"),
        (["-o", "my.bin"], 2, "`my.bin` does not end in `.json`"),
        (["-o", "/dev/full"], 2, "`/dev/full` does not end in `.json`"),
        (["-o", ""], 2, "`.` is a folder"),
        (["-o", "none/my.json"], 2, "`mkdir -p none`"),
        (["-o", "old.json"], 5, "pass `--overwrite` to replace it"),
        (["-o", "corpus.json", "--overwrite"], 2, "is an input"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(
    arguments: list[str], code: int, words: str, tmp_path: Path
) -> None:
    (tmp_path / "corpus.json").write_text(json.dumps({"text": "some text " * 50}))
    (tmp_path / "old.json").write_text("old")
    done = train(tmp_path, "corpus.json", *arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "next:" in done.stderr
    assert files_in(tmp_path) == ["corpus.json", "old.json"]
    assert (tmp_path / "old.json").read_text() == "old"


def test_a_folder_without_permission_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("some text")
    # Root may write anywhere, so the answer of the system is replaced.
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(WriteError, match="Permission denied") as caught:
        penstok.train_tokenizer(tmp_path / "a.txt", output=tmp_path / "t.json")
    assert f"`ls -ld {tmp_path}`" in caught.value.next_step
    assert caught.value.exit_code == 8


def test_no_document_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"text": ""}\n' * 9)
    done = train(tmp_path, "corpus.jsonl")
    assert done.returncode == 4
    assert "no document in the input: 9 empty ones dropped" in done.stderr
    assert files_in(tmp_path) == ["corpus.jsonl"]


@pytest.mark.cold
def test_without_the_library_it_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARY, "train-tokenizer", str(EXAMPLES)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'penstok[hf]'" in done.stderr


@pytest.mark.thorough
@pytest.mark.cold
def test_too_little_memory_ends_it_with_what_would_fit(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text(random_letters(3_000_000))
    done = train(tmp_path, "words.txt", "--memory", "160MB")
    assert done.returncode == 2
    assert "learning from 3 MB of this text takes more than 160 MB of memory" in done.stderr
    assert "pass `--memory 512MiB`" in done.stderr
    assert files_in(tmp_path) == ["words.txt"]
    (tmp_path / "words.txt").write_text(random_letters(12_000_000))
    done = train(tmp_path, "words.txt", "--memory", "384MiB")
    assert done.returncode == 2
    assert "pass `--sample 1MiB`, which fits whatever the text is, or `--memory" in done.stderr
    done = train(tmp_path, "words.txt", "--memory", "384MiB", "--sample", "1MiB")
    assert done.returncode == 0, done.stderr


def random_letters(number: int) -> str:
    return "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz", k=number))


def start_learning(folder: Path) -> tuple[subprocess.Popen[str], psutil.Process]:
    """Start one that takes long; return it when it learns, and its trainer."""
    (folder / "words.txt").write_text(random_letters(4_000_000))
    process = subprocess.Popen(
        [sys.executable, "-m", "penstok", "train-tokenizer", "words.txt", "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if process.stdout is None:
        pytest.fail("no output")
    for line in process.stdout:
        if json.loads(line).get("stage") == "learning":
            break
    (trainer,) = children_of(process.pid)
    return process, trainer


@pytest.mark.cold
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_at_once_and_leaves_nothing(number: int, tmp_path: Path) -> None:
    process, trainer = start_learning(tmp_path)
    process.send_signal(number)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "nothing was changed" in errors
    assert files_in(tmp_path) == ["words.txt"]
    assert not trainer.is_running()


def test_nobody_learns_on_when_the_command_is_killed(tmp_path: Path) -> None:
    process, trainer = start_learning(tmp_path)
    process.kill()
    process.communicate(timeout=10)
    wait_for(lambda: status_of(trainer.pid) == ENDED, 10)
    assert files_in(tmp_path) == ["words.txt"]
