"""JSON Lines for tests: both extractors, what Python's own parser says, and lines to break them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from penstok import _kernel
from penstok.readers.extraction import Extracted
from penstok.readers.jsonl.lines import JsonLines, RecordCode

KEYS = ("text", "meta.text", "a.b.c", "", ".", 'q"\\\n')


@dataclass(frozen=True)
class Result:
    """What both extractors must agree on."""

    texts: list[bytes]
    codes: list[int]
    lines: list[int]
    faults: list[int | None]
    num_blank: int
    num_lone_surrogates: int
    consumed: int


def result_of(found: Extracted) -> Result:
    spans = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    return Result(
        [bytes(found.text[start:end]) for start, end in spans],
        found.codes.tolist(),
        found.records.tolist(),
        [
            fault if code == RecordCode.BROKEN else None
            for fault, code in zip(found.faults.tolist(), found.codes.tolist(), strict=True)
        ],
        found.num_blank,
        found.num_lone_surrogates,
        found.consumed,
    )


def extract(data: bytes, key: str = "text", *, takes_any: bool = False, **options: int) -> Result:
    """Extract with the kernel and in Python, and check that they agree."""
    buffer = memoryview(data)
    kernel = JsonLines(key, _kernel.extract_json_lines, takes_any=takes_any)
    native = result_of(kernel.extract(buffer, bytearray(len(data)), **options))
    python = JsonLines(key, takes_any=takes_any)
    assert result_of(python.extract(buffer, bytearray(len(data)), **options)) == native
    return native


def refuse_constant(name: str) -> None:
    raise ValueError(name)


def load(line: bytes) -> Any:
    """Parse as Python does, less NaN and Infinity; bytes that are not UTF-8 are let through."""
    text = line.decode("utf-8", "surrogateescape")
    return json.loads(text, parse_constant=refuse_constant, parse_int=len, parse_float=len)


def look_up(record: dict[str, Any], key: str) -> Any:
    """Find a field by the documented rule; KeyError if it is missing."""
    if key in record:
        return record[key]
    value: Any = record
    for step in key.split("."):
        if not isinstance(value, dict):
            raise KeyError(key)
        value = value[step]
    return value


def expect(line: bytes, key: str) -> tuple[RecordCode, bytes, int]:
    """Say what Python makes of a line: a code, the text, the lone surrogates in it."""
    try:
        record = load(line)
    except (ValueError, RecursionError):
        return RecordCode.BROKEN, b"", 0
    if not isinstance(record, dict):
        return RecordCode.NO_OBJECT, b"", 0
    try:
        value = look_up(record, key)
    except KeyError:
        return RecordCode.MISSING, b"", 0
    if value is None:
        return RecordCode.NULL, b"", 0
    if not isinstance(value, str):
        return RecordCode.NO_STRING, b"", 0
    lone = sum("\ud800" <= char <= "\udfff" for char in value)
    text = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in value)
    return RecordCode.OK, text.encode(), lone


# Values are made as JSON text, so that every spelling of the same value comes up.

BLANKS = ["", "", "", " ", "\t", "\r", "  \t"]
SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n"}
SHORT |= {"\r": "\\r", "\t": "\\t"}
ODD_CHARS = 'aé世😀 \n\t"\\/\b\x00\x1f\x7f\ud800\udbff\udc00\udfff\u2028'
SPICE = b'"\\{}[],:tfnu0123456789-+.eE \t\r\x00\x1f\x7f\x80\xbf\xc3\xed\xa0\xf0\xff'
FIELDS = ["text", "text", "meta", "meta.text", "a", "b", "c", "", ".", 'q"\\\n', "other", "té"]


def units_of(char: str) -> list[int]:
    raw = char.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]


def spell_char(char: str, random: Random) -> str:
    """Spell a character as JSON, plain or escaped where that is allowed."""
    how = random.randrange(8)
    if char in SHORT and (how < 4 or (char == "/" and how < 6)):
        return SHORT[char]
    if how == 4 or char < " " or char in '"\\' or "\ud800" <= char <= "\udfff":
        spelling = random.choice(["\\u{:04x}", "\\u{:04X}"])
        return "".join(map(spelling.format, units_of(char)))
    return char


def spell(value: Any, random: Random) -> str:
    """Spell a value as JSON; an object is a tuple of pairs, so that keys can repeat."""

    def spaced(text: str) -> str:
        return random.choice(BLANKS) + text + random.choice(BLANKS)

    if isinstance(value, str):
        return '"' + "".join(spell_char(char, random) for char in value) + '"'
    if isinstance(value, list):
        return "[" + (",".join(spaced(spell(item, random)) for item in value) or spaced("")) + "]"
    if isinstance(value, tuple):
        members = [spaced(spell(k, random)) + ":" + spaced(spell(v, random)) for k, v in value]
        return "{" + (",".join(members) or spaced("")) + "}"
    return value.decode() if isinstance(value, bytes) else json.dumps(value)


def damage(line: bytes, random: Random) -> bytes:
    """Change, drop, put in or cut off a few bytes; never make a line feed."""
    changed = bytearray(line)
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, len(changed))
        byte = random.choice([random.choice(SPICE), random.choice(SPICE), random.randint(11, 255)])
        length = random.choice([0, 1, 1, 4, len(line) if random.randrange(4) == 0 else 0])
        changed[at : at + length] = bytes([byte]) * random.choice([0, 1, 1])
    return bytes(changed)


numbers = st.one_of(
    st.integers(),
    st.from_regex(rb"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,5})?", fullmatch=True),
)
strings = st.text(max_size=40) | st.text(st.sampled_from(ODD_CHARS), max_size=30)
scalars = st.one_of(strings, numbers, st.none(), st.booleans())


def objects_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(FIELDS) | st.text(max_size=6)
    return st.lists(st.tuples(keys, values), max_size=6).map(tuple)


values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | objects_of(inner), max_leaves=12
)


def spelled(of: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    seeds = st.integers(0, 2**32)
    return st.builds(lambda value, seed: spell(value, Random(seed)).encode(), of, seeds)


objects = spelled(objects_of(values))
lines = st.one_of(objects, objects, spelled(values))
damaged = st.builds(lambda line, seed: damage(line, Random(seed)), lines, st.integers(0, 2**32))


def make_value(random: Random, depth: int = 0) -> Any:
    """Make a value at random, for tests that need many more than hypothesis makes."""
    kind = random.randrange(5 if depth < 4 else 3)
    if kind == 0:
        return random.choice([None, True, False, b"0", b"-1.5e+7", b"12345678901234567890", 3])
    if kind in (1, 2):
        return "".join(random.choices(ODD_CHARS, k=random.randrange(20)))
    if kind == 3:
        return [make_value(random, depth + 1) for _ in range(random.randrange(4))]
    return make_object(random, depth)


def make_object(random: Random, depth: int = 0) -> Any:
    return tuple(
        (random.choice(FIELDS), make_value(random, depth + 1)) for _ in range(random.randrange(6))
    )
