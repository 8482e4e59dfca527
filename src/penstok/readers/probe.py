"""From paths to sources: what each input is, its format and encoding, and whether it can be used.

It reads a sample of an input, the header of a table, the metadata of a file of rows, and no
documents. `inputs.discovery` lists the paths; the plan takes the sources.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from penstok.errors import InputError, NotTextError, PenstokError
from penstok.inputs.changes import refuse_missing
from penstok.inputs.content import choose_encoding
from penstok.inputs.discovery import list_inputs
from penstok.inputs.encodings import decode_sample
from penstok.inputs.probe import probe_content
from penstok.inputs.streams import STANDARD_INPUT
from penstok.readers.formats import DATASET_SUFFIXES, check_start, find_format
from penstok.storage import is_url
from penstok.types import UTF_8

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from penstok.inputs.discovery import InputPath, OutputRules
    from penstok.types import InputFormat, Source

__all__ = ["CsvOptions", "find_sources", "probe_recorded_source", "probe_source"]

_NUM_THREADS = 8
_HEAD_BYTES = 1 << 12
_MAX_LISTED = 3


class CsvOptions(NamedTuple):
    """How CSV is written, as far as the user said so; an empty delimiter is that of the format."""

    delimiter: str = ""
    no_header: bool = False


_NO_OPTIONS = CsvOptions()


def find_sources(
    inputs: Sequence[str],
    *,
    outputs: OutputRules,
    on_unusable: Callable[[str, PenstokError], None],
    input_format: InputFormat | None = None,
    text_key: str = "text",
    csv: CsvOptions = _NO_OPTIONS,
    encoding: str = UTF_8,
) -> tuple[list[Source], dict[str, str]]:
    """List and probe the files behind `inputs`, in order.

    Returns:
        The sources; and what was found in folders and is not text, with the reasons.

    Args:
        inputs: Files, folders, globs and URLs; `-` alone is standard input.
        outputs: Which files are not read because Penstok wrote them.
        on_unusable: Called with a path that cannot be used, and why; it may raise.
        input_format: The format of every file; None to detect each.
        text_key: The column that tables must have.
        csv: How CSV is written.
        encoding: The encoding of all text, or `auto` to detect that of each file.
    """
    paths = list_inputs(inputs, outputs=outputs, dataset_suffixes=DATASET_SUFFIXES)
    if paths[0].path == STANDARD_INPUT:
        return [probe_source(STANDARD_INPUT, input_format, text_key, csv, encoding)], {}
    sources: list[Source] = []
    ignored: dict[str, str] = {}
    # By folder, what was ignored in it; None once something in it was not.
    only_ignored: dict[str, dict[str, str] | None] = {}
    with closing(_iter_probed(paths, input_format, text_key, csv, encoding)) as probed:
        for found, result in probed:
            if found.folder and isinstance(result, NotTextError):
                ignored[found.path] = result.what
                in_folder = only_ignored.setdefault(found.folder, {})
                if in_folder is not None and len(in_folder) < _MAX_LISTED:
                    in_folder[found.path] = result.what
                continue
            only_ignored[found.folder] = None
            if isinstance(result, InputError):
                on_unusable(found.path, result)
            else:
                sources.append(result)
    for folder, reasons in only_ignored.items():
        if reasons is not None:
            on_unusable(folder, _no_text(folder, reasons))
    return sources, ignored


def _no_text(folder: str, reasons: dict[str, str]) -> InputError:
    listed = "; ".join(f"`{path}`: {reason}" for path, reason in reasons.items())
    return InputError(
        f"no text in the folder `{folder}`: {listed}",
        where="INPUT",
        next_step="pass a folder with text files, or name the files to read",
    )


def probe_source(
    path: str,
    input_format: InputFormat | None,
    text_key: str,
    csv: CsvOptions = _NO_OPTIONS,
    encoding: str = UTF_8,
    *,
    is_recorded: bool = False,
) -> Source:
    """Probe one input.

    Args:
        path: A file, a URL, or `-` for standard input.
        input_format: Its format; None to detect it.
        text_key: The column that a table must have.
        csv: How CSV is written.
        encoding: The encoding of its text, or `auto` to detect it.
        is_recorded: An earlier run has read it with this encoding, so nobody needs to be asked.

    Raises:
        InputError: If it cannot be read, or is not what it should be.
    """
    source, sample = probe_content(path)
    head = sample.head
    found = find_format(path, head, input_format)
    source = replace(source, format=found.name, is_empty=not head)
    if head and not found.is_rows:
        chosen = encoding if is_recorded else choose_encoding(path, sample, encoding)
        if chosen != UTF_8:
            source = replace(source, encoding=chosen, is_stream=True, content_bytes=0)
            head = decode_sample(head, chosen)
    check_start(found, path, head[:_HEAD_BYTES], input_format)
    if found.is_sequential:
        source = replace(source, is_stream=True, content_bytes=0)
    if found.has_delimiter:
        source = replace(source, delimiter=csv.delimiter, num_columns=int(csv.no_header))
    return found.probe(source, text_key) if head else source


def probe_recorded_source(
    path: str, input_format: InputFormat, text_key: str, csv: CsvOptions, encoding: str
) -> Source:
    """Probe an input that an earlier run used.

    Raises:
        InputError: If it is missing, or not what it should be.
    """
    refuse_missing(path)
    return probe_source(path, input_format, text_key, csv, encoding, is_recorded=True)


def _iter_probed(
    paths: Sequence[InputPath],
    input_format: InputFormat | None,
    text_key: str,
    csv: CsvOptions,
    encoding: str,
) -> Generator[tuple[InputPath, Source | InputError]]:
    """Probe inputs in order, several remote ones at once: 10,000 would take half an hour."""

    def probe(found: InputPath) -> Source | InputError:
        if found.problem is not None:
            return found.problem
        try:
            return probe_source(found.path, input_format, text_key, csv, encoding)
        except InputError as error:
            return error

    if not any(is_url(found.path) for found in paths):
        yield from zip(paths, map(probe, paths), strict=True)
        return
    pool = ThreadPoolExecutor(_NUM_THREADS)
    try:
        yield from zip(paths, pool.map(probe, paths), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)
