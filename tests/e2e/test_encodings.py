"""Inputs that are not UTF-8, and inputs that are not text, from the command line to the output."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from remote_servers import web_server

import penstok as api
from penstok.errors import ConflictError, InputError, UsageError
from penstok.inputs.content import NotUtf8Error
from penstok.output.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import RunPenstok

CHINESE = "今天的天气非常好，我们决定去公园散步。孩子们在草地上玩耍，老人们坐在长椅上聊天。\n" * 40
GERMAN = "Schöne Grüße aus München, für alle größeren Städte und ältere Bücher.\n" * 40
JAPANESE = "今日はとても天気が良いので、公園へ散歩に行くことにしました。"


def tokenize(inputs: Sequence[Path] | Path, output: Path, **settings: Any) -> bytes:
    """Tokenize, and return all tokens."""
    given = [inputs] if isinstance(inputs, Path) else list(inputs)
    api.tokenize([str(path) for path in given], str(output), val_fraction=0, **settings)
    return (output / "train.bin").read_bytes()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the tokens of the Chinese text as UTF-8."""
    folder = tmp_path_factory.mktemp("utf8")
    (folder / "a.txt").write_text(CHINESE, encoding="utf-8")
    return tokenize(folder / "a.txt", folder / "out")


@pytest.mark.parametrize(
    ("encoding", "wanted"),
    [("gbk", "gb18030"), ("gb18030", "auto"), ("utf-16", "utf-16"), ("utf-16-le", "auto")],
)
def test_tokens_do_not_depend_on_the_encoding(
    tmp_path: Path, expected: bytes, encoding: str, wanted: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(CHINESE.encode(encoding))
    with pytest.raises(NotUtf8Error, match="this is not UTF-8; it looks like"):
        tokenize(path, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    assert tokenize(path, tmp_path / "out", encoding=wanted) == expected
    assert api.verify(str(tmp_path / "out"), full=True, source=True).is_whole
    record = Manifest.load(tmp_path / "out").inputs[0]
    assert record.encoding == {"gbk": "gb18030", "gb18030": "gb18030"}.get(encoding, "utf-16-le")


def test_a_guess_that_no_error_can_refute_is_named(tmp_path: Path) -> None:
    (tmp_path / "de.txt").write_bytes(GERMAN.encode("cp1252"))
    (tmp_path / "zh.txt").write_bytes(CHINESE.encode("gb18030"))
    inputs = [str(tmp_path / "de.txt"), str(tmp_path / "zh.txt")]
    (hint,) = [hint for hint in api.plan(inputs, encoding="auto").hints if "guess" in hint]
    assert hint.startswith("the encoding of 1 input is a guess")
    assert "de.txt (cp1252);" in hint
    assert not [hint for hint in api.plan(inputs[:1], encoding="cp1252").hints if "guess" in hint]


def test_compressed_and_piped_text_is_decoded(tmp_path: Path, expected: bytes) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(CHINESE.encode("gb18030")))
    assert tokenize(path, tmp_path / "gzip", encoding="auto") == expected
    command = [sys.executable, "-m", "penstok", "tokenize", "-", "--encoding", "gb18030"]
    command += ["--val-fraction", "0", "-o", str(tmp_path / "piped")]
    subprocess.run(command, input=CHINESE.encode("gb18030"), check=True, capture_output=True)
    assert (tmp_path / "piped" / "train.bin").read_bytes() == expected


@pytest.mark.parametrize(("name", "encoding"), [("a.jsonl", "cp932"), ("a.csv", "euc_jp")])
def test_records_in_other_encodings(tmp_path: Path, name: str, encoding: str) -> None:
    records = [f"{JAPANESE}{number}" for number in range(300)]
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in records]
    if name == "a.csv":
        lines = ["text", *(f'"{text}"' for text in records)]
    outputs = []
    for each in (encoding, "utf-8"):
        path = tmp_path / each / name
        path.parent.mkdir()
        path.write_bytes("\n".join(lines).encode(each))
        outputs.append(tokenize(path, tmp_path / f"out-{each}", encoding="auto", unit_bytes=2000))
    assert outputs[0] == outputs[1]


