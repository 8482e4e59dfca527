from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from penstok.errors import InputError, NotTextError, UsageError
from penstok.inputs.changes import find_changed
from penstok.inputs.discovery import natural_key, read_list
from penstok.inputs.files import SourceFile
from penstok.jobs.plan import output_rules
from penstok.readers.probe import find_sources
from penstok.types import Source


def find(folder: Path, *inputs: str) -> tuple[list[str], dict[str, str]]:
    """Return the names of the inputs, and what was ignored, for a job that writes to `out`."""
    found = find_sources(inputs or (str(folder),), outputs=output_rules(folder / "out"))
    return (
        [str(Path(source.path).relative_to(folder)) for source in found.sources],
        {str(Path(path).relative_to(folder)): why for path, why in found.ignored.items()},
    )


def names(folder: Path, *inputs: str) -> list[str]:
    return find(folder, *inputs)[0]


def test_numbers_in_names_sort_as_numbers() -> None:
    unsorted = ["b", "a10", "a2", "a02", "a", "a1b3", "a1b20", "10", "9"]
    assert sorted(unsorted, key=natural_key) == [
        *("9", "10", "a", "a1b3", "a1b20", "a02", "a2", "a10", "b")
    ]


def test_the_output_folder_is_no_input(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train.bin").write_bytes(b"tokens")
    (tmp_path / "text.txt").write_text("text")
    assert names(tmp_path) == ["text.txt"]
    assert names(tmp_path, f"{tmp_path}/**/*") == ["text.txt"]


def test_a_name_with_glob_characters_is_a_name_first(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("text")
    assert names(tmp_path, f"{tmp_path}/a[1].txt") == ["a[1].txt"]


def test_a_glob_reads_the_folders_that_it_matches_as_the_shell_would(tmp_path: Path) -> None:
    for name in ("g/a.txt", "g/s/b.txt", "g/s/deep/c.txt", "g/s/.hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "g/s/p.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "g/empty").mkdir()
    below = ["g/s/b.txt", "g/s/deep/c.txt"]
    ignored = {"g/s/p.png": "this is a PNG picture, not text"}
    assert find(tmp_path, f"{tmp_path}/g/*") == (["g/a.txt", *below], ignored)
    assert find(tmp_path, f"{tmp_path}/g/s*") == (below, ignored)
    assert names(tmp_path, f"{tmp_path}/g/*/") == below
    assert names(tmp_path, f"{tmp_path}/**/*.txt") == ["g/a.txt", *below]
    with pytest.raises(InputError, match="no file matches"):
        names(tmp_path, f"{tmp_path}/g/e*")


def test_names_that_are_no_utf8_are_kept(tmp_path: Path) -> None:
    raw = bytes(tmp_path) + b"/bad\xff.txt"
    with open(raw, "wb") as file:  # noqa: PTH123 a Path cannot hold this name as bytes
        file.write(b"text")
    (source,) = find_sources([str(tmp_path)], outputs=output_rules(tmp_path / "out")).sources
    with SourceFile(source) as opened:
        assert opened.read_at(0, 10) == b"text"


def test_a_file_that_changes_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("text")
    source = Source(str(path), 4, path.stat().st_mtime_ns, "")
    assert find_changed([source]) is None
    with SourceFile(source) as opened:
        path.write_text("te")
        with pytest.raises(InputError, match="changed while it was read"):
            opened.read_at(0, 4)
    with pytest.raises(InputError, match="changed while it was read"):
        SourceFile(source)
    assert find_changed([source]) == source
    path.unlink()
    assert find_changed([source]) == source


def test_reads_stay_inside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("0123456789")
    with SourceFile(Source(str(path), 10, 0, "")) as opened:
        assert opened.read_at(-5, 3) == b"012"
        assert opened.read_at(8, 99) == b"89"
        assert opened.read_at(20, 30) == b""


def test_links_to_one_file_are_taken_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.txt").symlink_to("a.txt")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert len(names(tmp_path)) == 1
    assert len(names(tmp_path, f"{tmp_path}/**/*.txt")) == 1


def make_output(folder: Path, *, is_finished: bool = True) -> None:
    """Make what a job leaves in its folder: finished, or killed."""
    (folder / ".penstok").mkdir(parents=True)
    (folder / "train.bin").write_bytes(b"tokens")
    if is_finished:
        (folder / ".penstok").rmdir()
        (folder / "manifest.json").write_text('{\n  "format": "penstok",\n  "version": 1')


@pytest.mark.parametrize("is_finished", [True, False])
def test_outputs_of_other_jobs_are_ignored_in_folders_and_refused_by_name(
    tmp_path: Path, is_finished: bool
) -> None:
    (tmp_path / "text.txt").write_text("text")
    make_output(tmp_path / "deep" / "old", is_finished=is_finished)
    (tmp_path / "deep" / "old" / "notes.txt").write_text("notes")
    ignored = {"deep/old": "this folder is an output of penstok"}
    assert find(tmp_path) == (["text.txt"], ignored)
    old = f"{tmp_path}/deep/old"
    with pytest.raises(InputError, match="holds tokens, not text") as error:
        find(tmp_path, old)
    assert f"penstok show {old}" in error.value.next_step
    assert names(tmp_path, f"{old}/notes.txt", f"{old}/train.bin") == [
        "deep/old/notes.txt",
        "deep/old/train.bin",
    ]


@pytest.mark.parametrize("is_finished", [True, False])
def test_the_own_output_may_be_in_the_input_or_be_the_input(
    tmp_path: Path, is_finished: bool
) -> None:
    make_output(tmp_path / "out", is_finished=is_finished)
    (tmp_path / "text.txt").write_text("text")
    assert find(tmp_path) == (["text.txt"], {})
    # As a shell expands `*`.
    assert find(tmp_path, f"{tmp_path}/out", f"{tmp_path}/text.txt") == (["text.txt"], {})
    with pytest.raises(InputError, match="nothing to read but the output of this job"):
        find(tmp_path, f"{tmp_path}/out")
    (tmp_path / "out" / "beside.txt").write_text("text")
    assert find(tmp_path, f"{tmp_path}/out") == (["out/beside.txt"], {})


def test_the_manifest_of_another_program_is_text(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "manifest.json").write_text('{"name": "site", "text": "a"}')
    assert find(tmp_path) == (["site/manifest.json"], {})


def test_what_is_no_file_is_ignored_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("text")
    (tmp_path / "self").symlink_to("self")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    # The name of a socket may have 107 bytes.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    assert find(tmp_path) == (
        ["text.txt"],
        {
            "null": "this is a device, not a file",
            "pipe": "this is a named pipe, not a file",
            "self": "this is a link that leads to itself, not a file",
            "socket": "this is a socket, not a file",
        },
    )
    for name in ("self", "pipe", "null"):
        with pytest.raises(InputError):
            find(tmp_path, f"{tmp_path}/{name}")


def test_a_link_to_nothing_is_an_error_in_a_folder_too(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("text")
    (tmp_path / "gone.txt").symlink_to("elsewhere.txt")
    with pytest.raises(InputError, match=r"a link to `elsewhere\.txt`, which does not exist"):
        find(tmp_path)


def test_what_is_not_text_is_ignored_in_a_folder_and_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(InputError, match=r"no text in .*a\.png`: this is a PNG picture"):
        find(tmp_path)
    (tmp_path / "b.txt").write_text("text")
    assert find(tmp_path) == (["b.txt"], {"a.png": "this is a PNG picture, not text"})
    for pattern in ("a.png", "*"):
        with pytest.raises(NotTextError, match="this is a PNG picture"):
            find(tmp_path, f"{tmp_path}/{pattern}")


def test_a_folder_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "text.txt").write_text("text")
    scandir = os.scandir

    def refuse(path: str) -> object:
        # As root, permissions are no obstacle.
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for inputs in ((), (f"{tmp_path}/closed",)):
        with pytest.raises(InputError, match="the folder cannot be read: Permission denied"):
            find(tmp_path, *inputs)


def test_odd_names_are_names(tmp_path: Path) -> None:
    for name in ("line\nfeed.txt", "a" * 251 + ".txt", "-", "é\u202e.txt", "%s{}.txt"):
        (tmp_path / name).write_text("text")
    assert len(names(tmp_path)) == 5
    for name in ("a" * 300, "a/" * 3000, "nul\0byte"):
        with pytest.raises(InputError):
            find(tmp_path, f"{tmp_path}/{name}")


def test_an_input_has_a_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the name of an input is empty"):
        names(tmp_path, str(tmp_path), "")


@pytest.mark.parametrize(
    ("data", "is_null", "step"),
    [(b"a.txt\0b.txt\0", False, "pass `-0`"), (b"a.txt\nb.txt\n", True, "leave out `-0`")],
)
def test_a_list_with_other_separators_is_refused(
    tmp_path: Path, data: bytes, is_null: bool, step: str
) -> None:
    (tmp_path / "list").write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_list(str(tmp_path / "list"), is_null=is_null)
    assert step in caught.value.next_step


def test_a_listed_name_may_have_a_line_break(tmp_path: Path) -> None:
    name = f"{tmp_path}/a\nb"
    Path(name).write_bytes(b"text")
    (tmp_path / "list").write_bytes(os.fsencode(name))
    assert read_list(str(tmp_path / "list"), is_null=True) == [name]


def test_what_cannot_be_opened_gets_a_step_that_works(tmp_path: Path) -> None:
    steps = {}
    os.mkfifo(tmp_path / "a pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    server.close()
    read_end, write_end = os.pipe()
    for path in (tmp_path / "a pipe", tmp_path / "socket", f"/dev/fd/{read_end}", "/proc/cpuinfo"):
        with pytest.raises(InputError) as caught:
            names(tmp_path, str(path))
        steps[str(path).rpartition("/")[2]] = caught.value.next_step
    os.close(read_end)
    os.close(write_end)
    assert f"`cat '{tmp_path}/a pipe' | penstok tokenize -`" in steps["a pipe"]
    assert "cat" not in steps["socket"]
    assert "pass `-`" in steps[str(read_end)]
    assert "`cat /proc/cpuinfo | penstok tokenize -`" in steps["cpuinfo"]


def test_a_list_may_begin_with_a_mark_and_is_not_utf16(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_bytes(b"\xef\xbb\xbfa.txt\nb.txt\n")
    assert read_list(str(path)) == ["a.txt", "b.txt"]
    path.write_bytes("a.txt\n".encode("utf-16"))
    with pytest.raises(InputError, match="the list is UTF-16"):
        read_list(str(path))
    with pytest.raises(UsageError, match="the name of the list is empty"):
        read_list("")


def test_a_table_with_carriage_returns_only_gets_a_command_that_converts_it(tmp_path: Path) -> None:
    (tmp_path / "cr.csv").write_bytes(b"id,text\r1,a\r2,b\r")
    with pytest.raises(InputError, match="carriage return alone") as raised:
        names(tmp_path, f"{tmp_path}/cr.csv")
    command = raised.value.next_step.split("`")[1].replace("converted.csv", "$OUT")
    subprocess.run(command, shell=True, check=True, env=os.environ | {"OUT": f"{tmp_path}/new.csv"})
    assert names(tmp_path, f"{tmp_path}/new.csv") == ["new.csv"]
