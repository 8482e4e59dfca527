"""Where documents came from: the same for any workers, shards, tasks and kills; found by input."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from compressed import compress
from csv_cases import write_csv
from processes import run
from remote_servers import make_bucket, s3_client, use_s3
from row_cases import write_rows
from support import EOT, few, reference

import penstok
from penstok.data.origins import Origins, open_origins
from penstok.errors import DamageError, UsageError
from penstok.storage import close_connections
from penstok.types import SPLITS

if TYPE_CHECKING:
    from conftest import RunPenstok

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SMALL: dict[str, Any] = {"unit_bytes": 20_000, "block_bytes": 5_000}
SHAPING: dict[str, Any] = {"val_fraction": 0.3, "on_error": "skip", "provenance": True}
DTYPE = np.dtype([("input", "<u4"), ("position", "<u8")])


def texts(word: str, count: int) -> list[str]:
    return [f"{word} {idx}: " + "some words " * (idx % 37 + 1) + "end" for idx in range(count)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of every kind, and `one`, the output of one worker."""
    folder = tmp_path_factory.mktemp("corpus")
    inputs = folder / "in"
    inputs.mkdir()
    text = "<|endoftext|>".join([*texts("text", 300), "", "last"]).encode()
    (inputs / "a.txt").write_bytes(b"\xef\xbb\xbf" + text.replace(b"text 7:", b"text \xff:"))
    (inputs / "b.txt.gz").write_bytes(gzip.compress(text))
    lines = [json.dumps({"id": idx, "text": each}) for idx, each in enumerate(texts("line", 300))]
    lines[5], lines[6], lines[250] = '{"text": ""}', "", "{"
    (inputs / "c.jsonl").write_text("\n".join(lines))
    (inputs / "d.jsonl.zst").write_bytes(compress("\n".join(lines).encode(), "zstd"))
    rows = [
        ["id", "text"],
        *([str(idx), f'{each}\n"quoted", x'] for idx, each in enumerate(texts("cell", 200))),
    ]
    (inputs / "e.csv").write_bytes(write_csv(rows))
    table = pa.table({"text": pa.array([None, "", *texts("row", 300)], pa.string())})
    write_rows(inputs / "f.parquet", table, row_group_size=40)
    write_rows(inputs / "g.arrow", table, row_group_size=70)
    with tarfile.open(inputs / "h.tar", "w") as tar:
        for name, data in {"x/one.txt": text, "two.jsonl": "\n".join(lines).encode()}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    penstok.tokenize(inputs, folder / "one", workers=1, **SHAPING, **SMALL)
    return folder


