"""CSV: what a field is, what is refused and where, where records begin, and what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from csv_cases import extract, find_records
from support import run_units

from penstok import _kernel
from penstok.errors import InputError, UsageError
from penstok.inputs import buffered_stream
from penstok.jobs.plan import make_plan
from penstok.jobs.settings import JobSettings
from penstok.readers.csv import CSV, TSV, CsvDialect
from penstok.readers.csv.header import find_column, parse_header, read_header
from penstok.readers.csv.records import CsvCode, CsvRecords
from penstok.readers.csv.scanner import CsvScanner
from penstok.readers.formats import check_start, find_format
from penstok.types import Source

GOOD = {  # records of two fields, and the text of the second
    b"1,a": [b"a"],
    b"1,a\n": [b"a"],
    b"1,a\r\n": [b"a"],
    b"1,a\r\n2,b\r\n": [b"a", b"b"],
    b"1,\n": [b""],
    b"1,": [b""],
    b"1,\r\n": [b""],
    b",\n": [b""],
    b'"",""\n': [b""],
    b'1,"a"\n': [b"a"],
    b'1,"a"': [b"a"],
    b'1,"a"\r\n2,"b"\r\n': [b"a", b"b"],
    b'1,"a, b"\n': [b"a, b"],
    b'1,"a\nb"\n2,c\n': [b"a\nb", b"c"],
    b'1,"a\r\n\r\nb\r"\r\n': [b"a\r\n\r\nb\r"],
    b'1,"say ""hi"""\n': [b'say "hi"'],
    b'1,""""\n': [b'"'],
    b'1,""""""\n': [b'""'],
    b'1,""\n,""\n': [b"", b""],
    b'"1\n,""",a\n': [b"a"],
    b'1,a "quoted" word\n': [b'a "quoted" word'],
    b'1,a"\n': [b'a"'],
    b'1, "a"\n': [b' "a"'],
    b'a"b,"c"\n': [b"c"],
    b"1,a\rb\n": [b"a\rb"],
    b"1,a\r": [b"a\r"],
    b"1,a\r\r\n": [b"a\r"],
    b"\r1,a\n": [b"a"],
    b"1,\x00\xff\n": [b"\x00\xff"],
    b"\n\r\n1,a\n\n\r\n2,b\n\n": [b"a", b"b"],
    b"1,a\tb\n": [b"a\tb"],
    b'1,"' + b'""' * 50 + b'"\n': [b'"' * 50],
    b'1,"' + b"long words, " * 50 + b'"\n2,' + b"x" * 99: [b"long words, " * 50, b"x" * 99],
}

BAD = {  # a record of two fields, what is wrong, the byte, and what is said
    b"1": (CsvCode.WRONG_NUMBER, 0, "the record has 1 field, the header 2"),
    b"1,2,3": (CsvCode.WRONG_NUMBER, 0, "the record has 3 fields, the header 2"),
    b'"1",2,': (CsvCode.WRONG_NUMBER, 0, "the record has 3 fields, the header 2"),
    b'""': (CsvCode.WRONG_NUMBER, 0, "the record has 1 field, the header 2"),
    b" ": (CsvCode.WRONG_NUMBER, 0, "the record has 1 field, the header 2"),
    b"\r \r": (CsvCode.WRONG_NUMBER, 0, "the record has 1 field, the header 2"),
    b'"ab"c,d': (
        CsvCode.AFTER_QUOTE,
        4,
        "broken CSV: unexpected `c` after a closing quote (byte 5 of the record)",
    ),
    b'1,"ab" ': (
        CsvCode.AFTER_QUOTE,
        6,
        "broken CSV: unexpected ` ` after a closing quote (byte 7 of the record)",
    ),
    b'1,"ab"\r\r': (
        CsvCode.AFTER_QUOTE,
        6,
        "broken CSV: unexpected `\\r` after a closing quote (byte 7 of the record)",
    ),
    b'1,"a"b"c,"d"e': (
        CsvCode.AFTER_QUOTE,
        5,
        "broken CSV: unexpected `b` after a closing quote (byte 6 of the record)",
    ),
}


@pytest.mark.parametrize("csv", GOOD)
def test_the_text_comes_out(csv: bytes) -> None:
    found = extract(csv)
    assert found.texts == GOOD[csv]
    assert found.codes == [CsvCode.OK] * len(GOOD[csv])
    assert found.consumed == len(csv)


@pytest.mark.parametrize("csv", BAD)
def test_a_bad_record_is_refused_and_those_around_it_are_read(csv: bytes) -> None:
    code, position, said = BAD[csv]
    assert (extract(csv).codes, extract(csv).positions) == ([code], [position])
    data = memoryview(b'0,"x\ny"\r\n' + csv + b"\r\n2,z\n")
    around = extract(bytes(data))
    assert around.codes == [CsvCode.OK, code, CsvCode.OK]
    assert around.texts == [b"x\ny", b"", b"z"]
    assert (around.records[1], around.positions[1]) == (9, 9 + position)
    records = CsvRecords(b",", 1, 2, _kernel.extract_csv_records)
    found = records.extract(data, bytearray(len(data)))
    assert records.explain(data, found, 1) == said


