"""The page of a report: one HTML file with its styles, scripts and data inside.

It reads no output, and writes no file. All text is escaped, and a content security policy lets only
the scripts of this package run and nothing be fetched. Numbers are in tables; where there is
JavaScript, `assets/page.js` draws charts above them with uPlot, which is embedded (ADR 52).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from html import escape
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstok.output.report_files import PAGE_MARK
from penstok.quantities import format_bytes, format_count, format_seconds, plural
from penstok.reports.reading import ReadDocument, show_text
from penstok.reports.statistics import BINS_PER_OCTAVE, Statistics
from penstok.types import SPLITS, Split, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstok.output.manifest import InputRecord, Manifest

__all__ = ["Contents", "InputRow", "LongDocument", "make_page"]

_ASSETS = files("penstok.reports") / "assets"
_MAX_INPUTS = 40
_MAX_SOURCES = 20
_MAX_REASONS = 20
_MAX_MOMENTS = 24
# Lengths from here on are written as thousands.
_LONG = 10_000
_MAX_NAME = 200
# Bins of the chart: half an octave each.
_CHART_BINS = BINS_PER_OCTAVE // 2
_COUNT_NOTES = {
    "empty_documents": "empty documents dropped",
    "skipped_records": "records or inputs skipped",
    "invalid_utf8": "invalid UTF-8 sequences replaced or dropped",
    "byte_order_marks": "byte order marks removed",
    "nul_bytes": "NUL bytes kept",
    "forced_cuts": "forced cuts in text without a safe cut",
    "special_text_documents": "documents that contain the end-of-text string as ordinary text",
}


class InputRow(Struct, frozen=True):
    """An input, what it belongs to, and how much text it had; 0 if that is not recorded."""

    record: InputRecord
    source: str
    text_bytes: int


class LongDocument(Struct, frozen=True):
    """One of the longest documents, with its first tokens as HTML."""

    split: Split
    number: int
    num_tokens: int
    html: str


class Contents(Struct, frozen=True):
    """Everything that a page shows.

    Attributes:
        folder: The output.
        names: The bytes of the most frequent ids.
        notes: What the page does not show, and why.
    """

    folder: str
    manifest: Manifest
    statistics: Statistics
    inputs: list[InputRow]
    documents: list[ReadDocument]
    longest: list[LongDocument]
    names: dict[int, bytes]
    notes: list[str]


def make_page(contents: Contents) -> str:
    """Write the page."""
    scripts = [_asset("uplot.min.js"), _asset("page.js")]
    hashes = " ".join(f"'sha256-{_hash(each)}'" for each in scripts)
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    data = json.dumps(_chart_data(contents)).replace("<", "\\u003c")
    sections = [
        _overview(contents),
        _lengths(contents),
        _inputs(contents),
        _vocabulary(contents),
        _run(contents),
        _problems(contents),
        _reading_room(contents),
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            PAGE_MARK,
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{_text(contents.folder)} - Penstok report</title>",
            f"<style>{_asset('uplot.min.css')}\n{_asset('page.css')}</style>",
            "<noscript><style>.plot, .reader-controls { display: none }</style></noscript>",
            "</head>",
            "<body>",
            *sections[:1],
            "<main>",
            *(each for each in sections[1:] if each),
            "</main>",
            f"<footer>{_footer(contents)}</footer>",
            f'<script type="application/json" id="data">{data}</script>',
            *(f"<script>{each}</script>" for each in scripts),
            "</body>",
            "</html>",
            "",
        ]
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _text(text: str) -> str:
    """Escape text from anywhere, and make it one line."""
    shown = text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME // 2]}...{text[-80:]}"
    return show_text(shown).replace("\n", " ")


def _table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str, num_texts: int = 1
) -> str:
    """Write a table of HTML cells; the first columns are texts, the others are numbers."""

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' scope=col' if tag == 'th' else ''}"
            f"{'' if number < num_texts else ' class=n'}>{cell}</{tag}>"
            for number, cell in enumerate(row)
        )

    kind = " class=facts" if len(header) == 2 else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table{kind}><caption>{escape(caption)}</caption>"
        f"<thead><tr>{cells(header, 'th')}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _figure(name: str, title: str, about: str, table: str = "") -> str:
    """Write a chart, with its numbers below unless a table of the page has them."""
    numbers = f"<details><summary>Numbers</summary>{table}</details>" if table else ""
    return (
        f"<figure><figcaption><h3>{escape(title)}</h3><p>{escape(about)}</p></figcaption>"
        f'<div class="plot" data-chart="{name}" role="img" aria-label="{escape(title)}. '
        f'The numbers are in the table below."></div>{numbers}</figure>'
    )


def _section(name: str, title: str, *parts: str) -> str:
    return f'<section id="{name}"><h2>{escape(title)}</h2>{"".join(parts)}</section>'


def _overview(contents: Contents) -> str:
    manifest, run = contents.manifest, contents.manifest.run
    counts = manifest.counts
    val = manifest.splits["val"]
    used = [each for each in manifest.inputs if each.reason is None]
    tiles = [
        ("tokens", format_count(counts["tokens"]), f"{counts['tokens']:,}"),
        ("documents", format_count(counts["documents"]), f"{counts['documents']:,}"),
        ("inputs", f"{len(used):,}", f"{format_bytes(sum(each.bytes for each in used))} stored"),
        (
            "bytes per token",
            f"{counts['text_bytes'] / max(counts['tokens'], 1):.2f}"
            if counts.get("text_bytes")
            else "?",
            f"{format_bytes(counts.get('text_bytes', 0))} of text",
        ),
        (
            "in val",
            f"{100 * val.tokens / max(counts['tokens'], 1):.3g} %",
            plural(val.tokens, "token"),
        ),
        ("time", format_seconds(run.get("seconds", 0.0)), _workers(run)),
    ]
    links = {
        "lengths": "Lengths" if contents.statistics.splits else "",
        "inputs": "Inputs",
        "vocabulary": "Vocabulary",
        "run": "Run",
        "problems": "Repairs",
        "reading": "Reading room" if contents.documents else "",
    }
    return (
        '<header><p class="brand">Penstok report</p>'
        f"<h1>{_text(contents.folder)}</h1>"
        f"<p class=lead>{_lead(contents)}</p><dl class=tiles>"
        + "".join(
            f"<div><dt>{name}</dt><dd>{value}<small>{more}</small></dd></div>"
            for name, value, more in tiles
        )
        + '</dl><nav aria-label="Sections">'
        + "".join(f'<a href="#{name}">{title}</a>' for name, title in links.items() if title)
        + "</nav>"
        + "".join(f"<p class=note>{_text(note)}</p>" for note in contents.notes)
        + "</header>"
    )


def _workers(run: dict[str, Any]) -> str:
    if "workers" not in run:
        return ""
    return f"{plural(run['workers'], 'worker')}, {escape(str(run.get('engine', '')))}"


def _lead(contents: Contents) -> str:
    manifest = contents.manifest
    tokenizer = manifest.tokenizer
    formats = ", ".join(["raw", *(each.name for each in manifest.formats)])
    eot = manifest.settings["eot"]
    ends = {
        "append": "an end-of-text token after each document",
        "prepend": "an end-of-text token before each document",
    }.get(eot, "no end-of-text tokens")
    return (
        f"Tokenizer <b>{_text(tokenizer.name)}</b> with {tokenizer.vocab_size:,} ids, {ends}, "
        f"stored as {manifest.dtype}. Formats: {escape(formats)}. "
        f"Made by Penstok {_text(manifest.penstok)}."
    )


def _lengths(contents: Contents) -> str:
    splits = contents.statistics.splits
    if not splits:
        return ""
    manifest = contents.manifest
    rows = [
        [
            split,
            f"{manifest.splits[split].documents:,}",
            f"{manifest.splits[split].tokens:,}",
            f"{manifest.splits[split].tokens / max(manifest.splits[split].documents, 1):,.0f}",
            *(f"{_percentile(each.lengths, share):,}" for share in (0.1, 0.5, 0.9, 0.99)),
            f"{each.longest[0][2]:,}" if each.longest else "0",
        ]
        for split, each in splits.items()
    ]
    bins = _merge_bins(contents)
    histogram = _table(
        ["tokens per document", *splits],
        [
            [f"{_edge(number):,} to {max(_edge(number + 1) - 1, _edge(number)):,}",
             *(f"{bins[split][number]:,}" for split in splits)]
            for number in range(len(bins["train"]))
            if any(bins[split][number] for split in splits)
        ],
        caption="Documents by length",
    )  # fmt: skip
    longest = _table(
        ["split", "begins with", "document", "tokens"],
        [
            [each.split, f"<span class=text>{each.html}</span>", f"{each.number:,}",
             f"{each.num_tokens:,}"]
            for each in contents.longest
        ],
        caption="The longest documents",
        num_texts=2,
    )  # fmt: skip
    return _section(
        "lengths",
        "How long documents are",
        _figure(
            "lengths",
            "Documents by length",
            "Share of the documents of each split, by their number of tokens.",
            histogram,
        ),
        _table(
            ["split", "documents", "tokens", "mean", "10 %", "median", "90 %", "99 %", "longest"],
            rows,
            caption="Tokens per document (percentiles are within 5 % of the exact ones)",
        ),
        longest,
    )


def _percentile(lengths: Sequence[int], share: float) -> int:
    """Return about how long a document is that is longer than a share of them."""
    wanted, seen = share * sum(lengths), 0
    for number, count in enumerate(lengths):
        seen += count
        if seen >= wanted and count:
            return round(2 ** ((number + 0.5) / BINS_PER_OCTAVE)) if number else 1
    return 0


def _edge(number: int) -> int:
    """Return the smallest length in a bin of the chart."""
    return -int(-(2 ** (number * _CHART_BINS / BINS_PER_OCTAVE)) // 1)


def _label(length: int) -> str:
    return str(length) if length < _LONG else f"{length / 1000:.0f}K"


def _merge_bins(contents: Contents) -> dict[Split, list[int]]:
    splits = contents.statistics.splits
    size = max((len(each.lengths) for each in splits.values()), default=0)
    size = -(-size // _CHART_BINS) * _CHART_BINS
    merged: dict[Split, list[int]] = {}
    for split in SPLITS:
        lengths = splits[split].lengths if split in splits else []
        padded = [*lengths, *[0] * (size - len(lengths))]
        merged[split] = [sum(padded[at : at + _CHART_BINS]) for at in range(0, size, _CHART_BINS)]
    return merged


def _largest(contents: Contents) -> list[InputRow]:
    used = [each for each in contents.inputs if each.record.reason is None]
    return sorted(used, key=lambda each: -each.record.tokens)[:_MAX_INPUTS]


def _share(part: int, total: int) -> str:
    share = 100 * part / total
    return "< 0.1 %" if 0 < share < 0.05 else f"{share:.1f} %"


def _ratio(text_bytes: int, tokens: int) -> str:
    return f"{text_bytes / tokens:.2f}" if text_bytes and tokens else "?"


def _inputs(contents: Contents) -> str:
    total = max(contents.manifest.counts["tokens"], 1)
    used = [each for each in contents.inputs if each.record.reason is None]
    shown = _largest(contents)
    rows = [
        [
            f"<span class=path>{_text(each.record.path)}</span>",
            f"{each.record.documents:,}",
            f"{each.record.tokens:,}",
            _share(each.record.tokens, total),
            _ratio(each.text_bytes, each.record.tokens),
        ]
        for each in shown
    ]
    if len(used) > len(shown):
        left = sum(each.record.tokens for each in used) - sum(each.record.tokens for each in shown)
        rows.append(
            [f"{plural(len(used) - len(shown), 'other input')}", "", f"{left:,}",
             _share(left, total), ""]
        )  # fmt: skip
    sources: Counter[str] = Counter()
    inputs: Counter[str] = Counter()
    for each in used:
        sources[each.source] += each.record.tokens
        inputs[each.source] += 1
    by_source = _table(
        ["folder or archive", "inputs", "tokens", "share"],
        [
            [f"<span class=path>{_text(name)}</span>", f"{inputs[name]:,}", f"{tokens:,}",
             _share(tokens, total)]
            for name, tokens in sources.most_common(_MAX_SOURCES)
        ],
        caption="Tokens by source",
    )  # fmt: skip
    table = _table(
        ["input", "documents", "tokens", "share", "bytes per token"],
        rows,
        caption="Tokens by input, the largest first",
    )
    return _section(
        "inputs",
        "What went in",
        '<div class="pair">',
        _figure(
            "inputs",
            "Tokens by input",
            "The largest inputs, in the order of the table below.",
        ),
        _figure(
            "ratios",
            "Bytes per token by input",
            "Few bytes per token mean that the tokenizer does not know the language well.",
        ),
        "</div>",
        table,
        by_source if len(sources) > 1 else "",
    )


def _vocabulary(contents: Contents) -> str:
    statistics, manifest = contents.statistics, contents.manifest
    vocab_size = manifest.tokenizer.vocab_size
    total = max(manifest.counts["tokens"], 1)
    unused = vocab_size - statistics.num_used
    rows = [
        [str(rank), f"<code>{_name(contents, one)}</code>", str(one), f"{count:,}",
         f"{100 * count / total:.2f} %"]
        for rank, (one, count) in enumerate(statistics.frequent, 1)
    ]  # fmt: skip
    half = -(-len(rows) // 2)
    frequent = [
        _table(["rank", "token", "id", "count", "share"], some, caption=caption, num_texts=2)
        for some, caption in (
            (rows[:half], "The most frequent tokens"),
            (rows[half:], "The next most frequent ones"),
        )
        if some
    ]
    ranks = _table(
        ["rank", "count"],
        [[f"{rank:,}", f"{count:,}"] for rank, count in statistics.ranks],
        caption="Count by rank",
        num_texts=0,
    )
    return _section(
        "vocabulary",
        "Which tokens are used",
        f"<p><b>{statistics.num_used:,}</b> of {vocab_size:,} ids occur; <b>{unused:,}</b> "
        f"({100 * unused / max(vocab_size, 1):.1f} %) never do: their rows of the input "
        "embedding would never be trained.</p>",
        _figure(
            "ranks",
            "How often tokens occur, by rank",
            "Both axes are logarithmic. Natural text is close to a straight line.",
            ranks,
        ),
        '<div class="pair">',
        *frequent,
        "</div>",
    )


def _name(contents: Contents, one: int) -> str:
    name = contents.names.get(one)
    if name is None:
        return f"#{one}"
    try:
        return show_text(name.decode()).replace(" ", "\u2423")
    except UnicodeDecodeError:
        return " ".join(f"{byte:02X}" for byte in name)


def _run(contents: Contents) -> str:
    run = contents.manifest.run
    series = run.get("series") or {}
    host = run.get("host")
    rows = [
        ["total time", format_seconds(run.get("seconds", 0.0))],
        ["from the first unit to the last", format_seconds(run.get("work_seconds", 0.0))],
        ["text", format_bytes(run.get("work_text_bytes", 0))],
        [
            "speed",
            format_bytes(run.get("work_text_bytes", 0) / max(run.get("work_seconds", 0), 1e-3))
            + "/s",
        ],
        ["peak memory", format_bytes(run.get("peak_memory_bytes", 0))],
        ["engine", _text(str(run.get("engine", "unknown")))],
        ["workers", f"{run.get('workers', 0):,}, {run.get('workers_replaced', 0):,} replaced"],
        ["resumed", "yes" if run.get("resumed") else "no"],
        *(
            [["machine", _text(", ".join(f"{name} {value}" for name, value in host.items()))]]
            if isinstance(host, dict)
            else []
        ),
    ]
    facts = _table(["what", "value"], rows, caption="How the last run went", num_texts=2)
    moments = _moments(series)
    if len(moments) < 3:
        return _section("run", "How it ran", facts)
    table = _table(
        ["second", "speed", "memory"],
        [[f"{at:.1f}", f"{format_bytes(rate)}/s", format_bytes(memory)]
         for at, rate, memory in moments],
        caption="Speed and memory over time",
        num_texts=0,
    )  # fmt: skip
    return _section(
        "run",
        "How it ran",
        _figure("run", "Speed and memory", "Of the run that finished this output.", table),
        facts,
    )


def _moments(series: dict[str, Any]) -> list[tuple[float, float, int]]:
    """Return the moments of a run: when, text per second since the one before, memory."""
    try:
        points = list(
            zip(series["seconds"], series["text_bytes"], series["memory_bytes"], strict=True)
        )
        # Text is counted when units are done: over a short time, speed is mostly chance.
        step = max(len(points) // _MAX_MOMENTS, 1)
        points = [*points[:-1:step], points[-1]]
        return [
            (float(at), max(done - before, 0) / max(at - last, 1e-3), int(memory))
            for (last, before, _), (at, done, memory) in pairwise(points)
        ]
    except (KeyError, TypeError, ValueError):
        return []


def _problems(contents: Contents) -> str:
    counts = contents.manifest.counts
    found = [
        [escape(text), f"{counts[name]:,}"]
        for name, text in _COUNT_NOTES.items()
        if counts.get(name)
    ]
    reasons = [
        [f"<span class=path>{_text(each.record.path)}</span>", _text(reason)]
        for each in contents.inputs
        for reason in (
            [each.record.reason] if each.record.reason is not None else each.record.reasons
        )
    ]
    parts = [
        _table(["what", "how often"], found, caption="Repaired, dropped and skipped")
        if found
        else "<p>Nothing was repaired, dropped, skipped or refused.</p>"
    ]
    if reasons:
        parts.append(
            _table(["input", "why"], reasons[:_MAX_REASONS], caption="Left out, and why",
                   num_texts=2)
        )  # fmt: skip
    if len(reasons) > _MAX_REASONS:
        parts.append(f"<p>{plural(len(reasons) - _MAX_REASONS, 'more reason')} not shown.</p>")
    return _section("problems", "Repaired, skipped, refused", *parts)


def _reading_room(contents: Contents) -> str:
    if not contents.documents:
        return ""
    articles = [
        f'<article data-split="{each.split}" data-ids="{" ".join(map(str, each.ids))}">'
        f"<h3>{each.split} {each.number:,} <small>{plural(each.num_tokens, 'token')}"
        + (f", the first {len(each.ids)} shown" if len(each.ids) < each.num_tokens else "")
        + '</small></h3><div class="text" tabindex="0" role="region" dir="auto" '
        f'aria-label="{each.split} document {each.number}">{each.html}</div></article>'
        for each in contents.documents
    ]
    controls = (
        '<div class="reader-controls"><div role="group" aria-label="Split">'
        + "".join(
            f'<button type="button" data-show="{split}" aria-pressed="{str(not at).lower()}">'
            f"{split}</button>"
            for at, split in enumerate(SPLITS)
            if any(each.split == split for each in contents.documents)
        )
        + '</div><div><button type="button" data-step="-1">Previous</button>'
        '<button type="button" data-step="1">Next</button></div>'
        '<output aria-live="polite"></output></div>'
    )
    return _section(
        "reading",
        "Reading room",
        "<p>Documents as a trainer sees them, spread evenly over each split. Colours alternate "
        "from token to token. A small number says how many tokens make up one character or more, "
        "where a single token is only a part of one. Bytes that are not text are in "
        "hexadecimal.</p>",
        controls,
        f'<div class="reader">{"".join(articles)}</div>',
    )


def _footer(contents: Contents) -> str:
    return (
        f"<p>Made from {_text(contents.folder)} by <code>penstok report</code>. This page loads "
        "nothing from the network. Charts by uPlot, copyright 2022 Leon Sorokin, MIT licence.</p>"
    )


def _chart_data(contents: Contents) -> dict[str, Any]:
    """Return what the charts draw."""
    bins = _merge_bins(contents)
    totals = {split: max(sum(bins[split]), 1) for split in SPLITS}
    shown = _largest(contents)
    moments = _moments(contents.manifest.run.get("series") or {})
    used = [
        number for number in range(len(bins["train"])) if any(bins[each][number] for each in SPLITS)
    ]
    first, last = (used[0], used[-1] + 1) if used else (0, 0)
    return {
        "lengths": {
            "labels": [_label(_edge(number)) for number in range(first, last + 1)],
            **{
                split: [100 * each / totals[split] for each in bins[split][first:last]]
                for split in SPLITS
            },
        },
        "inputs": {
            "names": [each.record.path.rsplit("/", 1)[-1][:40] for each in shown],
            "values": [each.record.tokens for each in shown],
        },
        "ratios": {
            "names": [each.record.path.rsplit("/", 1)[-1][:40] for each in shown],
            "values": [
                each.text_bytes / each.record.tokens if each.record.tokens else None
                for each in shown
            ],
        },
        "ranks": {
            "ranks": [rank for rank, _ in contents.statistics.ranks],
            "counts": [count for _, count in contents.statistics.ranks],
        },
        "run": {
            "seconds": [at for at, _, _ in moments],
            "speed": [rate for _, rate, _ in moments],
            "memory": [memory for _, _, memory in moments],
        },
    }
