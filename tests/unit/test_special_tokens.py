"""Which tokens end and begin documents: by the families of models, and by request."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from vocabularies import gpt2_json, train, write_json

from penstok.errors import UsageError
from penstok.tokenizers import ByteLevel, load_recorded_tokenizer, load_tokenizer
from penstok.tokenizers.vocabulary import format_ranks
from penstok.types import TokenizerRecord

FLAGS = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}


@cache
def plain_json() -> dict[str, Any]:
    """A tokenizer of 400 ids whose only special token, `<pad>`, ends nothing."""
    content: dict[str, Any] = json.loads(train(400, "<pad>").to_str())
    return content


def template(*parts: str) -> dict[str, Any]:
    single = [
        {"Sequence": {"id": "A", "type_id": 0}}
        if part == "A"
        else {"SpecialToken": {"id": part, "type_id": 0}}
        for part in parts
    ]
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {}}


def write_folder(
    folder: Path,
    special: str,
    eos: str | None = None,
    processor: dict[str, Any] | None = None,
    ordinary: str = "",
    **config: Any,
) -> str:
    """Write a folder as the hub has it, with these tokens (separated by spaces) from 400 on."""
    content = copy.deepcopy(plain_json())
    for is_special, texts in ((True, special.split()), (False, ordinary.split())):
        content["added_tokens"] += [
            {**FLAGS, "id": 399 + len(content["added_tokens"]) + place, "content": text}
            | {"special": is_special}
            for place, text in enumerate(texts)
        ]
    content["post_processor"] = processor
    write_json(folder, content)
    if eos is not None or config:
        write_json(folder, {"eos_token": eos, **config}, "tokenizer_config.json")
    return str(folder)


# The special tokens of each family, the `eos_token` of its configuration, and the right end.
FAMILIES: list[tuple[str, str, str | None, str]] = [
    ("GPT-2", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"),
    ("Gemma", "<eos> <bos> <unk>", "<eos>", "<eos>"),
    ("Gemma 3 it", "<eos> <bos> <unk> <start_of_turn> <end_of_turn>", "<end_of_turn>", "<eos>"),
    ("Llama 2", "<unk> <s> </s>", "</s>", "</s>"),
    ("Llama 3", "<|begin_of_text|> <|end_of_text|> <|eot_id|>", "<|end_of_text|>",
     "<|end_of_text|>"),
    ("Llama 3 Instruct", "<|begin_of_text|> <|end_of_text|> <|eom_id|> <|eot_id|>", "<|eot_id|>",
     "<|end_of_text|>"),
    ("Llama 4", "<|begin_of_text|> <|end_of_text|> <|eom|> <|eot|>", "<|eot|>", "<|end_of_text|>"),
    ("Qwen", "<|endoftext|> <|im_start|> <|im_end|>", "<|endoftext|>", "<|endoftext|>"),
    ("Qwen Instruct", "<|endoftext|> <|im_start|> <|im_end|>", "<|im_end|>", "<|endoftext|>"),
    ("SmolLM Instruct", "<|endoftext|> <|im_start|> <|im_end|>", "<|im_end|>", "<|endoftext|>"),
    ("Mistral", "<unk> <s> </s> [INST] [/INST]", "</s>", "</s>"),
    ("Phi 3", "<unk> <s> </s> <|endoftext|> <|assistant|> <|end|>", "<|endoftext|>",
     "<|endoftext|>"),
    ("Phi 3, no configuration", "<unk> <s> </s> <|endoftext|> <|end|>", None, "<|endoftext|>"),
    ("Phi 4", "<|endoftext|> <|im_start|> <|im_end|> <|im_sep|>", "<|im_end|>", "<|endoftext|>"),
    ("DeepSeek V3",
     "<\uff5cbegin\u2581of\u2581sentence\uff5c> <\uff5cend\u2581of\u2581sentence\uff5c>",
     "<\uff5cend\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    ("DeepSeek Coder Instruct", "<\uff5cend\u2581of\u2581sentence\uff5c> <|EOT|>", "<|EOT|>",
     "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    ("GLM 4", "<|endoftext|> [MASK] [gMASK] <sop> <eop> <|user|>", "<|endoftext|>",
     "<|endoftext|>"),
    ("Yi Chat", "<|startoftext|> <|endoftext|> <|im_end|>", "<|im_end|>", "<|endoftext|>"),
    ("Falcon", ">>TITLE<< <|endoftext|>", "<|endoftext|>", "<|endoftext|>"),
    ("OLMo 2", "<|endoftext|> <|pad|>", "<|endoftext|>", "<|endoftext|>"),
    ("gpt-oss", "<|startoftext|> <|endoftext|> <|return|> <|end|> <|call|>", "<|return|>",
     "<|endoftext|>"),
    ("ChatML on Llama 2", "<unk> <s> </s> <|im_start|> <|im_end|>", "<|im_end|>", "</s>"),
    ("EXAONE", "[BOS] [EOS] [|endofturn|]", "[|endofturn|]", "[EOS]"),
    ("Hunyuan", "<|startoftext|> <|endoftext|> <|eos|>", "<|eos|>", "<|eos|>"),
    ("MiniMax", "<beginning_of_sentence> <end_of_sentence>", "<end_of_sentence>",
     "<end_of_sentence>"),
]  # fmt: skip


@pytest.mark.parametrize(("special", "eos", "expected"), [f[1:] for f in FAMILIES],
                         ids=[f[0] for f in FAMILIES])  # fmt: skip
def test_the_end_of_a_text_is_preferred_to_the_end_of_a_turn(
    special: str, eos: str | None, expected: str, tmp_path: Path
) -> None:
    found = load_tokenizer(write_folder(tmp_path, special, eos))
    assert (found.eot_text, found.eot_id) == (expected, found.special[expected])
    assert found.eot_id == 400 + special.split().index(expected)
    if eos in (None, expected):
        assert found.eot_note == ""
    else:
        assert f"documents end with `{expected}` ({found.eot_id})" in found.eot_note
        assert f"also name `{eos}`" in found.eot_note
        # The flag of the note gives the other one, and no note.
        assert f"pass `--eot-token '{eos}'`" in found.eot_note
        other = load_tokenizer(str(tmp_path), eot_token=eos)
        assert (other.eot_text, other.eot_note) == (eos, "")
        assert other.fingerprint != found.fingerprint


def test_a_template_with_two_ends_is_chosen_from_by_the_same_rule(tmp_path: Path) -> None:
    """As Command R has it: the end of a turn is not even a special token."""
    turn = "<|END_OF_TURN_TOKEN|>"
    parts = template("<BOS_TOKEN>", "A", turn, "<EOS_TOKEN>")
    found = load_tokenizer(
        write_folder(
            tmp_path, "<BOS_TOKEN> <EOS_TOKEN>", turn, parts, ordinary=turn, add_bos_token=True
        )
    )
    assert (found.eot_text, found.eot_id, found.bos_id) == ("<EOS_TOKEN>", 401, 400)
    assert found.find_name(400) == "<BOS_TOKEN>"
    assert "documents end with `<EOS_TOKEN>` (401), because its name says" in found.eot_note
    assert f"also name `{turn}`" in found.eot_note
    # It could not be used: text gets it.
    assert "--eot-token" not in found.eot_note
    with pytest.raises(UsageError, match=r"\(402\) cannot end documents: it is an ordinary token"):
        load_tokenizer(str(tmp_path), eot_token=turn)


def test_a_name_that_does_not_say_that_it_ends_a_text_comes_with_a_note(tmp_path: Path) -> None:
    for special, eos, processor in (
        ("[CLS] [SEP]", None, template("[CLS]", "A", "[SEP]")),
        ("<|im_start|> <|im_end|>", "<|im_end|>", None),
    ):
        found = load_tokenizer(write_folder(tmp_path, special, eos, processor))
        assert found.eot_text == special.split()[1]
        assert f"documents end with `{found.eot_text}` (401), which the tokenizer" in found.eot_note
        assert "pass `--eot-token` if another token does" in found.eot_note


def test_several_ends_are_asked_for(tmp_path: Path) -> None:
    for special, eos in (("<eos> </s>", None), ("<eos> </s> <|im_end|>", None), ("<a> <b>", None)):
        with pytest.raises(UsageError, match="does not say which token ends a text") as raised:
            load_tokenizer(write_folder(tmp_path, special, eos))
        assert "`<pad>` (0)" in raised.value.what
        assert raised.value.next_step is not None
        # What it suggests works as it is typed.
        suggested = raised.value.next_step.split("`")[1].split()
        assert suggested[0] == "--eot-token"
        assert load_tokenizer(str(tmp_path), eot_token=suggested[1]).eot_id == int(suggested[1])


def test_several_tokens_before_a_text_are_asked_for(tmp_path: Path) -> None:
    """As GLM 4 has it."""
    parts = template("[gMASK]", "<sop>", "A")
    name = write_folder(tmp_path, "<|endoftext|> [gMASK] <sop>", "<|endoftext|>", parts)
    with pytest.raises(UsageError, match=r"begins each text with 2 tokens") as raised:
        load_tokenizer(name)
    assert raised.value.where == "--bos"
    assert "pass `--bos '<sop>'`" in str(raised.value)
    assert load_tokenizer(name, bos="<sop>").bos_id == 402
    assert load_tokenizer(name, bos="none").bos_id is None


def test_named_tokens_that_are_only_in_the_vocabulary_are_special(tmp_path: Path) -> None:
    """As InternLM 2 has it: no token is listed, but the configuration names them."""
    content = copy.deepcopy(plain_json())
    content["added_tokens"] = []
    content["model"]["vocab"] |= {"<s>": 400, "</s>": 401}
    write_json(tmp_path, content)
    config = {"eos_token": "</s>", "bos_token": "<s>", "add_bos_token": True}
    write_json(tmp_path, config, "tokenizer_config.json")
    found = load_tokenizer(str(tmp_path))
    assert (found.eot_id, found.bos_id) == (401, 400)
    # A token that merges produce occurs in text.
    made = "".join(content["model"]["merges"][-1])
    write_json(tmp_path, {**config, "bos_token": made}, "tokenizer_config.json")
    with pytest.raises(UsageError, match="which is not a special token of it") as raised:
        load_tokenizer(str(tmp_path))
    assert "pass `--bos none`" in str(raised.value)
    assert load_tokenizer(str(tmp_path), bos="none").eot_id == 401


# ---- tokens that are requested ----


@pytest.mark.parametrize(
    ("flag", "wanted", "why"),
    [
        ("eot_token", "999999", r"`999999` is not an id of `gpt2`: its ids are 0 to 50256"),
        ("eot_token", "50257", r"`50257` is not an id of `gpt2`: its ids are 0 to 50256"),
        ("eot_token", "-1", r"`-1` is not an id of `gpt2`"),
        ("eot_token", "9" * 5000, r"`999999999999\.\.\.` is not an id of `gpt2`"),
        ("bos", "999999", r"`999999` is not an id of `gpt2`: its ids are 0 to 50256"),
        ("bos", "-50256", r"`-50256` is not an id of `gpt2`"),
        ("eot_token", "31373", r"31373 cannot end documents: it is the ordinary token `hello`"),
        ("bos", "31373", r"31373 cannot begin documents: it is the ordinary token `hello`"),
        ("eot_token", "hello", r"`hello` \(31373\) cannot end documents: it is an ordinary token"),
        ("eot_token", "128", r"it is the ordinary token `\\xc4`"),
        ("eot_token", "<|endoftxt|>", r"no special .* did you mean `<\|endoftext\|>` \(50256"),
        ("eot_token", "endoftext", r"did you mean `<\|endoftext\|>`"),
        ("eot_token", "<|ENDOFTEXT|>", r"did you mean `<\|endoftext\|>`"),
        ("eot_token", "", r"no special token ``; its special tokens are"),
        ("eot_token", "1.5", r"no special token `1.5`"),
        ("eot_token", "\u0665", "no special token"),
        ("eot_token", "\udcff", r"\(187\) cannot end documents"),
    ],
)  # fmt: skip
def test_a_token_that_is_not_special_is_refused(flag: str, wanted: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as raised:
        load_tokenizer("gpt2", **{flag: wanted})
    assert raised.value.where == "--" + flag.replace("_", "-")
    # What it suggests works as it is typed.
    step = str(raised.value.next_step)
    assert ("--bos none" if flag == "bos" else "50256" if "such as" in step else "<|end") in step


def test_a_tokenizer_without_special_tokens_takes_the_ids_after_its_last(tmp_path: Path) -> None:
    content = copy.deepcopy(gpt2_json())
    del content["model"]["vocab"]["<|endoftext|>"]
    content["added_tokens"] = []
    path = write_json(tmp_path, content)
    found = load_tokenizer(path, eot_token="50256")
    assert isinstance(found.model, ByteLevel)
    assert (found.vocab_size, found.find_name(50256)) == (50257, "")
    assert load_tokenizer(path, eot_token="54351").vocab_size == 54352
    ranks = tmp_path / "my.tiktoken"
    ranks.write_bytes(format_ranks(found.ranks))
    for name, pattern in ((path, None), (str(ranks), "gpt2")):
        with pytest.raises(
            UsageError,
            match=r"`54352` is not an id .* 0 to 50255; a special .* up to 54351",
        ) as raised:
            load_tokenizer(name, eot_token="54352", pattern=pattern)
        assert "such as `--eot-token 50256`" in str(raised.value)


def test_an_output_with_an_id_that_is_refused_now_is_still_read() -> None:
    gpt2 = load_tokenizer("gpt2")
    record = TokenizerRecord("gpt2", 1_000_000, 999_999, "sha256:0")
    with pytest.raises(UsageError, match="is no longer the tokenizer that made this output"):
        load_recorded_tokenizer(record)
    record = TokenizerRecord("gpt2", 50257, 50256, gpt2.fingerprint)
    assert load_recorded_tokenizer(record) == gpt2


def test_names_of_tokens_are_recorded_only_if_there_are_any() -> None:
    fields = ["name", "vocab_size", "eot_id", "fingerprint", "bos_id"]
    assert list(TokenizerRecord("x", 2, 1, "sha256:0").to_dict()) == fields
    named = TokenizerRecord("x", 2, 1, "sha256:0", None, "<eos>")
    assert named.to_dict()["eot_text"] == "<eos>"
    assert "bos_text" not in named.to_dict()
