"""Settings from a configuration file, the log of a run, and lists of names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from click.testing import CliRunner, Result

from penstok.cli import app, log
from penstok.cli.app import Command
from penstok.cli.commands import COMMANDS
from penstok.cli.flags import Argument, Flag
from penstok.cli.log import LoggedProgress
from penstok.data.settings import ShowSettings
from penstok.errors import InputError, UsageError
from penstok.inputs.discovery import read_list
from penstok.jobs.definition import SWITCH, settings_of
from penstok.jobs.progress import SilentProgress, Status
from penstok.jobs.settings import JobSettings
from penstok.training.settings import TrainingSettings
from penstok.verification.settings import VerifySettings

RECORDS = (JobSettings, TrainingSettings, VerifySettings, ShowSettings)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(log, "_handlers", [])
    yield tmp_path
    for handler in log._handlers:
        handler.close()


def invoke(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, arguments, env=environment, prog_name="penstok")


def parse(command: str, *arguments: str, **environment: str) -> dict[str, Any]:
    row = next(row for row in COMMANDS if row.name == command)
    with CliRunner().isolation(env=environment):
        return Command(row).make_context(command, list(arguments)).params


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_a_default_has_the_type_of_its_field(record: type[Any]) -> None:
    from penstok.storage import object_paths

    names = {"OutputPath": object_paths.OutputPath}
    hints = get_type_hints(record, localns=names)
    for each in settings_of(record):
        hint = hints[each.field]
        if each.choices:
            words = {word for part in (hint, *get_args(hint)) for word in get_args(part)}
            assert set(each.choices) <= words | set(get_args(hint))
            assert all(word in each.text for word in each.choices), each.name
        if not each.is_argument:
            assert (each.default is None) == (type(None) in get_args(hint))
            is_switch = each.kind is SWITCH
            assert is_switch == (hint is bool) == isinstance(each.default, bool)


def test_flags_variables_and_keywords_have_the_same_names() -> None:
    import inspect

    import penstok

    functions: dict[str, Callable[..., Any]] = {"tokenize": penstok.tokenize, "plan": penstok.plan}
    functions |= {"verify": penstok.verify}
    functions |= {"train-tokenizer": penstok.train_tokenizer, "show": penstok.show}
    for row in COMMANDS:
        if row.name in functions:
            keywords = set(inspect.signature(functions[row.name]).parameters)
            settings = [each.setting for each in Command(row).flags]
            assert {each.name for each in settings if each.in_python} <= keywords
            extra = {"progress", "unit_bytes", "block_bytes"}
            assert keywords - {each.name for each in settings} <= extra


def test_a_file_sets_flags_and_is_overridden(folder: Path) -> None:
    (folder / "p.toml").write_text(
        'inputs = ["a", "b"]\nmemory = "2GiB"\nseed = 3\nsample = "1MB"\noutput = "out"\n'
        "[tokenize]\nval-fraction = 0.25\nstrip = true\n[verify]\nfull = true\nseed = 9\n"
    )
    found = parse("tokenize", "--config", "p.toml", "--seed", "7", PENSTOK_VAL_FRACTION="0.5")
    assert found["inputs"] == ("a", "b")
    assert (found["memory_bytes"], found["strip"], str(found["output"])) == (2 << 30, True, "out")
    assert (found["seed"], found["val_fraction"]) == (7, 0.5)
    assert parse("tokenize", "c", "--config", "p.toml")["inputs"] == ("c",)
    assert parse("plan", "--config", "p.toml")["val_fraction"] == 0.25
    verify = parse("verify", "--config", "p.toml")
    assert (verify["output"], verify["full"], verify["seed"]) == ("out", True, 9)
    assert parse("tokenize", PENSTOK_CONFIG="p.toml")["seed"] == 3
    assert parse("train-tokenizer", "--config", "p.toml")["sample_bytes"] == 10**6


def test_a_project_file_has_its_own_table(folder: Path) -> None:
    project = folder / "pyproject.toml"
    project.write_text('[project]\nname = "x"\n[tool.penstok]\nengine = "tiktoken"\n')
    assert parse("tokenize", "a", "--config", "pyproject.toml")["engine"] == "tiktoken"
    # It is read only if it is named.
    assert parse("tokenize", "a")["engine"] == "auto"
    for content in ('[project]\nname = "x"\n', "tool = 7", "[tool]\npenstok = 7"):
        project.write_text(content)
        done = invoke("plan", "a", "--config", "pyproject.toml")
        assert done.exit_code == 2
        assert "no table `[tool.penstok]`" in done.stderr


@pytest.mark.parametrize(
    ("content", "what", "where"),
    [
        ("memry = 1", "unknown key `memry`; did you mean `memory`?", "p.toml"),
        ("[tokenise]", "unknown table `[tokenise]`; did you mean `tokenize`?", "p.toml"),
        ("[verify]\nstrip = true", "unknown key `[verify] strip`", "p.toml"),
        ('config = "p.toml"', "unknown key `config`", "p.toml"),
        ('strip = "yes"', "`yes` is text, not true or false", "p.toml, strip"),
        ('val-fraction = "0.1"', "`0.1` is text, not a number", "p.toml, val-fraction"),
        ("val-fraction = 2", "the val fraction must be between", "p.toml, val-fraction"),
        ("[tokenize]\nseed = -1", "the seed `-1` is out of range", "p.toml, [tokenize] seed"),
        (
            "val_fraction = 0.1\nval-fraction = 0.2",
            "the same key is set twice: `val_fraction` and `val-fraction`",
            "p.toml, val-fraction",
        ),
        ("seed = 1.5", "`1.5` is not a whole number", "p.toml, seed"),
        ('memory = "much"', "`much` is not a size such as", "p.toml, memory"),
        ("text-key = 5", "`5` is not text", "p.toml, text-key"),
        ("inputs = [1]", "`1` is not a path or a list of paths", "p.toml, inputs"),
        ('[tokenize]\neot = "x"', "unknown value `x`; known: append", "p.toml, [tokenize] eot"),
        ("a = 1\nb = = 2", "the configuration is not valid TOML: ", "p.toml, line 2, column 5"),
        ("when = 2020-01-01", "unknown key `when`", "p.toml"),
    ],
)
def test_mistakes_in_a_file_are_usage_errors(
    folder: Path, content: str, what: str, where: str
) -> None:
    (folder / "p.toml").write_text(content)
    done = invoke("tokenize", "a", "--config", "p.toml")
    assert done.exit_code == 2
    first, second, third = done.stderr.splitlines()
    assert first.startswith(f"error: {what}")
    assert second == f"  where: {where}"
    assert third.startswith("  next:  ")


def test_a_file_that_is_missing_or_not_utf8_is_a_usage_error(folder: Path) -> None:
    done = invoke("tokenize", "a", "--config", "p.toml")
    assert "the configuration cannot be read: No such file" in done.stderr
    (folder / "p.toml").write_bytes(b'output = "\xff"')
    done = invoke("tokenize", "a", "--config", "p.toml", "--json")
    assert (done.exit_code, '"type": "error"' in done.stdout) == (2, True)
    assert "the configuration is not UTF-8\n  where: p.toml, byte 10\n" in done.stderr
    (folder / "p.toml").write_bytes("\ufeffseed = 3".encode())
    assert parse("tokenize", "a", "--config", "p.toml")["seed"] == 3


def test_a_log_gets_what_is_said_with_the_time(folder: Path) -> None:
    done = invoke("tokenize", "missing.txt", "--log", "run.log")
    assert done.exit_code == 4
    lines = (folder / "run.log").read_text().splitlines()
    stamp = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
    assert all(stamp.match(line) for line in lines)
    assert [line[24:] for line in lines][1:] == done.stderr.splitlines()
    assert lines[0][24:].startswith("$ penstok")
    invoke("verify", "missing", "--log", "run.log", "-q")
    assert (folder / "run.log").read_text().splitlines()[: len(lines)] == lines


def test_a_log_that_cannot_be_opened_is_an_error_before_the_work(folder: Path) -> None:
    done = invoke("tokenize", "missing.txt", "--log", "no/such/run.log")
    assert done.exit_code == 2
    assert "the log cannot be written: No such file or directory" in done.stderr
    assert "where: --log no/such/run.log" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ("tokenize in/a.txt --log in/a.txt", "is an input"),
        ("tokenize in/a.txt -n --log in/a.txt", "is an input"),
        ("tokenize in/a.txt --log link.txt", "is an input"),
        ("plan in --log in/new.log", "lies in an input folder"),
        ("plan in/b --log hard.txt", "is an input"),
        ("plan linked --log in/b/new.log", "lies in an input folder"),
        ("plan in/*.txt --log in/a.txt", "is an input"),
        ("plan --files-from list --log in/a.txt", "is an input"),
        ("plan --files-from list --log list", "a file that this command reads"),
        ("plan --files-from /dev/null --log in/a.txt", "may be one of the inputs"),
        ("plan in/a.txt -t tok.json --log tok.json", "a file that this command reads"),
        ("plan in/a.txt --config p.toml --log p.toml", "a file that this command reads"),
        ("plan --config p.toml --log in/a.txt", "is an input"),
        ("tokenize in/a.txt -o out --log out/run.log", "is the output, or lies in it"),
        ("tokenize in/a.txt -o out --log train.lnk", "is the output, or lies in it"),
        ("verify out --log out/.log", "is the output, or lies in it"),
        ("train-tokenizer in/a.txt -o tok.json --log tok.json", "is the output"),
    ],
)
def test_a_log_is_no_file_that_the_command_uses(folder: Path, arguments: str, what: str) -> None:
    (folder / "in/b").mkdir(parents=True)
    (folder / "out").mkdir()
    for name in ("in/a.txt", "in/b/b.txt", "out/train.bin", "tok.json"):
        (folder / name).write_text("text")
    (folder / "list").write_text("in/a.txt\n")
    (folder / "p.toml").write_text('inputs = "in/*.txt"')
    (folder / "link.txt").symlink_to("in/a.txt")
    (folder / "linked").mkdir()
    (folder / "linked/b").symlink_to("../in/b")
    (folder / "linked/loop").symlink_to("../linked")
    (folder / "hard.txt").hardlink_to(folder / "in/b/b.txt")
    (folder / "train.lnk").hardlink_to(folder / "out/train.bin")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = invoke(*arguments.split())
    assert done.exit_code == 2
    assert what in done.stderr.splitlines()[0]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_wrong_flag_is_logged_but_not_into_what_may_be_an_input(folder: Path) -> None:
    (folder / "a.txt").write_text("text")
    for _ in range(2):
        assert invoke("tokenize", "a.txt", "--log", "run.log", "--seed", "x").exit_code == 2
    assert (folder / "run.log").read_text().count("`x` is not a whole number") == 2
    assert invoke("tokenize", "a.txt", "--log", "a.txt", "--seed", "x").exit_code == 2
    assert (folder / "a.txt").read_text() == "text"


def test_a_log_is_not_the_file_that_standard_input_comes_from(folder: Path) -> None:
    (folder / "a.txt").write_text("text")
    code = "from penstok.cli import main; main()"
    with (folder / "a.txt").open() as stream:
        done = subprocess.run(
            [sys.executable, "-c", code, "plan", "-", "--log", "a.txt"],
            stdin=stream,
            capture_output=True,
            check=False,
        )
    assert (done.returncode, (folder / "a.txt").read_text()) == (2, "text")


def test_a_log_may_be_hidden_in_an_input_folder(folder: Path) -> None:
    (folder / "in").mkdir()
    invoke("plan", "in", "--log", "in/.log")
    assert "no files in the folder" in (folder / "in/.log").read_text()


def test_a_named_pipe_is_no_log(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    done = invoke("tokenize", "missing.txt", "--log", "pipe")
    assert done.exit_code == 2
    assert "the log cannot be written: this is a named pipe" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_full_disk_of_the_log_stops_nothing() -> None:
    code = "from penstok.cli import main; main()"
    arguments = ["tokenize", "missing.txt", "--log", "/dev/full"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert done.stderr == invoke("tokenize", "missing.txt").stderr


def test_progress_is_logged_every_30_seconds(folder: Path) -> None:
    log.open_log("run.log", "penstok tokenize a")
    status = Status(
        elapsed_seconds=0,
        done_bytes=1,
        total_bytes=2,
        text_bytes=1,
        num_units_done=1,
        num_units=2,
        num_tokens=1,
        num_documents=1,
        memory_bytes=1,
    )
    from penstok.types import replace

    with LoggedProgress(SilentProgress()) as progress:
        for seconds in (1, 29, 31, 40, 62):
            progress.update(replace(status, elapsed_seconds=seconds))
    lines = (folder / "run.log").read_text().splitlines()
    assert [line[24:27] for line in lines] == ["$ p", "50%", "50%", "50%"]
    log.open_log("run.jsonl", "penstok tokenize a")
    LoggedProgress(SilentProgress()).update(status)
    log.write("warning: a\nb")
    start, shown, said = map(json.loads, (folder / "run.jsonl").read_text().splitlines())
    assert (start["type"], start["command"]) == ("start", "penstok tokenize a")
    assert (shown["type"], shown["num_units_done"]) == ("status", 1)
    assert (said["type"], said["text"]) == ("message", "warning: a\nb")


def test_a_log_of_json_has_a_record_for_each_line_of_a_run(folder: Path) -> None:
    (folder / "a.txt").write_text("some text")
    for name in ("run.jsonl", "run.JSON"):
        assert invoke("tokenize", "a.txt", "-o", name + "-out", "--log", name).exit_code == 0
        assert invoke("verify", name + "-out", "-q", "--log", name).exit_code == 0
        assert invoke("tokenize", "missing.txt", "--log", name).exit_code == 4
        assert invoke("tokenize", "a.txt", "--seed", "x", "--log", name).exit_code == 2
        records = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        assert all(datetime.fromisoformat(record["time"]).tzinfo for record in records)
        started = [record["command"] for record in records if record["type"] == "start"]
        assert len(started) == 4
        assert all(command.startswith("penstok") for command in started)
        ends = [record for record in records if record["type"] in ("summary", "error")]
        assert [end["type"] for end in ends] == ["summary", "summary", "error", "error"]
        assert (ends[0]["counts"]["documents"], ends[1]["is_whole"]) == (1, True)
        assert (ends[2]["exit_code"], "missing.txt" in ends[2]["what"]) == (4, True)
        assert ends[3]["exit_code"] == 2
        assert not log.is_foreign(name)


def test_names_can_be_separated_by_nul_bytes(folder: Path) -> None:
    (folder / "list").write_bytes(b"#a\0 b \0c\nd\0\0")
    assert read_list("list", is_null=True) == ["#a", " b ", "c\nd"]
    (folder / "list").write_bytes(b"\0")
    with pytest.raises(InputError, match="names no input") as caught:
        read_list("list", is_null=True)
    assert caught.value.next_step == "write file names, with a NUL byte after each"
    with pytest.raises(UsageError, match="there is no list of inputs"):
        JobSettings(inputs=("a",), null=True)
    assert parse("tokenize", "-0", "--files-from", "list")["null"] is True


def test_usage_shows_arguments_and_flags_plainly() -> None:
    for row in COMMANDS:
        said = invoke(row.name, "--help").output
        assert "[[" not in said
        assert "<" not in said.replace("<|endoftext|>", "").replace("PENSTOK_<FLAG>", "")
        for each in Command(row).flags:
            assert isinstance(each, Flag | Argument)
            if isinstance(each, Flag) and not each.is_flag:
                assert f"{each.opts[-1]} {each.metavar}" in said
    assert invoke("tokenize", "--help").output.startswith("Usage: penstok tokenize [FLAGS] [INPUT]")
