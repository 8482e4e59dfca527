"""`penstok report`: its numbers, what it refuses, and that no text of a corpus is trusted."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RunPenstok
from support import EXAMPLES, HOSTILE_MARKUP

import penstok as library
from penstok.errors import DamageError
from penstok.jobs.progress import SeriesRecorder
from penstok.kernel import load_kernel
from penstok.output.manifest import Manifest
from penstok.reports import statistics
from penstok.reports.reading import mark_tokens, show_text

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("made") / "tokens"
    library.tokenize(EXAMPLES, output, val_fraction=0.2)
    return output


@pytest.fixture
def output(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "tokens"))


class Page(HTMLParser):
    """Collects the elements of a page, the rows of its tables and its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.rows: list[list[str]] = []
        self.addresses: list[str] = []
        self._in = ""
        self.data = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        found = dict(attrs)
        self.addresses += [found[name] or "" for name in ("src", "href", "action") if name in found]
        self._in = "data" if found.get("id") == "data" else self._in
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in = "cell"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "script"):
            self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "cell":
            self.rows[-1][-1] += data
        elif self._in == "data":
            self.data += data


def report(output: Path, page: Path) -> Page:
    written = library.report(output, page=page)
    text = written.page.read_text(encoding="utf-8")
    assert written.num_bytes == len(text.encode()) < 2_000_000
    return Page(text)


def test_the_numbers_are_those_of_the_tokens(output: Path, tmp_path: Path) -> None:
    page = report(output, tmp_path / "report.html")
    tokens = library.open(output)
    ids = np.concatenate([tokens.train, tokens.val])
    counts = np.bincount(ids, minlength=50257)
    rows = {tuple(row[1:]) for row in page.rows if len(row) == 5}
    most = int(counts.argmax())
    assert any(row[1:3] == (str(most), f"{counts[most]:,}") for row in rows)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"<b>{int((counts > 0).sum()):,}</b> of 50,257 ids occur" in text
    assert f"<b>{int((counts == 0).sum()):,}</b>" in text
    longest = max(map(len, tokens.documents("train")))
    assert any(row[0] == "train" and row[-1] == f"{longest:,}" for row in page.rows if row)
    by_path = {row[0]: row[1:] for row in page.rows if row}
    for record in tokens.manifest.inputs:
        found = by_path[record.path]
        assert found[:2] == [f"{record.documents:,}", f"{record.tokens:,}"]
        # The text of these inputs is all but their separators.
        assert float(found[3]) == pytest.approx(record.bytes / record.tokens, rel=0.03)


def test_documents_by_length_are_all_documents(output: Path, tmp_path: Path) -> None:
    page = report(output, tmp_path / "report.html")
    data = json.loads(page.data)["lengths"]
    tokens = library.open(output)
    for split in ("train", "val"):
        assert sum(data[split]) == pytest.approx(100)
        number = len(tokens.documents(split))
        column = {"train": 1, "val": 2}[split]
        ranges = [row for row in page.rows if row and re.fullmatch(r"[\d,]+ to [\d,]+", row[0])]
        assert sum(int(row[column].replace(",", "")) for row in ranges) == number


def test_the_reading_room_has_the_text_of_documents(output: Path, tmp_path: Path) -> None:
    report(output, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    pattern = r'<article data-split="(\w+)" data-ids="([\d ]+)">(.*?)</article>'
    articles = re.findall(pattern, text, re.DOTALL)
    assert Counter(split for split, _, _ in articles) == {"train": 28, "val": 12}
    tokens = library.open(output)
    split, ids, html = articles[0]
    assert [*map(int, ids.split())] == tokens.documents(split)[0][:420].tolist()
    shown = re.sub(r"<[^>]+>", "", html.split("</h3>")[1])
    expected = show_text(tokens.decode(tokens.documents(split)[0][:420]))
    assert shown == expected
    assert sum(int(each or 1) for each in re.findall(r'<i[^>]*?(?:data-n="(\d+)")?>', html)) == len(
        ids.split()
    )


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([0], "<i>a</i>"),
        ([1, 2], '<i data-n="2">ä</i>'),
        ([1, 0], '<i class="x">C3</i><i>a</i>'),
        ([3], '<i class="s">&lt;|end|&gt;</i>'),
        ([1, 3], '<i class="x">C3</i><i class="s">&lt;|end|&gt;</i>'),
        ([9], '<i class="x">#9</i>'),
        ([4], "<i>&lt;b&gt;\u21b5\n</i>"),
        ([5], "<i>\\u202e\\x07</i>"),
        ([2], '<i class="x">A4</i>'),
    ],
)
def test_tokens_are_marked(ids: list[int], expected: str) -> None:
    names = {
        0: b"a", 1: b"\xc3", 2: b"\xa4", 3: b"<|end|>", 4: b"<b>\n", 5: "\u202e\x07".encode(),
    }  # fmt: skip
    assert mark_tokens(ids, names, frozenset([3])) == expected


