"""JSON Lines: what is refused and where, which field is meant, and what is said."""

from __future__ import annotations

import pytest
from json_cases import extract

from penstok import _kernel
from penstok.errors import UsageError
from penstok.readers.jsonl.fallback import load_line
from penstok.readers.jsonl.lines import JsonLines, RecordCode, list_string_keys
from penstok.readers.jsonl.scanner import LineScanner

DEEP = b'{"a":' + b"[" * 600 + b"]" * 600

BROKEN = {  # a line, and the first byte that cannot stand there
    "only a brace": (b"{", 1),
    "string cut short": (b'{"text":"abc', 12),
    "value cut short": (b'{"text":', 8),
    "key cut short": (b'{"te', 4),
    "no colon": (b'{"text" "a"}', 8),
    "no value": (b'{"text":}', 8),
    "no comma": (b'{"text":"a" "b":1}', 12),
    "trailing comma": (b'{"text":"a",}', 12),
    "leading comma": (b'{,"text":"a"}', 1),
    "two commas": (b'{"text":"a",,"b":1}', 12),
    "trailing comma in array": (b'{"a":[1,],"text":"a"}', 8),
    "wrong bracket": (b'{"a":[1},"text":"a"}', 7),
    "number as key": (b'{1:"a"}', 1),
    "word as key": (b'{text:"a"}', 1),
    "single quotes": (b"{'text':'a'}", 1),
    "bare word": (b'{"text":abc}', 8),
    "NaN": (b'{"a":NaN,"text":"a"}', 5),
    "Infinity": (b'{"a":-Infinity,"text":"a"}', 6),
    "True": (b'{"a":True,"text":"a"}', 5),
    "nul": (b'{"a":nul,"text":"a"}', 8),
    "nulll": (b'{"a":nulll,"text":"a"}', 9),
    "leading zero": (b'{"a":01,"text":"a"}', 6),
    "leading plus": (b'{"a":+1,"text":"a"}', 5),
    "leading point": (b'{"a":.5,"text":"a"}', 5),
    "only a minus": (b'{"a":-,"text":"a"}', 6),
    "nothing behind the point": (b'{"a":1.,"text":"a"}', 7),
    "nothing behind the exponent": (b'{"a":1e+,"text":"a"}', 8),
    "exponent behind a bare point": (b'{"a":1.e5,"text":"a"}', 7),
    "hexadecimal": (b'{"a":0x10,"text":"a"}', 6),
    "NUL in a string": (b'{"text":"a\x00b"}', 10),
    "tab in a string": (b'{"text":"a\tb"}', 10),
    "carriage return in a string": (b'{"text":"a\rb"}', 10),
    "control character in a key": (b'{"te\x1fxt":"a"}', 4),
    "control character outside": (b'{"text":"a"\x0b}', 11),
    "form feed as white space": (b'{\x0c"text":"a"}', 1),
    "unknown escape": (b'{"text":"\\x41"}', 10),
    "unknown escape elsewhere": (b'{"a":"\\q","text":"a"}', 7),
    "escape cut short": (b'{"text":"\\u00e"}', 14),
    "escape with a letter": (b'{"text":"\\u00g0"}', 13),
    "capital U": (b'{"text":"\\U00e9"}', 10),
    "half of a pair, then a bad escape": (b'{"text":"\\ud83d\\u12"}', 19),
    "byte order mark": (b'\xef\xbb\xbf{"text":"a"}', 0),
    "two objects": (b'{"text":"a"}{"text":"b"}', 12),
    "comma behind the object": (b'{"text":"a"},', 12),
    "comment": (b'{"text":"a"} // b', 13),
    "not UTF-8 outside a string": (b'{"text":\xff}', 8),
    "no-break space": (b'{"text":\xc2\xa0"a"}', 8),
    "bare text": (b"Hello, world", 0),
    "array cut short": (b'[{"text":"a"}', 13),
    "too deep": (b'{"a":' + b"[" * 512 + b"]" * 512 + b"}", 516),
    "too deep, beside text": (DEEP + b',"text":"a"}', 516),
    "too deep, beside brackets": (DEEP + b',"text":"' + b"[" * 999 + b'"}', 516),
    "too deep, beside escaped brackets": (DEEP + b',"text":"' + b"\\u005b" * 999 + b'"}', 516),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_refused_at_the_byte_that_breaks_it(name: str) -> None:
    line, position = BROKEN[name]
    found = extract(line)
    assert (found.codes, found.faults, found.texts) == ([RecordCode.BROKEN], [position], [b""])
    around = extract(b'{"text":"x"}\n' + line + b'\n{"text":"y"}\n')
    assert around.codes == [RecordCode.OK, RecordCode.BROKEN, RecordCode.OK]
    assert around.faults[1] == 13 + position
    assert around.texts == [b"x", b"", b"y"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"text":""}', b""),
        (b' \t{ "text" : "a" } \r', b"a"),
        (b'{"text":"\\"\\\\\\/\\b\\f\\n\\r\\t"}', b'"\\/\b\f\n\r\t'),
        (b'{"text":"\\u0000\\u007f\\u0080\\u07ff\\u0800\\uFFFF"}', "\0\x7f\x80\u07ff\u0800\uffff"),
        (
            b'{"text":"\\ud83d\\uDE00\\udbff\\udfff\\ud800\\udc00"}',
            "\U0001f600\U0010ffff\U00010000",
        ),
        (b'{"text":"\xff\xc0\x80\xed\xa0\x80"}', b"\xff\xc0\x80\xed\xa0\x80"),
        (b'{"\\u0074ex\\u0074":"a"}', b"a"),
        (b'{"text":"a","text":"b"}', b"b"),
        (b'{"text":1,"text":"b"}', b"b"),
        (b'{"other":{"text":"b"},"text":"a","list":[{"text":"c"}]}', b"a"),
        (b'{"a":[0,-0,0.0,1E9,-1.5e-300,1e99999,' + b"9" * 5000 + b'],"text":"a"}', b"a"),
        (b'{"\xff":1,"text":"a"}', b"a"),
        (b'{"a":' + b"[" * 511 + b"]" * 511 + b',"text":"a"}', b"a"),
        (b'{"text":"' + b"[{" * 999 + b'"}', b"[{" * 999),
        (b'{"text":"0123456"}', b"0123456"),
        (b'{"text":"0123456\\n7"}', b"0123456\n7"),
        ('{"text":"日本語\u2028"}'.encode(), "日本語\u2028"),
    ],
)
def test_the_text_comes_out(line: bytes, text: bytes | str) -> None:
    found = extract(line)
    expected = text.encode() if isinstance(text, str) else text
    assert (found.codes, found.texts, found.num_lone_surrogates) == ([RecordCode.OK], [expected], 0)


