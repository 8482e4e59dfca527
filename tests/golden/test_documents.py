"""Words that must not change by accident: the reference of the command line, links, commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
from support import ROOT

from penstok.cli import app

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
CLI_PAGE = ROOT / "docs" / "reference" / "cli.md"


def cli_reference() -> str:
    """Write the command line as a page."""
    group: Any = typer.main.get_command(app)
    lines = ["# Command line", ""]
    lines += ["Generated from the program; `pytest tests/golden --update-golden` rewrites it.", ""]
    lines += ["Counts take K M G (powers of ten), sizes also KiB MiB GiB. Standard output is data,"]
    lines += ["standard error is narration. The flags of `tokenize` can be set by the environment:"]
    lines += ["`PENSTOK_VAL_FRACTION=0.01` is `--val-fraction 0.01`.", ""]
    for name, command in group.commands.items():
        purpose, _, examples = command.help.partition("\n\n")
        lines += [f"## penstok {name}", "", purpose, ""]
        commands = " ".join(examples.removeprefix("Examples:").split()).split(" · ")
        lines += ["```", *(f"$ {one.strip()}" for one in commands), "```", ""]
        lines += ["| flag | default | |", "|---|---|---|"]
        for parameter in command.params:
            names = ", ".join(f"`{flag}`" for flag in parameter.opts)
            if parameter.param_type_name == "argument":
                names = f"`{parameter.metavar}`"
            default = parameter.default
            unset = default is None or default is False or default is ...
            shown = "" if unset else f"`{default}`"
            text = " ".join((parameter.help or "").split()).replace("|", "\\|")
            lines.append(f"| {names} | {shown} | {text} |")
        lines += ["", command.epilog, ""]
    return "\n".join(lines)


def test_the_cli_reference_is_what_the_program_says(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        CLI_PAGE.write_text(cli_reference(), encoding="utf-8")
    assert CLI_PAGE.read_text(encoding="utf-8") == cli_reference()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_exit_code_is_documented() -> None:
    from penstok import errors

    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    for name in errors.__all__:
        assert f"| {getattr(errors, name).exit_code} |" in page


def test_every_count_is_documented() -> None:
    from dataclasses import fields

    from penstok.types import Counts

    pages = [ROOT / "docs" / "reference" / name for name in ("errors.md", "manifest.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for field in fields(Counts):
        assert f"`{field.name}`" in text
