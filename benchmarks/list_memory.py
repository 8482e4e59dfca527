"""How much memory ids in a Python list take, against `penstok tokenize`, and the picture of it.

`python benchmarks/list_memory.py measure TEXT` runs each of three ways on growing parts of a text
file and writes `results/list-memory.json`; `draw` makes the picture of docs/guides/why-it-froze.md
from that, and prints its table.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "list-memory.json"
PICTURE = Path(__file__).parent.parent / "docs" / "guides" / "why-it-froze.svg"
SIZES_MB = (20, 40, 80, 160)
# Peak memory is that of the process, less what the interpreter and its libraries take.
MEASURED = """
import resource, sys
import numpy as np, tiktoken
from penstok.tokenizers import load_tokenizer
from tiktoken_ext.openai_public import r50k_pat_str
encoding = tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, special_tokens={},
                             mergeable_ranks=load_tokenizer("gpt2").ranks)
path, way = sys.argv[1:]
ids = []
if way == "list":
    for line in open(path, encoding="utf-8"):
        ids.extend(encoding.encode_ordinary(line))
elif way == "whole":
    ids = encoding.encode_ordinary(open(path, encoding="utf-8").read())
np.array(ids, dtype=np.uint16).tofile(path + ".bin")
print(len(ids), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
NAMES = {"whole": "read(), then encode", "list": "line by line into a list", "penstok": "penstok"}


def peak_of(way: str, path: Path) -> tuple[int, int]:
    """Return the number of tokens and the peak memory of one way, in a process of its own."""
    if way == "penstok":
        command = [sys.executable, "-m", "penstok", "tokenize", str(path), "--json", "-q"]
        command += ["-o", f"{path}-tokens", "--val-fraction", "0"]
        last = json.loads(subprocess.check_output(command).splitlines()[-1])
        return last["counts"]["tokens"], last["run"]["peak_memory_bytes"]
    said = subprocess.check_output([sys.executable, "-c", MEASURED, str(path), way])
    num_tokens, peak = map(int, said.split())
    return num_tokens, peak


def measure(text: Path) -> dict[str, Any]:
    """Measure every way on every size."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "empty.txt")
        path.write_text("")
        _, base = peak_of("none", path)
        for size in SIZES_MB:
            path = Path(folder, f"{size}.txt")
            with text.open("rb") as source:
                path.write_bytes(source.read(size * 10**6).decode(errors="ignore").encode())
            for way in NAMES:
                num_tokens, peak = peak_of(way, path)
                rows.append({"mb": size, "way": way, "tokens": num_tokens, "peak_bytes": peak})
                print(rows[-1], flush=True)
    return {"python": platform.python_version(), "base_bytes": base, "rows": rows}


def table(result: dict[str, Any]) -> str:
    """Write what was measured as a table."""
    lines = [f"| text | {' | '.join(NAMES.values())} |", "|---" * (1 + len(NAMES)) + "|"]
    for size in SIZES_MB:
        peaks = {row["way"]: row["peak_bytes"] for row in result["rows"] if row["mb"] == size}
        cells = [f"{peaks[way] / 1e6:,.0f} MB" for way in NAMES]
        lines.append(f"| {size} MB | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(result: dict[str, Any]) -> str:
    """Draw peak memory over the size of the text, for light and dark pages."""
    width, height, left, top, right, bottom = 640, 340, 64, 24, 190, 48
    most = max(row["peak_bytes"] for row in result["rows"])
    limit = (int(most / 5e8) + 1) * 5e8

    def point(size: float, peak: float) -> tuple[float, float]:
        across = left + (width - left - right) * size / SIZES_MB[-1]
        return round(across, 1), round(height - bottom - (height - top - bottom) * peak / limit, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="title">',
        "<title>Peak memory over the size of the text: two scripts with lists grow in proportion, "
        "Penstok stays flat</title>",
        "<style>text{font:13px system-ui,sans-serif;fill:#24292f}.grid{stroke:#d0d7de}"
        "polyline{fill:none;stroke-width:2.5}.whole{stroke:#cf222e}.list{stroke:#9a6700}"
        ".penstok{stroke:#00796b}text.whole{fill:#cf222e;stroke:none}"
        "text.list{fill:#9a6700;stroke:none}text.penstok{fill:#00796b;stroke:none}"
        "@media(prefers-color-scheme:dark){rect{fill:#0d1117}text{fill:#c9d1d9}.grid{stroke:#30363d}"
        ".whole{stroke:#ff7b72}.list{stroke:#d29922}.penstok{stroke:#4db6ac}"
        "text.whole{fill:#ff7b72}text.list{fill:#d29922}text.penstok{fill:#4db6ac}}</style>",
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
    ]
    step = 5e8 if limit <= 3e9 else 1e9
    for tick in range(int(limit / step) + 1):
        across, down = point(0, tick * step)
        parts.append(
            f'<line class="grid" x1="{across}" x2="{width - right}" y1="{down}" y2="{down}"/>'
        )
        label = f"{tick * step / 1e9:g} GB"
        parts.append(f'<text x="{left - 8}" y="{down + 4}" text-anchor="end">{label}</text>')
    for size in SIZES_MB:
        across, down = point(size, 0)
        parts.append(f'<text x="{across}" y="{down + 20}" text-anchor="middle">{size}</text>')
    parts.append(
        f'<text x="{(left + width - right) / 2}" y="{height - 8}" text-anchor="middle">'
        "MB of text</text>"
    )
    for way, name in NAMES.items():
        points = [
            point(row["mb"], row["peak_bytes"]) for row in result["rows"] if row["way"] == way
        ]
        drawn = " ".join(f"{across},{down}" for across, down in points)
        parts.append(f'<polyline class="{way}" points="{drawn}"/>')
        across, down = points[-1]
        parts.append(f'<text class="{way}" x="{across + 8}" y="{down + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main(command: str, *arguments: str) -> None:
    """Measure, or draw what was measured."""
    if command == "measure":
        RESULT.write_text(json.dumps(measure(Path(*arguments)), indent=1) + "\n")
    result = json.loads(RESULT.read_text())
    PICTURE.write_text(picture(result))
    print(table(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