@pytest.mark.parametrize(
    ("escapes", "text", "count"),
    [
        ("\\ud800", "\ufffd", 1),
        ("\\udc00", "\ufffd", 1),
        ("\\udc00\\ud800", "\ufffd\ufffd", 2),
        ("\\ud800\\ud83d\\ude00", "\ufffd\U0001f600", 1),
        ("\\ud83dx\\ude00", "\ufffdx\ufffd", 2),
        ("\\ud83d\\n", "\ufffd\n", 1),
        ("\\ud83d\\u0041", "\ufffdA", 1),
    ],
)
def test_lone_surrogates_are_replaced_and_counted(escapes: str, text: str, count: int) -> None:
    found = extract(f'{{"a":"\\ud800","text":"\\udfff","text":"{escapes}"}}'.encode())
    assert (found.texts, found.num_lone_surrogates) == ([text.encode()], count)


def test_a_lone_surrogate_in_a_key_is_no_replacement_character() -> None:
    assert extract(b'{"\\ud800":"a"}', "\ufffd").codes == [RecordCode.MISSING]
    assert extract(b'{"\\ufffd":"a"}', "\ufffd").texts == [b"a"]


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        (b'{"meta":{"text":"in"}}', RecordCode.OK, b"in"),
        (b'{"meta.text":"whole"}', RecordCode.OK, b"whole"),
        (b'{"meta":{"text":"in"},"meta.text":"whole"}', RecordCode.OK, b"whole"),
        (b'{"meta.text":"whole","meta":{"text":"in"}}', RecordCode.OK, b"whole"),
        (b'{"meta.text":null,"meta":{"text":"in"}}', RecordCode.NULL, b""),
        (b'{"meta":{"meta.text":"deep"}}', RecordCode.MISSING, b""),
        (b'{"meta":{"text":"in"},"meta":{"a":1}}', RecordCode.MISSING, b""),
        (b'{"meta":{"text":"in"},"meta":5}', RecordCode.MISSING, b""),
        (b'{"meta":{"a":1},"meta":{"text":"last"}}', RecordCode.OK, b"last"),
        (b'{"meta":[{"text":"in"}]}', RecordCode.MISSING, b""),
        (b'{"text":"top"}', RecordCode.MISSING, b""),
        (b'{"a":{"meta":{"text":"in"}}}', RecordCode.MISSING, b""),
        (b'{"meta":{"text":{"text":"in"}}}', RecordCode.NO_STRING, b""),
    ],
)
def test_a_dotted_key_leads_into_objects(line: bytes, code: RecordCode, text: bytes) -> None:
    found = extract(line, "meta.text")
    assert (found.codes, found.texts) == ([code], [text])


