"""`penstok tokenize`: the main job."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstok.cli._report import errors_reported, say

if TYPE_CHECKING:
    from penstok.jobs.progress import Progress
    from penstok.jobs.settings import JobSettings

__all__ = ["choose_progress", "tokenize", "unescape"]

_INPUT, _TOKENIZER, _OUTPUT, _RUN, _CLUSTER = "Input", "Tokenizer", "Output", "Run", "Cluster"
_EXIT_SKIPPED = 3


def _option(*names: str, panel: str, text: str) -> Any:
    flag = names[-1] if names[-1].startswith("--") else names[0]
    variable = "PENSTOK_" + flag.removeprefix("--").replace("-", "_").upper()
    return typer.Option(
        *names, help=text, rich_help_panel=panel, envvar=variable, show_envvar=False
    )


def tokenize(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INPUT...]",
            help="Files, folders, globs, URLs (https, s3, gs, hf); - is standard input.",
            show_default=False,
        ),
    ] = None,
    files_from: Annotated[
        str | None,
        _option(
            "--files-from",
            panel=_INPUT,
            text="File with inputs, one a line; - reads the list from standard input.",
        ),
    ] = None,
    output: Annotated[
        str,
        _option("-o", "--output", panel=_OUTPUT, text="Folder to write to, or s3://BUCKET/NAME."),
    ] = "tokens",
    tokenizer: Annotated[
        str,
        _option(
            "-t",
            "--tokenizer",
            panel=_TOKENIZER,
            text="gpt2, cl100k_base, o200k_base ..., a model of OpenAI's, owner/name on the hub, "
            "or a file: tokenizer.json (or its folder), .tiktoken, SentencePiece .model.",
        ),
    ] = "gpt2",
    eot_token: Annotated[
        str | None,
        _option(
            "--eot-token",
            panel=_TOKENIZER,
            text="Text or id of the end-of-text token. Default: what the tokenizer says.",
        ),
    ] = None,
    bos: Annotated[
        str,
        _option(
            "--bos",
            panel=_TOKENIZER,
            text="What begins a document: auto (as the tokenizer says), none, or a token's text "
            "or id.",
        ),
    ] = "auto",
    pattern: Annotated[
        str | None,
        _option(
            "--pattern",
            panel=_TOKENIZER,
            text="What divides text before merging, for a .tiktoken file: "
            "gpt2, cl100k, llama3, qwen2 or o200k.",
        ),
    ] = None,
    engine: Annotated[
        str,
        _option(
            "--engine",
            panel=_TOKENIZER,
            text="auto, kernel, fastokens, tiktoken, tokenizers or sentencepiece; same ids.",
        ),
    ] = "auto",
    eot: Annotated[
        str,
        _option("--eot", panel=_TOKENIZER, text="End-of-text id: append, prepend or none."),
    ] = "append",
    input_format: Annotated[
        str,
        _option(
            "--input-format",
            panel=_INPUT,
            text="auto (by name), text, jsonl, csv, tsv, parquet or arrow: how inputs are read.",
        ),
    ] = "auto",
    text_key: Annotated[
        str,
        _option(
            "--text-key",
            panel=_INPUT,
            text="Field or column of a record that holds its text; dotted for one inside another.",
        ),
    ] = "text",
    doc_separator: Annotated[
        str | None,
        _option(
            "--doc-separator",
            panel=_INPUT,
            text=r"Text between two documents; \n, \t, \r and \\ are understood. "
            "Default: <|endoftext|> where the head of the input has it, else a file is a document.",
        ),
    ] = None,
    docs_by: Annotated[
        str, _option("--docs-by", panel=_INPUT, text="auto, separator, line or file.")
    ] = "auto",
    strip: Annotated[
        bool,
        _option("--strip", panel=_INPUT, text="Leave out white space at the ends of documents."),
    ] = False,
    invalid_utf8: Annotated[
        str,
        _option(
            "--invalid-utf8", panel=_INPUT, text="replace, ignore or stop; counted in any case."
        ),
    ] = "replace",
    on_error: Annotated[
        str,
        _option(
            "--on-error",
            panel=_INPUT,
            text="stop, or skip files and records that cannot be used (exit 3).",
        ),
    ] = "stop",
    limit: Annotated[
        str | None,
        _option("--limit", panel=_INPUT, text="Use about this much of the input, such as 100MB."),
    ] = None,
    val_fraction: Annotated[
        float, _option("--val-fraction", panel=_OUTPUT, text="Share of the text that is val.")
    ] = 0.0005,
    seed: Annotated[int, _option("--seed", panel=_OUTPUT, text="Chooses another val.")] = 0,
    shard_tokens: Annotated[
        str | None,
        _option(
            "--shard-tokens",
            panel=_OUTPUT,
            text="Tokens in a file, such as 500M; default one file.",
        ),
    ] = None,
    dtype: Annotated[
        str, _option("--dtype", panel=_OUTPUT, text="auto, uint16 or uint32.")
    ] = "auto",
    overwrite: Annotated[
        bool,
        _option("--overwrite", panel=_OUTPUT, text="Delete the output of another job there."),
    ] = False,
    executor: Annotated[
        str,
        _option(
            "--executor",
            panel=_CLUSTER,
            text="local, or ray: every task makes shards of its own, on all nodes of a cluster.",
        ),
    ] = "local",
    ray_address: Annotated[
        str | None,
        _option(
            "--ray-address",
            panel=_CLUSTER,
            text="Of the cluster; default: the one Ray finds, else one on this machine.",
        ),
    ] = None,
    part: Annotated[
        str | None,
        _option(
            "--part",
            panel=_CLUSTER,
            text="Do one part of the job, such as 3/16; `penstok finish` when all are done.",
        ),
    ] = None,
    task_size: Annotated[
        str | None,
        _option(
            "--task-size",
            panel=_CLUSTER,
            text="Input of a task, such as 1GiB. Default: 64MiB, more for a very large input.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        _option("-j", "--workers", panel=_RUN, text="Processes; default: cores that fit."),
    ] = None,
    memory: Annotated[
        str,
        _option("--memory", panel=_RUN, text="For the whole process tree; with ray, for a task."),
    ] = "1GiB",
    priority: Annotated[
        str, _option("--priority", panel=_RUN, text="low, or normal on a machine of its own.")
    ] = "low",
    dry_run: Annotated[
        bool, _option("-n", "--dry-run", panel=_RUN, text="Say what would be done, as `plan` does.")
    ] = False,
    as_json: Annotated[
        bool, _option("--json", panel=_RUN, text="Write JSON lines to standard output.")
    ] = False,
    quiet: Annotated[bool, _option("-q", "--quiet", panel=_RUN, text="Only errors.")] = False,
    verbose: Annotated[
        bool, _option("-v", "--verbose", panel=_RUN, text="Tracebacks with errors.")
    ] = False,
    no_progress: Annotated[
        bool, _option("--no-progress", panel=_RUN, text="No progress line.")
    ] = False,
) -> None:
    """Turn text into train.bin and val.bin.

    Examples:  penstok tokenize corpus.txt   ·   penstok tokenize books/ 'web/*.txt' -o out/
    --shard-tokens 500M
    """
    with errors_reported(as_json=as_json, verbose=verbose):
        from penstok.inputs.discovery import read_list
        from penstok.jobs.settings import JobSettings, parse_output, parse_part
        from penstok.quantities import parse_bytes, parse_count

        choices: dict[str, Any] = {
            "engine": engine,
            "eot": eot,
            "input_format": input_format,
            "docs_by": docs_by,
            "invalid_utf8": invalid_utf8,
            "on_error": on_error,
            "dtype": dtype,
            "priority": priority,
            "executor": executor,
        }
        settings = JobSettings(
            inputs=(*(inputs or ()), *(read_list(files_from) if files_from else ())),
            output=parse_output(output),
            tokenizer=tokenizer,
            eot_token=eot_token,
            bos=bos,
            pattern=pattern,
            text_key=text_key,
            doc_separator=None if doc_separator is None else unescape(doc_separator),
            strip=strip,
            val_fraction=val_fraction,
            seed=seed,
            shard_tokens=None
            if shard_tokens is None
            else parse_count(shard_tokens, "--shard-tokens"),
            workers=workers,
            memory_bytes=parse_bytes(memory, "--memory"),
            overwrite=overwrite,
            limit_bytes=None if limit is None else parse_bytes(limit, "--limit"),
            ray_address=ray_address,
            part=None if part is None else parse_part(part),
            task_bytes=None if task_size is None else parse_bytes(task_size, "--task-size"),
            **choices,
        )
        if dry_run:
            from penstok.cli.plan import print_plan

            print_plan(settings, as_json=as_json)
            return
        run = _run if settings.part is None else _run_part
        run(settings, as_json=as_json, quiet=quiet, no_progress=no_progress)


def _run(settings: JobSettings, *, as_json: bool, quiet: bool, no_progress: bool) -> None:
    from penstok.cli._summary import summary_json, summary_lines
    from penstok.jobs.run import run_job

    outcome = run_job(settings, choose_progress(as_json, no_progress or (quiet and not as_json)))
    if as_json:
        typer.echo(json.dumps(summary_json(outcome, settings)))
    if not quiet:
        say("\n".join(summary_lines(outcome, settings)))
    if outcome.manifest.counts["skipped_records"]:
        raise typer.Exit(_EXIT_SKIPPED)


def _run_part(settings: JobSettings, *, as_json: bool, quiet: bool, no_progress: bool) -> None:
    from penstok.cli._summary import part_json, part_lines
    from penstok.jobs.run import run_part

    progress = choose_progress(as_json, no_progress or (quiet and not as_json))
    outcome = run_part(settings, progress)
    if as_json:
        typer.echo(json.dumps(part_json(outcome, settings)))
    if not quiet:
        say("\n".join(part_lines(outcome, settings)))
    if outcome.num_skipped:
        raise typer.Exit(_EXIT_SKIPPED)


def choose_progress(as_json: bool, silent: bool, title: str = "tokenizing") -> Progress:
    """Choose how a running command shows where it is."""
    from penstok.cli.progress import JsonProgress, PlainProgress, TerminalProgress
    from penstok.jobs.progress import SilentProgress

    if silent:
        return SilentProgress()
    if as_json:
        return JsonProgress(sys.stdout)
    if not sys.stderr.isatty():
        return PlainProgress(sys.stderr)
    from rich.console import Console

    return TerminalProgress(Console(stderr=True), title)


def unescape(text: str) -> str:
    """Understand the escapes that shells make hard to type."""
    escapes = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\\": "\\"}
    result, at = "", 0
    while at < len(text):
        pair = text[at : at + 2]
        result += escapes.get(pair, text[at])
        at += 2 if pair in escapes else 1
    return result
