"""The guides for trainers: their commands and their readers run as printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import EXAMPLES, ROOT

from penstok.choices import FormatName
from penstok.cli.app import app

FOLDER = ROOT / "docs" / "guides" / "trainers"
PAGES = [*sorted(FOLDER.glob("*.md")), ROOT / "docs" / "guides" / "converting.md"]
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_the_page_shows_works(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOK_ENGINE", "tiktoken")
    Path("corpus").symlink_to(EXAMPLES)
    num_commands = 0
    for kind, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            assert len(block.splitlines()) <= 20
            exec(compile(block, page.name, "exec"), {})
            continue
        # A line that begins with `%` is for another program.
        for line in block.splitlines():
            if line.startswith("$ "):
                program, *arguments = shlex.split(line[2:])
                assert program == "penstok"
                done = CliRunner().invoke(app, arguments, prog_name="penstok")
                assert done.exit_code == 0, done.output
                num_commands += 1
    assert num_commands


def test_every_format_has_a_guide_and_a_page() -> None:
    from typing import get_args

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    guides = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for name in get_args(FormatName):
        assert f"| `{name}` |" in readme
        assert (ROOT / "docs" / "reference" / "formats" / f"{name}.md").exists()
        assert f"formats/{name}.md" in guides
