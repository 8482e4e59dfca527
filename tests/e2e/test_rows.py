"""Files of rows: the same bytes as from text, whatever happens on the way."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import run, start, token_files, wait_for, watch_peak, workers_of
from row_cases import write_rows

import penstok
from penstok.kernel import find_kernel_function

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
FLAGS = ("--val-fraction", "0.1", "--memory", "2GiB")
SEPARATOR = "<|endoftext|>"
WORDS = ["word", "naïve", "漢字かな", "Ünder", "  two", "\n\n", "12345", "don't", "жизнь", "\x00"]


def make_documents(count: int) -> list[str]:
    """Write documents of 2 kB on average, some of them empty, one of 300 kB."""
    chance = random.Random(count)
    documents = [
        f"document {idx} " + " ".join(chance.choices(WORDS, k=chance.randrange(600)))
        for idx in range(count)
    ]
    documents[3] = documents[-1] = ""
    documents[count // 3] = "long " * 60_000
    return documents


@pytest.fixture(scope="module")
def documents() -> list[str]:
    return make_documents(700)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def table(documents: list[str]) -> pa.Table:
    return pa.table({"id": range(len(documents)), "text": documents})


@pytest.fixture(scope="module")
def parquet(folder: Path, table: pa.Table) -> Path:
    """One row group, which takes ten units."""
    return write_rows(folder / "one.parquet", table, compression="zstd")


@pytest.fixture(scope="module")
def expected(folder: Path, documents: list[str]) -> dict[str, bytes]:
    text = folder / "expected.txt"
    text.write_text(SEPARATOR.join(documents))
    assert run("tokenize", text, "-o", folder / "expected", *FLAGS)[0] == 0
    return token_files(folder / "expected")


@pytest.fixture(scope="module")
def finished(folder: Path, parquet: Path) -> Path:
    """The output of a finished job; copy it to change it."""
    assert run("tokenize", parquet, "-o", folder / "finished", *FLAGS)[0] == 0
    return folder / "finished"


def manifest(output: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((output / "manifest.json").read_text())
    return content


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def column(documents: list[str], kind: pa.DataType) -> pa.Table:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.table({"text": pa.array([each.encode() for each in documents], kind)})
    return pa.table({"text": pa.array(documents, pa.string()).cast(kind)})


@pytest.fixture(scope="module")
def variants(folder: Path, documents: list[str]) -> list[Path]:
    """The same documents, written in many ways."""
    (folder / "variants").mkdir()
    words = pa.dictionary(pa.int32(), pa.string())
    written: list[tuple[str, pa.DataType, dict[str, Any]]] = [
        ("0.parquet", pa.string(), {"row_group_size": 1}),
        ("1.parquet", pa.string(), {"row_group_size": 37, "compression": "zstd"}),
        ("2.parquet", pa.large_string(), {"use_dictionary": False, "data_page_size": 3000}),
        ("3.parquet", words, {"row_group_size": 500}),
        ("4.parquet", pa.binary(), {"compression": "none", "write_page_checksum": True}),
        ("5.parquet", pa.string(), {"data_page_version": "2.0", "write_page_index": True}),
        ("6.arrow", pa.string(), {"row_group_size": 100}),
        ("7.arrow", pa.large_binary(), {"compression": "zstd"}),
        ("8.feather", pa.string(), {"compression": "lz4", "row_group_size": 333}),
        ("9.feather", words, {}),
        ("10.arrow", pa.string_view(), {"row_group_size": 400}),
    ]
    return [
        write_rows(folder / "variants" / name, column(documents, kind), **options)
        for name, kind, options in written
    ]


@pytest.mark.parametrize(("workers", "unit_bytes"), [(1, 1_000_000), (2, 200_000), (3, 30_000)])
def test_every_way_to_write_rows_gives_the_same_bytes(
    variants: list[Path],
    expected: dict[str, bytes],
    documents: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    unit_bytes: int,
) -> None:
    monkeypatch.setenv("TEST_UNIT_BYTES", str(unit_bytes))
    exit_code, said = run(
        *("tokenize", variants[0].parent, "-o", tmp_path / "out", *FLAGS, "-j", str(workers))
    )
    assert exit_code == 0, said
    found = token_files(tmp_path / "out")
    assert found == {name: data * len(variants) for name, data in expected.items()}
    inputs = manifest(tmp_path / "out")["inputs"]
    assert [Path(each["path"]) for each in inputs] == variants
    num_full = sum(1 for each in documents if each)
    assert {each["documents"] for each in inputs} == {num_full}
    if workers == 2:
        exit_code, said = run("verify", tmp_path / "out", "--full", "--source")
        assert exit_code == 0, said


def test_a_column_inside_a_struct_and_bytes_that_are_no_text(
    documents: list[str], tmp_path: Path
) -> None:
    """What of a text file is repaired is repaired in a row, too."""
    texts = [each.encode() + b"\xff\xfe \xe6\xbc" * (idx % 3) for idx, each in enumerate(documents)]
    (tmp_path / "text.txt").write_bytes(SEPARATOR.encode().join(texts))
    inner = pa.StructArray.from_arrays(
        [pa.array(range(len(texts))), pa.array(texts, pa.binary())], ["id", "text"]
    )
    write_rows(tmp_path / "a.parquet", pa.table({"meta": inner}), row_group_size=200)
    write_rows(tmp_path / "b.feather", pa.table({"meta": inner}), compression="zstd")
    assert run("tokenize", tmp_path / "text.txt", "-o", tmp_path / "text", *FLAGS)[0] == 0
    rows = (tmp_path / "a.parquet", tmp_path / "b.feather", "--text-key", "meta.text")
    exit_code, said = run("tokenize", *rows, "-o", tmp_path / "rows", *FLAGS)
    assert exit_code == 0, said
    once = token_files(tmp_path / "text")
    assert token_files(tmp_path / "rows") == {name: data * 2 for name, data in once.items()}
    repaired = [manifest(tmp_path / name)["counts"]["invalid_utf8"] for name in ("text", "rows")]
    assert repaired[1] == 2 * repaired[0] > 0


@pytest.mark.parametrize("name", ["one.parquet", "one.feather"])
def test_a_killed_run_goes_on_in_the_middle(
    table: pa.Table, expected: dict[str, bytes], tmp_path: Path, name: str
) -> None:
    path = write_rows(tmp_path / name, table, compression="zstd")
    job = ("tokenize", path, "-o", tmp_path / "out", *FLAGS)
    for fault, workers in [("journal on disk:2", 1), ("journal line torn:2", 2)]:
        assert run(*job, "-j", str(workers), fault=fault)[0] == -signal.SIGKILL
    assert run(*job, fault="tokens on disk:1")[0] == -signal.SIGKILL
    exit_code, said = run(*job, "-j", "3")
    assert exit_code == 0, said
    assert token_files(tmp_path / "out") == expected
    assert manifest(tmp_path / "out")["run"]["units_kept"] > 0


def test_a_worker_that_dies_is_replaced(
    parquet: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    process = start("tokenize", parquet, "-o", tmp_path / "out", "-j", "2", *FLAGS)
    ledger = tmp_path / "out" / ".penstok" / "tasks" / "00000.jsonl"
    wait_for(lambda: ledger.exists() and b'"unit"' in ledger.read_bytes())
    for worker in workers_of(process):
        worker.kill()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert token_files(tmp_path / "out") == expected
    assert manifest(tmp_path / "out")["run"]["workers_replaced"]


def test_damaged_tokens_are_reencoded(
    parquet: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    job = ("tokenize", parquet, "-o", tmp_path / "out", *FLAGS)
    assert run(*job, fault="journal on disk:3")[0] == -signal.SIGKILL
    flip(tmp_path / "out" / ".penstok" / "tasks" / "00000" / "train.bin.partial", 1000)
    exit_code, said = run(*job)
    assert exit_code == 0, said
    assert "damaged" in said
    assert token_files(tmp_path / "out") == expected

    flip(tmp_path / "out" / "train.bin", 300_000)
    exit_code, said = run("verify", tmp_path / "out", "--full")
    assert exit_code == 6
    assert f"from {parquet}, rows " in said
    exit_code, said = run("verify", tmp_path / "out", "--repair")
    assert exit_code == 0, said
    assert token_files(tmp_path / "out") == expected


@pytest.mark.parametrize("lost", ["the job", "an input", "a unit", "all"])
def test_a_damaged_ledger_is_repaired(finished: Path, tmp_path: Path, lost: str) -> None:
    output = shutil.copytree(finished, tmp_path / "out")
    ledger = output / "segments.jsonl"
    whole = ledger.read_bytes()
    lines = whole.splitlines(keepends=True)
    if lost == "all":
        ledger.unlink()
    else:
        idx = {"the job": 0, "an input": 1, "a unit": len(lines) // 2}[lost]
        flip(ledger, len(b"".join(lines[:idx])) + 20)
    exit_code, said = run("verify", output, "--repair")
    assert exit_code == 0, said
    assert ledger.read_bytes() == whole
    assert token_files(output) == token_files(finished)


def test_a_ledger_is_not_repaired_from_other_rows(
    finished: Path, table: pa.Table, tmp_path: Path
) -> None:
    """Where the input is not what it was, nothing is changed."""
    path = write_rows(tmp_path / "one.parquet", table)
    assert run("tokenize", path, "-o", tmp_path / "out", *FLAGS)[0] == 0
    ledger = tmp_path / "out" / "segments.jsonl"
    flip(ledger, ledger.stat().st_size // 2)
    before = ledger.read_bytes()
    write_rows(path, table.slice(10))
    exit_code, said = run("verify", tmp_path / "out", "--repair")
    assert exit_code == 5, said
    assert "when it was used" in said
    assert ledger.read_bytes() == before


def test_rows_are_proved_from_the_input(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, or the first of many units where there are too many."""
    report = penstok.verify(finished, source=True, full=True)
    assert report.is_whole
    assert report.is_all_proved
    monkeypatch.setattr("penstok.verification.proof._ALL_BYTES", 1000)
    sampled = penstok.verify(finished, source=True)
    assert sampled.is_whole
    assert 0 < sampled.documents_proved <= report.documents_proved
    assert not sampled.is_all_proved


