"""What an input holds, judged by a sample: UTF-8, text in another encoding, or no text at all.

It opens nothing and never decides by a name. `probe` takes the sample; `readers.probe` asks
`choose_encoding` about every input whose format is text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from penstok.errors import InputError, NotTextError, quoted
from penstok.inputs.encodings import AUTO, decode_sample
from penstok.types import UTF_8

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["NotUtf8Error", "Sample", "choose_encoding", "name_binary", "name_encoding"]

# Bytes that text does not have; form feeds, escapes and the like are not among them.
_CONTROLS = bytes([*range(7), *range(14, 27), *range(28, 32), 127])
_NOT_ASCII = bytes(range(128, 256))
_INVALID = b"\xff"
_MAX_DETECTED_BYTES = 1 << 16
# An answer of the detector with this share of the best one's confidence is worth a mention.
_NEARLY_AS_LIKELY = 0.95
# Fewer invalid sequences are a trace: they are repaired and counted.
_MIN_INVALID, _MIN_INVALID_SHARE = 4, 1 / 4096
# How much of a sample may be control characters. Valid UTF-8 may well use some as delimiters.
_MAX_CONTROLS, _MAX_UTF8_CONTROLS, _MAX_UTF8_NUL = 0.02, 0.2, 0.05
# One error for so many characters is too many in an encoding that the user named.
_WRONG_SHARE = 10
# So many characters of two or more bytes are never valid UTF-8 by chance.
_SURELY_UTF8 = 8
_MARKS = {
    b"\xff\xfe\0\0": "utf-32-le",
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
_UTF8_MARK = b"\xef\xbb\xbf"
# What text in ISO-2022-KR begins with, before any Korean.
_KOREAN_HEADER = b"\x1b$)C"
_WORD_END_BITS = 8
# The high bytes of UTF-16 that text of any language may have; others belong to single scripts, of
# which a text has few.
_USUAL_PAGES = {0, 0x20, 0x21, 0x22, 0x25, 0x26, 0x30, 0x31, 0xFE, 0xFF, *range(0x4E, 0xA0)} | set(
    range(0xAC, 0xD8)
)
_MAX_SCRIPTS = 3
_MAX_ODD_CHARACTERS = 0.02
# Shorter samples without a NUL may be UTF-16 by chance.
_MIN_WIDE_BYTES = 64
_BINARY_DATA = "binary data"
_MAX_OVERLAP = 0.6
# What the detector may answer. Others are so rare that they are more often a mistake.
_DETECTED = (
    *("gb18030", "big5hkscs", "cp932", "shift_jis_2004", "euc_jis_2004", "euc_kr", "cp949"),
    *("iso2022_jp_2", "iso2022_jp_2004", "iso2022_jp_ext", "iso2022_kr", "hz", "koi8-r", "koi8-u"),
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
    *("cp874", "tis-620", "iso8859-1", "iso8859-2", "iso8859-5", "iso8859-6", "iso8859-7"),
    *("iso8859-8", "iso8859-9", "iso8859-13", "iso8859-15", "cp437", "cp850", "cp852", "cp866"),
)
# The usual name of an encoding or of a superset, if it decodes the sample as well.
_SUPERSETS = {
    "big5hkscs": ("cp950", "big5hkscs"),
    "shift_jis_2004": ("cp932",),
    "euc_jis_2004": ("euc_jp",),
    "euc_kr": ("cp949",),
    "iso2022_jp_2": ("iso2022_jp",),
    "iso2022_jp_2004": ("iso2022_jp",),
    "iso2022_jp_ext": ("iso2022_jp",),
    "tis-620": ("cp874",),
    "iso8859-1": ("cp1252",),
    "iso8859-8": ("cp1255",),
    "iso8859-9": ("cp1254",),
}
_LONG_ENCODINGS = {
    *("gb18030", "cp950", "big5hkscs", "cp932", "shift_jis_2004", "euc_jp", "euc_jis_2004"),
    *("cp949", "hz", "iso2022_jp", "iso2022_kr"),
}
_LATIN_ENCODINGS = (
    *("cp1252", "cp1250", "cp1254", "cp1257", "iso8859-1", "iso8859-2", "iso8859-9"),
    *("iso8859-13", "iso8859-15", "cp437", "cp850", "cp852", "cp1258"),
)
# So few different letters outside ASCII do not tell one of these from another.
_MAX_TELLING = 4
_ASCII = dict.fromkeys(range(128))
# What Latin words have outside ASCII: one or two letters next to others.
_NOT_ASCII_RUN = re.compile(rb"[\x80-\xff]+")
_IN_LATIN_WORD = re.compile(
    rb"(?<=[A-Za-z])[\x80-\xff]{1,2}(?![\x80-\xff])|(?<![\x80-\xff])[\x80-\xff]{1,2}(?=[A-Za-z])"
)
# How much of text may be characters that text seldom has, and the share of pairs of letters that
# may be a lower-case one before an upper-case one.
_MAX_RARE, _MAX_CASE_CHANGES = 0.2, 0.15
# How many of the characters of several bytes are East Asian and not half as wide, at least.
_MIN_USUAL = 0.6
# One character may be this share of a text, which has white space once in so many others.
_MAX_SAME, _MAX_WORD = 0.6, 100
_NUM_PIECES, _MIN_PIECE_BYTES = 8, 256
# Encodings that differ in few characters: the more usual one, if the sample has none of them.
_ALIKE = {"iso8859-15": "cp1252", "iso8859-7": "cp1253", "iso8859-13": "cp1257"}
# The rest of a character of UTF-8 whose first bytes precede a sample.
_CUT_OFF = re.compile(rb"\A[\x80-\xbf]{1,3}")
_ESCAPED = re.compile(rb"\x1b\$|~\{")
_LANGUAGES = {
    "gb18030": "Chinese",
    "gbk": "Chinese",
    "hz": "Chinese",
    "cp950": "traditional Chinese",
    "big5hkscs": "traditional Chinese",
    "cp932": "Japanese",
    "euc_jp": "Japanese",
    "shift_jis_2004": "Japanese",
    "euc_jis_2004": "Japanese",
    "iso2022_jp": "Japanese",
    "cp949": "Korean",
    "iso2022_kr": "Korean",
    "cp1251": "Cyrillic",
    "koi8-r": "Russian",
    "koi8-u": "Ukrainian",
    "cp866": "Cyrillic",
    "iso8859-5": "Cyrillic",
    "cp1252": "Western European",
    "iso8859-15": "Western European",
    "cp850": "Western European",
    "cp437": "Western European",
    "cp1250": "Central European",
    "cp852": "Central European",
    "iso8859-2": "Central European",
    "cp1253": "Greek",
    "iso8859-7": "Greek",
    "cp1254": "Turkish",
    "cp1255": "Hebrew",
    "cp1256": "Arabic",
    "iso8859-6": "Arabic",
    "cp1257": "Baltic",
    "iso8859-13": "Baltic",
    "cp1258": "Vietnamese",
    "cp874": "Thai",
}
# Formats of this field, which the detector does not know, and those that may look like text.
_MAGIC = (
    (rb"PK(\x05\x06|\x07\x08)", "an empty or divided zip archive"),
    (rb".{257}ustar[\0 ]", "a tar archive"),
    (rb"%PDF-", "a PDF"),
    (rb"\x89PNG", "a PNG picture"),
    (rb"GIF8[79]a", "a GIF picture"),
    (rb"\x1f\x8b\x08", "a gzip file"),
    (rb"PARE", "an encrypted parquet file"),
    (rb"FEA1", "a Feather file of version 1"),
    (rb"\xff\xff\xff\xff.{2}\0\0[\x04-\x20]\0\0\0", "an Arrow stream"),
    (rb"ORC.*\0", "an ORC file"),
    (rb"Obj\x01.{1,4}avro\.", "an Avro file"),
    (rb"\x93NUMPY", "a NumPy array"),
    (rb"\x80[\x02-\x05][\x95}\](Kc].*\0", "a Python pickle"),
    (rb".{5}\0\0\0\{\"", "a safetensors file"),
    (rb"GGUF[\x01-\x09]\0\0\0", "a GGUF model"),
    (rb"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (rb".{2}\r\n[\0-\x03]\0\0\0", "Python bytecode"),
    (rb"PACK\0\0\0[\x02\x03]", "a git pack"),
    (rb"\xfftOc", "the index of a git pack"),
    (rb"DIRC\0\0\0", "a git index"),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (doc, xls, ppt)"),
    (rb"!<arch>\n", "a library or Debian package"),
    (rb"(\xde\x12\x04\x95|\x95\x04\x12\xde)", "a catalog of translations"),
    (rb"MZ.{60}\0\0", "a Windows program"),
    (rb"BLENDER", "a Blender scene"),
    (rb"bplist00", "a binary property list"),
    (rb"\xed\xab\xee\xdb", "an RPM package"),
    (rb"\x1f\x9d", "a file compressed with `compress`"),
    (rb"LZIP\x01", "an lzip file"),
    (rb"\x5d\0\0.{2}\xff{6}", "an lzma file"),
    (rb"\xff\x06\0\0sNaPpY", "a snappy file"),
    (rb"\0\x01\0\0Standard (Jet|ACE) DB", "an Access database"),
    (rb"\0+$", "nothing but NUL bytes"),
)
# What the detector calls a kind of file, and what people call it.
_KINDS = {
    "application/x-sqlite3": "a SQLite database",
    "application/pdf": "a PDF",
    "application/zip": "a zip archive",
    "application/x-tar": "a tar archive",
    "application/gzip": "a gzip file",
    "application/x-bzip2": "a bzip2 file",
    "application/x-xz": "an xz file",
    "application/zstd": "a zstd file",
    "application/x-7z-compressed": "a 7z archive",
    "application/vnd.rar": "a rar archive",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "a Word document",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "an Excel workbook",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": (
        "a PowerPoint presentation"
    ),
    "application/epub+zip": "an EPUB book",
    "application/java-archive": "a Java archive",
    "application/x-wheel+zip": "a Python wheel",
    "application/java-vm": "Java bytecode",
    "application/wasm": "a WebAssembly module",
    "application/x-elf": "a program",
    "application/x-mach-binary": "a program",
    "audio/mpeg": "an MP3 sound",
    "image/vnd.adobe.photoshop": "a Photoshop picture",
    "image/vnd.microsoft.icon": "an icon",
    "video/x-msvideo": "an AVI video",
}
_FAMILIES = {"image": "picture", "audio": "sound", "video": "video", "font": "font"}
_REMEDIES = {
    "a zip archive": "unpack it first: `unzip {}`",
    "a tar archive": "unpack it first: `tar -xf {}`",
    "a PDF": "convert it to text first: `pdftotext {}`",
    "a Word document": "convert it to text first: `pandoc -t plain {}`",
    "an EPUB book": "convert it to text first: `pandoc -t plain {}`",
    "an Arrow stream": "pass `--input-format arrow`",
}


class Sample(Struct, frozen=True):
    """Some of an input's content.

    Attributes:
        head: The first bytes.
        others: Bytes from the middle and the end, where they can be read at little cost.
    """

    head: bytes
    others: tuple[bytes, ...] = ()


class _Content(Struct, frozen=True):
    """What a sample holds: `what` if it is no text; else its likely encodings, the best first."""

    encodings: tuple[str, ...] = ()
    what: str = ""


class NotUtf8Error(InputError):
    """An input that is text in another encoding than the job reads.

    Attributes:
        encodings: What it may be, the most likely first; empty if that could not be detected.
    """

    encodings: tuple[str, ...] = ()


_IS_UTF_8 = _Content((UTF_8,))


def choose_encoding(path: str, sample: Sample, wanted: str) -> str:
    """Return the encoding of an input.

    Args:
        path: Its name, for messages.
        sample: Some of its content.
        wanted: The encoding it should have, or `auto` to detect it.

    Raises:
        NotTextError: If it is not text.
        NotUtf8Error: If it does not have the encoding that it should have, or none is detected.
    """
    parts = [sample.head, *(_CUT_OFF.sub(b"", part) for part in sample.others)]
    is_whole = not sample.others and len(sample.head) < _MAX_DETECTED_BYTES
    is_plain = all(_is_plain(part, is_whole=is_whole) for part in parts)
    if is_plain and wanted in (UTF_8, AUTO):
        return UTF_8
    found = _IS_UTF_8 if is_plain else _inspect(parts, wanted, is_whole=is_whole)
    if wanted not in (UTF_8, AUTO):
        _check_encoding(path, parts, wanted, found)
        is_any_order = wanted in ("utf-16", "utf-32")
        return found.encodings[0] if is_any_order else wanted
    if found.what:
        raise _not_text(path, found.what)
    if found.encodings and (wanted == AUTO or found == _IS_UTF_8):
        return found.encodings[0]
    raise _not_utf8(path, UTF_8, found.encodings)


def name_binary(head: bytes) -> str:
    """Return which kind of file begins with these bytes; empty if that is not certain."""
    # Compiled only here: nearly no job gets here, and compiling would slow down every start.
    return next((what for magic, what in _MAGIC if re.match(magic, head, re.DOTALL)), "")


def name_encoding(encoding: str) -> str:
    """Return an encoding with the language that it is used for."""
    language = _LANGUAGES.get(encoding)
    return f"{encoding} ({language})" if language else encoding


def _is_plain(part: bytes, *, is_whole: bool) -> bool:
    """Tell whether bytes are UTF-8 without control characters, as nearly all inputs are."""
    if len(part.translate(None, _CONTROLS)) != len(part) or b"\x1b$" in part or b"~{" in part:
        return False
    try:
        part.decode()
    except UnicodeDecodeError as error:
        is_cut_off = error.start + 3 >= len(part) and error.reason == "unexpected end of data"
        return is_cut_off and not is_whole
    return True


def _inspect(parts: Sequence[bytes], wanted: str, *, is_whole: bool) -> _Content:
    """Find out what a sample is that is not plain UTF-8."""
    head = parts[0]
    if what := name_binary(head):
        return _Content(what=what)
    if (marked := _find_mark(head)) and _reads_well(head, marked):
        return _Content((marked,))
    if _KOREAN_HEADER in head and b"\x0e" in head:
        korean = decode_sample(head, "iso2022_kr")
        if korean.count(_INVALID) * _WRONG_SHARE < _count_long(korean):
            return _Content(("iso2022_kr",))
    joined = b"".join(parts)
    num_valid, num_invalid = _count_sequences(parts, is_whole=is_whole)
    # Whoever has encodings detected does not want a short text of one repaired instead.
    least = 1 if wanted == AUTO else _MIN_INVALID
    if wanted == AUTO and num_valid < _SURELY_UTF8:
        num_valid //= 2
    is_utf8 = not _is_mostly_invalid(num_valid, num_invalid, len(joined), least)
    num_controls = len(joined) - len(joined.translate(None, _CONTROLS))
    # All magic numbers of binary files have or are followed by bytes that text does not have.
    if head[:16].translate(None, _CONTROLS) != head[:16] and (what := _find_kind(head)):
        return _Content(what=what)
    if _is_binary(joined, num_controls, is_utf8=is_utf8):
        # UTF-16 of any language has bytes that are control characters in other encodings; but
        # valid UTF-8 without a NUL uses these as delimiters.
        wide = _find_wide(head) if num_invalid or 0 in joined else ""
        return _Content((wide,)) if wide else _Content(what=_BINARY_DATA)
    if is_utf8 and not _ESCAPED.search(joined):
        return _IS_UTF_8
    joined = joined[:_MAX_DETECTED_BYTES]
    likely = _prefer_latin(_detect(joined), joined)
    likely = tuple(name for name in likely if _is_plausible(joined, name))
    is_escaped = likely[:1] in (("iso2022_jp",), ("iso2022_kr",), ("hz",))
    return _IS_UTF_8 if is_utf8 and not is_escaped else _Content(likely)


def _find_mark(head: bytes) -> str:
    """Return the UTF-16 or UTF-32 whose byte order mark some text begins with; empty if none."""
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")


def _is_binary(sample: bytes, num_controls: int, *, is_utf8: bool) -> bool:
    """Tell by control characters whether a sample is not text."""
    if not is_utf8:
        return num_controls > _MAX_CONTROLS * len(sample)
    return num_controls > _MAX_UTF8_CONTROLS * len(sample) or sample.count(0) > _MAX_UTF8_NUL * len(
        sample
    )


def _count_sequences(parts: Sequence[bytes], *, is_whole: bool) -> tuple[int, int]:
    """Count characters of several bytes, and invalid sequences."""
    num_valid = num_invalid = 0
    for part in parts:
        text = decode_sample(part, UTF_8, is_whole=is_whole)
        num_invalid += text.count(_INVALID)
        num_valid += _count_long(text)
    return num_valid, num_invalid


def _count_long(text: bytes) -> int:
    """Count the valid characters of more than one byte."""
    return len(text.decode(errors="ignore")) - len(text.translate(None, _NOT_ASCII))


def _is_mostly_invalid(
    num_valid: int, num_invalid: int, num_bytes: int, least: int = _MIN_INVALID
) -> bool:
    is_trace = num_invalid < max(least, num_bytes * _MIN_INVALID_SHARE)
    return num_invalid > num_valid and not is_trace


def _find_wide(head: bytes) -> str:
    """Return which UTF-32 or UTF-16 bytes without a mark are; empty if none.

    Half of the bytes of UTF-16 belong to whole scripts. So they are much the same, or range over
    all values, among them the control characters that no text in other encodings has.
    """
    if len(head) < _MIN_WIDE_BYTES and 0 not in head:
        return ""
    for encoding, high in (("utf-32-le", head[3::4]), ("utf-32-be", head[::4])):
        # Decoding takes much longer than a look at the bytes that are 0 in any text.
        is_likely = high.count(0) >= (1 - _MAX_ODD_CHARACTERS) * len(high) > 0
        if is_likely and _reads_well(head, encoding):
            return encoding
    even, odd = Counter(head[::2]), Counter(head[1::2])
    if sum((even & odd).values()) > _MAX_OVERLAP * (len(head) // 2):
        return ""
    likely = sorted(("utf-16-le", "utf-16-be"), key=lambda each: _rate_order(head, each))
    return next((each for each in likely if _reads_well(head, each)), "")


def _rate_order(head: bytes, encoding: str) -> float:
    """Rate a byte order of UTF-16, the lower the better: high bytes vary less, and words end."""
    high = Counter(head[encoding == "utf-16-le" :: 2])
    text = decode_sample(head, encoding).decode(errors="replace")
    num_ends = sum(map(text.count, " \n\u3001\u3002\uff0c"))
    return _entropy(high) - _WORD_END_BITS * num_ends / max(len(text), 1)


def _entropy(counts: Counter[int]) -> float:
    """Return how many bits a byte has on average, if these are counts of bytes."""
    total = counts.total()
    return sum(number * math.log2(total / number) for number in counts.values()) / max(total, 1)


def _reads_well(data: bytes, encoding: str) -> bool:
    """Tell whether bytes make sense as UTF-16 or UTF-32: known characters, of few scripts."""
    import unicodedata

    text = decode_sample(data, encoding).decode(errors="replace")
    if not text:
        return False
    counts = Counter(text)
    odd = sum(
        number
        for each, number in counts.items()
        if each == "\ufffd"
        or (unicodedata.category(each)[0] == "C" and each not in "\t\n\r\f\ufeff\u200c\u200d")
    )
    pages = Counter[int]()
    for each, number in counts.items():
        if ord(each) >> 8 not in _USUAL_PAGES and ord(each) < 1 << 16:
            pages[ord(each) >> 8] += number
    odd += sum(pages.values()) - sum(number for _, number in pages.most_common(_MAX_SCRIPTS))
    return odd <= _MAX_ODD_CHARACTERS * len(text)


def _detect(sample: bytes) -> tuple[str, ...]:
    """Return the likely encodings of a sample, the best first."""
    likely = _ask_detector(sample)
    if likely[:1] and likely[0] in _LONG_ENCODINGS:
        return likely
    # The detector rules out an encoding of several bytes at the first malformed sequence.
    votes = Counter(
        _ask_detector(piece)[:1]
        for piece in _iter_pieces(sample)
        if not piece.isascii() or _ESCAPED.search(piece)
    )
    winner = votes.most_common(1)[0][0] if votes else ()
    if not winner or winner[0] not in _LONG_ENCODINGS or 2 * votes[winner] <= votes.total():
        return likely
    text = decode_sample(sample, winner[0])
    return winner if text.count(_INVALID) * _WRONG_SHARE < _count_long(text) else likely


def _prefer_latin(likely: tuple[str, ...], sample: bytes) -> tuple[str, ...]:
    """Replace another script by Latin encodings if its characters are inside of Latin words."""
    if not likely or likely[0] in _LONG_ENCODINGS or likely[0] == "cp1252":
        return likely
    western = decode_sample(sample, "cp1252")
    if likely[0] in _LATIN_ENCODINGS:
        # So few letters tell nothing, and this encoding is used most.
        letters = western.decode(errors="replace").translate(_ASCII)
        is_western = letters.isalpha() and len(set(letters)) <= _MAX_TELLING
        return ("cp1252", likely[0]) if is_western else likely
    num_runs = len(_NOT_ASCII_RUN.findall(sample))
    if 2 * len(_IN_LATIN_WORD.findall(sample)) <= num_runs:
        return likely
    others = _ask_detector(sample, _LATIN_ENCODINGS)
    different = (name for name in others if decode_sample(sample, name) != western)
    return ("cp1252", *different)[:2]


def _is_plausible(sample: bytes, encoding: str) -> bool:
    """Tell whether a sample reads like text in an encoding, as anything decodes to something."""
    import unicodedata

    decoded = decode_sample(sample, encoding)
    text = decoded.decode(errors="replace")
    long = Counter(each for each in text if each > "\x7f")
    num_rare = sum(
        number
        for each, number in long.items()
        if unicodedata.category(each)[0] not in "LMNPZ" and not "\u2500" <= each <= "\u259f"
    )
    num_c1 = sum(number for each, number in long.items() if each < "\xa0")
    is_one = len(text) > _MIN_INVALID and max(long.values(), default=0) > _MAX_SAME * len(text)
    if num_rare > max(_MAX_RARE * long.total(), 1) or num_c1 > _MAX_CONTROLS * len(text) or is_one:
        return False
    if encoding in _LONG_ENCODINGS:
        num_usual = sum(
            number
            for each, number in long.items()
            if "\u2500" <= each <= "\ud7ff" or "\uff00" <= each <= "\uff60"
        )
        return num_usual >= _MIN_USUAL * long.total()
    if encoding == "cp874":
        return True
    if (sum(map(text.count, " \n\r\t")) + 1) * _MAX_WORD < long.total():
        return False
    pairs = [pair for pair in map("".join, pairwise(text)) if pair.isalpha() and not pair.isascii()]
    num_changes = sum(pair[0].islower() and pair[1].isupper() for pair in pairs)
    return num_changes <= max(_MAX_CASE_CHANGES * len(pairs), 1)


def _iter_pieces(sample: bytes) -> Iterator[bytes]:
    """Divide a sample between lines, which are no parts of characters in any of the encodings."""
    size, start = max(len(sample) // _NUM_PIECES, _MIN_PIECE_BYTES), 0
    while start < len(sample):
        end = (sample.find(b"\n", start + size, start + 4 * size) + 1) or start + size
        yield sample[start:end]
        start = end


def _ask_detector(sample: bytes, among: Sequence[str] = _DETECTED) -> tuple[str, ...]:
    """Return the detector's answer, and a second one if it is nearly as likely."""
    import chardet

    answers = chardet.detect_all(
        # The detector takes some first bytes for those of a binary file, such as `BM`.
        b"\n" + sample,
        prefer_superset=False,
        compat_names=False,
        include_encodings=(UTF_8, *among),
        no_match_encoding=UTF_8,
    )
    likely: list[tuple[str, bytes]] = []
    best = answers[0]["confidence"] if answers else 0
    for answer in answers:
        name = answer["encoding"]
        if name is None or name == UTF_8 or answer["confidence"] < _NEARLY_AS_LIKELY * best:
            break
        encoding = _find_superset(name, sample)
        text = decode_sample(sample, encoding)
        if all(text != other for _, other in likely):
            likely.append((encoding, text))
    return tuple(encoding for encoding, _ in likely[:2])


