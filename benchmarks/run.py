"""The benchmark, as one command: prepare the texts, run the contenders in turn, write and print.

`README.md` in this folder says how to read the result.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict, replace
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contenders import (
    CONTENDERS,
    GIGATOKEN,
    KERNEL,
    ONE_CORE,
    ONE_WORKER,
    TWO_CORES,
    TWO_WORKERS,
    run_contender,
)
from corpora import (
    CORPORA,
    STAND_IN,
    find_corpora,
    write_corpus,
    write_hostile,
    write_long,
    write_start_up,
)
from figures import LARGE, LONG, SHORT, Figures, Runs, start_up_of
from format_figures import SCALED_FORMATS, FormatFigures
from formats import FORMATS, write_format
from machine import find_commit, machine_facts
from table import figure_lines, machine_line, ratio_lines

if TYPE_CHECKING:
    from contenders import Run
    from corpora import Text
    from figures import Ratio

GB = 10**9
_RESULTS = Path(__file__).resolve().parent / "results"
_QUICK_BYTES = 20 * 10**6
# A corpus smaller than this is measured more often.
_FULL_BYTES = 100 * 10**6
# The texts that two workers are measured on: the short one lasts until both are at work.
_LONG_BYTES, _SHORT_BYTES = GB, GB // 10
_FORMATS_LONG_BYTES = GB // 2
_QUICK_LONG_BYTES, _QUICK_SHORT_BYTES = GB // 5, GB // 20
# Room for the output of one run beside the texts: two bytes a token, fewer tokens than bytes.
_OUTPUT_SHARE = 2


def main() -> int:
    """Run the benchmark; exit 1 if any contender's tokens differ."""
    options = _parse_options()
    date, commit, facts = datetime.now(timezone.utc), find_commit(), machine_facts()
    with tempfile.TemporaryDirectory(prefix="penstok-bench-") as name:
        folder = Path(name)
        texts = _write_corpora(options, folder)
        long_texts = _write_long(options, texts, folder)
        hostile = [] if options.formats else write_hostile(folder)
        formats = _write_formats(texts, folder)
        runs = [] if options.formats else _run_engines(options, texts, long_texts, hostile, folder)
        runs += _run_formats(options, formats, long_texts, folder)
    figures = Figures(Runs(runs), [] if options.formats else texts, hostile)
    by_format = FormatFigures(Runs(runs), formats)
    differences = Runs(runs).differences() + by_format.differences()
    ratios = ([] if options.formats else figures.ratios()) + by_format.ratios()
    result = {
        "date": date.isoformat(timespec="seconds"),
        "commit": commit,
        "command": _command(options),
        "machine": facts,
        "texts": [_describe(text) for text in texts],
        "long_texts": [_describe(text) for text in long_texts],
        "hostile_texts": [_describe(text) for text in hostile],
        "figures": [asdict(figure) for figure in figures.figures()],
        "format_figures": [asdict(figure) for figure in by_format.figures()],
        "ratios": [asdict(ratio) | {"verdict": ratio.verdict} for ratio in ratios],
        "differences": differences,
        "runs": [asdict(run) for run in runs],
    }
    path = _result_path(options, f"{date:%Y-%m-%d}-{commit}")
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(machine_line(facts, f"{date:%Y-%m-%d}", commit))
    _print_figures(figures, by_format, texts)
    _print_ratios(ratios, differences, options)
    print(f"\nwrote {path}")
    return 1 if differences else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare Penstok with other tokenizers.")
    parser.add_argument(
        "--repeats",
        type=_whole_number,
        help="runs per contender, of which the best counts; more on small corpora; default 3",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the first 20 MB of each corpus, one run: imprecise",
    )
    parser.add_argument(
        "--corpus", action="append", choices=CORPORA, help="only this one; may be given again"
    )
    parser.add_argument(
        "--formats", action="store_true", help="only compare other formats with plain text"
    )
    parser.add_argument(
        "--flat",
        nargs="?",
        type=_whole_number,
        const=4,
        metavar="GB",
        help="also compare the peak memory on this many GB (4) with that on 1 GB",
    )
    parser.add_argument(
        "--results", type=Path, default=_RESULTS, help="folder for the JSON file of the result"
    )
    options = parser.parse_args()
    options.repeats = options.repeats or (1 if options.quick else 3)
    options.results.mkdir(parents=True, exist_ok=True)
    return options


def _whole_number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number of at least 1")
    return int(text)


def _write_corpora(options: argparse.Namespace, folder: Path) -> list[Text]:
    wanted = dict.fromkeys(options.corpus or CORPORA)
    names = find_corpora(wanted)
    if len(names) < len(wanted):
        missing = ", ".join(name for name in wanted if name not in names)
        _say(f"not present: bench corpus {missing}; PENSTOK_CORPUS can name their folder")
    if not names:
        _say("using the sources of the Python standard library instead")
        names = [STAND_IN]
    limit_bytes = _QUICK_BYTES if options.quick else None
    return [write_corpus(name, folder, limit_bytes) for name in names]


def _write_long(options: argparse.Namespace, texts: list[Text], folder: Path) -> list[Text]:
    sizes = {LONG: _FORMATS_LONG_BYTES if options.formats else _LONG_BYTES, SHORT: _SHORT_BYTES}
    if options.quick and not options.flat:
        sizes = {LONG: _QUICK_LONG_BYTES, SHORT: _QUICK_SHORT_BYTES}
    if options.flat:
        sizes[LARGE] = options.flat * GB
    _check_room(sum(sizes.values()), folder)
    return [write_long(name, texts, num_bytes, folder) for name, num_bytes in sizes.items()]


