"""Kinds of binary files, known by their first bytes.

It never says that something is text. `inspection` asks it about what is not plain UTF-8; `archives`
and the columnar readers ask what a file is that is not theirs.
"""

from __future__ import annotations

import re

__all__ = ["find_kind", "name_binary"]

# Formats of this field, which the detector does not know, and those that may look like text.
_MAGIC = (
    (rb"PK(\x05\x06|\x07\x08)", "an empty or divided zip archive"),
    (rb".{257}ustar[\0 ]", "a tar archive"),
    (rb"%PDF-\d\.\d ?[\r\n]", "a PDF"),
    (rb"P[56]\s+(#[^\n]*\n)*\d+\s+\d+\s+\d+\s", "a PPM picture"),
    (rb"P4\s+(#[^\n]*\n)*\d+ \d+\n", "a PBM picture"),
    (rb".{128}DICM", "a DICOM picture"),
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
    # Protocols 1 and 0, which have no header: what a dict, a list or an object begins with.
    (rb"([\]}]|ccopy_reg\n_reconstructor\n)q\0", "a Python pickle"),
    (rb"(\([dl]|ccopy_reg\n_reconstructor\n)p\d+\n", "a Python pickle"),
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


def name_binary(head: bytes) -> str:
    """Return which kind of file begins with these bytes; empty if that is not certain."""
    # Compiled only here: nearly no job gets here, and compiling would slow down every start.
    return next((what for magic, what in _MAGIC if re.match(magic, head, re.DOTALL)), "")


def find_kind(head: bytes) -> str:
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
