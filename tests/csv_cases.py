"""CSV for tests: both extractors and both scanners, held against each other."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from random import Random

from penstok import _kernel
from penstok.readers.csv.records import CsvRecords
from penstok.readers.csv.scanner import CsvScanner
from penstok.readers.extraction import Extracted

SPICE = [
    b'"',
    b'""',
    b",",
    b"\t",
    b"\n",
    b"\r",
    b"\r\n",
    b"a",
    b"bc ",
    b"\x00",
    b"\xff",
    b"\xe4\xb8",
]


@dataclass(frozen=True)
class Result:
    """What both extractors must agree on."""

    texts: list[bytes]
    codes: list[int]
    records: list[int]
    positions: list[int]
    num_blank: int
    consumed: int


def result_of(found: Extracted) -> Result:
    spans = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    return Result(
        [bytes(found.text[start:end]) for start, end in spans],
        found.codes.tolist(),
        found.records.tolist(),
        found.faults.tolist(),
        found.num_blank,
        found.consumed,
    )


def extract(
    data: bytes, column: int = 1, num_columns: int = 2, delimiter: bytes = b",", **options: int
) -> Result:
    """Extract with the kernel and in Python, and check that they agree."""
    buffer = memoryview(data)
    kernel = CsvRecords(delimiter, column, num_columns, _kernel.extract_csv_records)
    native = result_of(kernel.extract(buffer, bytearray(len(data)), **options))
    plain = CsvRecords(delimiter, column, num_columns)
    assert result_of(plain.extract(buffer, bytearray(len(data)), **options)) == native
    return native


def find_records(data: bytes, wanted: list[int], sizes: list[int], delimiter: bytes) -> list[int]:
    """Find the first record at or after each position, with the content in pieces; both ways."""
    kernel, plain = (
        _find_records(data, wanted, sizes, CsvScanner(delimiter, b"", scan))
        for scan in (_kernel.scan_csv, None)
    )
    assert plain == kernel
    return kernel


def _find_records(
    data: bytes, wanted: list[int], sizes: list[int], scanner: CsvScanner
) -> list[int]:
    found: list[int] = []
    turn = 0
    for position in sorted(wanted):
        while True:
            size = sizes[turn % len(sizes)]
            turn += 1
            piece = data[scanner.position : scanner.position + size]
            record = scanner.find_record(position, memoryview(piece))
            if record is not None or scanner.position == len(data):
                found.append(len(data) if record is None else record)
                break
    return found


def random_csv(random: Random, num_pieces: int) -> bytes:
    """Anything, of which much looks like CSV."""
    return b"".join(random.choice(SPICE) for _ in range(random.randrange(num_pieces)))


def write_csv(rows: list[list[str]], *, end: str = "\n", delimiter: str = ",") -> bytes:
    """Write as Python does."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=end, delimiter=delimiter).writerows(rows)
    return out.getvalue().encode()
