"""The command line: help, usage errors, variables, completion and progress, without a job."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import shutil
import struct
import subprocess
import sys
import termios
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstok.cli import app
from penstok.cli.app import Command
from penstok.cli.commands import COMMANDS, CommandRow
from penstok.cli.flags import Flag
from penstok.cli.messages import escape, quote
from penstok.cli.progress import JsonProgress, PlainProgress
from penstok.jobs.progress import Status
from penstok.jobs.progress_line import LineProgress, fit_line, make_progress

HEAVY = ("numpy", "pyarrow", "tiktoken", "fastokens", "rich", "pydantic", "typer", "psutil")
LINE = " 38%  152 MB/s  41.2M tok/s  61/160 units  memory 1.02 GB  ETA 1:05"


def invoke(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, arguments, env=environment, prog_name="penstok")


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_help_has_purpose_examples_groups_and_exit_codes(row: CommandRow) -> None:
    said = invoke(row.name, "--help").output
    assert said == invoke(row.name, "-h").output
    command = Command(row)
    order = [row.summary[:40], "Examples:", *command.examples, "Arguments:", "Exit codes:"]
    at = [said.index(words) for words in order]
    assert at == sorted(at)
    assert len(command.examples) >= 2
    assert max(map(len, said.splitlines())) <= 100
    ends = said[at[-1] :].splitlines()[1:]
    assert [int(line.split()[0]) for line in ends] == list(row.exit_codes)


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_examples_are_accepted_as_typed(row: CommandRow) -> None:
    import shlex

    for example in Command(row).examples:
        program, name, *arguments = shlex.split(example)
        assert (program, name) == ("penstok", row.name)
        Command(row).make_context(name, arguments)


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_each_flag_has_a_variable_and_a_group(row: CommandRow) -> None:
    flags = [each for each in Command(row).flags if isinstance(each, Flag)]
    assert len({each.name for each in flags}) == len(flags)
    for each in flags:
        assert each.envvar == "PENSTOK_" + each.opts[-1][2:].upper().replace("-", "_")
        assert (each.help or "").endswith(".")


def test_a_variable_sets_a_flag_and_the_flag_wins() -> None:
    command = Command(COMMANDS[0])
    values = {"PENSTOK_MEMORY": "2GiB", "PENSTOK_STRIP": "1", "PENSTOK_SEED": "5"}
    with CliRunner().isolation(env=values):
        params = command.make_context("tokenize", ["in.txt", "--seed", "7"]).params
    assert (params["memory_bytes"], params["strip"], params["seed"]) == (2 << 30, True, 7)
    assert params["inputs"] == ("in.txt",)


def test_help_of_the_program_lists_every_command_and_completion() -> None:
    said = invoke("--help").output
    for row in COMMANDS:
        assert f"\n  {row.name} " in said
    for shell in ("bash", "zsh", "fish"):
        assert f"penstok --show-completion {shell}" in said
    assert invoke().exit_code == 2
    assert invoke().stderr.strip() == said.strip()


@pytest.mark.parametrize(
    ("arguments", "what", "where"),
    [
        (["tokenise"], "unknown command `tokenise`; did you mean `tokenize`?", "penstok"),
        (["--versoin"], "unknown flag `--versoin`; did you mean `--version`?", "penstok"),
        (
            ["tokenize", "a", "--memry", "1"],
            "unknown flag `--memry`; did you mean `--memory`?",
            "penstok tokenize",
        ),
        (["tokenize", "a", "--memory"], "`--memory` needs a value", "penstok tokenize"),
        (["tokenize", "a", "--memory", "x"], "`x` is not a size such as", "--memory"),
        (["tokenize", "a", "-j", "two"], "`two` is not a whole number", "--workers"),
        (["show", "a", "--at", "-1"], "`-1` is not a whole number, 0 or more", "--at"),
        (["show"], "`OUT` is missing", "penstok show"),
        (["info", "a", "b"], "unexpected argument `b`", "penstok info"),
        (["tokenize", "a", "--overwrite=1"], "`--overwrite` takes no value", "penstok tokenize"),
        (["tokenize", "a", "--strip=yes"], "`--strip` takes no value", "penstok tokenize"),
        (["tokenize", "a", "--memory", "١GiB"], "`١GiB` is not a size such as", "--memory"),
        (["tokenize", "a", "--memory", "9" * 400], "`999", "--memory"),
        (["tokenize", "a", "--seed", "١"], "`١` is not a whole number", "--seed"),
        (["tokenize", "a", "--val-fraction", ".١"], "`.١` is not a number", "--val-fraction"),
        (["tokenize", "a", "--part", "١/2"], "`١/2` is not a part such as", "--part"),
        (["tokenize", "a", "--csv-delimiter", r"\n"], r"`\n` is not one ASCII", "--csv-delimiter"),
        (["train-tokenizer", "a", "--special", ""], "a special token is empty", "--special"),
        (["--show-completion", "ksh"], "unknown shell `ksh`", "--show-completion"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_usage_errors_have_three_parts(arguments: list[str], what: str, where: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    first, second, third = done.stderr.splitlines()
    assert first.startswith(f"error: {what}")
    assert second == f"  where: {where}"
    assert third.startswith("  next:  ")
    assert done.stdout == ""


@pytest.mark.parametrize("flags", [["--json"], []], ids=["flag", "variable"])
def test_usage_errors_are_json_lines_too(flags: list[str]) -> None:
    variables = {} if flags else {"PENSTOK_JSON": "1"}
    done = invoke("tokenize", "a", "-j", "two", *flags, **variables)
    record = json.loads(done.stdout)
    assert (record["type"], record["exit_code"]) == ("error", 2)
    assert record["what"] == "`two` is not a whole number"


def test_a_bad_variable_is_a_usage_error() -> None:
    done = invoke("tokenize", "a", PENSTOK_STRIP="perhaps")
    assert done.exit_code == 2
    assert "error: `perhaps` is not true or false\n  where: PENSTOK_STRIP\n" in done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "what"),
    [
        ("PENSTOK_VAL_FRACTION", "x", "`x` is not a number"),
        ("PENSTOK_VAL_FRACTION", "2", "the val fraction must be between 0 and 1"),
        ("PENSTOK_EOT", "x", "unknown value `x`"),
        ("PENSTOK_LOG", "no/such/log", "the log cannot be written"),
    ],
)
def test_an_error_names_the_variable(variable: str, value: str, what: str) -> None:
    first, second, _ = invoke("tokenize", "a", **{variable: value}).stderr.splitlines()
    assert first.startswith(f"error: {what}")
    assert second.startswith(f"  where: {variable}")


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--json"], {}),
        (["tokenize", "--json=1", "a"], {}),
        (["tokenize"], {"PENSTOK_JSON": "maybe"}),
        (["tokenise", "--json"], {}),
    ],
)
def test_every_usage_error_can_be_json(arguments: list[str], variables: dict[str, str]) -> None:
    done = invoke(*arguments, **variables)
    assert (done.exit_code, json.loads(done.stdout)["exit_code"]) == (2, 2)


def test_a_variable_that_sets_nothing_is_a_warning() -> None:
    variables = {"PENSTOK_VAL_FRACTOIN": "1", "PENSTOK_FAULT": "", "PENSTOK_VOCAB_SIZE": "300"}
    done = invoke("tokenize", "missing.txt", **variables)
    assert done.stderr.startswith(
        "warning: the variable `PENSTOK_VAL_FRACTOIN` sets no flag; did you mean "
        "`PENSTOK_VAL_FRACTION`?\nerror: "
    )
    assert "warning" not in invoke("tokenize", "missing.txt", "-q", **variables).stderr


def test_an_unknown_request_for_completion_is_a_usage_error() -> None:
    done = invoke(_PENSTOK_COMPLETE="junk")
    assert done.exit_code == 2
    assert "unknown value `junk`; known: bash_source" in done.stderr


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=True,
    )
    return done.stdout


def test_help_imports_nothing_heavy_and_no_other_command() -> None:
    code = (
        "import atexit, sys, penstok.cli\n"
        "atexit.register(lambda: print('MODULES', *sys.modules))\n"
        "sys.argv = ['penstok', 'show', '--help']\n"
        "penstok.cli.main()"
    )
    modules = run_python(code).split("MODULES")[1].split()
    assert not {name.partition(".")[0] for name in modules} & set(HEAVY)
    assert "penstok.cli.show" in modules
    others = {row.module for row in COMMANDS} - {"penstok.cli.show"}
    assert not others & set(modules)


def test_every_command_is_a_row_and_has_a_module() -> None:
    for row in COMMANDS:
        module = importlib.import_module(row.module)
        assert row.module == f"penstok.cli.{row.name.replace('-', '_')}"
        assert {"EXAMPLES", "FLAGS", "run"} <= set(module.__all__)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_flags_and_files(shell: str) -> None:
    assert "_PENSTOK_COMPLETE" in invoke("--show-completion", shell).stdout

    def complete(*words: str) -> str:
        index = words[-1] if shell == "fish" else str(len(words) - 1)
        return run_python(
            "from penstok.cli import main; main()",
            _PENSTOK_COMPLETE=f"{shell}_complete",
            COMP_WORDS=" ".join(words),
            COMP_CWORD=index,
        )

    assert "train-tokenizer" in complete("penstok", "tr")
    assert "--val-fraction" in complete("penstok", "tokenize", "--val")
    assert "file" in complete("penstok", "tokenize", "corp")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_flags_words_and_files(tmp_path: Path) -> None:
    (tmp_path / "penstok").write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from penstok.cli import main; main()" "$@"\n'
    )
    (tmp_path / "penstok").chmod(0o755)
    script = """
    eval "$(penstok --show-completion bash)"
    try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _penstok_completion penstok
            echo "${COMPREPLY[*]}"; COMPREPLY=(); }
    compopt() { [ "$2" = default ] && echo "files"; }
    try penstok tr
    try penstok tokenize --csv
    try penstok tokenize --engine t
    try penstok show out --split ""
    try penstok tokenize in
    """
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        check=True,
    )
    assert done.stdout.splitlines() == [
        "train-tokenizer",
        "--csv-delimiter",
        "tiktoken tokenizers",
        "train val",
        "files",
        "",
    ]


def shown(elapsed_seconds: float = 40.0, **fields: Any) -> Status:
    """Make a status whose line is `LINE` unless it is told otherwise."""
    values: dict[str, Any] = {
        "elapsed_seconds": elapsed_seconds,
        "done_bytes": 3_800_000_000,
        "total_bytes": 10_000_000_000,
        "text_bytes": 6_080_000_000,
        "num_units_done": 61,
        "num_units": 160,
        "num_tokens": 1_648_000_000,
        "num_documents": 1,
        "memory_bytes": 1_020_000_000,
    }
    return Status(**{**values, **fields})


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (119, f"tokenizing [{'#' * 11}{'.' * 19}] {LINE.strip()}"),
        (79, "tokenizing [######.........] 38%  152 MB/s  41.2M tok/s  61/160 units  ETA 1:05"),
        (59, "[########............] 38%  152 MB/s  41.2M tok/s  ETA 1:05"),
        (39, "[#####........] 38%  152 MB/s  ETA 1:05"),
        (30, "[##..] 38%  152 MB/s  ETA 1:05"),
        (29, "38%  152 MB/s  ETA 1:05"),
        (20, "38%  ETA 1:05"),
        (10, "38%  ETA 1"),
    ],
)
def test_the_progress_line_fits_the_terminal(columns: int, line: str) -> None:
    assert fit_line("tokenizing", shown(), columns) == line


def test_no_progress_line_is_too_long_and_the_essential_stays_at_40_columns() -> None:
    cases = [
        shown(),
        shown(done_bytes=10_000_000_000),
        shown(total_bytes=0, num_units=None),
        shown(elapsed_seconds=1e6, slow="a-node-with-a-long-name (1 MB/s per core)", nodes_alive=9),
        shown(num_tasks=1000, num_tasks_done=999, num_retried=12),
    ]
    for status in cases:
        for columns in range(1, 200):
            line = fit_line("tokenizing", status, columns)
            assert len(line) <= columns
            if columns >= 39:
                assert {"rate", "eta"} <= {
                    name for name, text in status.fields().items() if text in line
                }
                assert ("[" in line) == (status.total_bytes > 0)


def test_the_line_is_redrawn_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = StringIO()
    with LineProgress(stream, "tokenizing") as progress:
        progress.update(shown())
    first, second = "tokenizing  starting", "[#####........] 38%  152 MB/s  ETA 1:05"
    erased = [f"\r{' ' * len(line)}\r" for line in ("", first, second)]
    assert stream.getvalue() == f"{erased[0]}{first}{erased[1]}{second}{erased[2]}"
    monkeypatch.setattr(stream, "isatty", lambda: True)
    stream.truncate(0)
    with LineProgress(stream, "tokenizing"):
        pass
    assert stream.getvalue().strip("\0") == f"\r\x1b[J{first}\r\r\x1b[J\r"


@pytest.mark.parametrize("columns", [10, 20, 40])
def test_the_line_fits_the_terminal_it_is_drawn_on(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output may be a file, and `COLUMNS` may be that of another terminal."""
    monkeypatch.setenv("COLUMNS", "200")
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(theirs, "w") as stream, LineProgress(stream, "tokenizing") as progress:
        progress.update(shown())
    written = b""
    with contextlib.suppress(OSError):  # the end, as Linux says it
        while more := os.read(ours, 4096):
            written += more
    os.close(ours)
    _, *drawn = (line.rstrip("\r") for line in written.decode().split("\r\x1b[J"))
    assert max(map(len, drawn)) <= columns - 1
    assert drawn[0] == "tokenizing  starting"[: columns - 1]
    assert drawn[1] == fit_line("tokenizing", shown(), columns - 1)


