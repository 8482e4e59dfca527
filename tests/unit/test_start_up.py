"""What a command loads when it starts, and how its workers start: what start-up costs, untimed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import penstok
from penstok.executors import children
from penstok.tokenizers import cuts, load_tokenizer
from penstok.worker.memory import own_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What takes long to import, or is needed for a part of the inputs, outputs and engines only.
COSTLY = (
    *("asyncio", "botocore", "chardet", "click", "concurrent.futures", "email", "fastokens"),
    *("fsspec", "http", "importlib.metadata", "isal", "logging", "lz4", "msgspec"),
    *("multiprocessing", "numpy", "psutil", "pyarrow", "ray", "regex", "requests", "rich"),
    *("sentencepiece", "ssl", "statistics", "subprocess", "tiktoken", "tokenizers", "torch"),
    *("unittest", "urllib.request"),
)
JOB = {"click", "msgspec", "multiprocessing", "numpy", "subprocess"}


def run_cold(code: str, *arguments: str, folder: Path) -> str:
    """Run Python code in a new interpreter; return what it prints."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        # As the program sets it: otherwise numpy starts threads.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


PRINT_COSTLY = """
import atexit, json, sys
costly = sys.argv.pop(1).split(",")
atexit.register(lambda: print(json.dumps([name for name in costly if name in sys.modules])))
"""


@pytest.mark.cold
@pytest.mark.parametrize(
    ("command", "loaded"),
    [
        ("", set()),
        ("--version", {"click"}),
        ("--help", {"click"}),
        ("tokenize --help", {"click"}),
        ("tokenize in.txt -o new -q", JOB),
        ("info out", JOB - {"multiprocessing", "subprocess"}),
        ("show out", JOB - {"multiprocessing", "subprocess"}),
    ],
)
def test_a_command_loads_what_it_needs(tmp_path: Path, command: str, loaded: set[str]) -> None:
    (tmp_path / "in.txt").write_text("a few words")
    if command.endswith("out"):
        run_cold("import penstok; penstok.tokenize('in.txt', 'out')", folder=tmp_path)
    start = "from penstok.cli import main; main()" if command else "import penstok"
    said = run_cold(PRINT_COSTLY + start, ",".join(COSTLY), *command.split(), folder=tmp_path)
    assert set(json.loads(said.splitlines()[-1])) - loaded == set()


def test_a_short_text_needs_no_cut_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(ranks: dict[bytes, int]) -> None:
        raise AssertionError("it takes 30 ms")

    (tmp_path / "in.txt").write_text("a few words")
    monkeypatch.setattr("penstok.tokenizers.cuts._free_junctions", fail)
    preview = penstok.plan(str(tmp_path / "in.txt"), tmp_path / "out")
    assert preview.estimate is not None


def test_english_text_needs_no_table_of_free_junctions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    monkeypatch.setattr("penstok.tokenizers.cuts._free_junctions", calls.append)
    (tmp_path / "in.txt").write_text("one long document, caf\u00e9 included " * 150_000)
    manifest = penstok.tokenize(str(tmp_path / "in.txt"), tmp_path / "out", workers=1)
    assert manifest.counts["tokens"] > 500_000
    assert calls == []


def test_the_table_of_free_junctions_is_made_once_for_the_same_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = load_tokenizer("gpt2")
    monkeypatch.setattr(cuts, "_last_table", [])
    make, calls = cuts._free_junctions, list[object]()

    def count(ranks: dict[bytes, int]) -> NDArray[np.bool_]:
        calls.append(ranks)
        return make(ranks)

    monkeypatch.setattr(cuts, "_free_junctions", count)
    text = np.frombuffer("\u4f60\u597d".encode(), np.uint8)
    first, second = (cuts.find_cuts(tokenizer, 1 << 20).mask(text) for _ in range(2))
    assert len(calls) == 1
    assert np.array_equal(first, second)


START = """
import sys, threading, penstok
from penstok.executors import children
def fail(*_):
    raise SystemExit("it was started in the other way")
if sys.argv[1] == "fork":
    children._start_interpreter = fail
else:
    children.os.fork = fail
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(penstok.tokenize("in.txt", "out", workers=1).counts["documents"])
"""


@pytest.mark.cold
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there are no forks")
@pytest.mark.parametrize("how", ["fork", "new interpreter"])
def test_workers_are_forks_of_a_process_with_one_thread(tmp_path: Path, how: str) -> None:
    (tmp_path / "in.txt").write_text("a few words")
    assert run_cold(START, how, folder=tmp_path) == "1\n"


def test_a_large_process_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda _: ["1"])
    monkeypatch.setattr(children, "_NETWORK_LIBRARIES", ())
    monkeypatch.setattr(children, "_MAX_FORKED_BYTES", own_bytes() + (64 << 20))
    assert children._can_fork()
    monkeypatch.setattr(children, "_MAX_FORKED_BYTES", own_bytes() // 2)
    assert not children._can_fork()


def test_a_process_that_used_the_network_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda _: ["1"])
    monkeypatch.setattr(children, "_MAX_FORKED_BYTES", 1 << 40)
    for name in children._NETWORK_LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert children._can_fork()
    monkeypatch.setitem(sys.modules, "urllib3", sys)
    assert not children._can_fork()


def test_a_process_with_two_threads_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_MAX_FORKED_BYTES", 1 << 40)
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert not children._can_fork()
    finally:
        ended.set()
        thread.join()


@pytest.mark.cold
def test_workers_end_where_their_exit_codes_are_not_kept(tmp_path: Path) -> None:
    """Some programs ignore SIGCHLD, and what they start does too."""
    (tmp_path / "in.txt").write_text("some words")
    code = (
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); import penstok.cli; "
        "penstok.cli.main()"
    )
    run_cold(code, "tokenize", "in.txt", "-o", "out", "-q", folder=tmp_path)
    assert penstok.verify(tmp_path / "out").is_whole


COUNT_SEARCHES = """
import atexit, gc, sys
from penstok.cli import main
started = []
gc.callbacks.append(lambda phase, _: started.append(phase == "start"))
atexit.register(lambda: print(sum(started)))
main()
"""


@pytest.mark.cold
def test_a_small_job_hardly_ever_looks_for_garbage(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text")
    command = ("tokenize", "a.txt", "-o", "out", "--no-progress")
    printed = run_cold(COUNT_SEARCHES, *command, folder=tmp_path)
    # With Python's own threshold there are dozens.
    assert int(printed.splitlines()[-1]) < 10
