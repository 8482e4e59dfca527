"""Megatron's own reader: every document by its number."""

from __future__ import annotations

import numpy as np
from format_samples import Sample
from megatron.core.datasets.indexed_dataset import IndexedDataset


def test_indexed_dataset_returns_every_document(megatron: Sample) -> None:
    for split in ("train", "val"):
        sequences: list[list[int]] = []
        lengths: list[int] = []
        for shard in megatron.shards[split]:
            dataset = IndexedDataset(str(megatron.folder / shard))
            sequences += [dataset[idx].tolist() for idx in range(len(dataset))]
            lengths += dataset.sequence_lengths.tolist()
            assert dataset.document_indices.tolist() == list(range(len(dataset) + 1))
            wanted = np.uint16 if megatron.dtype == "uint16" else np.int32
            assert dataset.index.dtype == wanted
        assert lengths == [len(sequence) for sequence in sequences]
        assert [token for sequence in sequences for token in sequence] == megatron.tokens(split)
        if len(megatron.shards[split]) == 1:
            assert sequences == megatron.documents[split]
