"""The script people write today, in its careful form: tiktoken in one process, text streamed.

Run as `plain_script.py RANKS TEXT TOKENS`; tiktoken itself would fetch the ranks. It knows nothing
of Penstok, and leaves out what would slow it further: no train and val, no checks, no fsync.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tiktoken
from tiktoken_ext.openai_public import r50k_pat_str

if TYPE_CHECKING:
    from collections.abc import Iterator

EOT = "<|endoftext|>"
READ_CHARACTERS = 1_000_000
GATHERED_TOKENS = 1_000_000


def iter_documents(path: Path) -> Iterator[str]:
    rest = ""
    with path.open(encoding="utf-8", newline="") as file:
        while text := file.read(READ_CHARACTERS):
            *documents, rest = (rest + text).split(EOT)
            yield from documents
    if rest:
        yield rest


def main() -> None:
    ranks_file, source, target = map(Path, sys.argv[1:])
    lines = map(bytes.split, ranks_file.read_bytes().splitlines())
    ranks = {b64decode(token): int(rank) for token, rank in lines}
    eot_id = len(ranks)
    encoding = tiktoken.Encoding(
        "gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={EOT: eot_id}
    )
    ids: list[int] = []
    with target.open("wb") as file:
        for document in iter_documents(source):
            ids += encoding.encode_ordinary(document)
            ids.append(eot_id)
            if len(ids) >= GATHERED_TOKENS:
                np.array(ids, np.uint16).tofile(file)
                ids.clear()
        np.array(ids, np.uint16).tofile(file)
    print(json.dumps({"tokens": target.stat().st_size // 2}))


if __name__ == "__main__":
    main()
