"""Runs what a page of the documentation shows: console and Python blocks, in order, in a folder.

A line of a ```console block that begins with `$ ` is a command, and must end with exit code 0;
other lines are its output and are not compared, and lines with `% ` are for other programs. A
```python block is run in this process, with the names of the blocks before it. Other blocks are not
run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import EXAMPLES, ROOT

DOCS = ROOT / "docs"
# Decisions are a record of their time.
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.parent != DOCS / "adr")

_BLOCK = re.compile(r"^( *)```([a-z]*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
# What only a shell understands.
_SHELL = re.compile(r"[|&;<>$`*?#]|^[A-Z_]+=")

# Why a command is not run; the first that matches counts. What is run elsewhere names its test.
NOT_RUN = {
    r"pip (install|download|uninstall)": "installs packages: tests/e2e/test_readme.py",
    r"python3 -m venv|source ": "creates environments: tests/e2e/test_readme.py",
    r"make ": "builds the project: tests/e2e/test_readme.py",
    r"pytest |python tests/|cmake ": "for work on the kernel, minutes to hours: `make soak`",
    r"penstok .*--executor ray": "needs a cluster: tests/e2e/test_cluster.py",
    r"penstok .* -t [A-Z]\w+/": "needs the Hugging Face hub: tests/e2e/test_tokenizers.py",
}


@dataclass(frozen=True)
class Block:
    """One code block.

    Attributes:
        kind: The word after the backticks.
        text: What is in it.
        line: The line of the page on which it begins.
    """

    kind: str
    text: str
    line: int

    @property
    def commands(self) -> list[str]:
        """What is typed; a line that ends with a backslash continues."""
        joined = self.text.replace("\\\n", " ")
        return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]


def read_blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page, without their indentation."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            found[2],
            re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE),
            text.count("\n", 0, found.start()) + 1,
        )
        for found in _BLOCK.finditer(text)
    ]


def why_not_run(command: str) -> str | None:
    """Return the reason why a command is not run; None if it is."""
    reasons = (reason for pattern, reason in NOT_RUN.items() if re.match(pattern, command))
    return next(reasons, None)


def prepare(folder: Path) -> None:
    """Put into a folder what every page can count on."""
    shutil.copytree(EXAMPLES, folder / "examples" / "corpus")
    shutil.copytree(EXAMPLES, folder / "corpus")
    for script in (ROOT / "examples").glob("*.*"):
        shutil.copy(script, folder / "examples")
    programs = folder / ".bin"
    programs.mkdir()
    for name, words in (("penstok", " -m penstok"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        program.chmod(0o755)


def run_page(page: Path, folder: Path) -> int:
    """Run the blocks of a page; return how many commands and Python blocks were run.

    Raises:
        AssertionError: If a command fails; the message has its line and what it said.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    num_run = 0
    for block in read_blocks(page):
        where = f"{page.name}:{block.line}"
        if block.kind == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
            num_run += 1
        elif block.kind == "console":
            for command in block.commands:
                if why_not_run(command) is None:
                    run_command(command, folder, where)
                    num_run += 1
    return num_run


def run_command(command: str, folder: Path, where: str) -> str:
    """Run a command as typed, `penstok` in a warm interpreter; return what it printed."""
    words: list[str] | None = None
    if not _SHELL.search(command):
        words = shlex.split(command)
    is_ours = words is not None and words[0] == "penstok"
    done = subprocess.run(
        [sys.executable, "-m", "penstok", *words[1:]]
        if is_ours and words is not None
        else ["/bin/bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / '.bin'}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{where}: `{command}` ended with {done.returncode}\n{done.stdout}"
    return done.stdout
