"""Tar archives as inputs: the tokens are those of the extracted files, whatever the archive is."""

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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from compressed import compress
from support import few

from penstok.errors import InputError, NotTextError
from penstok.inputs.archives import is_tar, iter_members
from penstok.inputs.discovery import OutputRules
from penstok.inputs.members import _Cursor, close_archives
from penstok.inputs.probe import probe_content
from penstok.inputs.streams import ContentStream, read_head
from penstok.readers.probe import find_sources

if TYPE_CHECKING:
    from conftest import RunPenstok

NO_OUTPUTS = OutputRules(
    lambda path: False, lambda folder: False, frozenset(), lambda folder, marks: False
)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": partial(compress, kind="gzip"),
    # A zstd archive of small frames, in which members can be read at any offset.
    "frames": lambda data: b"".join(
        compress(data[at : at + 2048], "zstd") for at in range(0, len(data), 2048)
    ),
    "zstd": partial(compress, kind="zstd"),
    "xz": partial(compress, kind="xz"),
    "bzip2": partial(compress, kind="bzip2"),
    "lz4": partial(compress, kind="lz4"),
}
FILES = {
    "books/b.txt": b"the second letter\n" * 400,
    "books/a.txt": b"the first letter\n" * 300,
    "empty.txt": b"",
    "records.jsonl": b'{"text": "one record"}\n{"text": "another"}\n',
    "inner.txt.gz": gzip.compress(b"compressed twice\n" * 200),
    "table.csv": b"id,text\n1,a cell\n2,another cell\n",
    "more.csv": b"id,text\n3,a third cell\n",
}


