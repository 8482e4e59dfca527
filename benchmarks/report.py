"""The result as people read it: tables, marks, the page `docs/benchmarks.md` and its chart.

Run as `report.py [RESULT.json ...]` to write the tables of these results (default: of the newest)
into the page, between its markers, and to draw the chart; the same results give the same bytes.
"""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from contenders import FASTOKENS, GIGATOKEN, KERNEL, STEADY, TIKTOKEN, TOKENIZERS
from figures import seconds_of
from results import RESULTS, Result, find_result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from figures import Change, Figure
    from sections import Row

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin of the results -->", "<!-- end of the results -->"
TITLES = {
    "engines": "Engines in memory: one core, block by block, nothing written",
    "hard texts": "The same on 2 MB of text that is hard for an engine",
    "steady": "The whole command, one worker, with its start-up taken apart",
    "start-up": "Start-up: small commands, and whole commands from 1 kB to 1 GB",
    "totals": "Whole commands on two cores, start-up included",
    "formats": "Other formats of the same documents, one worker",
    "outputs": "The document index, and conversions to other formats",
    "tokenizers": "Other tokenizers in memory",
    "unspaced": "Text without blanks, one document each",
    "marks": "Marks",
}
_COLOURS = {
    TIKTOKEN: "#9aa5b1",
    TOKENIZERS: "#b8a1c9",
    FASTOKENS: "#8fb996",
    GIGATOKEN: "#c9b27c",
    KERNEL: "#7fb3d5",
    STEADY: "#1f6f9f",
}
# Below it, the speed of a command is that of its startup.
_LEAST_BYTES = 10**6
_BAR_WIDTH = 0.84 / len(_COLOURS)


def machine_line(result: Result) -> str:
    """Say in one line where the figures come from."""
    facts = result.machine
    memory = facts["memory_bytes"] / (1 << 30)
    load = " ".join(f"{each:.1f}" for each in facts["load_average"])
    return (
        f"{result.date[:10]}, commit {result.commit}; {facts['cpu']}, {facts['cores']} cores, "
        f"{memory:.0f} GiB; load {load} at the start"
    )


def section_lines(rows: list[Row]) -> list[str]:
    """Lay out one section: a line for each contender on each text."""
    lines = [
        f"{'':32}{'turns':>6}{'wall s':>9}{'':>8}{'CPU s':>9}{'':>8}{'user':>8}{'system':>8}"
        f"{'faults':>9}{'MB per':>8}{'peak':>9}",
        f"{'':32}{'':>6}{'median':>9}{'best':>8}{'median':>9}{'best':>8}{'':>8}{'':>8}"
        f"{'':>9}{'CPU s':>8}{'MiB':>9}",
    ]
    for text, chosen in groupby(sorted(rows, key=_text_order(rows)), key=lambda row: row.text):
        lines += [text] if text else []
        lines += [f"  {row.contender:30}{_row_values(row)}" for row in chosen]
    return [line.rstrip() for line in lines]


def _text_order(rows: list[Row]) -> Any:
    texts = [row.text for row in rows]
    return lambda row: texts.index(row.text)


def _row_values(row: Row) -> str:
    turns = row.turns
    wall, cpu = (
        f"{median(values):9.3f}{'' if row.is_difference else f'{min(values):.3f}':>8}"
        for values in ([each.wall_seconds for each in turns], [each.cpu_seconds for each in turns])
    )
    user, system, faults = (
        median(getattr(each, name) for each in turns)
        for name in ("user_seconds", "system_seconds", "page_faults")
    )
    speed = f"{_speed(row):.1f}" if turns[0].num_bytes >= _LEAST_BYTES else ""
    peak = f"{row.peak_bytes / (1 << 20):.0f}" if row.peak_bytes else ""
    used = f"{user:8.3f}{system:8.3f}{faults:9.0f}"
    return f"{len(turns):6}{wall}{cpu}{used}{speed:>8}{peak:>9}"


def _speed(row: Row) -> float:
    """Return MB per CPU second."""
    return median(each.num_bytes / 1e6 / seconds_of(each, "CPU") for each in row.turns)


def mark_lines(figures: list[Figure]) -> list[str]:
    """Show every figure with its interval and its mark."""
    lines = [f"{'':58}{'text':18}{'median':>9}{'95 % interval':>19}{'mark':>18}"]
    shown = ""
    labels = list(dict.fromkeys(figure.label for figure in figures))
    for figure in sorted(figures, key=lambda each: labels.index(each.label)):
        label = "" if figure.label == shown else figure.label
        lines.append(f"{label:58}{figure.text:18}{_figure_values(figure)}".rstrip())
        shown = figure.label
    return lines


def _figure_values(figure: Figure) -> str:
    estimate, unit = figure.estimate, figure.unit
    digits = {"x": 2, "s": 3}.get(unit, 0)
    interval = f"{estimate.low:.{digits}f} to {estimate.high:.{digits}f}"
    bound = "at most" if figure.is_limit else "at least"
    mark = "" if figure.mark is None else f"{bound} {figure.mark:g}{unit}"
    return (
        f"{f'{estimate.median:.{digits}f}{unit}':>9}"
        f"{interval if estimate.num_turns > 1 else '':>19}"
        f"{mark:>18}  {figure.verdict}"
    )


