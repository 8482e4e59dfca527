from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import xxhash

from penstok.errors import ConflictError, LockedError, WriteError
from penstok.output.layout import Layout
from penstok.output.segments import SegmentReader, SegmentWriter
from penstok.output.store.base import LostShardError
from penstok.output.store.folder import FolderStore
from penstok.output.store.objects import ObjectStore
from penstok.output.token_runs import TokenRun


def open_layout(folder: Path, shard_tokens: int | None = None) -> Layout:
    """Return where a task that can be resumed writes."""
    return FolderStore(str(folder)).begin_task(Layout(str(folder), 2, shard_tokens), 0, None).layout


def test_a_run_is_divided_at_shard_borders() -> None:
    layout = Layout("out", 2, 10)
    assert list(layout.iter_shard_ranges("train", 8, 15)) == [(0, 8, 2), (1, 0, 10), (2, 0, 3)]
    assert list(layout.iter_shard_ranges("train", 10, 1)) == [(1, 0, 1)]
    assert list(Layout("out", 2, None).iter_shard_ranges("train", 8, 15)) == [(0, 8, 15)]
    assert list(layout.iter_shard_ranges("train", 8, 0)) == []


def test_shards_have_names_and_sizes() -> None:
    layout = Layout("out", 2, 10)
    assert layout.file_name("val", 3) == "val_shard_00003.bin"
    assert Layout("out", 2, None).file_name("val", 0) == "val.bin"
    assert [layout.num_shards("train", count) for count in (0, 1, 10, 11)] == [1, 1, 1, 2]
    assert [layout.shard_size("train", 25, shard) for shard in range(3)] == [10, 10, 5]


def test_segments_carry_the_checksum_of_their_bytes(tmp_path: Path) -> None:
    layout = open_layout(tmp_path, 4)
    writer = SegmentWriter(layout)
    tokens = np.arange(6, dtype=np.uint16)
    segments = writer.write("train", 2, TokenRun(tokens))
    writer.close()
    assert [(s.shard, s.offset_tokens, s.num_tokens) for s in segments] == [(0, 2, 2), (1, 0, 4)]
    assert segments[1].digest == xxhash.xxh3_128_hexdigest(tokens[2:].tobytes())
    written = layout.partial_path("train", 1).read_bytes()
    assert written == tokens[2:].tobytes()
    reader = SegmentReader(layout.partial_path, 2)
    assert all(map(reader.is_intact, segments))
    layout.partial_path("train", 1).write_bytes(b"\0" * 8)
    assert [reader.is_intact(segment) for segment in segments] == [True, False]
    reader.close()


def test_a_planted_link_leads_no_write_out_of_the_folder(tmp_path: Path) -> None:
    layout = open_layout(tmp_path / "out")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    layout.partial_path("train", 0).symlink_to(victim)
    with pytest.raises(WriteError):
        SegmentWriter(layout).write("train", 0, TokenRun(np.arange(3, dtype=np.uint16)))
    assert victim.read_text() == "mine"


def test_many_shards_do_not_need_many_open_files(tmp_path: Path) -> None:
    writer = SegmentWriter(open_layout(tmp_path, 1))
    assert len(writer.write("val", 0, TokenRun(np.arange(3000, dtype=np.uint16)))) == 3000
    writer.close()


def test_one_job_at_a_time(tmp_path: Path) -> None:
    with (
        FolderStore(str(tmp_path / "out")).lock(),
        pytest.raises(LockedError, match="another run"),
        FolderStore(str(tmp_path / "out")).lock(),
    ):
        pass
    assert not (tmp_path / "out").exists()


def test_a_lock_nobody_holds_is_free(tmp_path: Path) -> None:
    (tmp_path / ".penstok").mkdir()
    (tmp_path / ".penstok" / "lock").write_text("pid 1 on elsewhere")
    with FolderStore(str(tmp_path)).lock():
        assert "elsewhere" not in (tmp_path / ".penstok" / "lock").read_text()
    assert tmp_path.exists()


