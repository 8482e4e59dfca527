"""Documents one by one: from Python and the command line, whole and in shards, damaged and old."""

from __future__ import annotations

import json
import pickle
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from click.testing import CliRunner, Result
from processes import contents, run
from support import EOT, reference

import penstok
from penstok.cli import app
from penstok.data.dataset import MappedTokens
from penstok.errors import DamageError, UsageError, WriteError
from penstok.output.documents import IndexRecord
from penstok.types import SPLITS, replace

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SMALL: dict[str, Any] = {"unit_bytes": 20_000, "block_bytes": 5_000, "engine": "tiktoken"}
SHAPING: dict[str, Any] = {"val_fraction": 0.3, "doc_separator": "<|endoftext|>"}
KINDS: dict[str, dict[str, Any]] = {
    "whole": {},
    "sharded": {"shard_tokens": 700},
    "wide": {"dtype": "uint32"},
    "prepended": {"eot": "prepend"},
    "without ids": {"eot": "none"},
    "without ids, sharded": {"eot": "none", "shard_tokens": 700},
}
# One document is longer than a shard, and than a unit.
TEXTS = [
    f"document {idx}: " + "some words " * (9_000 if idx == 20 else idx % 40) for idx in range(60)
]
MORE = [f"another {idx}: " + "more words " * (idx % 50) for idx in range(40)]


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("<|endoftext|>".join(texts))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    write(folder / "a.txt", TEXTS)
    write(folder / "b.txt", MORE)
    for kind, settings in KINDS.items():
        penstok.tokenize(folder / "a.txt", folder / kind, **SHAPING, **SMALL, **settings)
        both = [folder / "a.txt", folder / "b.txt"]
        penstok.tokenize(both, folder / f"{kind}, both", **SHAPING, **SMALL, **settings)
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Any:
    def copy(kind: str) -> Path:
        shutil.copytree(made / kind, tmp_path / "out")
        return tmp_path / "out"

    return copy


def expected(texts: list[str], eot: str) -> set[tuple[int, ...]]:
    found = set()
    for text in texts:
        ids = reference().encode_ordinary(text)
        placed = {"append": [*ids, EOT], "prepend": [EOT, *ids], "none": ids}[eot]
        found.add(tuple(placed))
    return found


def indexes(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(output.glob("*_documents.npy"))}


@pytest.mark.parametrize("kind", KINDS)
def test_documents_are_the_texts(made: Path, kind: str) -> None:
    tokens = penstok.open(made / kind)
    eot = KINDS[kind].get("eot", "append")
    found = []
    for split in SPLITS:
        documents = tokens.documents(split)
        listed = [tuple(document.tolist()) for document in documents]
        assert len(documents) == len(listed) == tokens.manifest.splits[split].documents
        assert [tuple(documents[idx].tolist()) for idx in range(len(documents))] == listed
        assert [tuple(document.tolist()) for document in documents[2:9:3]] == listed[2:9:3]
        assert tuple(documents[-1].tolist()) == listed[-1]
        with pytest.raises(IndexError, match=f"document {len(documents)} of {len(documents)}"):
            documents[len(documents)]
        found += listed
    assert set(found) == expected(TEXTS, eot)
    assert len(found) == len(TEXTS)
    again = pickle.loads(pickle.dumps(tokens))  # noqa: S301 made in this test
    assert again.documents("val")[1].tolist() == list(tokens.documents("val")[1])


def test_the_array_of_a_split_is_a_memory_map_with_documents(made: Path) -> None:
    train = penstok.open(made / "whole").train
    assert isinstance(train, MappedTokens)
    assert isinstance(train, np.memmap)
    plain = np.fromfile(made / "whole" / "train.bin", np.uint16)
    assert np.array_equal(train, plain)
    assert not train.flags.writeable
    assert type(train[3:9]) is np.memmap
    assert type(train[[1, 2]]) is np.memmap
    assert type(train + 1) is np.ndarray
    assert type(train.max()) is np.uint16
    assert int(train.sum()) == int(plain.sum())
    assert type(train == EOT) is np.ndarray
    assert train.document(3).tolist() == train.documents[3].tolist()
    assert not train.document(3).flags.writeable
    assert sum(map(len, train.iter_documents())) == len(train)
    starts = np.load(made / "whole" / "train_documents.npy", mmap_mode="r")
    assert train.document(4).tolist() == plain[starts[4] : starts[5]].tolist()
    with pytest.raises(UsageError, match="whole split"):
        penstok.open(made / "sharded").shards("train")[1].document(0)