def test_blank_lines_are_counted_and_are_no_records() -> None:
    found = extract(b'\n \t\r\n{"text":"a"}\r\n\r\n{"text":"b"}\n  ')
    assert (found.texts, found.num_blank) == ([b"a", b"b"], 4)
    assert found.lines == [5, 21]
    assert extract(b"").consumed == 0


def test_a_line_of_megabytes_comes_out_whole() -> None:
    text = b"a\\n\\u00e9" * 500_000
    found = extract(b'{"a":"' + text + b'","text":"' + text + b'"}')
    assert found.texts == ["a\né".encode() * 500_000]


SAID = {
    b'{"content":"a","meta":{"url":"b","n":1},"n":null}': (
        "text key `text` is missing; this line has `content`, `meta.url`"
    ),
    b'{"n":1}': "text key `text` is missing; this line has no field that holds a string",
    b'{"text":null}': "text key `text` is null, not a string",
    b'{"text": -1}': "text key `text` is a number, not a string",
    b'{"text":[1]}': "text key `text` is a list, not a string",
    b'{"text":{}}': "text key `text` is an object, not a string",
    b'{"text":true}': "text key `text` is a boolean, not a string",
    b' ["a"]': "the line is a list, not an object with the text key `text`",
    b'{"text":"a",}': "broken JSON: unexpected `}` at byte 13 of the line",
    b'{"text":"\x01"}': "broken JSON: unexpected `\\x01` at byte 10 of the line",
    b'{"text":"a': "broken JSON: the line ends too early",
    b'{"a":' + b"[" * 600: "the line nests more than 512 levels deep",
}


@pytest.mark.parametrize("line", SAID)
def test_a_bad_record_is_explained(line: bytes) -> None:
    data = memoryview(b'{"text":"good"}\r\n' + line + b'\r\n{"other":"good"}')
    json_lines = JsonLines("text", _kernel.extract_json_lines)
    found = json_lines.extract(data, bytearray(len(data)))
    assert json_lines.explain(data, found, 1) == SAID[line]


def test_string_keys_are_listed_in_order_with_dots() -> None:
    line = b'{"b":"x","a":{"y":{"z":"1"},"x":"2"},"n":' + b"9" * 5000 + b',"l":["s"]}'
    assert list(list_string_keys(load_line(line)[0])) == ["b", "a.y.z", "a.x"]


def test_a_key_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(UsageError, match="not valid Unicode"):
        JsonLines("\udc80")


def test_room_that_is_too_small_or_the_buffer_itself_is_refused() -> None:
    data = bytearray(b'{"text":"a"}')
    for json_lines in (JsonLines("text"), JsonLines("text", _kernel.extract_json_lines)):
        with pytest.raises(ValueError, match="12 are needed"):
            json_lines.extract(memoryview(data), bytearray(11))
        with pytest.raises(ValueError, match="overlap"):
            json_lines.extract(memoryview(data), data)


@pytest.mark.parametrize("size", [1, 2, 5, 99])
def test_lines_are_found_at_every_position(size: int) -> None:
    data = b"one\n\ntwo\r\nthree\n\n"
    starts = [0, 4, 5, 10, 16, 17]
    scanner = LineScanner()
    for wanted in range(len(data) + 1):
        found = None
        while found is None:
            content = data[scanner.position : scanner.position + size]
            found = scanner.find_record(wanted, memoryview(content))
        assert found == min(start for start in starts if start >= wanted)


def test_a_line_scanner_goes_on_from_content_it_skipped() -> None:
    scanner = LineScanner()
    scanner.skip(memoryview(b"one\ntwo"))
    assert scanner.position == 7
    assert scanner.find_record(7, memoryview(b" and a half")) is None
    assert scanner.find_record(7, memoryview(b"\nthree\n")) == 19
    assert "a line of more than 64 MiB" in scanner.explain_long_record()[0]
