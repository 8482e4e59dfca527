"""Mosaic's own reader of MDS, and its writer: every sample, and the same bytes."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from format_samples import Sample

# The default of the format.
LENGTH = 2048


def stub(name: str, **content: Any) -> None:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    module.__dict__.update(content)
    sys.modules[name] = module


try:
    import torchvision  # noqa: F401
except RuntimeError:
    # Beside a torch without CUDA, the torchvision of PyPI cannot be imported. Streaming wants two
    # names of it for its datasets of pictures.
    for each in [each for each in sys.modules if each.split(".")[0] == "torchvision"]:
        del sys.modules[each]
    stub("torchvision", __path__=[])
    stub("torchvision.datasets", VisionDataset=object)
    stub("torchvision.transforms", __path__=[])
    stub("torchvision.transforms.functional", to_tensor=None)

from streaming import MDSWriter, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402


def test_streaming_dataset_returns_every_sample(mds: Sample) -> None:
    length = mds.sequence_length or LENGTH
    for split in ("train", "val"):
        expected = mds.rows(split, length)
        if not expected:
            assert split == "val"
            continue
        clean_stale_shared_memory()
        dataset = StreamingDataset(local=str(mds.folder / split), shuffle=False, batch_size=1)
        assert len(dataset) == len(expected)
        found = [dataset[idx]["tokens"] for idx in range(len(dataset))]
        assert [sample.tolist() for sample in found] == expected
        assert {str(sample.dtype) for sample in found} == {mds.dtype}


def write_shards(samples: list[list[int]], sample: Sample, folder: Path, **options: Any) -> None:
    columns = {"tokens": f"ndarray:{sample.dtype}:{len(samples[0])}"}
    with MDSWriter(out=str(folder), columns=columns, **options) as writer:
        for tokens in samples:
            writer.write({"tokens": np.array(tokens, sample.dtype)})


def test_files_are_those_of_its_own_writer(mds: Sample, tmp_path: Path) -> None:
    ours = {path.name: path.read_bytes() for path in (mds.folder / "train").iterdir()}
    if mds.sequence_length is None:
        write_shards(mds.rows("train", LENGTH), mds, tmp_path / "out")
        theirs = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
        assert ours == theirs
        return
    # The writer cannot be told how many samples to put into a shard, so each is written alone.
    samples = mds.rows("train", mds.sequence_length)
    for idx in range(len(ours) - 1):
        part, samples = samples[:20], samples[20:]
        write_shards(part, mds, tmp_path / str(idx), size_limit=None)
        theirs_alone = (tmp_path / str(idx) / "shard.00000.mds").read_bytes()
        assert ours[f"shard.{idx:05d}.mds"] == theirs_alone
    assert samples == []