def test_an_empty_split_has_no_documents(tmp_path: Path) -> None:
    write(tmp_path / "in.txt", ["one text", "another"])
    penstok.tokenize(tmp_path / "in.txt", tmp_path / "out", val_fraction=1, **SMALL)
    tokens = penstok.open(tmp_path / "out")
    assert len(tokens.train.documents) == len(tokens.train) == 0
    assert list(tokens.train.iter_documents()) == []
    assert np.load(tmp_path / "out" / "train_documents.npy").tolist() == [0]
    with pytest.raises(IndexError):
        tokens.train.document(0)
    with pytest.raises(UsageError, match="the train split has only 0 documents"):
        penstok.show(tmp_path / "out", document=0)
    assert penstok.verify(tmp_path / "out", full=True).is_whole


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_show_prints_a_document(made: Path) -> None:
    ids = penstok.open(made / "whole").train.document(5).tolist()
    text = reference().decode(ids[:-1])
    for kind in ("whole", "sharded"):
        assert penstok.show(made / kind, document=5) == text + "<|endoftext|>"
        assert invoke("show", made / kind, "--document", "5").stdout == text + "<|endoftext|>\n"
    assert penstok.show(made / "whole", document=5, tokens=1) == "document"
    done = invoke("show", made / "whole", "--document", "5", "--ids")
    assert done.stdout.split() == [str(each) for each in ids]
    done = invoke("show", made / "whole", "--document", "99", "--split", "val")
    assert done.exit_code == 2
    assert "the val split has only " in done.stderr
    assert "pass `--document` from 0 to " in done.stderr
    done = invoke("show", made / "whole", "--document", "1", "--at", "5")
    assert done.exit_code == 2
    assert "both say where to start" in done.stderr
    assert invoke("show", made / "whole", "--document", "-1").exit_code == 2
    with pytest.raises(UsageError):
        penstok.show(made / "whole", document=-1)


def test_an_output_without_an_index_says_what_to_do(made: Path, copy: Any, tmp_path: Path) -> None:
    left_out = tmp_path / "left out"
    settings = {**SHAPING, **SMALL, "document_index": "none"}
    penstok.tokenize(made / "a.txt", left_out, **settings)
    assert not indexes(left_out)
    assert penstok.verify(left_out, full=True).is_whole
    with pytest.raises(UsageError, match="without a document index") as refused:
        penstok.open(left_out).train.document(0)
    assert "--overwrite" in refused.value.next_step
    output = copy("whole")
    forget_indexes(output)
    with pytest.raises(DamageError, match="no document index") as damaged:
        penstok.show(output, document=0)
    assert "--repair" in damaged.value.next_step
    # Inputs can still be added to either.
    both = [made / "a.txt", made / "b.txt"]
    penstok.tokenize(both, left_out, **settings)
    assert not indexes(left_out)
    penstok.tokenize(both, output, **SHAPING, **SMALL)
    assert indexes(output) == indexes(made / "whole, both")


def forget_indexes(output: Path) -> None:
    """Make an output like those of versions before the index."""
    content = json.loads((output / "manifest.json").read_text())
    for split in content["splits"].values():
        del split["indexes"]
    (output / "manifest.json").write_text(json.dumps(content, indent=2))
    for name in indexes(output):
        (output / name).unlink()


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_that_are_added_give_the_index_of_one_job(made: Path, copy: Any, kind: str) -> None:
    output = copy(kind)
    both = [made / "a.txt", made / "b.txt"]
    penstok.tokenize(both, output, **SHAPING, **SMALL, **KINDS[kind])
    assert contents(output) == contents(made / f"{kind}, both")
    assert penstok.verify(output, full=True).is_whole


