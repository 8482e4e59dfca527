"""`make demo`: the shipped corpus, then the Python library's own sources, a few tens of MB."""

from __future__ import annotations

import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path


def run(*command: str) -> None:
    """Show a command, then run it."""
    print(f"\n$ {shlex.join(('penstok', *command))}", flush=True)
    subprocess.run([sys.executable, "-m", "penstok", *command], check=True)


def library_globs() -> list[str]:
    """Name the sources of the Python library, without what was installed beside it."""
    library = Path(sysconfig.get_path("stdlib"))
    folders = sorted(path for path in library.iterdir() if path.is_dir())
    kept = [path for path in folders if path.name not in {"site-packages", "dist-packages"}]
    globs = [f"{path}/**/*.py" for path in kept if any(path.rglob("*.py"))]
    return [f"{library}/*.py", *globs]


def path_from_here(program: str) -> Path:
    """Return the folder of a program, as short as it can be typed here."""
    folder = Path(program).parent
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def main(folder: Path) -> None:
    """Tokenize both and look at the results."""
    examples, library = str(folder / "examples"), str(folder / "python")
    run("tokenize", "examples/corpus", "-o", examples, "--val-fraction", "0.1", "--overwrite")
    run("info", examples)
    run("show", examples, "--split", "val", "--at", "0", "--tokens", "60")
    print("\nand the sources of the Python library, one document per file:")
    sources = library_globs()
    print(
        f"\n$ penstok tokenize {sources[0]} ... -o {library} --encoding auto --overwrite",
        flush=True,
    )
    command = ["tokenize", *sources, "-o", library, "--docs-by", "file", "--encoding", "auto"]
    command += ["--overwrite"]
    subprocess.run([sys.executable, "-m", "penstok", *command], check=True)
    print(f"\nboth are yours: {examples}/ and {library}/")
    print(f"to have `penstok` on your path: source {path_from_here(sys.executable)}/activate")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