def make_tar(files: dict[str, bytes], **options: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", **options) as tar:
        for name, data in files.items():
            add(tar, name, data)
    return buffer.getvalue()


def add(tar: tarfile.TarFile, name: str, data: bytes = b"", **fields: Any) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    tar.addfile(info, io.BytesIO(data))


def members(path: Path, data: bytes) -> dict[str, Any]:
    """List an archive: by name, the content of each member, or why it is not used."""
    path.write_bytes(data)
    found: dict[str, Any] = {}
    for name, result in iter_members(probe_content(str(path))[0]):
        if isinstance(result, InputError):
            found[name.removeprefix(f"{path}/")] = result
            continue
        content = bytearray(1 << 20)
        with ContentStream(result[0]) as stream:
            done = 0
            while count := stream.readinto(memoryview(content)[done:]):
                done += count
        found[name.removeprefix(f"{path}/")] = bytes(content[:done])
    return found


def tokens(folder: str) -> list[bytes]:
    return [Path(folder, f"{split}.bin").read_bytes() for split in ("train", "val")]


@pytest.fixture
def extracted(penstok: RunPenstok, tmp_path: Path) -> list[bytes]:
    """The tokens of the files in the order of the archives."""
    for name, data in FILES.items():
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_bytes(data)
    names = [f"files/{name}" for name in FILES]
    penstok("tokenize", *names, "-o", "reference", "--val-fraction", "0.4", "-q")
    return tokens("reference")


@pytest.mark.parametrize("compression", few(COMPRESS, 3))
def test_members_give_the_tokens_of_the_files(
    penstok: RunPenstok, extracted: list[bytes], compression: str
) -> None:
    # The name says nothing: content decides.
    Path("corpus").write_bytes(COMPRESS[compression](make_tar(FILES)))
    for workers in ("1", "2"):
        flags = ("-j", workers, "--val-fraction", "0.4", "--overwrite")
        penstok("tokenize", "corpus", *flags)
        assert tokens("tokens") == extracted
    penstok("verify", "tokens", "--full")
    inputs = json.loads(Path("tokens/manifest.json").read_text())["inputs"]
    assert [each["path"] for each in inputs] == [f"corpus/{name}" for name in FILES]
    assert {each["archive"] for each in inputs} == {"corpus"}
    assert "nothing to do" in penstok("tokenize", "corpus", "--val-fraction", "0.4").stderr


@pytest.mark.parametrize("compression", ["plain", "gzip"])
def test_outputs_of_members_are_repaired(
    penstok: RunPenstok, extracted: list[bytes], compression: str
) -> None:
    Path("corpus.tar").write_bytes(COMPRESS[compression](make_tar(FILES)))
    penstok("tokenize", "corpus.tar", "--val-fraction", "0.4")
    ledger = Path("tokens/segments.jsonl").read_bytes()
    for name in ("train.bin", "segments.jsonl", "manifest.json"):
        data = bytearray(Path("tokens", name).read_bytes())
        data[len(data) // 3] ^= 1
        Path("tokens", name).write_bytes(data)
        penstok("verify", "tokens", exit_code=6)
        penstok("verify", "tokens", "--repair")
        assert tokens("tokens") == extracted
        assert Path("tokens/segments.jsonl").read_bytes() == ledger


def test_parts_plan_limit_and_training_work_with_members(
    penstok: RunPenstok, extracted: list[bytes]
) -> None:
    Path("corpus.tgz").write_bytes(gzip.compress(make_tar(FILES)))
    for part in ("1/2", "2/2"):
        penstok(
            "tokenize", "corpus.tgz", "--part", part, "--val-fraction", "0.4", "--task-size", "8KiB"
        )
    penstok("finish", "tokens")
    files = json.loads(Path("tokens/manifest.json").read_text())["splits"]["train"]["files"]
    assert b"".join(Path("tokens", each["path"]).read_bytes() for each in files) == extracted[0]
    assert "corpus.tgz/books/b.txt" in penstok("plan", "corpus.tgz").stdout
    penstok("tokenize", "corpus.tgz", "--limit", "100", "-o", "limited")
    penstok("tokenize", "files/books/b.txt", "--limit", "100", "-o", "first")
    assert tokens("limited") == tokens("first")
    penstok("train-tokenizer", "corpus.tgz", "-o", "t.json", "--vocab-size", "260")


@pytest.mark.usefixtures("extracted")
def test_archives_can_be_added_and_must_not_change(penstok: RunPenstok) -> None:
    for name in ("a", "b"):
        Path(f"{name}.tar").write_bytes(make_tar(FILES))
    flags = ("--val-fraction", "0.4")
    penstok("tokenize", "a.tar", *flags)
    penstok("tokenize", "a.tar", "b.tar", *flags)
    grown = tokens("tokens")
    penstok("tokenize", "a.tar", "b.tar", *flags, "-o", "both")
    assert tokens("both") == grown
    penstok("verify", "tokens")
    Path("a.tar").write_bytes(make_tar({**FILES, "more.txt": b"more"}))
    said = penstok("tokenize", "a.tar", "b.tar", *flags, exit_code=5).stderr
    assert "a.tar/books/b.txt" in said
    penstok("verify", "tokens", "--source", exit_code=5)


@pytest.mark.parametrize("compression", ["plain", "gzip"])
def test_a_killed_job_continues_inside_an_archive(
    penstok: RunPenstok, tmp_path: Path, compression: str
) -> None:
    files = {f"{number}.txt": b"some words and more \n" * 9_000 for number in range(6)}
    Path("corpus.tar").write_bytes(COMPRESS[compression](make_tar(files)))
    command = ["tokenize", "corpus.tar", "--docs-by", "file", "-j", "1", "--engine", "kernel"]
    killed = subprocess.run(
        [sys.executable, "-m", "penstok", *command],
        env={**os.environ, "PENSTOK_FAULT": "journal on disk:2"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    # As if it had been killed earlier: units that finish together are recorded together.
    journal = tmp_path / "tokens/.penstok/tasks/00000.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    units = [idx for idx, line in enumerate(lines) if line.startswith(b'{"unit":')]
    journal.write_bytes(b"".join(lines[: units[3]]))
    said = penstok(*command).stderr
    assert "3 units" in said
    penstok(*command, "-o", "unbroken")
    assert tokens("tokens") == tokens("unbroken")


def test_every_kind_of_member_is_read_or_listed(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        add(tar, "./a.txt", b"first")
        add(tar, "a.txt", b"second")
        add(tar, "/etc/x.txt", b"absolute")
        add(tar, "../up.txt", b"up")
        add(tar, "long/" * 60 + "l.txt", b"long name")
        add(tar, "bad\udcff.txt", b"bytes")
        add(tar, "folder", type=tarfile.DIRTYPE)
        for hidden in (".hidden", "._a.txt", "d/.git/config", "PaxHeaders.7/a.txt"):
            add(tar, hidden, b"hidden")
        add(tar, "link", type=tarfile.SYMTYPE, linkname="a.txt")
        add(tar, "hard", type=tarfile.LNKTYPE, linkname="a.txt")
        add(tar, "pipe", type=tarfile.FIFOTYPE)
        add(tar, "device", type=tarfile.CHRTYPE)
        add(tar, "nested.tar.gz", gzip.compress(make_tar({"b": b"b"})))
    for name, pack in COMPRESS.items():
        found = members(tmp_path / name, pack(buffer.getvalue()))
        refused = {key for key, value in found.items() if isinstance(value, NotTextError)}
        assert refused == {"link", "hard", "pipe", "device", "nested.tar.gz"}
        assert {key: value for key, value in found.items() if key not in refused} == {
            "a.txt": b"first",
            "a.txt (2)": b"second",
            "/etc/x.txt": b"absolute",
            "../up.txt": b"up",
            "long/" * 60 + "l.txt": b"long name",
            "bad\udcff.txt": b"bytes",
        }


@pytest.mark.parametrize(
    "layout", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=str
)
def test_all_layouts_are_recognized_by_content(tmp_path: Path, layout: int) -> None:
    data = make_tar({"ü.txt": b"text"}, format=layout)
    assert is_tar(data)
    assert members(tmp_path / "a", data) == {"ü.txt": b"text"}


def test_an_archive_of_version_7_is_recognized(tmp_path: Path) -> None:
    data = bytearray(make_tar({"a.txt": b"text"}, format=tarfile.USTAR_FORMAT))
    data[257:512] = bytes(255)
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    assert members(tmp_path / "a", bytes(data)) == {"a.txt": b"text"}
    data[148] ^= 1
    assert not is_tar(bytes(data))
    assert not is_tar(b"ustar " * 200)
    assert not is_tar(bytes(1024))


@pytest.mark.parametrize("compression", ["plain", "gzip"])
def test_damage_is_never_taken_for_the_end(tmp_path: Path, compression: str) -> None:
    whole = make_tar({name: name.encode() * 500 for name in ("one", "two", "three")})
    path, pack = tmp_path / "a.tar", COMPRESS[compression]

    def last(data: bytes) -> str:
        found = members(path, pack(data))
        name, error = list(found.items())[-1]
        assert isinstance(error, InputError)
        assert not isinstance(error, NotTextError)
        assert name == str(path)
        assert found["one"] == b"one" * 500
        return error.what

    start = whole.index(b"three\0")
    header_of_two = whole.index(b"two\0")
    assert "no end marker" in last(whole[:start])
    assert "cut off" in last(whole[: start + 100])
    assert "cut off" in last(whole[: start + 600])
    assert "cut off" in last(whole[: start + 1800])
    damaged = bytearray(whole)
    damaged[header_of_two + 150] ^= 1
    assert "damaged" in last(bytes(damaged))
    assert "damaged" in last(whole + b"something else" * 100)
    # As `cat a.tar b.tar` makes it.
    other = make_tar({"four": b"4"})
    assert list(members(path, pack(whole + other))) == ["one", "two", "three", "four"]


def test_damaged_archives_stop_a_job_unless_they_may_be_skipped(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    whole = make_tar({"one.txt": b"one " * 500, "two.txt": b"two " * 500})
    (tmp_path / "a.tar").write_bytes(whole[:3000])
    assert "the archive is cut off" in penstok("tokenize", "a.tar", exit_code=4).stderr
    done = penstok("tokenize", "a.tar", "--on-error", "skip", "--json", exit_code=3)
    assert list(json.loads(done.stdout.splitlines()[-1])["skipped"]) == ["a.tar"]
    packed = gzip.compress(
        make_tar({"one.txt": os.urandom(200_000).hex().encode(), "two.txt": b"2"})
    )
    (tmp_path / "b.tgz").write_bytes(packed[:-2000])
    assert "gzip data is cut off" in penstok("tokenize", "b.tgz", exit_code=4).stderr
    penstok("tokenize", "b.tgz", "--on-error", "skip", "--overwrite", exit_code=3)


@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "a.tar.gz", "data.bin"])
def test_an_archive_with_a_damaged_start_is_no_binary_file(tmp_path: Path, name: str) -> None:
    whole = make_tar({"one.txt": b"one " * 500, "two.txt": b"two " * 500})
    pack = COMPRESS["gzip" if name.endswith("gz") else "plain"]
    flipped = bytearray(whole)
    flipped[20] ^= 1
    starts = {bytes(flipped): "bad checksum", b"\0" + whole[1:]: "bad checksum"}
    starts |= {whole[:300]: "cut off", whole[:511]: "cut off"}
    if name != "data.bin":
        starts |= {whole[:4]: "cut off", whole[:100]: "cut off"}
    (tmp_path / "text.txt").write_bytes(b"text")
    for data, what in starts.items():
        (tmp_path / name).write_bytes(pack(data))
        found = find_sources([str(tmp_path)], outputs=NO_OUTPUTS, on_error="skip")
        assert [source.path for source in found.sources] == [str(tmp_path / "text.txt")]
        assert not found.ignored
        assert f"{what} in its first header" in str(found.skipped)
    (tmp_path / name).write_bytes(pack(b"text named like an archive\n"))
    assert len(find_sources([str(tmp_path)], outputs=NO_OUTPUTS).sources) == 2


def test_an_archive_of_zeros_is_empty(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(bytes(10240))
    with pytest.raises(NotTextError, match="no files in the archive"):
        find_sources([str(tmp_path / "a.tar")], outputs=NO_OUTPUTS)


def test_the_zeros_behind_the_end_marker_may_be_cut(tmp_path: Path) -> None:
    whole = make_tar({"one": b"1"})
    for compression in ("plain", "gzip"):
        assert members(tmp_path / "a", COMPRESS[compression](whole[:-1])) == {"one": b"1"}


def test_a_sparse_member_at_the_end_is_named(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 20)
    (tmp_path / "one").write_bytes(b"1")
    command = ["tar", "-cSf", str(tmp_path / "b.tar"), "-C", str(tmp_path), "one", "sparse"]
    subprocess.run(command, check=True)
    found = members(tmp_path / "a.tar", (tmp_path / "b.tar").read_bytes())
    assert found["one"] == b"1"
    assert "sparse members" in found["sparse"].what


@pytest.mark.parametrize("compression", ["gzip", "frames"])
def test_an_archive_is_opened_once_for_all_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    (tmp_path / "a").write_bytes(
        COMPRESS[compression](make_tar({f"{idx}.csv": b"%d" % idx * 9000 for idx in range(50)}))
    )
    sources = [
        result[0]
        for _, result in iter_members(probe_content(str(tmp_path / "a"))[0])
        if not isinstance(result, InputError)
    ]
    opened = []
    init = _Cursor.__init__

    def count(cursor: _Cursor, *arguments: Any) -> None:
        opened.append(cursor)
        init(cursor, *arguments)

    monkeypatch.setattr(_Cursor, "__init__", count)
    close_archives()
    for idx, source in enumerate(sources):
        # The header of a table is read twice before the table is.
        for num_bytes in (100, 4000, 1 << 20):
            assert read_head(source, num_bytes) == (b"%d" % idx * 9000)[:num_bytes]
    assert len(opened) == 1
    # Going back starts again, and nothing else does.
    assert read_head(sources[7], 5) == b"77777"
    assert read_head(sources[9], 5) == b"99999"
    assert len(opened) == 2
    close_archives()


def test_a_member_whose_start_was_not_kept_is_read_again_from_its_start(tmp_path: Path) -> None:
    """The archive that was left open behind it cannot go back."""
    content = b"0123456789" * 9000
    (tmp_path / "a").write_bytes(COMPRESS["gzip"](make_tar({"a.txt": content})))
    (source, _), *_ = (
        result
        for _, result in iter_members(probe_content(str(tmp_path / "a"))[0])
        if not isinstance(result, InputError)
    )
    close_archives()
    for num_bytes in (100, len(content)):
        buffer = memoryview(bytearray(num_bytes))
        with ContentStream(source, max_window_bytes=1 << 20, is_last=True) as stream:
            done = 0
            while done < num_bytes:
                done += stream.readinto(buffer[done:])
        assert buffer == content[:num_bytes]
    close_archives()


def test_hostile_headers_are_errors(tmp_path: Path) -> None:
    def longname(size: int) -> bytes:
        info = tarfile.TarInfo("x")
        info.type, info.size = tarfile.GNUTYPE_LONGNAME, size
        return info.tobuf(tarfile.GNU_FORMAT)

    negative = tarfile.TarInfo("a")
    data = negative.tobuf(tarfile.GNU_FORMAT)
    data = data[:124] + b"\xff" * 12 + data[136:148] + b" " * 8 + data[156:]
    data = data[:148] + b"%06o\0 " % sum(data) + data[156:]
    good = make_tar({"a": b"a"})[:1024]
    for hostile in (longname(1 << 40), longname(512) * 3000, data + bytes(1024)):
        found = members(tmp_path / "a.tar", good + hostile + bytes(4096))
        assert isinstance(found[str(tmp_path / "a.tar")], InputError)


def test_archives_in_folders_and_what_cannot_be_read_in_them(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    picture = b"\x89PNG\r\n\x1a\n"
    (folder / "a.tar").write_bytes(make_tar({"p.png": picture, "a.txt": b"text"}))
    (folder / "b.tar").write_bytes(make_tar({"q.png": picture}))
    done = penstok("tokenize", "corpus", "--json", "--val-fraction", "0")
    skipped = json.loads(done.stdout.splitlines()[-1])["skipped"]
    assert skipped.keys() == {"corpus/a.tar/p.png", "corpus/b.tar/q.png"}
    said = penstok("tokenize", "corpus/b.tar", exit_code=4).stderr
    assert "no text in `corpus/b.tar`: `corpus/b.tar/q.png`: this is" in said
    (tmp_path / "rows.tar").write_bytes(make_tar({"x.parquet": b"PAR1" + bytes(20) + b"PAR1"}))
    assert "tar -xf rows.tar" in penstok("tokenize", "rows.tar", exit_code=4).stderr
    with (tmp_path / "rows.tar").open("rb") as file:
        piped = subprocess.run(
            [sys.executable, "-m", "penstok", "tokenize", "-"],
            stdin=file,
            capture_output=True,
            text=True,
            check=False,
        )
    assert piped.returncode == 4
    assert "tar -xOf" in piped.stderr
