"""A SentencePiece BPE in the kernel gives the ids of its library, or is left to it.

Vocabularies are made up at random, over a few characters of one to four bytes, so that every rule
matters: characters without a piece, spaces anywhere before text, numbers, symbols, scores in any
order.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity.kernel_cases import (
    ISAS,
    LARGE_TABLE,
    TINY_TABLE,
    block_of,
    hostile_document,
)
from support import EXAMPLES, HOSTILE_CHARACTERS, part_of, rounds
from vocabularies import (
    BYTE_PIECES,
    CONTROL,
    DUMMY_PREFIX,
    ESCAPE,
    MODEL_TYPE,
    NORMAL,
    SPECIAL_PIECES,
    SUFFIX,
    UNUSED,
    USER_DEFINED,
    spell_sentencepiece,
    train_sentencepiece,
    trained_with_symbols,
)

from penstok.engines import choose_engine, engine_needs, load_engine
from penstok.engines.fastokens import PROVED_SHAPES
from penstok.engines.kernel import KernelEngine
from penstok.tokenizers import LibraryModel, Tokenizer, load_tokenizer
from penstok.tokenizers.cuts import CharacterCuts, DocumentCuts, find_cuts
from penstok.types import Block, EotPosition

MARK = "\u2581"
# Letters, a number, punctuation, line ends and white space, of one to four bytes.
ALPHABET = "ab1.\n\r\t\u00e9\u0301\u00bd\u2003\u4e00\u4e01\u4e8c\u3002\U0001f600\U0001f601"
# Some of their neighbours, which no vocabulary has, and the mark itself.
TEXT_ALPHABET = ALPHABET + " " * 9 + "cd2,\u00ea\u4e02\u5000\U0001f602\U0001f900\x00" + MARK
Piece = tuple[str, float, int]


def load_bytes(content: bytes, folder: Path, *, eot_token: str = "2") -> Tokenizer:
    path = folder / "made.model"
    path.write_bytes(content)
    return load_tokenizer(str(path), eot_token=eot_token)


def bpe_of(tokenizer: Tokenizer) -> Any:
    assert isinstance(tokenizer.model, LibraryModel)
    return tokenizer.model.bpe


def why(tokenizer: Tokenizer) -> str:
    assert isinstance(tokenizer.model, LibraryModel)
    assert tokenizer.model.bpe is None
    assert isinstance(find_cuts(tokenizer, 5), DocumentCuts)
    return tokenizer.model.why


def random_longer(rng: random.Random, characters: str) -> list[str]:
    """Make tokens of several characters up, most of which merges can produce."""
    made = [*characters, MARK]
    longer: dict[str, None] = {}
    for _ in range(rng.choice((3, 20, 150, 600))):
        left, right = rng.choice(made), rng.choice(made)
        token = left + right
        if len(token) > rng.choice((3, 6, 20)):
            continue
        # A space follows only spaces.
        if MARK in token.lstrip(MARK):
            continue
        longer[token] = None
        made.append(token)
    for _ in range(rng.randrange(4)):
        longer["".join(rng.choices(characters, k=rng.randrange(2, 7)))] = None
    return list(longer)


def random_model(seed: int) -> bytes:
    """A SentencePiece model with random pieces and scores; some of the alphabet has no piece."""
    rng = random.Random(seed)
    characters = "".join(rng.sample(ALPHABET, rng.randrange(3, len(ALPHABET) + 1)))
    longer = random_longer(rng, characters)
    scores = rng.sample(range(10 * len(longer) + 1), len(longer))
    pieces: list[Piece] = [(text, -float(score), NORMAL) for text, score in zip(longer, scores)]  # noqa: B905
    pieces += [(text, -float(rng.randrange(9)), NORMAL) for text in (*characters, MARK)]
    rng.shuffle(pieces)
    prefix = rng.randrange(2)
    return spell_sentencepiece(
        [*SPECIAL_PIECES, *BYTE_PIECES, *pieces], normalizer={DUMMY_PREFIX: prefix}
    )


def random_text(rng: random.Random) -> str:
    kind = rng.randrange(8)
    if kind == 0:
        return hostile_document(rng)
    if kind == 1:
        return " " * rng.randrange(90) + rng.choice(TEXT_ALPHABET) + " " * rng.randrange(600)
    if kind == 2:
        few = rng.choices(TEXT_ALPHABET, k=3)
        return "".join(rng.choices(few, k=rng.choice((10, 100, 3000))))
    return "".join(rng.choices(TEXT_ALPHABET, k=rng.choice((1, 2, 8, 40, 300))))


def encode(engine: Any, texts: list[str]) -> list[int]:
    found: list[int] = engine.encode(block_of([text.encode() for text in texts])).tolist()
    return found


def kernel(tokenizer: Tokenizer, isa: str, table_bytes: int, eot: EotPosition = "append") -> Any:
    return KernelEngine(tokenizer, eot, isa=isa, table_bytes=table_bytes)


@pytest.mark.parametrize("seed", range(24))
def test_random_models_give_the_ids_of_sentencepiece(seed: int, tmp_path: Path) -> None:
    tokenizer = load_bytes(random_model(seed), tmp_path)
    assert bpe_of(tokenizer) is not None
    rng = random.Random(seed)
    texts = [random_text(rng) for _ in range(rounds(60))]
    expected = encode(load_engine("sentencepiece", tokenizer, "append"), texts)
    for isa in ISAS:
        for table_bytes in (TINY_TABLE, LARGE_TABLE):
            found = encode(kernel(tokenizer, isa, table_bytes), texts)
            assert found == expected, (isa, table_bytes)


def random_json(seed: int) -> dict[str, Any]:
    """A `tokenizer.json` whose merges are listed by their results, or in random order."""
    rng = random.Random(seed)
    characters = "".join(rng.sample(ALPHABET, rng.choice((2, 3, 5, len(ALPHABET)))))
    longer = random_longer(rng, characters)
    known = {*characters, MARK, *longer}
    merges = [
        (token[:at], token[at:])
        for token in longer
        for at in range(1, len(token))
        if {token[:at], token[at:]} <= known
    ]
    if rng.random() < 0.4:
        rng.shuffle(merges)
    names = [*(text for text, *_ in (*SPECIAL_PIECES, *BYTE_PIECES)), *sorted(known)]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    prepend = {"type": "Prepend", "prepend": MARK}
    steps = [prepend, replace] if rng.random() < 0.5 else [replace]
    return {
        "version": "1.0",
        "added_tokens": [special(token_id, names[token_id]) for token_id in range(3)],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {name: number for number, name in enumerate(names)},
            "merges": [list(pair) for pair in merges],
        },
    }


def special(token_id: int, text: str, *, is_special: bool = True) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": text, "special": is_special, **flags}


def load_json(content: dict[str, Any], folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    # Where whole texts are looked up, `</s>` in text is a token, and a free id ends documents.
    free_id = str(len(content["model"]["vocab"]))
    is_looked_up = content["model"].get("ignore_merges")
    return load_tokenizer(str(path), eot_token=free_id if is_looked_up else "</s>")


@pytest.mark.parametrize("seed", range(40))
def test_random_merges_give_the_ids_of_tokenizers(seed: int, tmp_path: Path) -> None:
    tokenizer = load_json(random_json(seed), tmp_path)
    if bpe_of(tokenizer) is None:
        # Only for a reason that lies in the order or number of its merges.
        assert "its merges" in why(tokenizer)
        return
    rng = random.Random(seed)
    texts = [random_text(rng) for _ in range(rounds(40))]
    expected = encode(load_engine("tokenizers", tokenizer, "append"), texts)
    for isa in ISAS:
        assert encode(kernel(tokenizer, isa, TINY_TABLE), texts) == expected, isa


def test_most_random_merges_are_proved_and_some_are_not(tmp_path: Path) -> None:
    proved = [bpe_of(load_json(random_json(seed), tmp_path)) is not None for seed in range(40)]
    assert 20 < sum(proved) < 40


# ---- runs of spaces whose scores are equal, as in Mistral ----


@pytest.mark.parametrize("seed", range(12))
def test_equal_scores_of_runs_of_spaces_are_merged_from_the_left(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    lengths = [2, *rng.sample(range(3, 20), rng.randrange(1, 17))] if seed else [2, *range(4, 17)]
    words: list[Piece] = [("ab", -1.0, NORMAL), (MARK + "a", -2.0, NORMAL)]
    runs: list[Piece] = [(MARK * length, -1e9, NORMAL) for length in lengths]
    letters: list[Piece] = [(text, -9.0, NORMAL) for text in ("a", "b", MARK)]
    content = spell_sentencepiece([*SPECIAL_PIECES, *BYTE_PIECES, *runs, *words, *letters])
    tokenizer = load_bytes(content, tmp_path)
    assert bpe_of(tokenizer) is not None
    texts = [
        before + " " * count + after
        for count in (*range(80), 511, 512, 513, 700)
        for before, after in (("", ""), ("x", "ab"), ("", "b"), ("ab", "a\n"))
    ]
    expected = encode(load_engine("sentencepiece", tokenizer, "append"), texts)
    for isa in ISAS:
        assert encode(kernel(tokenizer, isa, LARGE_TABLE), texts) == expected, isa


# ---- what is left to the library ----

LETTERS: list[Piece] = [(text, -9.0, NORMAL) for text in (*"abc", MARK)]
BASE: list[Piece] = [*SPECIAL_PIECES, *BYTE_PIECES, *LETTERS]


REFUSED = {
    "its SentencePiece model is `unigram`": lambda: train_sentencepiece(
        model_type="unigram", byte_fallback=True, remove_extra_whitespaces=False
    ),
    "its SentencePiece model is `word`": lambda: spell_sentencepiece(BASE, {MODEL_TYPE: 3}),
    "it has no byte fallback for unknown characters": lambda: train_sentencepiece(
        model_type="bpe", remove_extra_whitespaces=False
    ),
    "it normalizes text": lambda: train_sentencepiece(
        model_type="bpe", byte_fallback=True, normalization_rule_name="nmt_nfkc"
    ),
    "it removes extra spaces": lambda: train_sentencepiece(model_type="bpe", byte_fallback=True),
    "it has spaces after words, not before them": lambda: spell_sentencepiece(BASE, {SUFFIX: 1}),
    "it does not mark spaces": lambda: spell_sentencepiece(BASE, normalizer={ESCAPE: 0}),
    "its token 'a b' has a space after other text": lambda: spell_sentencepiece(
        [*BASE, (f"a{MARK}b", -1.0, NORMAL)]
    ),
    "it has no token for a space": lambda: spell_sentencepiece(BASE[:-1]),
    "it has a token for a space that is not marked": lambda: spell_sentencepiece(
        [*BASE, (" ", -1.0, NORMAL)]
    ),
    "a character of its token 'ax' is not a token": lambda: spell_sentencepiece(
        [*BASE, ("ax", -1.0, NORMAL)]
    ),
    "the score of its piece 263 is not a number": lambda: spell_sentencepiece(
        [*BASE, ("ab", float("nan"), NORMAL)]
    ),
    "it has unused pieces": lambda: spell_sentencepiece([*BASE, ("ab", -1.0, UNUSED)]),
    "its pieces 'ab' and 'bc' have the same score": lambda: spell_sentencepiece(
        [*BASE, ("ab", -1.0, NORMAL), ("bc", -1.0, NORMAL), ("ca", -5.0, NORMAL)]
    ),
    # Runs of spaces that are not merged last, or beside other tokens of that score.
    f"its pieces '{MARK * 3}' and '{MARK * 2}' have the same score": lambda: spell_sentencepiece(
        [*BASE, (MARK * 2, -1.0, NORMAL), (MARK * 3, -1.0, NORMAL), ("ca", -5.0, NORMAL)]
    ),
    f"its pieces '{MARK * 2}' and 'ab' have the same score": lambda: spell_sentencepiece(
        [*BASE, (MARK * 2, -1.0, NORMAL), ("ab", -1.0, NORMAL)]
    ),
    f"its pieces '{MARK * 3}' and '{MARK * 2}' have the same score ": lambda: spell_sentencepiece(
        [*BASE, *[(MARK * n, -9.5, NORMAL) for n in (2, 3)], (f"{MARK * 2}a", -1.0, NORMAL)]
    ),
    "its special piece 'x' is also text": lambda: spell_sentencepiece([*BASE, ("x", 0.0, CONTROL)]),
    "it finds 'a b' in text before it is divided": lambda: spell_sentencepiece(
        [*BASE, ("a b", 0.0, USER_DEFINED)]
    ),
    "it finds '\u4e00' in text before it is divided": lambda: spell_sentencepiece(
        [*BASE, ("\u4e00", 0.0, USER_DEFINED)]
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_models_that_are_not_proved_are_left_to_sentencepiece(reason: str, tmp_path: Path) -> None:
    tokenizer = load_bytes(REFUSED[reason](), tmp_path)
    assert why(tokenizer) == reason.rstrip()
    engine, obstacle = choose_engine("auto", tokenizer)
    assert engine == "sentencepiece"
    assert reason.rstrip() in obstacle


# A seed whose merges are in order; the cases below change one thing each.
IN_ORDER = 0


def broken_json(case: str) -> dict[str, Any]:
    content = random_json(IN_ORDER)
    model = content["model"]
    if case == "added":
        content["added_tokens"].append(special(len(model["vocab"]), "<tool>", is_special=False))
    elif case == "metaspace":
        content["pre_tokenizer"] = {
            "type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False,
        }  # fmt: skip
    elif case == "normalizer":
        content["normalizer"]["normalizers"].append({"type": "NFKC"})
    elif case == "whole":
        model["ignore_merges"] = True
    elif case == "bytes":
        model["vocab"]["<0x41><0x42>"] = len(model["vocab"])
        model["merges"].insert(0, ["<0x41>", "<0x42>"])
    elif case == "no byte":
        model["vocab"] = {
            name: number - (number > 0xFF) for name, number in model["vocab"].items()
            if name != "<0xE4>"
        }  # fmt: skip
    return content


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("added", "it finds '<tool>' in text"),
        ("metaspace", "its pre-tokenizer is Metaspace"),
        ("normalizer", "its normalizer does more than mark spaces"),
        ("whole", "its model has `ignore_merges`"),
        ("bytes", "it merges bytes of unknown characters"),
        ("no byte", "it has no token for the byte 228"),
    ],
)
def test_files_that_are_not_proved_are_left_to_tokenizers(
    case: str, reason: str, tmp_path: Path
) -> None:
    tokenizer = load_json(broken_json(case), tmp_path)
    assert why(tokenizer) == f"its model has `byte_fallback`, and {reason}"
    assert reason in choose_engine("auto", tokenizer)[1]


def test_a_split_at_spaces_never_divides_marked_text(tmp_path: Path) -> None:
    content = random_json(IN_ORDER)
    content["pre_tokenizer"] = {
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
        "invert": False,
    }  # fmt: skip
    tokenizer = load_json(content, tmp_path)
    assert bpe_of(tokenizer) is not None
    texts = [random_text(random.Random(seed)) for seed in range(100)]
    expected = encode(load_engine("tokenizers", tokenizer, "append"), texts)
    assert encode(load_engine("kernel", tokenizer, "append"), texts) == expected


# ---- a trained model: all code points, boundaries, cuts ----


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    found = load_bytes(trained_with_symbols(), tmp_path_factory.mktemp("trained"))
    assert bpe_of(found).symbols == ("<sep>", "[DOC_1]")
    return found


@pytest.fixture(scope="module")
def library(tokenizer: Tokenizer) -> Any:
    return load_engine("sentencepiece", tokenizer, "append")


@pytest.mark.slow
@pytest.mark.parametrize("context", [("", ""), (" ", ""), ("a", "b"), ("1", "\n"), ("  ", "  ")])
def test_every_code_point_gives_the_ids_of_sentencepiece(
    context: tuple[str, str], tokenizer: Tokenizer, library: Any
) -> None:
    before, after = context
    every = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    characters = part_of(every)
    texts = [
        "".join(before + c + after for c in characters[at : at + 4096])
        for at in range(0, len(characters), 4096)
    ]
    expected = encode(library, texts)
    for isa in ISAS:
        assert encode(kernel(tokenizer, isa, LARGE_TABLE), texts) == expected, isa


@pytest.mark.parametrize("eot", ["append", "prepend", "none"])
def test_boundaries_and_parts_are_those_of_the_library(eot: EotPosition, tmp_path: Path) -> None:
    path = tmp_path / "made.model"
    path.write_bytes(trained_with_symbols())
    tokenizer = load_tokenizer(str(path), bos="<s>")
    engine, expected = (load_engine(name, tokenizer, eot) for name in ("kernel", "sentencepiece"))
    rng = random.Random(3)
    for _ in range(rounds(60)):
        texts = [rng.choice(("", " ", "x", random_text(rng))) for _ in range(rng.randrange(1, 9))]
        block = block_of([text.encode() for text in texts], rng.choice((b"", b"\xff", b"\xe2\x96")))
        begins = np.array([rng.random() < 0.6 for _ in texts])
        closes = np.array([rng.random() < 0.6 for _ in texts])
        mixed = Block(block.text, block.starts, block.ends, begins, closes, block.ends)
        assert engine.encode(mixed).tolist() == expected.encode(mixed).tolist()


def test_documents_get_one_space_and_parts_none(tokenizer: Tokenizer) -> None:
    engine = load_engine("kernel", tokenizer, "none")
    spaced, marked = encode(engine, [" the"]), encode(engine, [f"{MARK}the"])
    assert spaced == marked
    assert spaced != encode(engine, ["the"])
    assert encode(engine, ["", ""]) == []
    part = block_of([b" the"])
    begins = np.zeros(1, np.bool_)
    continued = Block(part.text, part.starts, part.ends, begins, part.closes, part.ends)
    assert engine.encode(continued).tolist() == encode(engine, ["the"])


def test_splits_are_encoded_separately(tokenizer: Tokenizer, library: Any) -> None:
    engine = load_engine("kernel", tokenizer, "append")
    texts = ["the first", "", "the second", f"{MARK}x\U0001f600\u9f98", "\n"]
    splits = np.array([0, 1, 1, 0, 1], np.uint8)
    outs = [np.empty(1000, np.uint16) for _ in range(2)]
    found = engine.encode_splits(block_of([text.encode() for text in texts]), splits, outs)  # type: ignore[attr-defined]
    for code in range(2):
        chosen = [text for text, split in zip(texts, splits, strict=True) if split == code]
        assert found[code].ids.tolist() == encode(library, chosen)


def test_a_block_holds_enough_room_for_the_ids_of_short_documents(tokenizer: Tokenizer) -> None:
    engine = load_engine("kernel", tokenizer, "append")
    texts = ["\n"] * 5000
    assert len(encode(engine, texts)) == 3 * len(texts)


@pytest.mark.parametrize("damage", [b"\xff", b"\xe2\x96", b"\xe2\x96\x81\x81", b"\xc3\xe2\x96\x81"])
def test_malformed_text_is_refused_also_beside_marks(damage: bytes, tokenizer: Tokenizer) -> None:
    engine = load_engine("kernel", tokenizer, "append")
    with pytest.raises(UnicodeDecodeError):
        engine.encode(block_of([b"good", MARK.encode() + damage + b"x", b"good"]))


def test_symbols_are_found_as_the_library_finds_them(tokenizer: Tokenizer, library: Any) -> None:
    engine = load_engine("kernel", tokenizer, "append")
    texts = ["<sep>", "a<sep>b", " <sep> <sep", "<<sep>>", "x[DOC_1][DOC_1]y", "[DOC_1", "plain"]
    symbol = tokenizer.model.find_id("<sep>")
    assert encode(engine, texts) == encode(library, texts)
    assert encode(engine, texts).count(symbol) == 4  # type: ignore[arg-type]


# ---- cuts ----


def divide(text: bytes, cuts: list[int]) -> Block:
    edges = [0, *cuts, len(text)]
    starts, ends = np.array(edges[:-1]), np.array(edges[1:])
    inside = np.zeros(len(starts), np.bool_)
    begins, closes = inside.copy(), inside.copy()
    begins[0] = closes[-1] = True
    return Block(memoryview(text), starts, ends, begins, closes, ends)


def check_every_cut(rule: CharacterCuts, library: Any, data: bytes) -> int:
    """Divide at all cuts and, in short text, at each alone; the library must give the same ids."""
    cuts = np.flatnonzero(rule.mask(np.frombuffer(data, np.uint8))).tolist()
    whole = library.encode(divide(data, [])).tolist()
    for chosen in (cuts, *([[cut] for cut in cuts] if len(data) < 300 else ())):
        assert library.encode(divide(data, chosen)).tolist() == whole, (data, chosen)
    lines = rule.line_mask(np.frombuffer(data, np.uint8))
    assert set(np.flatnonzero(lines).tolist()) <= set(cuts)
    return len(cuts)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.txt")), ids=lambda path: path.name)
def test_every_cut_of_real_text(path: Path, tokenizer: Tokenizer, library: Any) -> None:
    data = path.read_bytes()[:60_000].decode(errors="ignore").encode()
    found = check_every_cut(CharacterCuts(bpe_of(tokenizer)), library, data)
    assert found > len(data) / 40


@settings(max_examples=rounds(300))
@given(
    parts=st.lists(st.sampled_from([*HOSTILE_CHARACTERS, MARK, "<sep>", "[DOC_1]"]), max_size=60)
)
def test_every_cut_of_hostile_text(parts: list[str], tokenizer: Tokenizer, library: Any) -> None:
    check_every_cut(CharacterCuts(bpe_of(tokenizer)), library, "".join(parts).encode())


@pytest.mark.parametrize("seed", range(12))
def test_every_cut_with_random_models(seed: int, tmp_path: Path) -> None:
    tokenizer = load_bytes(random_model(seed), tmp_path)
    library, rng = load_engine("sentencepiece", tokenizer, "append"), random.Random(seed)
    rule = find_cuts(tokenizer, 5)
    assert isinstance(rule, CharacterCuts)
    assert rule.max_document_bytes is None
    texts = ("".join(rng.choices(TEXT_ALPHABET, k=60)) for _ in range(rounds(60)))
    assert sum(check_every_cut(rule, library, text.encode()) for text in texts) > 50


def test_cuts_in_any_bytes_are_between_whole_characters(tokenizer: Tokenizer) -> None:
    rule, rng = CharacterCuts(bpe_of(tokenizer)), random.Random(8)
    for _ in range(rounds(2000)):
        data = bytes(rng.choices((*b"ab1. \n\r", *range(0x7E, 0x100)), k=rng.randrange(40)))
        for cut in np.flatnonzero(rule.mask(np.frombuffer(data, np.uint8))).tolist():
            assert data[cut] & 0xC0 != 0x80
            left = data[max(cut - 4, 0) : cut]
            assert any(_is_character(left[-length:]) for length in range(1, 5))


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


# ---- the libraries continue documents too ----


def test_tokenizers_and_fastokens_continue_a_document(tmp_path: Path) -> None:
    tokenizer = next(
        found
        for seed in range(40)
        if bpe_of(found := load_json(random_json(seed), tmp_path)) and bpe_of(found).adds_space
    )
    assert isinstance(tokenizer.model, LibraryModel)
    text = b"ab1. ab\n a b  1..ab a"
    rule = find_cuts(tokenizer, 5)
    cuts = np.flatnonzero(rule.mask(np.frombuffer(text, np.uint8))).tolist()
    assert cuts
    names = ["kernel", "tokenizers"]
    # The shape of this file is not proved for fastokens; here it only has to continue it.
    names += ["fastokens"] if tokenizer.model.shape not in PROVED_SHAPES else []
    for name in names:
        engine = load_engine(name, tokenizer, "append")
        whole = engine.encode(divide(text, [])).tolist()
        assert engine.encode(divide(text, cuts)).tolist() == whole, name


def test_a_worker_needs_memory_for_the_library_only_if_there_are_symbols(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with_symbols = engine_needs("kernel", tokenizer).worker_bytes
    without = engine_needs("kernel", load_bytes(random_model(1), tmp_path)).worker_bytes
    assert without < engine_needs("sentencepiece", tokenizer).worker_bytes < with_symbols
