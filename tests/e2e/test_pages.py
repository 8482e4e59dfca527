"""The documentation in all languages: every command and every Python block runs as printed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pages import DOCS, NOT_RUN, PAGES, prepare, read_blocks, run_command, run_page, why_not_run
from remote_servers import make_bucket, s3_client, use_s3
from support import EXAMPLES, ROOT, few
from vocabularies import fill_tiktoken_cache, gpt2_json, sentencepiece_model

from penstok.choices import FormatName
from penstok.cli.app import Command
from penstok.cli.commands import COMMANDS

pytestmark = pytest.mark.slow

TRAINERS = DOCS / "guides" / "trainers"
# Blocks of these pages are run by other tests.
ELSEWHERE = {
    DOCS / "reference" / "python.md": "signatures; its examples: tests/e2e/test_python.py",
    DOCS / "reference" / "cli.md": "test_every_example_of_a_command_works",
}
SHOWN = [
    page
    for page in PAGES
    if page not in ELSEWHERE
    and any(block.kind in ("console", "python") for block in read_blocks(page))
]
# What takes more than a few seconds, and languages whose commands are much like those of others.
SLOW_PAGES = {
    *(page for page in PAGES if page.parent.name in ("es", "hi", "ja")),
    DOCS / "guides" / "clusters.md",
    DOCS / "guides" / "examples.md",
    DOCS / "guides" / "own-tokenizer.md",
    DOCS / "guides" / "remote.md",
}


def _prepare_tokenizers(folder: Path) -> None:
    """A tokenizer of each kind."""
    (folder / "my-tokenizer").mkdir()
    (folder / "my-tokenizer" / "tokenizer.json").write_text(json.dumps(gpt2_json()))
    shutil.copy(sentencepiece_model(folder), folder / "tokenizer.model")
    ranks = ROOT / "src" / "penstok" / "tokenizers" / "vocab" / "gpt2.tiktoken"
    shutil.copy(ranks, folder / "my.tiktoken")


def _prepare_records(folder: Path) -> None:
    """Text as JSON Lines, with other fields."""
    records = (
        {"text": f"document {number}\n", "url": f"https://example.org/{number}", "lang": "en"}
        for number in range(40)
    )
    lines = (json.dumps({**record, "meta": {"lang": "en"}}) for record in records)
    (folder / "corpus" / "web.jsonl").write_text("\n".join(lines))


def _prepare_tokens(folder: Path) -> None:
    """A finished output."""
    _prepare_records(folder)
    flags = "--provenance --keep url,lang"
    run_command(f"penstok tokenize corpus/*.jsonl -o tokens/ {flags}", folder, "before the page")


# What only one page needs.
PREPARED: dict[Path, Callable[[Path], None]] = {
    DOCS / "guides" / "own-tokenizer.md": _prepare_tokenizers,
    DOCS / "guides" / "provenance.md": _prepare_records,
    DOCS / "reference" / "manifest.md": _prepare_tokens,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a page is run, with the programs it uses."""
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PENSTOK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{tmp_path / '.bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def use_bucket(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Set up an empty `s3://bucket`."""
    use_s3(monkeypatch, port)
    client = s3_client(port)
    make_bucket(client, "bucket")
    for found in client.list_objects_v2(Bucket="bucket").get("Contents", []):
        client.delete_object(Bucket="bucket", Key=found["Key"])


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.thorough] if page in SLOW_PAGES else [])
        for page in SHOWN
    ],
    ids=lambda page: page.relative_to(DOCS).with_suffix("").as_posix(),
)
def test_what_the_page_shows_works(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    blocks = read_blocks(page)
    if any("s3://" in block.text for block in blocks if block.kind in ("console", "python")):
        use_bucket(monkeypatch, request.getfixturevalue("s3_gateway"))
    if page in PREPARED:
        PREPARED[page](folder)
    num_run = run_page(page, folder)
    if page.parent == TRAINERS:
        assert num_run >= 2
        assert all(len(block.text.splitlines()) <= 20 for block in blocks if block.kind == "python")


def test_every_command_is_run_or_there_is_a_reason() -> None:
    """A command hides in no block that is not run, unless that block is marked as text."""
    reasons = set()
    for page in (ROOT / "README.md", *PAGES):
        for block in read_blocks(page):
            if block.kind not in ("console", "text") and page not in ELSEWHERE:
                assert not block.commands, f"{page.name}:{block.line} is not ```console or ```text"
            if block.kind == "console":
                reasons |= {why_not_run(command) for command in block.commands}
                assert block.commands or "\n% " in f"\n{block.text}", f"{page.name}:{block.line}"
    assert {*NOT_RUN.values()} <= reasons


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```console\n$ penstok tokenize examples/corpus --no-such-flag\n```\n", "unknown flag"),
        ("```console\n$ penstok verify examples/corpus\n```\n", "ended with 6"),
        ("```console\n$ ls no-such-file | cat\n```\n", "No such file"),
        ('```python\nassert False, "as the page says"\n```\n', "as the page says"),
    ],
)
def test_a_page_that_is_wrong_fails(text: str, said: str, folder: Path) -> None:
    page = folder / "wrong.md"
    page.write_text(text)
    with pytest.raises(AssertionError, match=said):
        run_page(page, folder)


