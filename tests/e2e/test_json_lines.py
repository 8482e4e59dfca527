"""JSON Lines: the same documents give the same bytes as plain text; bad records are told."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import RunPenstok
from processes import contents, run
from support import EXAMPLES

pytestmark = pytest.mark.e2e
VAL = ("--val-fraction", "0.2")


@pytest.fixture
def documents() -> list[str]:
    """Real text in six languages, escapes, characters beyond the BMP, and a long document."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.txt"))]
    texts = [text for joined in texts for text in joined.split("<|endoftext|>")]
    long = 'many words make one long line\u3000\U0001f600 \t"quoted" \\ back\n' * 60_000
    return [*texts, 'a "quote"', "tab\tnewline\n\u2028", "\U0001f468\u200d\U0001f469", long, " x "]


def write_text(path: Path, documents: list[str]) -> Path:
    path.write_text("<|endoftext|>".join(documents), encoding="utf-8")
    return path


def write_lines(path: Path, documents: list[str], *, ascii_only: bool, end: str = "\n") -> Path:
    lines = (
        json.dumps({"id": idx, "text": text, "meta": {"a": [1, None]}}, ensure_ascii=ascii_only)
        for idx, text in enumerate(documents)
    )
    path.write_text("".join(line + end for line in lines), encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("flags", [(), ("--strip",), ("--eot", "prepend"), ("-j", "1")])
def test_the_same_documents_give_the_same_bytes(
    tmp_path: Path, penstok: RunPenstok, documents: list[str], flags: tuple[str, ...]
) -> None:
    text = write_text(tmp_path / "a.txt", documents)
    flags = (*VAL, *flags)
    penstok("tokenize", text, "-o", "text", *flags)
    plain = contents(tmp_path / "text")
    for idx, (name, ascii_only, end) in enumerate(
        [("a.jsonl", True, "\n"), ("b.ndjson", False, "\r\n"), ("c.json", False, "\n\n")]
    ):
        lines = write_lines(tmp_path / name, documents, ascii_only=ascii_only, end=end)
        penstok("tokenize", lines, "-o", str(idx), *flags)
        assert contents(tmp_path / str(idx)) == plain


@pytest.mark.thorough
def test_units_of_any_size_give_the_same_bytes(tmp_path: Path, documents: list[str]) -> None:
    import penstok as library

    lines = write_lines(tmp_path / "a.jsonl", documents * 2, ascii_only=False)
    outputs = []
    for unit_bytes, block_bytes in [(16 << 20, 2 << 20), (70_001, 5_000), (1_000_003, 100)]:
        output = tmp_path / str(unit_bytes)
        library.tokenize(
            lines,
            output,
            val_fraction=0.3,
            engine="tiktoken",
            unit_bytes=unit_bytes,
            block_bytes=block_bytes,
        )
        outputs.append(contents(output))
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 5])
def test_blocks_shorter_than_a_character_give_the_same_bytes(
    tmp_path: Path, block_bytes: int
) -> None:
    """The first cut is looked for near the buffer's first byte, where the record begins."""
    import penstok as library

    (tmp_path / "in.jsonl").write_text(json.dumps({"text": "ä few words " * 500}))
    for output, size in (("usual", 1 << 20), ("tiny", block_bytes)):
        library.tokenize(tmp_path / "in.jsonl", tmp_path / output, block_bytes=size)
    written = [(tmp_path / output / "train.bin").read_bytes() for output in ("usual", "tiny")]
    assert written[0] == written[1]


def test_a_nested_field_and_another_name(tmp_path: Path, penstok: RunPenstok) -> None:
    (tmp_path / "a.log").write_text('{"doc": {"body": "some words"}}\n')
    penstok(
        *("tokenize", "a.log", "--input-format", "jsonl", "--text-key", "doc.body"),
        *("-o", "out", "--val-fraction", "0"),
    )
    assert "some words" in penstok("show", "out").stdout


