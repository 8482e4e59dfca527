"""The texts of the benchmark: real corpora where they are present, made ready as files.

Nothing is written into the tree. Where no corpus is present, the Python standard library's own
sources are used instead; `long` texts are made from the others with changed letters, because an
engine that remembers words would find a repeated text too easy.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import random
import re
import sysconfig
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zstandard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

CORPORA = ("web", "multi", "code")
STAND_IN = "stdlib"
# Chinese, Japanese and Thai by the names of their documents in `multi`.
_SCRIPTS = {"Chinese": "zh/", "Japanese": "ja/", "Thai": "th/"}
UNSPACED = (*_SCRIPTS, "base64", "minified")
JSONL, PARQUET, JSONL_ZST, JSONL_GZ = "jsonl", "parquet", "jsonl.zst", "jsonl.gz"
FORMATS = (JSONL, PARQUET, JSONL_ZST, JSONL_GZ)
EOT = b"<|endoftext|>"

_ROOT = Path(__file__).resolve().parent.parent
_HARD_BYTES = 2 * 10**6
_UNSPACED_BYTES = 24 << 20
_READ_BYTES = 1 << 20
# What the files of FineWeb have.
_GROUP_ROWS = 1000
# What the commands `zstd` and `gzip` do without a flag.
_ZSTD_LEVEL, _GZIP_LEVEL = 3, 6
# After this many the changes of the letters begin again.
_NUM_COPIES = 1680
_VOWELS = b"aeiou"
_CONSONANTS = bytes(letter for letter in range(ord("a"), ord("z") + 1) if letter not in _VOWELS)


@dataclass(frozen=True, slots=True)
class Text:
    """A file of documents, each followed by `<|endoftext|>`."""

    name: str
    path: Path
    num_bytes: int
    num_documents: int


def find_corpora(names: Iterable[str]) -> list[str]:
    """Return those of the wanted corpora that are present."""
    return [name for name in names if corpus_path(name).exists()]


def write_corpus(name: str, folder: Path, limit_bytes: int | None) -> Text:
    """Write one corpus, or the head of it, as plain text."""
    is_real = name != STAND_IN
    documents = (text.encode() for _, text in _iter_records(name)) if is_real else _iter_stdlib()
    return _write_text(name, _iter_head(documents, limit_bytes), folder)


def write_head(text: Text, name: str, num_bytes: int, folder: Path) -> Text:
    """Write the first documents of a text, or the first characters if they are too long."""
    with text.path.open("rb") as file:
        head = file.read(num_bytes)
    documents = head.split(EOT)
    return _write_text(name, documents[:-1] or [head.decode(errors="ignore").encode()], folder)


def write_lines(text: Text, name: str, line_bytes: int, folder: Path) -> Text:
    """Write the words of a text as lines of about `line_bytes` each, every line a document."""
    path, num_lines, line = folder / f"{name}.txt", 0, b""
    with path.open("wb") as file:
        for word in text.path.read_bytes().replace(EOT, b" ").split():
            line += word + b" "
            if len(line) >= line_bytes:
                file.write(line[:-1] + b"\n")
                num_lines, line = num_lines + 1, b""
        _flush(file)
        return Text(name, path, file.tell(), num_lines)


def write_hard(folder: Path) -> list[Text]:
    """Write texts that no table of words helps with, and that the pattern hardly divides."""
    return [_write_text(name, documents, folder) for name, documents in _hard_texts().items()]


def write_unspaced(folder: Path) -> list[Text]:
    """Write texts without blanks, one document each."""
    return [_write_text(name, [_unspaced(name)], folder) for name in UNSPACED]


def write_long(name: str, texts: list[Text], num_bytes: int, folder: Path) -> Text:
    """Write `num_bytes` made of the texts, then of copies with other words."""
    path = folder / f"{name}.txt"
    num_documents, left = 0, num_bytes
    with path.open("wb") as file:
        for copy, text in product(range(_NUM_COPIES), texts):
            changed = _change(text.path.read_bytes(), copy)
            if len(changed) > left:
                changed = changed[: changed.rfind(EOT, 0, left) + len(EOT)]
                left = 0
            left -= file.write(changed)
            num_documents += changed.count(EOT)
            if left <= 0:
                break
        _flush(file)
        return Text(name, path, file.tell(), num_documents)


def write_format(text: Text, kind: str, folder: Path) -> Text:
    """Write the documents of a text in another format; sizes stay those of the plain text."""
    name = f"{text.name}.{kind}"
    path = folder / name
    documents = _iter_documents(text.path)
    with path.open("wb") as file:
        if kind == PARQUET:
            _write_parquet(documents, text.name, file)
        else:
            with _COMPRESSORS[kind](file) as compressed:
                for number, document in enumerate(documents):
                    record = _record(text.name, number, document)
                    line = json.dumps(record, ensure_ascii=False)
                    compressed.write(line.encode() + b"\n")
        _flush(file)
    return Text(name, path, text.num_bytes, text.num_documents)


def _hard_texts() -> dict[str, list[bytes]]:
    rng = random.Random(1)
    size = _HARD_BYTES

    def letters(alphabet: str, count: int) -> str:
        return "".join(rng.choices(alphabet, k=count))

    words = (letters("abcdefghijklmnopqrstuvwxyz", rng.randrange(4, 13)) for _ in range(size // 9))
    han = "".join(map(chr, range(0x4E00, 0x9FA6)))
    return {
        "one letter": [b"a" * size],
        "DNA": [letters("ACGT", size).encode()],
        "new words": [" ".join(words).encode()],
        "random Han": [letters(han, size // 3).encode()],
        "spaces": [b" " * size],
    }


def _change(text: bytes, copy: int) -> bytes:
    """Exchange letters, differently for each copy; copy 0 is the text itself.

    Vowels stay vowels, so that words stay pronounceable. Beyond ASCII the low four bits of every
    continuation byte are turned, which keeps UTF-8 valid: which of them may follow a lead byte
    is decided by the bits above. Short words may come again, other scripts do every 16 copies.
    """
    if copy == 0:
        return text
    table = bytearray(range(256))
    for letters in (_VOWELS, _CONSONANTS, _VOWELS.upper(), _CONSONANTS.upper()):
        for place, letter in enumerate(letters):
            table[letter] = letters[(place + copy) % len(letters)]
    for byte in range(0x80, 0xC0):
        table[byte] = byte ^ copy % 16
    return text.translate(table).replace(EOT.translate(table), EOT)


def _minify(code: str) -> str:
    """Drop indentation, newlines and blanks around signs; comments stay, as long words."""
    code = re.sub(r"\s+", " ", code)
    return re.sub(r" ?([^\w ]) ?", r"\1", code)


def _unspaced(name: str) -> bytes:
    """Return a text without blanks, at most as much of it as is wanted."""
    if name == "base64":
        return base64.b64encode(random.Random(1).randbytes(_UNSPACED_BYTES * 3 // 4))
    if name == "minified":
        text = "".join(_minify(document) for _, document in islice(_iter_records("code"), 5000))
    else:
        records = _iter_records("multi")
        chosen = (text for key, text in records if key.startswith(_SCRIPTS[name]))
        text = "".join("".join(each.split()) for each in chosen)
    return text.encode()[:_UNSPACED_BYTES].decode(errors="ignore").encode()


def corpus_path(name: str) -> Path:
    """Return where a corpus would be."""
    folder = os.environ.get("PENSTOK_CORPUS") or _ROOT.parent / "shared" / "corpus"
    return Path(folder) / f"bench-{name}.jsonl.zst"


def _iter_records(name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every document of a corpus."""
    with corpus_path(name).open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        for line in io.BufferedReader(stream):
            record = json.loads(line)
            yield record["id"], record["text"]


