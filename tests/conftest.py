"""Fixtures for all layers: the program in a process of its own, and which tests are run when."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import hypothesis
import pytest
from support import IS_THOROUGH
from warm import WarmPopen

# As every other module knows it; `WarmPopen` starts most commands as it does.
ColdPopen = subprocess.Popen


class RunPenstok(Protocol):
    """Runs `penstok ARGUMENTS` in the test's folder and checks the exit code."""

    def __call__(
        self, *arguments: str | Path, exit_code: int = 0
    ) -> subprocess.CompletedProcess[str]: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write what is seen to the golden files"
    )
    parser.addoption(
        "--update-tokenizers", action="store_true", help="compare all text, and write the table"
    )


# `make test` tries the same examples each time; `make test-all` more of them, and always others.
hypothesis.settings.register_profile("quick", deadline=None, derandomize=True)
hypothesis.settings.register_profile("thorough", deadline=None)


def pytest_configure() -> None:
    hypothesis.settings.load_profile("thorough" if IS_THOROUGH else "quick")
    # The program, and its workers, as forks of a warm interpreter.
    subprocess.Popen = WarmPopen  # type: ignore[misc]


@pytest.fixture(autouse=True)
def _cold_start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start programs as a user does, in a test with the mark `cold`."""
    if request.node.get_closest_marker("cold"):
        monkeypatch.setattr(subprocess, "Popen", ColdPopen)


@pytest.fixture
def penstok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPenstok:
    """Return the program; most tests use its reference engine, which starts fastest."""
    monkeypatch.chdir(tmp_path)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PENSTOK_")
    }
    environment |= {"PENSTOK_ENGINE": "tiktoken", "COLUMNS": "100"}

    def run(*arguments: str | Path, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "penstok", *map(str, arguments)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=300,
            check=False,
        )
        assert done.returncode == exit_code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return run
