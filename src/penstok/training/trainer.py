"""The process that learns a vocabulary: texts in on standard input, a `tokenizer.json` out.

It is a process of its own because the library cannot be interrupted while it learns, and because
its memory grows with every word it has not seen: `training` feeds it, watches it, and can end it.
It reads no inputs and writes no files.
"""

from __future__ import annotations

import json
import os
import sys
import time
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizers import Tokenizer

__all__ = ["LENGTH_BYTES", "check_library", "count_pieces", "main"]

# What stands before each text: its length. An empty one is the last.
LENGTH_BYTES = 4
# The library takes 256 texts at a time, and time that grows with the square of a word's length.
# Where text has no blank for so long, a word is divided: one in hundreds.
_TEXT_BYTES = 1 << 11
# Of a pair that is seen once nothing can be learnt; GPT-2's longest token has 128 bytes, and a
# file with tokens of more than 1,024 could not be used.
_LEAST_COUNT = 2
_MAX_TOKEN_BYTES = 128
_MEASURED_BYTES = 1 << 20
_LOOK_SECONDS = 0.5


def check_library() -> None:
    """Raise `ImportError` if the library is not there, or is one that is used otherwise."""
    from tokenizers import Regex  # noqa: F401


def count_pieces(pattern: str, text: str) -> int:
    """Return into how many pieces a pattern divides a text; no token crosses their borders."""
    pre_tokenizer = _make_tokenizer(pattern).pre_tokenizer
    return len(pre_tokenizer.pre_tokenize_str(text))


def main() -> None:
    """Learn from what comes in; write the result as one line of JSON."""
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    stream = sys.stdin.buffer
    order: dict[str, Any] = json.loads(stream.readline())
    measured = _Thinned()
    tokenizer = _make_tokenizer(order["pattern"])
    _train(tokenizer, order["vocab_size"] - len(order["special"]), measured.kept_of(stream))
    # Behind all others, as GPT-2 has it: ids of ordinary tokens are then those of their merges.
    tokenizer.add_special_tokens(order["special"])
    encoded = tokenizer.encode_batch(measured.texts)
    result = {
        "tokenizer": tokenizer.to_str(pretty=True),
        "measured_bytes": sum(len(text.encode()) for text in measured.texts),
        "measured_tokens": sum(len(each.ids) for each in encoded),
    }
    json.dump(result, sys.stdout)


def _end_with(parent: int) -> None:
    """End when the parent is gone: nobody would take what is learnt."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def _make_tokenizer(pattern: str) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    return made


def _train(tokenizer: Tokenizer, num_tokens: int, texts: Iterator[str]) -> None:
    from tokenizers import pre_tokenizers, trainers

    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens,
        min_frequency=_LEAST_COUNT,
        max_token_length=_MAX_TOKEN_BYTES,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)


class _Thinned:
    """Keeps some of the texts that go by, spread evenly over all of them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._step = 1

    def kept_of(self, stream: IO[bytes]) -> Iterator[str]:
        kept_bytes = 0
        for number, text in enumerate(_iter_texts(stream)):
            if number % self._step == 0:
                self.texts.append(text)
                kept_bytes += len(text)
                if kept_bytes > _MEASURED_BYTES:
                    self._step *= 2
                    self.texts = self.texts[::2]
                    kept_bytes = sum(map(len, self.texts))
            yield text


def _iter_texts(stream: IO[bytes]) -> Iterator[str]:
    while length := int.from_bytes(stream.read(LENGTH_BYTES), "little"):
        yield from _divide(stream.read(length))


def _divide(text: bytes) -> Iterator[str]:
    """Divide a text into short ones: before a blank, else behind a line, else anywhere."""
    start = 0
    while len(text) - start > _TEXT_BYTES:
        end = start + _TEXT_BYTES
        blank, line = text.rfind(b" ", start + 1, end), text.rfind(b"\n", start, end)
        if blank > 0:
            end = blank
        elif line > 0:
            end = line + 1
        while text[end] & 0xC0 == 0x80:
            end -= 1
        yield text[start:end].decode()
        start = end
    yield text[start:].decode()
