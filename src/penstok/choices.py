"""The words that a setting can be set to, where there are only a few.

It imports nothing, so that the command line can list them at once. `types` and the settings of all
commands use these; the text of each flag says what its words mean.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = [
    "DocsBy",
    "DocumentIndex",
    "Dtype",
    "EngineChoice",
    "EotPosition",
    "ExecutorChoice",
    "FormatChoice",
    "FormatName",
    "ImportName",
    "InputFormat",
    "InvalidUtf8",
    "OnError",
    "PatternName",
    "Priority",
    "Split",
]

Split: TypeAlias = Literal["train", "val"]
EotPosition: TypeAlias = Literal["append", "prepend", "none"]
InvalidUtf8: TypeAlias = Literal["replace", "ignore", "stop"]
InputFormat: TypeAlias = Literal["text", "jsonl", "csv", "tsv", "parquet", "arrow"]
FormatChoice: TypeAlias = Literal["auto", "text", "jsonl", "csv", "tsv", "parquet", "arrow"]
OnError: TypeAlias = Literal["stop", "skip"]
Priority: TypeAlias = Literal["low", "normal"]
DocsBy: TypeAlias = Literal["auto", "separator", "line", "file"]
DocumentIndex: TypeAlias = Literal["npy", "none"]
Dtype: TypeAlias = Literal["auto", "uint16", "uint32"]
ExecutorChoice: TypeAlias = Literal["local", "ray"]
# A test compares these with the registry of output formats.
FormatName: TypeAlias = Literal[
    "raw",
    "megatron",
    "llmc",
    "torchtitan",
    "olmo",
    "datatrove",
    "litdata",
    "mds",
    "parquet",
]
# A test compares these with the formats that can be imported.
ImportName: TypeAlias = Literal["raw", "megatron", "llmc", "olmo", "datatrove"]
# A test compares these with the engines' registry.
EngineChoice: TypeAlias = Literal[
    "auto", "kernel", "fastokens", "tiktoken", "tokenizers", "sentencepiece"
]
# A test compares these with the patterns that `tokenizers` knows.
PatternName: TypeAlias = Literal[
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
