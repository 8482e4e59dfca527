"""Hugging Face datasets: every row of the parquet files, whole and streamed."""

from __future__ import annotations

from pathlib import Path

from datasets import load_dataset
from format_samples import Sample


def expected_rows(sample: Sample, split: str) -> list[list[int]]:
    length = sample.sequence_length
    if length is None:
        return sample.documents[split]
    tokens = sample.tokens(split)
    return [tokens[at : at + length] for at in range(0, len(tokens), length)]


def test_load_dataset_returns_every_row(parquet: Sample, tmp_path: Path) -> None:
    loaded = load_dataset(str(parquet.folder), cache_dir=str(tmp_path))
    # It finds the splits by the names of the files.
    for split, key in (("train", "train"), ("val", "validation")):
        assert loaded[key].column_names == parquet.columns
        rows = [list(row) for row in loaded[key]["input_ids"]]
        assert rows == expected_rows(parquet, split)
        if "labels" in parquet.columns:
            assert [list(row) for row in loaded[key]["labels"]] == rows
            masks = [list(row) for row in loaded[key]["attention_mask"]]
            assert masks == [[1] * len(row) for row in rows]


def test_rows_can_be_streamed(parquet: Sample) -> None:
    files = sorted(str(path) for path in parquet.folder.glob("train-*.parquet"))
    rows = load_dataset("parquet", data_files=files, split="train", streaming=True)
    assert [list(row["input_ids"]) for row in rows] == expected_rows(parquet, "train")
