"""What an interrupted command says: whether anything was changed, and what to run."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstok.cli import app

NOTHING = ("nothing was changed", "it starts over")
KEPT = ("finished work is kept", "it continues")


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verify", "out"], NOTHING),
        (["verify", "out", "--full", "--source"], NOTHING),
        (["verify", "out", "--repair"], KEPT),
        (["info", "out"], NOTHING),
        (["show", "out"], NOTHING),
        (["report", "out"], NOTHING),
        (["tokenize", "in.txt"], KEPT),
        (["count", "in.txt"], NOTHING),
        (["train-tokenizer", "in.txt"], NOTHING),
    ],
    ids=" ".join,
)
def test_an_interrupted_command_says_what_became_of_the_output(
    arguments: list[str],
    words: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    # What is imported while a function is replaced would keep the replacement.
    for module in (
        "verification.repair",
        "jobs.run",
        "training.train",
        "counting.count",
        "cli.info",
        "cli.show",
    ):
        importlib.import_module(f"penstok.{module}")
    for name in (
        "penstok.verification.verify.verify_output",
        "penstok.verification.repair.repair_output",
        "penstok.output.manifest.Manifest.load",
        "penstok.jobs.run.run_job",
        "penstok.counting.count.count_tokens",
        "penstok.training.train.train_tokenizer",
    ):
        monkeypatch.setattr(name, interrupt)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 130
    for word in words:
        assert word in done.stderr
