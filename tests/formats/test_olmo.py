"""OLMo-core's own readers: every instance, and where documents are by table and by search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from format_samples import Sample
from olmo_core.data import NumpyFSLDataset
from olmo_core.data.utils import iter_document_indices

LENGTH = 64


def test_document_indices_are_the_documents(olmo: Sample) -> None:
    dtype = np.uint16 if olmo.dtype == "uint16" else np.uint32
    for split in ("train", "val"):
        pieces: list[list[int]] = []
        for shard in olmo.shards[split]:
            path = olmo.folder / f"{shard}.npy"
            tokens = np.fromfile(path, dtype).tolist()
            by_table = list(iter_document_indices(path))
            pieces += [tokens[start:end] for start, end in by_table]
            searched = list(iter_document_indices(path, eos_token_id=olmo.eot_id, dtype=dtype))
            # The search leaves out what follows the last end-of-text id.
            assert searched == by_table[: len(searched)]
        if len(olmo.shards[split]) == 1:
            assert pieces == olmo.documents[split]
        assert [token for piece in pieces for token in piece] == olmo.tokens(split)


def test_fsl_dataset_returns_every_instance(olmo: Sample, tmp_path: Path) -> None:
    dataset = NumpyFSLDataset(
        *(str(olmo.folder / f"{shard}.npy") for shard in olmo.shards["train"]),
        sequence_length=LENGTH,
        pad_token_id=olmo.eot_id,
        eos_token_id=olmo.eot_id,
        vocab_size=olmo.vocab_size,
        dtype=np.uint16 if olmo.dtype == "uint16" else np.uint32,
    )
    dataset.work_dir = tmp_path
    dataset.prepare()
    # It leaves out the end of every file.
    expected = [row for rows in olmo.shard_rows("train", LENGTH).values() for row in rows]
    assert len(dataset) == len(expected)
    found = [dataset[idx]["input_ids"].tolist() for idx in range(len(dataset))]
    assert found == expected