def test_a_limit_takes_a_part_of_the_rows(
    parquet: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """The same with any workers, and after a kill; the file behind the limit is not used."""
    limit = parquet.stat().st_size // 2
    job = ("tokenize", parquet, *FLAGS, "--limit", str(limit))
    assert run(*job, "-o", tmp_path / "a", "-j", "1")[0] == 0
    assert run(*job, "-o", tmp_path / "b", fault="journal on disk:2")[0] == -signal.SIGKILL
    assert run(*job, "-o", tmp_path / "b", "-j", "3")[0] == 0
    found = token_files(tmp_path / "a")
    assert token_files(tmp_path / "b") == found
    assert all(data.startswith(found[name]) for name, data in expected.items())
    assert 0.4 < len(found["train.bin"]) / len(expected["train.bin"]) < 0.6
    assert run("verify", tmp_path / "b", "--full", "--source")[0] == 0


def test_inputs_are_added_behind(
    parquet: Path, documents: list[str], expected: dict[str, bytes], tmp_path: Path
) -> None:
    write_rows(tmp_path / "b.arrow", pa.table({"text": documents}))
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"text": d}) + "\n" for d in documents))
    output = ("-o", tmp_path / "out", *FLAGS)
    inputs: list[Path] = []
    for count, path in enumerate([parquet, tmp_path / "b.arrow", tmp_path / "c.jsonl"], 1):
        inputs.append(path)
        exit_code, said = run("tokenize", *inputs, *output)
        assert exit_code == 0, said
        assert token_files(tmp_path / "out") == {n: data * count for n, data in expected.items()}
    exit_code, said = run("tokenize", tmp_path / "b.arrow", *output)
    assert exit_code == 5
    assert run("verify", tmp_path / "out", "--full", "--source")[0] == 0


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_file_that_changed_is_a_conflict(
    table: pa.Table, tmp_path: Path, is_finished: bool
) -> None:
    path = write_rows(tmp_path / "a.parquet", table)
    job = ("tokenize", path, "-o", tmp_path / "out", *FLAGS)
    fault = "" if is_finished else "journal on disk:2"
    assert run(*job, fault=fault)[0] == (0 if is_finished else -signal.SIGKILL)
    write_rows(path, table.slice(1))
    exit_code, said = run(*job)
    assert exit_code == 5
    assert str(path) in said


