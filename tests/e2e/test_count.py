"""`penstok count`: as many tokens as `tokenize` writes, from anything it reads."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from compressed import compress
from conftest import RunPenstok
from processes import wait_for, workers_of, write_corpus
from remote_servers import web_server
from row_cases import write_rows
from support import EXAMPLES, ROOT, few, write_sample_corpus
from vocabularies import example_texts, train, write_json

import penstok as library
from penstok.engines import load_engine
from penstok.engines.base import Engine
from penstok.errors import EngineError, InputError, PenstokWarning
from penstok.tokenizers import Tokenizer
from penstok.types import Unit
from penstok.worker import worker

pytestmark = pytest.mark.e2e

EOT = "<|endoftext|>"


def write_text(folder: Path) -> Path:
    path = folder / "a.txt"
    path.write_text(EOT.join(example_texts()), encoding="utf-8")
    return path


def write_jsonl(folder: Path) -> Path:
    path = folder / "a.jsonl"
    lines = [json.dumps({"text": text}) for whole in example_texts() for text in whole.split(EOT)]
    path.write_text("\n".join([*lines, '{"text": ""}']), encoding="utf-8")
    return path


def write_csv(folder: Path) -> Path:
    path = folder / "a.csv"
    path.write_text('id,text\n1,"a cell, quoted"\n2,second\n3,\n', encoding="utf-8")
    return path


def write_table(folder: Path, name: str) -> Path:
    texts = [text for whole in example_texts() for text in whole.split(EOT)]
    return write_rows(folder / name, pa.table({"text": texts}), row_group_size=7)


def write_tar(folder: Path) -> Path:
    path = folder / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for number, text in enumerate(example_texts()):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def write_zstd(folder: Path) -> Path:
    path = folder / "a.jsonl.zst"
    path.write_bytes(compress(write_jsonl(folder).read_bytes(), "zstd"))
    return path


def write_gzip(folder: Path) -> Path:
    path = folder / "a.txt.gz"
    path.write_bytes(gzip.compress(write_text(folder).read_bytes()))
    return path


def write_bad(folder: Path) -> Path:
    path = folder / "bad.jsonl"
    path.write_bytes(b'{"text": "good \xff one"}\nnot json\n{"text": "last"}\n')
    return path


def write_giant(folder: Path) -> Path:
    """One document in one file, which is divided into spans of train and val."""
    path = folder / "giant.txt"
    path.write_text("".join(f"line {number} of one long text\n" for number in range(60_000)))
    return path


FORMATS: dict[str, Callable[[Path], Path]] = {
    "text": write_text,
    "jsonl": write_jsonl,
    "csv": write_csv,
    "parquet": lambda folder: write_table(folder, "a.parquet"),
    "arrow": lambda folder: write_table(folder, "a.arrow"),
    "tar": write_tar,
    "zstd": write_zstd,
    "gzip": write_gzip,
    "bad": write_bad,
    "giant": write_giant,
}


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A tokenizer with a thousand tokens."""
    return write_json(tmp_path, train(1000).to_str(), "small.json")


@pytest.mark.parametrize("eot", few(["append", "prepend", "none"]))
@pytest.mark.parametrize("kind", FORMATS)
def test_tokens_and_documents_are_those_that_tokenize_writes(
    kind: str, eot: Any, tmp_path: Path, small: str
) -> None:
    path = FORMATS[kind](tmp_path)
    options: dict[str, Any] = {"eot": eot, "on_error": "skip", "val_fraction": 0.3}
    sizes: dict[str, Any] = {"unit_bytes": 50_000, "block_bytes": 9_000}
    with pytest.warns(PenstokWarning) if kind == "bad" else _nothing():
        counted = library.count(path, f"gpt2,{small}", **options, **sizes)
    for each, made in zip(counted.tokenizers, ("gpt2", small), strict=True):
        with pytest.warns(PenstokWarning) if kind == "bad" else _nothing():
            manifest = library.tokenize(path, tmp_path / Path(made).stem, tokenizer=made, **options)
        assert each.tokens == manifest.counts["tokens"]
        assert counted.documents == manifest.counts["documents"]
        assert counted.text_bytes == manifest.counts["text_bytes"]
        assert counted.counts.skipped_records == manifest.counts["skipped_records"]
        by_path = {record.path: record for record in manifest.inputs}
        for one in counted.inputs:
            assert one.tokens[made] == by_path[one.path].tokens
            assert one.documents == by_path[one.path].documents


class _nothing:  # noqa: N801 used like a function
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_characters_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    texts = ["plain", "äöü", "字漢", "👍🏽", "\ud7ff" * 5000]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    counted = library.count(path)
    assert counted.characters == sum(map(len, texts))
    assert counted.text_bytes == sum(len(text.encode()) for text in texts)
    one = counted.tokenizers[0]
    assert one.characters_per_token == pytest.approx(counted.characters / one.tokens, abs=1e-3)
    assert one.bytes_per_token == pytest.approx(counted.text_bytes / one.tokens, abs=1e-3)


