"""Tokenizer files that Penstok does not know are refused, left to their library, or get its ids."""

from __future__ import annotations

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from parity.test_patterns import OWN_CL100K, cased_texts, hostile_texts, ids_of
from support import IS_THOROUGH
from vocabularies import train, write_json

from penstok.engines import choose_engine, load_engine
from penstok.errors import UsageError
from penstok.tokenizers import LibraryModel, load_tokenizer
from penstok.tokenizers.libraries import make_library_model
from penstok.tokenizers.vocabulary import (
    BLOOM_SPLIT,
    CL100K_PATTERN,
    DEEPSEEK_SPLITS,
    KIMI_PATTERN,
    O200K_PATTERN,
    PATTERN_RECORDS,
)

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
DIGITS = {"type": "Digits", "individual_digits": True}
TEXTS = [*hostile_texts(21, 40), *cased_texts(22, 40), " it's  1234 x\n\n  y \t\tz\u3000", "a  b"]


def split_at(expression: str, behavior: str = "Isolated", *, invert: bool = False) -> Any:
    pattern = {"Regex": expression}
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


@cache
def trained() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(train(600).to_str())
    return content


def with_steps(*steps: Any, uses_regex: bool = False) -> dict[str, Any]:
    content = copy.deepcopy(trained())
    last = {**BYTE_LEVEL, "use_regex": uses_regex}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*steps, last]}
    return content


def check_ids(content: dict[str, Any], folder: Path) -> str:
    """Compare the engine that a file gets with the library; return what became of the file."""
    path = write_json(folder, content)
    try:
        tokenizer = load_tokenizer(path, eot_token="<|endoftext|>")
    except UsageError as error:
        return "refused" if error.what and error.where and error.next_step else "refused silently"
    library = make_library_model("tokenizers", Path(path).read_bytes())
    engine = load_engine(choose_engine("auto", tokenizer)[0], tokenizer, "none")
    for text in TEXTS:
        expected = library.encode(text, add_special_tokens=False).ids
        assert ids_of(engine, [text]) == expected, (ascii(text), content["pre_tokenizer"])
    return tokenizer.model.why if isinstance(tokenizer.model, LibraryModel) else "ranks"


FALCON_PUNCTUATION = {"type": "Punctuation", "behavior": "Contiguous"}
NEAR_MISSES = {
    # Each differs from a known pattern in some text.
    "small contractions": with_steps(split_at(CL100K_PATTERN.replace("?i:", "?:"))),
    "both cases spelled out": with_steps(
        split_at(CL100K_PATTERN.replace("(?i:'s|'t|", "('[sS]|'[tT]|"))
    ),
    "four digits": with_steps(split_at(CL100K_PATTERN.replace("{1,3}", "{1,4}"))),
    # In this library `{1,3}+` is a repetition and `$` the end of a line.
    "tiktoken's cl100k": with_steps(split_at(OWN_CL100K)),
    "o200k without slashes": with_steps(split_at(O200K_PATTERN.replace("[\\r\\n/]*", "[\\r\\n]*"))),
    "kimi with slashes": with_steps(split_at(KIMI_PATTERN.replace("]+[\\r\\n]*", "]+[\\r\\n/]*"))),
    "bloom without what is between words": with_steps(
        split_at(BLOOM_SPLIT, "Removed", invert=True)
    ),
    "bloom with the space after a word": with_steps(split_at(BLOOM_SPLIT, "MergedWithNext")),
    "bloom without a stop": with_steps(split_at(BLOOM_SPLIT.replace("\u060c", ""))),
    "bloom with digits apart": with_steps(DIGITS, split_at(BLOOM_SPLIT)),
    "deepseek in another order": with_steps(*map(split_at, reversed(DEEPSEEK_SPLITS))),
    "two of deepseek's": with_steps(*map(split_at, DEEPSEEK_SPLITS[1:])),
    "deepseek without isolating": with_steps(
        *map(split_at, DEEPSEEK_SPLITS[:2]), split_at(DEEPSEEK_SPLITS[2], "MergedWithNext")
    ),
    "deepseek coder": with_steps(
        *map(split_at, (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5]+")), DIGITS
    ),
    "falcon": {
        **trained(),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                FALCON_PUNCTUATION,
                {**BYTE_LEVEL, "use_regex": True},
                {"type": "Digits", "individual_digits": False},
                split_at("[0-9][0-9][0-9]"),
            ],
        },
    },
    "matches dropped": with_steps(split_at(r"\s+", "Removed")),
    "matches merged": with_steps(split_at(CL100K_PATTERN, "MergedWithPrevious")),
    "inverted": with_steps(split_at(CL100K_PATTERN, invert=True)),
    "digits and a pattern": with_steps(DIGITS, split_at(CL100K_PATTERN)),
    "groups of digits": with_steps({"type": "Digits", "individual_digits": False}, uses_regex=True),
    "a string": with_steps({**split_at(""), "pattern": {"String": CL100K_PATTERN}}),
}