BAD_LINES = {
    '{"text": "cut': "broken JSON",
    '{"text": "a" "b"}': "broken JSON",
    "[1, 2]": "not an object",
    '"text"': "not an object",
    '{"content": "a"}': "missing",
    '{"text": null}': "null",
    '{"text": 7}': "not a string",
    '{"text": ["a"]}': "not a string",
    '{"text": "a\u0001b"}': "broken JSON",
    "not json": "broken JSON",
}


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.items())
def test_a_bad_record_stops_with_its_place(
    tmp_path: Path, penstok: RunPenstok, line: str, reason: str
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good one"}\n\n' + line + "\n")
    said = penstok("tokenize", "a.jsonl", "-o", "out", exit_code=4).stderr
    assert "a.jsonl, line 3, byte 22" in said
    assert reason in said
    assert not (tmp_path / "out").exists()


def test_a_missing_field_names_those_that_exist(tmp_path: Path, penstok: RunPenstok) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "content": "words", "meta": {"body": "x"}}\n')
    said = penstok("tokenize", "a.jsonl", exit_code=4).stderr
    assert "text key `text` is missing; this line has `content`, `meta.body`" in said
    assert "pass another `--text-key`" in said


def test_bad_records_are_skipped_and_listed(tmp_path: Path, penstok: RunPenstok) -> None:
    good = [json.dumps({"text": f"document {idx} with some words"}) for idx in range(300)]
    lines = list(good)
    for idx, line in enumerate(BAD_LINES):
        lines.insert(idx * 20, line)
    (tmp_path / "bad.jsonl").write_text("\n".join(lines))
    (tmp_path / "good.jsonl").write_text("\n".join(good))
    penstok("tokenize", "good.jsonl", "-o", "good", *VAL)
    said = penstok("tokenize", "bad.jsonl", "-o", "bad", "--on-error", "skip", *VAL, exit_code=3)
    assert contents(tmp_path / "bad") == contents(tmp_path / "good")
    assert f"{len(BAD_LINES)} records skipped" in said.stderr
    listed = (tmp_path / "bad" / "skipped.jsonl").read_text()
    skipped = [json.loads(line) for line in listed.splitlines()]
    assert len(skipped) == len(BAD_LINES)
    text = (tmp_path / "bad.jsonl").read_bytes()
    for entry, (line, reason) in zip(skipped, BAD_LINES.items(), strict=True):
        assert entry["path"] == "bad.jsonl"
        assert text[entry["position"] :].decode().startswith(line)
        assert reason in entry["reason"]
    manifest = json.loads((tmp_path / "bad" / "manifest.json").read_text())
    assert manifest["counts"]["skipped_records"] == len(BAD_LINES)
    assert manifest["inputs"][0]["skipped"] == len(BAD_LINES)


def test_lone_surrogates_are_replaced_and_counted(tmp_path: Path, penstok: RunPenstok) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a \\ud800 b"}\n{"text": "\\ud83d\\ude00"}\n')
    penstok("tokenize", "a.jsonl", "-o", "out", "--val-fraction", "0")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["counts"]["invalid_utf8"] == 1
    shown = penstok("show", "out").stdout
    assert "a \ufffd b" in shown
    assert "\U0001f600" in shown


def test_lone_surrogates_stop_if_invalid_text_must(tmp_path: Path, penstok: RunPenstok) -> None:
    lines = '{"text": "\\ud83d\\ude00", "id": "\\udc00"}\n\n{"text": "a \\ud800 b"}\n'
    (tmp_path / "a.jsonl").write_text(lines)
    flags = ("-o", "out", "--invalid-utf8", "stop", "--on-error", "skip")
    said = penstok("tokenize", "a.jsonl", *flags, exit_code=4).stderr
    assert "half a surrogate pair" in said
    assert f"a.jsonl, line 3, byte {lines.index('{', 1)}" in said
    assert "`--invalid-utf8 replace`" in said
    assert not (tmp_path / "out").exists()


