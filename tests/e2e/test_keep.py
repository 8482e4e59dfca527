"""Kept fields of records: in the row of their document, whatever happens to a job."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compressed import compress
from csv_cases import write_csv
from processes import run
from remote_servers import make_bucket, s3_client, use_s3
from row_cases import write_rows
from support import few, reference

import penstok
from penstok.errors import ConflictError, DamageError, UsageError
from penstok.storage import close_connections
from penstok.types import SPLITS

if TYPE_CHECKING:
    from conftest import RunPenstok

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KEEP = "url,meta.lang,id,tags"
NAMES = KEEP.split(",")
SMALL: dict[str, Any] = {"unit_bytes": 20_000, "block_bytes": 5_000}
SHAPING: dict[str, Any] = {"val_fraction": 0.3, "on_error": "skip", "keep": KEEP}
FLAGS = ("--val-fraction", "0.3", "--on-error", "skip", "--keep", KEEP)
# The first small file is the ledger, which is written once every unit is in the journal; before
# that, the journal may lack the units of the last second.
JOURNAL_COMPLETE = "small file written"

Row = dict[str, "str | None"]


def texts(word: str, count: int) -> list[str]:
    return [f"{word} {idx}: " + "some words " * (idx % 37 + 1) + "end" for idx in range(count)]


def write_json_lines(word: str) -> tuple[bytes, dict[str, Row]]:
    """Write lines with fields of every kind; return what is kept of each, by its text."""
    lines, rows = list[bytes](), dict[str, Row]()
    for idx, text in enumerate(texts(word, 300)):
        url = f"http://x/é?q={idx}\n" + "long " * (idx % 11)
        record: dict[str, Any] = {"url": url, "text": text, "id": idx, "tags": ["a", {"b": None}]}
        row: Row = {"url": url, "id": str(idx), "tags": '["a", {"b": null}]', "meta.lang": None}
        if idx % 3 == 0:
            record["meta"], row["meta.lang"] = {"lang": "", "more": [1]}, ""
        if idx % 5 == 0:
            record["id"], row["id"] = idx / 8, str(idx / 8)
        if idx % 7 == 0:
            record["url"] = row["url"] = None
        if idx % 11 == 0:
            del record["tags"]
            row["tags"] = None
        if idx % 13 == 0:
            record["meta"], row["meta.lang"] = "no object", None
        rows[text] = row
        lines.append(json.dumps(record, ensure_ascii=idx % 2 == 0).encode())
    lines[5:5] = [b'{"text": "", "url": "of an empty document"}', b"", b'{"url": "no text"}', b"{"]
    rows["bytes"] = {"url": "a\ufffdb", "meta.lang": "\ufffd", "id": "1e400", "tags": "true"}
    lines.append(
        b'{"text": "bytes", "url": "a\xffb", "meta": {"lang": "\\ud800"}, "id": 1e400, '
        b'"tags": true}'
    )
    return b"\n".join(lines), rows


def write_table(word: str) -> tuple[pa.Table, dict[str, Row]]:
    """Make a table with columns of several types; return what is kept of each row."""
    long = texts(word, 300)
    langs = [None if idx % 4 == 0 else {"lang": f"l{idx}"} for idx in range(300)]
    urls = ["x" * (idx * 7 % 500) if idx % 3 else None for idx in range(300)]
    tags = [[idx, None] if idx % 2 else None for idx in range(300)]
    table = pa.table(
        {
            "id": pa.array([None, 7, *range(300)], pa.int64()),
            "text": pa.array([None, "", *long], pa.string()),
            "meta": pa.array([None, None, *langs], pa.struct([("lang", pa.string())])),
            "url": pa.array([None, "of an empty one", *urls], pa.large_string()),
            "tags": pa.array([None, None, *tags], pa.list_(pa.int32())),
        }
    )
    rows: dict[str, Row] = {}
    for idx, text in enumerate(long):
        lang, tag = langs[idx], tags[idx]
        rows[text] = {
            "url": urls[idx],
            "meta.lang": None if lang is None else lang["lang"],
            "id": str(idx),
            "tags": None if tag is None else f"[{idx},null]",
        }
    return table, rows


class Corpus:
    """Inputs of every kind with records, what is kept of them, and the output of one worker."""

    def __init__(self, folder: Path) -> None:
        self.inputs, self.one = folder / "in", folder / "one"
        self.rows: dict[str, Row] = {}
        self.inputs.mkdir()
        for name, word in (("a.jsonl", "line"), ("b.jsonl.zst", "zipped")):
            data, rows = write_json_lines(word)
            self.rows |= rows
            packed = compress(data, "zstd") if name.endswith("zst") else data
            (self.inputs / name).write_bytes(packed)
        cells = [["url", "x", "text", "meta.lang"]]
        for idx, text in enumerate(texts("cell", 200)):
            cells.append([f'a "b",\n{idx}' if idx % 2 else "", "-", text, "de"])
            kept: Row = {"url": cells[-1][0], "meta.lang": "de", "id": None, "tags": None}
            self.rows[text] = kept
        (self.inputs / "c.csv").write_bytes(write_csv(cells))
        for name, word in (("d.parquet", "row"), ("e.arrow", "batch")):
            table, rows = write_table(word)
            write_rows(self.inputs / name, table, row_group_size=70)
            self.rows |= rows
        penstok.tokenize(self.inputs, self.one, workers=1, **SHAPING, **SMALL)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


def load(output: Path) -> dict[str, list[Row]]:
    """Read the fields of each split, shard after shard."""
    found: dict[str, list[Row]] = {}
    for split in SPLITS:
        paths = sorted(output.glob(f"{split}*_fields.parquet"))
        tables = [pq.read_table(path) for path in paths]
        assert all(table.column_names == NAMES for table in tables)
        found[split] = [row for table in tables for row in table.to_pylist()]
    return found


def read_fields(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in output.glob("*_fields.parquet")}


def test_every_row_belongs_to_its_document(corpus: Corpus) -> None:
    tokens, fields = penstok.open(corpus.one), load(corpus.one)
    seen = set()
    for split in SPLITS:
        documents = tokens.documents(split)
        assert len(documents) == len(fields[split]) > 100
        for ids, row in zip(documents, fields[split], strict=True):
            text = reference().decode(ids[:-1].tolist())
            assert row == corpus.rows[text]
            seen.add(text)
    assert seen == set(corpus.rows)
    assert penstok.verify(corpus.one, full=True).is_whole


def test_the_manifest_counts_values(corpus: Corpus) -> None:
    manifest, fields = penstok.info(corpus.one), load(corpus.one)
    for split in SPLITS:
        (index,) = manifest.splits[split].indexes_of("fields")
        assert index.documents == len(fields[split])
        for name in NAMES:
            expected = sum(row[name] is not None for row in fields[split])
            assert index.values[name] == expected > 0


@pytest.mark.parametrize("workers", few([2, 3, 4], 2))
@pytest.mark.parametrize("unit_bytes", [20_000, 50_000])
def test_the_bytes_do_not_depend_on_workers_and_units(
    corpus: Corpus, tmp_path: Path, workers: int, unit_bytes: int
) -> None:
    more: dict[str, Any] = {"workers": workers, "memory": "4GiB", "unit_bytes": unit_bytes}
    penstok.tokenize(corpus.inputs, tmp_path / "out", **SHAPING, **SMALL | more)
    assert read_fields(tmp_path / "out") == read_fields(corpus.one)


@pytest.mark.parametrize("eot", ["append", "prepend", "none"])
def test_shards_have_the_rows_of_their_documents(corpus: Corpus, tmp_path: Path, eot: str) -> None:
    output = tmp_path / "out"
    more: dict[str, Any] = {"workers": 2, "memory": "4GiB", "shard_tokens": 3000, "eot": eot}
    manifest = penstok.tokenize(corpus.inputs, output, **SHAPING, **SMALL, **more)
    assert load(output) == load(corpus.one)
    for split in SPLITS:
        indexes = manifest.splits[split].indexes_of("fields")
        assert len(indexes) == len(manifest.splits[split].files) > 1
        for index in indexes:
            assert pq.read_metadata(output / index.path).num_rows == index.documents
    assert penstok.verify(output, full=True).is_whole


def test_parts_have_the_rows_of_their_documents(corpus: Corpus, tmp_path: Path) -> None:
    output = tmp_path / "out"
    for part in (2, 1, 3):
        more: dict[str, Any] = {"workers": 1, "task_size": 40_000}
        penstok.tokenize_part(corpus.inputs, output, part, 3, **SHAPING, **SMALL, **more)
    manifest = penstok.finish(output)
    assert len(manifest.splits["train"].files) > 3
    assert load(output) == load(corpus.one)
    assert penstok.verify(output, full=True).is_whole
    assert list(penstok.open(output).fields("val")) == load(corpus.one)["val"]


def test_inputs_can_be_added(corpus: Corpus, tmp_path: Path) -> None:
    names = sorted(corpus.inputs.iterdir())
    for stop in (1, 3, len(names)):
        penstok.tokenize(names[:stop], tmp_path / "out", **SHAPING, **SMALL)
    assert read_fields(tmp_path / "out") == read_fields(corpus.one)
    assert penstok.verify(tmp_path / "out", full=True).is_whole


def test_inputs_are_not_added_to_damaged_fields(corpus: Corpus, tmp_path: Path) -> None:
    names = sorted(corpus.inputs.iterdir())
    penstok.tokenize(names[:1], tmp_path / "out", **SHAPING, **SMALL)
    damage(tmp_path / "out" / "train_fields.parquet")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.*")}
    with pytest.raises(DamageError, match="checksum"):
        penstok.tokenize(names[:2], tmp_path / "out", **SHAPING, **SMALL)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.*")} == before


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("part", ["pages", "footer"])
def test_reading_damaged_fields_is_an_error_that_names_the_file(
    corpus: Corpus, tmp_path: Path, part: str
) -> None:
    shutil.copytree(corpus.one, tmp_path / "out")
    path = tmp_path / "out" / "val_fields.parquet"
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    place = footer if part == "footer" else footer // 2
    data[place : place + 20] = bytes(byte ^ 0x55 for byte in data[place : place + 20])
    path.write_bytes(data)
    with pytest.raises(DamageError, match=r"val_fields\.parquet"):
        list(penstok.open(tmp_path / "out").fields("val"))
    with pytest.raises(DamageError, match=r"val_fields\.parquet"):
        _ = penstok.open(tmp_path / "out").fields("val")[17]


@pytest.mark.parametrize("shard_tokens", [None, 3000])
def test_damaged_fields_are_found_and_made_again(
    corpus: Corpus, penstok: RunPenstok, tmp_path: Path, shard_tokens: int | None
) -> None:
    output = tmp_path / "out"
    flags = () if shard_tokens is None else ("--shard-tokens", shard_tokens)
    penstok("tokenize", corpus.inputs, "-o", "out", *FLAGS, *flags, exit_code=3)
    path = sorted(output.glob("val*_fields.parquet"))[-1]
    before = {each.name: each.read_bytes() for each in output.iterdir()}
    damage(path)
    said = penstok("verify", "out", exit_code=6).stderr
    assert f"{path.name}: checksum mismatch" in said
    assert "--repair" in said
    assert "repaired" in penstok("verify", "out", "--repair").stderr
    assert {each.name: each.read_bytes() for each in output.iterdir()} == before
    path.unlink()
    assert "missing" in penstok("verify", "out", exit_code=6).stderr
    penstok("verify", "out", "--repair")
    assert {each.name: each.read_bytes() for each in output.iterdir()} == before


def test_fields_are_not_made_again_from_other_inputs(corpus: Corpus, tmp_path: Path) -> None:
    shutil.copytree(corpus.inputs, tmp_path / "in")
    penstok.tokenize(tmp_path / "in", tmp_path / "out", **SHAPING, **SMALL)
    damage(tmp_path / "out" / "train_fields.parquet")
    path = tmp_path / "in" / "a.jsonl"
    path.write_bytes(path.read_bytes().replace(b"some words", b"same words"))
    with pytest.raises(ConflictError, match="changed"):
        penstok.verify(tmp_path / "out", repair=True)


def test_a_lost_manifest_costs_no_fields(
    corpus: Corpus, penstok: RunPenstok, tmp_path: Path
) -> None:
    shutil.copytree(corpus.one, tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    (tmp_path / "out" / "train_documents.npy").unlink()
    penstok("verify", "out", "--repair")
    for name in ("manifest.json", "train_documents.npy", "train_fields.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (corpus.one / name).read_bytes()


def test_another_number_of_rows_is_found(
    corpus: Corpus, penstok: RunPenstok, tmp_path: Path
) -> None:
    shutil.copytree(corpus.one, tmp_path / "out")
    path = tmp_path / "out" / "val_fields.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    import xxhash

    for index in manifest["splits"]["val"]["indexes"]:
        if index["kind"] == "fields":
            index["bytes"] = path.stat().st_size
            index["digest"] = xxhash.xxh3_128_hexdigest(path.read_bytes())
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    said = penstok("verify", "out", exit_code=6).stderr
    assert "val_fields.parquet: the file has" in said


FAULTS = [
    "fields of a unit on disk",
    "fields of a unit named",
    "fields of a unit on disk:2",
    "fields of a unit named:2",
    "worker wrote some tokens:7",
    "tokens not on disk:2",
    "journal line torn:2",
    "journal on disk:2",
    "one index written:2",
    "one index written:4",
    "task on disk",
    "one file published:3",
]


@pytest.mark.crash
@pytest.mark.parametrize("fault", few(FAULTS, 4))
def test_a_kill_costs_no_fields(corpus: Corpus, tmp_path: Path, fault: str) -> None:
    command = ("tokenize", corpus.inputs, "-o", tmp_path / "out", *FLAGS)
    exit_code, said = run(*command, fault=fault)
    # A killed worker is replaced, or stops the run; all other faults kill the parent.
    in_worker = fault.startswith(("worker", "fields"))
    assert exit_code in ((1, 3) if in_worker else (-signal.SIGKILL,)), said
    assert run(*command)[0] == 3
    assert read_fields(tmp_path / "out") == read_fields(corpus.one)


@pytest.mark.crash
@pytest.mark.parametrize("fault", ["ledger copied", "manifest withdrawn", "tokens on disk"])
def test_a_kill_while_inputs_are_added_costs_no_fields(
    corpus: Corpus, tmp_path: Path, fault: str
) -> None:
    names = sorted(corpus.inputs.iterdir())
    flags = [*FLAGS, "-o", str(tmp_path / "out")]
    assert run("tokenize", *names[:2], *flags)[0] == 3
    run("tokenize", *names, *flags, fault=fault)
    assert run("tokenize", *names, *flags)[0] == 3
    assert read_fields(tmp_path / "out") == read_fields(corpus.one)


@pytest.mark.crash
@pytest.mark.parametrize("harm", ["cut", "delete", "change"])
def test_units_whose_fields_were_lost_are_repeated(
    corpus: Corpus, tmp_path: Path, harm: str
) -> None:
    command = ("tokenize", corpus.inputs, "-o", tmp_path / "out", *FLAGS)
    run(*command, fault=JOURNAL_COMPLETE)
    units = sorted(tmp_path.glob("out/.penstok/tasks/*/train_fields.spool/*.rows"))
    assert len(units) == 5
    if harm == "cut":
        units[1].write_bytes(units[1].read_bytes()[:-5])
    elif harm == "delete":
        units[0].unlink()
    else:
        damage(units[-1])
    status, said = run(*command)
    assert status == 3
    assert "re-encoded 1 damaged unit" in said
    assert read_fields(tmp_path / "out") == read_fields(corpus.one)


@pytest.mark.crash
def test_rows_of_units_that_were_not_recorded_are_dropped(tmp_path: Path) -> None:
    """A run is killed after units of an input are on disk; that input changes; units move."""
    for name, count in (("a", 300), ("b", 300)):
        write_numbered(tmp_path / f"{name}.jsonl", name, count)
    inputs = (tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    command = ("tokenize", *inputs, "-o", tmp_path / "out", "--keep", "id", "--val-fraction", "0.2")
    run(*command, fault=JOURNAL_COMPLETE)
    journal = next(tmp_path.glob("out/.penstok/tasks/*.jsonl"))
    lines = journal.read_bytes().splitlines(keepends=True)
    second = next(idx for idx, line in enumerate(lines) if b"b.jsonl" in line)
    journal.write_bytes(b"".join(lines[:second]))
    (unit,) = (tmp_path / "out/.penstok/tasks").glob("*/train_fields.spool/[1-9]*.rows")
    unit.rename(unit.with_name(f"{int(unit.stem) + 7}.rows"))
    write_numbered(tmp_path / "b.jsonl", "c", 290)
    assert run(*command)[0] == 0
    penstok.tokenize(inputs, tmp_path / "new", keep="id", val_fraction=0.2)
    assert read_fields(tmp_path / "out") == read_fields(tmp_path / "new")


def write_numbered(path: Path, word: str, count: int) -> None:
    records = ({"text": f"{word} {idx}", "id": f"{word}{idx}"} for idx in range(count))
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def test_fields_in_an_object_store_are_those_of_a_folder(
    corpus: Corpus, s3_gateway: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_s3(monkeypatch, s3_gateway)
    make_bucket(s3_client(s3_gateway), "fields")
    more: dict[str, Any] = {"workers": 1, "task_size": 60_000}
    manifest = penstok.tokenize(corpus.inputs, "s3://fields/out", **SHAPING, **SMALL, **more)
    assert len(manifest.splits["train"].files) > 3
    tokens, expected = penstok.open("s3://fields/out"), load(corpus.one)
    for split in SPLITS:
        assert list(tokens.fields(split)) == expected[split]
        assert tokens.fields(split)[17] == expected[split][17]
    assert penstok.verify("s3://fields/out", full=True).is_whole
    close_connections()


def test_show_and_open_have_the_fields(corpus: Corpus, penstok: RunPenstok) -> None:
    import penstok as package

    row = load(corpus.one)["val"][17]
    done = penstok("show", corpus.one, "--split", "val", "--document", "17")
    lines = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == NAMES
    assert lines[2] == f"id: {row['id'] or '(none)'}"
    tokens = package.open(corpus.one)
    fields = tokens.val.fields
    assert isinstance(fields, package.Fields)
    assert fields.names == tuple(NAMES)
    assert len(fields) == len(tokens.val.documents)
    assert fields[17] == fields[17 - len(fields)] == row
    assert fields[3:5] == [fields[3], fields[4]]
    assert repr(fields) == f"<url, meta.lang, id, tags of {len(fields)} documents of val>"
    with pytest.raises(IndexError):
        fields[len(fields)]
    with pytest.raises(UsageError, match="whole split"):
        _ = tokens.shards("val")[0].fields


def test_what_cannot_be_kept_is_refused(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text")
    (tmp_path / "b.jsonl").write_text('{"text": "b", "url": "x"}\n' * 30)
    said = penstok("tokenize", "b.jsonl", "a.txt", "-o", "out", "--keep", "url", exit_code=2).stderr
    assert "`a.txt` is plain text, which has no fields to keep" in said
    for keep in ("url,url", "url,,id", ",", "a\tb"):
        said = penstok("tokenize", "b.jsonl", "-o", "out", "--keep", keep, exit_code=2).stderr
        assert "--keep" in said
    said = penstok(
        "tokenize", "b.jsonl", "-o", "out", "--keep", "url", "--document-index", "none", exit_code=2
    ).stderr
    assert "--document-index" in said
    assert not (tmp_path / "out").exists()
    penstok("tokenize", "b.jsonl", "-o", "plain", "-q")
    # Kept fields shape the output: without them, this is another job.
    said = penstok("tokenize", "b.jsonl", "-o", "plain", "--keep", "url", exit_code=5).stderr
    assert "`--keep`" in said
    with pytest.raises(UsageError, match="no fields"):
        __import__("penstok").open(tmp_path / "plain").fields("train")


def test_spaces_around_names_are_no_part_of_them(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"text": "b", "url": "x", "la ng": "y"}\n' * 30)
    penstok.tokenize(tmp_path / "b.jsonl", tmp_path / "out", keep="url, la ng", val_fraction=0)
    assert penstok.open(tmp_path / "out").fields("train")[3] == {"url": "x", "la ng": "y"}
    with pytest.raises(UsageError, match="list of names"):
        penstok.tokenize(tmp_path / "b.jsonl", tmp_path / "no", keep="url, ")


def test_a_name_that_no_record_has_is_a_warning(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"text": "b", "url": "x"}\n' * 30)
    said = penstok("tokenize", "b.jsonl", "-o", "out", "--keep", "url,lnag").stderr
    assert "no document has a value in the kept field `lnag`" in said.replace("1 field", "field")
    table = pq.read_table(tmp_path / "out" / "train_fields.parquet")
    assert table["lnag"].null_count == len(table)
    said = penstok("plan", "b.jsonl", "-o", "other", "--keep", "url,lang").stdout
    assert "fields url, lang" in said


def test_long_values_are_streamed_into_row_groups(tmp_path: Path) -> None:
    """A table whose kept column is far larger than its text: memory follows the block."""
    urls = ["".join(chr(97 + (idx * at) % 26) for at in range(2_000)) * 50 for idx in range(200)]
    table = pa.table({"text": [f"text {idx}" for idx in range(200)], "url": urls})
    write_rows(tmp_path / "a.parquet", table, row_group_size=50)
    manifest = penstok.tokenize(
        tmp_path / "a.parquet", tmp_path / "out", keep="url", val_fraction=0, workers=1
    )
    metadata = pq.read_metadata(tmp_path / "out" / "train_fields.parquet")
    assert metadata.num_rows == manifest.counts["documents"] == 200
    assert metadata.num_row_groups == 3
    assert pq.read_table(tmp_path / "out" / "train_fields.parquet")["url"].to_pylist() == urls
