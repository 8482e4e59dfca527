"""The benchmark, as one command: prepare the texts, run the sections, write and print the result.

`README.md` in this folder says how to read it.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from corpora import CORPORA, STAND_IN, find_corpora, write_corpus
from figures import compare
from machine import find_commit, machine_facts
from report import change_lines, result_text
from results import RESULTS, Result, find_last_committed, sizes_of
from sections import DEFAULT_SECTIONS, GB, MB, QUICK_SECTIONS, SECTIONS, Bench

import penstok

if TYPE_CHECKING:
    from corpora import Text

# Texts, other formats of them, and the largest output that is there at a time.
_DISK_BYTES = 5 * GB
_FLAT_SHARE = 3


def main() -> int:
    """Run the benchmark; exit 1 if tokens differ, or with `--quick` if something became slower."""
    options = _parse_options()
    date, commit, facts = datetime.now(timezone.utc), find_commit(), machine_facts()
    compile_modules()
    with tempfile.TemporaryDirectory(prefix="penstok-bench-") as name:
        folder = Path(name)
        _check_room(options, folder)
        bench = Bench(
            texts=_write_corpora(options, folder),
            folder=folder,
            is_quick=options.quick,
            large_bytes=GB if options.limit_mb is None else round(10 * options.limit_mb * MB),
            flat_bytes=options.gb * GB,
            tokenizers=options.tokenizer or [],
            say=_Progress(),
        )
        for section in options.section:
            SECTIONS[section](bench)
    result = Result(
        date=date.isoformat(timespec="seconds"),
        commit=commit,
        command=_command(options),
        machine=facts,
        texts=sizes_of(bench.texts),
        rows=bench.rows,
        figures=bench.figures,
        differences=bench.differences,
    )
    print(result_text(result))
    became_slower = compare_with_last(result)
    path = _result_path(options, f"{date:%Y-%m-%d}-{commit}")
    if path is not None:
        result.write(path)
        print(f"\nwrote {path}")
    return 1 if result.differences or (options.quick and became_slower) else 0


def compile_modules() -> None:
    """Compile the package and the scripts, so that both start as installed from a wheel."""
    for folder in (Path(penstok.__file__).parent, Path(__file__).parent):
        if not compileall.compile_dir(folder, quiet=1):
            raise SystemExit(
                f"error: the modules cannot be compiled\n  where: {folder}\n"
                "  next:  check that `__pycache__` can be written there"
            )


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare Penstok with other tokenizers.")
    parser.add_argument(
        "--section",
        action="append",
        choices=SECTIONS,
        help=f"only this one; may be given again; default: {', '.join(DEFAULT_SECTIONS)}",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer turns, contenders and sections; writes no result; exit 1 if something became "
        "slower than in the last committed result",
    )
    parser.add_argument(
        "--corpus", action="append", choices=CORPORA, help="only this one; may be given again"
    )
    parser.add_argument(
        "--limit-mb",
        type=float,
        help="to try the benchmark itself: the head of each corpus, and ten times that for 1 GB",
    )
    parser.add_argument(
        "--tokenizer",
        action="append",
        metavar="NAME",
        help="for `--section tokenizers` and `unspaced`: a name or a file, as for `penstok -t`",
    )
    parser.add_argument(
        "--gb", type=int, default=4, help="for `--section memory`: size of the large text"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder for the JSON file of the result"
    )
    options = parser.parse_args()
    default = QUICK_SECTIONS if options.quick else DEFAULT_SECTIONS
    options.section = options.section or list(default)
    if "tokenizers" in options.section and not options.tokenizer:
        parser.error("`--section tokenizers` needs `--tokenizer NAME`, such as cl100k_base")
    return options


def _write_corpora(options: argparse.Namespace, folder: Path) -> list[Text]:
    wanted = dict.fromkeys(options.corpus or CORPORA)
    names = find_corpora(wanted)
    if len(names) < len(wanted):
        missing = ", ".join(name for name in wanted if name not in names)
        _say(f"not present: bench corpus {missing}; PENSTOK_CORPUS can name their folder")
    if not names:
        _say("using the sources of the Python standard library instead")
        names = [STAND_IN]
    limit_bytes = None if options.limit_mb is None else round(options.limit_mb * MB)
    return [write_corpus(name, folder, limit_bytes) for name in names]


def compare_with_last(result: Result) -> bool:
    """Compare with the last committed result; tell whether something became slower."""
    last = find_last_committed()
    if last is None:
        print("\nno committed result to compare with")
        return False
    path, before = last
    changes = compare(before.figures, result.figures)
    print(f"\nagainst {path.name}", *change_lines(changes), sep="\n")
    if before.texts != result.texts or before.place != result.place:
        print("other texts or another machine: these differences say little")
        return False
    slower = [each for each in changes if each.verdict == "slower"]
    print(f"{len(slower)} of {len(changes)} figures became slower by more than the noise")
    return bool(slower)


def _result_path(options: argparse.Namespace, name: str) -> Path | None:
    """Return where the result goes; a quick run or one on other texts is not kept."""
    if options.quick or ((options.limit_mb or options.corpus) and options.results == RESULTS):
        return None
    options.results.mkdir(parents=True, exist_ok=True)
    is_whole = options.section == list(DEFAULT_SECTIONS)
    folder: Path = options.results
    return folder / f"{name}{'' if is_whole else '-' + '-'.join(options.section)}.json"


def _check_room(options: argparse.Namespace, folder: Path) -> None:
    flat_bytes = options.gb * GB * _FLAT_SHARE if "memory" in options.section else 0
    needed, free = _DISK_BYTES + flat_bytes, shutil.disk_usage(folder).free
    if free < needed:
        raise SystemExit(
            f"error: the texts need {needed / GB:.1f} GB of disk, {free / GB:.1f} GB are free\n"
            f"  where: {folder}\n  next:  set TMPDIR to a folder with more room"
        )


def _command(options: argparse.Namespace) -> str:
    """Say how to run this again, without folders of this machine."""
    words = ["python", "benchmarks/run.py"]
    words += ["--quick"] if options.quick else []
    default = QUICK_SECTIONS if options.quick else DEFAULT_SECTIONS
    if options.section != list(default):
        words += [word for name in options.section for word in ("--section", name)]
    words += [word for name in options.corpus or () for word in ("--corpus", name)]
    names = (name.rpartition("/")[2] for name in options.tokenizer or ())
    words += [word for name in names for word in ("--tokenizer", name)]
    words += ["--limit-mb", f"{options.limit_mb:g}"] if options.limit_mb else []
    words += ["--gb", str(options.gb)] if "memory" in options.section else []
    return " ".join(words)


class _Progress:
    """Tells how far the run is, with the time since its start."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, message: str) -> None:
        seconds = time.monotonic() - self._started
        _say(f"{seconds:6.0f} s  load {os.getloadavg()[0]:4.1f}  {message}")


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