def _find_superset(encoding: str, sample: bytes) -> str:
    num_invalid = decode_sample(sample, encoding).count(_INVALID)
    for name in _SUPERSETS.get(encoding, ()):
        if decode_sample(sample, name).count(_INVALID) <= num_invalid:
            return name
    usual = _ALIKE.get(encoding, encoding)
    is_same = decode_sample(sample, usual) == decode_sample(sample, encoding)
    return usual if is_same else encoding


def _check_encoding(path: str, parts: Sequence[bytes], wanted: str, found: _Content) -> None:
    """Refuse an input that cannot have the encoding that the user named."""
    head, others = parts[0], tuple(name for name in found.encodings if name != wanted)
    if head.startswith(_UTF8_MARK):
        raise _not_utf8(path, wanted, (UTF_8,))
    if _is_wide(wanted):
        if wanted in ("utf-16", "utf-32"):
            is_other = not any(name.startswith(wanted) for name in found.encodings)
        else:
            is_other = _is_other_than_wide(head, wanted, found)
        if not head or not is_other:
            return
        if found.what not in ("", _BINARY_DATA):
            raise _not_text(path, found.what)
        raise _not_utf8(path, wanted, others)
    if found.what not in ("", _BINARY_DATA):
        raise _not_text(path, found.what)
    if found == _IS_UTF_8:
        num_valid, num_invalid = _count_sequences(parts, is_whole=False)
        if num_valid >= _SURELY_UTF8 and not num_invalid:
            raise _not_utf8(path, wanted, found.encodings)
        return
    text = decode_sample(head, wanted)
    num_invalid, num_valid = text.count(_INVALID), _count_long(text)
    num_controls = len(text) - len(text.translate(None, _CONTROLS))
    has_controls = num_controls > _MAX_CONTROLS * len(text)
    # Text in the encoding that the user named has few errors; others decode to something as well.
    is_wrong = _is_mostly_invalid(num_valid // _WRONG_SHARE, num_invalid, len(head))
    if found.encodings and (has_controls or is_wrong or _find_mark(head) in found.encodings):
        raise _not_utf8(path, wanted, others)
    if has_controls:
        raise _not_text(path, _BINARY_DATA)
    if is_wrong:
        raise _not_utf8(path, wanted, others)


def _is_wide(encoding: str) -> bool:
    return encoding.startswith(("utf-16", "utf-32"))


def _is_other_than_wide(head: bytes, wanted: str, found: _Content) -> bool:
    """Tell whether a sample is not the UTF-16 or UTF-32 of the byte order that the user named."""
    if wanted in found.encodings:
        return False
    is_utf8 = found == _IS_UTF_8 and _INVALID not in decode_sample(head, UTF_8)
    if is_utf8 or not _reads_well(head, wanted):
        return True
    # Both byte orders may read well in short text.
    return any(map(_is_wide, found.encodings)) and (
        _find_mark(head) in found.encodings
        or _rate_order(head, found.encodings[0]) + 1 < _rate_order(head, wanted)
    )


def _find_kind(head: bytes) -> str:
    """Return what the detector takes the first bytes for; empty if it does not know."""
    import chardet

    # It looks for UTF-16 before it looks for magic numbers, unless that is left out.
    kind = (
        chardet.detect(head[:4096], include_encodings=["ascii"], no_match_encoding="ascii").get(
            "mime_type"
        )
        or ""
    )
    if kind in _KINDS:
        return _KINDS[kind]
    family, _, name = kind.partition("/")
    if family not in _FAMILIES:
        return ""
    name = name.removeprefix("x-").removeprefix("vnd.").rpartition(".")[2].upper()
    return f"{'an' if name[0] in 'AEFHILMNORSX' else 'a'} {name} {_FAMILIES[family]}"


def _not_text(path: str, what: str) -> NotTextError:
    step = _REMEDIES.get(what, "pass text").format("FILE" if path == "-" else quoted(path))
    return NotTextError(
        f"this is {what}, not text",
        where=path,
        next_step=f"{step}, or leave such files out with `--on-error skip`",
    )


def _not_utf8(path: str, wanted: str, encodings: tuple[str, ...]) -> NotUtf8Error:
    named = wanted.upper() if wanted == UTF_8 else wanted
    if not encodings:
        what = f"this is not {named}, and its encoding could not be detected"
        step = "pass its encoding, as in `--encoding cp1252`"
    elif len(encodings) == 1:
        what = f"this is not {named}; it looks like {name_encoding(encodings[0])}"
        step = f"pass `--encoding {encodings[0]}`"
    else:
        what = f"this is not {named}; it may be {' or '.join(map(name_encoding, encodings))}"
        step = f"look at the text with `penstok plan {quoted(path)} --encoding {encodings[0]}`"
    error = NotUtf8Error(what, where=path, next_step=step)
    error.encodings = encodings
    return error