def test_all_inputs_in_other_encodings_are_reported_at_once(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "e"):
        (tmp_path / f"{name}.txt").write_bytes(CHINESE.encode("gbk"))
    with pytest.raises(NotUtf8Error) as raised:
        tokenize(tmp_path, tmp_path / "out")
    assert raised.value.what == "5 inputs are not UTF-8; they look like gb18030 (Chinese)"
    assert raised.value.where.endswith("c.txt and 2 more")
    assert raised.value.next_step == "pass `--encoding gb18030`"
    (tmp_path / "f.txt").write_bytes(GERMAN.encode("latin-1"))
    (tmp_path / "g.txt").write_text(GERMAN, encoding="utf-8")
    with pytest.raises(NotUtf8Error, match=r"6 inputs .* gb18030 .*, cp1252 ") as raised:
        tokenize(tmp_path, tmp_path / "out")
    assert raised.value.next_step == "pass `--encoding auto`"
    assert tokenize(tmp_path, tmp_path / "out", encoding="auto")


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_file_of_utf16_among_others_is_not_left_out(tmp_path: Path, mark: str) -> None:
    (tmp_path / "a.txt").write_bytes(CHINESE.encode("gbk"))
    (tmp_path / "b.txt").write_bytes((mark + CHINESE).encode("utf-16-le"))
    with pytest.raises(NotUtf8Error, match="not gbk; it looks like utf-16-le") as raised:
        tokenize(tmp_path, tmp_path / "out", encoding="gbk")
    assert raised.value.where.endswith("b.txt")


