"""From paths to sources: what each input is, its format and encoding, and whether it can be used.

It reads a sample of an input, the header of a table, the metadata of a file of rows, and no
documents. `inputs.discovery` lists the paths; the plan takes the sources.
"""

from __future__ import annotations

from contextlib import closing
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from penstok.errors import InputError, NotTextError, PenstokError, quoted
from penstok.inputs.archives import (
    is_tar,
    iter_members,
    no_files,
    refuse_broken_tar,
    refuse_piped_tar,
)
from penstok.inputs.changes import refuse_missing
from penstok.inputs.content import choose_encoding
from penstok.inputs.discovery import InputPath, list_inputs
from penstok.inputs.encodings import decode_sample
from penstok.inputs.probe import probe_content
from penstok.inputs.streams import STANDARD_INPUT
from penstok.readers.formats import DATASET_SUFFIXES, check_start, find_format
from penstok.storage import is_url
from penstok.types import UTF_8

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from penstok.inputs.content import Sample
    from penstok.inputs.discovery import OutputRules
    from penstok.types import InputFormat, Source

    _Probed: TypeAlias = "tuple[InputPath, Source | InputError]"

__all__ = ["CsvOptions", "find_sources", "probe_recorded_source", "probe_source"]

_NUM_THREADS = 8
_HEAD_BYTES = 1 << 12
_MAX_LISTED = 3


class CsvOptions(NamedTuple):
    """How CSV is written, as far as the user said so; an empty delimiter is that of the format."""

    delimiter: str = ""
    no_header: bool = False


_NO_OPTIONS = CsvOptions()


class _Options(NamedTuple):
    """How inputs are to be read: what `probe_source` was called with."""

    input_format: InputFormat | None
    text_key: str
    csv: CsvOptions
    encoding: str
    is_recorded: bool = False


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
    options = _Options(input_format, text_key, csv, encoding)
    with closing(_iter_probed(paths, options)) as probed:
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
        f"no text in `{folder}`: {listed}",
        where="INPUT",
        next_step="pass text files, or a folder or archive that has some",
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
    if is_tar(sample.head):
        refuse_piped_tar(source)
        raise InputError(
            "this is a tar archive now, and was not when it was used",
            where=path,
            next_step="restore the file the job used",
        )
    options = _Options(input_format, text_key, csv, encoding, is_recorded)
    return _complete(source, sample, options)


def _complete(source: Source, sample: Sample, options: _Options) -> Source:
    """Add what depends on the format of an input, and its encoding."""
    head = sample.head
    found = find_format(source.path, head, options.input_format)
    if found.is_rows and source.archive is not None:
        raise InputError(
            f"this is {found.display_name} in an archive, which cannot be read there",
            where=source.path,
            next_step=f"extract it: `tar -xf {quoted(source.archive.path)}`, or leave such "
            "files out with `--on-error skip`",
        )
    source = replace(source, format=found.name, is_empty=not head)
    if head and not found.is_rows:
        chosen = options.encoding
        if not options.is_recorded:
            chosen = choose_encoding(source.path, sample, chosen)
        if chosen != UTF_8:
            source = replace(source, encoding=chosen, is_stream=True, content_bytes=0)
            head = decode_sample(head, chosen)
    check_start(found, source.path, head[:_HEAD_BYTES], options.input_format)
    if found.is_sequential:
        source = replace(source, is_stream=True, content_bytes=0)
    if found.has_delimiter:
        delimiter, no_header = options.csv
        source = replace(source, delimiter=delimiter, num_columns=int(no_header))
    return found.probe(source, options.text_key) if head else source


def probe_recorded_source(
    path: str,
    input_format: InputFormat,
    text_key: str,
    csv: CsvOptions,
    encoding: str,
    archive: str | None = None,
) -> Source:
    """Probe an input that an earlier run used, in its archive if it was a member of one.

    Raises:
        InputError: If it is missing, or not what it should be.
    """
    refuse_missing(archive or path)
    if archive is None:
        return probe_source(path, input_format, text_key, csv, encoding, is_recorded=True)
    options = _Options(input_format, text_key, csv, encoding, is_recorded=True)
    found = _find_members(probe_content(archive)[0], options).get(path)
    if found is None:
        raise InputError(
            f"the archive has no member `{path.removeprefix(archive + '/')}` any more",
            where=archive,
            next_step="restore the archive the job used",
        )
    return found


@lru_cache(maxsize=4)
def _find_members(archive: Source, options: _Options) -> dict[str, Source]:
    """Find the members of an archive that can be used, by path; once for all of them."""
    probed = _probe_members(InputPath(archive.path), archive, options)
    return {found.path: source for found, source in probed if not isinstance(source, InputError)}


def _probe_members(found: InputPath, archive: Source, options: _Options) -> Iterator[_Probed]:
    """Probe the members of an archive, which is treated as a folder."""
    is_empty = True
    for path, result in iter_members(archive):
        is_empty = False
        # What is wrong with the archive itself concerns what the user named.
        member = found if path == archive.path else InputPath(path, found.folder or found.path)
        if isinstance(result, InputError):
            yield member, result
            continue
        try:
            yield member, _complete(*result, options)
        except InputError as error:
            yield member, error
    if is_empty:
        yield found, no_files(archive)


def _iter_probed(paths: Sequence[InputPath], options: _Options) -> Generator[_Probed]:
    """Probe inputs in order, several remote ones at once: 10,000 would take half an hour."""

    def probe(found: InputPath) -> Iterable[_Probed]:
        if found.problem is not None:
            return [(found, found.problem)]
        try:
            source, sample = probe_content(found.path)
            if is_tar(sample.head):
                return _probe_members(found, source, options)
            refuse_broken_tar(source, sample)
            return [(found, _complete(source, sample, options))]
        except InputError as error:
            return [(found, error)]

    if not any(is_url(found.path) for found in paths):
        yield from chain.from_iterable(map(probe, paths))
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(_NUM_THREADS)
    try:
        yield from chain.from_iterable(pool.map(lambda found: list(probe(found)), paths))
    finally:
        pool.shutdown(cancel_futures=True)
