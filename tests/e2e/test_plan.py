"""`penstok plan`: what is there, what it will become, what hurts later; and lists of inputs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from compressed import compress
from conftest import RunPenstok
from processes import contents, write_corpus
from support import EXAMPLES

pytestmark = pytest.mark.e2e


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus.txt", 500)


def plan_of(penstok: RunPenstok, *arguments: str | Path) -> dict[str, object]:
    plan: dict[str, object] = json.loads(penstok("plan", *arguments, "--json").stdout)
    return plan


def test_the_first_documents_are_shown_with_their_ids(penstok: RunPenstok) -> None:
    said = penstok("plan", EXAMPLES / "english.txt").stdout
    assert "inputs:     1 file" in said
    assert "1 text" in said
    assert said.count(" tokens\n") == 3
    assert "50256 '<|endoftext|>'" in said
    assert "separated by '<|endoftext|>'" in said


def test_ids_that_are_parts_of_a_character_are_shown_as_bytes(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("水库 library\n" * 20, encoding="utf-8")
    said = penstok("plan", tmp_path / "a.txt").stdout
    assert "36365 '\\xe6\\xb0'  112 '\\xb4'" in said
    assert "\ufffd" not in said


def test_the_end_of_a_document_does_not_begin_with_half_a_letter(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    # The last 60 characters begin with a vowel sign, which a terminal would put on the quote.
    text = "हिन्दी लिखी है। " * 20 + "नि" + "क" * 59
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert " ... '" + "क" * 59 + "'" in penstok("plan", tmp_path / "a.txt").stdout


def test_the_estimate_is_near_what_comes_out(
    penstok: RunPenstok, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "more.jsonl.gz").write_bytes(
        gzip.compress(b"".join(b'{"text": "%d words"}\n' % idx for idx in range(20_000)))
    )
    plan = plan_of(penstok, corpus, "more.jsonl.gz")
    penstok("tokenize", corpus, "more.jsonl.gz")
    counts = json.loads((tmp_path / "tokens" / "manifest.json").read_text())["counts"]
    estimate = plan["estimate"]
    assert isinstance(estimate, dict)
    for name in ("documents", "tokens"):
        assert 0.7 < estimate[name] / counts[name] < 1.4, name
    assert estimate["output_bytes"] == 2 * estimate["tokens"] + 8 * estimate["documents"]
    assert estimate["seconds"] > 0
    assert plan["kinds"] == [
        {
            "format": "text",
            "compression": None,
            "num_inputs": 1,
            "num_bytes": corpus.stat().st_size,
            "encoding": "utf-8",
        },
        {
            "format": "jsonl",
            "compression": "gzip",
            "num_inputs": 1,
            "num_bytes": (tmp_path / "more.jsonl.gz").stat().st_size,
            "encoding": "utf-8",
        },
    ]


def test_the_estimate_has_no_more_documents_than_files(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for idx in range(20):
        (tmp_path / "in" / f"{idx}.txt").write_text("a few words " * (1 if idx < 10 else 1000))
    estimate = plan_of(penstok, tmp_path / "in")["estimate"]
    assert isinstance(estimate, dict)
    assert estimate["documents"] == 20


def test_nothing_is_written(penstok: RunPenstok, corpus: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    said = penstok("plan", corpus).stdout
    assert (
        penstok("tokenize", corpus, "--dry-run").stdout.splitlines()[:3] == (said.splitlines()[:3])
    )
    assert sorted(tmp_path.iterdir()) == before


def test_what_hurts_later_is_named(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a document without a separator " * 100)
    assert "no separator was found" in penstok("plan", "one.txt").stdout
    lines = ['{"text": ""}', '{"text": "word"}'] * 100
    (tmp_path / "half.jsonl").write_text("\n".join(lines))
    assert (
        "100 of the first 200 documents (text key `text`) are empty"
        in penstok("plan", "half.jsonl").stdout
    )
    (tmp_path / "bad.jsonl").write_text("\n".join(['{"text": null}', '{"text": "word"}'] * 50))
    assert "is null" in penstok("plan", "bad.jsonl", exit_code=4).stderr
    said = penstok("plan", "bad.jsonl", "--on-error", "skip").stdout
    assert "50 of the first 100 documents (text key `text`) cannot be used" in said
    said = penstok("plan", "half.jsonl", "--dtype", "uint32").stdout
    assert "tokens take twice the space they need" in said
    assert "val may be empty" in said


def test_a_missing_column_lists_those_there_are(penstok: RunPenstok, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = pa.table({"url": ["a"], "content": ["b"]})
    pq.write_table(table, tmp_path / "a.parquet")
    said = penstok("plan", "a.parquet", exit_code=4).stderr
    assert "text key `text` is missing" in said
    assert "`content`" in said
    assert "1 parquet" in penstok("plan", "a.parquet", "--text-key", "content").stdout


def test_a_list_names_inputs(penstok: RunPenstok, tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c d.txt"):
        (tmp_path / name).write_text(f"the text of {name}")
    (tmp_path / "list").write_text("# what to read\n\nb.txt\n  c d.txt  \r\n\t\na.txt\n")
    penstok("tokenize", "--files-from", "list", "-o", "listed")
    penstok("tokenize", "b.txt", "c d.txt", "a.txt", "-o", "named")
    assert contents(tmp_path / "listed") == contents(tmp_path / "named")
    penstok("tokenize", "b.txt", "--files-from", "list", "-o", "twice", exit_code=2)
    (tmp_path / "list").write_text("# nothing\n")
    assert "names no input" in penstok("plan", "--files-from", "list", exit_code=4).stderr
    assert "cannot be read" in penstok("plan", "--files-from", "none", exit_code=4).stderr


@pytest.mark.parametrize("in_splits", [True, False])
def test_a_folder_that_datasets_saved(penstok: RunPenstok, tmp_path: Path, in_splits: bool) -> None:
    """The layout of `datasets.save_to_disk`: streams of Arrow, and JSON that describes them."""
    saved = tmp_path / "saved"
    folder = saved / "train" if in_splits else saved
    folder.mkdir(parents=True)
    if in_splits:
        (saved / "dataset_dict.json").write_text('{"splits": ["train"]}')
    files = []
    for idx in range(2):
        table = pa.table({"text": [f"document {idx} {number}" for number in range(50)]})
        name = f"data-{idx:05}-of-00002.arrow"
        with pa.ipc.new_stream(str(folder / name), table.schema) as writer:
            writer.write_table(table, max_chunksize=10)
        files.append({"filename": name})
    (folder / "state.json").write_text(json.dumps({"_data_files": files}, indent=2))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}, indent=2))
    penstok("tokenize", "saved", "-o", "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [record["documents"] for record in manifest["inputs"]] == [50, 50]


def test_the_manifest_names_the_first_reasons(penstok: RunPenstok, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\nbroken\n{"text": 1}\n{}\n[]\n')
    penstok("tokenize", "a.jsonl", "--on-error", "skip", exit_code=3)
    record = json.loads((tmp_path / "tokens" / "manifest.json").read_text())["inputs"][0]
    assert record["skipped"] == 4
    assert len(record["reasons"]) == 3
    assert "broken JSON" in record["reasons"][0]
    assert record["reasons"][0].endswith("(at 17)")
    assert penstok("verify", "tokens", "--full", "--source").returncode == 0


def test_a_folder_of_a_thousand_tiny_files_of_all_kinds(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    lines = []
    for idx in range(1000):
        text = f"document {idx}"
        line = json.dumps({"text": text})
        kinds = {
            f"{idx}.txt": text.encode(),
            f"{idx}.txt.gz": gzip.compress(text.encode()),
            f"{idx}.jsonl": line.encode(),
            f"{idx}.csv": f"id,text\n1,{text}\n".encode(),
        }
        name = list(kinds)[idx % 4]
        (folder / name).write_bytes(kinds[name])
        lines.append(line)
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    said = penstok("tokenize", "tiny", "--val-fraction", "0.1").stderr
    assert (
        "in text files one per file; in other files one per record, from the field 'text'" in said
    )
    penstok("tokenize", "all.jsonl", "-o", "joined", "--val-fraction", "0.1")
    assert contents(tmp_path / "tokens") == contents(tmp_path / "joined")


def test_the_estimate_holds_for_long_documents_in_frames(
    penstok: RunPenstok, tmp_path: Path
) -> None:
    """A sample of 1 MiB ends where a document does, which may be far from where it should."""
    lines = [json.dumps({"text": f"{idx} " + "word " * 400_000}) for idx in range(6)]
    data = "\n".join(lines).encode()
    frames = [data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20)]
    (tmp_path / "a.jsonl.zst").write_bytes(b"".join(compress(each, "zstd") for each in frames))
    estimate = plan_of(penstok, "a.jsonl.zst")["estimate"]
    assert isinstance(estimate, dict)
    assert 0.7 < estimate["tokens"] / (6 * 400_003) < 1.4
