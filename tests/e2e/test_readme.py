"""The installs and commands of the README exactly as printed, in a clone and empty environments."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import wheels
from pages import read_blocks
from support import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.thorough]


def run(
    command: str, folder: Path, path: Path | None = None, variables: dict[str, str] | None = None
) -> str:
    """Run a line as a shell would, with `path` first in PATH unless `variables` has another."""
    # A make that is started by another make says which folder it enters.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PENSTOK_", "MAKE", "MFLAGS"))
    }
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    environment |= {"PYTHON": sys.executable} | (variables or {})
    done = subprocess.run(
        command,
        shell=True,
        executable="/bin/bash",
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


README = read_blocks(ROOT / "README.md")


def commands() -> list[str]:
    return [command for block in README for command in block.commands]


INSTALL, *WHEEL = commands()[:3]
OURS = [command for command in commands() if command.startswith("penstok ")]
DEMO = commands()[7:9]


def empty_environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a newcomer has: the files of the project, nothing that was built or installed."""
    folder = tmp_path_factory.mktemp("clone")
    names = (
        "src",
        "examples",
        "tools",
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
def wheel(clone: Path) -> Path:
    """What `make wheel` builds."""
    build, install = WHEEL
    assert build == "make wheel"
    assert install == "pip install dist/penstok-*.whl"
    run(build, clone)
    (built,) = (clone / "dist").glob("penstok-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(clone: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel and its dependencies; no compiler was on PATH."""
    scripts = empty_environment(tmp_path_factory.mktemp("environment"))
    run(WHEEL[1], clone, variables={"PATH": str(scripts)})
    return scripts


def test_every_command_of_the_readme_is_run_here() -> None:
    assert [INSTALL, *WHEEL, *OURS[:4], *DEMO, *OURS[4:]] == commands()
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 180


def test_the_wheel_runs_the_commands_of_the_readme(
    installed: Path, clone: Path, tmp_path: Path
) -> None:
    shutil.copytree(clone / "examples", tmp_path / "examples")
    assert len(OURS) == 8
    said = [run(command, tmp_path, installed) for command in OURS]
    assert said[0].splitlines()[-1] == "next: penstok verify tokens/"
    assert "first  " in said[1]
    assert len(said[2]) > 80
    assert said[3].startswith("tokens/ is whole: ")
    assert said[4].startswith("wrote report.html")
    assert said[6].startswith("part 2/2 is done: ")
    assert said[7].splitlines()[-1] == "next: penstok verify shards/"
    shards = sorted((tmp_path / "shards").glob("train_shard_*.bin"))
    whole = b"".join(shard.read_bytes() for shard in shards)
    assert whole == (tmp_path / "tokens" / "train.bin").read_bytes()
    (snippet,) = (block.text for block in README if block.kind == "python")
    (tmp_path / "snippet.py").write_text(snippet)
    printed = run("python snippet.py", tmp_path, installed)
    assert re.fullmatch(r"\d+ uint16\n", printed)


def test_make_wheel_builds_for_other_machines(wheel: Path) -> None:
    python = f"cp3{sys.version_info.minor}"
    tag = f"{python}-{python}" if sys.version_info < (3, 12) else "cp312-abi3"
    assert wheel.name.startswith(f"penstok-0.1.0-{tag}-")
    assert wheels.find_faults(wheel) == []
    with zipfile.ZipFile(wheel) as archive:
        (module,) = (name for name in archive.namelist() if name.endswith(".so"))
        linked = wheels.linked_libraries(archive, module)
    assert not any(library.startswith("libstdc++") for library in linked)
    # The libraries of the machine that builds are as new as its compiler, so the tag is only as old
    # as their symbols allow: with GCC 12 and glibc 2.36, it is 2.17.
    (minor,) = re.findall(r"manylinux_2_(\d+)_", wheel.name)
    assert int(minor) <= int(platform.libc_ver()[1].split(".")[1])


def test_the_wheel_runs_in_an_empty_environment(wheel: Path) -> None:
    said = wheels.test(wheel, Path(sys.executable))
    assert f"Python 3.{sys.version_info.minor}" in said
    assert wheel.name in said


def test_the_first_command_installs_from_a_checkout(clone: Path, tmp_path: Path) -> None:
    assert INSTALL == "pip install ."
    copied = shutil.copytree(
        clone, tmp_path / "clone", ignore=shutil.ignore_patterns("build", ".venv", "dist")
    )
    scripts = empty_environment(tmp_path / "environment")
    run(INSTALL, copied, scripts)
    shutil.copytree(copied / "examples", tmp_path / "examples")
    shutil.rmtree(copied)  # the installed program does not need it
    said = run("penstok tokenize examples/corpus -o tokens", tmp_path, scripts)
    assert " x kernel" in said
    assert "is whole" in run("python -m penstok verify tokens", tmp_path, scripts)
    run("pip uninstall --yes penstok", tmp_path, scripts)
    assert not (scripts / "penstok").exists()


def test_without_a_compiler_the_install_works_and_says_so(clone: Path, tmp_path: Path) -> None:
    scripts = empty_environment(tmp_path / "environment")
    broken = {"CC": "/nonexistent", "CXX": "/nonexistent"}
    copied = shutil.copytree(
        clone, tmp_path / "clone", ignore=shutil.ignore_patterns("build", ".venv", "dist")
    )
    run(f"pip install --quiet {copied}", tmp_path, scripts, variables=broken)
    (tmp_path / "text.txt").write_text("some text")
    said = run("penstok tokenize text.txt", tmp_path, scripts)
    assert "1 x fastokens" in said or "2 x fastokens" in said
    assert "the kernel is not part of this installation" in said
    command = "penstok tokenize text.txt -o other --engine kernel"
    done = subprocess.run(
        [scripts / command.split()[0], *command.split()[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pass `--engine auto`" in done.stderr


def test_a_script_without_a_main_guard_works(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text")
    # With one document there would be a warning that val is empty.
    (tmp_path / "script.py").write_text(
        "import penstok\nmanifest = penstok.tokenize('text.txt', 'out', val_fraction=0)\n"
        "print(manifest.counts['documents'])\n"
    )
    assert run("python script.py", tmp_path, installed) == "1\n"


def test_make_demo_runs_in_a_clean_clone_and_says_where_the_command_is(clone: Path) -> None:
    demo, activate = DEMO
    assert demo == "make demo"
    said = run(demo, clone)
    assert "wrote train.bin" in said
    assert "both are yours" in said
    assert (clone / "demo" / "python" / "train.bin").stat().st_size > 5_000_000
    assert said.splitlines()[-1] == f"to have `penstok` on your path: {activate}"
    found = run(f"{activate} && command -v penstok && penstok --version", clone).splitlines()
    assert found == [f"{clone}/.venv/bin/penstok", "penstok 0.1.0"]


def test_help_is_quick_to_read_and_to_come(installed: Path, tmp_path: Path) -> None:
    said = run("penstok tokenize --help", tmp_path, installed)
    for words in ("Examples:", "--val-fraction", "Exit codes:", "130"):
        assert words in said
    heavy = run('python -X importtime -c "import penstok.cli" 2>&1', tmp_path, installed)
    for module in ("numpy", "tiktoken", "fastokens"):
        assert not re.search(rf"\| +{module}$", heavy, re.MULTILINE)
