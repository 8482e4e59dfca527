"""The small pieces between the stages."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
import xxhash

from penstok.engines.base import SplitIds, most_tokens
from penstok.engines.boundary_ids import BoundaryIds
from penstok.errors import InputError, PenstokError, UsageError
from penstok.jobs.memory import divide_memory
from penstok.kernel import find_kernel_function
from penstok.output.offsets import Offsets
from penstok.readers.buffer import UnitBuffer
from penstok.tokenizers import load_tokenizer
from penstok.types import (
    Block,
    Counts,
    EncodedUnit,
    EotPosition,
    MemoryNeeds,
    Source,
    Unit,
    replace,
)
from penstok.worker.repair import repair_block
from penstok.worker.splits import CARRIED, TRAIN, Hasher, Splitter
from penstok.worker.unit_tokens import UnitTokens
from penstok.worker.worker import _take_sample

NEEDS = MemoryNeeds(worker_bytes=400 << 20, block_bytes=100 << 20)
UNIT = Unit(0, 0, Source("text.txt", 9, 0, ""), 0, 9, 9)


def block_of(*pieces: bytes, begins: list[bool] | None = None) -> Block:
    ends = np.cumsum([len(piece) for piece in pieces])
    starts = ends - [len(piece) for piece in pieces]
    every = np.ones(len(pieces), np.bool_)
    begun = every if begins is None else np.array(begins)
    return Block(memoryview(b"".join(pieces)), starts, ends, begun, every.copy(), ends)


@pytest.mark.parametrize(
    ("eot", "bos_id", "expected"),
    [
        ("append", None, [1, 2, 9, 9, 3]),
        ("prepend", None, [9, 1, 2, 9, 9, 3]),
        ("none", None, [1, 2, 3]),
        ("append", 8, [8, 1, 2, 9, 8, 9, 8, 3]),
        ("prepend", 8, [9, 8, 1, 2, 9, 8, 9, 8, 3]),
        ("none", 8, [8, 1, 2, 8, 8, 3]),
    ],
)
def test_ids_between_documents_are_placed(
    eot: EotPosition, bos_id: int | None, expected: list[int]
) -> None:
    block = block_of(b"ab", b"", b"c")
    block.closes[2] = False
    tokenizer = replace(load_tokenizer("gpt2"), eot_id=9, bos_id=bos_id)
    ids = BoundaryIds(tokenizer, eot).insert(
        np.array([1, 2, 3], np.uint32), np.array([2, 2, 3]), block
    )
    assert ids.tolist() == expected


UNIT = Unit(0, 0, Source("p", 9, 0, ""), 0, 9, 9)


def test_repair_counts_what_it_replaces() -> None:
    repaired, counts = repair_block(
        block_of(b"a\xff\xc3", b"fine", "\ufffd".encode()), "replace", UNIT
    )
    assert bytes(repaired.text) == "a\ufffd\ufffdfine\ufffd".encode()
    assert counts == Counts(invalid_utf8=2)
    repaired, counts = repair_block(block_of(b"\xff", b"fine"), "ignore", UNIT)
    assert bytes(repaired.text) == b"fine"
    assert counts == Counts(invalid_utf8=1, empty_documents=1)
    with pytest.raises(InputError, match="invalid UTF-8: bytes ff"):
        repair_block(block_of(b"\xff"), "stop", UNIT)


def test_a_document_has_its_split_wherever_it_stands() -> None:
    splitter = Splitter((0, 2**63), Hasher(3))
    texts = [b"document %d" % number for number in range(100)]
    _, together = splitter.assign(block_of(*texts))
    for text, split in zip(texts, together, strict=True):
        splitter.start_unit()
        assert splitter.assign(block_of(text))[1].tolist() == [split]
    assert 30 < together.sum() < 70
    assert (Splitter((0, 2**63), Hasher(4)).assign(block_of(*texts))[1] != together).any()
    assert Splitter((0, 0), Hasher(0)).assign(block_of(*texts))[1].sum() == 0
    assert Splitter((0, 2**64), Hasher(0)).assign(block_of(*texts))[1].sum() == 100


@pytest.mark.parametrize("is_compiled", [True, False])
def test_documents_are_hashed_as_xxhash_does(is_compiled: bool) -> None:
    hasher = Hasher(7, find_kernel_function("hash_documents") if is_compiled else None)
    chance = random.Random(1)
    texts = [chance.randbytes(size) for size in [*range(1, 260), 1023, 1024, 1025, 1088, 9000]]
    expected = [xxhash.xxh3_64_intdigest(text, 7) for text in texts]
    block = block_of(*texts)
    assert hasher.hash_all(block).tolist() == expected
    low, high = sorted(expected)[20], sorted(expected)[90]
    for first, end in ((low, high), (0, low), (high, 2**64), (low, low + 1), (low, low), (5, 2)):
        found = hasher.find_between(block, first, end)
        assert found.dtype == np.uint8
        assert found.tolist() == [first <= value < end for value in expected]


@pytest.mark.parametrize("is_rows", [False, True])
def test_the_tokens_of_a_unit_stay_where_they_are(is_rows: bool) -> None:
    """An array that grows block by block is cleared and copied again and again."""
    tokens = UnitTokens("uint16", None, lambda _: None, has_origins=False)
    unit = replace(UNIT, end=80_000, source_end=80_000)
    if is_rows:
        source = replace(UNIT.source, format="parquet", num_rows=9)
        unit = replace(UNIT, source=source, end=9, source_end=9)
    tokens.start_unit(unit, None)
    block = block_of(b"x" * 10_000)
    addresses = set()
    for number in range(8):
        room = tokens.room(TRAIN, most_tokens(block))
        room[:5000] = number
        tokens.append(TRAIN, SplitIds(room[:5000], 1, 10_000), None)
        addresses.add(tokens.of(TRAIN).held.ctypes.data)
    assert len(addresses) == 1
    assert tokens.of(TRAIN).held.tolist() == [number for number in range(8) for _ in range(5000)]
    # More tokens than there was room for: it grows after all.
    for _ in range(8):
        tokens.append(TRAIN, SplitIds(np.full(9000, 9, np.uint16), 1, 10_000), None)
    assert tokens.of(TRAIN).held[::5000].tolist() == [*range(8), *[9] * 15]


def test_what_began_in_another_unit_is_carried() -> None:
    splitter = Splitter((0, 2**63), Hasher(0))
    splitter.start_unit()
    _, splits = splitter.assign(block_of(b"rest", b"next", begins=[False, True]))
    assert splits[0] == CARRIED
    assert splits[1] != CARRIED


def encoded(**changes: object) -> EncodedUnit:
    fields: dict[str, object] = {
        "unit_idx": 0,
        "counts": Counts(),
        "tokens": {"train": 5, "val": 2},
        "documents": {"train": 1, "val": 1},
        "carried_tokens": 0,
        "carried_special": False,
        "open_split": None,
        "open_special": False,
    }
    return EncodedUnit(**(fields | changes))  # type: ignore[arg-type]


def test_offsets_follow_unit_order_and_the_open_document() -> None:
    offsets = Offsets()
    assert offsets.grant(UNIT, encoded(open_split="val")).offsets == {"train": 0, "val": 0}
    grant = offsets.grant(UNIT, encoded(carried_tokens=10))
    assert grant.carried_split == "val"
    assert grant.offsets == {"train": 5, "val": 2}
    # Still open: the third unit goes on in val too.
    assert offsets.grant(UNIT, encoded(carried_tokens=1)).offsets == {"train": 10, "val": 14}
    assert offsets.tokens == {"train": 15, "val": 17}


def test_a_document_with_special_text_counts_once() -> None:
    offsets = Offsets()
    offsets.grant(UNIT, encoded(open_split="val"))
    for _ in range(3):
        offsets.grant(UNIT, encoded(carried_special=True))
    assert offsets.counts.special_text_documents == 1


def test_memory_is_divided() -> None:
    workers, share, hint = divide_memory(1 << 30, NEEDS, 1, 1)
    assert (workers, hint) == (1, "")
    assert share.limit_bytes < 1 << 30
    with pytest.raises(UsageError, match="too little memory for 1 worker"):
        divide_memory(100 << 20, NEEDS, 1, None)
    with pytest.raises(UsageError, match="too little memory for 64 workers"):
        divide_memory(1 << 30, NEEDS, 1, 64)
    # A million inputs need memory of the parent too.
    with pytest.raises(UsageError):
        divide_memory(900 << 20, NEEDS, 10**6, 1)


def test_a_sample_ends_at_its_limit_between_characters() -> None:
    texts = ["short", "\u00e9\u6f22" * 30, "not reached"]
    block = block_of(*(text.encode() for text in texts))
    for limit in range(4, 60):
        chosen = _take_sample(block, limit)
        taken = [
            bytes(block.text[a:b]).decode() for a, b in zip(chosen.starts, chosen.ends, strict=True)
        ]
        assert limit - 4 < len("".join(taken).encode()) <= limit
        assert all(map(str.startswith, texts, taken))
        assert all(taken)
        assert chosen.closes.tolist() == [
            mine == whole for mine, whole in zip(taken, texts, strict=False)
        ]
    assert _take_sample(block, 10_000).ends.tolist() == block.ends.tolist()
    assert not len(_take_sample(block, 0).starts)
    assert block.closes.all()


def test_errors_cross_process_borders_whole() -> None:
    error = InputError("what", where="where", next_step="next")
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 our own bytes
    assert isinstance(copied, InputError)
    assert str(copied) == "what\n  where: where\n  next:  next"
    assert issubclass(InputError, PenstokError)


def test_counts_add_up() -> None:
    assert Counts(documents=1) + Counts(documents=2, tokens=3) == Counts(documents=3, tokens=3)


@pytest.mark.parametrize("native", [True, False])
def test_separators_are_found_wherever_they_stand(native: bool) -> None:
    find_all = find_kernel_function("find_all") if native else None
    rng = random.Random(1)
    for wanted in (b"<|endoftext|>", b"\n", b"ab", b"\xe3\x80\x82", b"x"):
        for _ in range(60):
            parts = rng.choices((wanted, wanted[:-1], wanted[1:], b"<", b"|", b" a\n"), k=30)
            data = b"".join(parts)
            start, end = sorted(rng.choices(range(len(data) + 1), k=2))
            most = rng.choice((1, 3, 1000))
            expected, at = [], start
            while (at := data.find(wanted, at, end)) >= 0:
                expected.append(at)
                at += len(wanted)
            buffer = UnitBuffer(find_all)
            buffer.view = memoryview(data)
            assert buffer.find_all(wanted, start, end, most).tolist() == expected[:most]
