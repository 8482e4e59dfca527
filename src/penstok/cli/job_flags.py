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
        "INPUT",
        "Files, folders, globs or URLs (https, s3, gs, hf); - is standard input.",
        many=True,
    ),
    flag(
        "Input",
        "--files-from FILE",
        "Read the list of inputs from a file, one per line; - is standard input.",
    ),
    flag(
        "Input",
        "--input-format FORMAT",
        "Input format: auto (by file name), text, jsonl, csv, tsv, parquet or arrow.",
        default="auto",
    ),
    flag(
        "Input",
        "--encoding NAME",
        "Encoding of the text: utf-8, gb18030, shift_jis, cp1252, ... or auto (detect that of each "
        "input).",
        default="utf-8",
    ),
    flag(
        "Input",
        "--text-key NAME",
        "Field or column that holds the text; a.b is field b of field a.",
        default="text",
    ),
    flag(
        "Input",
        "--doc-separator TEXT",
        r"Separator between documents in text files; \n, \t, \r and \\ are escapes (default: "
        r"<|endoftext|> if it occurs near the start of the input, else one document per "
        r"file).",
        parse=unescape,
    ),
    flag(
        "Input",
        "--docs-by RULE",
        "How text files are divided into documents: auto, separator, line or file.",
        default="auto",
    ),
    switch("Input", "--strip", "Strip white space from both ends of each document."),
    flag(
        "Input",
        "--invalid-utf8 ACTION",
        "What to do with invalid UTF-8: replace, ignore or stop.",
        default="replace",
    ),
    flag(
        "Input",
        "--on-error ACTION",
        "What to do with bad records and unreadable files: stop, or skip and exit with 3.",
        default="stop",
    ),
)

PRIORITY = flag(
    "Run", "--priority LEVEL", "CPU priority: low, or normal on a dedicated machine.", default="low"
)

RUN_FLAGS = (JSON, QUIET, VERBOSE, NO_PROGRESS)

JOB_FLAGS = (
    *INPUT_FLAGS,
    flag(
        "Input",
        "--limit SIZE limit_bytes",
        "Use only about this much of the input, such as 100MB.",
        parse=parse_bytes,
    ),
    flag(
        "Tokenizer",
        "-t --tokenizer TOKENIZER",
        "A name (gpt2, cl100k_base, o200k_base, ...), an OpenAI model, OWNER/NAME on the "
        "Hugging Face Hub, or a file: tokenizer.json or its folder, .tiktoken, SentencePiece "
        ".model.",
        default="gpt2",
    ),
    flag(
        "Tokenizer",
        "--eot WHERE",
        "Where the end-of-text token of each document goes: append, prepend or none.",
        default="append",
    ),
    flag(
        "Tokenizer",
        "--eot-token TOKEN",
        "End-of-text token, as text or id (default: the one the tokenizer defines).",
    ),
    flag(
        "Tokenizer",
        "--bos TOKEN",
        "Token before each document: auto (the one the tokenizer adds), none, or a token as "
        "text or id.",
        default="auto",
    ),
    flag(
        "Tokenizer",
        "--pattern NAME",
        f"Pattern that splits text into words, for a .tiktoken file: {PATTERNS}.",
    ),
    flag(
        "Tokenizer",
        "--engine NAME",
        "Encoder: auto, kernel, fastokens, tiktoken, tokenizers or sentencepiece; all give "
        "the same ids.",
        default="auto",
    ),
    flag("Output", "-o --output OUT", "Folder to write to, or s3://BUCKET/NAME.", default="tokens"),
    flag(
        "Output",
        "--val-fraction FRACTION",
        "Fraction of the text that goes to the val split.",
        default=0.0005,
        parse=parse_number,
    ),
    flag(
        "Output", "--seed NUMBER", "Seed for the train/val split.", default=0, parse=parse_integer
    ),
    flag(
        "Output",
        "--shard-tokens COUNT",
        "Tokens per shard, such as 500M (default: one file per split).",
        parse=parse_count,
    ),
    flag(
        "Output",
        "--dtype TYPE",
        "Type of a token on disk: auto (uint16 if every id fits), uint16 or uint32.",
        default="auto",
    ),
    switch("Output", "--overwrite", "Delete the output of another job in this folder."),
    flag(
        "Run",
        "-j --workers COUNT",
        "Worker count (default: all cores, or as many workers as fit in --memory).",
        parse=parse_integer,
    ),
    flag(
        "Run",
        "--memory SIZE memory_bytes",
        "Memory limit for all processes together; with --executor ray, per task.",
        default="1GiB",
        parse=parse_bytes,
    ),
    PRIORITY,
    *RUN_FLAGS,
    flag(
        "Cluster",
        "--executor NAME",
        "local, or ray: run on all nodes of a Ray cluster; each task writes its own shards.",
        default="local",
    ),
    flag(
        "Cluster",
        "--ray-address ADDRESS",
        "Ray cluster to use (default: the one Ray finds, else one on this machine).",
    ),
    flag(
        "Cluster",
        "--part K/N",
        "Run only part K of N, such as 3/16; run `penstok finish` when all parts are done.",
    ),
    flag(
        "Cluster",
        "--task-size SIZE task_bytes",
        "Input per task, such as 1GiB (default: 64MiB, more if the input is very large).",
        parse=parse_bytes,
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