def _iter_stdlib() -> Iterator[bytes]:
    """Yield the sources of the standard library, leaving out installed packages."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        if "site-packages" not in path.parts and _is_utf8(content):
            yield content


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _iter_head(documents: Iterable[bytes], limit_bytes: int | None) -> Iterator[bytes]:
    left = limit_bytes
    for document in documents:
        if left is not None:
            if left <= 0:
                return
            left -= len(document)
        yield document


def _write_text(name: str, documents: Iterable[bytes], folder: Path) -> Text:
    """Write documents; empty ones and those that hold the separator would be counted unlike."""
    path = folder / f"{name}.txt"
    num_documents = 0
    with path.open("wb") as file:
        for document in documents:
            if document and EOT not in document:
                file.write(document)
                file.write(EOT)
                num_documents += 1
        _flush(file)
        return Text(name, path, file.tell(), num_documents)


def _flush(file: BinaryIO) -> None:
    """Have the text on disk before a clock starts, so that nobody pays for writing it."""
    file.flush()
    os.fsync(file.fileno())


def _write_parquet(documents: Iterator[str], name: str, file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema({"id": pa.string(), "text": pa.string()})
    first = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(documents, _GROUP_ROWS)):
            records = [_record(name, first + idx, text) for idx, text in enumerate(group)]
            writer.write_table(pa.Table.from_pylist(records, schema))
            first += len(group)


def _record(name: str, number: int, document: str) -> dict[str, str]:
    return {"id": f"{name}/{number}", "text": document}


def _iter_documents(path: Path) -> Iterator[str]:
    rest = b""
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            *documents, rest = (rest + data).split(EOT)
            for document in documents:
                yield document.decode()


@contextmanager
def _uncompressed(file: BinaryIO) -> Iterator[BinaryIO]:
    yield file


def _zstd(file: BinaryIO) -> Any:
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
    return compressor.stream_writer(file, closefd=False)


def _gzip(file: BinaryIO) -> Any:
    return gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0)


_COMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    JSONL: _uncompressed,
    JSONL_ZST: _zstd,
    JSONL_GZ: _gzip,
}
