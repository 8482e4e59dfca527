"""Which of the older encodings text has that is not UTF-8, as the detector `chardet` says.

Its answers are checked: they must read like text, and of encodings that differ little, the usual
one is taken. `inspection` asks it about text that is neither UTF-8 nor UTF-16.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from penstok.inputs.encodings import INVALID, count_multibyte, decode_sample, has_escapes
from penstok.types import UTF_8

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "ISO2022_KR",
    "detect_legacy",
    "is_escaped",
    "is_iso2022_kr",
    "name_encoding",
]

ISO2022_KR = "iso2022_kr"

# What the detector may answer. Others are so rare that they are more often a mistake.
_DETECTED = (
    *("gb18030", "big5hkscs", "cp932", "shift_jis_2004", "euc_jis_2004", "euc_kr", "cp949"),
    *("iso2022_jp_2", "iso2022_jp_2004", "iso2022_jp_ext", "iso2022_kr", "hz", "koi8-r", "koi8-u"),
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
    *("cp874", "tis-620", "iso8859-1", "iso8859-2", "iso8859-5", "iso8859-6", "iso8859-7"),
    *("iso8859-8", "iso8859-9", "iso8859-13", "iso8859-15", "cp437", "cp850", "cp852", "cp866"),
)
# What text in ISO-2022-KR begins with, before any Korean; and what goes before Korean in it.
_KOREAN_HEADER, _KOREAN_SHIFT = b"\x1b$)C", b"\x0e"
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
_MULTIBYTE = {
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
# One character may be this share of a text, unless that is very short.
_MAX_SAME, _MIN_SAME = 0.6, 4
# Text has white space once in so many characters outside ASCII.
_MAX_WORD = 100
_MAX_C1 = 0.02
# Text in a multibyte encoding has at least so many characters for one error.
_MIN_PER_ERROR = 10
# An answer of the detector with this share of the best one's confidence is worth a mention.
_NEARLY_AS_LIKELY = 0.95
_NUM_PIECES, _MIN_PIECE_BYTES = 8, 256
# Encodings that differ in few characters: the more usual one, if the sample has none of them.
_ALIKE = {"iso8859-15": "cp1252", "iso8859-7": "cp1253", "iso8859-13": "cp1257"}
# These consist of ASCII, with escape sequences around everything else.
_ESCAPED = ("iso2022_jp", ISO2022_KR, "hz")
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


def name_encoding(encoding: str) -> str:
    """Return an encoding with the language that it is used for."""
    language = _LANGUAGES.get(encoding)
    return f"{encoding} ({language})" if language else encoding


def is_escaped(encoding: str) -> bool:
    """Tell whether text in an encoding consists of ASCII, so that it is also valid UTF-8."""
    return encoding in _ESCAPED


def is_iso2022_kr(sample: bytes) -> bool:
    """Tell whether text is ISO-2022-KR, whose control characters no other text has."""
    is_likely = _KOREAN_HEADER in sample and _KOREAN_SHIFT in sample
    return is_likely and _has_few_errors(sample, ISO2022_KR)


def detect_legacy(sample: bytes) -> tuple[str, ...]:
    """Return the likely encodings of a sample, the best first; none if it reads like no text."""
    likely = _prefer_latin(_detect(sample), sample)
    return tuple(name for name in likely if _is_plausible(sample, name))


def _detect(sample: bytes) -> tuple[str, ...]:
    """Return the detector's answers; those about pieces if most agree on a multibyte one."""
    likely = _ask_detector(sample)
    if likely[:1] and likely[0] in _MULTIBYTE:
        return likely
    # The detector rules out an encoding of several bytes at the first malformed sequence.
    votes = Counter(
        _ask_detector(piece)[:1]
        for piece in _iter_pieces(sample)
        if not piece.isascii() or has_escapes(piece)
    )
    winner = votes.most_common(1)[0][0] if votes else ()
    if not winner or winner[0] not in _MULTIBYTE or 2 * votes[winner] <= votes.total():
        return likely
    return winner if _has_few_errors(sample, winner[0]) else likely


def _has_few_errors(sample: bytes, encoding: str) -> bool:
    text = decode_sample(sample, encoding)
    return text.count(INVALID) * _MIN_PER_ERROR < count_multibyte(text)


def _prefer_latin(likely: tuple[str, ...], sample: bytes) -> tuple[str, ...]:
    """Replace another script by Latin encodings if its characters are inside of Latin words."""
    if not likely or likely[0] in _MULTIBYTE or likely[0] == "cp1252":
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
    is_one = len(text) > _MIN_SAME and max(long.values(), default=0) > _MAX_SAME * len(text)
    if num_rare > max(_MAX_RARE * long.total(), 1) or num_c1 > _MAX_C1 * len(text) or is_one:
        return False
    if encoding in _MULTIBYTE:
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
    num_invalid = decode_sample(sample, encoding).count(INVALID)
    for name in _SUPERSETS.get(encoding, ()):
        if decode_sample(sample, name).count(INVALID) <= num_invalid:
            return name
    usual = _ALIKE.get(encoding, encoding)
    is_same = decode_sample(sample, usual) == decode_sample(sample, encoding)
    return usual if is_same else encoding
