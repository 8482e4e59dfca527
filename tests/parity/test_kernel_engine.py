"""The contract of the kernel engine: end-of-text, UTF-8, other vocabularies, clear errors."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity.kernel_cases import (
    ISAS,
    TINY_TABLE,
    block_of,
    engine,
    expected_ids,
    gpt2,
    hostile_document,
)
from support import reference, rounds

from penstok.engines import kernel
from penstok.engines.base import most_tokens
from penstok.engines.kernel import ISA_VARIABLE, KernelEngine
from penstok.errors import UsageError
from penstok.kernel import KernelUnavailableError
from penstok.tokenizers import ByteLevel, Tokenizer
from penstok.types import replace

DOCUMENTS = ["first one", "", "\u4f60\u597d, it's", " ", "last"]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("eot", ["append", "prepend", "none"])
def test_end_of_text_follows_what_closes_and_precedes_what_begins(isa: str, eot: Any) -> None:
    rng = random.Random(3)
    subject = engine(isa, eot=eot)
    for _ in range(50):
        block = block_of([document.encode() for document in DOCUMENTS], b"|")
        begins = np.array([rng.random() < 0.5 for _ in DOCUMENTS])
        closes = np.array([rng.random() < 0.5 for _ in DOCUMENTS])
        expected: list[int] = []
        for document, opens, ends in zip(DOCUMENTS, begins, closes, strict=True):
            expected += [50256] * bool(eot == "prepend" and opens)
            expected += reference().encode_ordinary(document)
            expected += [50256] * bool(eot == "append" and ends)
        ids = subject.encode(replace(block, begins=begins, closes=closes))
        assert ids.tolist() == expected


@pytest.mark.parametrize("isa", ISAS)
def test_a_block_without_documents_has_no_ids(isa: str) -> None:
    assert engine(isa, eot="append").encode(block_of([])).tolist() == []


@pytest.mark.parametrize("isa", ISAS)
def test_many_short_documents_fill_many_batches(isa: str) -> None:
    documents = ["", "a", "bc d", "\u597d"] * 3000
    subject = engine(isa, TINY_TABLE, "append")
    expected = [i for d in documents for i in (*reference().encode_ordinary(d), 50256)]
    assert subject.encode(block_of([d.encode() for d in documents])).tolist() == expected


@pytest.mark.parametrize("isa", ISAS)
def test_invalid_utf8_is_refused_exactly_where_python_refuses_it(isa: str) -> None:
    rng = random.Random(4)
    subject = engine(isa, TINY_TABLE)
    refused = 0
    for _ in range(3000):
        document = bytearray(hostile_document(rng)[:150].encode())
        for _ in range(rng.randrange(3) if document else 0):
            document[rng.randrange(len(document))] = rng.choice((rng.randrange(256), 0xED, 0xF4))
        content = bytes(document[: rng.randrange(len(document) + 1)])
        block = block_of([b"fine", content, b"fine"])
        repaired = content.decode(errors="replace")
        if repaired.encode() == content:
            expected = expected_ids(["fine", repaired, "fine"])
            np.testing.assert_array_equal(subject.encode(block), expected)
        else:
            refused += 1
            with pytest.raises(UnicodeDecodeError) as by_python:
                content.decode()
            with pytest.raises(UnicodeDecodeError) as by_kernel:
                subject.encode(block)
            assert by_kernel.value.start == by_python.value.start
    assert refused > 500


@pytest.mark.parametrize("isa", ISAS)
def test_every_malformed_sequence_is_refused(isa: str) -> None:
    bad = [b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\x80"]
    bad += [b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xfe"]
    bad += [b"\xc3", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xe4\xb8\xad\xad", b"\xc3\xa9\xa9"]
    for sequence in bad:
        for place in range(70):
            for tail in (b"", b"tail" * 30):
                with pytest.raises(UnicodeDecodeError):
                    engine(isa).encode(block_of([b"x" * place + sequence + tail]))


@pytest.mark.parametrize("isa", ISAS)
def test_malformed_sequences_inside_latin_text_are_refused(isa: str) -> None:
    bad = [
        b"\xc3a",
        b"\xc3\xc3\xa9",
        b"\xa9",
        b"\xc3\xa9\xa9",
        b"\xc2\xc3\xa9",
        b"\xc3\xff",
        b"\xc1\xa9",
    ]
    bad += [b"\xe2\x80a", b"\xe2a\x99", b"\xe2\x80\x99\x99", b"\xe2\xe2\x80\x99", b"\xe2\xc3\xa9"]
    subject = engine(isa)
    latin = b"a" * 128 + ("\u00e9" + "x" * 59 + "\u2019").encode()  # in steps of 64 bytes
    for sequence, place in product(bad, range(65)):
        document = latin + b"x" * place + sequence + b" tail" * 40
        with pytest.raises(UnicodeDecodeError) as by_kernel:
            subject.encode(block_of([document]))
        with pytest.raises(UnicodeDecodeError) as by_python:
            document.decode()
        assert by_kernel.value.start == by_python.value.start


@settings(max_examples=rounds(200))
@given(st.lists(st.text(max_size=60), max_size=8), st.binary(max_size=4))
def test_any_text_matches(documents: list[str], gap: bytes) -> None:
    block = block_of([document.encode() for document in documents], gap)
    for isa in ISAS:
        ids = engine(isa, TINY_TABLE).encode(block)
        np.testing.assert_array_equal(ids, expected_ids(documents))


def with_ranks(ranks: dict[bytes, int], eot_id: int) -> Tokenizer:
    model = ByteLevel(ranks, gpt2().pattern)
    return replace(gpt2(), name="made up", model=model, eot_id=eot_id)


@pytest.mark.parametrize("isa", ISAS)
def test_ids_above_65535_are_uint32(isa: str) -> None:
    wide = with_ranks({token: 3 * rank for token, rank in gpt2().ranks.items()}, 200_000)
    subject = KernelEngine(wide, "append", isa=isa, table_bytes=TINY_TABLE)
    rng = random.Random(5)
    documents = [hostile_document(rng) for _ in range(500)]
    ids = subject.encode(block_of([document.encode() for document in documents]))
    assert ids.dtype == np.uint32
    expected: list[int] = []
    for document in documents:
        expected += [3 * rank for rank in reference().encode_ordinary(document)]
        expected.append(200_000)
    assert ids.tolist() == expected


@pytest.mark.parametrize(
    ("eot_id", "dtype"), [(65_533, np.uint16), (65_535, np.uint16), (65_536, np.uint32)]
)
def test_dtype_is_uint16_while_every_id_fits(eot_id: int, dtype: type) -> None:
    ids = KernelEngine(with_ranks(gpt2().ranks, eot_id), "append").encode(block_of([b"hello"]))
    assert ids.tolist() == [31373, eot_id]
    assert ids.dtype == dtype


@pytest.mark.parametrize("isa", ISAS)
def test_other_vocabularies_match(isa: str) -> None:
    rng = random.Random(6)
    byte_ids = rng.sample(range(1000), 256)  # ids of bytes need not be first or in order
    ranks = {bytes([byte]): byte_id for byte, byte_id in enumerate(byte_ids)}
    tokens = ("th", "the", " the", "\u00e9", "aa", "aaaa", "\u00e9\u00e8")
    ranks |= {token.encode(): rank for rank, token in enumerate(tokens, 1000)}
    ranks = reachable_only(ranks)
    made_up = with_ranks(ranks, 5000)
    subject = KernelEngine(made_up, "none", isa=isa, table_bytes=TINY_TABLE)
    import tiktoken

    slow = tiktoken.Encoding(
        name="x", pat_str=made_up.pattern, mergeable_ranks=ranks, special_tokens={"<|e|>": 5000}
    )
    documents = [hostile_document(rng) for _ in range(300)]
    documents.append("the theatre aaaaaaa \u00e9\u00e8 th\u00e9 a the")
    expected = [token for document in documents for token in slow.encode_ordinary(document)]
    assert subject.encode(block_of([d.encode() for d in documents])).tolist() == expected


def reachable_only(ranks: dict[bytes, int]) -> dict[bytes, int]:
    """Drop tokens whose halves are not tokens, which a trained vocabulary never has."""
    return {
        token: rank
        for token, rank in ranks.items()
        if len(token) == 1
        or any(token[:at] in ranks and token[at:] in ranks for at in range(1, len(token)))
    }


def test_vocabularies_that_cannot_be_exact_are_refused() -> None:
    ranks = gpt2().ranks
    no_bytes = {token: rank for token, rank in ranks.items() if token != b"a"}
    same_id = {**ranks, b"qz": 7}
    for broken, why in ((no_bytes, "byte"), (same_id, "shares its id")):
        with pytest.raises(KernelUnavailableError, match=why):
            KernelEngine(with_ranks(broken, 65_000), "append")


def test_other_patterns_are_refused() -> None:
    with pytest.raises(KernelUnavailableError, match="pattern"):
        KernelEngine(replace(gpt2(), model=ByteLevel(gpt2().ranks, r"\w+|\W+")), "append")


def test_the_environment_chooses_the_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for isa in ISAS:
        monkeypatch.setenv(ISA_VARIABLE, isa)
        assert KernelEngine(gpt2(), "append").isa == isa
    monkeypatch.setenv(ISA_VARIABLE, "mmx")
    with pytest.raises(UsageError, match=r"`mmx` is not available here; available: .*portable"):
        KernelEngine(gpt2(), "append")


def test_wrong_ids_on_a_machine_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "SELF_TEST_IDS", [1, 2, 3])
    with pytest.raises(KernelUnavailableError, match="wrong ids on this machine"):
        KernelEngine(gpt2(), "append")


def test_stored_ids_are_those_of_the_reference() -> None:
    assert reference().encode_ordinary(kernel.SELF_TEST_TEXT) == kernel.SELF_TEST_IDS


def test_a_missing_module_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "penstok._kernel", None)
    monkeypatch.delattr("penstok._kernel", raising=False)
    with pytest.raises(KernelUnavailableError, match="not part of this installation"):
        KernelEngine(gpt2(), "append")


def test_engines_work_side_by_side_in_threads() -> None:
    rng = random.Random(10)
    documents = [hostile_document(rng) for _ in range(300)]
    block, expected = block_of([d.encode() for d in documents]), expected_ids(documents)

    def encode(isa: str) -> list[int]:
        ids: list[int] = KernelEngine(gpt2(), "none", isa=isa).encode(block).tolist()
        return ids

    with ThreadPoolExecutor(4) as pool:
        assert all(ids == expected.tolist() for ids in pool.map(encode, ISAS * 2))


def test_bad_positions_are_refused() -> None:
    block = block_of([b"one", b"two"])
    for starts, ends in (([0, 2], [3, 6]), ([0, 3], [3, 7]), ([-1, 3], [3, 6]), ([3, 3], [2, 6])):
        with pytest.raises(ValueError, match="document"):
            engine(ISAS[0]).encode(replace(block, starts=np.array(starts), ends=np.array(ends)))


def test_one_engine_refuses_two_threads_at_once() -> None:
    document = "qzxj" * 20_000
    block = block_of([document.encode()])
    shared = KernelEngine(gpt2(), "none")

    def outcome(_: int) -> str:
        try:
            return str(shared.encode(block).size)
        except RuntimeError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        outcomes = set(pool.map(outcome, range(200)))
    refused = "the encoder is in use by another thread"
    assert outcomes <= {str(expected_ids([document]).size), refused}


@pytest.mark.parametrize("isa", ISAS)
def test_ids_are_written_to_the_array_of_the_caller(isa: str) -> None:
    subject, block = engine(isa), block_of([b"hello there", b"", b"x" * 5000])
    out = np.full(most_tokens(block) + 10, 7, np.uint16)
    ids = subject.encode(block, out)
    assert np.shares_memory(ids, out)
    assert ids.tolist() == subject.encode(block).tolist()
    assert out[-10:].tolist() == [7] * 10
    # An array of another type is not used; one that is too small is refused.
    assert not np.shares_memory(subject.encode(block, out.astype(np.uint32)), out)
    with pytest.raises(ValueError, match="out is too small"):
        subject.encode(block, out[:100])


@pytest.mark.parametrize("isa", ISAS)
def test_all_splits_are_encoded_in_one_call(isa: str) -> None:
    rng = random.Random(9)
    subject = engine(isa, TINY_TABLE, "append")
    for share in (0.0, 0.02, 0.5):
        documents = [hostile_document(rng)[:80].encode() for _ in range(300)]
        block = block_of(documents, b"|")
        begins = np.array([rng.random() < 0.9 for _ in documents])
        block = replace(block, begins=begins)
        splits = np.array([rng.randrange(3) if rng.random() < share else 0 for _ in documents])
        codes = splits.astype(np.uint8)
        outs = [np.empty(most_tokens(block), np.uint16) for _ in range(3)]
        parts = subject.encode_splits(block, codes, outs)
        assert parts is not None
        for code, (out, part) in enumerate(zip(outs, parts, strict=True)):
            alone = block.select(codes == code)
            assert part.ids.tolist() == subject.encode(alone).tolist()
            assert np.may_share_memory(part.ids, out) or not len(part.ids)
            assert part.num_documents == alone.begins.sum()
            assert part.text_bytes == (alone.ends - alone.starts).sum()


def test_splits_are_not_encoded_if_the_text_or_the_type_is_wrong() -> None:
    subject = engine(ISAS[0])
    block, codes = block_of([b"fine", b"\xff", b"fine"]), np.array([0, 1, 0], np.uint8)
    outs = [np.empty(most_tokens(block), np.uint16) for _ in range(3)]
    assert subject.encode_splits(block, codes, outs) is None
    valid = block_of([b"fine", b"too", b"fine"])
    assert subject.encode_splits(valid, codes, [out.astype(np.uint32) for out in outs]) is None
    with pytest.raises(ValueError, match="differ in length"):
        subject.encode_splits(valid, codes[:2], outs)
