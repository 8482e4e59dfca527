"""What a sample of an input is taken for: UTF-8, another encoding, or no text."""

from __future__ import annotations

import io
import json
import pickle
import random
import re
import sqlite3
import struct
import tarfile
import zipfile
from array import array

import pytest

from penstok.errors import InputError, NotTextError, UsageError
from penstok.inputs.content import NotUtf8Error, Sample, choose_encoding
from penstok.inputs.encodings import Transcoder, decode_sample, resolve_encoding

TEXTS = {
    "zh": "今天的天气非常好，我们决定去公园散步。孩子们在草地上玩耍，老人们坐在长椅上聊天。\n",
    "tw": "今天的天氣非常好，我們決定去公園散步。孩子們在草地上玩耍，老人們坐在長椅上聊天。\n",
    "ja": "今日はとても天気が良いので、公園へ散歩に行くことにしました。子供たちは遊びます。\n",
    "ko": "오늘은 날씨가 아주 좋아서 공원으로 산책을 가기로 했습니다.\n",
    "ru": "Сегодня очень хорошая погода, и мы решили пойти гулять в парк. Дети играют на траве.\n",
    "de": "Heute ist schönes Wetter, und wir gehen früh los. Die Kinder spielen im großen Park, "
    "ältere Leute sitzen auf Bänken und erzählen Geschichten von früher.\n",
    "es": "Hoy hace buen tiempo y por la mañana iremos al parque. Los niños jugarán en el césped y "
    "los señores mayores charlarán sentados; después volveremos a casa.\n",
    "fr": "Aujourd'hui il fait très beau et nous avons décidé d'aller au parc. Les aînés bavardent "
    "près de la forêt; le soir, nous rentrerons fatigués mais contents d'avoir été là.\n",
    "th": "วันนี้อากาศดีมาก เราจึงตัดสินใจไปเดินเล่นที่สวนสาธารณะ เด็กๆ เล่นกันบนสนามหญ้า\n",
    "el": "Σήμερα ο καιρός είναι πολύ καλός και αποφασίσαμε να πάμε στο πάρκο.\n",
    "ar": "الطقس اليوم جميل جدا وقررنا أن نذهب إلى الحديقة. يلعب الأطفال على العشب ويتحدثون.\n",
    "hi": "आज मौसम बहुत अच्छा है और हमने पार्क में घूमने का फैसला किया। बच्चे घास पर खेल रहे हैं।\n",
    "pl": "Dzisiaj jest bardzo ładna pogoda, więc postanowiliśmy pójść do parku. Dzieci bawią się "
    "na trawie, a starsi ludzie siedzą na ławkach i rozmawiają o dawnych czasach.\n",
}
CASES = [
    ("zh", "gb18030", "gb18030"),
    ("zh", "gbk", "gb18030"),
    ("zh", "hz", "hz"),
    ("zh", "utf-16-le", "utf-16-le"),
    ("zh", "utf-16-be", "utf-16-be"),
    ("tw", "big5", "cp950"),
    ("ja", "shift_jis", "cp932"),
    ("ja", "cp932", "cp932"),
    ("ja", "euc_jp", "euc_jp"),
    ("ja", "iso2022_jp", "iso2022_jp"),
    ("ja", "utf-16", "utf-16-le"),
    ("ko", "euc_kr", "cp949"),
    ("ko", "iso2022_kr", "iso2022_kr"),
    ("ko", "cp949", "cp949"),
    ("ru", "cp1251", "cp1251"),
    ("ru", "koi8-r", "koi8-r"),
    ("ru", "cp866", "cp866"),
    ("ru", "iso8859-5", "iso8859-5"),
    ("de", "latin-1", "cp1252"),
    ("de", "utf-16", "utf-16-le"),
    ("de", "utf-32", "utf-32-le"),
    ("es", "cp1252", "cp1252"),
    ("fr", "iso8859-15", "cp1252"),
    ("th", "cp874", "cp874"),
    ("el", "iso8859-7", "cp1253"),
    ("ar", "cp1256", "cp1256"),
    ("hi", "utf-8", "utf-8"),
    ("hi", "utf-16-le", "utf-16-le"),
    ("hi", "utf-16-be", "utf-16-be"),
    ("pl", "cp1250", "cp1250"),
    ("pl", "iso8859-2", "iso8859-2"),
]


