"""datatrove's own reader: every context, and the positions from its index of documents."""

from __future__ import annotations

from datatrove.utils.dataset import DatatroveFileDataset, DatatroveFolderDataset
from format_samples import Sample

LENGTH = 64


def token_bytes(sample: Sample) -> int:
    return 2 if sample.dtype == "uint16" else 4


def test_file_dataset_returns_every_context_and_its_positions(datatrove: Sample) -> None:
    for split in ("train", "val"):
        places = [
            place for document in datatrove.documents[split] for place in range(len(document))
        ]
        for shard, expected in datatrove.shard_rows(split, LENGTH + 1).items():
            path = datatrove.folder / f"{shard}.ds"
            dataset = DatatroveFileDataset(
                str(path), LENGTH, token_size=token_bytes(datatrove), return_positions=True
            )
            items = [dataset[idx] for idx in range(len(dataset))]
            assert [item["input_ids"].tolist() for item in items] == expected
            for idx, item in enumerate(items):
                start = idx * (LENGTH + 1)
                wanted = places[start : start + LENGTH + 1]
                # Up to the first document of a context, it counts from the start of the context.
                own = wanted.index(0) if 0 in wanted else len(wanted)
                assert item["positions"].tolist() == [*range(own), *wanted[own:]]
            places = places[datatrove.shards[split][shard] :]


def test_folder_dataset_returns_every_context(datatrove: Sample) -> None:
    dataset = DatatroveFolderDataset(
        str(datatrove.folder), LENGTH, "train*.ds", token_size=token_bytes(datatrove)
    )
    found = [dataset[idx]["input_ids"].tolist() for idx in range(len(dataset))]
    shards = datatrove.shard_rows("train", LENGTH + 1).values()
    assert found == [row for rows in shards for row in rows]
