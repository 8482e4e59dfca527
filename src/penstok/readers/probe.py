"""From paths to sources: what each input is, its format and encoding, and whether it can be used.

It reads a sample of an input, the header of a table, the metadata of a file of rows, and no
documents. `inputs.discovery` lists the paths; the plan takes the sources.
"""

from __future__ import annotations

from contextlib import closing
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from penstok.errors import InputError, NotTextError, UsageError, quoted
from penstok.inputs.archives import (
    is_tar,
    iter_members,
    no_files,
    refuse_broken_tar,
    refuse_piped_tar,
)
from penstok.inputs.changes import refuse_missing
from penstok.inputs.content import NotUtf8Error, choose_encoding
from penstok.inputs.discovery import InputPath, list_inputs
from penstok.inputs.encodings import AUTO, decode_sample
from penstok.inputs.probe import probe_content
from penstok.inputs.streams import STANDARD_INPUT
from penstok.quantities import plural
from penstok.readers.formats import DATASET_SUFFIXES, FORMATS, check_start, find_format
from penstok.storage import is_url
from penstok.types import UTF_8, Struct, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from penstok.inputs.content import Sample
    from penstok.inputs.discovery import OutputRules
    from penstok.types import InputFormat, OnError, Source

    _Probed: TypeAlias = "tuple[InputPath, Source | InputError]"

__all__ = ["CsvOptions", "FoundInputs", "find_sources", "probe_recorded_source", "probe_source"]

_NUM_THREADS = 8
_HEAD_BYTES = 1 << 12
_MAX_LISTED = 3
# After so many inputs with another encoding, the others are not looked at.
_MAX_NOT_UTF8 = 100


class CsvOptions(NamedTuple):
    """How CSV is written, as far as the user said so; an empty delimiter is that of the format."""

    delimiter: str = ""
    no_header: bool = False


_NO_OPTIONS = CsvOptions()


class FoundInputs(Struct, frozen=True):
    """The inputs of a job.

    Attributes:
        sources: Those that are read.
        skipped: Those that cannot be used, and why.
        ignored: What was found in folders and is not text, and why.
    """

    sources: list[Source]
    skipped: dict[str, str]
    ignored: dict[str, str]


class _Options(NamedTuple):
    """How inputs are to be read: what `probe_source` was called with."""

    input_format: InputFormat | None
    text_key: str
    csv: CsvOptions
    encoding: str
    is_recorded: bool = False
    on_error: OnError = "stop"


def find_sources(
    inputs: Sequence[str],
    *,
    outputs: OutputRules,
    on_error: OnError = "stop",
    input_format: InputFormat | None = None,
    text_key: str = "text",
    csv: CsvOptions = _NO_OPTIONS,
    encoding: str = UTF_8,
) -> FoundInputs:
    """List and probe the files behind `inputs`, in order.

    Args:
        inputs: Files, folders, globs and URLs; `-` alone is standard input.
        outputs: Which files are not read because Penstok wrote them.
        on_error: Whether to leave out inputs that cannot be used.
        input_format: The format of every file; None to detect each.
        text_key: The column that tables must have.
        csv: How CSV is written.
        encoding: The encoding of all text, or `auto` to detect that of each file.

    Raises:
        InputError: If an input cannot be used, or there is no text in any.
        UsageError: If a setting fits none of the inputs.
    """
    found = FoundInputs([], {}, {})
    not_utf8: list[NotUtf8Error] = []

    def refuse(path: str, error: InputError) -> None:
        if on_error == "skip":
            found.skipped[path] = error.what
        elif isinstance(error, NotUtf8Error):
            not_utf8.append(error)
            if len(not_utf8) == _MAX_NOT_UTF8:
                raise _join_not_utf8(not_utf8, has_others=True)
        else:
            raise error

    paths = list_inputs(inputs, outputs=outputs, dataset_suffixes=DATASET_SUFFIXES)
    options = _Options(input_format, text_key, csv, encoding, on_error=on_error)
    if paths[0].path == STANDARD_INPUT:
        found.sources.append(probe_source(STANDARD_INPUT, *options[:4], on_error=on_error))
    else:
        _probe_all(paths, options, found, refuse)
    if not_utf8:
        raise _join_not_utf8(not_utf8, has_others=bool(found.sources))
    _refuse_csv_flags(csv, found.sources)
    if all(source.is_empty for source in found.sources):
        raise _no_text(inputs, found)
    _refuse_useless_encoding(encoding, found.sources)
    return found


def _probe_all(
    paths: Sequence[InputPath],
    options: _Options,
    inputs: FoundInputs,
    refuse: Callable[[str, InputError], None],
) -> None:
    """Probe all inputs; `refuse` is called for each that cannot be used, and may raise."""
    # By folder, what was ignored in it; None once something in it was not.
    only_ignored: dict[str, dict[str, str] | None] = {}
    with closing(_iter_probed(paths, options)) as probed:
        for found, result in probed:
            if found.folder and isinstance(result, NotTextError):
                inputs.ignored[found.path] = result.what
                in_folder = only_ignored.setdefault(found.folder, {})
                if in_folder is not None and len(in_folder) < _MAX_LISTED:
                    in_folder[found.path] = result.what
                continue
            only_ignored[found.folder] = None
            if isinstance(result, InputError):
                refuse(found.path, result)
            else:
                inputs.sources.append(result)
    for folder, reasons in only_ignored.items():
        if reasons is not None:
            refuse(folder, _no_text_in(folder, reasons))


