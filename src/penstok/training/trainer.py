"""The trainer process: learns a vocabulary from texts on standard input.

It runs in a process of its own because the library cannot be interrupted while it learns, and
because its memory grows with every new word: `process` monitors it and can stop it. It reads no
inputs and writes no files; the `tokenizer.json` goes to standard output.
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

# Each text is preceded by its length; a length of 0 marks the end.
LENGTH_BYTES = 4
# The library takes 256 texts at a time, and its time grows with the square of a word's length.
# Longer runs without a space are divided, which affects one word in hundreds.
_TEXT_BYTES = 1 << 11
# Nothing can be learned from a pair that occurs once. GPT-2's longest token has 128 bytes; tokens
# of thousands would be of no use.
_LEAST_COUNT = 2
_MAX_TOKEN_BYTES = 128
_MEASURED_BYTES = 1 << 20
_CHECK_SECONDS = 0.5


def check_library() -> None:
    """Raise `ImportError` if the library is missing or has another interface."""
    from tokenizers import Regex  # noqa: F401


def count_pieces(pattern: str, text: str) -> int:
    """Return how many pieces a pattern divides a text into; no token spans two pieces."""
    pre_tokenizer = _make_tokenizer(pattern).pre_tokenizer
    return len(pre_tokenizer.pre_tokenize_str(text))


def main() -> None:
    """Learn from the texts on standard input; write the result as one line of JSON."""
    Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    stream = sys.stdin.buffer
    options: dict[str, Any] = json.loads(stream.readline())
    measured = _Subsample()
    tokenizer = _make_tokenizer(options["pattern"])
    num_tokens = options["vocab_size"] - len(options["special"])
    _train(tokenizer, num_tokens, measured.iter_and_keep(stream))
    # After all others, as in GPT-2: then the ids of ordinary tokens are in the order of the merges.
    tokenizer.add_special_tokens(options["special"])
    encoded = tokenizer.encode_batch(measured.texts)
    result = {
        "tokenizer": tokenizer.to_str(pretty=True),
        "measured_bytes": sum(len(text.encode()) for text in measured.texts),
        "measured_tokens": sum(len(each.ids) for each in encoded),
    }
    json.dump(result, sys.stdout)


def _exit_with(parent: int) -> None:
    """Exit when the parent has died, since the result would be lost."""
    while os.getppid() == parent:
        time.sleep(_CHECK_SECONDS)
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


class _Subsample:
    """Keeps some of the texts of a stream, spread evenly over all of them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._step = 1

    def iter_and_keep(self, stream: IO[bytes]) -> Iterator[str]:
        """Yield all texts."""
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
    """Divide a text into short ones: before a space, else after a line end, else anywhere."""
    start = 0
    while len(text) - start > _TEXT_BYTES:
        end = start + _TEXT_BYTES
        space, newline = text.rfind(b" ", start + 1, end), text.rfind(b"\n", start, end)
        if space > 0:
            end = space
        elif newline > 0:
            end = newline + 1
        while text[end] & 0xC0 == 0x80:
            end -= 1
        yield text[start:end].decode()
        start = end
    yield text[start:].decode()