@pytest.mark.parametrize(
    ("csv", "position"),
    [(b'1,"a', 2), (b'1,"', 2), (b'"1,a\n2,b\n', 0), (b'1,"a""', 2), (b'1,"a"",b\n', 2)],
)
def test_an_end_inside_quotes_is_refused(csv: bytes, position: int) -> None:
    data = b"0,x\n" + csv
    found = extract(data)
    assert found.codes == [CsvCode.OK, CsvCode.NOT_CLOSED]
    assert (found.texts, found.positions) == ([b"x", b""], [0, 4 + position])
    assert found.consumed == len(data)
    records = CsvRecords(b",", 1, 2)
    said = records.explain(memoryview(data), records.extract(memoryview(data), bytearray(99)), 1)
    assert said == (
        f"broken CSV: the input ends inside quotes, opened at byte {position + 1} of the record"
    )


def test_the_first_fault_is_the_one_that_counts() -> None:
    found = extract(b'"a"b,"c')
    assert (found.codes, found.positions) == ([CsvCode.AFTER_QUOTE], [3])


def test_other_columns_and_tabs() -> None:
    assert extract(b"a,b,c\n", column=0, num_columns=3).texts == [b"a"]
    assert extract(b"a,b,c\n", column=2, num_columns=3).texts == [b"c"]
    assert extract(b'"a\nb"\n\n"c"\n', column=0, num_columns=1).texts == [b"a\nb", b"c"]
    assert extract(b'a,b\t"c\td"\r\n', delimiter=b"\t").texts == [b"c\td"]


def test_records_that_begin_before_the_stop_are_read() -> None:
    csv = b'1,"a\nb"\n2,c\n\n3,d\n'
    assert extract(csv, stop=0).consumed == 0
    assert extract(csv, stop=1).texts == [b"a\nb"]
    assert extract(csv, stop=8).consumed == 8
    assert extract(csv, stop=9).texts == [b"a\nb", b"c"]


def test_room_that_is_too_small_or_the_buffer_itself_is_refused() -> None:
    data = bytearray(b"1,a\n")
    for records in (CsvRecords(b",", 1, 2), CsvRecords(b",", 1, 2, _kernel.extract_csv_records)):
        with pytest.raises(ValueError, match="4 are needed"):
            records.extract(memoryview(data), bytearray(3))
        with pytest.raises(ValueError, match="overlap"):
            records.extract(memoryview(data), data)
    with pytest.raises(ValueError, match="no column 2"):
        CsvRecords(b",", 2, 2)


def test_records_are_found_at_every_position() -> None:
    csv = b'1,"a\nb ""\n"" c"\r\n\n2,x"y\n",z"\n3,"\n'
    starts = [0, 17, 18, 24, 29]
    expected = [min([at for at in starts if at >= p] or [len(csv)]) for p in range(len(csv) + 1)]
    for sizes in ([1], [2, 3], [len(csv)]):
        assert find_records(csv, list(range(len(csv) + 1)), sizes, b",") == expected


def test_a_scanner_goes_on_from_content_it_passed_over() -> None:
    csv = b'0,"' + b"a\n" * 50 + b'"\n1,b\n'
    for scan in (_kernel.scan_csv, None):
        scanner = CsvScanner(b",", b"", scan)
        scanner.skip(memoryview(csv[:40]))
        assert scanner.position == 40
        assert "never closed" in scanner.explain_long_record()[0]
        assert scanner.find_record(41, memoryview(csv[40:])) == 105
        assert scanner.find_record(105, memoryview(b"")) == 105


def source(path: str) -> Source:
    return Source(path, 1, 0, "", "csv", is_stream=True)


@pytest.mark.parametrize(
    ("head", "columns", "size"),
    [
        (b"id,text\n1,a\n", ("id", "text"), 8),
        (b"id,text\r\n1,a", ("id", "text"), 9),
        (b"\xef\xbb\xbfid,text\n", ("id", "text"), 11),
        (b'\xef\xbb\xbf"id","the\n""text"""\n', ("id", 'the\n"text"'), 23),
        (b"\n\r\nid\n1", ("id",), 6),
        (b"id,text", ("id", "text"), 7),
        (b"\n\n", (), 2),
    ],
)
def test_the_header_is_the_first_record(head: bytes, columns: tuple[str, ...], size: int) -> None:
    header = parse_header(head, "a.csv", CSV, is_all=True)
    assert header is not None
    assert (header.columns, header.raw) == (columns, head[:size])


