from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import xxhash

from penstok.errors import ConflictError, LockedError, WriteError
from penstok.output.layout import Layout
from penstok.output.segments import SegmentReader, SegmentWriter
from penstok.output.store.local import Store


def open_store(folder: Path) -> Store:
    return Store(Layout(str(folder), 2, None))


def test_a_run_is_divided_at_shard_borders() -> None:
    layout = Layout("out", 2, 10)
    assert list(layout.iter_places("train", 8, 15)) == [(0, 8, 2), (1, 0, 10), (2, 0, 3)]
    assert list(layout.iter_places("train", 10, 1)) == [(1, 0, 1)]
    assert list(Layout("out", 2, None).iter_places("train", 8, 15)) == [(0, 8, 15)]
    assert list(layout.iter_places("train", 8, 0)) == []


def test_shards_have_names_and_sizes() -> None:
    layout = Layout("out", 2, 10)
    assert layout.file_name("val", 3) == "val_shard_00003.bin"
    assert Layout("out", 2, None).file_name("val", 0) == "val.bin"
    assert [layout.num_shards("train", count) for count in (0, 1, 10, 11)] == [1, 1, 1, 2]
    assert [layout.shard_size("train", 25, shard) for shard in range(3)] == [10, 10, 5]


def test_segments_carry_the_checksum_of_their_bytes(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path), 2, 4)
    with open_store(tmp_path):
        writer = SegmentWriter(layout)
        tokens = np.arange(6, dtype=np.uint16)
        segments = writer.write("train", 2, tokens)
        writer.close()
        assert [(s.shard, s.offset_tokens, s.num_tokens) for s in segments] == [
            (0, 2, 2),
            (1, 0, 4),
        ]
        assert segments[1].digest == xxhash.xxh3_128_hexdigest(tokens[2:].tobytes())
        written = layout.partial_path("train", 1).read_bytes()
        assert written == tokens[2:].tobytes()
        reader = SegmentReader(layout.partial_path, 2)
        assert all(map(reader.is_whole, segments))
        layout.partial_path("train", 1).write_bytes(b"\0" * 8)
        assert [reader.is_whole(segment) for segment in segments] == [True, False]
        reader.close()


def test_a_planted_link_leads_no_write_out_of_the_folder(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path / "out"), 2, None)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    with open_store(tmp_path / "out"):
        layout.partial_path("train", 0).symlink_to(victim)
        with pytest.raises(WriteError):
            SegmentWriter(layout).write("train", 0, np.arange(3, dtype=np.uint16))
    assert victim.read_text() == "mine"


def test_many_shards_do_not_need_many_open_files(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path), 2, 1)
    with open_store(tmp_path):
        writer = SegmentWriter(layout)
        assert len(writer.write("val", 0, np.arange(3000, dtype=np.uint16))) == 3000
        writer.close()


def test_one_job_at_a_time(tmp_path: Path) -> None:
    with (
        open_store(tmp_path / "out"),
        pytest.raises(LockedError, match="another run"),
        open_store(tmp_path / "out"),
    ):
        pass
    assert not (tmp_path / "out").exists()


def test_a_lock_nobody_holds_is_free(tmp_path: Path) -> None:
    (tmp_path / ".penstok").mkdir()
    (tmp_path / ".penstok" / "lock").write_text("pid 1 on elsewhere")
    with open_store(tmp_path):
        assert "elsewhere" not in (tmp_path / ".penstok" / "lock").read_text()
    assert tmp_path.exists()


def test_files_of_somebody_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    with open_store(tmp_path) as store:
        store.refuse_foreign_files(overwrite=False)
        (tmp_path / "val_shard_00000.bin").touch()
        with pytest.raises(ConflictError, match="val_shard_00000"):
            store.refuse_foreign_files(overwrite=False)


def test_too_little_disk_is_said_before_the_start(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.check_room(1)
        with pytest.raises(WriteError, match="too little disk"):
            store.check_room(1 << 60)


def test_a_finished_job_that_is_added_to_needs_no_room_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        (tmp_path / "train.bin").write_bytes(b"\0" * (8 << 20))
        with mock.patch("shutil.disk_usage", return_value=SimpleNamespace(free=0)):
            store.check_room(8 << 20, adds=True)
            with pytest.raises(WriteError, match="too little disk"):
                store.check_room(8 << 20)
