"""Readers that are no packages, restated as the few lines they are: only NumPy is needed."""

from __future__ import annotations

import numpy as np
from format_samples import Sample


def test_nanogpt_maps_the_token_file(raw: Sample) -> None:
    # nanoGPT, train.py: np.memmap(os.path.join(data_dir, 'train.bin'), dtype=np.uint16, mode='r')
    for split in ("train", "val"):
        data: list[int] = []
        for shard in raw.shards[split]:
            data += np.memmap(raw.folder / f"{shard}.bin", dtype=raw.dtype, mode="r").tolist()
        assert data == raw.tokens(split)


def test_torchtitan_reads_tokens_and_offsets(torchtitan: Sample) -> None:
    # torchtitan's page about data: tokens[offsets[i]:offsets[i + 1]]
    for split in ("train", "val"):
        tokens = np.memmap(torchtitan.folder / split / "tokens.bin", dtype=np.uint32, mode="r")
        offsets = np.load(torchtitan.folder / split / "document_offsets.npy", mmap_mode="r")
        documents = [
            tokens[offsets[idx] : offsets[idx + 1]].tolist() for idx in range(len(offsets) - 1)
        ]
        assert documents == torchtitan.documents[split]


def test_llmc_reads_header_and_tokens(llmc: Sample) -> None:
    # llm.c, train_gpt2.py and train_llama3.py: _load_data_shard
    magic, version = (20240520, 1) if llmc.dtype == "uint16" else (20240801, 7)
    for split in ("train", "val"):
        files = sorted(llmc.folder.glob(f"*_{split}_*.bin"))
        data: list[int] = []
        for path in files:
            content = path.read_bytes()
            header = np.frombuffer(content[: 256 * 4], dtype=np.int32)
            assert header[0] == magic, "magic number mismatch in the data .bin file"
            assert header[1] == version, "unsupported version"
            tokens = np.frombuffer(content[256 * 4 :], dtype=llmc.dtype)
            assert len(tokens) == header[2], "number of tokens read does not match header?"
            data += tokens.tolist()
        # The end-of-text id comes first in a document.
        assert data == [llmc.eot_id, *llmc.tokens(split)[:-1]]