def test_repaired_text_is_counted_as_it_is_encoded(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\xffb")
    counted = library.count(tmp_path / "a.txt")
    assert (counted.characters, counted.text_bytes) == (3, 5)
    assert counted.counts.invalid_utf8 == 1


def test_standard_input_is_counted(penstok: RunPenstok, tmp_path: Path) -> None:
    text = write_text(tmp_path)
    expected = library.count(text).tokenizers[0].tokens
    done = subprocess.run(
        [sys.executable, "-m", "penstok", "count", "-", "--json", "--no-progress"],
        input=text.read_text(encoding="utf-8"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["tokenizers"][0]["tokens"] == expected


def test_a_remote_file_is_fetched_once_for_all_tokenizers(small: str) -> None:
    data = "".join(f"{EOT}document {number} of many" for number in range(30_000)).encode()
    with web_server() as web:
        web.files["a.txt"] = data
        sizes: dict[str, Any] = {"unit_bytes": 200_000, "block_bytes": 50_000, "workers": 1}
        one = library.count(web.url("a.txt"), **sizes)
        before = len(web.requests)
        both = library.count(web.url("a.txt"), ["gpt2", small], **sizes)
        assert len(web.requests) - before == before
    assert both.tokenizers[0].tokens == one.tokenizers[0].tokens


def test_a_worker_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = write_corpus(tmp_path / "a.txt", 1000)
    sizes: dict[str, Any] = {"unit_bytes": 100_000, "block_bytes": 50_000, "workers": 2}
    expected = library.count(text, **sizes)
    encode = worker.Worker.encode
    mark = tmp_path / "died"

    def die_once(self: worker.Worker, unit: Unit) -> Any:
        if unit.index == 7 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return encode(self, unit)

    monkeypatch.setattr(worker.Worker, "encode", die_once)
    monkeypatch.setattr("penstok.executors.children._can_fork", lambda: True)
    counted = library.count(text, **sizes)
    assert mark.exists()
    assert counted.inputs == expected.inputs


def test_nothing_is_written(penstok: RunPenstok, tmp_path: Path) -> None:
    penstok("count", EXAMPLES)
    assert list(tmp_path.iterdir()) == []


def test_a_table_compares_tokenizers_and_inputs(penstok: RunPenstok, small: str) -> None:
    done = penstok("count", EXAMPLES, "-t", f"gpt2,{small}", "--engine", "auto")
    assert "6 inputs: 81 documents" in done.stdout
    assert "fewest tokens: small.json, " in done.stdout.replace(str(Path(small).parent) + "/", "")
    assert "% fewer than gpt2, with 49,257 embedding rows fewer" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if "hindi.txt" in line]
    assert len(rows) == 1
    assert rows[0][-1].endswith("small.json")
    assert "of text counted in" in done.stderr


def test_json_has_every_field_of_the_record(penstok: RunPenstok) -> None:
    lines = penstok("count", EXAMPLES, "--json").stdout.splitlines()
    summary = json.loads(lines[-1])
    assert summary["type"] == "summary"
    assert set(library.CountResult.__struct_fields__) <= set(summary)
    assert sum(each["tokens"]["gpt2"] for each in summary["inputs"]) == 37_058


def test_a_tokenizer_that_cannot_be_loaded_does_not_stop_the_others(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    done = penstok("count", EXAMPLES, "-t", "nope,gpt2", exit_code=3)
    assert "37,058" in done.stdout
    assert "failed: nope: unknown tokenizer `nope`" in done.stderr
    quiet = penstok("count", EXAMPLES, "-t", "nope,gpt2", "-q", exit_code=3)
    assert quiet.stderr.startswith("  failed: nope: unknown tokenizer `nope`")
    failed = json.loads(
        penstok("count", EXAMPLES, "-t", "gpt2,nope", "--json", exit_code=3).stdout.splitlines()[-1]
    )["failed"]
    assert [each["name"] for each in failed] == ["nope"]
    with pytest.warns(PenstokWarning, match="`nope` was not counted: unknown tokenizer"):
        assert library.count(EXAMPLES, ["nope", "gpt2"]).failed[0].name == "nope"


def test_no_usable_tokenizer_is_an_error(penstok: RunPenstok) -> None:
    said = penstok("count", EXAMPLES, "-t", "nope,neither", exit_code=2).stderr
    assert "error: unknown tokenizer" in said


@pytest.mark.parametrize("names", ["gpt2,{}", "{},gpt2"])
def test_an_engine_that_differs_from_the_reference_does_not_stop_the_others(
    names: str, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = load_engine

    class Wrong:
        name = "kernel"

        def __init__(self, engine: Engine) -> None:
            self._engine = engine

        def encode(self, block: Any, out: Any = None) -> Any:
            return self._engine.encode(block, out) + 1

    def load_wrong(name: str, tokenizer: Tokenizer, eot: Any) -> Any:
        engine = load(name, tokenizer, eot)
        return Wrong(engine) if name == "kernel" and tokenizer.vocab_size == 1000 else engine

    monkeypatch.setattr(worker, "load_engine", load_wrong)
    monkeypatch.setattr("penstok.executors.children._can_fork", lambda: True)
    with pytest.warns(PenstokWarning, match="returned other ids than the reference"):
        counted = library.count(EXAMPLES, names.format(small))
    assert [each.name for each in counted.tokenizers] == ["gpt2"]
    assert [each.name for each in counted.failed] == [small]
    assert counted.tokenizers[0].tokens == 37_058
    assert all(list(each.tokens) == ["gpt2"] for each in counted.inputs)
    with pytest.raises(EngineError, match="returned other ids"):
        library.count(EXAMPLES, small)


def test_text_that_one_tokenizer_refuses_is_counted_with_the_others(
    small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = worker.Worker.encode

    def refuse(self: worker.Worker, unit: Unit) -> Any:
        if self._tokenizer.vocab_size == 1000:
            raise InputError("too long", where="here", next_step="there")
        return encode(self, unit)

    monkeypatch.setattr(worker.Worker, "encode", refuse)
    monkeypatch.setattr("penstok.executors.children._can_fork", lambda: True)
    with pytest.warns(PenstokWarning, match="too long"):
        counted = library.count(EXAMPLES, ["gpt2", small])
    assert [each.tokens for each in counted.tokenizers] == [37_058]
    with pytest.raises(InputError, match="too long"):
        library.count(EXAMPLES, small)


def test_input_that_cannot_be_read_stops_all(penstok: RunPenstok, tmp_path: Path) -> None:
    said = penstok("count", write_bad(tmp_path), "-t", "gpt2,r50k_base", exit_code=4).stderr
    assert "bad.jsonl" in said
    penstok("count", tmp_path / "missing.txt", exit_code=4)
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n')
    assert "no document" in penstok("count", "empty.jsonl", exit_code=4).stderr


def test_wrong_settings_are_refused(penstok: RunPenstok, tmp_path: Path) -> None:
    assert "has no name" in penstok("count", EXAMPLES, "-t", "gpt2,,", exit_code=2).stderr
    assert "too small" in penstok("count", EXAMPLES, "--sample", "1kB", exit_code=2).stderr
    command = [sys.executable, "-m", "penstok", "count", "-", "--sample", "1MB"]
    done = subprocess.run(command, input="text", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "whose size is not known" in done.stderr


@pytest.mark.parametrize("kind", ["text", "jsonl.gz", "parquet", "mixed"])
def test_the_true_number_is_within_the_margin_of_a_sample(kind: str, tmp_path: Path) -> None:
    inputs = write_sample_corpus(tmp_path, kind)
    exact = library.count(inputs)
    tokens, text = exact.tokenizers[0].tokens, exact.text_bytes
    sizes = [path.stat().st_size for path in inputs]
    for share in (4, 8):
        counted = library.count(inputs, sample=max(sum(sizes) // share, 10**6))
        one = counted.tokenizers[0]
        assert 0 < one.margin < 0.2 * tokens
        assert abs(one.tokens - tokens) <= one.margin
        assert counted.sample_bytes is not None
        assert counted.sample_bytes < 0.8 * exact.counts.input_bytes
        assert counted.text_bytes == pytest.approx(text, rel=0.2)
        assert counted.documents == pytest.approx(exact.documents, rel=0.3)
        assert sum(each.tokens["gpt2"] for each in counted.inputs) == pytest.approx(tokens, rel=0.2)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["web", "multi"])
def test_the_true_number_of_a_real_corpus_is_within_the_margin(name: str) -> None:
    folder = Path(os.environ.get("PENSTOK_CORPUS", ROOT.parent / "shared" / "corpus"))
    path = folder / f"{name}.jsonl.zst"
    if not path.exists():
        pytest.skip(f"no corpus {name}: set PENSTOK_CORPUS")
    exact = library.count(path).tokenizers[0].tokens
    one = library.count(path, sample="1MB").tokenizers[0]
    assert 0 < one.margin < 0.2 * exact
    assert abs(one.tokens - exact) <= one.margin


def test_a_sample_of_everything_is_exact(penstok: RunPenstok) -> None:
    counted = library.count(EXAMPLES, sample="1GB")
    assert counted.sample_bytes is None
    assert counted.tokenizers[0].margin == 0
    assert counted.tokenizers[0].tokens == 37_058


def test_a_sample_says_how_far_off_it_may_be(penstok: RunPenstok, tmp_path: Path) -> None:
    write_sample_corpus(tmp_path, "text")
    done = penstok("count", "a.txt", "--sample", "1MB", "-t", "gpt2,r50k_base")
    assert " ± " in done.stdout
    assert "about " in done.stdout
    assert "95 of 100 cases" in done.stderr
    assert "fewest tokens: gpt2, as many as r50k_base" in done.stdout


def test_interrupted_it_says_that_nothing_was_changed(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "a.txt", 3_000)
    reading, writing = os.pipe()  # Never closed, so that no machine is done before the signal.
    command = [sys.executable, "-m", "penstok", "count", "-", "--engine", "tiktoken", "-j2"]
    process = subprocess.Popen(
        command, stdin=reading, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(text.read_bytes())
        pipe.flush()
        wait_for(lambda: bool(workers_of(process)))
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nothing was changed" in said
    assert out == ""