def _write_formats(texts: list[Text], folder: Path) -> list[Text]:
    """Write every corpus in all formats; each follows its plain text."""
    _say("writing the corpora in other formats")
    return [
        each
        for text in texts
        for each in (text, *(write_format(text, kind, folder) for kind in FORMATS))
    ]


def _run_engines(
    options: argparse.Namespace,
    texts: list[Text],
    long_texts: list[Text],
    hostile: list[Text],
    folder: Path,
) -> list[Run]:
    runs = _run_corpora(options, texts, folder) + _run_long(options, long_texts, folder)
    return runs + _run_in_turn(hostile, (GIGATOKEN, KERNEL), options.repeats, folder)


def _run_corpora(options: argparse.Namespace, texts: list[Text], folder: Path) -> list[Run]:
    """Run everybody on every corpus, and on a few documents of it again each time.

    Start-up is a large part of a run on a small corpus, so both are measured more often there,
    and in the same minutes: the best of more runs would be too good a start-up to take away.
    """
    runs: list[Run] = []
    for text in texts:
        start_up = write_start_up(text, start_up_of(text.name), folder)
        runs += _run_in_turn([start_up, text], CONTENDERS, _repeats(options, text), folder)
    return runs


def _repeats(options: argparse.Namespace, text: Text) -> int:
    times = 1 if options.quick else max(1, round(_FULL_BYTES / text.num_bytes))
    return int(options.repeats * times)


def _run_long(options: argparse.Namespace, texts: list[Text], folder: Path) -> list[Run]:
    """Run Penstok alone on long texts: what a second worker gives, and whether memory is flat."""
    both, large = texts[:2], texts[2:]
    runs = _run_in_turn(both, (ONE_WORKER, TWO_WORKERS), options.repeats, folder)
    return runs + _run_in_turn(large, (TWO_WORKERS,), options.repeats, folder)


def _run_formats(
    options: argparse.Namespace, formats: list[Text], long_texts: list[Text], folder: Path
) -> list[Run]:
    """Run Penstok on all formats of each corpus in turn, then one worker and two on long ones."""
    runs: list[Run] = []
    group = 1 + len(FORMATS)
    for first in range(0, len(formats), group):
        texts = formats[first : first + group]
        plain = write_start_up(texts[0], start_up_of(texts[0].name), folder)
        start_ups = [plain] + [
            replace(write_format(plain, kind, folder), name=start_up_of(text.name))
            for kind, text in zip(FORMATS, texts[1:], strict=True)
        ]
        both = [each for pair in zip(start_ups, texts, strict=True) for each in pair]
        runs += _run_in_turn(both, (ONE_CORE,), _repeats(options, texts[0]), folder)
    both = long_texts[:2]
    both += [write_format(text, kind, folder) for kind in SCALED_FORMATS for text in both]
    return runs + _run_in_turn(both, (ONE_CORE, TWO_CORES), options.repeats, folder)


def _run_in_turn(
    texts: list[Text], contenders: tuple[str, ...], repeats: int, folder: Path
) -> list[Run]:
    """Let contenders alternate, so that a busy minute of the machine hits them all."""
    runs = []
    for repeat in range(repeats):
        for text, contender in product(texts, contenders):
            run = run_contender(contender, text, folder)
            runs.append(run)
            times = f"CPU {run.cpu_seconds:.2f} s, wall {run.wall_seconds:.2f} s"
            _say(f"{repeat + 1}/{repeats}  {text.name:8}  {contender:20}  {times}")
    return runs


def _check_room(text_bytes: int, folder: Path) -> None:
    needed = text_bytes * (1 + _OUTPUT_SHARE)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SystemExit(
            f"error: the texts need {needed / GB:.1f} GB of disk, {free / GB:.1f} GB are free\n"
            f"  where: {folder}\n  next:  set TMPDIR to a folder with more room"
        )


def _command(options: argparse.Namespace) -> str:
    """Say how to run this again, without folders of this machine."""
    words = ["python", "benchmarks/run.py", "--repeats", str(options.repeats)]
    words += ["--quick"] if options.quick else []
    words += ["--formats"] if options.formats else []
    words += [word for name in options.corpus or () for word in ("--corpus", name)]
    words += ["--flat", str(options.flat)] if options.flat else []
    return " ".join(words)


def _describe(text: Text) -> dict[str, Any]:
    return {"name": text.name, "bytes": text.num_bytes, "documents": text.num_documents}


def _result_path(options: argparse.Namespace, name: str) -> Path:
    folder: Path = options.results
    kind = "-formats" if options.formats else ""
    return folder / f"{name}{kind}{'-quick' if options.quick else ''}.json"


def _print_figures(figures: Figures, by_format: FormatFigures, texts: list[Text]) -> None:
    for text in texts:
        chosen = [figure for figure in figures.figures() if figure.text == text.name]
        if chosen:
            print("", *figure_lines(text, chosen), sep="\n")
    for text in texts:
        chosen = [each for each in by_format.figures() if each.text.partition(".")[0] == text.name]
        print("", *figure_lines(text, chosen, by_format=True), sep="\n")


def _print_ratios(ratios: list[Ratio], differences: list[str], options: argparse.Namespace) -> None:
    print(*ratio_lines(ratios), sep="\n")
    if options.quick:
        print("quick: short texts and a single run: the figures are rough")
    for difference in differences:
        print(f"DIFFERENT: {difference}")
    if not differences:
        print("all contenders gave the same number of tokens, all Penstok runs the same bytes")


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
