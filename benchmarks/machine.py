"""Where and on what a benchmark ran, so that its figures can be judged later."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from penstok.engines.kernel import available_isas

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("penstok", "fastokens", "gigatoken", "tiktoken", "numpy")


def machine_facts() -> dict[str, Any]:
    """Return what the machine is and how busy it was, but not its name."""
    return {
        "cpu": _cpu_model(),
        "isas": available_isas(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": dict(_iter_versions()),
    }


def _iter_versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        # Not all of them are installed for every benchmark.
        with suppress(PackageNotFoundError):
            yield name, version(name)


def find_commit() -> str:
    """Return the commit, marked if the tree differs from it; `unknown` outside a clone."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}-dirty" if changed else commit


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