def change_lines(changes: Iterable[Change]) -> list[str]:
    """Show how figures differ from an earlier run; those that became slower last."""
    order = {"same": 0, "faster": 1, "slower": 2}
    return [
        f"{each.verdict:8}{each.gain:+7.1%}  (noise {each.noise:.1%})  {each.label}, {each.text}"
        for each in sorted(changes, key=lambda change: order[change.verdict])
    ]


def summary_lines(result: Result) -> list[str]:
    """Count the verdicts, and say whether all contenders agree."""
    verdicts = [figure.verdict for figure in result.figures if figure.mark is not None]
    counted = [f"{verdicts.count(name)} {name}" for name in ("reached", "missed", "unclear")]
    lines = [f"{len(verdicts)} marks: {', '.join(counted)}"]
    lines += [f"DIFFERENT: {difference}" for difference in result.differences]
    if not result.differences:
        lines.append(
            "all contenders gave the same number of tokens, all Penstok runs the same bytes"
        )
    return lines


def iter_tables(result: Result) -> Iterable[tuple[str, list[str]]]:
    """Yield the name and the lines of each table."""
    for section in dict.fromkeys(row.section for row in result.rows):
        yield section, section_lines([row for row in result.rows if row.section == section])
    yield "marks", [*mark_lines(result.figures), "", *summary_lines(result)]


def result_text(result: Result) -> str:
    """Return everything that is printed at the end of a run."""
    tables = [f"{TITLES[name]}\n" + "\n".join(lines) for name, lines in iter_tables(result)]
    return "\n\n".join([machine_line(result), *tables])


def page_lines(results: dict[str, Result]) -> list[str]:
    """Return the part of the page that is made from results: marks first, then the tables."""
    lines = []
    for name, result in results.items():
        lines += ["", f"`{name}`, by `{result.command}`: {machine_line(result)}."]
        tables = dict(iter_tables(result))
        for section in ("marks", *(each for each in tables if each != "marks")):
            lines += ["", f"### {TITLES[section]}", "", "```", *tables[section], "```"]
    return [*lines[1:], ""]


def write_page(page: Path, results: dict[str, Result]) -> None:
    """Replace what is between the markers of the page."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "\n".join(page_lines(results))
    page.write_text(f"{before}{BEGIN}\n\n{made}\n{END}{after}")


def draw(result: Result, picture: Path) -> None:
    """Draw a group of bars for each corpus, a bar for each contender."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "penstok", "svg.fonttype": "none"}
    mpl.rcParams["font.family"] = "sans-serif"
    from matplotlib import pyplot as plt

    corpora = [text for text in result.texts if text in {row.text for row in result.rows}]
    speeds = {
        (row.contender, row.text): _speed(row)
        for row in result.rows
        if row.section in ("engines", "steady") and row.text in corpora
    }
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for place, (contender, colour) in enumerate(_COLOURS.items()):
        shift = (place - (len(_COLOURS) - 1) / 2) * _BAR_WIDTH
        where = "end to end, one worker" if contender == STEADY else "in memory"
        bars = axes.bar(
            [number + shift for number in range(len(corpora))],
            [speeds.get((contender, corpus), 0.0) for corpus in corpora],
            width=_BAR_WIDTH * 0.92,
            color=colour,
            label=f"{contender.partition(',')[0].replace(KERNEL, 'penstok: its kernel')}, {where}",
        )
        axes.bar_label(bars, fmt="%.0f", fontsize=8, padding=2)
    axes.set_xticks(range(len(corpora)), corpora)
    axes.set_ylabel("MB of text per CPU second")
    axes.set_title("GPT-2 tokens from text, start-up apart", loc="left", fontsize=12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.margins(y=0.12)
    axes.legend(frameon=False, fontsize=9)
    facts = result.machine
    caption = f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}"
    figure.supxlabel(f"{caption}; {result.date[:10]}, commit {result.commit}", fontsize=8)
    # No date, no version of the drawing library: only the result shapes the file.
    figure.savefig(picture, metadata={"Date": None, "Creator": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="Write results into docs/benchmarks.md.")
    parser.add_argument("results", nargs="*", type=Path, help="files; the newest by default")
    paths = parser.parse_args().results or [_newest()]
    results = {path.name: Result.load(path) for path in paths}
    write_page(PAGE, results)
    whole = next((result for result in results.values() if result.is_whole), None)
    if whole is not None:
        draw(whole, PAGE.with_suffix(".svg"))
    print(f"wrote {PAGE}" + ("" if whole is None else f" and {PAGE.with_suffix('.svg').name}"))


def _newest() -> Path:
    found = [(path, find_result(path)) for path in RESULTS.glob("*.json")]
    dates = [(result.date, path) for path, result in found if result and result.is_whole]
    if not dates:
        raise SystemExit(f"error: no result\n  where: {RESULTS}\n  next:  run `make bench`")
    return max(dates)[1]


if __name__ == "__main__":
    main()
