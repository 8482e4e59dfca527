"""The shape of the code: who may import, print, open and write."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT

PACKAGE = ROOT / "src" / "penstock"
# The kernel folder is C++; its generator is no part of the package.
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "kernel" not in path.parts)
TOUCHING = (
    *("os.open(", " open(", ".open(", ".write_bytes(", ".write_text(", ".touch(", ".mkdir("),
    *(".unlink(", ".rename(", ".replace(temporary", "os.replace(", "os.remove(", ".rmdir("),
)
STAGES = ("readers", "cuts", "engines", "splits", "repair", "segments", "layout", "decompress")
FLOOR = {
    "csv_header",
    "csv_records",
    "faults",
    "json_lines",
    "object_paths",
    "types",
    "errors",
    "inputs",
    "quantities",
    "resources",
    "row_files",
    "sources",
    "tokenizer",
    "vocabulary",
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")


def iter_imports(path: Path) -> Iterator[str]:
    """Yield what a module imports of the package when it runs (not for types alone)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in for_types:
            parts = node.module.split(".")
            if parts[0] == "penstock" and len(parts) > 1:
                yield parts[1]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_stages_do_not_import_each_other(path: Path) -> None:
    stage = name_of(path).split(".")[0]
    if stage in STAGES:
        assert set(iter_imports(path)) <= FLOOR | {stage}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    runs = {"pipeline", "distributed", "preview", "training", "verification"}
    layers = [{"cli"}, {"api"}, runs, {"job"}, {"executors"}, {"worker"}]
    module = name_of(path).split(".")[0]
    own = next((idx for idx, layer in enumerate(layers) if module in layer), len(layers))
    if module not in ("__init__", "__main__"):
        assert not set(iter_imports(path)) & set().union(*layers[:own])


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_store_writes_and_only_the_sources_read(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    name = name_of(path)
    output = {
        "store",
        "places.folder",
        "places.objects",
        "segments",
        "ledger",
        "checkpoints",
        "lock",
        "verification.salvage",
    }
    inputs = {"examine", "inputs", "streams", "ring"}
    allowed = output | inputs | {"api"}  # the last only says `penstock.open(...)`
    if name not in allowed:
        for call in TOUCHING:
            assert call not in source.replace("def open(", ""), f"{name} uses {call}"


def test_the_architecture_page_lists_every_module() -> None:
    page = (ROOT / "docs" / "concepts" / "architecture.md").read_text(encoding="utf-8")
    for path in MODULES:
        module = path.relative_to(PACKAGE)
        if not module.name.startswith("_") and module.parts[0] != "cli":
            assert f"`{module.as_posix()}`" in page, f"{module} is not on the page"
