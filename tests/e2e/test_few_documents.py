"""Small corpora from end to end: val gets a document, whoever runs the job; what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import xxhash
from compressed import compress
from processes import contents, run

import penstok
from penstok.errors import ConflictError, InputError
from penstok.inputs.streams import ContentStream
from penstok.jobs.few_documents import find_val_hash
from penstok.output.ledger.lines import format_line, line_body
from penstok.types import Source

pytestmark = [pytest.mark.e2e]

FRACTION = 1e-6
SMALL: dict[str, Any] = {"engine": "tiktoken", "val_fraction": FRACTION, "workers": 1}


def write_inputs(folder: Path, numbers: range) -> Path:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        (folder / f"{number:02}.txt").write_text(f"document {number} " * 50)
    return folder


def order(folder: Path) -> list[Path]:
    """Return the inputs with the smallest hash first."""
    return sorted(folder.iterdir(), key=lambda path: xxhash.xxh3_64_intdigest(path.read_bytes(), 0))


def settings_of(output: Path) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads((output / "manifest.json").read_text())["settings"]
    return settings


def make_old(output: Path) -> None:
    """Turn an output without val into one of a version that chose no document for it.

    It did not count the text either.
    """
    lines = []
    for line in (output / "segments.jsonl").read_bytes().splitlines(keepends=True):
        content = json.loads(line_body(line) or b"")
        if "settings" in content:
            content["settings"]["val_fraction"] = FRACTION
        if "counts" in content:
            del content["counts"]["text_bytes"]
        lines.append(format_line(content))
    (output / "segments.jsonl").write_bytes(b"".join(lines))
    text = (output / "manifest.json").read_text()
    counted = f',\n    "text_bytes": {json.loads(text)["counts"]["text_bytes"]}'
    assert counted in text
    text = text.replace(counted, "").replace('"val_fraction": 0.0,', f'"val_fraction": {FRACTION},')
    (output / "manifest.json").write_text(text)


def test_one_document_goes_to_val_in_one_run_and_in_parts(tmp_path: Path) -> None:
    corpus = write_inputs(tmp_path / "in", range(7))
    manifest = penstok.tokenize(corpus, tmp_path / "one", **SMALL)
    assert (manifest.splits["train"].documents, manifest.splits["val"].documents) == (6, 1)
    assert penstok.verify(tmp_path / "one", source=True, full=True).is_whole
    for part in (2, 1):
        penstok.tokenize_part(corpus, tmp_path / "parts", part, 2, task_size=1000, **SMALL)
    parts = penstok.finish(tmp_path / "parts")
    assert parts.settings["val_hash"] == manifest.settings["val_hash"]
    for split in ("train", "val"):
        shards = sorted((tmp_path / "parts").glob(f"{split}_*.bin"))
        found = b"".join(path.read_bytes() for path in shards)
        assert found == (tmp_path / "one" / f"{split}.bin").read_bytes()


@pytest.mark.slow
def test_a_killed_job_continues_with_the_same_document(tmp_path: Path) -> None:
    corpus = write_inputs(tmp_path / "in", range(5))
    flags = ["--val-fraction", str(FRACTION)]
    assert run("tokenize", corpus, "-o", tmp_path / "whole", *flags)[0] == 0
    code, _ = run("tokenize", corpus, "-o", tmp_path / "out", *flags, fault="journal on disk")
    assert code != 0
    assert run("tokenize", corpus, "-o", tmp_path / "out", *flags)[0] == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert (tmp_path / "out" / "val.bin").stat().st_size > 0


def test_standard_input_that_is_short_gives_val_a_document(tmp_path: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_text("<|endoftext|>".join(f"document {number}" for number in range(9)))
    flags = ["--val-fraction", str(FRACTION)]
    assert run("tokenize", text, "-o", tmp_path / "file", *flags)[0] == 0
    assert run("tokenize", "-", "-o", tmp_path / "piped", *flags, stdin=text)[0] == 0
    assert contents(tmp_path / "piped") == contents(tmp_path / "file")
    assert settings_of(tmp_path / "piped")["val_hash"]
    packed = pack(text)
    assert run("tokenize", "-", "-o", tmp_path / "packed", *flags, stdin=packed)[0] == 0
    assert contents(tmp_path / "packed") == contents(tmp_path / "file")


def pack(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(compress(path.read_bytes(), "gzip"))
    return packed


def write_lines(path: Path, numbers: range) -> Path:
    lines = [json.dumps({"text": f"document {number} " * 50}) for number in numbers]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("fraction", [FRACTION, 0.1])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_the_search_reads_of_a_stream_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fraction: float, workers: int
) -> None:
    plain = [write_lines(tmp_path / f"{n}.jsonl", range(9 * n, 9 * n + 9)) for n in range(3)]
    packed = [pack(path) for path in plain]
    opened: list[str] = []

    class Counted(ContentStream):
        def __init__(self, source: Source, **options: Any) -> None:
            opened.append(Path(source.path).name)
            super().__init__(source, **options)

    settings = {**SMALL, "val_fraction": fraction, "workers": workers, "unit_bytes": 2000}
    monkeypatch.setattr("penstok.inputs.buffered_stream.ContentStream", Counted)
    for number in (1, 3):
        penstok.tokenize(plain[:number], tmp_path / "plain", overwrite=True, **settings)
        assert not opened
        penstok.tokenize(packed[:number], tmp_path / "packed", overwrite=True, **settings)
        for split in ("train.bin", "val.bin"):
            tokens = (tmp_path / "packed" / split).read_bytes()
            assert tokens == (tmp_path / "plain" / split).read_bytes()
        # Several inputs are read up to the first document for val, and then from the first one on.
        is_again = number > 1 and fraction == FRACTION
        assert opened == [path.name for path in packed[:number]] * (1 + is_again)
        opened.clear()


def test_a_stream_that_changes_after_the_search_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = pack(write_lines(tmp_path / "in.jsonl", range(20)))
    other = pack(write_lines(tmp_path / "other.jsonl", range(30)))

    def search(*args: Any) -> str | None:
        found = find_val_hash(*args)
        other.replace(packed)
        return found

    monkeypatch.setattr("penstok.jobs.job.find_val_hash", search)
    with pytest.raises(InputError, match="changed"):
        penstok.tokenize(packed, tmp_path / "out", **SMALL)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_inputs_can_be_added_while_the_same_document_is_chosen(tmp_path: Path) -> None:
    corpus = write_inputs(tmp_path / "in", range(8))
    chosen, *others = map(str, order(corpus))
    last, more = max(others), [path for path in others if path != max(others)]
    penstok.tokenize([chosen, *more], tmp_path / "out", **SMALL)
    added = penstok.tokenize([chosen, *more, last], tmp_path / "out", **SMALL)
    at_once = penstok.tokenize([chosen, *more, last], tmp_path / "new", **SMALL)
    assert added.splits == at_once.splits
    # Now the smallest comes last.
    penstok.tokenize(others, tmp_path / "other", **SMALL)
    with pytest.raises(ConflictError, match="val was one document, chosen because there were too"):
        penstok.tokenize([*others, chosen], tmp_path / "other", **SMALL)
    # A changed input is reported as that, whatever it does to val.
    Path(others[0]).write_text("changed")
    with pytest.raises(ConflictError, match="bytes there, 7 here"):
        penstok.tokenize(others, tmp_path / "other", **SMALL)


def test_an_output_of_an_older_version_stays_as_it_is(tmp_path: Path) -> None:
    corpus, out = write_inputs(tmp_path / "in", range(3)), tmp_path / "out"
    penstok.tokenize(corpus, out, **{**SMALL, "val_fraction": 0})
    make_old(out)
    before = contents(out)
    assert penstok.verify(out, source=True, full=True).is_whole
    assert "val_hash" not in penstok.tokenize(corpus, out, **SMALL).settings
    assert contents(out) == before
    # A lost ledger is made again as the older version wrote it.
    ledger = (out / "segments.jsonl").read_bytes()
    (out / "segments.jsonl").write_bytes(ledger[:-40])
    assert penstok.verify(out, repair=True).is_whole
    assert (out / "segments.jsonl").read_bytes() == ledger
    # Another document would need a choice.
    (corpus / "99.txt").write_text("one more")
    with pytest.raises(ConflictError, match="now one is, because there are too few"):
        penstok.tokenize(corpus, out, **SMALL)


def test_the_summary_says_how_val_was_chosen(tmp_path: Path) -> None:
    corpus, flags = write_inputs(tmp_path / "in", range(7)), ["--val-fraction", "0.000001"]
    wanted = (
        "warning: val: 1 document was taken, chosen by its hash, because "
        "`--val-fraction 1e-06` of 7 documents gave none"
    )
    _, said = run("tokenize", corpus, "-o", tmp_path / "out", *flags)
    assert wanted in said
    assert run("tokenize", corpus, "-o", tmp_path / "parts", *flags, "--part", "1/1")[0] == 0
    _, said = run("finish", tmp_path / "parts")
    assert wanted in said
    assert "1 task, " in said
    one = corpus / "00.txt"
    for output, part in (("alone", []), ("alone in parts", ["--part", "1/1"])):
        _, said = run("tokenize", one, "-o", tmp_path / output, *part)
        if part:
            _, said = run("finish", tmp_path / output)
        assert "warning: val is empty: the input has only 1 document; pass `--docs-by line`" in said


def test_sizes_and_rates_are_those_of_the_text(tmp_path: Path) -> None:
    texts = ["é <|endoftext|>", 'a "quoted" line\n', "third"]
    num_bytes = sum(len(each.encode()) for each in texts)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(compress("\n".join(json.dumps({"text": t}) for t in texts).encode(), "gzip"))
    _, said = run("tokenize", path, "-o", tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["counts"]["text_bytes"] == num_bytes == manifest["run"]["work_text_bytes"]
    per_token = f"{num_bytes / manifest['counts']['tokens']:.2f} bytes of text per token"
    stored = f"{path.stat().st_size} B of JSON Lines (gzip), which held {num_bytes} B of text"
    assert f"  {stored}, {per_token}\n" in said
    assert "B/s of text" in said
    # The advice fits the format: records have no separator.
    assert "`<|endoftext|>` occurs in 1 document and was encoded as ordinary text\n" in said
    assert "--doc-separator" not in said
    plain = tmp_path / "b.txt"
    plain.write_text("a <|endoftext|> b")
    _, said = run("tokenize", plain, "-o", tmp_path / "plain", "--docs-by", "file")
    assert "; if it separates documents, pass `--doc-separator '<|endoftext|>' --overwrite`" in said


@pytest.mark.parametrize(
    ("text", "flags", "wanted", "unwanted"),
    [
        (
            "same line\n" * 5,
            ["--docs-by", "line"],
            ["val is empty: all 5 documents are equal"],
            "--docs-by file",
        ),
        (
            "one line\n" * 6,
            ["--docs-by", "line", "--limit", "1"],
            ["  the first 9 B of 54 B of text", "`--limit` left only 1 document; pass a larger"],
            "--docs-by",
        ),
        (
            "one line\n" * 6,
            ["--limit", "1"],
            ["  54 B of text", "the input has only 1 document; pass `--docs-by line`"],
            "first",
        ),
        (
            " ".join(map(str, range(250_000))),
            ["--docs-by", "file"],
            [
                "  1 document was divided into 3 passages, because each file is one document and ",
                "val: 1 passage was taken",
            ],
            "3 documents",
        ),
    ],
    ids=["equal", "limit", "limit-without-effect", "giant"],
)
def test_the_summary_gives_the_real_reason(
    tmp_path: Path, text: str, flags: list[str], wanted: list[str], unwanted: str
) -> None:
    (tmp_path / "a.txt").write_text(text)
    code, said = run("tokenize", tmp_path / "a.txt", "-o", tmp_path / "out", *flags)
    assert code == 0
    for words in wanted:
        assert words in said
    assert unwanted not in said


def test_text_in_another_encoding_is_measured_as_stored_and_as_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(("\u6c38\u548c\u4e5d\u5e74" * 500).encode("gb18030"))
    _, said = run("tokenize", tmp_path / "a.txt", "-o", tmp_path / "out", "--encoding", "gb18030")
    assert "4 kB of gb18030 text (6 kB as UTF-8), " in said
