"""Draw the speed of each contender on each corpus from a result of `run.py`.

Run as `plot.py RESULT.json [PICTURE.svg]`; the same result gives the same picture, byte for byte.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from contenders import FASTOKENS, GIGATOKEN, KERNEL, ONE_WORKER, PLAIN

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "penstok"
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["font.family"] = "sans-serif"

from matplotlib import pyplot as plt  # noqa: E402 after the settings it reads

_DEFAULT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.svg"
_COLOURS = {
    PLAIN: "#9aa5b1",
    GIGATOKEN: "#c9b27c",
    FASTOKENS: "#8fb996",
    KERNEL: "#7fb3d5",
    ONE_WORKER: "#1f6f9f",
}
_TITLES = {
    PLAIN: "plain script, tiktoken",
    GIGATOKEN: "gigatoken, in memory, nothing written",
    FASTOKENS: "fastokens, in memory, nothing written",
    KERNEL: "penstok's kernel, in memory, nothing written",
    ONE_WORKER: "penstok tokenize, end to end, one core",
}
_BAR_WIDTH = 0.8 / len(_COLOURS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw a result of run.py.")
    parser.add_argument("result", type=Path)
    parser.add_argument("picture", type=Path, nargs="?", default=_DEFAULT)
    options = parser.parse_args()
    draw(json.loads(options.result.read_text()), options.picture)
    print(f"wrote {options.picture}")


def draw(result: dict[str, Any], picture: Path) -> None:
    """Draw a group of bars for each corpus, a bar for each contender."""
    corpora = [text["name"] for text in result["texts"]]
    speeds = {(f["contender"], f["text"]): f["mb_per_cpu_second"] for f in result["figures"]}
    if hidden := [key for key, speed in speeds.items() if speed is None and key[0] in _COLOURS]:
        raise SystemExit(f"error: noise hides {hidden}\n  next:  run.py with more `--repeats`")
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for place, (contender, colour) in enumerate(_COLOURS.items()):
        shift = (place - (len(_COLOURS) - 1) / 2) * _BAR_WIDTH
        bars = axes.bar(
            [number + shift for number in range(len(corpora))],
            [speeds[contender, corpus] for corpus in corpora],
            width=_BAR_WIDTH * 0.92,
            color=colour,
            label=_TITLES[contender],
        )
        axes.bar_label(bars, fmt="%.0f", fontsize=9, padding=2)
    axes.set_xticks(range(len(corpora)), corpora)
    axes.set_ylabel("MB of text per CPU second")
    axes.set_title("GPT-2 tokens from text, one core, start-up apart", loc="left", fontsize=12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.margins(y=0.12)
    axes.legend(frameon=False, fontsize=9)
    figure.supxlabel(_caption(result), fontsize=8, color="#666666")
    # No date, no version of the drawing library: only the result shapes the file.
    figure.savefig(picture, metadata={"Date": None, "Creator": None})


def _caption(result: dict[str, Any]) -> str:
    machine = result["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}"
    return f"{where}; {result['date'][:10]}, commit {result['commit']}; {result['command']}"


if __name__ == "__main__":
    main()