@pytest.mark.parametrize("content", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses_are_left_to_the_library_with_the_reason(
    content: dict[str, Any], tmp_path: Path
) -> None:
    why = check_ids(content, tmp_path)
    assert "its pre-tokenizer" in why


def mutate(content: dict[str, Any], rng: random.Random) -> None:
    """Change one thing in a `tokenizer.json`."""
    steps, model = content["pre_tokenizer"]["pretokenizers"], content["model"]
    step = rng.choice(steps)
    kind = rng.randrange(9)
    if kind < 3 and step["type"] == "Split":
        text = step["pattern"]["Regex"]
        at, to = rng.randrange(len(text)), rng.choice(["", "+", "?", "|", "\\", "s", "]", " "])
        step["pattern"]["Regex"] = text[:at] + to + text[at + rng.randrange(2) :]
    elif kind == 3:
        name = rng.choice([one for one, value in step.items() if type(value) is bool] or ["x"])
        step[name] = not step.get(name)
    elif kind == 4:
        behaviors = ["Removed", "Isolated", "MergedWithNext", "MergedWithPrevious", "Contiguous"]
        step["behavior"] = rng.choice(behaviors)
    elif kind == 5:
        rng.shuffle(steps)
    elif kind == 6:
        if rng.random() < 0.5:
            model[rng.choice(["ignore_merges", "byte_fallback", "fuse_unk"])] = rng.random() < 0.7
        else:
            name = rng.choice(["end_of_word_suffix", "continuing_subword_prefix", "unk_token"])
            model[name] = rng.choice([None, "", "a"])
    elif kind == 7:
        merges = model["merges"]
        first, second = rng.randrange(len(merges)), rng.randrange(len(merges))
        merges[first], merges[second] = merges[second], merges[first]
    else:
        texts = [
            "  ",
            "   ",
            "\t\t",
            "a",
            "b1",
            "'s",
            "\u3000",
            "\n",
            " x",
            "it",
            "\u4e2d",
            "<|end",
        ]
        flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
        flags[rng.choice([*flags])] = rng.random() < 0.5
        taken = {token["content"] for token in content["added_tokens"]}
        text = rng.choice([one for one in texts if one not in taken])
        token_id = model["vocab"].get(text, len(model["vocab"]) + len(taken) - 1)
        token = {"id": token_id, "content": text, "special": rng.random() < 0.2}
        content["added_tokens"].append({**flags, **token})


@pytest.mark.sampled
@pytest.mark.parametrize("record", PATTERN_RECORDS, ids=lambda record: record.name)
def test_no_change_to_a_file_gives_wrong_ids(record: Any, tmp_path: Path) -> None:
    rng, found = random.Random(record.name), set()
    for _ in range(300 if IS_THOROUGH else 30):
        steps = map(split_at, record.splits or (record.text,))
        content = with_steps(*steps)
        content["normalizer"] = rng.choice([None, None, {"type": "NFC"}])
        for _ in range(rng.randrange(1, 3)):
            mutate(content, rng)
        found.add(check_ids(content, tmp_path))
    assert "refused silently" not in found
    # Some changes do not matter, most do.
    assert {"ranks", "refused"} & found
    assert len(found) > 2
