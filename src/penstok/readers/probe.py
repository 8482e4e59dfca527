"""From paths to sources: what each input is, which format it has, and whether it can be used.

It reads the first bytes of an input, the header of a table, the metadata of a file of rows, and no
documents. `inputs.discovery` lists the paths; the plan takes the sources.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from penstok.errors import InputError, PenstokError
from penstok.inputs.changes import refuse_missing
from penstok.inputs.discovery import list_inputs
from penstok.inputs.probe import probe_content
from penstok.inputs.streams import STANDARD_INPUT
from penstok.readers.formats import DATASET_SUFFIXES, find_format
from penstok.storage import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from penstok.types import InputFormat, Source

__all__ = ["find_sources", "probe_recorded_source", "probe_source"]

_NUM_THREADS = 8


def find_sources(
    inputs: Sequence[str],
    *,
    is_output: Callable[[str], bool],
    on_unusable: Callable[[str, PenstokError], None],
    input_format: InputFormat | None = None,
    text_key: str = "text",
) -> list[Source]:
    """List and probe the files behind `inputs`, in order.

    Args:
        inputs: Files, folders, globs and URLs; `-` alone is standard input.
        is_output: Tells what this job writes; folders and globs leave it out.
        on_unusable: Called with a path that cannot be used, and why; it may raise.
        input_format: The format of every file; None to detect each.
        text_key: The column that tables must have.
    """
    paths = list_inputs(inputs, is_output=is_output, dataset_suffixes=DATASET_SUFFIXES)
    if paths == [STANDARD_INPUT]:
        return [probe_source(STANDARD_INPUT, input_format, text_key)]
    sources: list[Source] = []
    with closing(_iter_probed(paths, input_format, text_key)) as probed:
        for path, found in probed:
            if isinstance(found, InputError):
                on_unusable(path, found)
            else:
                sources.append(found)
    return sources


def probe_source(path: str, input_format: InputFormat | None, text_key: str) -> Source:
    """Probe one input.

    Args:
        path: A file, a URL, or `-` for standard input.
        input_format: Its format; None to detect it.
        text_key: The column that a table must have.

    Raises:
        InputError: If it cannot be read, or is not what it should be.
    """
    source, head = probe_content(path)
    found = find_format(path, head, input_format)
    source = replace(source, format=found.name, is_empty=not head)
    if found.is_sequential:
        source = replace(source, is_stream=True, content_bytes=0)
    return found.probe(source, text_key) if head else source


def probe_recorded_source(path: str, input_format: InputFormat, text_key: str) -> Source:
    """Probe an input that an earlier run used.

    Raises:
        InputError: If it is missing, or not what it should be.
    """
    refuse_missing(path)
    return probe_source(path, input_format, text_key)


def _iter_probed(
    paths: Sequence[str], input_format: InputFormat | None, text_key: str
) -> Generator[tuple[str, Source | InputError]]:
    """Probe inputs in order, several remote ones at once: 10,000 would take half an hour."""

    def probe(path: str) -> Source | InputError:
        try:
            return probe_source(path, input_format, text_key)
        except InputError as error:
            return error

    if not any(map(is_url, paths)):
        yield from zip(paths, map(probe, paths), strict=True)
        return
    pool = ThreadPoolExecutor(_NUM_THREADS)
    try:
        yield from zip(paths, pool.map(probe, paths), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)
