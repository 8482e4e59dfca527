"""litdata's own reader: every block that `TokensLoader` returns."""

from __future__ import annotations

from format_samples import Sample
from litdata import StreamingDataset, TokensLoader

# The default of the format, and of litgpt.
BLOCK = 2049


def test_tokens_loader_returns_every_block(litdata: Sample) -> None:
    block = litdata.sequence_length or BLOCK
    for split in ("train", "val"):
        expected = litdata.rows(split, block)
        dataset = StreamingDataset(
            str(litdata.folder / split), item_loader=TokensLoader(block_size=block)
        )
        assert len(dataset) == len(expected)
        assert len(expected) > 0 or split == "val"
        found = [dataset[idx] for idx in range(len(dataset))]
        assert [block.tolist() for block in found] == expected
        assert {str(block.dtype) for block in found} <= {litdata.dtype}


def test_the_dataset_can_be_iterated(litdata: Sample) -> None:
    block = litdata.sequence_length or BLOCK
    dataset = StreamingDataset(
        str(litdata.folder / "train"), item_loader=TokensLoader(block_size=block), shuffle=False
    )
    assert [each.tolist() for each in dataset] == litdata.rows("train", block)
