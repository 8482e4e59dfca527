"""The kernel's own fuzzers: under AddressSanitizer and UndefinedBehaviorSanitizer, and on ARM."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import EXAMPLES, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


def run(*command: str | Path) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


TOOLS = Path(sys.executable).parent
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


def build(folder: Path, *options: str) -> None:
    run(
        *(TOOLS / "cmake", "-S", ROOT, "-B", folder, "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={TOOLS / 'ninja'}",
        "-DPENSTOK_KERNEL_TESTS=ON",
        "-DPENSTOK_KERNEL_PYTHON=OFF",
        *options,
    )
    run(TOOLS / "cmake", "--build", folder)


ARM_COMPILER, ARM_EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
needs_arm = pytest.mark.skipif(
    None in (shutil.which(ARM_COMPILER), shutil.which(ARM_EMULATOR)),
    reason="NOT TESTED: no compiler or emulator for ARM: run `make test-tools` as root",
)
RANKS = ROOT / "src" / "penstok" / "tokenizers" / "vocab" / "gpt2.tiktoken"


@needs_compiler
def test_no_read_or_write_outside_a_buffer(tmp_path: Path) -> None:
    build(tmp_path, "-DPENSTOK_KERNEL_SANITIZE=ON")
    fuzzers = tmp_path / "src" / "penstok" / "kernel" / "tests"
    examples = sorted(EXAMPLES.glob("*.txt"))
    run(fuzzers / "fuzz_kernel", RANKS, "--rounds", "400", "--seed", "1", *examples)
    run(fuzzers / "fuzz_characters", "--rounds", "60", "--seed", "1")
    run(fuzzers / "fuzz_json", "--rounds", "20000", "--seed", "1")
    run(fuzzers / "fuzz_csv", "--rounds", "50000", "--seed", "1")
    run(fuzzers / "fuzz_parquet", "--rounds", "10000", "--seed", "1")


@needs_compiler
def test_instruction_sets_share_no_code_by_name(tmp_path: Path) -> None:
    build(tmp_path)
    assert "100% tests passed" in run(TOOLS / "ctest", "--test-dir", tmp_path)


@needs_arm
def test_neon_gives_the_ids_of_the_reference(tmp_path: Path) -> None:
    build(
        tmp_path,
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_CXX_COMPILER={ARM_COMPILER}",
        "-DCMAKE_EXE_LINKER_FLAGS=-static",
    )
    fuzzers = tmp_path / "src" / "penstok" / "kernel" / "tests"
    examples = sorted(EXAMPLES.glob("*.txt"))
    fuzz = (ARM_EMULATOR, fuzzers / "fuzz_kernel", RANKS)
    assert ": neon," in run(*fuzz, "--rounds", "40", "--seed", "1", *examples)
    run(ARM_EMULATOR, fuzzers / "fuzz_characters", "--rounds", "20", "--seed", "1")
    run(ARM_EMULATOR, fuzzers / "fuzz_json", "--rounds", "5000", "--seed", "1")
    run(ARM_EMULATOR, fuzzers / "fuzz_csv", "--rounds", "5000", "--seed", "1")
    run(ARM_EMULATOR, fuzzers / "fuzz_parquet", "--rounds", "2000", "--seed", "1")
