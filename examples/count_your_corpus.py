"""Count the tokens of a corpus: `python examples/count_your_corpus.py examples/corpus`."""

from __future__ import annotations

import sys

import penstok

counted = penstok.count(sys.argv[1:] or "examples/corpus", tokenizer="gpt2")
print(f"{counted.documents:,} documents, {counted.text_bytes:,} bytes of text")
for tokenizer in counted.tokenizers:
    print(
        f"{tokenizer.name}: {tokenizer.tokens:,} tokens, {tokenizer.bytes_per_token:.2f} bytes each"
    )
for source in counted.inputs:
    (tokens,) = source.tokens.values()
    print(f"  {source.path}: {tokens:,} tokens, {source.text_bytes / tokens:.2f} bytes each")
