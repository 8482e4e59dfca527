"""Tokenizers from files: what is read, what is proved, what is refused with which error."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from vocabularies import EOT_TEXT, gpt2_json, train, write_json

from penstok.choices import EngineChoice, PatternName
from penstok.engines import choose_engine, engine_needs, name_reference
from penstok.engines.registry import ENGINES
from penstok.errors import UsageError
from penstok.tokenizers import (
    ByteLevel,
    LibraryModel,
    Tokenizer,
    load_recorded_tokenizer,
    load_tokenizer,
)
from penstok.tokenizers.vocabulary import (
    GPT2_PATTERN,
    PATTERNS,
    find_whole_tokens,
    format_ranks,
    last_merges,
    parse_ranks,
)
from penstok.types import MemoryNeeds, TokenizerRecord

Edit = Callable[[dict[str, Any]], Any]


@cache
def small_json() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(train(400).to_str())
    return content


def edited(edit: Edit) -> dict[str, Any]:
    content = copy.deepcopy(small_json())
    edit(content)
    return content


def record_of(tokenizer: Tokenizer) -> TokenizerRecord:
    return TokenizerRecord(
        tokenizer.name,
        tokenizer.vocab_size,
        tokenizer.eot_id,
        tokenizer.fingerprint,
        tokenizer.bos_id,
    )


def test_every_engine_has_a_row_with_a_class_of_its_name() -> None:
    assert get_args(EngineChoice) == ("auto", *(engine.name for engine in ENGINES))
    for engine in ENGINES:
        assert engine.load_class().name == engine.name
    assert get_args(PatternName) == tuple(PATTERNS)
    with pytest.raises(UsageError, match="unknown engine `fast`; known: auto, kernel"):
        choose_engine("fast", load_tokenizer("gpt2"))


def test_memory_needs_add_up() -> None:
    needs = engine_needs("kernel", load_tokenizer("gpt2"))
    more = MemoryNeeds(parent_bytes=1, worker_bytes=2)
    assert needs.parent_bytes == 0
    assert needs + more == MemoryNeeds(
        parent_bytes=1, worker_bytes=needs.worker_bytes + 2, block_bytes=needs.block_bytes
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


def finds_in_text(text: str, **flags: bool) -> Edit:
    def edit(content: dict[str, Any]) -> None:
        token = {"id": 400, "content": text, "special": False, "normalized": False}
        content["added_tokens"].append({**ADDED_FLAGS, **token, **flags})

    return edit


ADDED_FLAGS = {"lstrip": False, "rstrip": False, "single_word": False}


def finds_after_normalizing(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "NFC"}
    finds_in_text("word", normalized=True)(content)


def finds_before_and_after(content: dict[str, Any]) -> None:
    finds_in_text("word", normalized=True)(content)
    finds_in_text("other")(content)
    content["added_tokens"][-1]["id"] = 401


def looks_up_special(content: dict[str, Any]) -> None:
    """Add a special token that is one piece."""
    vocab = content["model"]["vocab"]
    content["model"]["ignore_merges"] = True
    added = {**content["added_tokens"][0], "content": "qzqzqz", "id": len(vocab)}
    vocab["qzqzqz"] = len(vocab)
    content["added_tokens"].append(added)


# Models that are not equal to ranks are left to the file's own library, with the reason.
LEFT: list[tuple[Edit, str]] = [
    (set_at("model", "end_of_word_suffix", to="</w>"), "`end_of_word_suffix`"),
    (set_at("model", "byte_fallback", to=True), "`byte_fallback`"),
    (set_at("normalizer", to={"type": "NFKC"}), "its normalizer is not NFC"),
    (set_at("pre_tokenizer", to=None), "its pre-tokenizer is None"),
    (set_at("pre_tokenizer", "add_prefix_space", to=True), "adds a space"),
    (set_at("pre_tokenizer", "use_regex", to=False), "no pattern, or two"),
    (
        set_at(
            "pre_tokenizer",
            to={
                "type": "Sequence",
                "pretokenizers": [
                    split_by(r"\p{N}{1,3}| ?\p{L}+"),
                    {
                        "type": "ByteLevel",
                        "add_prefix_space": False,
                        "use_regex": False,
                        "trim_offsets": False,
                    },
                ],
            },
        ),
        "an unknown pattern",
    ),
    (finds_in_text("two words"), "it finds 'two words' in text"),
    (finds_in_text("caf\u00e9\u00e9"), "it finds 'caf\u00e9\u00e9' in text"),
    (finds_in_text("word", lstrip=True), "it finds 'word' in text"),
    (finds_after_normalizing, "it finds 'word' in normalized text"),
    (finds_before_and_after, "some tokens in text before, some after"),
    (finds_in_text("<|end"), "can be a part of a special token"),
    (finds_in_text("text|>x"), "can be a part of a special token"),
    (looks_up_special, "including special tokens"),
    (set_at("model", "vocab", "\u65e5", to=9999), "not spelled in bytes"),
    (set_at("model", "vocab", "qzqzqz", to=9999), "no merges produce"),
    (swap_merges, "not in order of id"),
    (swap_ids, "not in order of id"),
    (share_an_id, "share the id|not in order of id"),
    (lambda content: content["model"]["merges"].pop(), "do not produce .* as its ids require"),
]


@pytest.mark.parametrize(("edit", "why"), LEFT, ids=[why for _, why in LEFT])
def test_models_not_equal_to_ranks_are_left_to_the_library(
    edit: Edit, why: str, tmp_path: Path
) -> None:
    path = write_json(tmp_path, edited(edit))
    found = load_tokenizer(path)
    assert isinstance(found.model, LibraryModel)
    assert re.search(why, found.model.why)
    engine, why_not_faster = choose_engine("auto", found)
    assert engine == name_reference(found) == "tokenizers"
    assert found.model.why in why_not_faster
    for other in ("kernel", "tiktoken", "fastokens", "sentencepiece"):
        with pytest.raises(UsageError, match=f"engine `{other}` cannot encode"):
            choose_engine(other, found)
    assert found.fingerprint != load_tokenizer(write_json(tmp_path, small_json())).fingerprint


REFUSED: list[tuple[Edit, str]] = [
    (set_at("model", "type", to="Unigram"), "`tokenizers` cannot read it"),
    (set_at("model", "dropout", to=0.1), "its ids are random"),
    # The library would end the process.
    (
        set_at("model", "continuing_subword_prefix", to="##"),
        "lacks the `continuing_subword_prefix`",
    ),
    (set_at("post_processor", to={"type": "TemplateProcessing"}), "not a `tokenizer.json`"),
    (set_at("added_tokens", 0, "id", to=1 << 40), "has the id|cannot read it"),
    (set_at("added_tokens", 0, "id", to=5), "has the id 5; its library gives 0"),
    (set_at("model", "vocab", "zz", to=-5), "ids outside 0"),
    (set_at("post_processor", to={"type": "Odd"}), "its post-processor is `Odd`"),
    (set_at("model", "vocab", "a", to=1.5), "ids outside 0"),
    (set_at("model", "vocab", to={}), "cannot read it"),
    (merge_another_way, "cannot read it"),
    (lambda content: content.pop("model"), "not a `tokenizer.json`"),
]


@pytest.mark.parametrize(("edit", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_unusable_tokenizer_json_is_refused(edit: Edit, why: str, tmp_path: Path) -> None:
    path = write_json(tmp_path, edited(edit))
    with pytest.raises(UsageError, match=why) as raised:
        load_tokenizer(path)
    assert raised.value.where == path


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000, '{"model": 3}', '"\ud800"'])
def test_other_json_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(UsageError, match=r"not a `tokenizer\.json`"):
        load_tokenizer(str(tmp_path))


def test_nfc_and_simple_added_tokens_are_supported_with_ranks(tmp_path: Path) -> None:
    content = edited(finds_in_text("<tool>"))
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}]}
    found = load_tokenizer(write_json(tmp_path, content))
    assert isinstance(found.model, ByteLevel)
    assert (found.model.normalizer, found.model.added) == ("NFC", {"<tool>": 400})
    assert name_reference(found) == "tokenizers"
    plain = load_tokenizer(write_json(tmp_path, small_json()))
    assert found.ranks == plain.ranks
    assert found.fingerprint != plain.fingerprint
    assert found.decode_bytes([400]) == b"<tool>"


def template(*parts: str) -> dict[str, Any]:
    single = [
        {"Sequence": {"id": "A", "type_id": 0}}
        if part == "A"
        else {"SpecialToken": {"id": part, "type_id": 0}}
        for part in parts
    ]
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {}}


ROBERTA = {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 1]}
NAMED = {"X": {"id": "X", "ids": [0], "tokens": ["<s>"]}}


@pytest.mark.parametrize(
    ("special", "processor", "config", "expected"),
    [
        (["<|endoftext|>", "</s>"], None, None, ("<|endoftext|>", None)),
        (["<s>", "</s>"], None, None, ("</s>", None)),
        (["<s>", "</s>"], template("<s>", "A"), None, ("</s>", "<s>")),
        (["[CLS]", "[SEP]"], template("[CLS]", "A", "[SEP]"), None, ("[SEP]", "[CLS]")),
        (["<s>", "</s>"], template("<s>", "A"), {"add_bos_token": False}, ("</s>", None)),
        (["<s>", "</s>"], ROBERTA, None, ("</s>", "<s>")),
        (["<s>", "</s>"], {**template("X", "A"), "special_tokens": NAMED}, None, ("</s>", "<s>")),
        (["<s>", "<e>"], None, {"eos_token": "<e>", "bos_token": "<s>"}, ("<e>", None)),
        (
            ["<s>", "<e>"],
            None,
            {"eos_token": {"content": "<e>"}, "bos_token": "<s>", "add_bos_token": True},
            ("<e>", "<s>"),
        ),
        # The end of a turn in a chat model does not end a text.
        (
            ["<|end_of_text|>", "<|eot_id|>"],
            None,
            {"eos_token": "<|eot_id|>"},
            ("<|end_of_text|>", None),
        ),
        # One token for both is written once.
        (["<|endoftext|>"], template("<|endoftext|>", "A"), None, ("<|endoftext|>", None)),
    ],
)  # fmt: skip
def test_ids_between_documents_are_those_the_tokenizer_names(
    special: list[str],
    processor: dict[str, Any] | None,
    config: dict[str, Any] | None,
    expected: tuple[str, str | None],
    tmp_path: Path,
) -> None:
    content = json.loads(train(400, *special).to_str())
    content["post_processor"] = processor
    write_json(tmp_path, content)
    if config is not None:
        write_json(tmp_path, config, "tokenizer_config.json")
    found = load_tokenizer(str(tmp_path))
    bos = None if expected[1] is None else found.special[expected[1]]
    assert (found.eot_text, found.eot_id) == (expected[0], found.special[expected[0]])
    assert found.bos_id == bos
    without = load_tokenizer(str(tmp_path), bos="none")
    assert without.bos_id is None
    assert (without.fingerprint == found.fingerprint) == (bos is None)


def test_begin_of_text_is_given_by_text_or_id(tmp_path: Path) -> None:
    path = write_json(tmp_path, train(400, "<s>", "</s>").to_str())
    assert load_tokenizer(path, bos="<s>") == load_tokenizer(path, bos="0")
    assert load_tokenizer(path, bos="0").bos_id == 0
    for asked, why in (
        ("<x>", r"no special token `<x>`; its special tokens are `<s>` \(0\), `</s>` \(1\)"),
        ("</s>", "already ends documents"),
        ("5", "cannot begin documents: .* which occurs in text"),
        ("1" * 5000, "is not an id of"),
    ):
        with pytest.raises(UsageError, match=why) as raised:
            load_tokenizer(path, bos=asked)
        assert raised.value.where == "--bos"


def with_line(line: bytes) -> bytes:
    return format_ranks({bytes([byte]): byte for byte in range(256)}) + line


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (with_line(b"AAA= 300\n")[7:], "byte 0 is not a token"),
        (with_line(b"no-base64! 300\n"), "line 257 is not a base64 token"),
        (with_line(b"YWI= many\n"), "line 257 is not a base64 token"),
        (with_line(b"YQ== 300\n"), "line 257 repeats a token"),
        (with_line(b"YWI= 97\n"), "share the id 97"),
        (with_line(b"YWI= 2097152\n"), "must be from 0 to 2097151"),
    ],
)
def test_invalid_ranks_are_refused(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=why):
        load_tokenizer(str(path), eot_token="400", pattern="gpt2")


def test_ranks_are_written_as_they_are_read() -> None:
    content = with_line(b"YWI= 300\n")
    assert format_ranks(parse_ranks(content)) == content


def test_a_file_of_ranks_needs_a_pattern_and_end_of_text(tmp_path: Path) -> None:
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(with_line(b""))
    for given, why in (
        ({"eot_token": "256"}, "does not contain the pattern"),
        ({"pattern": "gpt2"}, "does not say which token ends a text; it has no special tokens"),
        ({"pattern": "gpt9", "eot_token": "256"}, "unknown pattern `gpt9`; known: gpt2"),
        (
            {"pattern": "gpt2", "eot_token": "97"},
            "97 cannot end documents: it is the ordinary token `a`, which occurs in text",
        ),
        ({"pattern": "gpt2", "eot_token": "2097152"}, "ids are 0 to 255; a special .* up to 4351"),
        ({"pattern": "gpt2", "eot_token": "<s>"}, "no special token `<s>`"),
    ):
        with pytest.raises(UsageError, match=why):
            load_tokenizer(str(path), **given)
    found = load_tokenizer(str(path), pattern="gpt2", eot_token="300")
    assert (found.eot_text, found.eot_id, found.vocab_size) == (EOT_TEXT, 300, 301)


def test_end_of_text_is_found_or_given_by_text_or_id(tmp_path: Path) -> None:
    path = write_json(tmp_path, train(400, "<a>", "<b>").to_str())
    with pytest.raises(UsageError, match=r"its special tokens are `<a>` \(0\), `<b>` \(1\)"):
        load_tokenizer(path)
    path = write_json(tmp_path, train(400, "<s>", "</s>").to_str())
    by_text, by_id = load_tokenizer(path, eot_token="</s>"), load_tokenizer(path, eot_token="1")
    assert by_text == by_id
    assert (by_text.eot_text, by_text.eot_id) == ("</s>", 1)
    assert by_text.decode_bytes([1, by_text.ranks[b"a"]]) == b"</s>a"
    assert load_tokenizer(path, eot_token="0").fingerprint != by_text.fingerprint


def test_the_pattern_of_a_file_may_be_repeated(tmp_path: Path) -> None:
    path = write_json(tmp_path, small_json())
    assert load_tokenizer(path, pattern="gpt2") == load_tokenizer(path)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gpt", "unknown tokenizer `gpt`; did you mean `gpt2`"),
        ("GPT2", "unknown tokenizer `GPT2`; did you mean `gpt2`"),
        ("llama3", "unknown tokenizer `llama3`; known: gpt2"),
        ("", "the name of the tokenizer is empty"),
        ("a\0b", "NUL byte"),
        ("/missing.json", "`/missing.json` does not exist\n.*--tokenizer\n.*`ls /`"),
        ("missing/tokenizer.json", "does not exist: there is no folder `missing`"),
        ("some/model/x.json", "no folder `some/model`(.|\n)*on the .* hub, pass `-t some/model`"),
        ("./llama.modle", r"does not exist; did you mean `llama\.model`(.|\n)*`-t llama\.model`"),
        ("x.model", "the tokenizer `x.model` does not exist"),
        ("~/none.json", "HOME/none.json` does not exist"),
        ("empty/mistyped", "the tokenizer `empty/mistyped` does not exist"),
        ("empty", "the folder has none of tokenizer.json, tokenizer.model; it is empty"),
        ("one", "it has `a.txt`, `my.tiktoken`(.|\n)*pass the file: `-t one/my.tiktoken`"),
        ("old", "it has `merges.txt`, `vocab.json`(.|\n)*write a `tokenizer.json` with"),
        ("many", r"it has `f0`, .*, `f7` and 4 more\n"),
        ("llama.model", "`sentencepiece` cannot read it"),
        ("llama.bin", "cannot be read from a `.bin` file"),
        ("llama", "cannot be read from a file without a suffix"),
        ("empty.model", "the file is empty"),
        ("blank.json", "the file is empty"),
        ("config.json", "not a `tokenizer.json`: it has no `model`; it has `a`, `b`"),
        ("beside/config.json", "no `model`(.|\n)*pass the file beside it: `-t beside/tokeni"),
        ("half.json", r"not a `tokenizer.json`: not valid JSON \(.*line 1 column"),
        ("list.json", "not a `tokenizer.json`: it is not a JSON object"),
        ("zero.json", "not a regular file, or larger than"),
        ("pipe.json", "not a regular file, or larger than"),
        ("dangling.json", "a link to `nowhere`, which does not exist"),
        ("loop", "a link to `loop`, which does not exist|a loop of links"),
        ("x" * 300, "the tokenizer cannot be read: File name too long"),
        ("hf://a/b", "cannot be read from the URL `hf://a/b`(.|\n)*pass `-t a/b`"),
        ("https://huggingface.co/a/b/tree/main", "pass `-t a/b`"),
        ("s3://a/b.json", "download the file and pass its path"),
    ],
)
def test_other_files_are_refused_with_the_reason(
    name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("empty", "one", "old", "many", "beside"):
        (tmp_path / folder).mkdir()
    for file in ("one/my.tiktoken", "one/a.txt", "old/vocab.json", "old/merges.txt", "llama"):
        (tmp_path / file).write_text("x")
    for number in range(12):
        (tmp_path / f"many/f{number if number < 8 else f'9{number}'}").touch()
    (tmp_path / "llama.model").write_bytes(b"no model")
    (tmp_path / "llama.bin").write_bytes(b"x")
    (tmp_path / "empty.model").touch()
    (tmp_path / "blank.json").write_text(" \n")
    for file in ("config.json", "beside/config.json", "beside/tokenizer.json"):
        (tmp_path / file).write_text('{"a": 1, "b": 2}')
    (tmp_path / "half.json").write_text('{"model": ')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    (tmp_path / "dangling.json").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(UsageError, match=why.replace("HOME", str(tmp_path))) as raised:
        load_tokenizer(name)
    assert raised.value.next_step


def test_a_file_without_permission_is_named_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_json(tmp_path, small_json())

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UsageError, match="cannot be read: Permission denied") as raised:
        load_tokenizer(path)
    assert f"`ls -ld {path}`" in str(raised.value)


def test_a_home_folder_is_found_as_the_shell_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(tmp_path, small_json())
    monkeypatch.setenv("HOME", str(tmp_path))
    found = load_tokenizer("~/tokenizer.json")
    assert found.name == "~/tokenizer.json"
    assert found.fingerprint == load_tokenizer(str(tmp_path)).fingerprint


def test_a_known_name_wins_over_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    write_json(tmp_path / "gpt2", small_json())
    assert load_tokenizer("gpt2").vocab_size == 50257
    assert load_tokenizer("./gpt2").vocab_size == 400


def test_a_recorded_tokenizer_must_be_unchanged(tmp_path: Path) -> None:
    ranks = tmp_path / "ranks.tiktoken"
    ranks.write_bytes(with_line(b"YWI= 300\n"))
    made = load_tokenizer(str(ranks), eot_token="500", pattern="gpt2")
    assert load_recorded_tokenizer(record_of(made)) == made
    assert load_recorded_tokenizer(record_of(load_tokenizer("gpt2"))).name == "gpt2"
    ranks.write_bytes(with_line(b"YWI= 301\n"))
    with pytest.raises(UsageError, match="no longer the tokenizer that made this output"):
        load_recorded_tokenizer(record_of(made))
    ranks.unlink()
    with pytest.raises(UsageError, match="does not exist"):
        load_recorded_tokenizer(record_of(made))


def unigram(num_pieces: int) -> dict[str, Any]:
    """A model of words: its special tokens are pieces like others."""
    pieces = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]]
    pieces += [[f"w{number}x", -5.0] for number in range(num_pieces - len(pieces))]
    flags = {**ADDED_FLAGS, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": place, "content": name, **flags} for place, (name, _) in enumerate(pieces[:3])
        ],
        "model": {"type": "Unigram", "unk_id": 2, "vocab": pieces},
    }


def test_ids_of_a_model_that_lists_its_tokens_are_all_counted(tmp_path: Path) -> None:
    path = write_json(tmp_path, unigram(70_000))
    found = load_tokenizer(path, eot_token="74095")
    assert found.model.num_ids == 70_000
    assert found.vocab_size == 74_096


def test_a_token_that_text_can_get_cannot_end_documents(tmp_path: Path) -> None:
    path = write_json(tmp_path, unigram(100))
    with pytest.raises(UsageError, match=r"1 cannot end documents: .* contains `</s>` gets it too"):
        load_tokenizer(path)


def test_an_invalid_config_is_named(tmp_path: Path) -> None:
    write_json(tmp_path, small_json())
    for text in ("{bad", "[]"):
        (tmp_path / "tokenizer_config.json").write_text(text)
        with pytest.raises(UsageError, match=r"`tokenizer_config\.json` beside it is not"):
            load_tokenizer(str(tmp_path))


def test_without_a_network_the_hub_is_given_up_soon_and_quietly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    from penstok.tokenizers import files

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    with pytest.raises(UsageError, match="cannot be downloaded: ConnectE"):
        files.find_file("nope/nope")
    assert waits == [1.0]
    assert capfd.readouterr() == ("", "")


def test_merges_are_the_same_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = dict(list(load_tokenizer("gpt2").ranks.items())[:3000])
    ranks |= {b"qzqzqz": 3000, b"the": 3001}  # no merges produce the first
    ranks.pop(b"th", None)
    expected, whole = last_merges(ranks), find_whole_tokens(ranks)
    assert b"qzqzqz" in whole
    monkeypatch.setattr("penstok.tokenizers.vocabulary.find_kernel_function", lambda name: None)
    assert last_merges(ranks) == expected
    assert find_whole_tokens(ranks) == whole


@pytest.mark.parametrize(
    "ranks",
    [{b"a": 0, b"b": 1, b"c": 2}, {b"b": 1, b"a": 0, b"c": 2}, {b"a": 0, b"b": 1, b"c": 4}],
)
def test_ids_are_spelled_whatever_the_order_of_the_ranks(ranks: dict[bytes, int]) -> None:
    model = ByteLevel(ranks, GPT2_PATTERN, added={"<x>": 7})
    for each in (model, ByteLevel(ranks, GPT2_PATTERN)):
        spelled = {rank: token for token, rank in ranks.items()}
        spelled |= {one: text.encode() for text, one in each.added.items()}
        assert each.spell(set(range(-1, 9))) == spelled
        assert each.spell({ranks[b"c"]}) == {ranks[b"c"]: b"c"}
