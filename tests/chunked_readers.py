"""The chunked formats read back with NumPy, json and pyarrow alone, by their own descriptions.

What is written is compared with these in several layers, so none of it uses the package.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

NUMPY_CODES = {"no_header_numpy:5": "<u2", "no_header_numpy:6": "<u4"}


def read_litdata(folder: Path, block: int) -> tuple[list[int], list[list[int]]]:
    """Read all tokens, and the blocks as `TokensLoader` cuts them."""
    index = json.loads((folder / "index.json").read_text())
    dtype = np.dtype(NUMPY_CODES[index["config"]["data_format"][0]])
    assert index["config"]["item_loader"] == "TokensLoader"
    tokens: list[int] = []
    blocks: list[list[int]] = []
    for chunk in index["chunks"]:
        data = (folder / chunk["filename"]).read_bytes()
        num_items, start, end = np.frombuffer(data, "<u4", 3).tolist()
        assert (num_items, start, end) == (chunk["chunk_size"], 12, len(data)), chunk
        assert len(data) == chunk["chunk_bytes"]
        values = np.frombuffer(data, dtype, offset=start)
        assert len(values) == chunk["dim"]
        tokens += values.tolist()
        blocks += values[: len(values) // block * block].reshape(-1, block).tolist()
    assert len(list(folder.iterdir())) == len(index["chunks"]) + 1
    return tokens, blocks


def read_mds(folder: Path) -> list[list[int]]:
    """Read the samples by the offsets of each shard."""
    index = json.loads((folder / "index.json").read_text())
    assert index["version"] == 2
    samples: list[list[int]] = []
    for shard in index["shards"]:
        data = (folder / shard["raw_data"]["basename"]).read_bytes()
        assert len(data) == shard["raw_data"]["bytes"]
        (count,) = np.frombuffer(data, "<u4", 1).tolist()
        assert count == shard["samples"]
        offsets = np.frombuffer(data, "<u4", count + 1, offset=4).tolist()
        config = json.loads(data[4 * (count + 2) : offsets[0]])
        assert config.items() <= shard.items()
        kind, name, length = config["column_encodings"][0].split(":")
        assert kind == "ndarray"
        dtype = np.dtype(name).newbyteorder("<")
        assert config["column_sizes"] == [int(length) * dtype.itemsize]
        assert offsets[-1] == len(data)
        for start, end in itertools.pairwise(offsets):
            values = np.frombuffer(data[start:end], dtype)
            assert len(values) == int(length)
            samples.append(values.tolist())
    assert len(list(folder.iterdir())) == len(index["shards"]) + 1
    return samples


def read_parquet(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    """Read the rows of all files of a split, in order."""
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob(f"{split}-*.parquet")):
        rows += pq.read_table(path).to_pylist()
    return rows