def test_a_notebook_gets_one_output_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, dict[str, str]]] = []

    def display(shown: dict[str, str], *, raw: bool, display_id: bool) -> SimpleNamespace:
        assert raw
        assert display_id
        calls.append(("display", shown))
        return SimpleNamespace(update=lambda shown, raw: calls.append(("update", shown)))

    shell = SimpleNamespace(kernel=object())
    fake = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    with make_progress(True, "tokenizing") as progress:
        progress.update(shown())
        progress.update(shown(total_bytes=0, num_units=None))
    assert [kind for kind, _ in calls] == ["display", "update"]
    assert calls[0][1]["text/plain"] == f"tokenizing  {LINE.strip()}"
    assert '<progress value="0.380">' in calls[0][1]["text/html"]
    assert "<progress >" in calls[1][1]["text/html"]
    del shell.kernel
    assert isinstance(make_progress(True, "tokenizing"), LineProgress)


def test_logs_get_a_line_every_30_seconds() -> None:
    stream = StringIO()
    progress = PlainProgress(stream)
    for seconds in (1, 29, 31, 40, 62):
        progress.update(shown(elapsed_seconds=seconds))
    lines = stream.getvalue().splitlines()
    assert [line[7:] for line in lines] == [
        f" {shown(elapsed_seconds=seconds).line()}" for seconds in (31, 62)
    ]
    assert shown().line() == LINE


