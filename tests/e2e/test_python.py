"""The Python functions as a caller uses them: examples, quantities, progress, warnings."""

from __future__ import annotations

import doctest
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstok

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    for number, word in enumerate((*ORDINALS, "tenth")):
        (tmp_path / "corpus" / f"{number}.txt").write_text(f"The {word} text.")
    return tmp_path


@pytest.mark.slow
def test_the_examples_in_docstrings_run(corpus: Path) -> None:
    runner, shared = doctest.DocTestRunner(), {"penstok": penstok}
    names = ("tokenize", "plan", "tokenize_part", "info", "show", "verify", "open")
    for name in (*names, "train_tokenizer"):
        found = doctest.DocTestParser().get_doctest(
            getattr(penstok, name).__doc__, shared, name, None, 0
        )
        assert found.examples
        runner.run(found)
    assert runner.summarize(verbose=False).failed == 0


def test_importing_penstok_imports_nothing_heavy() -> None:
    code = "import sys, penstok; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "pyarrow", "msgspec", "click", "tiktoken", "psutil"}
    assert not heavy & {name.partition(".")[0] for name in done.stdout.split()}


def test_progress_and_warnings_reach_the_caller(
    corpus: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[penstok.Status] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        penstok.tokenize("corpus", "out", val_fraction=1, progress=seen.append)
    assert [(each.category, each.filename) for each in caught] == [
        (penstok.PenstokWarning, __file__)
    ]
    assert str(caught[0].message) == "train is empty: pass a smaller `--val-fraction`"
    assert seen[-1].fraction == 1.0
    assert seen[-1].num_documents == 10
    assert capfd.readouterr() == ("", "")
    penstok.verify("out", progress=True)
    drawn = capfd.readouterr().err
    assert drawn.startswith("\r\rverifying  starting\r")
    assert drawn.endswith("\r")


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"memory": "much"}, "`much` is not a size such as `1GiB`"),
        ({"memory": True}, "`True` is not a size such as `2GiB`"),
        ({"memory": float("nan")}, "`nan` is not a size such as `2GiB`"),
        ({"memory": float("inf")}, "`inf` is not a size such as `2GiB`"),
        ({"shard_tokens": 1.5}, "`1.5` is not a count such as `500M`"),
        ({"val_fraction": 10**400}, "`1000"),
        ({"val_fraction": float("nan")}, "the val fraction must be between 0 and 1"),
        ({"seed": "5"}, "`5` is text, not a whole number"),
        ({"strip": 1}, "`1` is not true or false"),
        ({"engine": "fast"}, "unknown value `fast`; known: auto, kernel"),
        ({"val_fraction": 2}, "the val fraction must be between 0 and 1"),
        ({"block_bytes": 0}, "`0` is too small; the least is 1"),
        ({"unit_bytes": 0}, "`0` is too small; the least is 1"),
        ({"progress": "yes"}, "`yes` is not a function"),
        ({"tokenizer": 5}, "`5` is not the name or the path of a tokenizer"),
        ({"tokenizer": None}, "`None` is not the name or the path of a tokenizer"),
    ],
)
def test_wrong_values_are_usage_errors(corpus: Path, settings: dict[str, Any], what: str) -> None:
    with pytest.raises(penstok.UsageError) as caught:
        penstok.tokenize("corpus", "out", **settings)
    assert caught.value.what.startswith(what)


@pytest.mark.parametrize("inputs", [3, None, b"corpus", ["corpus", 3], [b"corpus"]])
def test_inputs_are_paths(corpus: Path, inputs: Any) -> None:
    with pytest.raises(penstok.UsageError, match="is not a path or a list of paths"):
        penstok.tokenize(inputs, "out")


@pytest.mark.parametrize("name", ["info", "open", "finish", "verify", "show"])
@pytest.mark.parametrize("output", [None, 3, b"out"])
def test_an_output_is_a_path(name: str, output: Any) -> None:
    with pytest.raises(penstok.UsageError, match="is not a path"):
        getattr(penstok, name)(output)


@pytest.mark.parametrize("part", ["1", 1.0, None, True])
def test_a_part_is_a_whole_number(corpus: Path, part: Any) -> None:
    for numbers in ((part, 2), (1, part)):
        with pytest.raises(penstok.UsageError, match="not a whole number"):
            penstok.tokenize_part("corpus", "out", *numbers)


def test_wrong_reads_are_usage_errors(corpus: Path) -> None:
    numbers: dict[str, Any] = {"val_fraction": np.float32(0.5), "seed": np.int64(3)}
    penstok.tokenize("corpus", "out", **numbers)
    tokens = penstok.open("out")
    assert tokens.manifest.settings["val_fraction"] == 0.5
    read: Any = tokens.read
    for arguments, what in (
        (("train", -1, 5), "`-1` is less than 0"),
        (("train", 0, -5), "`-5` is less than 0"),
        (("train", 0.5, 5), "`0.5` is not a whole number"),
        (("x", 0, 5), "there is no split `x`; known: train, val"),
    ):
        with pytest.raises(penstok.UsageError, match=what):
            read(*arguments)
    with pytest.raises(penstok.UsageError, match="there is no split `x`"):
        tokens.shards("x")  # type: ignore[arg-type]
    assert (tokens.decode([]), len(read("train", np.int64(0), 2))) == ("", 2)
    with pytest.raises(penstok.UsageError, match="id 1000000 is not one of the 50257 of `gpt2`"):
        tokens.decode([5, 10**6])
    wrong: Any
    for wrong in ("ab", [1.5], [[1], [2]], [[1], [2, 3]], 5, None, [10**30], [True]):
        with pytest.raises(penstok.UsageError, match="these are not ids"):
            tokens.decode(wrong)


def test_quantities_are_text_or_numbers() -> None:
    from penstok.jobs.definition import make_fields, settings_of
    from penstok.jobs.settings import JobSettings

    def read(**values: Any) -> dict[str, Any]:
        return make_fields(settings_of(JobSettings), values)

    assert read(memory="2GiB", limit=1e9) == {"memory_bytes": 2 << 30, "limit_bytes": 10**9}
    assert read(shard_tokens="500M", task_size=None) == {
        "shard_tokens": 500_000_000,
        "task_bytes": None,
    }
    assert read(doc_separator=r"\n", eot_token=7) == {"doc_separator": r"\n", "eot_token": "7"}
    assert read(inputs=Path("a"), output="s3://b/c") == {"inputs": ("a",), "output": "s3://b/c"}