def test_text_of_a_corpus_cannot_become_markup(tmp_path: Path) -> None:
    folder = tmp_path / "<script>window.pwned = 3<"
    folder.mkdir()
    path = folder / "\"'><img src=x onerror=pwned>.jsonl"
    lines = [
        json.dumps({"text": HOSTILE_MARKUP * 5}),
        '{"text": "<b>bad</b>" x',
        "<svg onload=pwned>",
    ]
    path.write_text("\n".join([*lines, json.dumps({"text": "last"})]))
    with pytest.warns(library.PenstokWarning):
        library.tokenize(path, tmp_path / "tokens", on_error="skip", val_fraction=0.0)
    page = report(tmp_path / "tokens", tmp_path / "report.html")
    assert page.tags["script"] == 3
    assert page.tags["img"] == page.tags["svg"] == 0
    assert all(address.startswith("#") for address in page.addresses)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "&lt;/script&gt;&lt;script&gt;" in re.sub("</?i[^>]*>", "", text)


def test_the_page_asks_nothing_of_the_network(output: Path, tmp_path: Path) -> None:
    page = report(output, tmp_path / "report.html")
    assert all(address.startswith("#") for address in page.addresses)
    assert page.tags["link"] == page.tags["iframe"] == page.tags["img"] == 0
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "default-src &#x27;none&#x27;" in text
    assert "url(" not in text
    assert "@import" not in text


def test_a_sharded_output_has_the_same_statistics(output: Path, tmp_path: Path) -> None:
    library.tokenize(EXAMPLES, tmp_path / "shards", val_fraction=0.2, shard_tokens=5000)
    pages = [report(each, tmp_path / f"{each.name}.html") for each in (output, tmp_path / "shards")]
    data = [json.loads(page.data) for page in pages]
    assert data[0]["lengths"] == data[1]["lengths"]
    assert data[0]["ranks"] == data[1]["ranks"]


def test_an_output_without_an_index_has_no_documents_to_show(tmp_path: Path) -> None:
    library.tokenize(EXAMPLES, tmp_path / "tokens", document_index="none")
    written = library.report(tmp_path / "tokens", page=tmp_path / "report.html")
    assert "no document index" in written.notes[0]
    text = written.page.read_text(encoding="utf-8")
    assert "no document index" in text
    assert "<article" not in text


