"""The installed wheel in a clean environment, and the README's commands exactly as printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from support import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.thorough]


def run(
    command: str, folder: Path, path: Path | None = None, variables: dict[str, str] | None = None
) -> str:
    """Run a line as a shell would, with `path` first in PATH."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PENSTOK_")
    }
    environment |= {"PYTHON": sys.executable} | (variables or {})
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a newcomer has: the files of the project, nothing that was built or installed."""
    folder = tmp_path_factory.mktemp("clone")
    names = (
        "src",
        "examples",
        "docs",
        "pyproject.toml",
        "Makefile",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CMakeLists.txt",
    )
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so")
            )
        else:
            shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def installed(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean environment with the built wheel and its dependencies alone."""
    wheels = tmp_path_factory.mktemp("wheels")
    run(f"{sys.executable} -m build --wheel --outdir {wheels} .", clone)
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    (wheel,) = wheels.glob("*.whl")
    run(f"{folder}/bin/pip install --quiet {wheel}", folder)
    return folder / "bin"


def test_the_wheel_runs_the_commands_of_the_readme(
    installed: Path, clone: Path, tmp_path: Path
) -> None:
    shutil.copytree(clone / "examples", tmp_path / "examples")
    commands = [
        line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()
    ]
    ours = [command for command in commands if command.startswith("penstok ")]
    assert len(ours) == 7
    said = [run(command, tmp_path, installed) for command in ours]
    assert said[0].splitlines()[-1] == "next: penstok verify tokens/"
    assert "first  " in said[1]
    assert len(said[2]) > 80
    assert said[3].startswith("tokens/ is whole: ")
    assert said[5].startswith("part 2/2 is done: ")
    assert said[6].splitlines()[-1] == "next: penstok verify shards/"
    shards = sorted((tmp_path / "shards").glob("train_shard_*.bin"))
    whole = b"".join(shard.read_bytes() for shard in shards)
    assert whole == (tmp_path / "tokens" / "train.bin").read_bytes()
    (snippet,) = blocks("python")
    (tmp_path / "snippet.py").write_text(snippet)
    printed = run("python snippet.py", tmp_path, installed)
    assert re.fullmatch(r"\d+ uint16\n", printed)


def test_without_a_compiler_the_install_works_and_says_so(clone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=True)
    broken = {"CC": "/nonexistent", "CXX": "/nonexistent"}
    copied = shutil.copytree(
        clone, tmp_path / "clone", ignore=shutil.ignore_patterns("build", ".venv")
    )
    run(f"{folder}/bin/pip install --quiet {copied}", tmp_path, variables=broken)
    (tmp_path / "text.txt").write_text("some text")
    said = run("penstok tokenize text.txt", tmp_path, folder / "bin")
    assert "1 x fastokens" in said or "2 x fastokens" in said
    assert "the kernel is not part of this installation" in said
    command = "penstok tokenize text.txt -o other --engine kernel"
    done = subprocess.run(
        [folder / "bin" / command.split()[0], *command.split()[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pass `--engine auto`" in done.stderr


def test_the_wheel_has_its_vocabulary_licence_and_types(installed: Path) -> None:
    (package,) = installed.parent.glob("lib/python*/site-packages/penstok")
    assert (package / "tokenizers" / "vocab" / "gpt2.tiktoken").exists()
    assert "MIT License" in (package / "tokenizers" / "vocab" / "LICENSE.gpt2").read_text()
    assert (package / "py.typed").exists()
    assert list(package.glob("_kernel*.so"))


def test_a_script_without_a_main_guard_works(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text")
    (tmp_path / "script.py").write_text(
        "import penstok\nprint(penstok.tokenize('text.txt', 'out').counts['documents'])\n"
    )
    assert run("python script.py", tmp_path, installed) == "1\n"


def test_make_demo_runs_in_a_clean_clone(clone: Path) -> None:
    first = blocks("console")[0].splitlines()
    assert first == ["$ make demo", "$ make test"]
    said = run("make demo", clone)
    assert "wrote train.bin" in said
    assert "both are yours" in said
    assert (clone / "demo" / "python" / "train.bin").stat().st_size > 5_000_000


def test_help_is_quick_to_read_and_to_come(installed: Path, tmp_path: Path) -> None:
    said = run("penstok tokenize --help", tmp_path, installed)
    for words in ("Examples:", "--val-fraction", "Exit codes:", "130"):
        assert words in said
    heavy = run('python -X importtime -c "import penstok.cli" 2>&1', tmp_path, installed)
    for module in ("numpy", "tiktoken", "fastokens"):
        assert not re.search(rf"\| +{module}$", heavy, re.MULTILINE)