@pytest.mark.parametrize("times", [1, 100])
@pytest.mark.parametrize(("language", "encoding", "expected"), CASES)
def test_the_encoding_of_text_is_detected(
    language: str, encoding: str, expected: str, times: int
) -> None:
    data = (TEXTS[language] * times).encode(encoding)
    sample = Sample(data)
    assert choose_encoding("a.txt", sample, "auto") == expected
    text = decode_sample(data, expected).decode()
    assert text.removeprefix("\ufeff") == TEXTS[language] * times
    if expected == "utf-8":
        assert choose_encoding("a.txt", sample, "utf-8") == expected
        return
    with pytest.raises(NotUtf8Error) as raised:
        choose_encoding("a.txt", sample, "utf-8")
    assert raised.value.encodings[0] == expected
    assert raised.value.what.startswith("this is not UTF-8; it ")
    assert f"--encoding {expected}" in raised.value.next_step


@pytest.mark.parametrize(
    ("language", "encoding", "expected"), [case for case in CASES if case[0] in ("zh", "ja", "ko")]
)
def test_a_malformed_sequence_does_not_mislead(language: str, encoding: str, expected: str) -> None:
    half = (TEXTS[language] * 20).encode(encoding)
    sample = Sample(half + b"\xff\xff \n" + half[2 * encoding.startswith("utf-16") :])
    if encoding != "hz":
        assert choose_encoding("a", sample, "auto") == expected


@pytest.mark.parametrize("size", [12, 50, 200, 400])
@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("language", sorted({*TEXTS, "en"}))
def test_the_byte_order_of_text_without_a_mark_is_detected(
    language: str, order: str, size: int
) -> None:
    text = (TEXTS.get(language, "It is so in all of the plain English text.\n") * 12)[:size]
    if size > 12 or "32" in order or " " in text:
        assert choose_encoding("a", Sample(text.encode(order)), "auto") == order


@pytest.mark.parametrize("size", [12, 20, 31])
@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("language", ["zh", "tw", "ja", "th", "el", "ar"])
def test_short_utf16_without_a_space_or_line_end_is_text(
    language: str, order: str, size: int
) -> None:
    text = re.sub(r"\s", "", TEXTS[language])[:size]
    assert choose_encoding("a", Sample(text.encode(order)), "auto") == order


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("ff14b1ff") * 8,
        b"\x90\x03" + b"\x90\x02" * 15,
        b"\x0eA\x0eA" * 8,
        random.Random(1).randbytes(62).replace(b"\0", b"\1"),
    ],
    ids=["widths", "offsets", "delimiters", "random"],
)
def test_short_binary_data_is_not_utf16(data: bytes) -> None:
    try:
        found = choose_encoding("a", Sample(data), "auto")
    except (NotTextError, NotUtf8Error):
        return
    assert not found.startswith("utf-16")


@pytest.mark.parametrize("start", range(0, 40, 3))
@pytest.mark.parametrize(("language", "encoding"), [("zh", "gbk"), ("ja", "cp932"), ("tw", "big5")])
def test_text_of_two_byte_characters_is_not_utf16(language: str, encoding: str, start: int) -> None:
    text = (TEXTS[language] * 12).replace("\n", "")
    for size in (100, 200, 300, 400):
        data = text[start : start + size].encode(encoding)
        assert not choose_encoding("a", Sample(data), "auto").startswith("utf")


@pytest.mark.parametrize("wanted", ["utf-8", "auto"])
def test_valid_utf8_is_not_utf16(wanted: str) -> None:
    records = (b"Hello\0 there. " * 50, b"12\0 34. " * 50, b"one\0 \xfftwo" + b"three\0 f" * 50)
    for data in (b"a\x01b\x01c\x01d\n" * 50, b"k\x1fv\x1e" * 50, *records):
        with pytest.raises(NotTextError, match="binary data"):
            choose_encoding("a", Sample(data), wanted)
    with pytest.raises(NotTextError, match="binary data"):
        choose_encoding("a", Sample("".join(map(chr, range(128, 160))).encode() * 9), wanted)


@pytest.mark.parametrize(
    "text",
    ["ñandú café año\n", "El niño comió piñas.\n", "voilà, ça y est déjà\n", "Grüße, Köln\n"],
)
def test_accents_in_latin_words_are_not_another_script(text: str) -> None:
    for times in (1, 4, 30):
        data = Sample((text * times).encode("latin-1"))
        assert choose_encoding("a", data, "auto") == "cp1252"


