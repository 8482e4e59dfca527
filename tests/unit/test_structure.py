"""The shape of the code, read from the folders: who may import, print, open and write."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT

PACKAGE = ROOT / "src" / "penstok"
PAGE = ROOT / "docs" / "concepts" / "architecture.md"
# The kernel folder is C++; its generators are no part of the package.
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "kernel" not in path.parts)
TOUCHING = (
    *("os.open(", " open(", ".open(", ".write_bytes(", ".write_text(", ".touch(", ".mkdir("),
    *(".unlink(", ".rename(", ".replace(temporary", "os.replace(", "os.remove(", ".rmdir("),
)


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")


def package_of(path: Path) -> str:
    """Return the package a module is in; a module at the top stands for itself."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def iter_imports(path: Path) -> Iterator[str]:
    """Yield the packages that a module imports, for types alone as well."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            parts = module.split(".")
            if parts[0] == "penstok" and len(parts) > 1:
                yield parts[1]


def read_layers() -> list[set[str]]:
    """Read the order of the packages from the architecture page."""
    line = re.search(r"^cli ─► .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    return [set(re.split(r",\s*", layer.strip())) for layer in line[0].split("─►")]


def test_the_page_shows_every_package() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set().union(*read_layers()) - {"api", "types", "errors"} == folders - {"kernel"}


def test_few_modules_are_at_the_top() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 9


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_to_the_right(path: Path) -> None:
    layers = read_layers()
    level = {name: idx for idx, layer in enumerate(layers) for name in layer}
    own = package_of(path)
    if own in ("__init__", "__main__"):
        return
    # What is at the top of the package and on no layer is for all.
    here = level.get(own, len(layers) - 1)
    wrong = [
        name
        for name in iter_imports(path)
        if name != own and level.get(name, len(layers)) <= here and name not in layers[-1]
    ]
    assert wrong == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_output_and_inputs_touch_files(path: Path) -> None:
    if package_of(path) in ("inputs", "output", "storage", "api"):  # `penstok.open(...)` in the api
        return
    if name_of(path) == "worker.memory":  # reads /proc
        return
    source = path.read_text(encoding="utf-8").replace("def open(", "")
    for call in TOUCHING:
        assert call not in source, f"{name_of(path)} uses {call}"


COMMAND = re.compile(
    r"(`|next: +|run )(penstok|ls|cat|mv|rm|mkdir|head|tail|touch|df|jq|tar|unzip|zstd|gzip|hf) "
)
# What is quoted, a constant, or by its nature harmless: from a registry, or a number.
HARMLESS = re.compile(
    r"(self\._)?quoted.*|shlex\.quote.*|_?[A-Z]+(\[0\])?"
    r"|encodings\[0\]|larger\[0\]\[0\]|position|when|eot_flag|outer|repo"
)


def iter_commands(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what is put into the commands in a module's messages."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                before += str(part.value)
                continue
            found = list(COMMAND.finditer(before))
            if found and "`" not in before[found[-1].end() :]:
                assert isinstance(part, ast.FormattedValue)
                yield node.lineno, ast.unparse(part.value)
            before += "NAME"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_names_in_commands_are_quoted(path: Path) -> None:
    # A name such as `$(reboot).txt` must not run when the command is pasted.
    assert not [each for each in iter_commands(path) if not HARMLESS.fullmatch(each[1])]
