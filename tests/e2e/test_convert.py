"""Formats beside the tokens and in other folders: what is refused, replaced, kept and continued."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from processes import run, start, wait_for

import penstok
from penstok.cli.app import app
from penstok.errors import PenstokError, UsageError, WriteError

ALL = "megatron,llmc,torchtitan,olmo,datatrove,litdata,mds,parquet"
FLAGS = ("--val-fraction", "0.1", "--doc-separator", "<|endoftext|>")
# Small enough for several rows.
ROWS: dict[str, Any] = {"sequence_length": 64}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOK_ENGINE", "tiktoken")
    # For runs that are killed: several units.
    monkeypatch.setenv("TEST_UNIT_BYTES", "4000")
    for seed, name in enumerate("ab"):
        write_text(Path(f"{name}.txt"), seed)
    yield
    # Nothing is left behind; `to` may be a job that is not finished.
    assert list(tmp_path.glob("[!t]*/.penstok")) == []


def write_text(path: Path, seed: int, num_documents: int = 120) -> None:
    chance = random.Random(seed)
    words = ("foo", "bar", "zebra", "12", "the")
    documents = (" ".join(chance.choices(words, k=chance.randint(1, 60))) for _ in range(999))
    path.write_text("<|endoftext|>".join(next(documents) for _ in range(num_documents)))


def invoke(*arguments: str, exit_code: int = 0, **environment: str) -> Result:
    environment |= {"COLUMNS": "200"}
    done = CliRunner().invoke(app, arguments, env=environment, prog_name="penstok")
    assert done.exit_code == exit_code, done.output
    assert "Traceback" not in done.output
    return done


def tokenize(output: str, *inputs: str, **settings: Any) -> penstok.Manifest:
    given = {"val_fraction": 0.1, "doc_separator": "<|endoftext|>", "workers": 1, **settings}
    return penstok.tokenize(list(inputs or ["a.txt"]), output, **given)


def tree(folder: str | Path) -> dict[str, bytes]:
    """Return the bytes of all files but the records, whose times differ."""
    found = {}
    for path in sorted(Path(folder).rglob("[!.]*")):
        if ".penstok" in path.parts:
            continue
        name = str(path.relative_to(folder))
        if path.is_file() and name not in ("manifest.json", "segments.jsonl"):
            found[name] = path.read_bytes()
        assert path.is_file() or any(path.iterdir()), f"{path} is empty"
    return found


def verify(folder: str | Path) -> None:
    assert not penstok.verify(folder, full=True).findings


@pytest.fixture
def raw() -> str:
    tokenize("raw")
    return "raw"


def test_tokenize_with_formats_and_convert_write_the_same_bytes(raw: str) -> None:
    tokenize("out", format=ALL, **ROWS)
    assert len(tree("out")) > 30
    penstok.convert(raw, format=ALL, **ROWS)
    assert tree(raw) == tree("out")
    verify(raw)
    verify("out")
    before = Path("raw/llmc/tokens_train_000000.bin").stat().st_ino
    assert (
        "has these formats already"
        in invoke("convert", raw, "--format", ALL, "--sequence-length", "64").output
    )
    assert Path("raw/llmc/tokens_train_000000.bin").stat().st_ino == before
    assert Path("raw/olmo/train.npy").stat().st_ino == Path("raw/train.bin").stat().st_ino


@pytest.mark.parametrize(
    "settings",
    [
        {"shard_tokens": 700},
        {"val_fraction": 0},
        {"eot": "prepend"},
        {"dtype": "uint32"},
        {"dtype": "uint32", "shard_tokens": 700},
        {"eot": "none", "format": "megatron,torchtitan,datatrove,litdata,mds,parquet"},
    ],
    ids=",".join,
)
def test_any_output_is_converted_whole(settings: dict[str, Any]) -> None:
    settings = dict(settings)
    formats = settings.pop("format", ALL)
    tokenize("raw", **settings)
    penstok.convert("raw", format=formats, **ROWS)
    verify("raw")
    tokenize("out", format=formats, **settings, **ROWS)
    assert tree("raw") == tree("out")
    penstok.convert("raw", format="raw", output="copy")
    verify("copy")


def test_parts_and_finish_write_formats() -> None:
    settings = ("--task-size", "4KiB", "--format", ALL, *FLAGS)
    for part in ("1/2", "2/2"):
        invoke("tokenize", "a.txt", "b.txt", "-o", "out", "--part", part, *settings)
    assert not Path("out/llmc").exists()
    invoke("finish", "out")
    verify("out")
    invoke("tokenize", "a.txt", "b.txt", "-o", "raw", "--part", "1/1", *settings[:2], *FLAGS)
    invoke("finish", "raw")
    penstok.convert("raw", format=ALL)
    assert tree("raw") == tree("out")


def test_overwriting_leaves_no_file_of_an_older_format() -> None:
    tokenize("raw", seed=3)
    tokenize("out", format=ALL)
    tokenize("out", seed=3, overwrite=True)
    assert tree("out") == tree("raw")
    tokenize("out", format="llmc", overwrite=True)
    tokenize("fresh", format="llmc")
    assert tree("out") == tree("fresh")


def test_a_format_that_is_written_again_leaves_no_older_file(raw: str) -> None:
    penstok.convert(raw, format="llmc", shard_tokens=100)
    assert len(list(Path("raw/llmc").iterdir())) > 10
    penstok.convert(raw, format="llmc")
    assert len(list(Path("raw/llmc").iterdir())) == 2
    verify(raw)


def test_formats_are_made_again_when_inputs_are_added(raw: str) -> None:
    penstok.convert(raw, format="llmc,mds", shard_tokens=100, **ROWS)
    penstok.convert(raw, format="olmo,datatrove", output="linked")
    penstok.convert(raw, format="raw", output="copy")
    linked, copied = tree("linked"), tree("copy")
    assert Path("linked/olmo/train.npy").stat().st_nlink == 4
    tokenize(raw, "a.txt", "b.txt")
    tokenize("fresh", "a.txt", "b.txt")
    penstok.convert("fresh", format="llmc,mds", shard_tokens=100, **ROWS)
    assert tree(raw) == tree("fresh")
    assert tree("linked") == linked
    assert tree("copy") == copied
    for folder in (raw, "linked", "copy"):
        verify(folder)


def test_an_input_that_fails_costs_no_format() -> None:
    Path("z.jsonl").write_text('{"text": "one"}\n' * 50 + "{not json\n")
    tokenize("out", format=ALL)
    before = tree("out")
    with pytest.raises(PenstokError):
        tokenize("out", "a.txt", "z.jsonl", format=ALL)
    assert tree("out") == before
    verify("out")


@pytest.mark.parametrize("taken", ["llmc/notes.txt", "llmc", "llmc/deep/er/x"])
@pytest.mark.parametrize("flags", [(), ("--overwrite",), ("--part", "1/2")])
def test_files_of_somebody_else_are_refused_before_the_work(
    taken: str, flags: tuple[str, ...]
) -> None:
    mine = Path("out", taken)
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    said = invoke("tokenize", "a.txt", "-o", "out", "--format", "llmc", *flags, exit_code=5).output
    assert f"`{taken}` is not from penstok" in said
    assert "mv out/llmc out/llmc.old" in said
    assert tree("out") == {taken: b"mine"}


@pytest.mark.parametrize("taken", ["llmc/tokens_train_000000.bin", "train.idx"])
def test_convert_overwrites_no_file_of_somebody_else(raw: str, taken: str) -> None:
    """It is refused before anything is written."""
    mine = Path(raw, taken)
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    before = tree(raw)
    said = invoke("convert", raw, "--format", "megatron,llmc", exit_code=5).output
    assert f"`{taken}` is not from penstok" in said
    assert tree(raw) == before
    assert not Path(raw, ".penstok").exists()


def test_notes_in_the_folder_of_a_format_stay() -> None:
    tokenize("out", format="llmc")
    Path("out/llmc/notes.txt").write_text("mine")
    tokenize("out", "a.txt", "b.txt", format="llmc")
    tokenize("out", overwrite=True)
    assert [path.name for path in Path("out/llmc").iterdir()] == ["notes.txt"]


def test_nothing_is_deleted_or_written_through_a_link() -> None:
    tokenize("out", format="llmc")
    Path("out/llmc").rename("moved")
    Path("out/llmc").symlink_to(Path("moved").absolute())
    before = tree("moved")
    for flags in (("b.txt",), ("--overwrite",)):
        command = ("tokenize", "a.txt", *flags, "-o", "out", *FLAGS, "--format", "llmc")
        assert "`llmc` is not from penstok" in invoke(*command, exit_code=5).output
    tokenize("out", overwrite=True)
    assert tree("moved") == before


def write_file(name: str, text: str) -> None:
    Path(name).parent.mkdir()
    Path(name).write_text(text)


def make_unfinished() -> None:
    assert run("tokenize", "a.txt", "-o", "to", fault="journal on disk:2")[0] == -signal.SIGKILL


PLACES: dict[str, tuple[str, Any, int, str]] = {
    "itself": ("raw", lambda: None, 5, "the output itself"),
    "inside": ("raw/to", lambda: None, 5, "inside the output"),
    "not empty": ("to", lambda: write_file("to/x", ""), 5, "not empty: `x`"),
    "a file": ("to", lambda: Path("to").touch(), 5, "not a folder"),
    "unfinished": ("to", make_unfinished, 5, "another job is unfinished here"),
    "another output": ("to", lambda: tokenize("to", seed=1), 5, "another output"),
    "another conversion": (
        "to",
        lambda: penstok.convert("raw", format="mds", output="to", **ROWS),
        5,
        "another conversion (mds)",
    ),
    "other options": (
        "to",
        lambda: penstok.convert("raw", format="llmc", output="to", shard_tokens=99),
        5,
        "another conversion (llmc)",
    ),
    "a foreign manifest": (
        "to",
        lambda: write_file("to/manifest.json", "{}"),
        5,
        "something else",
    ),
    "the same": (
        "to",
        lambda: penstok.convert("./raw/", format="llmc", output="to"),
        0,
        "has these formats already",
    ),
    "an object store": ("s3://bucket/to", lambda: None, 2, "only be written to a folder"),
    "below a file": ("a.txt/to", lambda: None, 8, "a.txt"),
}


@pytest.mark.parametrize("place", PLACES)
def test_where_a_conversion_can_be_written(raw: str, place: str) -> None:
    output, prepare, exit_code, words = PLACES[place]
    prepare()
    before = tree(raw), tree("to") if Path("to").is_dir() else None
    said = invoke("convert", raw, "--format", "llmc", "-o", output, exit_code=exit_code).output
    assert words in said
    assert before == (tree(raw), tree("to") if Path("to").is_dir() else None)
    if place == "unfinished":
        assert run("tokenize", "a.txt", "-o", "to")[0] == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_is_read_only_is_said(raw: str) -> None:
    Path("to").mkdir(mode=0o555)
    invoke("convert", raw, "--format", "llmc", "-o", "to/x", exit_code=8)


def test_what_cannot_be_converted_is_said(raw: str) -> None:
    assert "no finished job" in invoke("convert", "none", "--format", "llmc", exit_code=6).output
    assert "not a folder" in invoke("convert", "a.txt", "--format", "llmc", exit_code=6).output
    assert "object store" in invoke("convert", "s3://b/x", "--format", "mds", exit_code=2).output
    make_unfinished()
    assert "not finished" in invoke("convert", "to", "--format", "llmc", exit_code=6).output
    tokenize("bare", document_index="none")
    said = invoke("convert", "bare", "--format", "llmc", exit_code=2).output
    assert "--document-index none" in said
    penstok.convert(raw, format="llmc", output="llmc")
    assert "no raw tokens" in invoke("convert", "llmc", "--format", "mds", exit_code=6).output
    Path("raw/train.bin").write_bytes(b"short")
    said = invoke("convert", raw, "--format", "mds", exit_code=6).output
    assert "penstok verify raw --repair" in said
    tokenize("none", eot="none")
    said = invoke("convert", "none", "--format", "parquet,llmc", exit_code=2).output
    # Refused before the first format is written.
    assert not Path("none/.penstok").exists()


def test_object_stores_are_refused_early() -> None:
    flags = ("-o", "s3://bucket/out", "--format", "llmc")
    assert "only the format `raw`" in invoke("tokenize", "a.txt", *flags, exit_code=2).output


@pytest.mark.parametrize(
    ("given", "names"),
    [("llmc,llmc", ["llmc"]), (" llmc , raw ", ["llmc"]), ("raw", []), ("olmo,llmc", None)],
)
def test_names_of_formats(given: str, names: list[str] | None) -> None:
    done = invoke("tokenize", "a.txt", "-o", "out", "--format", given, "--json")
    found = [each["name"] for each in json.loads(done.stdout.splitlines()[-1]).get("formats", [])]
    assert names is None or found == names


@pytest.mark.parametrize("given", ["", ",", "megaton", "llmc,,mds", "LLMC"])
def test_unknown_names_of_formats_are_refused(raw: str, given: str) -> None:
    for command in (("tokenize", "a.txt", "-o", "new"), ("convert", raw)):
        invoke(*command, "--format", given, exit_code=2)
    assert not Path("new").exists()


def test_variables_and_json(raw: str) -> None:
    done = invoke("convert", raw, "--json", PENSTOK_FORMAT="llmc")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["type"] == "summary"
    assert [each["name"] for each in summary["formats"]] == ["llmc"]
    assert summary["is_new"]
    flags = ("raw/llmc", "-t", "gpt2", "-o", "back", "--json", "--quiet")
    done = invoke("convert", *flags, PENSTOK_FROM="llmc")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["tokens"] == penstok.open(raw).manifest.counts["tokens"]
    error = json.loads(invoke("convert", raw, "--json", exit_code=2).stdout.splitlines()[-1])
    assert error["type"] == "error"


def test_another_format_of_a_finished_job_is_a_conversion(raw: str) -> None:
    flags = (*FLAGS, "--format", "mds,llmc", "--sequence-length", "64")
    said = invoke("tokenize", "a.txt", "-o", raw, *flags, exit_code=5).output
    command = "penstok convert raw --format mds,llmc --sequence-length 64"
    assert f"run `{command}`, which keeps the tokens" in said
    invoke(*command.split()[1:])
    # Something else differs, too.
    said = invoke("tokenize", "a.txt", "-o", raw, *flags, "--seed", "4", exit_code=5).output
    assert "convert" not in said


def test_a_file_of_a_format_that_was_deleted_is_written_again(raw: str) -> None:
    penstok.convert(raw, format="llmc,olmo")
    before = tree(raw)
    shutil.rmtree("raw/llmc")
    assert penstok.verify(raw).findings
    penstok.convert(raw, format="llmc,olmo")
    assert tree(raw) == before


def test_verify_finds_and_repairs_damage_of_every_file() -> None:
    tokenize("out", format=ALL)
    before = tree("out")
    for name in before:
        path = Path("out", name)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.unlink()
        path.write_bytes(data)
        assert penstok.verify("out", full=True).findings, name
    invoke("verify", "out", "--repair")
    assert tree("out") == before


def test_a_lost_manifest_is_repaired_with_its_formats() -> None:
    tokenize("out", format="llmc,megatron")
    before = tree("out")
    Path("out/manifest.json").unlink()
    invoke("verify", "out", "--repair")
    assert tree("out") == before
    assert [each.name for each in penstok.open("out").manifest.formats] == ["llmc", "megatron"]


def test_a_copy_without_links_is_whole() -> None:
    tokenize("out", format="olmo,datatrove")
    shutil.copytree("out", "copy")
    verify("copy")
    with Path("copy/olmo/train.npy").open("r+b") as file:
        file.write(b"\1\1")
    (finding,) = penstok.verify("copy").findings
    assert "the same tokens as `train.bin`" in finding.what


def test_damage_of_a_converted_folder_is_found(raw: str) -> None:
    penstok.convert(raw, format="olmo", output="to")
    verify("to")
    path = Path("to/train.npy")
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.unlink()
    path.write_bytes(data)
    said = invoke("verify", "to", exit_code=6).output
    assert "train.npy: checksum mismatch" in said


@pytest.mark.parametrize("name", ["raw", "megatron", "llmc", "olmo", "datatrove"])
def test_taking_over_is_repeated_only_with_the_same_settings(raw: str, name: str) -> None:
    if name != "raw":
        penstok.convert(raw, format=name)
    paths = {"raw": "raw/train.bin", "megatron": "raw/train.idx"}
    source = paths.get(name) or str(next(Path(raw, name).glob("*train*")))
    flags = ["--from", name, source, "-t", "gpt2", "--dtype", "uint16", "--eot", "append"]
    if name == "llmc":
        flags[-1] = "prepend"
    assert "wrote" in invoke("convert", *flags, "-o", "to").output
    verify("to")
    assert "already" in invoke("convert", *flags, "-o", "to").output
    flags[4:] = [own_tokenizer(), "--dtype", "uint16", "--eot", "none"]
    assert "another output" in invoke("convert", *flags, "-o", "to", exit_code=5).output


def own_tokenizer() -> str:
    """Train a tokenizer with fewer ids."""
    penstok.train_tokenizer("a.txt", "own.json", vocab_size=300)
    return "own.json"


def test_staged_tokens_are_checked_again_for_another_tokenizer() -> None:
    np.array([1, 2, 40_000, 50256], np.uint16).tofile("x.bin")
    told = ("--dtype", "uint16", "--eot", "none", "-o", "to")
    flags = ("convert", "--from", "raw", "x.bin", *told)
    assert run(*flags, "-t", "gpt2", fault="one format file written:2")[0] == -signal.SIGKILL
    assert "only ids below" in invoke(*flags, "-t", own_tokenizer(), exit_code=4).output
    invoke(*flags, "-t", "gpt2")
    verify("to")


def test_interrupted_it_continues_with_what_is_staged(raw: str) -> None:
    write_text(Path("large.txt"), 5, 999)
    tokenize("big", "large.txt")
    fresh = tree("big")
    flags = ("convert", "big", "--format", "llmc", "--shard-tokens", "40")
    process = start(*flags)
    wait_for(lambda: len(list(Path("big").glob(".penstok/formats/llmc/*.done"))) > 20)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "run the same command again: it continues" in said
    assert tree("big").keys() >= fresh.keys()
    assert penstok.verify("big", full=True).is_whole
    done = Path("big/.penstok/formats/llmc/tokens_train_000000.bin.partial")
    inode = done.stat().st_ino
    invoke(*flags[:1], *flags[1:])
    assert Path("big/llmc/tokens_train_000000.bin").stat().st_ino == inode
    assert not Path("big/.penstok").exists()
    verify("big")


def test_what_an_interrupted_conversion_left_is_deleted_by_the_next_job(raw: str) -> None:
    flags = ("convert", raw, "--format", "llmc,mds")
    assert run(*flags, fault="one format file written:2")[0] == -signal.SIGKILL
    invoke("tokenize", "a.txt", "-o", raw, *FLAGS)
    assert not Path("raw/.penstok").exists()


def test_staged_files_that_are_lost_are_written_again(raw: str) -> None:
    flags = ("convert", raw, "--format", "llmc,mds", "--sequence-length", "64")
    for fault in ("intent of formats written", "one file published"):
        assert run(*flags, fault=fault)[0] == -signal.SIGKILL
        shutil.rmtree("raw/.penstok/formats")
        invoke(*flags)
        verify(raw)
        shutil.rmtree("raw/llmc")
        shutil.rmtree("raw/mds")
        penstok.tokenize(
            "a.txt", raw, val_fraction=0.1, doc_separator="<|endoftext|>", overwrite=True
        )


def test_too_small_a_disk_is_refused_before_the_start(
    raw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    before = tree(raw)
    for flags in ((), ("-o", "to")):
        said = invoke("convert", raw, "--format", "llmc", *flags, exit_code=8).output
        assert "too little disk space" in said
    # Links need none.
    penstok.convert(raw, format="olmo,megatron")
    assert tree(raw).items() >= before.items()
    num_bytes = sum(map(len, before.values()))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=num_bytes * 2))
    with pytest.raises(WriteError, match="too little disk space"):
        tokenize("more", format="torchtitan,llmc")
    tokenize("more", format="olmo")


def test_progress_is_shown_as_json(raw: str) -> None:
    lines = invoke("convert", raw, "--format", "llmc", "--json").stdout.splitlines()
    status = json.loads(lines[0])
    assert status["type"] == "status"
    assert status["num_units"] == 0
    lines = invoke("tokenize", "b.txt", "-o", "b", "--format", "llmc", "--json").stdout.splitlines()
    assert {json.loads(line)["type"] for line in lines} == {"status", "summary"}


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else items:
        yield (*place, key)
        yield from _places(each, (*place, key))


HOSTILE: list[Any] = [
    "delete",
    None,
    "",
    -1,
    2**70,
    "../../a.txt",
    ".penstok/x",
    "a\0b",
    [],
    {},
    "manifest.json",
]


def is_valid(place: list[Any], value: Any) -> bool:
    """Tell whether a manifest with this value at this place could have been written."""
    is_gone, is_item = bool(value == "delete"), isinstance(place[-1], int)
    match [each for each in place if not isinstance(each, int)]:
        case ["formats", "files", "digest"] | ["lineage", "digest"]:
            return isinstance(value, str) and not is_gone
        case ["lineage", "sources"]:
            return isinstance(value, str) and not is_gone and is_item
        case ["formats", "options", "columns"]:
            # Of the only column, nothing would be left.
            return is_gone and not is_item
        case ["formats", "files", "same_as"] | ["formats", "options", _] | ["lineage"]:
            return is_gone or value is None
        case ["formats", "dropped_tokens" | "split_documents"]:
            return is_gone
        case ["formats", "options"]:
            return bool(value == {})
        case ["formats"] | ["formats", "files"]:
            is_empty = bool(value == [])
            return is_gone if is_item or (place == ["formats"] and not is_empty) else is_empty
        case _:
            return False


def expected_code(command: str, folder: str, place: list[Any], value: Any) -> int:
    """Say how a command ends on an output whose manifest was changed."""
    names = [each for each in place if not isinstance(each, int)]
    has_formats = not (names == ["formats"] and value in ("delete", []))
    if not is_valid(place, value):
        return 6
    if command == "info":
        return 0
    if command == "verify":
        # The ledger says what a manifest was; a conversion has none.
        is_found = folder != "to" or names == ["lineage"] or names == ["formats", "files", "digest"]
        return 6 if is_found else 0
    if has_formats:
        return 0
    # Files that nobody lists are somebody else's; without tokens, nothing is left to convert.
    return 6 if folder == "to" else 5


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_a_manifest_with_hostile_formats_is_used_or_is_damage(raw: str, value: Any) -> None:
    penstok.convert(raw, format="olmo", output="to")
    penstok.convert(raw, format="olmo")
    for folder in (raw, "to"):
        path = Path(folder, "manifest.json")
        whole = path.read_text()
        content = json.loads(whole)
        for *place, last in _places(
            {key: content[key] for key in ("formats", "lineage") if key in content}
        ):
            inner = changed = json.loads(whole)
            for key in place:
                inner = inner[key]
            inner[last] = value
            if value == "delete":
                del inner[last]
            text = json.dumps(changed)
            for command in (
                ("verify", folder),
                ("info", folder),
                ("convert", folder, "--format", "olmo"),
            ):
                path.write_text(text)
                done = CliRunner().invoke(app, command, prog_name="penstok")
                expected = expected_code(command[0], folder, [*place, last], value)
                assert done.exit_code == expected, (command[0], place, last, done.output)
            path.write_text(text)
            done = CliRunner().invoke(app, ("convert", raw, "--format", "olmo", "-o", "to"))
            expected = 0 if is_valid([*place, last], value) else 6
            if folder == "to":
                # What is there is not the conversion that is asked for.
                names = [each for each in (*place, last) if not isinstance(each, int)]
                is_other = names in (["formats"], ["lineage"], ["lineage", "digest"])
                expected = 5 if expected or is_other else 0
            assert done.exit_code == expected, (place, last, done.output)
            path.write_text(whole)
            assert Path("a.txt").exists()
            assert Path(folder, "manifest.json").exists()
        verify(folder)


@pytest.mark.parametrize("settings", [{}, {"inputs": ("a", "b")}, {"inputs": ("a",), "val": "x"}])
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        penstok.convert(**{"inputs": (), "format": "llmc", **settings})


@pytest.mark.crash
@pytest.mark.parametrize("fault", ["intent of formats written", "one file published"])
def test_a_rerun_of_the_job_completes_a_conversion_that_was_killed(raw: str, fault: str) -> None:
    penstok.convert(raw, format="llmc,megatron", output="expected")
    killed = run("convert", raw, "--format", "llmc,megatron", fault=fault)
    assert killed[0] == -signal.SIGKILL
    manifest = tokenize(raw)
    assert [record.name for record in manifest.formats] == ["llmc", "megatron"]
    assert tree(raw) == tree("expected")
    verify(raw)


@pytest.mark.crash
def test_a_dropped_job_leaves_no_formats_to_the_next() -> None:
    tokenize("out", format="llmc")
    fault = "tokens on disk"
    killed = run("tokenize", "a.txt", "b.txt", "-o", "out", *FLAGS, "--format", "llmc", fault=fault)
    assert killed[0] == -signal.SIGKILL
    assert Path("out/.penstok/finished").exists()
    manifest = tokenize("out", "b.txt", eot="none", overwrite=True)
    assert manifest.formats == []
    tokenize("expected", "b.txt", eot="none")
    assert tree("out") == tree("expected")


def test_an_import_is_repeated_if_its_index_or_its_format_is_another(raw: str) -> None:
    penstok.convert(raw, format="megatron", output="other")
    given: dict[str, Any] = {"tokenizer": "gpt2", "eot": "append"}
    first = penstok.convert("other/train.bin", from_="raw", dtype="uint16", output="one", **given)
    with pytest.raises(penstok.ConflictError, match="another output"):
        penstok.convert("other/train.idx", from_="megatron", output="one", **given)
    second = penstok.convert("other/train.idx", from_="megatron", output="two", **given)
    assert first.splits["train"].documents == second.splits["train"].documents
    index = Path("other/train.idx")
    os.utime(index, ns=(1, 1))
    with pytest.raises(penstok.ConflictError, match="another output"):
        penstok.convert(index, from_="megatron", output="two", **given)


def test_an_import_without_val_has_an_empty_one(raw: str) -> None:
    given: dict[str, Any] = {"tokenizer": "gpt2", "eot": "append", "dtype": "uint16"}
    penstok.convert("raw/train.bin", from_="raw", output="one", **given)
    assert len(penstok.open("one").val) == 0
    assert list(penstok.open("one").documents("val")) == []
    verify("one")


def test_files_that_begin_inside_a_document_are_imported_whole(raw: str) -> None:
    penstok.convert(raw, format="llmc", shard_tokens=700, output="llmc")
    shards = sorted(Path("llmc").glob("tokens_train_*.bin"))
    penstok.convert([shards[1]], from_="llmc", tokenizer="gpt2", output="second")
    verify("second")
    penstok.convert(shards[1:], from_="llmc", tokenizer="gpt2", output="rest")
    verify("rest")


@pytest.mark.parametrize("name", ["val_documents.npy", "train_origins.npy", "segments.jsonl"])
def test_an_output_with_a_missing_file_is_not_copied(name: str) -> None:
    tokenize("out", provenance=True)
    Path("out", name).unlink()
    with pytest.raises(penstok.DamageError, match="missing"):
        penstok.convert("out", output="copy")
    assert not Path("copy").exists()


def test_large_formats_are_read_only_by_a_full_check(
    raw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstok.convert(raw, format="llmc")
    path = Path("raw/llmc/tokens_train_000000.bin")
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    monkeypatch.setattr("penstok.verification.formats._SAMPLE_BYTES", 1)
    assert penstok.verify(raw).is_whole
    assert not penstok.verify(raw, full=True).is_whole
    assert penstok.verify(raw, repair=True).is_whole
