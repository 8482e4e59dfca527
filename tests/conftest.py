"""Fixtures for all layers: the real program in a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest


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


# What takes minutes comes first, so that two processes end at about the same time.
_SLOW_FILES = ("test_kernel_sanitized.py", "test_readme.py", "test_fault_points.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in _SLOW_FILES)


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
