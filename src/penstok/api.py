"""The Python interface: a function for each command, with the same settings and errors.

It does no work of its own, prints only the progress line that `progress=True` asks for, and imports
what a function needs only when it is called. The functions are generated from the definitions of
the settings; `jobs`, `verification`, `training` and `data` do the work, and `penstok` exports them.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

from penstok.errors import PenstokWarning
from penstok.quantities import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstok.counting.count import CountResult
    from penstok.data.dataset import Dataset
    from penstok.data.origins import FoundDocument
    from penstok.jobs.preview import Preview
    from penstok.jobs.progress import Progress, Status
    from penstok.jobs.run import Outcome, PartOutcome
    from penstok.jobs.settings import JobSettings
    from penstok.output.manifest import Manifest
    from penstok.reports.report import WrittenReport
    from penstok.storage.object_paths import OutputPath
    from penstok.training.train import TrainingResult
    from penstok.verification.findings import Report

    Path = str | os.PathLike[str]
    ShowProgress = bool | Callable[[Status], object]

__all__ = [
    "convert",
    "count",
    "find",
    "finish",
    "info",
    "open",
    "plan",
    "report",
    "show",
    "tokenize",
    "tokenize_part",
    "train_tokenizer",
    "verify",
]


# Change the definitions of the settings instead; `pytest tests/golden --update-golden` writes this.
# <generated>


def tokenize(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] = "tokens",
    *,
    files_from: str | os.PathLike[str] | None = None,
    null: bool = False,
    input_format: Literal["auto", "text", "jsonl", "csv", "tsv", "parquet", "arrow"] = "auto",
    encoding: str = "utf-8",
    text_key: str = "text",
    csv_delimiter: str | None = None,
    no_header: bool = False,
    doc_separator: str | None = None,
    docs_by: Literal["auto", "separator", "line", "file"] = "auto",
    strip: bool = False,
    invalid_utf8: Literal["replace", "ignore", "stop"] = "replace",
    on_error: Literal["stop", "skip"] = "stop",
    limit: int | str | None = None,
    tokenizer: str | os.PathLike[str] = "gpt2",
    eot: Literal["append", "prepend", "none"] = "append",
    eot_token: str | int | None = None,
    bos: str | int = "auto",
    pattern: Literal[
        "gpt2",
        "starcoder",
        "cl100k",
        "llama3",
        "nanochat",
        "qwen2",
        "qwen35",
        "o200k",
        "tekken",
        "kimi",
        "deepseek",
        "bloom",
    ]
    | None = None,
    engine: Literal[
        "auto", "kernel", "fastokens", "tiktoken", "tokenizers", "sentencepiece"
    ] = "auto",
    val_fraction: float = 0.0005,
    seed: int = 0,
    shard_tokens: int | str | None = None,
    dtype: Literal["auto", "uint16", "uint32"] = "auto",
    format: str = "raw",
    sequence_length: int | str | None = None,
    columns: str = "input_ids",
    document_index: Literal["npy", "none"] = "npy",
    provenance: bool = False,
    keep: str = "",
    overwrite: bool = False,
    workers: int | None = None,
    memory: int | str = "1GiB",
    priority: Literal["low", "normal"] = "low",
    executor: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    task_size: int | str | None = None,
    unit_bytes: int = 16777216,
    block_bytes: int = 2097152,
    progress: bool | Callable[[Status], object] = False,
) -> Manifest:
    """Turn text into `train.bin` and `val.bin`; return the manifest.

    The same call again continues a job that was interrupted, and does nothing if it is finished.

    Args:
        inputs: Files, folders, globs or URLs (https, s3, gs, hf); - is standard input.
        output: Folder to write to, or s3://BUCKET/NAME.
        files_from: Read the list of inputs from a file, one per line; - is standard input.
        null: The names in `files_from` are separated by NUL bytes, as `find -print0` writes them.
        input_format: Input format: auto (by file name), text, jsonl, csv, tsv, parquet or arrow.
        encoding: Encoding of the text: utf-8, gb18030, shift_jis, cp1252, ... or auto (detect that
            of each input).
        text_key: Field or column that holds the text; a.b is field b of field a.
        csv_delimiter: What separates the fields of CSV, such as ; or | (default: a comma, in TSV a
            tab).
        no_header: CSV begins with a record instead of column names: `text_key` is a column number,
            from 1.
        doc_separator: Separator between documents in text files (default: `<|endoftext|>` if it
            occurs near the start of the input, else one document per file).
        docs_by: How text files are divided into documents: auto, separator, line or file.
        strip: Strip white space from both ends of each document.
        invalid_utf8: What to do with invalid UTF-8: replace, ignore or stop.
        on_error: What to do with bad records and unreadable files: stop, or skip and exit with 3.
        limit: Use only about this much of the input, such as 100MB.
        tokenizer: A name (gpt2, cl100k_base, o200k_base, ...), an OpenAI model, OWNER/NAME on the
            Hugging Face Hub, or a file: tokenizer.json or its folder, .tiktoken, SentencePiece
            .model.
        eot: Where the end-of-text token of each document goes: append, prepend or none.
        eot_token: End-of-text token, as text or id (default: the one the tokenizer defines).
        bos: Token before each document: auto (the one the tokenizer adds), none, or a token as text
            or id.
        pattern: Pattern that splits text into words, for a .tiktoken file: gpt2, starcoder, cl100k,
            llama3, nanochat, qwen2, qwen35, o200k, tekken, kimi, deepseek or bloom.
        engine: Encoder: auto, kernel, fastokens, tiktoken, tokenizers or sentencepiece; all give
            the same ids.
        val_fraction: Fraction of the documents that goes to the val split; at least one of few.
        seed: Seed for the train/val split.
        shard_tokens: Tokens per shard, such as 500M (default: one file per split).
        dtype: Type of a token on disk: auto (uint16 if every id fits), uint16 or uint32.
        format: Formats to write, separated by commas: raw, megatron, llmc, torchtitan, olmo,
            datatrove, litdata, mds, parquet; raw, which the others are made from, is always
            written.
        sequence_length: Tokens per row of the formats litdata, mds and parquet (default: that of
            the format; parquet: one row per document).
        columns: Columns of the format parquet: input_ids, attention_mask, labels.
        document_index: Index of where documents start, beside the tokens: npy (a NumPy file) or
            none.
        provenance: Write where each document came from beside the tokens: its input, and its place
            there.
        keep: Fields of records to write beside the tokens, such as url,lang: one row per document
            in a parquet file.
        overwrite: Delete the output of another job in this folder.
        workers: Worker count (default: all cores, or as many workers as fit in `memory`).
        memory: Memory limit for all processes together; with `executor` ray, per task.
        priority: CPU priority: low, or normal on a dedicated machine.
        executor: local, or ray: run on all nodes of a Ray cluster; each task writes its own shards.
        ray_address: Ray cluster to use (default: the one Ray finds, else one on this machine).
        task_size: Divide the job into tasks of about this much input, such as 1GiB; each reads its
            own part of the input and writes its own shards (default: one task; with `executor` ray,
            `part` or S3 64MiB, more above 1TiB).
        unit_bytes: Text per unit, in bytes; the output is the same whatever it is.
        block_bytes: Text encoded at once, in bytes; the output is the same.
        progress: True draws a line on standard error, or a bar in a notebook, that is updated in
            place; a function is called with a `Status` a few times a second.

    Raises:
        PenstokError: If it cannot be done: what happened, where, and what to do next.

    Example:
        >>> manifest = penstok.tokenize("corpus/*.txt", "tokens", val_fraction=0.1, memory="2GiB")
        >>> manifest.splits["train"].documents
        9
    """
    values = {
        "inputs": inputs,
        "output": output,
        "files_from": files_from,
        "null": null,
        "input_format": input_format,
        "encoding": encoding,
        "text_key": text_key,
        "csv_delimiter": csv_delimiter,
        "no_header": no_header,
        "doc_separator": doc_separator,
        "docs_by": docs_by,
        "strip": strip,
        "invalid_utf8": invalid_utf8,
        "on_error": on_error,
        "limit": limit,
        "tokenizer": tokenizer,
        "eot": eot,
        "eot_token": eot_token,
        "bos": bos,
        "pattern": pattern,
        "engine": engine,
        "val_fraction": val_fraction,
        "seed": seed,
        "shard_tokens": shard_tokens,
        "dtype": dtype,
        "format": format,
        "sequence_length": sequence_length,
        "columns": columns,
        "document_index": document_index,
        "provenance": provenance,
        "keep": keep,
        "overwrite": overwrite,
        "workers": workers,
        "memory": memory,
        "priority": priority,
        "executor": executor,
        "ray_address": ray_address,
        "task_size": task_size,
        "unit_bytes": unit_bytes,
        "block_bytes": block_bytes,
    }
    return _tokenize(values, progress)


def plan(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] = "tokens",
    *,
    files_from: str | os.PathLike[str] | None = None,
    null: bool = False,
    input_format: Literal["auto", "text", "jsonl", "csv", "tsv", "parquet", "arrow"] = "auto",
    encoding: str = "utf-8",
    text_key: str = "text",
    csv_delimiter: str | None = None,
    no_header: bool = False,
    doc_separator: str | None = None,
    docs_by: Literal["auto", "separator", "line", "file"] = "auto",
    strip: bool = False,
    invalid_utf8: Literal["replace", "ignore", "stop"] = "replace",
    on_error: Literal["stop", "skip"] = "stop",
    limit: int | str | None = None,
    tokenizer: str | os.PathLike[str] = "gpt2",
    eot: Literal["append", "prepend", "none"] = "append",
    eot_token: str | int | None = None,
    bos: str | int = "auto",
    pattern: Literal[
        "gpt2",
        "starcoder",
        "cl100k",
        "llama3",
        "nanochat",
        "qwen2",
        "qwen35",
        "o200k",
        "tekken",
        "kimi",
        "deepseek",
        "bloom",
    ]
    | None = None,
    engine: Literal[
        "auto", "kernel", "fastokens", "tiktoken", "tokenizers", "sentencepiece"
    ] = "auto",
    val_fraction: float = 0.0005,
    seed: int = 0,
    shard_tokens: int | str | None = None,
    dtype: Literal["auto", "uint16", "uint32"] = "auto",
    format: str = "raw",
    sequence_length: int | str | None = None,
    columns: str = "input_ids",
    document_index: Literal["npy", "none"] = "npy",
    provenance: bool = False,
    keep: str = "",
    overwrite: bool = False,
    workers: int | None = None,
    memory: int | str = "1GiB",
    priority: Literal["low", "normal"] = "low",
    executor: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    task_size: int | str | None = None,
    unit_bytes: int = 16777216,
    block_bytes: int = 2097152,
) -> Preview:
    """Say what `tokenize` would do with the same arguments; write nothing.

    A sample of the text is encoded, which takes about a second.

    Args:
        inputs: Files, folders, globs or URLs (https, s3, gs, hf); - is standard input.
        output: Folder to write to, or s3://BUCKET/NAME.
        files_from: Read the list of inputs from a file, one per line; - is standard input.
        null: The names in `files_from` are separated by NUL bytes, as `find -print0` writes them.
        input_format: Input format: auto (by file name), text, jsonl, csv, tsv, parquet or arrow.
        encoding: Encoding of the text: utf-8, gb18030, shift_jis, cp1252, ... or auto (detect that
            of each input).
        text_key: Field or column that holds the text; a.b is field b of field a.
        csv_delimiter: What separates the fields of CSV, such as ; or | (default: a comma, in TSV a
            tab).
        no_header: CSV begins with a record instead of column names: `text_key` is a column number,
            from 1.
        doc_separator: Separator between documents in text files (default: `<|endoftext|>` if it
            occurs near the start of the input, else one document per file).
        docs_by: How text files are divided into documents: auto, separator, line or file.
        strip: Strip white space from both ends of each document.
        invalid_utf8: What to do with invalid UTF-8: replace, ignore or stop.
        on_error: What to do with bad records and unreadable files: stop, or skip and exit with 3.
        limit: Use only about this much of the input, such as 100MB.
        tokenizer: A name (gpt2, cl100k_base, o200k_base, ...), an OpenAI model, OWNER/NAME on the
            Hugging Face Hub, or a file: tokenizer.json or its folder, .tiktoken, SentencePiece
            .model.
        eot: Where the end-of-text token of each document goes: append, prepend or none.
        eot_token: End-of-text token, as text or id (default: the one the tokenizer defines).
        bos: Token before each document: auto (the one the tokenizer adds), none, or a token as text
            or id.
        pattern: Pattern that splits text into words, for a .tiktoken file: gpt2, starcoder, cl100k,
            llama3, nanochat, qwen2, qwen35, o200k, tekken, kimi, deepseek or bloom.
        engine: Encoder: auto, kernel, fastokens, tiktoken, tokenizers or sentencepiece; all give
            the same ids.
        val_fraction: Fraction of the documents that goes to the val split; at least one of few.
        seed: Seed for the train/val split.
        shard_tokens: Tokens per shard, such as 500M (default: one file per split).
        dtype: Type of a token on disk: auto (uint16 if every id fits), uint16 or uint32.
        format: Formats to write, separated by commas: raw, megatron, llmc, torchtitan, olmo,
            datatrove, litdata, mds, parquet; raw, which the others are made from, is always
            written.
        sequence_length: Tokens per row of the formats litdata, mds and parquet (default: that of
            the format; parquet: one row per document).
        columns: Columns of the format parquet: input_ids, attention_mask, labels.
        document_index: Index of where documents start, beside the tokens: npy (a NumPy file) or
            none.
        provenance: Write where each document came from beside the tokens: its input, and its place
            there.
        keep: Fields of records to write beside the tokens, such as url,lang: one row per document
            in a parquet file.
        overwrite: Delete the output of another job in this folder.
        workers: Worker count (default: all cores, or as many workers as fit in `memory`).
        memory: Memory limit for all processes together; with `executor` ray, per task.
        priority: CPU priority: low, or normal on a dedicated machine.
        executor: local, or ray: run on all nodes of a Ray cluster; each task writes its own shards.
        ray_address: Ray cluster to use (default: the one Ray finds, else one on this machine).
        task_size: Divide the job into tasks of about this much input, such as 1GiB; each reads its
            own part of the input and writes its own shards (default: one task; with `executor` ray,
            `part` or S3 64MiB, more above 1TiB).
        unit_bytes: Text per unit, in bytes; the output is the same whatever it is.
        block_bytes: Text encoded at once, in bytes; the output is the same.

    Example:
        >>> preview = penstok.plan("corpus/*.txt", docs_by="file")
        >>> preview.documents[0].head
        'The first text.'
        >>> preview.estimate.documents
        10
    """
    values = {
        "inputs": inputs,
        "output": output,
        "files_from": files_from,
        "null": null,
        "input_format": input_format,
        "encoding": encoding,
        "text_key": text_key,
        "csv_delimiter": csv_delimiter,
        "no_header": no_header,
        "doc_separator": doc_separator,
        "docs_by": docs_by,
        "strip": strip,
        "invalid_utf8": invalid_utf8,
        "on_error": on_error,
        "limit": limit,
        "tokenizer": tokenizer,
        "eot": eot,
        "eot_token": eot_token,
        "bos": bos,
        "pattern": pattern,
        "engine": engine,
        "val_fraction": val_fraction,
        "seed": seed,
        "shard_tokens": shard_tokens,
        "dtype": dtype,
        "format": format,
        "sequence_length": sequence_length,
        "columns": columns,
        "document_index": document_index,
        "provenance": provenance,
        "keep": keep,
        "overwrite": overwrite,
        "workers": workers,
        "memory": memory,
        "priority": priority,
        "executor": executor,
        "ray_address": ray_address,
        "task_size": task_size,
        "unit_bytes": unit_bytes,
        "block_bytes": block_bytes,
    }
    return _plan(values)


def count(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tokenizer: str | Sequence[str] = "gpt2",
    *,
    files_from: str | os.PathLike[str] | None = None,
    null: bool = False,
    input_format: Literal["auto", "text", "jsonl", "csv", "tsv", "parquet", "arrow"] = "auto",
    encoding: str = "utf-8",
    text_key: str = "text",
    csv_delimiter: str | None = None,
    no_header: bool = False,
    doc_separator: str | None = None,
    docs_by: Literal["auto", "separator", "line", "file"] = "auto",
    strip: bool = False,
    invalid_utf8: Literal["replace", "ignore", "stop"] = "replace",
    on_error: Literal["stop", "skip"] = "stop",
    limit: int | str | None = None,
    eot: Literal["append", "prepend", "none"] = "append",
    eot_token: str | int | None = None,
    bos: str | int = "auto",
    pattern: Literal[
        "gpt2",
        "starcoder",
        "cl100k",
        "llama3",
        "nanochat",
        "qwen2",
        "qwen35",
        "o200k",
        "tekken",
        "kimi",
        "deepseek",
        "bloom",
    ]
    | None = None,
    engine: Literal[
        "auto", "kernel", "fastokens", "tiktoken", "tokenizers", "sentencepiece"
    ] = "auto",
    val_fraction: float = 0.0005,
    seed: int = 0,
    workers: int | None = None,
    memory: int | str = "1GiB",
    priority: Literal["low", "normal"] = "low",
    unit_bytes: int = 16777216,
    block_bytes: int = 2097152,
    sample: int | str | None = None,
    progress: bool | Callable[[Status], object] = False,
) -> CountResult:
    """Count tokens without writing any; compare tokenizers.

    The number of tokens is what `tokenize` would write with the same arguments.

    Args:
        inputs: Files, folders, globs or URLs (https, s3, gs, hf); - is standard input.
        tokenizer: One tokenizer or several, separated by commas, as for `penstok tokenize`: names
            (gpt2, o200k_base, ...), OWNER/NAME on the Hugging Face Hub, or files.
        files_from: Read the list of inputs from a file, one per line; - is standard input.
        null: The names in `files_from` are separated by NUL bytes, as `find -print0` writes them.
        input_format: Input format: auto (by file name), text, jsonl, csv, tsv, parquet or arrow.
        encoding: Encoding of the text: utf-8, gb18030, shift_jis, cp1252, ... or auto (detect that
            of each input).
        text_key: Field or column that holds the text; a.b is field b of field a.
        csv_delimiter: What separates the fields of CSV, such as ; or | (default: a comma, in TSV a
            tab).
        no_header: CSV begins with a record instead of column names: `text_key` is a column number,
            from 1.
        doc_separator: Separator between documents in text files (default: `<|endoftext|>` if it
            occurs near the start of the input, else one document per file).
        docs_by: How text files are divided into documents: auto, separator, line or file.
        strip: Strip white space from both ends of each document.
        invalid_utf8: What to do with invalid UTF-8: replace, ignore or stop.
        on_error: What to do with bad records and unreadable files: stop, or skip and exit with 3.
        limit: Use only about this much of the input, such as 100MB.
        eot: Where the end-of-text token of each document goes: append, prepend or none.
        eot_token: End-of-text token, as text or id (default: the one the tokenizer defines).
        bos: Token before each document: auto (the one the tokenizer adds), none, or a token as text
            or id.
        pattern: Pattern that splits text into words, for a .tiktoken file: gpt2, starcoder, cl100k,
            llama3, nanochat, qwen2, qwen35, o200k, tekken, kimi, deepseek or bloom.
        engine: Encoder: auto, kernel, fastokens, tiktoken, tokenizers or sentencepiece; all give
            the same ids.
        val_fraction: As for `penstok tokenize`: fraction of the documents that goes to the val
            split; at least one of few.
        seed: As for `penstok tokenize`: seed for the train/val split.
        workers: Worker count (default: all cores, or as many workers as fit in `memory`).
        memory: Memory limit for all processes together; with `executor` ray, per task.
        priority: CPU priority: low, or normal on a dedicated machine.
        unit_bytes: Text per unit, in bytes; the output is the same whatever it is.
        block_bytes: Text encoded at once, in bytes; the output is the same.
        sample: Count only about this much of the input, such as 1GB, spread evenly over all of it;
            estimate the rest, with a margin of error.
        progress: True draws a line on standard error, or a bar in a notebook, that is updated in
            place; a function is called with a `Status` a few times a second.

    Raises:
        PenstokError: If the inputs cannot be read, or no tokenizer can be used.

    Example:
        >>> counted = penstok.count("corpus/*.txt", ["gpt2", "cl100k_base"])
        >>> [each.tokens for each in counted.tokenizers]
        [40, 40]
    """
    values = {
        "inputs": inputs,
        "tokenizer": tokenizer,
        "files_from": files_from,
        "null": null,
        "input_format": input_format,
        "encoding": encoding,
        "text_key": text_key,
        "csv_delimiter": csv_delimiter,
        "no_header": no_header,
        "doc_separator": doc_separator,
        "docs_by": docs_by,
        "strip": strip,
        "invalid_utf8": invalid_utf8,
        "on_error": on_error,
        "limit": limit,
        "eot": eot,
        "eot_token": eot_token,
        "bos": bos,
        "pattern": pattern,
        "engine": engine,
        "val_fraction": val_fraction,
        "seed": seed,
        "workers": workers,
        "memory": memory,
        "priority": priority,
        "unit_bytes": unit_bytes,
        "block_bytes": block_bytes,
        "sample": sample,
    }
    return _count(values, progress)


def tokenize_part(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    part: int,
    num_parts: int,
    *,
    files_from: str | os.PathLike[str] | None = None,
    null: bool = False,
    input_format: Literal["auto", "text", "jsonl", "csv", "tsv", "parquet", "arrow"] = "auto",
    encoding: str = "utf-8",
    text_key: str = "text",
    csv_delimiter: str | None = None,
    no_header: bool = False,
    doc_separator: str | None = None,
    docs_by: Literal["auto", "separator", "line", "file"] = "auto",
    strip: bool = False,
    invalid_utf8: Literal["replace", "ignore", "stop"] = "replace",
    on_error: Literal["stop", "skip"] = "stop",
    limit: int | str | None = None,
    tokenizer: str | os.PathLike[str] = "gpt2",
    eot: Literal["append", "prepend", "none"] = "append",
    eot_token: str | int | None = None,
    bos: str | int = "auto",
    pattern: Literal[
        "gpt2",
        "starcoder",
        "cl100k",
        "llama3",
        "nanochat",
        "qwen2",
        "qwen35",
        "o200k",
        "tekken",
        "kimi",
        "deepseek",
        "bloom",
    ]
    | None = None,
    engine: Literal[
        "auto", "kernel", "fastokens", "tiktoken", "tokenizers", "sentencepiece"
    ] = "auto",
    val_fraction: float = 0.0005,
    seed: int = 0,
    shard_tokens: int | str | None = None,
    dtype: Literal["auto", "uint16", "uint32"] = "auto",
    format: str = "raw",
    sequence_length: int | str | None = None,
    columns: str = "input_ids",
    document_index: Literal["npy", "none"] = "npy",
    provenance: bool = False,
    keep: str = "",
    overwrite: bool = False,
    workers: int | None = None,
    memory: int | str = "1GiB",
    priority: Literal["low", "normal"] = "low",
    executor: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    task_size: int | str | None = None,
    unit_bytes: int = 16777216,
    block_bytes: int = 2097152,
    progress: bool | Callable[[Status], object] = False,
) -> PartOutcome:
    """Run one part of a job; call `finish` when all parts are done.

    Parts can run at the same time, on any machines that share the output.

    Args:
        inputs: Files, folders, globs or URLs (https, s3, gs, hf); - is standard input.
        output: Folder to write to, or s3://BUCKET/NAME.
        part: The number of this part, from 1.
        num_parts: The number of parts.
        files_from: Read the list of inputs from a file, one per line; - is standard input.
        null: The names in `files_from` are separated by NUL bytes, as `find -print0` writes them.
        input_format: Input format: auto (by file name), text, jsonl, csv, tsv, parquet or arrow.
        encoding: Encoding of the text: utf-8, gb18030, shift_jis, cp1252, ... or auto (detect that
            of each input).
        text_key: Field or column that holds the text; a.b is field b of field a.
        csv_delimiter: What separates the fields of CSV, such as ; or | (default: a comma, in TSV a
            tab).
        no_header: CSV begins with a record instead of column names: `text_key` is a column number,
            from 1.
        doc_separator: Separator between documents in text files (default: `<|endoftext|>` if it
            occurs near the start of the input, else one document per file).
        docs_by: How text files are divided into documents: auto, separator, line or file.
        strip: Strip white space from both ends of each document.
        invalid_utf8: What to do with invalid UTF-8: replace, ignore or stop.
        on_error: What to do with bad records and unreadable files: stop, or skip and exit with 3.
        limit: Use only about this much of the input, such as 100MB.
        tokenizer: A name (gpt2, cl100k_base, o200k_base, ...), an OpenAI model, OWNER/NAME on the
            Hugging Face Hub, or a file: tokenizer.json or its folder, .tiktoken, SentencePiece
            .model.
        eot: Where the end-of-text token of each document goes: append, prepend or none.
        eot_token: End-of-text token, as text or id (default: the one the tokenizer defines).
        bos: Token before each document: auto (the one the tokenizer adds), none, or a token as text
            or id.
        pattern: Pattern that splits text into words, for a .tiktoken file: gpt2, starcoder, cl100k,
            llama3, nanochat, qwen2, qwen35, o200k, tekken, kimi, deepseek or bloom.
        engine: Encoder: auto, kernel, fastokens, tiktoken, tokenizers or sentencepiece; all give
            the same ids.
        val_fraction: Fraction of the documents that goes to the val split; at least one of few.
        seed: Seed for the train/val split.
        shard_tokens: Tokens per shard, such as 500M (default: one file per split).
        dtype: Type of a token on disk: auto (uint16 if every id fits), uint16 or uint32.
        format: Formats to write, separated by commas: raw, megatron, llmc, torchtitan, olmo,
            datatrove, litdata, mds, parquet; raw, which the others are made from, is always
            written.
        sequence_length: Tokens per row of the formats litdata, mds and parquet (default: that of
            the format; parquet: one row per document).
        columns: Columns of the format parquet: input_ids, attention_mask, labels.
        document_index: Index of where documents start, beside the tokens: npy (a NumPy file) or
            none.
        provenance: Write where each document came from beside the tokens: its input, and its place
            there.
        keep: Fields of records to write beside the tokens, such as url,lang: one row per document
            in a parquet file.
        overwrite: Delete the output of another job in this folder.
        workers: Worker count (default: all cores, or as many workers as fit in `memory`).
        memory: Memory limit for all processes together; with `executor` ray, per task.
        priority: CPU priority: low, or normal on a dedicated machine.
        executor: local, or ray: run on all nodes of a Ray cluster; each task writes its own shards.
        ray_address: Ray cluster to use (default: the one Ray finds, else one on this machine).
        task_size: Divide the job into tasks of about this much input, such as 1GiB; each reads its
            own part of the input and writes its own shards (default: one task; with `executor` ray,
            `part` or S3 64MiB, more above 1TiB).
        unit_bytes: Text per unit, in bytes; the output is the same whatever it is.
        block_bytes: Text encoded at once, in bytes; the output is the same.
        progress: True draws a line on standard error, or a bar in a notebook, that is updated in
            place; a function is called with a `Status` a few times a second.

    Example:
        >>> for part in (1, 2):
        ...     _ = penstok.tokenize_part("corpus/*.txt", "shards", part, 2)
        >>> penstok.finish("shards").counts["documents"]
        10
    """
    values = {
        "inputs": inputs,
        "output": output,
        "files_from": files_from,
        "null": null,
        "input_format": input_format,
        "encoding": encoding,
        "text_key": text_key,
        "csv_delimiter": csv_delimiter,
        "no_header": no_header,
        "doc_separator": doc_separator,
        "docs_by": docs_by,
        "strip": strip,
        "invalid_utf8": invalid_utf8,
        "on_error": on_error,
        "limit": limit,
        "tokenizer": tokenizer,
        "eot": eot,
        "eot_token": eot_token,
        "bos": bos,
        "pattern": pattern,
        "engine": engine,
        "val_fraction": val_fraction,
        "seed": seed,
        "shard_tokens": shard_tokens,
        "dtype": dtype,
        "format": format,
        "sequence_length": sequence_length,
        "columns": columns,
        "document_index": document_index,
        "provenance": provenance,
        "keep": keep,
        "overwrite": overwrite,
        "workers": workers,
        "memory": memory,
        "priority": priority,
        "executor": executor,
        "ray_address": ray_address,
        "task_size": task_size,
        "unit_bytes": unit_bytes,
        "block_bytes": block_bytes,
    }
    return _tokenize_part(values, part, num_parts, progress)


def finish(
    output: str | os.PathLike[str],
) -> Manifest:
    """Finish a job whose parts are all done; return the manifest.

    Args:
        output: The output that all parts were written to.

    Raises:
        DamageError: If parts are missing; it names them.
    """
    return _finish(output)


def info(
    output: str | os.PathLike[str],
) -> Manifest:
    """Return the manifest of a finished output: its counts, settings, inputs and files.

    Args:
        output: A finished output: a folder, or s3://BUCKET/NAME.

    Raises:
        DamageError: If there is no finished job.

    Example:
        >>> penstok.info("tokens").tokenizer.name
        'gpt2'
    """
    return _info(output)


def show(
    output: str | os.PathLike[str],
    *,
    split: Literal["train", "val"] = "train",
    at: int = 0,
    document: int | None = None,
    tokens: int | None = None,
) -> str:
    """Return tokens of a finished output as text.

    For ids, use `open`.

    Args:
        output: A finished output: a folder, or s3://BUCKET/NAME.
        split: Split to read: train or val.
        at: First token to print, counted from 0.
        document: Print this document of the split, counted from 0.
        tokens: How many tokens to print at most (default: 200, or the whole document).

    Example:
        >>> penstok.show("tokens", at=0, tokens=3)
        'The first text'
    """
    values = {
        "split": split,
        "at": at,
        "document": document,
        "tokens": tokens,
    }
    return _show(output, values)


def report(
    output: str | os.PathLike[str],
    *,
    page: str | os.PathLike[str] = "report.html",
    overwrite: bool = False,
) -> WrittenReport:
    """Write one HTML page about a finished output; say where it is.

    The page has lengths, inputs, vocabulary, the run and documents to read. It loads nothing from
    the network.

    Args:
        output: A finished output: a folder, or s3://BUCKET/NAME.
        page: Page to write.
        overwrite: Replace the file even if it is not a report.

    Raises:
        DamageError: If there is no finished job, or it is damaged.

    Example:
        >>> penstok.report("tokens", page="report.html").documents
        10
    """
    values = {
        "page": page,
        "overwrite": overwrite,
    }
    return _report(output, values)


def find(
    output: str | os.PathLike[str],
    pattern: str,
) -> Iterator[FoundDocument]:
    """Return the documents of a finished output that came from an input, as an iterator.

    The output must have been made with `provenance=True`.

    Args:
        output: A finished output: a folder, or s3://BUCKET/NAME.
        pattern: Name of an input as the manifest has it, or a glob pattern.

    Raises:
        UsageError: If the output has no such input, or does not say where documents are from.

    Example:
        >>> manifest = penstok.tokenize("corpus/*.txt", "traced", provenance=True)
        >>> next(penstok.find("traced", "corpus/*.txt")).origin.where
        'corpus/a.txt, byte 0'
    """
    return _find(output, pattern)


def verify(
    output: str | os.PathLike[str],
    *,
    full: bool = False,
    source: bool = False,
    seed: int | None = None,
    workers: int | None = None,
    memory: int | str = "1GiB",
    repair: bool = False,
    progress: bool | Callable[[Status], object] = False,
) -> Report:
    """Check a finished output for damage; see `report.is_whole` and `report.findings`.

    Args:
        output: A finished output: a folder, or s3://BUCKET/NAME.
        full: Read every token, not a sample; with `source`, re-encode every document.
        source: Re-encode documents of the inputs with the reference tokenizer, and compare.
        seed: Seed of the sample, to repeat an earlier check (default: random).
        workers: Worker count (default: all cores).
        memory: Memory limit for `source` and `repair`.
        repair: Re-encode damaged units from the inputs; only for an output in a folder.
        progress: True draws a line on standard error, or a bar in a notebook, that is updated in
            place; a function is called with a `Status` a few times a second.

    Raises:
        DamageError: If there is no finished job.

    Example:
        >>> penstok.verify("tokens", full=True).is_whole
        True
    """
    values = {
        "full": full,
        "source": source,
        "seed": seed,
        "workers": workers,
        "memory": memory,
    }
    return _verify(output, values, repair, progress)


def convert(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    from_: Literal["raw", "megatron", "llmc", "olmo", "datatrove"] | None = None,
    val: str | Sequence[str] = (),
    dtype: Literal["uint16", "uint32"] | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    eot: Literal["append", "prepend", "none"] | None = None,
    eot_token: str | int | None = None,
    format: str = "raw",
    output: str | os.PathLike[str] | None = None,
    sequence_length: int | str | None = None,
    columns: str = "input_ids",
    shard_tokens: int | str | None = None,
) -> Manifest:
    """Write other formats of a finished output, or import files of another program.

    The same call again continues a conversion that was interrupted, and does nothing if it is
    finished.

    Args:
        inputs: A finished output; with `from`, files or folders of another program.
        from_: Import files that another program wrote: raw, megatron, llmc, olmo, datatrove.
        val: With `from`: files of the val split; repeat the flag for several.
        dtype: With `from`: the type of a token in files that do not say it: uint16 or uint32.
        tokenizer: With `from`: the tokenizer that made the tokens, as for `penstok tokenize`.
        eot: With `from`: where the end-of-text tokens are: append (after each document), prepend or
            none (default: as the format has them).
        eot_token: With `from`: end-of-text token, as text or id (default: the one the tokenizer
            defines).
        format: Formats to write, separated by commas, as for `penstok tokenize`.
        output: Folder to write to (default: beside the tokens; with `from`: required).
        sequence_length: Tokens per row of the formats litdata, mds and parquet (default: that of
            the format; parquet: one row per document).
        columns: Columns of the format parquet: input_ids, attention_mask, labels.
        shard_tokens: Tokens per file of formats with files of their own (default: that of the
            format).

    Raises:
        DamageError: If there is no finished job, or it has no document index.

    Example:
        >>> penstok.convert("tokens", format="megatron").formats[0].files[0].path
        'train.idx'
    """
    values = {
        "inputs": inputs,
        "from_": from_,
        "val": val,
        "dtype": dtype,
        "tokenizer": tokenizer,
        "eot": eot,
        "eot_token": eot_token,
        "format": format,
        "output": output,
        "sequence_length": sequence_length,
        "columns": columns,
        "shard_tokens": shard_tokens,
    }
    return _convert(values)


def train_tokenizer(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] = "tokenizer.json",
    *,
    files_from: str | os.PathLike[str] | None = None,
    null: bool = False,
    input_format: Literal["auto", "text", "jsonl", "csv", "tsv", "parquet", "arrow"] = "auto",
    encoding: str = "utf-8",
    text_key: str = "text",
    csv_delimiter: str | None = None,
    no_header: bool = False,
    doc_separator: str | None = None,
    docs_by: Literal["auto", "separator", "line", "file"] = "auto",
    strip: bool = False,
    invalid_utf8: Literal["replace", "ignore", "stop"] = "replace",
    on_error: Literal["stop", "skip"] = "stop",
    memory: int | str = "4GiB",
    priority: Literal["low", "normal"] = "low",
    sample: int | str = "100MB",
    vocab_size: int | str = 32000,
    pattern: Literal[
        "gpt2",
        "starcoder",
        "cl100k",
        "llama3",
        "nanochat",
        "qwen2",
        "qwen35",
        "o200k",
        "tekken",
        "kimi",
        "deepseek",
        "bloom",
    ] = "cl100k",
    special: str | Sequence[str] = "<|endoftext|>",
    overwrite: bool = False,
    progress: bool | Callable[[Status], object] = False,
) -> TrainingResult:
    """Train a byte-level BPE tokenizer on a sample of the corpus, and write it to a file.

    It needs `pip install 'penstok[hf]'`.

    Args:
        inputs: Files, folders, globs or URLs (https, s3, gs, hf); - is standard input.
        output: File to write.
        files_from: Read the list of inputs from a file, one per line; - is standard input.
        null: The names in `files_from` are separated by NUL bytes, as `find -print0` writes them.
        input_format: Input format: auto (by file name), text, jsonl, csv, tsv, parquet or arrow.
        encoding: Encoding of the text: utf-8, gb18030, shift_jis, cp1252, ... or auto (detect that
            of each input).
        text_key: Field or column that holds the text; a.b is field b of field a.
        csv_delimiter: What separates the fields of CSV, such as ; or | (default: a comma, in TSV a
            tab).
        no_header: CSV begins with a record instead of column names: `text_key` is a column number,
            from 1.
        doc_separator: Separator between documents in text files (default: `<|endoftext|>` if it
            occurs near the start of the input, else one document per file).
        docs_by: How text files are divided into documents: auto, separator, line or file.
        strip: Strip white space from both ends of each document.
        invalid_utf8: What to do with invalid UTF-8: replace, ignore or stop.
        on_error: What to do with bad records and unreadable files: stop, or skip and exit with 3.
        memory: Memory limit for all processes together; training stops if it needs more.
        priority: CPU priority: low, or normal on a dedicated machine.
        sample: How much text to train on, taken evenly from all inputs.
        vocab_size: Vocabulary size, special tokens included.
        pattern: Pattern that splits text into words: gpt2, starcoder, cl100k, llama3, nanochat,
            qwen2, qwen35, o200k, tekken, kimi, deepseek or bloom.
        special: Special token; repeat the flag for several. The first one is the end-of-text token.
        overwrite: Replace the file if it exists.
        progress: True draws a line on standard error, or a bar in a notebook, that is updated in
            place; a function is called with a `Status` a few times a second.

    Example:
        >>> trained = penstok.train_tokenizer("corpus/*.txt", "my.json", vocab_size=300)
        >>> trained.output.name
        'my.json'
    """
    values = {
        "inputs": inputs,
        "output": output,
        "files_from": files_from,
        "null": null,
        "input_format": input_format,
        "encoding": encoding,
        "text_key": text_key,
        "csv_delimiter": csv_delimiter,
        "no_header": no_header,
        "doc_separator": doc_separator,
        "docs_by": docs_by,
        "strip": strip,
        "invalid_utf8": invalid_utf8,
        "on_error": on_error,
        "memory": memory,
        "priority": priority,
        "sample": sample,
        "vocab_size": vocab_size,
        "pattern": pattern,
        "special": special,
        "overwrite": overwrite,
    }
    return _train_tokenizer(values, progress)


def open(  # noqa: A001 reads as `penstok.open`
    output: str | os.PathLike[str],
) -> Dataset:
    """Open a finished output: `penstok.open("tokens").train` is a read-only memory map.

    For an output in an object store, such as `s3://bucket/run`, it is a `RemoteTokens`, where each
    slice is a request.

    Args:
        output: A finished output: a folder, or s3://BUCKET/NAME.

    Raises:
        DamageError: If there is no finished job.

    Example:
        >>> tokens = penstok.open("tokens")
        >>> tokens.train[:3].tolist()
        [464, 717, 2420]
        >>> tokens.decode(tokens.train[:3])
        'The first text'
    """
    return _open(output)


# </generated>


def _tokenize(values: Mapping[str, Any], progress: ShowProgress) -> Manifest:
    """Run a job."""
    from penstok.jobs.run import run_job
    from penstok.jobs.warnings import find_warnings

    outcome = run_job(_job(values), _progress(progress, "tokenizing"))
    if outcome.is_new:
        _warn([*_skipped(outcome), *find_warnings(outcome.manifest, outcome)])
    return outcome.manifest


def _plan(values: Mapping[str, Any]) -> Preview:
    """Say what a job would do."""
    from penstok.jobs.preview import make_preview

    return make_preview(_job(values))


def _count(values: Mapping[str, Any], progress: ShowProgress) -> CountResult:
    """Count tokens."""
    from penstok.counting.count import count_tokens, find_warnings
    from penstok.counting.settings import TEXT_SETTINGS, CountSettings
    from penstok.jobs.definition import make_fields

    fields = make_fields(TEXT_SETTINGS, values) | _fields(CountSettings, values)
    result = count_tokens(CountSettings.from_fields(fields), _progress(progress, "counting"))
    _warn(find_warnings(result))
    return result


def _tokenize_part(
    values: Mapping[str, Any], part: int, num_parts: int, progress: ShowProgress
) -> PartOutcome:
    """Run one part of a job."""
    from penstok.jobs.definition import INTEGER, convert_argument
    from penstok.jobs.run import run_part

    which = convert_argument("part", INTEGER, part)
    settings = _job(values, part=(which, convert_argument("num_parts", INTEGER, num_parts)))
    return run_part(settings, _progress(progress, "tokenizing"))


def _finish(output: Path) -> Manifest:
    """Commit a job that was run in parts."""
    from penstok.jobs.run import finish_job
    from penstok.jobs.warnings import find_warnings

    manifest, is_new = finish_job(str(_output(output)))
    if is_new:
        _warn(find_warnings(manifest))
    return manifest


def _info(output: Path) -> Manifest:
    """Read the manifest."""
    return _open(output).manifest


def _show(output: Path, values: Mapping[str, Any]) -> str:
    """Read some tokens as text."""
    from penstok.data.settings import ShowSettings

    settings = ShowSettings(**_fields(ShowSettings, values))
    dataset = _open(output)
    return dataset.decode_stored(dataset.read_shown(settings))


def _report(output: Path, values: Mapping[str, Any]) -> WrittenReport:
    """Write a page about an output."""
    from penstok.reports.report import write_report
    from penstok.reports.settings import ReportSettings

    fields = _fields(ReportSettings, values)
    return write_report(ReportSettings(output=_output(output), **fields))


def _find(output: Path, pattern: str) -> Iterator[FoundDocument]:
    """Find the documents that came from an input."""
    from penstok.data.origins import find_documents
    from penstok.jobs.definition import TEXT, convert_argument

    return find_documents(_output(output), convert_argument("pattern", TEXT, pattern))


def _verify(
    output: Path, values: Mapping[str, Any], repair: object, progress: ShowProgress
) -> Report:
    """Check an output, or repair it."""
    from penstok.verification.repair import repair_output
    from penstok.verification.settings import REPAIR, VerifySettings
    from penstok.verification.verify import verify_output

    fields = _fields(VerifySettings, values)
    settings = VerifySettings(output=_output(output), **fields)
    run = repair_output if REPAIR.convert(repair, REPAIR.flag) else verify_output
    return run(settings, _progress(progress, "verifying"))


def _convert(values: Mapping[str, Any]) -> Manifest:
    """Convert an output, or import files."""
    from penstok.conversion.convert import convert_output
    from penstok.conversion.imports import import_tokens
    from penstok.conversion.settings import ConvertSettings
    from penstok.jobs.progress import SilentProgress

    settings = ConvertSettings(**_fields(ConvertSettings, values))
    convert_it = convert_output if settings.from_ is None else import_tokens
    return convert_it(settings, SilentProgress()).manifest


def _train_tokenizer(values: Mapping[str, Any], progress: ShowProgress) -> TrainingResult:
    """Train a tokenizer."""
    from penstok.jobs.definition import make_fields
    from penstok.training import train
    from penstok.training.settings import INPUT_SETTINGS, TrainingSettings

    fields = make_fields(INPUT_SETTINGS, values) | _fields(TrainingSettings, values)
    settings = TrainingSettings.from_fields(fields)
    trained = train.train_tokenizer(settings, _progress(progress, "training"))
    _warn(train.find_warnings(settings, trained))
    return trained


def _skipped(outcome: Outcome) -> list[str]:
    """Say what was skipped; the command line has an exit code for it."""
    num_inputs = sum(1 for record in outcome.manifest.inputs if record.reason is not None)
    num_records = outcome.manifest.counts["skipped_records"] - num_inputs
    numbers = {"record": num_records, "input": num_inputs}
    return [
        f"{plural(number, noun)} skipped, see `skipped.jsonl`"
        for noun, number in numbers.items()
        if number
    ]


def _warn(messages: Iterable[str]) -> None:
    """Issue warnings at the line that called a function of this module."""
    for message in messages:
        warnings.warn(message, PenstokWarning, stacklevel=4)


def _open(output: Path) -> Dataset:
    """Open a finished output."""
    from penstok.data.dataset import open_dataset

    return open_dataset(_output(output))


def _output(output: Path) -> OutputPath:
    from penstok.jobs.definition import PATH, convert_argument
    from penstok.storage.object_paths import ObjectPath, output_path

    # What an earlier call returned, such as `report.folder`, is passed on.
    if isinstance(output, ObjectPath):
        return output
    return output_path(convert_argument("output", PATH, output))


def _job(values: Mapping[str, Any], part: tuple[int, int] | None = None) -> JobSettings:
    from penstok.jobs.settings import JobSettings

    return JobSettings(**_fields(JobSettings, values), part=part)


def _fields(record: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert keywords to the fields of a settings record."""
    from penstok.jobs.definition import make_fields, settings_of

    return make_fields(settings_of(record), values)


def _progress(wanted: ShowProgress, title: str) -> Progress:
    from penstok.jobs.progress_line import make_progress

    return make_progress(wanted, title)