def test_a_header_may_be_long_but_not_endless(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    names = ",".join(f"column_{idx}" for idx in range(20_000))
    path.write_text(names + "\n" + "1," * 19_999 + "\n")
    assert len(read_header(source(str(path)), CSV).columns) == 20_000
    path.write_bytes(b'id,"text\n' + b"1,words\n" * 200_000)
    with pytest.raises(InputError, match=r"within 1 MiB \(a quote that is never closed\?\)"):
        read_header(source(str(path)), CSV)


@pytest.mark.parametrize(
    ("head", "dialect", "said", "step"),
    [
        (b"id,body,url\n", CSV, "is missing; the header has `id`, `body`, `url`", "key url"),
        (b"text,id,text\n", CSV, "2 columns are called `text`; the header has", "occurs once"),
        (b"id\ttext\n", CSV, "is missing; the header has `id\ttext`", "`--input-format tsv`"),
        (b"id,text\n", TSV, "is missing; the header has `id,text`", "`--input-format csv`"),
        (b"id;text\n", CSV, "is missing; the header has `id;text`", "--csv-delimiter ';'"),
        (b"\n\n", CSV, "no header", "correct it"),
    ],
)
def test_a_missing_column_names_those_that_exist(
    head: bytes, dialect: CsvDialect, said: str, step: str
) -> None:
    header = parse_header(head, "a", dialect, is_all=True)
    assert header is not None
    with pytest.raises(InputError) as caught:
        find_column(header, "text", "a", dialect)
    assert said in caught.value.what
    assert step in caught.value.next_step


@pytest.mark.parametrize(
    ("head", "said"), [(b'id,"text"x\n', "after a closing"), (b'id,"text\n1', "never closed")]
)
def test_a_broken_header_is_refused(head: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_header(head, "a.csv", CSV, is_all=True)


@pytest.mark.parametrize(
    ("head", "step"),
    [
        (b'{"text": "a"}\n', "`--input-format jsonl`"),
        (b'[{"text": "a"}]', "`--input-format jsonl`"),
        (b"<!DOCTYPE html><html>", "again"),
        (b"i\0d\0,\0", "again"),
    ],
)
def test_what_is_no_table_is_refused_by_its_first_bytes(head: bytes, step: str) -> None:
    with pytest.raises(InputError, match="not CSV") as caught:
        check_start(find_format("a.csv", head, None), "a.csv", head, None)
    assert step in caught.value.next_step


def test_names_say_which_delimiter() -> None:
    assert find_format("a.csv", b"id,text\n", None).name == "csv"
    assert find_format("a.CSV.gz", b"id,text\n", None).name == "csv"
    assert find_format("a.tsv.zst", b"id\ttext\n", None).name == "tsv"


def test_a_quote_that_is_never_closed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffered_stream, "MAX_LINE_BYTES", 3000)
    monkeypatch.setattr(buffered_stream, "_PIECE_BYTES", 100)
    (tmp_path / "a.csv").write_bytes(b'text\ngood\n"bad\n' + b"more words\n" * 2000)
    with pytest.raises(InputError, match="a quote that is never closed"):
        run_units([tmp_path / "a.csv"], tmp_path / "out", unit_bytes=1000)
    (tmp_path / "a.csv").write_bytes(b"text\ngood\n" + b"x" * 9999)
    with pytest.raises(InputError, match="a record of more than"):
        run_units([tmp_path / "a.csv"], tmp_path / "out2", unit_bytes=1000)


@pytest.mark.parametrize(
    ("content", "flags", "what", "next_step"),
    [
        (b"id;text\n1;a\n", {}, "column `text` is missing", "pass `--csv-delimiter ';'`"),
        (b"id|text\n1|a\n", {}, "column `text` is missing", "pass `--csv-delimiter '|'`"),
        (
            b"1,a\n",
            {"no_header": True, "text_key": "3"},
            "there is no column 3; the first record has 2",
            "pass `--text-key` from 1 to 2",
        ),
    ],
)
def test_a_missing_column_says_which_flag_helps(
    tmp_path: Path, content: bytes, flags: dict[str, Any], what: str, next_step: str
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError) as caught:
        make_plan(JobSettings(inputs=(str(tmp_path / "a.csv"),), **flags))
    assert caught.value.what.startswith(what)
    assert caught.value.next_step.startswith(next_step)


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        ({"csv_delimiter": "ab"}, "`ab` is not one ASCII character"),
        ({"csv_delimiter": ""}, "`` is not one ASCII character"),
        ({"csv_delimiter": '"'}, '`"` is not one ASCII character'),
        ({"csv_delimiter": "\n"}, "`\\n` is not one ASCII character"),
        ({"csv_delimiter": "é"}, "`é` is not one ASCII character"),
        ({"no_header": True}, "without a header, columns have numbers, and `text` is not one"),
        ({"no_header": True, "text_key": "0"}, "without a header, columns have numbers"),
    ],
)
def test_csv_flags_that_cannot_work_are_refused(flags: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError) as caught:
        JobSettings(inputs=("a.csv",), **flags)
    assert caught.value.what.startswith(what)


def test_csv_flags_without_csv_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(UsageError, match="no input is CSV") as caught:
        make_plan(JobSettings(inputs=(str(tmp_path / "a.txt"),), csv_delimiter=";"))
    assert caught.value.where == "--csv-delimiter"
