"""The kernel's own fuzzer under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import EXAMPLES, ROOT

pytestmark = pytest.mark.slow


def run(*command: str | Path) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_no_read_or_write_outside_a_buffer(tmp_path: Path) -> None:
    tools = Path(sys.executable).parent
    run(
        *(tools / "cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}",
        "-DPENSTOCK_KERNEL_TESTS=ON",
        "-DPENSTOCK_KERNEL_SANITIZE=ON",
        "-DPENSTOCK_KERNEL_PYTHON=OFF",
    )
    run(tools / "cmake", "--build", tmp_path)
    run(tools / "ctest", "--test-dir", tmp_path, "--output-on-failure")
    fuzzer = tmp_path / "src" / "penstock" / "kernel" / "tests" / "fuzz_kernel"
    ranks = ROOT / "src" / "penstock" / "vocab" / "gpt2.tiktoken"
    run(fuzzer, ranks, "--rounds", "400", "--seed", "1", *sorted(EXAMPLES.glob("*.txt")))
