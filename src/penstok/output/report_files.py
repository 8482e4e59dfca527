"""The files of a report: the page, and the cache of its statistics.

A page replaces only an earlier page, unless that is asked for, and is never put into an output,
where `verify` would call it a foreign file. The cache is in the user's cache folder; it can be
deleted at any time. `reports` makes both contents.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstok.errors import ConflictError, UsageError, WriteError, quoted
from penstok.output.layout import MANIFEST, WORK
from penstok.output.store.folder import write_file
from penstok.output.write_errors import write_errors

if TYPE_CHECKING:
    from penstok.storage.object_paths import OutputPath

__all__ = ["PAGE_MARK", "load_cached", "refuse_page", "store_cached", "write_page"]

# Near the start of every page.
PAGE_MARK = '<meta name="generator" content="penstok">'
_HEAD_BYTES = 1024
_MAX_CACHED = 64


def refuse_page(page: Path, output: OutputPath, *, overwrite: bool) -> None:
    """Refuse a place that cannot be that of a page, before anything is read.

    Raises:
        UsageError: If it is inside an output, a folder, or in a folder that does not exist.
        ConflictError: If something else is there.
    """
    folder = page.parent
    is_inside = isinstance(output, Path) and output.resolve() in (*page.resolve().parents,)
    if is_inside or (folder / MANIFEST).exists() or (folder / WORK).exists():
        raise UsageError(
            f"`{page}` would be inside an output, where `penstok verify` reports foreign files",
            where="--page",
            next_step="choose another place, such as `-o report.html`",
        )
    if not folder.is_dir():
        raise UsageError(
            f"the folder `{folder}` does not exist",
            where="--page",
            next_step=f"`mkdir -p {quoted(folder)}`, or choose another `-o`",
        )
    if page.is_dir():
        raise UsageError(
            f"`{page}` is a folder", where="--page", next_step="pass a file: `-o report.html`"
        )
    if page.exists() and not overwrite and not _is_page(page):
        raise ConflictError(
            "the file exists already and is not a report",
            where=str(page),
            next_step="choose another `-o`, or pass `--overwrite` to replace it",
        )


def _is_page(page: Path) -> bool:
    try:
        with page.open("rb") as file:
            return PAGE_MARK.encode() in file.read(_HEAD_BYTES)
    except OSError:
        return False


def write_page(page: Path, text: str) -> None:
    """Write a page, whole or not at all."""
    write_file(page, text, lambda _: None)


def load_cached(name: str) -> bytes | None:
    """Return what is cached under a name; None if there is nothing, or it cannot be read."""
    try:
        return (_cache_folder() / name).read_bytes()
    except (OSError, RuntimeError):
        return None


def store_cached(name: str, content: bytes) -> None:
    """Cache something, and forget what is oldest; a cache that cannot be written is left alone."""
    with contextlib.suppress(OSError, RuntimeError, WriteError):
        folder = _cache_folder()
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / name, content.decode(), lambda _: None)
            names = sorted(folder.glob("statistics-*.json"), key=lambda path: path.stat().st_mtime)
            for path in names[:-_MAX_CACHED]:
                path.unlink(missing_ok=True)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstok"
