"""`penstok count`: how many tokens the inputs have, with one tokenizer or several.

It counts nothing itself: `counting` does, and this module words the result. The table is data, on
standard output; notes are on standard error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstok.cli.flags import RUN, make_flags
from penstok.cli.messages import ErrorReporter, one_line, print_data, say
from penstok.counting.settings import TEXT_SETTINGS, CountSettings
from penstok.jobs.definition import settings_of
from penstok.quantities import format_bytes, format_seconds, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstok.counting.count import CountResult, TokenizerCount

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = (
    "penstok count corpus.txt",
    "penstok count books/ 'web/*.jsonl.gz' -t gpt2,cl100k_base,o200k_base --sample 1GB",
)
FLAGS = make_flags((*TEXT_SETTINGS, *settings_of(CountSettings), *RUN))
_EXIT_PARTLY = 3
_MAX_INPUTS = 20
_MAX_NAME = 48


def run(*, as_json: bool, quiet: bool, verbose: bool, no_progress: bool, **fields: Any) -> int:
    """Count; what is in `fields` are the settings."""
    with ErrorReporter(as_json=as_json, verbose=verbose, reads_only=True):
        from penstok.cli.progress import choose_progress
        from penstok.counting.count import count_tokens, find_warnings

        settings = CountSettings.from_fields(fields)
        silent = no_progress or (quiet and not as_json)
        progress = choose_progress(as_json=as_json, silent=silent, title="counting")
        result = count_tokens(settings, progress)
        warnings = find_warnings(result)
        print_data(json.dumps(_as_json(result, warnings)) if as_json else "\n".join(_lines(result)))
        say("\n".join(_notes(result)), is_quiet=quiet)
        if result.failed:
            # An error, which `--quiet` does not hide.
            say("\n".join(_failures(result)))
        return _EXIT_PARTLY if warnings else 0


def _as_json(result: CountResult, warnings: list[str]) -> dict[str, Any]:
    from msgspec import to_builtins

    return {"type": "summary", **to_builtins(result), "warnings": warnings}


def _lines(result: CountResult) -> list[str]:
    """Write the totals, and the same by tokenizer and by input where there are several."""
    about = "about " if result.sample_bytes is not None else ""
    lines = [
        f"{plural(result.num_inputs, 'input')}: {about}{plural(result.documents, 'document')}, "
        f"{format_bytes(result.text_bytes)} of text, {plural(result.characters, 'character')}",
        "",
        *_tokenizer_table(result),
    ]
    if len(result.tokenizers) > 1:
        lines += ["", *_fitting(result.tokenizers)]
    if len(result.inputs) > 1:
        lines += ["", *_input_table(result)]
    return lines


def _tokenizer_table(result: CountResult) -> Iterable[str]:
    first = result.tokenizers[0]
    rows = [["tokenizer", "tokens", "bytes/token", "characters/token", "embedding rows"]]
    if len(result.tokenizers) > 1:
        rows[0].append(f"against {one_line(first.name)}")
    for each in result.tokenizers:
        row = [
            _shorten(each.name),
            _tokens(each, is_sample=result.sample_bytes is not None),
            f"{each.bytes_per_token:.2f}",
            f"{each.characters_per_token:.2f}",
            f"{each.vocab_size:,}",
        ]
        if len(result.tokenizers) > 1:
            row.append("" if each is first else _change(each.tokens, first.tokens))
        rows.append(row)
    return _table(rows)


def _tokens(each: TokenizerCount, *, is_sample: bool) -> str:
    if not is_sample:
        return f"{each.tokens:,}"
    share = 100 * each.margin / max(each.tokens, 1)
    return f"{each.tokens:,} ± {each.margin:,} ({share:.2f} %)"


def _change(tokens: int, base: int) -> str:
    return f"{100 * (tokens / max(base, 1) - 1):+.1f} %"


def _fitting(tokenizers: Sequence[TokenizerCount]) -> list[str]:
    """Say which tokenizer needs the fewest tokens, and what it costs."""
    best, *others = sorted(tokenizers, key=lambda each: (each.tokens, each.vocab_size))
    second = others[0]
    rows = best.vocab_size - second.vocab_size
    cost = f"{plural(abs(rows), 'embedding row')} {'more' if rows > 0 else 'fewer'}"
    lines = [f"fewest tokens: {one_line(best.name)}"]
    if best.tokens == second.tokens:
        lines[0] += f", as many as {one_line(second.name)}"
    else:
        saved = 100 * (1 - best.tokens / max(second.tokens, 1))
        lines[0] += f", {saved:.1f} % fewer than {one_line(second.name)}"
    lines[0] += f", with {cost}" if rows else ""
    if best.tokens - best.margin < second.tokens + second.margin and best.margin:
        lines.append("the sample is too small to tell these two apart")
    return lines


def _input_table(result: CountResult) -> Iterable[str]:
    """Write the largest inputs: with several tokenizers, bytes per token of each."""
    names = [each.name for each in result.tokenizers]
    is_one = len(names) == 1
    rows = [["input", "documents", "text", *(["tokens", "bytes/token"] if is_one else names)]]
    rows[0] += [] if is_one else ["fewest tokens"]
    largest = sorted(result.inputs, key=lambda each: -each.text_bytes)[:_MAX_INPUTS]
    shown = {each.path for each in largest}
    for each in (each for each in result.inputs if each.path in shown):
        ratios = [f"{each.text_bytes / max(each.tokens[name], 1):.2f}" for name in names]
        row = [_shorten(each.path), f"{each.documents:,}", format_bytes(each.text_bytes)]
        row += [f"{each.tokens[names[0]]:,}", *ratios] if is_one else ratios
        row += [] if is_one else [_name_fewest(each.tokens)]
        rows.append(row)
    if not is_one:
        yield "bytes per token by input:"
    yield from _table(rows)
    if len(result.inputs) > len(largest):
        left = len(result.inputs) - len(largest)
        yield f"{plural(left, 'smaller input')} not shown; `--json` lists all"


def _name_fewest(tokens: dict[str, int]) -> str:
    least = min(tokens.values())
    names = [name for name, number in tokens.items() if number == least]
    return one_line(names[0]) if len(names) == 1 else "equal"


def _shorten(name: str) -> str:
    """Write a name in a few columns; its end says more than its beginning."""
    shown = one_line(name)
    return shown if len(shown) <= _MAX_NAME else "..." + shown[3 - _MAX_NAME :]


def _table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Align columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join(cells).rstrip()


def _notes(result: CountResult) -> list[str]:
    """Say how it was counted, and what is missing."""
    from penstok.cli.job_summary import skipped_lines

    counts = result.counts
    rate = counts.text_bytes / max(result.seconds, 1e-3)
    engines = ", ".join(dict.fromkeys(each.engine for each in result.tokenizers))
    lines = [
        f"{format_bytes(counts.text_bytes)} of text counted in {format_seconds(result.seconds)} "
        f"({format_bytes(rate)}/s); {result.workers} x {engines}, peak memory "
        f"{format_bytes(result.peak_memory_bytes)}",
    ]
    if result.sample_bytes is not None:
        lines.append(
            f"  estimated from a sample of {format_bytes(result.sample_bytes)}; ± is the margin "
            "within which the true number is in 95 of 100 cases"
        )
    for number, noun, what in (
        (counts.empty_documents, "empty document", "dropped"),
        (counts.skipped_records, "bad record", "skipped"),
        (counts.invalid_utf8, "invalid UTF-8 sequence", "replaced or ignored"),
    ):
        if number:
            lines.append(f"  note: {plural(number, noun)} {what}")
    lines += skipped_lines("  skipped:", result.skipped)
    return lines + [f"  hint: {hint}" for hint in result.hints]


def _failures(result: CountResult) -> list[str]:
    lines = []
    for each in result.failed:
        lines.append(f"  failed: {one_line(each.name)}: {one_line(each.what)}")
        lines += [f"    next: {one_line(each.next_step)}"] if each.next_step else []
    return lines
