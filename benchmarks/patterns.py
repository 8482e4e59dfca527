"""The kernel against gigatoken and fastokens with another vocabulary than GPT-2's, in memory, cold.

Run as `patterns.py RANKS PATTERN TEXT...`, such as `cl100k_base.tiktoken cl100k web.txt code.txt`;
documents are separated by `<|endoftext|>`. Every run is a fresh process and sees its text once; the
contenders take turns, and the best of five runs counts. Prints a row for each text.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CONTENDERS = ("kernel", "gigatoken", "fastokens")
ROUNDS = 5
SCRIPT = Path(__file__).resolve().with_name("in_memory.py")


def best_speeds(text: Path, ranks: str, pattern: str) -> dict[str, float]:
    """Return MB per CPU second of each contender; their token counts must be the same."""
    seconds: dict[str, float] = {}
    counts = set()
    for _ in range(ROUNDS):
        for name in CONTENDERS:
            command = [sys.executable, str(SCRIPT), name, str(text), ranks, pattern]
            done = subprocess.run(command, capture_output=True, check=True, text=True)
            report = json.loads(done.stdout)
            counts.add(report["tokens"])
            used = report["encode_cpu_seconds"]
            seconds[name] = min(used, seconds.get(name, used))
    if len(counts) != 1:
        raise SystemExit(f"{text}: the contenders count different tokens: {sorted(counts)}")
    size = text.stat().st_size / 1e6
    return {name: size / used for name, used in seconds.items()}


def main() -> None:
    ranks, pattern, *texts = sys.argv[1:]
    print(f"| {pattern} | kernel | gigatoken | fastokens | kernel against the faster |")
    print("|---|---|---|---|---|")
    for text in map(Path, texts):
        speeds = best_speeds(text, ranks, pattern)
        ratio = speeds["kernel"] / max(speeds["gigatoken"], speeds["fastokens"])
        shown = " | ".join(f"{speeds[name]:.0f}" for name in CONTENDERS)
        print(f"| {text.stem} | {shown} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
