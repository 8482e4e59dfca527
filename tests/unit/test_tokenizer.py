"""Tokenizers from files: what is read, what is proved, what is refused and how it says so."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from vocabularies import EOT_TEXT, gpt2_json, train, write_json

from penstock.errors import UsageError
from penstock.tokenizer import Tokenizer, load_recorded_tokenizer, load_tokenizer
from penstock.types import TokenizerRecord
from penstock.vocabulary import GPT2_PATTERN, format_ranks, parse_ranks

Edit = Callable[[dict[str, Any]], Any]


@cache
def small_json() -> dict[str, Any]:
    import json

    content: dict[str, Any] = json.loads(train(400).to_str())
    return content


def edited(edit: Edit) -> dict[str, Any]:
    content = copy.deepcopy(small_json())
    edit(content)
    return content


def record_of(tokenizer: Tokenizer) -> TokenizerRecord:
    return TokenizerRecord(
        tokenizer.name, tokenizer.vocab_size, tokenizer.eot_id, tokenizer.fingerprint
    )


def test_gpt2_is_the_same_tokenizer_from_every_kind_of_file(tmp_path: Path) -> None:
    own = load_tokenizer("gpt2")
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(format_ranks(own.ranks))
    write_json(tmp_path, gpt2_json())
    from_ranks = load_tokenizer(str(path), eot_token="50256", pattern="gpt2")
    from_json, from_folder = (
        load_tokenizer(str(name)) for name in (tmp_path / "tokenizer.json", tmp_path)
    )
    for other in (from_ranks, from_json, from_folder):
        assert other.ranks == own.ranks
        assert (other.eot_text, other.eot_id, other.vocab_size) == (EOT_TEXT, 50256, 50257)
        assert other.fingerprint == own.fingerprint


def test_old_merges_and_a_split_with_the_pattern_are_read(tmp_path: Path) -> None:
    content = copy.deepcopy(small_json())
    expected = load_tokenizer(write_json(tmp_path, content))
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    content["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            split_by(GPT2_PATTERN),
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ],
    }
    found = load_tokenizer(write_json(tmp_path, content))
    assert found.fingerprint == expected.fingerprint


def split_by(pattern: str) -> dict[str, Any]:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def set_at(*path: Any, to: Any) -> Edit:
    def edit(content: Any) -> None:
        for name in path[:-1]:
            content = content[name]
        content[path[-1]] = to

    return edit


def swap_merges(content: dict[str, Any]) -> None:
    merges = content["model"]["merges"]
    merges[-1], merges[-2] = merges[-2], merges[-1]


def swap_ids(content: dict[str, Any]) -> None:
    vocab = content["model"]["vocab"]
    first, second = ("".join(pair) for pair in content["model"]["merges"][-2:])
    vocab[first], vocab[second] = vocab[second], vocab[first]


def share_an_id(content: dict[str, Any]) -> None:
    vocab = content["model"]["vocab"]
    vocab["".join(content["model"]["merges"][-1])] = vocab["a"]


def merge_another_way(content: dict[str, Any]) -> None:
    merges = content["model"]["merges"]
    at = next(i for i, (left, right) in enumerate(merges) if len(left) > 1)
    left, right = merges[at]
    merges[at] = [left[:-1], left[-1] + right]


REFUSED: list[tuple[Edit, str]] = [
    (set_at("model", "type", to="Unigram"), "its model is `Unigram`"),
    (set_at("model", "dropout", to=0.1), "`dropout`"),
    (set_at("model", "end_of_word_suffix", to="</w>"), "`end_of_word_suffix`"),
    (set_at("normalizer", to={"type": "NFC"}), r"normalizer \(`NFC`\)"),
    (set_at("post_processor", to={"type": "TemplateProcessing"}), "`TemplateProcessing` adds"),
    (set_at("pre_tokenizer", to=None), "its pre-tokenizer is `None`"),
    (set_at("pre_tokenizer", "type", to="Metaspace"), "its pre-tokenizer is `Metaspace`"),
    (set_at("pre_tokenizer", "add_prefix_space", to=True), "`add_prefix_space`"),
    (set_at("pre_tokenizer", "use_regex", to=False), "no pattern, or by two"),
    (
        set_at(
            "pre_tokenizer",
            to={
                "type": "Sequence",
                "pretokenizers": [
                    split_by(r"\p{N}{1,3}| ?\p{L}+"),
                    {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
                ],
            },
        ),
        r"the pattern .*those of gpt2, cl100k, llama3, qwen2 are known",
    ),
    (set_at("added_tokens", 0, "special", to=False), "added token .* is not special"),
    (set_at("added_tokens", 0, "id", to=1 << 40), "has the id"),
    (set_at("model", "vocab", "\u65e5", to=9999), "not spelled in bytes"),
    (set_at("model", "vocab", "qzqzqz", to=9999), "cannot be reached"),
    (set_at("model", "vocab", "a", to=1.5), "has the id 1.5"),
    (set_at("model", "vocab", to={}), "byte 0 is no token"),
    (swap_merges, "not in order of id"),
    (swap_ids, "not in order of id"),
    (share_an_id, "share the id"),
    (merge_another_way, "no rank stands for its merge"),
    (lambda content: content["model"]["merges"].pop(), "142 merges for 143 tokens"),
    (lambda content: content.pop("model"), "no `tokenizer.json` of a BPE"),
]


@pytest.mark.parametrize(("edit", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_ranks_cannot_stand_for_is_refused(edit: Edit, why: str, tmp_path: Path) -> None:
    path = write_json(tmp_path, edited(edit))
    with pytest.raises(UsageError, match=why) as raised:
        load_tokenizer(path)
    assert raised.value.where == path
    assert "a known pattern (gpt2, cl100k" in raised.value.next_step


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"model": 3}', '"\ud800"'])
def test_what_is_no_tokenizer_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(UsageError, match=r"no `tokenizer\.json` of a BPE"):
        load_tokenizer(str(tmp_path))


def with_line(line: bytes) -> bytes:
    return format_ranks({bytes([byte]): byte for byte in range(256)}) + line


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "byte 0 is no token"),
        (with_line(b"AAA= 300\n")[7:], "byte 0 is no token"),
        (with_line(b"no-base64! 300\n"), "line 257 is no token"),
        (with_line(b"YWI= many\n"), "line 257 is no token"),
        (with_line(b"YQ== 300\n"), "line 257 has a token that an earlier line has"),
        (with_line(b"YWI= 97\n"), "share the id 97"),
        (with_line(b"YWJj 300\n"), r"token 300 \(b'abc'\) cannot be reached"),
        (with_line(b"YWJj 300\nYWI= 301\n"), r"token 300 \(b'abc'\) cannot be reached"),
        (with_line(b"YWI= 2097152\n"), "0 to 2097151 can be"),
    ],
)
def test_ranks_that_cannot_be_merged_are_refused(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=why):
        load_tokenizer(str(path), eot_token="400", pattern="gpt2")


def test_ranks_are_written_as_they_are_read() -> None:
    content = with_line(b"YWI= 300\n")
    assert format_ranks(parse_ranks(content)) == content


def test_a_file_of_ranks_says_neither_pattern_nor_end_of_text(tmp_path: Path) -> None:
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(with_line(b""))
    for given, why in (
        ({"eot_token": "256"}, "does not say by which pattern"),
        ({"pattern": "gpt2"}, r"no special token `<\|endoftext\|>`; it has none"),
        ({"pattern": "gpt9", "eot_token": "256"}, "unknown pattern `gpt9`; known: gpt2"),
        ({"pattern": "gpt2", "eot_token": "97"}, "97 cannot end a text: .*b'a', which text has"),
        ({"pattern": "gpt2", "eot_token": "2097152"}, "above 2097151"),
        ({"pattern": "gpt2", "eot_token": "<s>"}, "no special token `<s>`"),
    ):
        with pytest.raises(UsageError, match=why):
            load_tokenizer(str(path), **given)
    found = load_tokenizer(str(path), pattern="gpt2", eot_token="300")
    assert (found.eot_text, found.eot_id, found.vocab_size) == (EOT_TEXT, 300, 301)


def test_end_of_text_is_found_or_asked_for_by_text_or_id(tmp_path: Path) -> None:
    path = write_json(tmp_path, train(400, "<s>", "</s>").to_str())
    with pytest.raises(UsageError, match=r"it has `<s>` \(0\), `</s>` \(1\)"):
        load_tokenizer(path)
    by_text, by_id = load_tokenizer(path, eot_token="</s>"), load_tokenizer(path, eot_token="1")
    assert by_text == by_id
    assert (by_text.eot_text, by_text.eot_id) == ("</s>", 1)
    assert by_text.decode_bytes([1, by_text.ranks[b"a"]]) == b"</s>a"
    assert load_tokenizer(path, eot_token="0").fingerprint != by_text.fingerprint


def test_a_file_that_names_its_pattern_is_asked_for_no_other(tmp_path: Path) -> None:
    path = write_json(tmp_path, small_json())
    assert load_tokenizer(path, pattern="gpt2") == load_tokenizer(path)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gpt", "unknown tokenizer `gpt`; did you mean `gpt2`"),
        ("missing/tokenizer.json", "unknown tokenizer"),
        ("empty", "unknown tokenizer `empty`"),
        ("llama.model", "cannot be read from a `.model` file"),
    ],
)
def test_what_is_no_tokenizer_file_is_told(
    name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "llama.model").touch()
    with pytest.raises(UsageError, match=why):
        load_tokenizer(name)


def test_a_name_of_the_package_wins_over_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    write_json(tmp_path / "gpt2", small_json())
    assert load_tokenizer("gpt2").vocab_size == 50257
    assert load_tokenizer("./gpt2").vocab_size == 400


def test_a_recorded_tokenizer_must_be_what_it_was(tmp_path: Path) -> None:
    ranks = tmp_path / "ranks.tiktoken"
    ranks.write_bytes(with_line(b"YWI= 300\n"))
    made = load_tokenizer(str(ranks), eot_token="500", pattern="gpt2")
    assert load_recorded_tokenizer(record_of(made)) == made
    assert load_recorded_tokenizer(record_of(load_tokenizer("gpt2"))).name == "gpt2"
    ranks.write_bytes(with_line(b"YWI= 301\n"))
    with pytest.raises(UsageError, match="no longer the tokenizer that made this output"):
        load_recorded_tokenizer(record_of(made))
    ranks.unlink()
    with pytest.raises(UsageError, match="unknown tokenizer"):
        load_recorded_tokenizer(record_of(made))
