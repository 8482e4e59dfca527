"""Samples of output formats, as the tests in `tests/formats` see them; Penstok is not needed."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The folder in which `tools/format_readers.py` has written them.
SAMPLES = os.environ.get("PENSTOK_FORMAT_SAMPLES")


@dataclass(frozen=True)
class Sample:
    """The files of one format, and what must be in them.

    Attributes:
        folder: Where the files are.
        dtype: The type of a token in Penstok's own files.
        eot_id: The id at the end of each document.
        vocab_size: How many ids there are.
        sequence_length: What was asked for; None for the format's default.
        columns: What was asked for.
        shards: The names of Penstok's own token files of a split, without `.bin`, and their tokens.
        documents: The documents of each split, with their end-of-text ids.
    """

    folder: Path
    dtype: str
    eot_id: int
    vocab_size: int
    sequence_length: int | None
    columns: list[str]
    shards: dict[str, dict[str, int]]
    documents: dict[str, list[list[int]]]

    def tokens(self, split: str) -> list[int]:
        """Return all tokens of a split."""
        return [token for document in self.documents[split] for token in document]

    def rows(self, split: str, length: int) -> list[list[int]]:
        """Return the tokens of a split in rows of a length, without what fills none."""
        return _rows(self.tokens(split), length)

    def shard_rows(self, split: str, length: int) -> dict[str, list[list[int]]]:
        """Return the same for each token file, where readers leave out the end of each."""
        rows, at, tokens = {}, 0, self.tokens(split)
        for shard, num_tokens in self.shards[split].items():
            rows[shard] = _rows(tokens[at : at + num_tokens], length)
            at += num_tokens
        return rows


def load_samples(name: str) -> dict[str, Sample]:
    """Return the samples of a format, by what is special about them."""
    folder = Path(SAMPLES or "")
    records: list[dict[str, Any]] = json.loads((folder / "samples.json").read_text("utf-8"))
    found = {}
    for record in records:
        if record.pop("format") == name:
            label = record.pop("label")
            found[label] = Sample(**record | {"folder": folder / record["folder"]})
    return found


def _rows(tokens: list[int], length: int) -> list[list[int]]:
    return [tokens[at : at + length] for at in range(0, len(tokens) - length + 1, length)]