def test_json_progress_writes_a_status_every_second() -> None:
    stream = StringIO()
    progress = JsonProgress(stream)
    for seconds in (0.1, 0.9, 1.2):
        progress.update(shown(elapsed_seconds=seconds))
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [record["elapsed_seconds"] for record in records] == [0.1, 1.2]
    assert {record["type"] for record in records} == {"status"}


@pytest.mark.parametrize(
    "text",
    [
        "\u3000吾輩は猫である。",  # a paragraph in Japanese begins with a wide space
        "क्\u200dष और श्रीमान्\u200cजी",  # joiners decide how letters look
        "10\u00a0km, z.\u202fB. 5\u2009€",
        "两种语言\n一种输出",
    ],
)
def test_ordinary_text_of_any_language_is_printed_as_it_is(text: str) -> None:
    assert escape(text) == text
    assert quote(text) == "'" + text.replace("\n", "\\n") + "'"


@pytest.mark.parametrize(
    "hidden", ["\x1b", "\x9b", "\u202e", "\u2066", "\u2028", "\ufeff", "\u200b"]
)
def test_what_acts_on_a_terminal_or_hides_is_escaped(hidden: str) -> None:
    assert hidden not in escape(f"a{hidden}b")
    assert hidden not in quote(f"a{hidden}b")