def load(output: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read the origins of each split, shard after shard."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for split in SPLITS:
        paths = sorted(output.glob(f"{split}*_origins.npy"))
        found[split] = np.concatenate([np.load(path) for path in paths])
        assert found[split].dtype == DTYPE
    return found


def content_of(path: str) -> bytes:
    """Read an input as a person would."""
    archive, is_member, member = path.partition(".tar/")
    if is_member:
        with tarfile.open(archive + ".tar") as tar:
            file = tar.extractfile(member)
            return b"" if file is None else file.read()
    if path.endswith(".zst"):
        from backports import zstd

        return zstd.decompress(Path(path).read_bytes())
    data = Path(path).read_bytes()
    return gzip.decompress(data) if path.endswith(".gz") else data


def read_text(path: str, position: int) -> str:
    """Read the text of the document at a position of an input."""
    if path.endswith(".parquet"):
        import pyarrow.parquet as pq

        return str(pq.read_table(path)["text"][position])
    if path.endswith(".arrow"):
        with pa.ipc.open_stream(path) as reader:
            return str(reader.read_all()["text"][position])
    rest = content_of(path)[position:]
    if ".csv" in path:
        return next(csv.reader(io.StringIO(rest.decode(), newline="")))[1]
    if ".jsonl" in path:
        return str(json.loads(rest.partition(b"\n")[0])["text"])
    return rest.partition(b"<|endoftext|>")[0].decode(errors="replace")


def test_every_origin_points_at_its_document(corpus: Path) -> None:
    manifest = penstok.info(corpus / "one")
    origins, seen = load(corpus / "one"), set()
    for split in SPLITS:
        tokens = np.fromfile(corpus / "one" / f"{split}.bin", np.uint16).tolist()
        starts = np.load(corpus / "one" / f"{split}_documents.npy").tolist()
        assert len(starts) == len(origins[split]) + 1
        # Reading every document would take long: compressed inputs are read for each.
        for idx in range(0, len(starts) - 1, 7):
            number, position = origins[split][idx].tolist()
            path = manifest.inputs[number].path
            ids = tokens[starts[idx] : starts[idx + 1]]
            assert ids[-1] == EOT
            assert reference().decode(ids[:-1]) == read_text(path, position)
            seen.add(Path(path).suffix)
    assert len(seen) == 7
    for number, record in enumerate(manifest.inputs):
        count = sum(int((origins[split]["input"] == number).sum()) for split in SPLITS)
        assert count == record.documents > 0
    assert penstok.verify(corpus / "one", full=True).is_whole


@pytest.mark.parametrize("workers", few([2, 3, 4]))
@pytest.mark.parametrize("shard_tokens", [None, 3000])
def test_origins_do_not_depend_on_workers_and_shards(
    corpus: Path, tmp_path: Path, workers: int, shard_tokens: int | None
) -> None:
    output = tmp_path / "out"
    more: dict[str, Any] = {"workers": workers, "memory": "4GiB", "shard_tokens": shard_tokens}
    manifest = penstok.tokenize(corpus / "in", output, **SHAPING, **SMALL, **more)
    expected, found = load(corpus / "one"), load(output)
    for split in SPLITS:
        assert np.array_equal(found[split], expected[split])
        # Documents that begin in a shard have a row there, whichever shard they end in.
        for index in manifest.splits[split].indexes_of("origins"):
            assert len(np.load(output / index.path)) == index.documents
    assert penstok.verify(output, full=True).is_whole


def test_origins_of_parts_are_those_of_one_run(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    for part in (2, 1, 3):
        more: dict[str, Any] = {"workers": 1, "task_size": 40_000}
        penstok.tokenize_part(corpus / "in", output, part, 3, **SHAPING, **SMALL, **more)
    manifest = penstok.finish(output)
    assert len(manifest.splits["train"].files) > 5
    expected, found = load(corpus / "one"), load(output)
    assert all(np.array_equal(found[split], expected[split]) for split in SPLITS)
    assert penstok.verify(output, full=True).is_whole
    documents = [each.origin for each in penstok.find(output, "*/c.jsonl")]
    assert documents == [each.origin for each in penstok.find(corpus / "one", "*/c.jsonl")]


def test_inputs_can_be_added(corpus: Path, tmp_path: Path) -> None:
    names = sorted((corpus / "in").iterdir())
    for stop in (2, 5, len(names)):
        settings = {**SHAPING, **SMALL, "doc_separator": "<|endoftext|>"}
        penstok.tokenize(names[:stop], tmp_path / "out", **settings)
    expected, found = load(corpus / "one"), load(tmp_path / "out")
    assert all(np.array_equal(found[split], expected[split]) for split in SPLITS)
    assert penstok.verify(tmp_path / "out", full=True).is_whole


def test_inputs_are_not_added_to_damaged_origins(corpus: Path, tmp_path: Path) -> None:
    names = sorted((corpus / "in").iterdir())
    settings = {**SHAPING, **SMALL, "doc_separator": "<|endoftext|>"}
    penstok.tokenize(names[:1], tmp_path / "out", **settings)
    damage(tmp_path / "out" / "train_origins.npy")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.*")}
    with pytest.raises(DamageError, match="checksum") as caught:
        penstok.tokenize(names[:2], tmp_path / "out", **settings)
    assert "--overwrite" in caught.value.next_step
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.*")} == before


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_verify_finds_damaged_origins_and_says_what_to_do(
    corpus: Path, penstok: RunPenstok, tmp_path: Path
) -> None:
    shutil.copytree(corpus / "one", tmp_path / "out")
    path = tmp_path / "out" / "val_origins.npy"
    damage(path)
    said = penstok("verify", "out", exit_code=6).stderr
    assert "val_origins.npy: checksum mismatch" in said
    said = penstok("verify", "out", "--repair", exit_code=6).stderr
    assert "the tokens do not say where documents came from" in said
    assert "--overwrite" in said
    path.write_bytes(path.read_bytes()[:-12])
    assert "bytes instead of" in penstok("verify", "out", exit_code=6).stderr
    path.unlink()
    assert "missing" in penstok("verify", "out", exit_code=6).stderr


def test_a_lost_manifest_costs_no_origins(
    corpus: Path, penstok: RunPenstok, tmp_path: Path
) -> None:
    shutil.copytree(corpus / "one", tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    (tmp_path / "out" / "train_documents.npy").unlink()
    penstok("verify", "out", "--repair")
    for name in ("manifest.json", "train_documents.npy", "train_origins.npy"):
        assert (tmp_path / "out" / name).read_bytes() == (corpus / "one" / name).read_bytes()


def test_find_lists_the_documents_of_inputs(
    corpus: Path, penstok: RunPenstok, tmp_path: Path
) -> None:
    output, name = corpus / "one", str(corpus / "in" / "f.parquet")
    lines = [
        line.split("\t") for line in penstok("find", output, "--input", name).stdout.splitlines()
    ]
    assert len(lines) == 300
    assert {line[2].split()[0] for line in lines} == {"row"}
    assert {line[3] for line in lines} == {name}
    origins = open_origins(output)
    for split, document, position, path in lines[::50]:
        found = origins.of("train" if split == "train" else "val", int(document))
        assert (f"row {found.position}", found.path) == (position, path)
    said = penstok("find", output, "--input", "*.jsonl", "--json").stdout.splitlines()
    records = [json.loads(line) for line in said]
    inputs = {record["input"] for record in records[:-1]}
    assert {Path(each).name for each in inputs} == {"c.jsonl", "two.jsonl"}
    assert records[-1] == {"type": "summary", "output": str(output), "documents": 2 * 297}
    assert records[0]["type"] == "document"
    everything = penstok("find", output, "--input", "*").stdout.splitlines()
    assert len(everything) == sum(len(each) for each in load(output).values())


def test_find_says_what_is_wrong(corpus: Path, penstok: RunPenstok, tmp_path: Path) -> None:
    output = corpus / "one"
    said = penstok("find", output, "--input", "c.jsonl", exit_code=2).stderr
    assert "did you mean" in said
    assert str(corpus / "in" / "c.jsonl") in said
    assert "no input is named" in penstok("find", output, exit_code=2).stderr
    (tmp_path / "a.txt").write_text("a text")
    penstok("tokenize", "a.txt", "-o", "plain", "-q")
    said = penstok("find", "plain", "--input", "a.txt", exit_code=2).stderr
    assert "--provenance" in said
    said = penstok(
        "tokenize", "a.txt", "-o", "none", "--provenance", "--document-index", "none", exit_code=2
    ).stderr
    assert "--document-index" in said
    # Provenance shapes the output: without it, this is another job.
    said = penstok("tokenize", "a.txt", "-o", "plain", "--provenance", exit_code=5).stderr
    assert "`--provenance` not given there, given here" in said


def test_origins_are_described_in_words(corpus: Path) -> None:
    origins = open_origins(corpus / "one")
    manifest = penstok.info(corpus / "one")
    first = origins.of("train", 0)
    assert first.unit == "byte"
    assert first.where == f"{manifest.inputs[0].path}, byte {first.position}"
    zipped = next(penstok.find(corpus / "one", "*.txt.gz")).origin
    assert zipped.where.endswith(" of its decompressed content")
    rows = next(penstok.find(corpus / "one", "*.arrow")).origin
    assert rows.where.endswith(f"g.arrow, row {rows.position}")
    with pytest.raises(UsageError, match="only"):
        origins.of("val", 1 << 40)
    with pytest.raises(UsageError, match="did you mean"):
        Origins(corpus / "one", manifest).find_inputs("a.txt")


def test_show_says_where_a_document_came_from(corpus: Path, penstok: RunPenstok) -> None:
    origin = open_origins(corpus / "one").of("val", 17)
    done = penstok("show", corpus / "one", "--split", "val", "--document", "17")
    assert done.stderr == f"from {origin.where}\n"
    assert done.stdout.startswith(read_text(origin.path, origin.position))


FAULTS = [
    "worker wrote some tokens:7",
    "tokens not on disk:2",
    "journal line torn:2",
    "journal on disk:2",
    "one index written:2",
    "task on disk",
    "one file published:3",
]


@pytest.mark.crash
@pytest.mark.parametrize("fault", few(FAULTS, 4))
def test_a_kill_costs_no_origins(corpus: Path, tmp_path: Path, fault: str) -> None:
    flags = ("--val-fraction", "0.3", "--on-error", "skip", "--provenance")
    command = ("tokenize", corpus / "in", "-o", tmp_path / "out", *flags, "--shard-tokens", "9000")
    run(*command, fault=fault)
    assert run(*command)[0] == 3
    expected, found = load(corpus / "one"), load(tmp_path / "out")
    assert all(np.array_equal(found[split], expected[split]) for split in SPLITS)


@pytest.mark.crash
@pytest.mark.parametrize("fault", ["ledger copied", "manifest withdrawn", "tokens on disk"])
def test_a_kill_while_inputs_are_added_costs_no_origins(
    corpus: Path, tmp_path: Path, fault: str
) -> None:
    names = sorted((corpus / "in").iterdir())
    flags = ["--val-fraction", "0.3", "--on-error", "skip", "--provenance"]
    flags += ["--doc-separator", "<|endoftext|>", "-o", str(tmp_path / "out")]
    assert run("tokenize", *names[:2], *flags)[0] in (0, 3)
    run("tokenize", *names, *flags, fault=fault)
    assert run("tokenize", *names, *flags)[0] == 3
    expected, found = load(corpus / "one"), load(tmp_path / "out")
    assert all(np.array_equal(found[split], expected[split]) for split in SPLITS)


@pytest.mark.crash
def test_units_whose_origins_were_lost_are_repeated(corpus: Path, tmp_path: Path) -> None:
    flags = ("--val-fraction", "0.3", "--on-error", "skip", "--provenance")
    command = ("tokenize", corpus / "in", "-o", tmp_path / "out", *flags)
    # Every unit is in the journal by then.
    run(*command, fault="small file written")
    (spool,) = tmp_path.glob("out/.penstok/tasks/*/train_origins.spool")
    data = spool.read_bytes()
    spool.write_bytes(data[: len(data) // 2])
    assert run(*command)[0] == 3
    expected, found = load(corpus / "one"), load(tmp_path / "out")
    assert all(np.array_equal(found[split], expected[split]) for split in SPLITS)


def test_origins_in_an_object_store_are_those_of_a_folder(
    corpus: Path, s3_gateway: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_s3(monkeypatch, s3_gateway)
    make_bucket(s3_client(s3_gateway), "origins")
    more: dict[str, Any] = {"workers": 1, "task_size": 60_000}
    manifest = penstok.tokenize(corpus / "in", "s3://origins/out", **SHAPING, **SMALL, **more)
    assert len(manifest.splits["train"].files) > 3
    for pattern in ("*/a.txt", "*.parquet", "*/two.jsonl"):
        found = list(penstok.find("s3://origins/out", pattern))
        assert found == list(penstok.find(corpus / "one", pattern))
    assert open_origins("s3://origins/out").of("val", 3) == open_origins(corpus / "one").of(
        "val", 3
    )
    assert penstok.verify("s3://origins/out", full=True).is_whole
    close_connections()