def test_lone_surrogates_are_left_out_and_counted(tmp_path: Path, penstok: RunPenstok) -> None:
    lines = [
        '{"text": "a \\ud800b\\u0000 \\uDFFF<|endoftext|>"}',
        '{"text": "\\ud83d\\ude00 and \ufffd"}',
        '{"text": "\\udc00\\ud800"}',
        '{"text": "\\ud800x", "text": "last \\udbff one"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(
        '{"text": "a b\\u0000 <|endoftext|>"}\n{"text": "\U0001f600 and \ufffd"}\n'
        '{"text": ""}\n{"text": "last  one"}',
        encoding="utf-8",
    )
    counts = []
    for name in ("a", "b"):
        penstok("tokenize", f"{name}.jsonl", "-o", name, "--invalid-utf8", "ignore", *VAL)
        counts.append(json.loads((tmp_path / name / "manifest.json").read_text())["counts"])
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert counts[0]["invalid_utf8"] == 5
    for key in ("documents", "empty_documents", "nul_bytes", "special_text_documents"):
        assert counts[0][key] == counts[1][key] > 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[{}]", "jq -c"),
        (b"text", "this is not JSON Lines"),
        (b"\x1f\x8b\x08", "gzip"),
    ],
)
def test_what_is_no_json_lines_is_said(
    tmp_path: Path, penstok: RunPenstok, content: bytes, words: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    assert words in penstok("tokenize", "a.jsonl", exit_code=4).stderr


def test_flags_for_text_are_refused_for_records(tmp_path: Path, penstok: RunPenstok) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    said = penstok("tokenize", "a.jsonl", "--docs-by", "line", exit_code=2).stderr
    assert "`--input-format text`" in said


def test_text_and_records_in_one_job(tmp_path: Path, penstok: RunPenstok) -> None:
    (tmp_path / "a.txt").write_text("one<|endoftext|>two")
    (tmp_path / "b.jsonl").write_text('{"text": "three"}\n')
    penstok("tokenize", "a.txt", "b.jsonl", "-o", "out", "--val-fraction", "0")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [record["documents"] for record in manifest["inputs"]] == [2, 1]


def test_a_kill_in_the_middle_is_resumed(tmp_path: Path, documents: list[str]) -> None:
    lines = write_lines(tmp_path / "a.jsonl", documents[:-2] * 300, ascii_only=True)
    with lines.open("a") as file:
        file.write("broken\n")
    job: Callable[[str], tuple[str | Path, ...]] = lambda output: (  # noqa: E731
        *("tokenize", lines, "-o", tmp_path / output, *VAL, "--on-error", "skip"),
    )
    assert run(*job("unbroken"))[0] == 3
    assert run(*job("out"), fault="journal on disk:2")[0] == -signal.SIGKILL
    assert run(*job("out"))[0] == 3
    assert contents(tmp_path / "out") == contents(tmp_path / "unbroken")
    skipped = [(tmp_path / name / "skipped.jsonl").read_text() for name in ("out", "unbroken")]
    assert skipped[0] == skipped[1]


def test_a_file_of_bad_records_does_not_fill_the_memory(
    tmp_path: Path, penstok: RunPenstok
) -> None:
    (tmp_path / "bad.jsonl").write_text('{"text": "good"}\n' + "{}\n" * 400_000)
    penstok("tokenize", "bad.jsonl", "--on-error", "skip", exit_code=3)
    manifest = json.loads((tmp_path / "tokens" / "manifest.json").read_text())
    assert manifest["counts"]["skipped_records"] == 400_000
    listed = (tmp_path / "tokens" / "skipped.jsonl").read_text().splitlines()
    assert len(listed) == 1001
    assert "399,000 more records" in listed[-1]
    assert (tmp_path / "tokens" / "segments.jsonl").stat().st_size < 200_000
    penstok("verify", "tokens", "--full", "--source")
