from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xxhash

from penstock.errors import ConflictError, LockedError, WriteError
from penstock.ledger import Ledger
from penstock.store import LEDGER, Layout, SegmentWriter, Store
from penstock.types import Counts, Encoded, Finished, Grant, Receipt, Source, Unit

NOTHING = {"train": 0, "val": 0}
ENCODED = Encoded(0, Counts(), NOTHING, NOTHING, 0, False, None, False)  # type: ignore[arg-type]
GRANT = Grant(0, "train", NOTHING)  # type: ignore[arg-type]


def test_a_run_is_divided_at_shard_borders() -> None:
    layout = Layout("out", 2, 10)
    assert list(layout.iter_places(8, 15)) == [(0, 8, 2), (1, 0, 10), (2, 0, 3)]
    assert list(layout.iter_places(10, 1)) == [(1, 0, 1)]
    assert list(Layout("out", 2, None).iter_places(8, 15)) == [(0, 8, 15)]
    assert list(layout.iter_places(8, 0)) == []


def test_shards_have_names_and_sizes() -> None:
    layout = Layout("out", 2, 10)
    assert layout.file_name("val", 3) == "val_shard_00003.bin"
    assert Layout("out", 2, None).file_name("val", 0) == "val.bin"
    assert [layout.num_shards(count) for count in (0, 1, 10, 11)] == [1, 1, 1, 2]
    assert [layout.shard_size(25, shard) for shard in range(3)] == [10, 10, 5]


def test_segments_carry_the_checksum_of_their_bytes(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path), 2, 4)
    with Store(tmp_path):
        writer = SegmentWriter(layout, give_back=True)
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


def test_many_shards_do_not_need_many_open_files(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path), 2, 1)
    with Store(tmp_path):
        writer = SegmentWriter(layout, give_back=False)
        assert len(writer.write("val", 0, np.arange(3000, dtype=np.uint16))) == 3000
        writer.close()


def test_the_digest_of_a_file_covers_its_segments(tmp_path: Path) -> None:
    unit = Unit(0, 0, Source("a", 1, 0), 0, 1, 1)
    with Store(tmp_path) as store:
        writer = SegmentWriter(Layout(str(tmp_path), 2, None), give_back=False)
        segments = writer.write("train", 0, np.arange(5, dtype=np.uint16))
        writer.close()
        with Ledger(store.work / LEDGER) as ledger:
            ledger.append(Finished(unit, ENCODED, GRANT, Receipt(0, tuple(segments))))
            digest = bytes.fromhex(segments[0].digest)
            assert ledger.file_digest("train", 0) == xxhash.xxh3_128_hexdigest(digest)
            assert ledger.file_digest("val", 0) == xxhash.xxh3_128_hexdigest(b"")


def test_one_job_at_a_time(tmp_path: Path) -> None:
    with (
        Store(tmp_path / "out"),
        pytest.raises(LockedError, match="another run"),
        Store(tmp_path / "out"),
    ):
        pass
    assert not (tmp_path / "out").exists()


def test_a_lock_nobody_holds_is_free(tmp_path: Path) -> None:
    (tmp_path / ".penstock").mkdir()
    (tmp_path / ".penstock" / "lock").write_text("pid 1 on elsewhere")
    with Store(tmp_path):
        assert "elsewhere" not in (tmp_path / ".penstock" / "lock").read_text()
    assert tmp_path.exists()


def test_files_of_somebody_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    with Store(tmp_path) as store:
        store.refuse_foreign_files(overwrite=False)
        (tmp_path / "val_shard_00000.bin").touch()
        with pytest.raises(ConflictError, match="val_shard_00000"):
            store.refuse_foreign_files(overwrite=False)


def test_too_little_disk_is_said_before_the_start(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.check_room(1)
        with pytest.raises(WriteError, match="too little disk"):
            store.check_room(1 << 60)
