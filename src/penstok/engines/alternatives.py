"""Whether another tokenizer would need far fewer tokens for the same text.

It measures with the encodings that are on this machine, and never uses the network: a figure that
was not measured is not given. `jobs` calls it for `plan` and for the summary, if tokens are short.
"""

from __future__ import annotations

from penstok.errors import PenstokError
from penstok.quantities import format_bytes
from penstok.tokenizers import Tokenizer
from penstok.tokenizers.encodings import is_at_hand, read_encoding

__all__ = ["SAMPLE_BYTES", "advise", "has_short_tokens"]

SAMPLE_BYTES = 64 << 10
# English text has about 4.5 bytes per token, other languages with a suitable tokenizer 3 to 5, and
# code about 3; GPT-2 has 1.6 in Chinese and Hindi.
_SHORT_BYTES = 2.5
_MIN_TOKENS = 2000
# A smaller vocabulary was chosen for its size.
_MIN_VOCAB = 30_000
# Fewer saved tokens are not worth another tokenizer.
_MAX_RATIO = 0.75
_MIN_FOREIGN = 0.3
_NOT_ASCII = bytes(range(0x80, 0x100))
# The largest vocabulary first: one encoding is measured, which takes half a second.
_ENCODINGS = (("o200k_base", 200_019), ("cl100k_base", 100_277), ("gpt2", 50_257))


def has_short_tokens(tokenizer: Tokenizer, num_tokens: int, text_bytes: int) -> bool:
    """Tell whether a text has so many tokens that another tokenizer may be better."""
    is_large = num_tokens >= _MIN_TOKENS and tokenizer.vocab_size >= _MIN_VOCAB
    return is_large and 0 < text_bytes < _SHORT_BYTES * num_tokens


def advise(
    tokenizer: Tokenizer, text: bytes, num_tokens: int, token_bytes: int, *, measures: bool
) -> str:
    """Name a tokenizer that needs fewer tokens for a text; empty if there is none.

    Args:
        tokenizer: The tokenizer of the job.
        text: A sample of its text.
        num_tokens: How many tokens the sample has, without those between documents.
        token_bytes: How many bytes a token takes on disk.
        measures: Whether there is time to load and try another tokenizer.
    """
    larger = [(name, size) for name, size in _ENCODINGS if size > 1.2 * tokenizer.vocab_size]
    if not larger or not num_tokens:
        return ""
    low = f"{len(text) / num_tokens:.2f} bytes of text per token is low"
    found = next((each for each in larger if is_at_hand(each[0])), None)
    if found is None or not measures:
        num_ascii = len(text.translate(None, _NOT_ASCII))
        foreign = (len(text) - num_ascii) / max(len(text), 1)
        return (
            f"{low}: a tokenizer with a larger vocabulary may need far fewer tokens; compare with "
            f"`penstok plan -t {larger[0][0]} INPUT`"
            if foreign >= _MIN_FOREIGN
            else ""
        )
    name, vocab_size = found
    ratio = _count(name, text) / num_tokens
    if not 0 < ratio <= _MAX_RATIO:
        return ""
    disk = ratio * (2 if vocab_size <= 1 << 16 else 4) / token_bytes
    return (
        f"{low}: `-t {name}` would need {ratio:.2f} of the tokens and {disk:.2f} of the disk space "
        f"(measured on {format_bytes(len(text))} of this text)"
    )


def _count(name: str, text: bytes) -> int:
    """Return how many tokens a text has with an encoding; 0 if it cannot be used."""
    from penstok.engines.tiktoken import TiktokenEngine

    try:
        parsed = read_encoding(name)
        other = Tokenizer(name, parsed.model, "", 0, parsed.vocab_size, "")
        return len(TiktokenEngine(other, "none").encode_text(text.decode(errors="replace")))
    except PenstokError:
        return 0
