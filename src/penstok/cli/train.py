"""`penstok train-tokenizer`: a vocabulary of the corpus's own."""

from __future__ import annotations

import inspect
import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstok.cli._report import errors_reported, escape, say
from penstok.cli.tokenize import choose_progress, tokenize, unescape
from penstok.quantities import format_bytes, format_seconds

if TYPE_CHECKING:
    from penstok.jobs.settings import JobSettings
    from penstok.training.train import TrainingResult, TrainingSettings

__all__ = ["train_tokenizer"]

_EXIT_SKIPPED = 3
_MAX_LISTED = 5
# The flags of `tokenize` that say which text is read and how, and those of every long command.
_READING = (
    *("inputs", "files_from", "input_format", "text_key", "doc_separator", "docs_by"),
    *("strip", "invalid_utf8", "on_error"),
)
_RUNNING = ("priority", "as_json", "quiet", "verbose", "no_progress")


def train_tokenizer(
    vocab_size: Annotated[
        str,
        typer.Option(
            "--vocab-size",
            help="Tokens in all, special ones included.",
            rich_help_panel="Tokenizer",
        ),
    ] = "32000",
    pattern: Annotated[
        str,
        typer.Option(
            "--pattern",
            help="What divides text before merging: gpt2, cl100k, llama3, qwen2 or o200k.",
            rich_help_panel="Tokenizer",
        ),
    ] = "cl100k",
    special: Annotated[
        list[str] | None,
        typer.Option(
            "--special",
            help="Special token; repeat it for several. The first ends a text. "
            "Default: <|endoftext|>.",
            rich_help_panel="Tokenizer",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        str,
        typer.Option(
            "--sample",
            help="Text to learn from, taken evenly from all inputs.",
            rich_help_panel="Input",
        ),
    ] = "100MB",
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="File to write.", rich_help_panel="Output"),
    ] = Path("tokenizer.json"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file.", rich_help_panel="Output")
    ] = False,
    memory: Annotated[
        str,
        typer.Option(
            "--memory",
            help="For the whole process tree; a sample that takes more is refused.",
            rich_help_panel="Run",
        ),
    ] = "4GiB",
    **options: Any,
) -> None:
    """Learn a byte-level BPE vocabulary from a sample of the corpus; for tokenize -t.

    Examples:  penstok train-tokenizer corpus/ -o my.json   ·   penstok train-tokenizer
    'web/*.parquet' --vocab-size 50257 --pattern gpt2 --sample 500MB -o my.json
    """
    as_json, quiet = options["as_json"], options["quiet"]
    with errors_reported(as_json=as_json, verbose=options["verbose"], reads_only=True):
        from penstok.quantities import parse_bytes, parse_count
        from penstok.training import train

        settings = train.TrainingSettings(
            job=_job_settings(options, parse_bytes(memory, "--memory")),
            output=output,
            vocab_size=parse_count(vocab_size, "--vocab-size"),
            pattern=pattern,
            special=tuple(special or ("<|endoftext|>",)),
            sample_bytes=parse_bytes(sample, "--sample"),
            overwrite=overwrite,
        )
        silent = options["no_progress"] or (quiet and not as_json)
        trained = train.train_tokenizer(settings, choose_progress(as_json, silent, "training"))
        warnings = _warnings(settings, trained)
        if as_json:
            typer.echo(json.dumps(_as_json(trained, warnings)))
        if not quiet:
            say("\n".join(_lines(settings, trained, warnings)))
        if trained.counts.skipped_records or trained.skipped:
            raise typer.Exit(_EXIT_SKIPPED)


# Its own flags behind those that `tokenize` has too.
_own = inspect.signature(train_tokenizer, eval_str=True).parameters
_of_tokenize = inspect.signature(tokenize, eval_str=True).parameters
_all = [
    *(_of_tokenize[name] for name in _READING),
    *(each for each in _own.values() if each.name != "options"),
    *(_of_tokenize[name] for name in _RUNNING),
]
train_tokenizer.__signature__ = inspect.Signature(_all)  # type: ignore[attr-defined]
train_tokenizer.__annotations__ = {each.name: each.annotation for each in _all}


def _job_settings(options: dict[str, Any], memory_bytes: int) -> JobSettings:
    from penstok.inputs.discovery import read_list
    from penstok.jobs.settings import JobSettings

    files_from, separator = options["files_from"], options["doc_separator"]
    return JobSettings(
        inputs=(*(options["inputs"] or ()), *(read_list(files_from) if files_from else ())),
        input_format=options["input_format"],
        text_key=options["text_key"],
        doc_separator=None if separator is None else unescape(separator),
        docs_by=options["docs_by"],
        strip=options["strip"],
        invalid_utf8=options["invalid_utf8"],
        on_error=options["on_error"],
        memory_bytes=memory_bytes,
        priority=options["priority"],
    )


def _as_json(trained: TrainingResult, warnings: list[str]) -> dict[str, Any]:
    return {
        "type": "summary",
        **asdict(trained),
        "output": str(trained.output),
        "bytes_per_token": round(trained.bytes_per_token, 4),
        "seconds": round(trained.seconds, 3),
        "warnings": warnings,
    }


def _lines(settings: TrainingSettings, trained: TrainingResult, warnings: list[str]) -> list[str]:
    """Say what exists now, what it was made from, and what to type next."""
    special = ", ".join(f"{escape(text)} is {token}" for text, token in trained.special.items())
    counts = trained.counts
    notes = (
        (counts.skipped_records, "bad records were skipped"),
        (counts.invalid_utf8, "invalid UTF-8 sequences were replaced or ignored"),
    )
    eot = settings.special[0]
    flag = "" if eot == "<|endoftext|>" else f" --eot-token {shlex.quote(eot)}"
    inputs = settings.job.inputs
    named = "INPUT..." if len(inputs) > _MAX_LISTED else " ".join(map(shlex.quote, inputs))
    return [
        f"wrote {trained.output}: {trained.vocab_size:,} tokens, pattern {settings.pattern}, "
        f"{special}",
        f"  {trained.bytes_per_token:.2f} bytes per token on the sample, "
        f"{format_bytes(trained.sample_bytes)} of text; {format_seconds(trained.seconds)}, "
        f"peak memory {format_bytes(trained.peak_memory_bytes)}",
        *(f"  note: {number:,} {what}" for number, what in notes if number),
        *(
            f"  skipped: {escape(path)}: {why}"
            for path, why in list(trained.skipped.items())[:_MAX_LISTED]
        ),
        *(f"  warning: {warning}" for warning in warnings),
        f"next: penstok tokenize {escape(named)} -t {shlex.quote(str(trained.output))}{flag}",
    ]


def _warnings(settings: TrainingSettings, trained: TrainingResult) -> list[str]:
    warnings = []
    if trained.vocab_size < settings.vocab_size:
        warnings.append(
            f"the text is enough for {trained.vocab_size:,} of {settings.vocab_size:,} tokens: "
            "no other pair is there twice; pass more text or a larger `--sample`"
        )
    if trained.is_head:
        warnings.append(
            "the size of the input is not known: the sample is its beginning, not spread over it; "
            "pass files to have that"
        )
    return warnings