def _no_text_in(folder: str, reasons: dict[str, str]) -> InputError:
    listed = "; ".join(f"`{path}`: {reason}" for path, reason in reasons.items())
    return InputError(
        f"no text in `{folder}`: {listed}",
        where="INPUT",
        next_step="pass text files, or a folder or archive that has some",
    )


def _no_text(inputs: Sequence[str], found: FoundInputs) -> InputError:
    """Return the error for inputs that are all empty or skipped."""
    empty, skipped = found.sources, found.skipped
    if inputs == (STANDARD_INPUT,) and empty:
        return InputError(
            "standard input is empty",
            where=f"INPUT `{STANDARD_INPUT}`",
            next_step="check what the command before the pipe prints",
        )
    numbers = ((len(empty), "empty"), (len(skipped), "skipped"))
    counted = ", ".join(f"{plural(number, 'input')} {what}" for number, what in numbers if number)
    reasons = "".join(f"; `{path}`: {why}" for path, why in list(skipped.items())[:_MAX_LISTED])
    files = dict.fromkeys(each.stored.path for each in empty if not is_url(each.path))
    quoted_files = " ".join(map(quoted, list(files)[:_MAX_LISTED]))
    return InputError(
        f"no text in the input: {counted}{reasons}",
        where=" ".join(inputs[:_MAX_LISTED]),
        next_step=f"check the files with `ls -l {quoted_files}`"
        if files
        else "pass inputs with text",
    )


def _refuse_csv_flags(csv: CsvOptions, sources: Sequence[Source]) -> None:
    """Refuse flags for CSV if no input is CSV: the user expected another format."""
    flags = {"--csv-delimiter": csv.delimiter, "--no-header": csv.no_header}
    given = [flag for flag, value in flags.items() if value]
    if given and not any(FORMATS[source.format].has_delimiter for source in sources):
        raise UsageError(
            "no input is CSV",
            where=", ".join(given),
            next_step=f"pass `--input-format csv`, or leave out `{given[0]}`",
        )


def _join_not_utf8(errors: Sequence[NotUtf8Error], *, has_others: bool) -> NotUtf8Error:
    """Report all inputs with another encoding at once, with one command that reads them.

    Args:
        errors: One for each such input.
        has_others: Whether the job has inputs with the expected encoding, too.
    """
    from penstok.inputs.content.legacy import name_encoding

    first, guesses = errors[0], {error.encodings for error in errors}
    if len(errors) == 1 and (not has_others or not first.encodings):
        return first
    # As in "this is not UTF-8; it looks like cp1252 (Western European)".
    not_what, _, looks_like = first.what.partition("; it ")
    if len(errors) == 1:
        what = first.what
    else:
        what = f"{len(errors)} inputs are {not_what.removeprefix('this is ').partition(',')[0]}"
        if len(guesses) == 1 and looks_like:
            what += f"; they {looks_like.replace('looks', 'look', 1)}"
        else:
            found = (error.encodings[:1] for error in errors)
            names = dict.fromkeys(name_encoding(*each) if each else "unknown" for each in found)
            what += f"; found: {', '.join(names)}"
    more = f" and {len(errors) - _MAX_LISTED} more" if len(errors) > _MAX_LISTED else ""
    is_one = len(guesses) == 1 and len(first.encodings) == 1 and not has_others
    return NotUtf8Error(
        what,
        where=", ".join(error.where for error in errors[:_MAX_LISTED]) + more,
        next_step="leave such files out with `--on-error skip`, or name their encoding with "
        "`--encoding NAME`"
        if () in guesses
        else f"pass `--encoding {first.encodings[0] if is_one else AUTO}`",
    )


def _refuse_useless_encoding(encoding: str, sources: Sequence[Source]) -> None:
    """Refuse an encoding that no input can have."""
    if encoding not in (UTF_8, AUTO) and all(FORMATS[each.format].is_rows for each in sources):
        raise UsageError(
            f"no input has text in an encoding such as `{encoding}`: the text of parquet and Arrow "
            "files is always UTF-8",
            where="--encoding",
            next_step="leave it out",
        )


def probe_source(
    path: str,
    input_format: InputFormat | None,
    text_key: str,
    csv: CsvOptions = _NO_OPTIONS,
    encoding: str = UTF_8,
    *,
    is_recorded: bool = False,
    on_error: OnError = "stop",
) -> Source:
    """Probe one input.

    Args:
        path: A file, a URL, or `-` for standard input.
        input_format: Its format; None to detect it.
        text_key: The column that a table must have.
        csv: How CSV is written.
        encoding: The encoding of its text, or `auto` to detect it.
        is_recorded: An earlier run has read it with this encoding, so nobody needs to be asked.
        on_error: Whether an input that is damaged after some content is refused.

    Raises:
        InputError: If it cannot be read, or is not what it should be.
    """
    source, sample = probe_content(path, on_error=on_error)
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
        # What precedes damage was used, or the job would not have been done.
        return probe_source(
            path, input_format, text_key, csv, encoding, is_recorded=True, on_error="skip"
        )
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
            source, sample = probe_content(found.path, on_error=options.on_error)
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
