"""Small token sources for tests of output formats, and the files that a format makes of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from penstok.output.documents import index_name, npy_header
from penstok.output.formats.base import (
    FormatOptions,
    ImportedFile,
    OutputFormat,
    SplitTokens,
    TokenFile,
    TokenSource,
)
from penstok.types import SPLITS, EotPosition, Split, TokenizerRecord, replace

EOT = 0
# A document as its token ids, with its end-of-text id if it has one.
Documents = Sequence[Sequence[int]]
_NO_OPTIONS = FormatOptions()


def with_eot(documents: Documents, eot: EotPosition = "append", eot_id: int = EOT) -> Documents:
    """Give each document its end-of-text id."""
    before = [eot_id] if eot == "prepend" else []
    after = [eot_id] if eot == "append" else []
    return [[*before, *document, *after] for document in documents]


def write_source(
    folder: Path,
    *,
    train: Documents = (),
    val: Documents = (),
    dtype: Literal["uint16", "uint32"] = "uint16",
    eot: EotPosition = "append",
    shard_tokens: int | None = None,
    vocab_size: int | None = None,
    name: str = "gpt2",
    eot_id: int = EOT,
) -> TokenSource:
    """Write documents, whose ids include their end-of-text ids, as a finished job would.

    Args:
        folder: Where the files go; it is created.
        train: The documents of train, none of them empty.
        val: The documents of val.
        dtype: The integer type of a token.
        eot: Where `train` and `val` have their end-of-text ids; see `with_eot`.
        shard_tokens: Tokens per shard; documents continue in the next shard. None for one file.
        vocab_size: By default as large as the dtype suggests.
        name: The name of the tokenizer.
        eot_id: The end-of-text id.
    """
    folder.mkdir(parents=True, exist_ok=True)
    splits: dict[Split, SplitTokens] = {}
    for split, documents in zip(SPLITS, (train, val), strict=True):
        tokens = np.array([token for document in documents for token in document], np.int64)
        lengths = [len(document) for document in documents]
        starts = np.cumsum([0, *lengths], dtype=np.int64)[:-1]
        borders = [0]
        while shard_tokens is not None and borders[-1] < len(tokens):
            borders.append(min(borders[-1] + shard_tokens, len(tokens)))
        files = [
            _write_file(folder, f"{split}_shard_{idx:05d}.bin", tokens, starts, start, end, dtype)
            for idx, (start, end) in enumerate(pairwise(borders))
        ]
        if shard_tokens is None:
            files = [_write_file(folder, f"{split}.bin", tokens, starts, 0, len(tokens), dtype)]
        splits[split] = SplitTokens(dtype, files)
    size = vocab_size or (50257 if dtype == "uint16" else 128256)
    return TokenSource(TokenizerRecord(name, size, eot_id, "00" * 8), eot, splits)


def write_format(
    chosen: OutputFormat,
    source: TokenSource,
    folder: Path,
    options: FormatOptions = _NO_OPTIONS,
) -> dict[str, bytes]:
    """Write all files of a format, as the store would; return their bytes by name."""
    chosen.refuse(source, options)
    written: dict[str, bytes] = {}
    for file in chosen.iter_files(source, options):
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.same_as is None:
            path.write_bytes(b"".join(bytes(piece) for piece in file.content))
        else:
            assert list(file.content) == []
            os.link(str(file.same_as.path), path)
        assert file.name not in written
        written[file.name] = path.read_bytes()
    return written


def import_source(
    imported: Mapping[Split, Sequence[ImportedFile]], folder: Path, like: TokenSource
) -> TokenSource:
    """Write imported files as a finished job would, file by file, with the settings of another."""
    folder.mkdir(parents=True, exist_ok=True)
    splits: dict[Split, SplitTokens] = {}
    dtype = like.dtype
    for split, files in imported.items():
        written: list[TokenFile] = []
        names = [file.name for file in like.splits[split].files]
        if len(names) != len(files):
            names = [f"{split}_shard_{idx:05d}.bin" for idx in range(len(files))]
        for name, file in zip(names, files, strict=True):
            assert file.token_dtype == dtype
            path = folder / name
            path.write_bytes(b"".join(piece.tobytes() for piece in file.iter_tokens()))
            entries = [*(int(start) for piece in file.iter_starts() for start in piece)]
            index = folder / index_name(path.name)
            entries.append(file.num_tokens)
            index.write_bytes(npy_header(len(entries)) + np.array(entries, "<u8").tobytes())
            num_documents = len(entries) - 1 - file.continues
            written.append(
                TokenFile(path.name, path, file.num_tokens, index, num_documents, file.continues)
            )
        splits[split] = SplitTokens(dtype, written)
    return replace(like, splits=splits)


def read_documents(files: Iterable[ImportedFile]) -> list[list[int]]:
    """Read the documents of imported files; one may continue in the next file."""
    documents: list[list[int]] = []
    for file in files:
        tokens = [int(token) for piece in file.iter_tokens() for token in piece]
        starts = [int(start) for piece in file.iter_starts() for start in piece]
        runs = [tokens[start:end] for start, end in pairwise([*starts, file.num_tokens])]
        assert len(tokens) == file.num_tokens
        assert starts[:1] == [0][: len(tokens)]
        if file.continues:
            documents[-1] += runs.pop(0)
        documents += runs
    return documents


def _write_file(
    folder: Path,
    name: str,
    tokens: np.ndarray[tuple[int], np.dtype[np.int64]],
    starts: np.ndarray[tuple[int], np.dtype[np.int64]],
    start: int,
    end: int,
    dtype: str,
) -> TokenFile:
    """Write the tokens from `start` to `end` and their index."""
    path, index = folder / name, folder / index_name(name)
    path.write_bytes(tokens[start:end].astype(np.dtype(dtype).newbyteorder("<")).tobytes())
    own = (starts[(starts >= start) & (starts < end)] - start).tolist()
    continues = end > start and own[:1] != [0]
    entries = [*([0] if continues else []), *own, end - start]
    index.write_bytes(npy_header(len(entries)) + np.array(entries, "<u8").tobytes())
    return TokenFile(name, path, end - start, index, len(own), continues)
