"""Text without blanks, as one document each: speed, peak memory and forced cuts of the command.

Run as `unspaced.py [TOKENIZER...]`, by default gpt2; `cl100k_base` and `o200k_base` need tiktoken's
cache or a network. Chinese, Japanese and Thai are those of `bench-multi` less all white space,
`minified` is `bench-code` less what a minifier drops, `base64` is made of random bytes; each is one
document of the size below. Speed is that of the best run from the first unit to the last, start and
commit apart, of one worker on one core. Prints a row for each text and tokenizer.
"""

from __future__ import annotations

import base64
import io
import json
import random
import re
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard
from corpora import corpus_path
from measure import Measurement, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 3
LARGE_BYTES = 24 << 20
SCRIPTS = {"Chinese": "zh/", "Japanese": "ja/", "Thai": "th/"}


def iter_documents(corpus: str, prefix: str = "") -> Iterator[str]:
    with corpus_path(corpus).open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        for line in io.BufferedReader(stream):
            record = json.loads(line)
            if record["id"].startswith(prefix):
                yield record["text"]


def minify(code: str) -> str:
    """Drop indentation, newlines and blanks around signs; comments stay, as long words."""
    code = re.sub(r"\s+", " ", code)
    return re.sub(r" ?([^\w ]) ?", r"\1", code)


def without_blanks(name: str) -> bytes:
    """Return one text, as much of it as there is."""
    if name == "base64":
        return base64.b64encode(random.Random(1).randbytes(LARGE_BYTES * 3 // 4))
    if name == "minified":
        text = "".join(map(minify, islice(iter_documents("code"), 5000)))
    else:
        text = "".join("".join(each.split()) for each in iter_documents("multi", SCRIPTS[name]))
    return text.encode()[:LARGE_BYTES].decode(errors="ignore").encode()


def run(path: Path, tokenizer: str, folder: Path) -> Measurement:
    command = [sys.executable, "-m", "penstok", "tokenize", str(path), "-t", tokenizer]
    flags = ["-o", str(folder / "out"), "--docs-by", "file", "-j", "1", "--overwrite", "--json"]
    return measure([*command, *flags, "--no-progress"], num_cores=1)


def main() -> None:
    tokenizers = sys.argv[1:] or ["gpt2"]
    print("| text | tokenizer | MB | MB/s | peak memory | forced cuts |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="penstok-unspaced-") as name:
        folder = Path(name)
        for text in (*SCRIPTS, "base64", "minified"):
            content = without_blanks(text)
            path = folder / f"{text}.txt"
            path.write_bytes(content)
            for tokenizer in tokenizers:
                runs = [run(path, tokenizer, folder) for _ in range(ROUNDS)]
                used = min(each.report["run"]["work_seconds"] for each in runs)
                peak = max(each.peak_bytes for each in runs) >> 20
                cuts = runs[0].report["counts"]["forced_cuts"]
                size = len(content) / 1e6
                shown = f"{text} | {tokenizer} | {size:.0f} | {size / used:.0f}"
                print(f"| {shown} | {peak} MiB | {cuts} |", flush=True)


if __name__ == "__main__":
    main()