def test_inputs_are_not_added_to_a_damaged_index(made: Path, copy: Any, tmp_path: Path) -> None:
    output = copy("whole")
    flip(output / "train_documents.npy", 128 + 8 * 4)
    both = [made / "a.txt", made / "b.txt"]
    penstok.tokenize(both, output, **SHAPING, **SMALL)
    assert contents(output) == contents(made / "whole, both")
    shutil.rmtree(output)
    output = copy("without ids")
    flip(output / "train_documents.npy", 128 + 8 * 4)
    before = contents(output)
    with pytest.raises(DamageError, match="checksum mismatch"):
        penstok.tokenize(both, output, **SHAPING, **SMALL, eot="none")
    assert contents(output) == before
    assert (output / "manifest.json").exists()
    assert not (output / ".penstok").exists()


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["changed", "cut off", "missing", "not recorded"])
def test_verify_finds_a_damaged_index_and_repairs_it(
    made: Path, copy: Any, kind: str, damage: str
) -> None:
    output = copy(kind)
    path = sorted(output.glob("train_*documents.npy"))[0]
    if damage == "changed":
        flip(path, 128 + 8)
    elif damage == "cut off":
        path.write_bytes(path.read_bytes()[:-8])
    elif damage == "missing":
        path.unlink()
    else:
        forget_indexes(output)
    report = penstok.verify(output)
    assert "index" in report.kinds
    has_ids = KINDS[kind].get("eot") != "none"
    assert report.is_repairable == has_ids
    repaired = penstok.verify(output, repair=True)
    assert repaired.is_whole == has_ids
    if has_ids:
        assert indexes(output) == indexes(made / kind)
        manifest = (output / "manifest.json").read_bytes()
        assert manifest == (made / kind / "manifest.json").read_bytes()
        assert not (output / ".penstok").exists()


def test_a_lost_manifest_is_repaired_without_end_of_text_ids(made: Path, copy: Any) -> None:
    output = copy("without ids")
    (output / "manifest.json").write_text('{"format": "penstok"')
    assert penstok.verify(output, repair=True).is_whole
    assert (output / "manifest.json").read_bytes() == (
        made / "without ids" / "manifest.json"
    ).read_bytes()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].get("eot") != "none"])
@pytest.mark.parametrize("number", [0, -1])
def test_full_verify_finds_an_index_that_only_its_checksum_fits(
    made: Path, copy: Any, kind: str, number: int
) -> None:
    output = copy(kind)
    path = sorted(output.glob("train_*documents.npy"))[number]
    flip(path, 128 + 8)
    content = json.loads((output / "manifest.json").read_text())
    (record,) = (
        each for each in content["splits"]["train"]["indexes"] if each["path"] == path.name
    )
    text = (output / "manifest.json").read_text()
    digest = xxhash.xxh3_128_hexdigest(path.read_bytes())
    (output / "manifest.json").write_text(text.replace(record["digest"], digest))
    assert penstok.verify(output).is_whole
    report = penstok.verify(output, full=True)
    assert [(finding.kind, finding.file) for finding in report.findings] == [("index", path.name)]
    assert "end-of-text" in report.findings[0].what
    assert penstok.verify(output, repair=True, full=True).is_whole
    assert indexes(output) == indexes(made / kind)