def test_a_doubtful_encoding_is_to_be_looked_at() -> None:
    data = Sample(("ñandú café año\n" * 30).encode("latin-1"))
    with pytest.raises(NotUtf8Error, match=r"it may be cp1252 .* or ") as raised:
        choose_encoding("my text", data, "utf-8")
    assert "`penstok plan 'my text' --encoding cp1252`" in raised.value.next_step


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 100,
        b"\xfe\xfd" * 500,
        (TEXTS["de"] * 9).encode("cp500"),
        (TEXTS["es"] * 9).encode("cp037"),
        *(bytes(byte ^ key for byte in (TEXTS["es"] * 9).encode()) for key in (0x80, 0xAA, 0xFF)),
        bytes(128 + (x * y >> 4) % 128 for x in range(64) for y in range(64)),
        bytes(random.Random(3).choices(range(160, 256), k=4000)),
    ],
)
def test_what_does_not_read_like_text_is_not_guessed(data: bytes) -> None:
    for wanted in ("auto", "utf-8"):
        with pytest.raises(InputError) as raised:
            choose_encoding("a", Sample(data), wanted)
        assert re.search("could not be detected|binary data", raised.value.what)


def test_odd_ascii_does_not_keep_an_encoding_from_being_detected() -> None:
    noise = random.Random(2)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
    base64 = "".join(noise.choices(letters, k=9000))
    for text in (base64 + TEXTS["de"], "getElementByIdOrName(aBcD)\n" * 50 + TEXTS["es"]):
        assert choose_encoding("a", Sample(text.encode("latin-1")), "auto") == "cp1252"


def test_a_character_that_is_cut_off_at_the_end_is_invalid() -> None:
    with pytest.raises(NotUtf8Error):
        choose_encoding("a", Sample("中文".encode("gbk")), "utf-8")


@pytest.mark.parametrize(
    "text", ["caf\xe9", "\xe9t\xe9", "Stra\xdfe", "na\xefve text\n", "a\n\xfc"]
)
def test_short_text_is_not_repaired_if_its_encoding_is_to_be_detected(text: str) -> None:
    data = text.encode("latin-1")
    found = choose_encoding("a", Sample(data), "auto")
    assert b"\xff" not in decode_sample(data, found, is_whole=True)
    assert choose_encoding("a", Sample(data), "utf-8") == "utf-8"


def test_text_after_a_long_header_in_english_is_seen() -> None:
    header, text = b"Permission is granted.\n" * 3000, (TEXTS["de"] * 100).encode("latin-1")
    assert choose_encoding("a", Sample(header[: 1 << 16], (text[:9000], text[-9000:])), "auto")
    with pytest.raises(NotUtf8Error, match="cp1252"):
        choose_encoding("a", Sample(header[: 1 << 16], (text[:9000], text[-9000:])), "utf-8")


@pytest.mark.parametrize(
    "data",
    [
        b"one \xff stray byte in text that is otherwise fine\n" * 1 + b"plain text\n" * 500,
        "ü".encode("latin-1") + b" and so on\n" * 3000,
        (TEXTS["zh"] * 50).encode() + b"\xff\xfe" + TEXTS["de"].encode("latin-1"),
        TEXTS["hi"].encode()[:-2],
        b"code\n\x0c\nmore code\n" * 100,
        b"\x1b[1mbold\x1b[0m in a terminal\n" * 100,
        b"DOS text\r\n" * 50 + b"\x1a",
        b"8=FIX.4.2\x019=65\x0135=A\x0149=SERVER\x0156=CLIENT\x01\n" * 50,
        b"a few NUL\0 bytes in a long line of text that goes on and on\n" * 50,
        b"./some/folder/with/a/long/name/file.txt\0" * 50,
        b"name\x1fvalue text here\x1fmore\x1e" * 50,
        b"alpha\x01beta\x01gamma\x01delta\n" * 50,
        b"~{ this is not HZ }\n" * 50,
        b"BM is short for something\n" * 50,
        b"MZ and PARENTS and GIF are words\n" * 50,
        b"%PDF-1.4 is what a PDF begins with\n" * 50,
        b"(dp is short for dynamic programming)\n" * 50,
        "\xa0\xab\xa7 1\xbb".encode() * 50,
        b"x" * 70_000,
        "\x85\u2028 odd \u200b characters \U0001f600\n".encode() * 50,
    ],
)
def test_text_with_oddities_is_utf8(data: bytes) -> None:
    assert choose_encoding("a", Sample(data), "utf-8") == "utf-8"


def _sqlite() -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.execute("create table a (b)")
        return database.serialize() if hasattr(database, "serialize") else b"SQLite format 3\0"


