"""Words that must not change by accident: the reference of the command line, links, commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from python_source import SOURCE, python_source
from support import ROOT

from penstok.cli.app import Command
from penstok.cli.commands import COMMANDS
from penstok.cli.flags import GROUPS, Argument, Flag

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
CLI_PAGE = ROOT / "docs" / "reference" / "cli.md"


def cli_reference() -> str:
    """Write the command line as a page."""
    lines = ["# Command line", ""]
    lines += ["Generated from the program; `pytest tests/golden --update-golden` rewrites it.", ""]
    lines += ["Counts take K M G (powers of ten), sizes also KiB MiB GiB. Standard output is data,"]
    lines += ["standard error is narration. Each flag can be set by an environment variable:"]
    lines += ["`PENSTOK_VAL_FRACTION=0.01` is `--val-fraction 0.01`. `penstok --show-completion`"]
    lines += ["`bash`, `zsh` or `fish` prints a completion script; `penstok --help` says where it"]
    lines += ["goes.", ""]
    for row in COMMANDS:
        command = Command(row)
        lines += [f"## penstok {row.name}", "", row.summary, ""]
        lines += ["```", *(f"$ {example}" for example in command.examples), "```", ""]
        arguments = [each for each in command.flags if isinstance(each, Argument)]
        lines += ["| argument | |", "|---|---|"]
        lines += [f"| `{each.metavar}` | {each.text} |" for each in arguments]
        for group in GROUPS:
            flags = [each for each in command.flags if isinstance(each, Flag)]
            members = [each for each in flags if each.group == group]
            if members:
                lines += ["", f"| {group} | default | |", "|---|---|---|"]
                lines += map(flag_row, members)
        lines += ["", "| exit code | |", "|---|---|"]
        lines += [f"| {code} | {text} |" for code, text in row.exit_codes.items()]
        lines += [""]
    return "\n".join(lines)


def flag_row(flag: Flag) -> str:
    names = ", ".join(f"`{name}`" for name in flag.opts)
    value = "" if flag.is_flag else f" {flag.metavar}"
    default = "" if flag.default is None or flag.is_flag else f"`{flag.default}`"
    text = (flag.help or "").replace(f" (default: {flag.default})", "").replace("|", "\\|")
    return f"| {names}{value} | {default} | {text} |"


def test_the_cli_reference_is_what_the_program_says(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        CLI_PAGE.write_text(cli_reference(), encoding="utf-8")
    assert CLI_PAGE.read_text(encoding="utf-8") == cli_reference()


def test_the_python_functions_are_what_the_settings_say(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        SOURCE.write_text(python_source(), encoding="utf-8")
    assert SOURCE.read_text(encoding="utf-8") == python_source()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_exit_code_is_documented() -> None:
    from penstok import errors

    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    for error in (getattr(errors, name) for name in errors.__all__):
        if isinstance(error, type) and issubclass(error, errors.PenstokError):
            assert f"| {error.exit_code} |" in page


def test_every_count_is_documented() -> None:
    from dataclasses import fields

    from penstok.types import Counts

    pages = [ROOT / "docs" / "reference" / name for name in ("errors.md", "manifest.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for field in fields(Counts):
        assert f"`{field.name}`" in text
