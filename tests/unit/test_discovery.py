from __future__ import annotations

from pathlib import Path

import pytest

from penstok.errors import InputError, PenstokError
from penstok.inputs.changes import find_changed
from penstok.inputs.discovery import natural_key
from penstok.inputs.files import SourceFile
from penstok.output.layout import is_own_name
from penstok.readers.probe import find_sources
from penstok.types import Source


def stop(path: str, error: PenstokError) -> None:
    raise error


def names(folder: Path, *inputs: str) -> list[str]:
    sources = find_sources(
        inputs or (str(folder),),
        is_output=lambda path: is_own_name(Path(path), folder / "out"),
        on_unusable=stop,
    )
    return [str(Path(source.path).relative_to(folder)) for source in sources]


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


def test_names_that_are_no_utf8_are_kept(tmp_path: Path) -> None:
    raw = bytes(tmp_path) + b"/bad\xff.txt"
    with open(raw, "wb") as file:  # noqa: PTH123 a Path cannot hold this name as bytes
        file.write(b"text")
    (source,) = find_sources([str(tmp_path)], is_output=lambda _: False, on_unusable=stop)
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
