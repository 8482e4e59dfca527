"""The flags that say what a job reads, how it encodes and what it writes, and their settings.

It checks single values; how they fit together is checked by `JobSettings`, whose fields the flags
are named after. `tokenize` and `plan` take all of them, `train-tokenizer` those of its input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstok.cli.flags import JSON, NO_PROGRESS, QUIET, VERBOSE, argument, flag, switch, unescape
from penstok.quantities import parse_bytes, parse_count, parse_integer, parse_number

if TYPE_CHECKING:
    from penstok.jobs.settings import JobSettings

__all__ = ["INPUT_FLAGS", "JOB_FLAGS", "PRIORITY", "RUN_FLAGS", "make_job_settings"]

PATTERNS = "gpt2, cl100k, llama3, qwen2 or o200k"

INPUT_FLAGS = (
    argument(
        "inputs",
        metavar="INPUT",
        text="Files, folders, globs or URLs (https, s3, gs, hf); - is standard input.",
        many=True,
    ),
    flag(
        "--files-from",
        group="Input",
        metavar="FILE",
        text="Read the list of inputs from a file, one per line; - is standard input.",
    ),
    flag(
        "--input-format",
        group="Input",
        metavar="FORMAT",
        default="auto",
        text="Input format: auto (by file name), text, jsonl, csv, tsv, parquet or arrow.",
    ),
    flag(
        "--text-key",
        group="Input",
        metavar="NAME",
        default="text",
        text="Field or column that holds the text; a.b is field b of field a.",
    ),
    flag(
        "--doc-separator",
        group="Input",
        metavar="TEXT",
        parse=unescape,
        text=r"Separator between documents in text files; \n, \t, \r and \\ are escapes (default: "
        "<|endoftext|> if it occurs near the start of the input, else one document per file).",
    ),
    flag(
        "--docs-by",
        group="Input",
        metavar="RULE",
        default="auto",
        text="How text files are divided into documents: auto, separator, line or file.",
    ),
    switch("--strip", group="Input", text="Strip white space from both ends of each document."),
    flag(
        "--invalid-utf8",
        group="Input",
        metavar="ACTION",
        default="replace",
        text="What to do with invalid UTF-8: replace, ignore or stop.",
    ),
    flag(
        "--on-error",
        group="Input",
        metavar="ACTION",
        default="stop",
        text="What to do with bad records and unreadable files: stop, or skip and exit with 3.",
    ),
)

PRIORITY = flag(
    "--priority",
    group="Run",
    metavar="LEVEL",
    default="low",
    text="CPU priority: low, or normal on a dedicated machine.",
)

RUN_FLAGS = (JSON, QUIET, VERBOSE, NO_PROGRESS)

JOB_FLAGS = (
    *INPUT_FLAGS,
    flag(
        "--limit",
        "limit_bytes",
        group="Input",
        metavar="SIZE",
        parse=parse_bytes,
        text="Use only about this much of the input, such as 100MB.",
    ),
    flag(
        "-t",
        "--tokenizer",
        group="Tokenizer",
        metavar="TOKENIZER",
        default="gpt2",
        text="A name (gpt2, cl100k_base, o200k_base, ...), an OpenAI model, OWNER/NAME on the "
        "Hugging Face Hub, or a file: tokenizer.json or its folder, .tiktoken, SentencePiece "
        ".model.",
    ),
    flag(
        "--eot",
        group="Tokenizer",
        metavar="WHERE",
        default="append",
        text="Where the end-of-text token of each document goes: append, prepend or none.",
    ),
    flag(
        "--eot-token",
        group="Tokenizer",
        metavar="TOKEN",
        text="End-of-text token, as text or id (default: the one the tokenizer defines).",
    ),
    flag(
        "--bos",
        group="Tokenizer",
        metavar="TOKEN",
        default="auto",
        text="Token before each document: auto (the one the tokenizer adds), none, or a token as "
        "text or id.",
    ),
    flag(
        "--pattern",
        group="Tokenizer",
        metavar="NAME",
        text=f"Pattern that splits text into words, for a .tiktoken file: {PATTERNS}.",
    ),
    flag(
        "--engine",
        group="Tokenizer",
        metavar="NAME",
        default="auto",
        text="Encoder: auto, kernel, fastokens, tiktoken, tokenizers or sentencepiece; all give "
        "the same ids.",
    ),
    flag(
        "-o",
        "--output",
        group="Output",
        metavar="OUT",
        default="tokens",
        text="Folder to write to, or s3://BUCKET/NAME.",
    ),
    flag(
        "--val-fraction",
        group="Output",
        metavar="FRACTION",
        default=0.0005,
        parse=parse_number,
        text="Fraction of the text that goes to the val split.",
    ),
    flag(
        "--seed",
        group="Output",
        metavar="NUMBER",
        default=0,
        parse=parse_integer,
        text="Seed for the train/val split.",
    ),
    flag(
        "--shard-tokens",
        group="Output",
        metavar="COUNT",
        parse=parse_count,
        text="Tokens per shard, such as 500M (default: one file per split).",
    ),
    flag(
        "--dtype",
        group="Output",
        metavar="TYPE",
        default="auto",
        text="Type of a token on disk: auto (uint16 if every id fits), uint16 or uint32.",
    ),
    switch("--overwrite", group="Output", text="Delete the output of another job in this folder."),
    flag(
        "-j",
        "--workers",
        group="Run",
        metavar="COUNT",
        parse=parse_integer,
        text="Worker count (default: all cores, or as many workers as fit in --memory).",
    ),
    flag(
        "--memory",
        "memory_bytes",
        group="Run",
        metavar="SIZE",
        default="1GiB",
        parse=parse_bytes,
        text="Memory limit for all processes together; with --executor ray, per task.",
    ),
    PRIORITY,
    *RUN_FLAGS,
    flag(
        "--executor",
        group="Cluster",
        metavar="NAME",
        default="local",
        text="local, or ray: run on all nodes of a Ray cluster; each task writes its own shards.",
    ),
    flag(
        "--ray-address",
        group="Cluster",
        metavar="ADDRESS",
        text="Ray cluster to use (default: the one Ray finds, else one on this machine).",
    ),
    flag(
        "--part",
        group="Cluster",
        metavar="K/N",
        text="Run only part K of N, such as 3/16; run `penstok finish` when all parts are done.",
    ),
    flag(
        "--task-size",
        "task_bytes",
        group="Cluster",
        metavar="SIZE",
        parse=parse_bytes,
        text="Input per task, such as 1GiB (default: 64MiB, more if the input is very large).",
    ),
)


def make_job_settings(values: dict[str, Any]) -> JobSettings:
    """Make the settings from the values of flags, by name; those not given keep their default."""
    from penstok.inputs.discovery import read_list
    from penstok.jobs.settings import JobSettings, parse_output, parse_part

    fields = dict(values)
    listed = fields.pop("files_from")
    fields["inputs"] = (*fields["inputs"], *(read_list(listed) if listed else ()))
    if "output" in fields:
        fields["output"] = parse_output(fields["output"])
    if fields.get("part") is not None:
        fields["part"] = parse_part(fields["part"])
    return JobSettings(**fields)