def test_a_folder_that_was_locked_for_nothing_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    with FolderStore(str(tmp_path)).lock():
        assert (tmp_path / ".penstok" / "lock").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.md"]


def test_what_is_not_a_regular_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "train.bin").touch()
    store = FolderStore(str(tmp_path))
    store.refuse_irregular()
    (tmp_path / "val_shard_00000.bin").symlink_to(tmp_path / "train.bin")
    with pytest.raises(ConflictError, match="val_shard_00000"):
        store.refuse_irregular()


def test_a_link_is_refused_if_it_leads_nowhere(tmp_path: Path) -> None:
    for name, target in (("dangling", "nothing"), ("loop", "loop")):
        link = tmp_path / name
        link.symlink_to(target)
        with pytest.raises(ConflictError, match=f"is a link to `{target}`, which does not exist"):
            FolderStore(str(link)).refuse_not_a_folder()


def test_a_link_is_not_refused_if_its_target_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    # What root may do cannot be refused by the file system.
    monkeypatch.setattr(Path, "stat", refuse)
    FolderStore(str(link)).refuse_not_a_folder()


@contextmanager
def changing(change: Callable[[], None]) -> Iterator[None]:
    """Call a function over and over while the block runs."""
    is_done = Event()

    def repeat() -> None:
        while not is_done.is_set():
            change()

    thread = Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def test_a_folder_that_another_part_creates_meanwhile_is_not_refused(tmp_path: Path) -> None:
    folder = tmp_path / "out"

    def appear_and_go() -> None:
        folder.mkdir()
        folder.rmdir()

    with changing(appear_and_go):
        for _ in range(5_000):
            FolderStore(str(folder)).refuse_not_a_folder()


def test_a_file_that_another_run_deletes_meanwhile_is_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"

    def appear_and_go() -> None:
        path.touch()
        path.unlink()

    with changing(appear_and_go):
        for _ in range(5_000):
            FolderStore(str(tmp_path)).refuse_irregular()


def test_an_attempt_that_another_part_deletes_meanwhile_needs_no_room(tmp_path: Path) -> None:
    attempt = tmp_path / ".penstok" / "tasks" / "00000-1"

    def appear_and_go() -> None:
        attempt.mkdir(parents=True)
        (attempt / "train.bin.partial").touch()
        shutil.rmtree(attempt)

    with changing(appear_and_go):
        for _ in range(1_000):
            FolderStore(str(tmp_path)).check_room(1)


def test_files_are_published_once_and_a_lost_one_is_noticed(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    (tmp_path / "old.bin").write_bytes(b"old")
    staged = store.stage_lines("old.bin", [b"a\n", b"b\n"])
    store.publish([staged])
    assert (tmp_path / "old.bin").read_bytes() == b"a\nb\n"
    store.publish([staged])
    assert store.find_lost([staged]) == set()
    (tmp_path / "old.bin").unlink()
    assert store.find_lost([staged]) == {"old.bin"}
    with pytest.raises(LostShardError, match=r"old\.bin"):
        store.publish([staged])


def test_too_little_disk_is_said_before_the_start(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    store.check_room(1)
    with pytest.raises(WriteError, match="too little disk"):
        store.check_room(1 << 60)


def test_a_finished_job_that_is_extended_needs_no_room_again(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    (tmp_path / "train.bin").write_bytes(b"\0" * (8 << 20))
    with mock.patch("shutil.disk_usage", return_value=SimpleNamespace(free=0)):
        store.check_room(8 << 20, ["train.bin"])
        with pytest.raises(WriteError, match="too little disk"):
            store.check_room(8 << 20)


def test_indexes_of_an_object_store_need_room_for_their_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    store = ObjectStore("s3://bucket/out")
    with mock.patch("shutil.disk_usage", return_value=SimpleNamespace(free=1000)):
        store.check_room(1 << 60, scratch_bytes=1000)
        with pytest.raises(WriteError, match="1 kB needed") as raised:
            store.check_room(1, scratch_bytes=1001)
    assert "TMPDIR" in raised.value.next_step