def test_a_file_that_changes_while_it_is_read_is_an_error(table: pa.Table, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.parquet", table, row_group_size=50)
    process = start("tokenize", path, "-o", tmp_path / "out", "-j", "1", *FLAGS)
    ledger = tmp_path / "out" / ".penstok" / "tasks" / "00000.jsonl"
    wait_for(lambda: ledger.exists() and b'"unit"' in ledger.read_bytes())
    os.truncate(path, 5000)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 4, said
    assert "the file changed while" in said


def cut_short(path: Path, table: pa.Table) -> None:
    write_rows(path, table)
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("suffix", ["parquet", "feather", "arrow"])
def test_files_that_cannot_be_read_are_named(table: pa.Table, tmp_path: Path, suffix: str) -> None:
    bad = {
        "cut": "damaged or cut short",
        "missing": "text key `text` is missing; this file has `url`, `content`",
        "list": "text key `text` is a list, not text; this file has `url`",
        "nothing": "this is not a",
    }
    cut_short(tmp_path / f"cut.{suffix}", table)
    write_rows(tmp_path / f"missing.{suffix}", pa.table({"url": ["a"], "content": ["b"], "n": [1]}))
    write_rows(tmp_path / f"list.{suffix}", pa.table({"text": [["a", "b"]], "url": ["c"]}))
    (tmp_path / f"nothing.{suffix}").touch()
    for name, what in bad.items():
        exit_code, said = run("tokenize", tmp_path / f"{name}.{suffix}", "-o", tmp_path / "out")
        assert exit_code == 4
        assert what in said
        assert str(tmp_path / f"{name}.{suffix}") in said
    write_rows(tmp_path / f"whole.{suffix}", table)
    job = ("tokenize", tmp_path, "-o", tmp_path / "out", "--on-error", "skip", *FLAGS)
    exit_code, said = run(*job)
    assert exit_code == 3, said
    listed = (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    skipped = {json.loads(line)["path"]: json.loads(line)["reason"] for line in listed}
    assert set(skipped) == {str(tmp_path / f"{name}.{suffix}") for name in bad}
    assert all(bad[Path(path).stem] in why for path, why in skipped.items())
    assert run("verify", tmp_path / "out", "--full", "--source")[0] == 0


def test_damage_in_the_middle_of_a_file_is_named(table: pa.Table, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.parquet", table, compression="zstd", write_page_checksum=True)
    flip(path, path.stat().st_size // 2)
    exit_code, said = run("tokenize", path, "-o", tmp_path / "out")
    assert exit_code == 4
    assert "these rows are damaged" in said
    assert f"{path}, rows " in said


@pytest.mark.parametrize("suffix", ["parquet", "feather", "arrow"])
def test_files_without_rows(
    parquet: Path, expected: dict[str, bytes], tmp_path: Path, suffix: str
) -> None:
    schema = pa.schema({"text": pa.string()})
    empty = write_rows(tmp_path / f"empty.{suffix}", schema.empty_table())
    if suffix == "parquet":
        with pq.ParquetWriter(empty, schema):
            pass
        assert pq.ParquetFile(empty).num_row_groups == 0
    exit_code, said = run("tokenize", empty, "-o", tmp_path / "out")
    assert exit_code == 4
    assert "no text in the input" in said
    last = shutil.copy(empty, tmp_path / f"last.{suffix}")
    job = ("tokenize", empty, parquet, last, "-o", tmp_path / "out", *FLAGS)
    exit_code, said = run(*job)
    assert exit_code == 0, said
    assert token_files(tmp_path / "out") == expected
    exit_code, said = run("verify", tmp_path / "out", "--full", "--source")
    assert exit_code == 0, said
    assert run(*job)[0] == 0
    (tmp_path / "out" / "segments.jsonl").unlink()
    exit_code, said = run("verify", tmp_path / "out", "--repair")
    assert exit_code == 0, said


def test_rows_without_a_text(documents: list[str], tmp_path: Path) -> None:
    texts: list[str | None] = [None if idx % 50 == 20 else d for idx, d in enumerate(documents)]
    nulls = [idx for idx, text in enumerate(texts) if text is None]
    path = write_rows(tmp_path / "a.parquet", pa.table({"text": texts}))
    other = write_rows(tmp_path / "b.arrow", pa.table({"text": texts}))
    exit_code, said = run("tokenize", path, "-o", tmp_path / "out")
    assert exit_code == 4
    assert "text key `text` is null" in said
    assert f"{path}, row 20" in said

    job = ("tokenize", path, other, "-o", tmp_path / "out", "--on-error", "skip", *FLAGS)
    exit_code, said = run(*job)
    assert exit_code == 3, said
    listed = [
        json.loads(line) for line in (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    ]
    places = [(each["path"], each["position"]) for each in listed]
    assert places == [(str(each), idx) for each in (path, other) for idx in nulls]
    found = manifest(tmp_path / "out")
    assert [each["skipped"] for each in found["inputs"]] == [len(nulls)] * 2
    assert found["counts"]["skipped_records"] == 2 * len(nulls)
    assert run("verify", tmp_path / "out", "--full", "--source")[0] == 0
    ledger = tmp_path / "out" / "segments.jsonl"
    whole = ledger.read_bytes()
    ledger.unlink()
    assert run("verify", tmp_path / "out", "--repair")[0] == 0
    assert ledger.read_bytes() == whole


def test_rows_in_a_stream_are_refused_by_name(parquet: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet.gz"
    path.write_bytes(gzip.compress(parquet.read_bytes()))
    cases: list[tuple[str, Path | None]] = [(str(path), None), ("-", parquet)]
    for name, stdin in cases:
        exit_code, said = run("tokenize", name, "-o", tmp_path / "out", stdin=stdin)
        assert exit_code == 4
        assert "parquet cannot be read from front to back" in said
        assert f"where: {name}" in said


def test_text_rows_and_streams_mix(
    parquet: Path, documents: list[str], expected: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(SEPARATOR.join(documents))
    lines = "".join(json.dumps({"text": each}) + "\n" for each in documents)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    shutil.copy(parquet, tmp_path / "c.parquet")
    (tmp_path / "d.jsonl").write_text(lines)
    job = ("tokenize", tmp_path, "-o", tmp_path / "out", *FLAGS)
    assert run(*job, "-j", "2", fault="journal on disk:4")[0] == -signal.SIGKILL
    exit_code, said = run(*job, "-j", "2")
    assert exit_code == 0, said
    assert token_files(tmp_path / "out") == {name: data * 4 for name, data in expected.items()}


def run_and_watch(*arguments: str | Path) -> tuple[int, str, int]:
    """Run the real program with its real units; return what it said, and its peak memory."""
    command = [sys.executable, "-m", "penstok", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    peak = watch_peak(process)
    return process.returncode, process.communicate()[1], peak


@pytest.mark.cold
@pytest.mark.thorough
@pytest.mark.skipif(find_kernel_function("find_all") is None, reason="the kernel is not built")
@pytest.mark.parametrize("kind", ["one row group", "stored in a hundredth"])
def test_memory_does_not_depend_on_the_row_group(tmp_path: Path, kind: str) -> None:
    """480 MB of text in one row group, with less memory than that."""
    chance = random.Random(0)
    words = (
        " ".join(chance.choices(WORDS, k=100_000)) if kind == "one row group" else "text " * 1700
    )
    texts = [words[at : at + 4000] for at in range(4000)]
    arrays = [pa.array([f"{idx} {text}" for text in texts]) for idx in range(30)]
    path = tmp_path / "big.parquet"
    with pq.ParquetWriter(path, pa.schema({"text": pa.string()}), compression="zstd") as writer:
        whole = pa.concat_arrays(arrays)
        writer.write_table(pa.table({"text": whole}), row_group_size=len(whole))
    del whole, arrays
    assert pq.ParquetFile(path).num_row_groups == 1
    limit = 440 << 20
    exit_code, said, peak = run_and_watch(
        *("tokenize", path, "-o", tmp_path / "out", "--memory", str(limit), "-j", "1")
    )
    assert exit_code == 0, said
    found = manifest(tmp_path / "out")
    assert found["counts"]["input_bytes"] > 480e6
    assert max(peak, found["run"]["peak_memory_bytes"]) < limit
    assert found["run"]["workers_replaced"] == 0


@pytest.mark.cold
def test_a_long_list_of_row_groups_is_part_of_the_memory(tmp_path: Path) -> None:
    columns = {f"column {idx}": ["x"] * 2000 for idx in range(30)}
    path = write_rows(
        tmp_path / "many.parquet", pa.table({"text": ["a b c"] * 2000, **columns}), row_group_size=2
    )
    exit_code, said, peak = run_and_watch(
        *("tokenize", path, "-o", tmp_path / "out", "--engine", "tiktoken", "--memory", "500MiB")
    )
    assert exit_code == 2
    assert "is too little memory for 1 worker" in said
    memory = said.split("--memory ")[1].split("`")[0]
    job = ("tokenize", path, "-o", tmp_path / "out", "--engine", "tiktoken", "--memory", memory)
    exit_code, said, peak = run_and_watch(*job)
    assert exit_code == 0, said
    assert peak < int(memory.removesuffix("MiB")) << 20
