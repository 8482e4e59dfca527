"""The JSON Lines extractors against each other and against Python's own parser."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_cases import (
    KEYS,
    damage,
    damaged,
    expect,
    extract,
    lines,
    load,
    look_up,
    make_object,
    objects,
    spell,
)
from support import rounds

from penstok.readers.jsonl.lines import RecordCode

some_keys = st.sampled_from(KEYS)


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(lines, some_keys)
@settings(max_examples=rounds(300))
def test_a_valid_line_gives_what_python_finds_in_it(line: bytes, key: str) -> None:
    found = extract(line, key)
    code, text, lone = expect(line, key)
    assert (found.codes, found.texts, found.num_lone_surrogates) == ([code], [text], lone)


@given(lines, some_keys)
@settings(max_examples=rounds(300))
def test_any_value_is_its_json_text(line: bytes, key: str) -> None:
    found, strings = extract(line, key, takes_any=True), extract(line, key)
    if strings.codes != [RecordCode.NO_STRING]:
        assert found == strings
        return
    assert found.codes == [RecordCode.OK]
    assert found.texts[0] in line
    assert load(found.texts[0]) == look_up(load(line), key)


@pytest.mark.parametrize("key", KEYS)
def test_damaged_lines_are_refused_when_python_refuses_them(key: str) -> None:
    random = Random(key)
    pieces = [
        damage(spell(make_object(random), random).encode(), random).strip(b" \t\r\n") or b"{}"
        for _ in range(3000)
    ]
    found = extract(b"\n".join(pieces), key)
    assert len(found.codes) == len(pieces)
    assert 500 < found.codes.count(RecordCode.BROKEN) < 2900
    for piece, code, text in zip(pieces, found.codes, found.texts, strict=True):
        expected = expect(piece, key)
        if is_utf8(piece):
            assert (code, text) == expected[:2], piece
        else:  # Python cannot tell a byte that is not UTF-8 from a lone surrogate
            assert (code == RecordCode.BROKEN) == (expected[0] == RecordCode.BROKEN), piece


@given(objects, st.data())
@settings(max_examples=rounds(150))
def test_a_line_cut_short_is_broken_where_it_ends(line: bytes, data: st.DataObject) -> None:
    start = line.index(b"{")
    length = data.draw(st.integers(start + 1, len(line) - 1))
    found = extract(line[:length])
    assert (found.codes, found.faults) == ([RecordCode.BROKEN], [length])


@given(
    st.lists(st.one_of(lines, lines, damaged, st.sampled_from([b"", b" ", b"\t\r"])), max_size=8),
    st.lists(st.sampled_from([b"\n", b"\r\n"]), min_size=8, max_size=8),
    st.booleans(),
)
@settings(max_examples=rounds(150))
def test_a_buffer_gives_what_its_lines_give_alone(
    pieces: list[bytes], ends: list[bytes], is_ended: bool
) -> None:
    data, codes, texts, starts, faults, num_blank = b"", [], [], [], [], 0
    for idx, (piece, end) in enumerate(zip(pieces, ends, strict=False)):
        if idx == len(pieces) - 1 and not is_ended:
            end = b""  # noqa: PLW2901
        alone = extract(piece + end)
        codes += alone.codes
        texts += alone.texts
        starts += [len(data) + start for start in alone.lines]
        faults += [None if fault is None else len(data) + fault for fault in alone.faults]
        num_blank += alone.num_blank
        data += piece + end
    found = extract(data)
    assert (found.codes, found.texts, found.lines) == (codes, texts, starts)
    assert (found.faults, found.num_blank, found.consumed) == (faults, num_blank, len(data))


@given(st.lists(lines, min_size=1, max_size=8), st.integers(1, 200))
@settings(max_examples=rounds(100))
def test_a_buffer_read_in_steps_gives_the_same(pieces: list[bytes], step: int) -> None:
    data = b"\n".join(pieces) + b"\n"
    whole = extract(data)
    texts: list[bytes] = []
    codes: list[int] = []
    at = 0
    while at < len(data):
        found = extract(data[at:], stop=step)
        assert found.lines[-1] < step
        at += found.consumed
        texts += found.texts
        codes += found.codes
        assert data[at - 1 : at] == b"\n"
    assert (texts, codes) == (whole.texts, whole.codes)