def _zip(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "<x/>" * 99)
    return file.getvalue()


def _tar(text: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return file.getvalue()


NOISE = random.Random(1).randbytes(5000)
TENSORS = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (_sqlite(), "a SQLite database"),
        (b"\x93NUMPY\x01\x00v\x00{'descr': '<i8'}" + bytes(500), "a NumPy array"),
        (pickle.dumps({"a": list(range(500))}), "a Python pickle"),
        (pickle.dumps({"a": list(range(500))}, 2), "a Python pickle"),
        (struct.pack("<Q", len(TENSORS)) + TENSORS + NOISE, "a safetensors file"),
        (_zip("a.txt"), "a zip archive"),
        (_zip("[Content_Types].xml", "word/document.xml"), "a Word document"),
        (_zip("[Content_Types].xml", "xl/workbook.xml"), "an Excel workbook"),
        (_tar(b"text\n" * 50), "a tar archive"),
        (_tar(b"much more text than header\n" * 2000), "a tar archive"),
        (b"7z\xbc\xaf\x27\x1c" + NOISE, "a 7z archive"),
        (b"Rar!\x1a\x07\x01\x00" + NOISE, "a rar archive"),
        (b"GIF89a" + NOISE, "a GIF picture"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + NOISE, "a PNG picture"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0" + NOISE, "a JPEG picture"),
        (b"ID3\x04\0\0\0\0\0\x23TSSE" + bytes(30) + NOISE, "an MP3 sound"),
        (b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2" + NOISE, "an MP4 video"),
        (b"RIFF\x24\x10\0\0WAVEfmt " + NOISE, "a WAV sound"),
        (b"MZ\x90\0\x03" + bytes(59) + NOISE, "a Windows program"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + NOISE, "a program"),
        (b"\xa7\r\r\n" + bytes(12) + b"\xe3" + NOISE, "Python bytecode"),
        (b"\xca\xfe\xba\xbe\0\0\0\x34" + NOISE, "Java bytecode"),
        (b"\0asm\x01\0\0\0" + NOISE, "a WebAssembly module"),
        (b"wOFF\0\x01\0\0" + NOISE, "a WOFF font"),
        (b"\0\0\x01\0\x01\0\x10\x10" + NOISE, "an icon"),
        (b"BM" + struct.pack("<IHHI", 5000, 0, 0, 54) + NOISE, "a BMP picture"),
        (b"II*\0\x08\0\0\0" + NOISE, "a TIFF picture"),
        (b"PACK\0\0\0\x02\0\0\0\x10" + NOISE, "a git pack"),
        (b"PARE" + NOISE, "an encrypted parquet file"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + NOISE, "a PDF"),
        (b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n" * 9, "a PDF"),
        (pickle.dumps({"a": "plain text " * 500}, 0), "a Python pickle"),
        (pickle.dumps(["plain text " * 500], 0), "a Python pickle"),
        (pickle.dumps({"a": "plain text " * 500}, 1), "a Python pickle"),
        (b"P6\n40 40\n255\n" + b"\xc8\xb4\xa0" * 1600, "a PPM picture"),
        (bytes(128) + b"DICM" + b"plain text " * 900, "a DICOM picture"),
        (NOISE, "binary data"),
        (NOISE[:64], "binary data"),
        (bytes(5000), "nothing but NUL bytes"),
        (array("H", [idx * 37 % 50257 for idx in range(5000)]).tobytes(), "binary data"),
        (array("I", [idx * 37 % 50257 for idx in range(5000)]).tobytes(), "binary data"),
        (b"#!/bin/sh\ntail -n +3 $0 | tar xz\nexit\n" + NOISE, "binary data"),
    ],
)
@pytest.mark.parametrize("wanted", ["utf-8", "auto", "cp1252"])
def test_what_is_not_text_is_named(data: bytes, what: str, wanted: str) -> None:
    with pytest.raises(NotTextError) as raised:
        choose_encoding("a", Sample(data), wanted)
    assert raised.value.what == f"this is {what}, not text"


@pytest.mark.parametrize(
    ("data", "wanted", "what"),
    [
        (TEXTS["zh"].encode(), "gbk", "this is not gbk; it looks like utf-8"),
        (TEXTS["zh"].encode("gbk"), "euc_jp", "this is not euc_jp; it looks like gb18030"),
        (TEXTS["zh"].encode("gbk"), "ascii", "this is not ascii; it looks like gb18030"),
        (TEXTS["zh"].encode("gbk"), "utf-16", "this is not utf-16; it looks like gb18030"),
        (b"plain text\n" * 9, "utf-16", "this is not utf-16; it looks like utf-8"),
        (b"plain text\n" * 9, "utf-16-be", "this is not utf-16-be; it looks like utf-8"),
        (b"\xef\xbb\xbfplain\n", "gbk", "this is not gbk; it looks like utf-8"),
        (b"\xef\xbb\xbfplain\n", "utf-16", "this is not utf-16; it looks like utf-8"),
        *(
            (mark + text.encode(f"utf-16-{order}"), wanted, f"not {wanted}; .* utf-16-{order}$")
            for order, other, mark in [("le", "be", b"\xff\xfe"), ("be", "le", b"\xfe\xff")]
            for text in ("plain text\n", *TEXTS.values())
            for wanted in (f"utf-16-{other}", "gbk", "cp1252")
        ),
        *(
            (TEXTS[name].encode(f"utf-16-{order}"), wanted, f"not {wanted}; .* utf-16-{order}$")
            for order, other in [("le", "be"), ("be", "le")]
            for name in TEXTS
            for wanted in (f"utf-16-{other}", "gbk", "cp1252")
        ),
    ],
)
def test_text_that_does_not_have_the_named_encoding_is_refused(
    data: bytes, wanted: str, what: str
) -> None:
    with pytest.raises(NotUtf8Error) as raised:
        choose_encoding("a", Sample(data), resolve_encoding(wanted))
    assert re.search(what, raised.value.what)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("language", TEXTS)
def test_a_named_byte_order_is_taken(language: str, encoding: str) -> None:
    for text in (TEXTS[language], TEXTS[language][:9], ""):
        assert choose_encoding("a", Sample(text.encode(encoding)), encoding) == encoding


@pytest.mark.parametrize(
    "text", ["is \ue000 it", "a\x1b b", "a\0b " * 50, "\0abc", "a\uffff", "a\ud800b c"]
)
def test_odd_characters_do_not_keep_a_named_encoding_from_being_taken(text: str) -> None:
    for order, mark in (("le", b"\xff\xfe"), ("be", b"\xfe\xff")):
        encoding = f"utf-16-{order}"
        data = mark + text.encode(encoding, "surrogatepass")
        assert choose_encoding("a", Sample(data), "utf-16") == encoding
        assert choose_encoding("a", Sample(data), encoding) == encoding


def test_a_named_encoding_in_which_most_is_invalid_is_refused_with_the_reason() -> None:
    with pytest.raises(NotUtf8Error, match="19 of its first 21 characters are invalid"):
        choose_encoding("a", Sample(b"\xff\xfea\0" + b"\0\xd8" * 20), "utf-16")
    for data in (NOISE, b"Hello\0 there. " * 50):
        with pytest.raises(NotTextError, match="binary data"):
            choose_encoding("a", Sample(data), "utf-16")


def test_a_named_encoding_is_taken() -> None:
    latin = Sample(TEXTS["de"].encode("latin-1"))
    assert choose_encoding("a", latin, "iso8859-1") == "iso8859-1"
    assert choose_encoding("a", latin, "cp1250") == "cp1250"
    assert choose_encoding("a", Sample(b"plain"), "gbk") == "gbk"
    assert choose_encoding("a", Sample("mark".encode("utf-16")), "utf-16") == "utf-16-le"
    assert choose_encoding("a", Sample(TEXTS["de"].encode("cp500")), "cp500") == "cp500"


@pytest.mark.parametrize(
    ("name", "resolved"),
    [
        ("UTF8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("GBK", "gbk"),
        ("936", "gbk"),
        ("Latin-1", "iso8859-1"),
        ("AUTO", "auto"),
        ("Shift-JIS", "shift_jis"),
    ],
)
def test_an_encoding_has_one_name(name: str, resolved: str) -> None:
    assert resolve_encoding(name) == resolved


@pytest.mark.parametrize(
    "name",
    [
        *("rot13", "idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"),
        *("base64", "hex", "zlib", "utf-7", "charmap", "", "no such", "a\0b", "\udcff", "aliases"),
    ],
)
def test_what_is_not_an_encoding_of_text_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as raised:
        resolve_encoding(name)
    assert "gb18030" in raised.value.next_step


def test_the_reason_why_utf7_is_refused_is_given() -> None:
    with pytest.raises(UsageError, match="hold all of a file"):
        resolve_encoding("UTF-7")


def test_a_misspelled_encoding_is_corrected() -> None:
    with pytest.raises(UsageError, match="did you mean `shift_jis`"):
        resolve_encoding("shift-jiss")


def _transcoder(data: bytes, encoding: str, sizes: random.Random) -> Transcoder:
    """Read bytes in pieces of random sizes, as from a pipe."""
    file = io.BytesIO(data)

    def read_into(buffer: memoryview) -> int:
        return file.readinto(buffer[: sizes.randint(1, 40_000)])

    return Transcoder(read_into, encoding)


def _read(transcoder: Transcoder, size: int) -> bytes:
    buffer, found = memoryview(bytearray(size)), bytearray()
    while count := transcoder.readinto(buffer):
        found += buffer[:count]
    return bytes(found)


@pytest.mark.parametrize(
    ("language", "encoding"), [case[:2] for case in CASES if case[1] not in ("utf-16", "utf-32")]
)
def test_text_in_pieces_becomes_the_same_utf8(language: str, encoding: str) -> None:
    text = TEXTS[language] * 1200
    data = text.encode(encoding)
    for seed in range(3):
        transcoder = _transcoder(data, encoding, random.Random(seed))
        assert _read(transcoder, 1 + 9973 * seed) == text.encode()


@pytest.mark.parametrize(
    "encoding",
    [
        *("gb18030", "gbk", "big5", "cp950", "cp932", "euc_jp", "cp949", "hz", "cp1252", "ascii"),
        *("iso2022_jp", "iso2022_jp_2004", "iso2022_kr", "utf-16-le", "utf-32-be", "johab"),
    ],
)
def test_malformed_sequences_are_marked_and_located(encoding: str) -> None:
    noise = random.Random(encoding)
    for size in (1, 5, 60, 70_000, 140_000):
        data = bytes(noise.choices(b"\x1b$B(AJ\x0e\x0f~{}ab\n\x81\x30\x8f\xa1\xfe\xff\xd8", k=size))
        found = _read(_transcoder(data, encoding, random.Random(1)), 5000)
        assert found == _read(_transcoder(data, encoding, random.Random(2)), 70_000)
        found.replace(b"\xff", b"").decode()
        if (position := found.find(b"\xff", len(found) // 2)) >= 0:
            offset, raw = _transcoder(data, encoding, random.Random(3)).locate(position)
            assert 0 <= offset < len(data)
            assert data[offset:].startswith(raw)


@pytest.mark.parametrize("encoding", ["gb18030", "cp932", "iso2022_jp", "utf-16-le", "cp1252"])
def test_a_position_is_found_in_the_bytes(encoding: str) -> None:
    text = {"cp1252": TEXTS["de"], "cp932": TEXTS["ja"], "iso2022_jp": TEXTS["ja"]}.get(
        encoding, TEXTS["zh"]
    ) * 2000
    data, utf8 = text.encode(encoding), text.encode()
    for part in (0, 7, 70_001, 80_003):
        character = text[part]
        position, before = len(text[:part].encode()), text[:part].encode(encoding)
        offset, raw = _transcoder(data, encoding, random.Random(4)).locate(position)
        if encoding == "iso2022_jp":
            assert offset <= len(before) + 3
        else:
            assert offset == len(before)
            assert raw == character.encode(encoding)
        assert utf8[position:].startswith(character.encode())


def test_a_failure_comes_after_the_text_before_it() -> None:
    pieces = [TEXTS["zh"].encode("gbk"), b"\xd6"]

    def read_into(buffer: memoryview) -> int:
        if not pieces:
            raise InputError("damaged")
        piece = pieces.pop(0)
        buffer[: len(piece)] = piece
        return len(piece)

    transcoder, buffer = Transcoder(read_into, "gbk"), memoryview(bytearray(9999))
    assert bytes(buffer[: transcoder.readinto(buffer)]) == TEXTS["zh"].encode()
    with pytest.raises(InputError, match="damaged"):
        transcoder.readinto(buffer)


def test_a_truncated_last_character_is_one_invalid_sequence() -> None:
    cut = TEXTS["zh"].encode("gb18030")[:-2]
    found = _read(_transcoder(cut, "gb18030", random.Random(1)), 100)
    assert found == TEXTS["zh"][:-2].encode() + b"\xff"


def test_records_in_other_encodings_are_known_by_their_text() -> None:
    record = json.dumps({"text": TEXTS["ja"]}, ensure_ascii=False) + "\n"
    assert choose_encoding("a", Sample((record * 9).encode("cp932")), "auto") == "cp932"