@pytest.mark.crash
@pytest.mark.parametrize("eot", ["append", "prepend", "none"])
@pytest.mark.parametrize("damage", ["deleted", "cut off", "changed", "zeros", "intact"])
def test_the_list_of_documents_is_not_trusted_after_a_kill(
    tmp_path: Path, eot: str, damage: str
) -> None:
    """An older version left none; a disk may have lost or changed it."""
    path = write(tmp_path / "in.txt", [f"document {idx}: " + "word " * 400 for idx in range(700)])
    flags = ("--val-fraction", "0.1", "--eot", eot, "-j", "1")
    assert run("tokenize", path, "-o", tmp_path / "unbroken", *flags)[0] == 0
    output = tmp_path / "out"
    killed = run("tokenize", path, "-o", output, *flags, fault="journal on disk:4")
    assert killed[0] == -signal.SIGKILL
    spool = output / ".penstok" / "tasks" / "00000" / "train_documents.spool"
    data = spool.read_bytes()
    if damage == "deleted":
        spool.unlink()
    elif damage == "cut off":
        spool.write_bytes(data[: len(data) // 2 + 3])
    elif damage == "changed" and eot != "none":
        # One that is still in order; without end-of-text ids nobody could know.
        flip(spool, 8 * 10)
    elif damage == "zeros":
        spool.write_bytes(bytes(len(data)))
    code, said = run("tokenize", path, "-o", output, *flags)
    assert code == 0, said
    assert contents(output) == contents(tmp_path / "unbroken")
    assert ("damaged unit" in said) == (eot == "none" and damage not in ("intact", "changed"))


@pytest.mark.parametrize("eot", ["append", "prepend", "none"])
def test_parts_give_the_documents_of_one_job(tmp_path: Path, eot: str) -> None:
    """One document is longer than several tasks: in some of them no document begins."""
    long = " ".join(f"word{idx % 977}" for idx in range(700_000))
    path = write(tmp_path / "in.txt", [*TEXTS, long, *MORE])
    settings = {**SHAPING, "unit_bytes": 1 << 20, "engine": "auto", "workers": 1, "eot": eot}
    penstok.tokenize(path, tmp_path / "one", **settings)
    output = tmp_path / "parts"
    for part in (1, 2):
        penstok.tokenize_part(path, output, part, 2, task_size=1 << 20, **settings)
    penstok.finish(output)
    tokens, one = penstok.open(output), penstok.open(tmp_path / "one")
    records = [index for split in SPLITS for index in tokens.manifest.splits[split].indexes]
    assert any(index.continues and not index.documents for index in records)
    for split in SPLITS:
        found = [document.tolist() for document in tokens.documents(split)]
        assert found == [document.tolist() for document in one.documents(split)]
    assert penstok.verify(output, full=True).is_whole


def test_skipped_records_and_a_limit_leave_no_hole(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"record {idx} " * (idx % 30 + 1)}) for idx in range(900)]
    lines[3] = lines[500] = lines[899] = "{"
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    for eot in ("append", "prepend", "none"):
        output = tmp_path / eot
        penstok.tokenize(
            tmp_path / "in.jsonl",
            output,
            on_error="skip",
            limit=90_000,
            eot=eot,
            val_fraction=0,
            **SMALL,
        )
        documents = [
            reference().decode([each for each in document.tolist() if each != EOT])
            for document in penstok.open(output).train.iter_documents()
        ]
        kept = [json.loads(line)["text"] for line in lines if line != "{"]
        assert documents == kept[: len(documents)]
        assert len(documents) > 100
        assert penstok.verify(output, full=True).is_whole


@pytest.mark.parametrize("more", [{}, {"provenance": True}, {"keep": "url"}], ids=str)
def test_the_indexes_are_part_of_the_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    """Documents of two tokens: their indexes are larger than they are."""
    lines = [f'{{"text": "a", "url": "{"u" * 20}{idx:06}"}}' for idx in range(20_000)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    settings: dict[str, Any] = {"val_fraction": 0.0, "workers": 1, **more}
    # Spools and indexes, of 8 bytes per document, of 12 more, or of its row.
    entries = 8 + 12 * ("provenance" in more) + 34 * ("keep" in more)
    needed = 20_000 * (4 + 2 * entries)
    usage = shutil.disk_usage(tmp_path)
    asked = list[int]()

    def limit(_: Any) -> Any:
        return usage._replace(free=asked[-1])

    monkeypatch.setattr(shutil, "disk_usage", limit)
    asked.append(int(needed * 0.9))
    with pytest.raises(WriteError, match="too little disk"):
        penstok.tokenize(tmp_path / "a.jsonl", tmp_path / "out", **settings)
    asked.append(int(needed * 1.3))
    penstok.tokenize(tmp_path / "a.jsonl", tmp_path / "out", **settings)


def test_a_loss_mask_has_room_in_the_manifest(made: Path, copy: Any) -> None:
    """No version writes one yet; one that does is read by this one."""
    output = copy("whole")
    manifest = penstok.info(output)
    train = manifest.splits["train"]
    np.save(output / "train_mask.npy", np.ones(train.tokens, np.uint8))
    data = (output / "train_mask.npy").read_bytes()
    digest = xxhash.xxh3_128_hexdigest(data)
    mask = IndexRecord("mask", "train_mask.npy", len(data), digest, train.documents, False)
    changed = replace(train, indexes=[*train.indexes, mask])
    manifest = replace(manifest, splits={**manifest.splits, "train": changed})
    (output / "manifest.json").write_text(manifest.to_json())
    assert penstok.verify(output, full=True).is_whole
    assert len(penstok.open(output).train.documents) == train.documents
    flip(output / "train_mask.npy", 200)
    report = penstok.verify(output)
    assert [(each.kind, each.file) for each in report.findings] == [("index", "train_mask.npy")]
