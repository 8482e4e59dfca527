"""How the settings of two jobs are compared, in words that a user can type."""

from __future__ import annotations

from typing import Any

import pytest

from penstok.jobs.differences import find_differences
from penstok.types import JobRecord, TextRules, TokenizerRecord, replace

RULES = TextRules(
    tokenizer="sha256:1",
    dtype="uint16",
    text_rules=2,
    text_key="text",
    docs_by="file",
    doc_separator=None,
    strip=False,
    eot="append",
    val_fraction=0.1,
    seed=0,
    shard_tokens=None,
    invalid_utf8="replace",
    limit_bytes=None,
)
GPT2 = TokenizerRecord("gpt2", 50257, 50256, "sha256:1", None, "<|endoftext|>")


def record(tokenizer: TokenizerRecord = GPT2, **changes: Any) -> JobRecord:
    rules = replace(RULES, tokenizer=tokenizer.fingerprint, **changes)
    return JobRecord("0.1.0", tokenizer, rules.dtype, 10, rules.to_settings())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"val_fraction": 0.0005}, "`--val-fraction` 0.1 there, 0.0005 here"),
        ({"limit_bytes": 3 << 20}, "`--limit` not given there, 3MiB here"),
        ({"limit_bytes": 1000}, "`--limit` not given there, 1000 here"),
        (
            {"task_bytes": 1 << 30},
            "one task there, many tasks (`--task-size`, `--part` or Ray) here",
        ),
        ({"strip": True}, "`--strip` not given there, given here"),
        ({"text_key": "a b"}, "`--text-key` text there, 'a b' here"),
        ({"shard_tokens": 500}, "`--shard-tokens` not given there, 500 here"),
        ({"docs_by": "line"}, "`--docs-by` file there, `--docs-by` line here"),
        ({"docs_by": "record"}, "`--docs-by` file there, one document per record here"),
        (
            {"docs_by": "separator", "doc_separator": "\n\n"},
            r"`--docs-by` file there, `--doc-separator` '\n\n' here",
        ),
        ({"dtype": "uint32"}, "`--dtype` uint16 there, uint32 here"),
        ({"text_rules": 3}, "a version of penstok that reads text differently"),
    ],
)
def test_settings_are_named_as_flags(changes: dict[str, Any], expected: str) -> None:
    found = find_differences(record(), record(**changes))
    assert len(found) == 1
    assert expected in found[0]
    assert find_differences(record(**changes), record(**changes)) == []


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (
            TokenizerRecord("my tok.json", 70000, 5, "sha256:2"),
            "`-t` gpt2 there, 'my tok.json' here",
        ),
        (
            replace(GPT2, fingerprint="sha256:2"),
            "`-t gpt2`: the same name, but its content or `--pattern` differs",
        ),
        (
            replace(GPT2, fingerprint="sha256:2", eot_id=1, eot_text="<eos>"),
            "end-of-text `<|endoftext|>` (50256) there, `<eos>` (1) here; `--eot-token 50256` is "
            "the one there",
        ),
        (
            replace(GPT2, fingerprint="sha256:2", bos_id=1),
            "begin-of-text none there, 1 here; `--bos none` is the one there",
        ),
    ],
)
def test_tokenizers_are_named_not_hashed(tokenizer: TokenizerRecord, expected: str) -> None:
    """Another type of token follows from another tokenizer, and is not worth a word."""
    dtype = "uint32" if tokenizer.vocab_size > 65536 else "uint16"
    assert find_differences(record(), record(tokenizer, dtype=dtype)) == [expected]