def test_an_input_in_another_encoding_can_be_added_to_a_finished_job(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text(GERMAN, encoding="utf-8")
    tokenize(first, tmp_path / "out")
    second.write_bytes(CHINESE.encode("gbk"))
    both = tokenize([first, second], tmp_path / "out", encoding="auto")
    assert both == tokenize([first, second], tmp_path / "again", encoding="auto")
    # The same job, whatever the encoding is called.
    assert tokenize([first, second], tmp_path / "out", encoding="AUTO") == both


def test_another_encoding_is_another_job(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(GERMAN.encode("latin-1"))
    tokenize(path, tmp_path / "out", encoding="Latin-1")
    tokenize(path, tmp_path / "out", encoding="iso8859-1")
    with pytest.raises(ConflictError, match="encoding iso8859-1 there, cp850 here"):
        tokenize(path, tmp_path / "out", encoding="cp850")


def test_a_lost_ledger_is_repaired_with_the_recorded_encoding(
    tmp_path: Path, expected: bytes
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(CHINESE.encode("gbk"))
    tokenize(path, tmp_path / "out", encoding="gbk")
    (tmp_path / "out" / "segments.jsonl").unlink()
    api.verify(str(tmp_path / "out"), repair=True)
    assert api.verify(str(tmp_path / "out"), full=True, source=True).is_whole
    assert (tmp_path / "out" / "train.bin").read_bytes() == expected


def test_errors_name_the_byte_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    good = CHINESE.encode("gb18030")
    path.write_bytes(good + b"\x81 " + good)
    with pytest.raises(InputError, match="invalid gb18030: bytes 81 20") as raised:
        tokenize(path, tmp_path / "out", encoding="gb18030", invalid_utf8="stop")
    assert raised.value.where == f"{path}, byte {len(good)}"
    record = json.dumps({"text": JAPANESE}, ensure_ascii=False).encode("cp932") + b"\n"
    path = tmp_path / "b.jsonl"
    path.write_bytes(record * 9 + b"no record\n")
    with pytest.raises(InputError) as raised:
        tokenize(path, tmp_path / "out", encoding="cp932")
    assert raised.value.where == f"{path}, line 10, byte {9 * len(record)}"


def test_malformed_sequences_are_counted_and_the_inputs_named(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(CHINESE.encode("gbk") + b"\xff \xff ")
    (tmp_path / "b.txt").write_bytes(CHINESE.encode() + b"\xff")
    done = penstok("tokenize", "a.txt", "b.txt", "--json", "--encoding", "auto")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["counts"]["invalid_utf8"] == 3
    warning = next(each for each in summary["warnings"] if each.startswith("invalid sequences"))
    assert "a.txt (2, read as gb18030), b.txt (1)" in warning
    assert f"  warning: {warning}" in done.stderr
    assert "3 invalid sequences replaced" in done.stderr


@pytest.mark.parametrize(
    ("called", "text", "wider"),
    [("shift_jis", JAPANESE + "①㈱髙", "cp932"), ("gb2312", CHINESE + "喆镕", "gb18030")],
)
def test_text_in_a_wider_encoding_than_it_is_called(
    penstok: RunPenstok, tmp_path: Path, called: str, text: str, wider: str
) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode(wider))
    said = penstok("tokenize", "a.txt", "--encoding", called).stderr
    assert f"text that is called {called} is often {wider}" in said
    said = penstok("tokenize", "a.txt", "--encoding", wider, "-o", "right").stderr
    assert "invalid" not in said


def test_an_encoding_for_rows_alone_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="always UTF-8"):
        tokenize(tmp_path / "a.parquet", tmp_path / "out", encoding="gbk")
    assert tokenize(tmp_path / "a.parquet", tmp_path / "out", encoding="auto")


def test_what_is_not_text_is_an_error_if_named_and_listed_if_found(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    noise = random.Random(1).randbytes(9000)
    (folder / "a.txt").write_text(GERMAN, encoding="utf-8")
    (folder / "cat.gif").write_bytes(b"GIF89a" + noise)
    (folder / "noise.jsonl").write_bytes(noise)
    (folder / "noise.txt.gz").write_bytes(gzip.compress(noise))
    with (folder / "sparse.txt").open("wb") as file:
        file.truncate(5 << 30)
    for path in sorted(folder.iterdir())[1:]:
        for extra in ([], ["--input-format", "text"], ["--encoding", "auto"]):
            done = penstok("tokenize", path, "-o", "no", *extra, exit_code=4)
            assert ", not text" in done.stderr
    said = penstok("tokenize", "in").stderr
    assert "skipped: in/cat.gif: this is a GIF picture, not text" in said
    assert "this is nothing but NUL bytes, not text" in said


def test_gzip_inside_gzip_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(gzip.compress(b"text\n" * 50)))
    with pytest.raises(InputError, match="this is gzip inside gzip") as raised:
        tokenize(path, tmp_path / "out")
    assert f"gzip -dc < {path}" in raised.value.next_step


def test_plan_says_the_same(penstok: RunPenstok, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(CHINESE.encode("gbk"))
    assert "it looks like gb18030 (Chinese)" in penstok("plan", path, exit_code=4).stderr
    said = penstok("plan", path, "--encoding", "gb18030").stdout
    assert "1 text (gb18030)" in said
    assert "今天的天气" in said


def test_parts_decode_their_inputs(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = CHINESE.splitlines(keepends=True)
    for number, encoding in enumerate(("gb18030", "utf-16", "utf-8", "utf-16-be")):
        text = "".join(lines[number * 10 : number * 10 + 10])
        (tmp_path / "in" / f"{number}.txt").write_bytes(text.encode(encoding))
    inputs, output = str(tmp_path / "in"), str(tmp_path / "out")
    settings: dict[str, Any] = {"val_fraction": 0, "encoding": "auto", "task_size": 500}
    for part in (2, 1):
        api.tokenize_part(inputs, output, part, 2, **settings)
    manifest = api.finish(output)
    found = [each.encoding for each in manifest.inputs]
    assert found == ["gb18030", "utf-16-le", "utf-8", "utf-16-be"]
    assert manifest.run["tasks"] == 4
    assert api.verify(output, full=True, source=True).is_whole
    whole = tokenize(Path(inputs), tmp_path / "whole", encoding="auto")
    shards = sorted(Path(output).glob("train_shard_*.bin"))
    assert b"".join(path.read_bytes() for path in shards) == whole


@pytest.mark.parametrize("has_ranges", [True, False])
def test_remote_text_is_decoded(tmp_path: Path, expected: bytes, has_ranges: bool) -> None:
    with web_server() as web:
        web.files = {"a.txt": CHINESE.encode("gb18030")}
        web.has_ranges = has_ranges
        api.tokenize(web.url("a.txt"), tmp_path / "out", val_fraction=0, encoding="auto")
        assert (tmp_path / "out" / "train.bin").read_bytes() == expected
        assert Manifest.load(tmp_path / "out").inputs[0].encoding == "gb18030"
        with pytest.raises(NotUtf8Error, match="gb18030"):
            api.tokenize(web.url("a.txt"), tmp_path / "refused")


def test_a_tokenizer_learns_from_decoded_text(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    trained = []
    for encoding, wanted in (("utf-8", "utf-8"), ("gb18030", "auto"), ("utf-16", "utf-16")):
        path, output = tmp_path / f"{encoding}.txt", tmp_path / f"{encoding}.json"
        path.write_bytes(CHINESE.encode(encoding))
        api.train_tokenizer(path, output, encoding=wanted, vocab_size=400)
        trained.append(json.loads(output.read_text(encoding="utf-8"))["model"])
    assert trained[0] == trained[1] == trained[2]
    with pytest.raises(NotUtf8Error):
        api.train_tokenizer(tmp_path / "gb18030.txt", tmp_path / "no.json", vocab_size=400)