def test_without_its_tokenizer_ids_are_shown(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise library.UsageError("the tokenizer is gone")

    monkeypatch.setattr("penstok.reports.report.load_recorded_tokenizer", fail)
    written = library.report(output, page=tmp_path / "report.html")
    assert written.notes == ["tokens are shown as ids: the tokenizer is gone"]
    assert '<i class="x">#' in written.page.read_text(encoding="utf-8")


def damaged(output: Path) -> Iterator[str]:
    """Damage an output in several ways, one after the other, and undo it."""
    for name, change in (
        ("train.bin", lambda data: data[:-2]),
        ("train_documents.npy", lambda data: data[:200] + b"\xff" * 8 + data[208:]),
        ("segments.jsonl", lambda data: data.replace(b'"unit"', b'"unti"', 1)),
        ("train.bin", lambda data: b"\xff\xff" + data[2:]),
        ("manifest.json", lambda data: data[:100]),
        ("manifest.json", lambda data: b""),
    ):
        whole = (output / name).read_bytes()
        assert change(whole) != whole
        (output / name).write_bytes(change(whole))
        yield name
        (output / name).write_bytes(whole)


def test_a_damaged_output_is_reported(penstok: RunPenstok, output: Path, tmp_path: Path) -> None:
    for name in damaged(output):
        said = penstok("report", output, exit_code=6).stderr
        assert "next:" in said, name
        assert not (tmp_path / "report.html").exists()
    penstok("report", output)


def test_an_unfinished_output_is_reported(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    penstok("report", "empty", exit_code=6)
    penstok("report", "missing", exit_code=6)
    (tmp_path / "empty" / ".penstok").mkdir()
    assert "finished" in penstok("report", "empty", exit_code=6).stderr


def test_only_reports_are_replaced(penstok: RunPenstok, output: Path, tmp_path: Path) -> None:
    penstok("report", output)
    penstok("report", output)
    (tmp_path / "notes.html").write_text("mine")
    said = penstok("report", output, "-o", "notes.html", exit_code=5).stderr
    assert "not a report" in said
    assert (tmp_path / "notes.html").read_text() == "mine"
    penstok("report", output, "-o", "notes.html", "--overwrite")
    assert library.verify(output).is_whole


@pytest.mark.parametrize("place", ["tokens/report.html", "tokens/deep/report.html", "no/a.html"])
def test_a_page_has_its_place_outside_the_output(
    place: str, penstok: RunPenstok, output: Path
) -> None:
    (output / "deep").mkdir()
    penstok("report", output, "-o", place, exit_code=2)
    penstok("report", output, "-o", output.parent, exit_code=2)


def test_json_says_where_the_page_is(penstok: RunPenstok, output: Path) -> None:
    summary = json.loads(penstok("report", output, "--json", "-q").stdout)
    assert (summary["type"], summary["page"], summary["documents"]) == (
        "summary",
        "report.html",
        81,
    )


def test_statistics_are_cached_by_the_digest_of_the_output(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = report(output, tmp_path / "a.html").data
    (cached,) = (tmp_path / "cache" / "penstok").glob("statistics-*.json")
    with monkeypatch.context() as patch:
        patch.setattr(statistics, "_collect", lambda _: pytest.fail("it was read again"))
        assert report(output, tmp_path / "b.html").data == first
    cached.write_text("damaged")
    assert report(output, tmp_path / "c.html").data == first
    library.tokenize(EXAMPLES, tmp_path / "other", val_fraction=0.5)
    assert report(tmp_path / "other", tmp_path / "d.html").data != first


def test_a_cache_that_cannot_be_written_is_left_alone(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    report(output, tmp_path / "a.html")


def test_without_the_kernel_the_statistics_are_the_same(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = library.open(output)
    monkeypatch.setattr(statistics, "_RANGE_TOKENS", 1000)
    kernel = statistics._collect(dataset)
    monkeypatch.setattr(statistics, "find_kernel_function", lambda _: None)
    assert statistics._collect(dataset) == kernel
    small = Manifest.load(output).tokenizer.vocab_size
    for count, finish in (statistics._make_counter(small),):
        assert count(np.array([1, 1, 60_000], np.uint16)) == 1
        assert finish()[1] == 2


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_the_kernel_counts_ids(dtype: Any) -> None:
    count: Any = load_kernel().count_ids
    ids = np.random.default_rng(1).integers(0, 400, 10_001).astype(dtype)
    tables = np.zeros(3 * 300, np.uint32)
    assert count(ids, tables) == int((ids >= 300).sum())
    expected = np.bincount(ids, minlength=400)[:300]
    assert np.array_equal(tables.reshape(3, 300).sum(axis=0), expected)
    with pytest.raises(ValueError, match="three of one size"):
        count(ids, tables[:-1])


def test_memory_does_not_grow_with_the_output(output: Path, tmp_path: Path) -> None:
    # The same file as many shards: links, so that no disk is needed.
    peaks = [
        _peak_of(_link_shards(output, tmp_path / str(number), number), tmp_path)
        for number in (1, 400)
    ]
    assert peaks[1] < peaks[0] + (12 << 20)


def _link_shards(output: Path, folder: Path, number: int) -> Path:
    folder.mkdir()
    content = json.loads((output / "manifest.json").read_text())
    train = content["splits"]["train"]
    (file,), (index,) = train["files"], train["indexes"]
    train["files"], train["indexes"] = [], []
    for shard in range(number):
        names = f"train_shard_{shard:05}.bin", f"train_shard_{shard:05}_documents.npy"
        for name, old in zip(names, (file["path"], index["path"]), strict=True):
            os.link(output / old, folder / name)
        train["files"].append({**file, "path": names[0]})
        train["indexes"].append({**index, "path": names[1]})
    for name in ("tokens", "documents"):
        added = train[name] * (number - 1)
        train[name] += added
        content["counts"][name] += added
        content["inputs"][0][name] += added
    for name in ("val.bin", "val_documents.npy", "segments.jsonl"):
        os.link(output / name, folder / name)
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder


def _peak_of(folder: Path, place: Path) -> int:
    import subprocess
    import sys

    code = (
        "import sys, penstok, resource; penstok.report(sys.argv[1], page=sys.argv[2]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    command = [sys.executable, "-c", code, str(folder), str(place / f"{folder.name}.html")]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_the_run_is_recorded_in_a_few_kilobytes() -> None:
    recorder = SeriesRecorder()
    for tick in range(100_000):
        recorder.add(tick / 5, tick * 1000, 10**9 + tick)
    series = recorder.series()
    assert 50 <= len(series.seconds) <= 120
    assert series.seconds == sorted(series.seconds)
    gaps = np.diff(series.seconds)
    assert gaps.max() <= 3 * gaps.min()
    assert series.seconds[-1] > 0.95 * 20_000
    assert len(json.dumps([series.seconds, series.text_bytes, series.memory_bytes])) < 6000


def test_a_job_records_its_run(made: Path) -> None:
    text = (made / "manifest.json").read_text()
    series = json.loads(text)["run"]["series"]
    assert set(series) == {"seconds", "text_bytes", "memory_bytes"}
    assert series["text_bytes"][-1] == json.loads(text)["counts"]["text_bytes"]
    assert len(series["seconds"]) == len(series["memory_bytes"]) >= 1
    # On one line.
    assert (
        sum('"series"' in line and line.rstrip().endswith("}") for line in text.splitlines()) == 1
    )


def test_an_older_manifest_without_a_series_has_a_report(output: Path, tmp_path: Path) -> None:
    content = json.loads((output / "manifest.json").read_text())
    content["run"] = {}
    (output / "manifest.json").write_text(json.dumps(content))
    page = report(output, tmp_path / "report.html")
    assert json.loads(page.data)["run"]["seconds"] == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(DamageError):
        library.report(tmp_path / "empty", page=tmp_path / "report.html")
