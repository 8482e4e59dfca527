"""Advice on a tokenizer that needs fewer tokens: only what was measured has a figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tiktoken

from penstok.engines import alternatives
from penstok.engines.alternatives import advise, has_short_tokens
from penstok.jobs.preview import make_preview
from penstok.jobs.settings import JobSettings
from penstok.tokenizers import ByteLevel, load_tokenizer
from penstok.tokenizers.encodings import is_at_hand
from penstok.tokenizers.models import ParsedTokenizer
from penstok.tokenizers.vocabulary import O200K_PATTERN

# GPT-2 needs more than one token per character of this script.
WORDS = ("\u0939\u093f\u0928\u094d\u0926\u0940", "\u092e\u0947\u0902", "\u0932\u093f\u0916\u093e")
HINDI = " ".join(WORDS * 600)
ENGLISH = "The quick brown fox jumps over the lazy dog. " * 300


def count_gpt2(text: str) -> int:
    gpt2 = load_tokenizer("gpt2")
    encoding = tiktoken.Encoding(
        "gpt2", pat_str=gpt2.pattern, mergeable_ranks=gpt2.ranks, special_tokens={}
    )
    return len(encoding.encode_ordinary(text))


@pytest.fixture
def with_larger(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Put an encoding at hand that has the words of the text, in place of o200k_base."""
    ranks = dict(load_tokenizer("gpt2").ranks)
    for word in WORDS:
        text = f" {word}".encode()
        for end in range(2, len(text) + 1):
            ranks.setdefault(text[:end], len(ranks))
    parsed = ParsedTokenizer(ByteLevel(ranks, O200K_PATTERN), {})

    def replace() -> None:
        monkeypatch.setattr(alternatives, "is_at_hand", lambda name: name == "o200k_base")
        monkeypatch.setattr(alternatives, "read_encoding", lambda name: parsed)

    return replace


@pytest.fixture(autouse=True)
def _no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))


def test_only_many_short_tokens_of_a_large_vocabulary_are_worth_advice() -> None:
    gpt2 = load_tokenizer("gpt2")
    assert has_short_tokens(gpt2, 10_000, 16_000)
    assert not has_short_tokens(gpt2, 10_000, 43_000)
    assert not has_short_tokens(gpt2, 100, 160)
    assert not has_short_tokens(gpt2, 10_000, 0)


def test_what_is_at_hand_is_known_without_the_network(tmp_path: Path) -> None:
    assert is_at_hand("gpt2")
    assert not is_at_hand("o200k_base")
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "fb374d419588a4632f3f557e76b4b70aebbca790").touch()
    assert is_at_hand("o200k_base")
    assert not is_at_hand("cl100k_base")


def test_without_an_encoding_at_hand_no_figure_is_given() -> None:
    gpt2, text = load_tokenizer("gpt2"), HINDI.encode()
    said = advise(gpt2, text, count_gpt2(HINDI), 2, measures=True)
    assert "bytes of text per token is low" in said
    assert "compare with `penstok plan -t o200k_base INPUT`" in said
    assert "of the tokens" not in said
    # Numbers and signs are short in every vocabulary.
    assert advise(gpt2, b"0.1 7;\n" * 3000, 15_000, 2, measures=True) == ""


def test_a_figure_is_measured(with_larger: Callable[[], None]) -> None:
    with_larger()
    gpt2, text = load_tokenizer("gpt2"), HINDI.encode()
    num_tokens = count_gpt2(HINDI)
    said = advise(gpt2, text, num_tokens, 2, measures=True)
    ratio = (len(WORDS) * 600) / num_tokens
    assert f"`-t o200k_base` would need {ratio:.2f} of the tokens" in said
    # A token takes 4 bytes instead of 2.
    assert f"and {2 * ratio:.2f} of the disk space (measured on" in said
    # There may be no time to measure; and text that is fine with GPT-2 gets no advice.
    assert "compare with" in advise(gpt2, text, num_tokens, 2, measures=False)
    assert advise(gpt2, ENGLISH.encode(), count_gpt2(ENGLISH), 2, measures=True) == ""


def test_plan_advises_where_tokens_are_short(
    with_larger: Callable[[], None], tmp_path: Path
) -> None:
    with_larger()
    for name, text in (("hindi", HINDI), ("english", ENGLISH)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        settings = JobSettings(
            inputs=(str(tmp_path / name),), output=tmp_path / "out", engine="tiktoken", workers=1
        )
        hints = make_preview(settings).hints
        assert any("`-t o200k_base` would need 0." in hint for hint in hints) == (name == "hindi")
