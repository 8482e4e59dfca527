"""CSV and TSV: the same documents give the same bytes as text and JSON Lines; bad rows are told."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import RunPenstok
from csv_cases import write_csv
from processes import contents, run
from support import EXAMPLES, few

pytestmark = pytest.mark.e2e
VAL = ("--val-fraction", "0.2")


@pytest.fixture
def documents() -> list[str]:
    """Real text in six languages, quotes and line ends everywhere, and a long document."""
    joined = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.txt"))]
    texts = [text for text in "<|endoftext|>".join(joined).split("<|endoftext|>") if text]
    long = 'many "words", in\r\none long\n\nfield\t' * 60_000
    return [*texts, 'a "quote"', '"', "tab\tcomma, newline\n", "\n\n\r", long, " x "]


def table_of(documents: list[str], *, end: str = "\n", delimiter: str = ",") -> bytes:
    rows = [["id", "text", "a, b"], *([str(i), text, ""] for i, text in enumerate(documents))]
    return write_csv(rows, end=end, delimiter=delimiter)


def test_the_same_documents_give_the_same_bytes(
    tmp_path: Path, penstok: RunPenstok, documents: list[str]
) -> None:
    (tmp_path / "a.txt").write_bytes("<|endoftext|>".join(documents).encode())
    lines = [json.dumps({"text": text}) for text in documents]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "a.csv").write_bytes(table_of(documents))
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbf" + table_of(documents, end="\r\n").rstrip())
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(table_of(documents)))
    (tmp_path / "d.tsv").write_bytes(table_of(documents, delimiter="\t"))
    for name in ("a.txt", "a.jsonl", "a.csv", "b.csv", "c.csv.gz", "d.tsv"):
        penstok("tokenize", name, "-o", f"out-{name}", *VAL)
        assert contents(tmp_path / f"out-{name}") == contents(tmp_path / "out-a.txt")
    manifest = json.loads((tmp_path / "out-b.csv" / "manifest.json").read_text())
    assert manifest["inputs"][0]["format"] == "csv"
    assert manifest["counts"]["byte_order_marks"] == 1
    assert manifest["counts"]["input_bytes"] == (tmp_path / "b.csv").stat().st_size
    penstok("verify", "out-a.csv", "--full", "--source")


@pytest.mark.parametrize("delimiter", few([";", "|", "\t"]))
def test_other_delimiters_and_tables_without_a_header_give_the_same_bytes(
    tmp_path: Path, penstok: RunPenstok, documents: list[str], delimiter: str
) -> None:
    flags = ("--csv-delimiter", delimiter.replace("\t", "\\t"), *VAL)
    table = table_of(documents, delimiter=delimiter, end="\r\n")
    (tmp_path / "a.csv").write_bytes(table_of(documents))
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbf" + table)
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"\r\n" + table.partition(b"\r\n")[2]))
    penstok("tokenize", "a.csv", "-o", "a", *VAL)
    penstok("tokenize", "b.csv", "-o", "b", *flags)
    penstok("tokenize", "c.csv.gz", "-o", "c", *flags, "--no-header", "--text-key", "2")
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == contents(tmp_path / "c")
    settings = {
        name: json.loads((tmp_path / name / "manifest.json").read_text())["settings"]
        for name in "abc"
    }
    assert {"csv_delimiter", "no_header"}.isdisjoint(settings["a"])
    assert settings["b"]["csv_delimiter"] == delimiter
    assert settings["c"]["no_header"] is True
    for name in "bc":
        penstok("verify", name, "--full", "--source")
    # The same flags are the same job; without them it is another.
    done = penstok("tokenize", "b.csv", "-o", "b", *flags)
    assert "nothing to do" in done.stderr
    penstok("tokenize", "b.csv", "-o", "b", "--input-format", "text", *VAL, exit_code=5)


def test_standard_input_and_another_column(tmp_path: Path, documents: list[str]) -> None:
    (tmp_path / "a.csv").write_bytes(table_of(documents))
    flags = ("--text-key", "id", "--input-format", "csv", *VAL)
    assert run("tokenize", tmp_path / "a.csv", "-o", tmp_path / "file", *flags)[0] == 0
    command = [sys.executable, "-m", "penstok", "tokenize", "-", "-o", str(tmp_path / "pipe")]
    command += flags
    subprocess.run(command, input=table_of(documents), check=True, capture_output=True)
    assert contents(tmp_path / "pipe") == contents(tmp_path / "file")


def test_a_missing_column_names_those_that_exist(tmp_path: Path, penstok: RunPenstok) -> None:
    (tmp_path / "a.csv").write_text('id,"content, full"\n1,words\n')
    said = penstok("tokenize", "a.csv", exit_code=4).stderr
    assert "column `text` is missing; the header has `id`, `content, full`" in said
    assert "a.csv, the first record" in said
    assert "`--text-key 'content, full'`" in said
    assert not (tmp_path / "tokens").exists()
    (tmp_path / "b.csv").write_text("text\nwords\n")
    penstok("tokenize", "a.csv", "b.csv", "--on-error", "skip", exit_code=3)
    skipped = json.loads((tmp_path / "tokens" / "skipped.jsonl").read_text())
    assert (skipped["path"], "is missing" in skipped["reason"]) == ("a.csv", True)


BAD_ROWS = {
    "1": "1 field, the header 2",
    "1,2,3": "3 fields, the header 2",
    '1,"a"b': "after a closing quote",
    '1,"never closed': "ends inside quotes",
}


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS.items())
def test_a_bad_record_stops_with_its_place(
    tmp_path: Path, penstok: RunPenstok, row: str, reason: str
) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,"two\nlines"\n\n' + row + "\n")
    said = penstok("tokenize", "a.csv", "-o", "out", exit_code=4).stderr
    assert "a.csv, line 5, byte 23" in said
    assert reason in said
    assert not (tmp_path / "out").exists()


def test_bad_records_are_skipped_and_listed(tmp_path: Path, penstok: RunPenstok) -> None:
    good = [f'{idx},"document {idx}\nwith some words"' for idx in range(100)]
    rows = list(good)
    for idx, row in enumerate(list(BAD_ROWS)[:3]):
        rows.insert(idx * 20, row)
    rows.append(list(BAD_ROWS)[3])
    (tmp_path / "good.csv").write_text("\n".join(["id,text", *good]))
    (tmp_path / "bad.csv").write_text("\n".join(["id,text", *rows, "and, more"]))
    penstok("tokenize", "good.csv", "-o", "good", *VAL)
    said = penstok("tokenize", "bad.csv", "-o", "bad", "--on-error", "skip", *VAL, exit_code=3)
    assert contents(tmp_path / "bad") == contents(tmp_path / "good")
    assert "4 records skipped" in said.stderr
    listed = (tmp_path / "bad" / "skipped.jsonl").read_text().splitlines()
    text = (tmp_path / "bad.csv").read_text()
    for line, (row, reason) in zip(listed, BAD_ROWS.items(), strict=True):
        entry = json.loads(line)
        assert text[entry["position"] :].startswith(row)
        assert reason in entry["reason"]
    penstok("verify", "bad", "--full", "--source")


def test_a_kill_in_the_middle_is_resumed(tmp_path: Path, documents: list[str]) -> None:
    (tmp_path / "a.csv").write_bytes(table_of(documents * 3, end="\r\n"))
    job = ("tokenize", tmp_path / "a.csv", *VAL)
    assert run(*job, "-o", tmp_path / "unbroken")[0] == 0
    assert run(*job, "-o", tmp_path / "out", fault="journal on disk:2")[0] == -signal.SIGKILL
    assert run(*job, "-o", tmp_path / "out")[0] == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "unbroken")