def _prepare_examples(folder: Path) -> None:
    """What the examples in `--help` take for granted."""
    shutil.copy(EXAMPLES / "english.txt", folder / "corpus.txt")
    shutil.copytree(EXAMPLES, folder / "books")
    (folder / "web").mkdir()
    texts = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.txt"))]
    rows = [document for text in texts for document in text.split("<|endoftext|>")]
    lines = "".join(json.dumps({"text": row}) + "\n" for row in rows)
    (folder / "web" / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    pq.write_table(pa.table({"content": rows, "text": rows}), folder / "web" / "a.parquet")
    for name in ("a.txt", "2024-05.txt"):
        shutil.copy(EXAMPLES / "english.txt", folder / "corpus" / name)


MADE = {
    "data": "tokenize corpus/ -o data --format megatron --val-fraction 0",
    "tokens": "tokenize corpus/ -o tokens --provenance --val-fraction 0.2",
    "parts": "tokenize corpus/ -o tokens --part 1/1",
    "bucket": "tokenize corpus/ -o s3://bucket/run",
    "bucket parts": "tokenize corpus/ -o s3://bucket/run --part 1/1",
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", few((row.name for row in COMMANDS), 3))
def test_every_example_of_a_command_works(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    command = Command(next(row for row in COMMANDS if row.name == name))
    for number, example in enumerate(command.examples):
        folder = tmp_path / str(number)
        folder.mkdir()
        prepare(folder)
        _prepare_examples(folder)
        needed = "tokens" if command.name not in ("tokenize", "plan", "train-tokenizer") else None
        if "s3://" in example:
            use_bucket(monkeypatch, request.getfixturevalue("s3_gateway"))
            needed = "bucket"
        if command.name == "finish":
            needed = "bucket parts" if needed == "bucket" else "parts"
        if "data/" in example:
            needed = "data"
        if "cl100k_base" in example:
            fill_tiktoken_cache(folder)
            monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        if needed is not None:
            run_command(f"penstok {MADE[needed]}", folder, "what the example needs")
        if needed == "data":
            (folder / "data" / "train.idx").rename(folder / "data" / "web.idx")
            (folder / "data" / "train.bin").rename(folder / "data" / "web.bin")
        run_command(example, folder, f"an example of {command.name}")


def test_every_key_of_json_output_is_documented(folder: Path) -> None:
    page = (DOCS / "reference" / "json.md").read_text(encoding="utf-8")
    commands = [
        "penstok tokenize corpus -o out --provenance --json -q",
        "penstok plan corpus --json",
        "penstok verify out --json -q",
        "penstok convert out --format megatron --json -q",
        "penstok find out --input corpus/german.txt --json",
        "penstok tokenize corpus -o parts --part 1/1 --json -q",
        "penstok finish parts --json -q",
        "penstok train-tokenizer corpus --vocab-size 1000 -o my.json --json -q",
    ]
    for command in commands:
        *_, last = lines = run_command(command, folder, "json.md").splitlines()
        for line in lines:
            unknown = [key for key in json.loads(line) if f"`{key}`" not in page]
            assert not unknown, f"{command}: {unknown} not in json.md"
        assert json.loads(last)["type"] in ("summary", "part", "plan")


@pytest.mark.thorough
def test_the_notebook_runs_and_its_progress_is_one_output(folder: Path) -> None:
    import nbclient
    import nbformat

    path = ROOT / "examples" / "report.ipynb"
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    assert all(not cell.get("outputs") for cell in notebook.cells)
    # Jupyter's own warnings are not ours.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nbclient.NotebookClient(notebook, timeout=120).execute()
    first, read, histogram = (cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    shown = [output for output in first if output.output_type == "display_data"]
    assert len(shown) <= 1  # none, if the job is done before it can be shown
    assert all(output.data["text/plain"].startswith("tokenizing  ") for output in shown)
    assert not any(output.get("name") == "stderr" for output in first)
    assert "train: " in first[-1].text
    assert len(read[0].text) > 100
    assert " tokens  #" in histogram[0].text


def test_every_format_has_a_guide_and_a_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    guides = "".join(page.read_text(encoding="utf-8") for page in TRAINERS.glob("*.md"))
    for name in get_args(FormatName):
        assert f"| `{name}` |" in readme
        assert (DOCS / "reference" / "formats" / f"{name}.md").exists()
        assert f"formats/{name}.md" in guides
