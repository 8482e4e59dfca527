"""Writes other formats of a job's tokens, in bounded memory: staged here, published by the commit.

A file that is staged is complete, so a run that was killed continues with the next one. It decides
nothing about names and bytes: `output.formats` does. `jobs.commit` and `conversion` call it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from penstok.errors import ConflictError, DamageError, UsageError, quoted
from penstok.jobs.progress import Meter, SilentProgress
from penstok.output.formats.base import FormatOptions, SplitTokens, TokenSource
from penstok.output.layout import MANIFEST, RECORDS, is_final_name
from penstok.output.manifest import FormatFileRecord, FormatRecord
from penstok.output.store.base import StagedFile
from penstok.output.store.folder import FolderStore
from penstok.types import SPLITS, Struct, TextRules

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from penstok.jobs.progress import Progress
    from penstok.output.formats.base import OutputFormat
    from penstok.output.manifest import Manifest
    from penstok.output.store.base import OutputStore
    from penstok.types import TokenizerRecord

__all__ = [
    "FormatRequest",
    "count_copied_bytes",
    "find_requests",
    "refuse_foreign",
    "refuse_formats",
    "refuse_taken",
    "stage_formats",
]


class FormatRequest(Struct, frozen=True):
    """A format that is to be written, and how."""

    name: str
    options: FormatOptions

    @classmethod
    def from_record(cls, record: FormatRecord, folder: str) -> FormatRequest:
        """Ask for a format again as it was written before.

        Raises:
            DamageError: If this version does not know such a format.
        """
        from penstok.output.formats.registry import OUTPUT_FORMATS

        try:
            if record.name in OUTPUT_FORMATS:
                return cls(record.name, msgspec.convert(record.options, FormatOptions))
            what = f"the format `{record.name}` is not known to this version"
        except msgspec.ValidationError as error:
            what = f"the options of the format `{record.name}` are not valid: {error}"
        raise DamageError(
            what,
            where=f"{folder}/{MANIFEST}",
            next_step="upgrade: `pip install --upgrade penstok`, then run the same command again",
        )


class _FormatSettings(Struct, frozen=True):
    """What the recorded settings of a job say about formats."""

    format: str = "raw"
    sequence_length: int | None = None
    columns: str = "input_ids"


def find_requests(
    settings: dict[str, Any], older: Sequence[FormatRecord] = (), folder: str = ""
) -> list[FormatRequest]:
    """Return the formats that a job writes, and those that its output in `folder` had before.

    A format that `penstok convert` has written again with other options keeps those.

    Raises:
        DamageError: If this version could not have recorded the settings.
    """
    try:
        recorded = msgspec.convert(settings, _FormatSettings)
    except msgspec.ValidationError as error:
        raise DamageError(
            f"the recorded settings are invalid: {error}",
            where=f"{folder}/{MANIFEST}",
            next_step="re-encode everything: `penstok tokenize INPUT... --overwrite`",
        ) from error
    columns = recorded.columns.split(",")
    names = [name for name in recorded.format.split(",") if name != "raw"]
    asked = {"sequence_length": recorded.sequence_length, "columns": columns}
    wanted = [FormatRecord(name, asked, []) for name in names]
    requests = [FormatRequest.from_record(each, folder) for each in (*wanted, *older)]
    return list({request.name: request for request in requests}.values())


def refuse_formats(rules: TextRules, tokenizer: TokenizerRecord, output: str) -> None:
    """Refuse formats that the tokens of a job could not be written in, before it starts.

    Raises:
        UsageError: If there is one.
    """
    requests = find_requests(rules.to_settings())
    if not requests:
        return
    if "://" in output:
        raise UsageError(
            "object stores take only the format `raw`",
            where="--format",
            next_step="leave out `--format`; copy the finished output to a folder, then run "
            f"`penstok convert OUT --format {quoted(requests[0].name)}`",
        )
    if rules.document_index == "none":
        raise UsageError(
            f"the format `{requests[0].name}` is made from the document index",
            where="--format, --document-index",
            next_step="leave out `--document-index none`",
        )
    splits = {split: SplitTokens(rules.dtype, []) for split in SPLITS}
    source = TokenSource(tokenizer, rules.eot, splits)
    for request in requests:
        _find_format(request.name).refuse(source, request.options)


def count_copied_bytes(requests: Iterable[FormatRequest], dtype: str, num_tokens: int) -> int:
    """Return about how much disk space formats need that cannot be links to the tokens."""
    return sum(_find_format(each.name).copied_bytes(dtype) for each in requests) * num_tokens


def refuse_foreign(
    store: OutputStore,
    requests: Iterable[FormatRequest],
    own: Collection[str],
    *,
    is_finished: bool,
) -> None:
    """Refuse formats whose place has files of somebody else, before anything is read.

    Args:
        store: The output.
        requests: The formats.
        own: The files that an earlier job or conversion has written there.
        is_finished: Whether the job is finished. Otherwise formats beside the tokens have names
            that `conflicts` compares.

    Raises:
        ConflictError: If there are such files.
    """
    if not isinstance(store, FolderStore):
        return
    for request in requests:
        is_known = any(name.startswith(f"{request.name}/") for name in own)
        if is_known and not store.is_link(request.name):
            # It is written again; `refuse_taken` compares each name.
            continue
        if not _find_format(request.name).is_beside:
            found = store.find_foreign(request.name, own)
        else:
            names = filter(is_final_name, store.iter_names("") if is_finished else ())
            found = next((name for name in names if name not in {*own, *RECORDS}), None)
        if found is not None:
            raise _foreign(store, found, request.name)


def refuse_taken(store: OutputStore, records: Iterable[FormatRecord], own: Collection[str]) -> None:
    """Refuse to publish a file under a name that somebody else has taken meanwhile.

    Raises:
        ConflictError: If there is one.
    """
    if not isinstance(store, FolderStore):
        return
    for record in records:
        for file in record.files:
            found = store.find_foreign(file.path, own)
            if found is not None:
                raise _foreign(store, found, record.name)


def _foreign(store: FolderStore, name: str, format_name: str) -> ConflictError:
    path = store.folder / name.split("/")[0]
    return ConflictError(
        f"`{name}` is not from penstok, and the format `{format_name}` is written there",
        where=store.name,
        next_step=f"move it away: `mv {quoted(path)} {quoted(f'{path}.old')}`, then run the same "
        "command again",
    )


def stage_formats(
    store: OutputStore,
    manifest: Manifest,
    source: TokenSource,
    requests: Sequence[FormatRequest],
    *,
    in_folders: bool = True,
    has_raw: bool = True,
    progress: Progress | None = None,
) -> tuple[list[FormatRecord], list[StagedFile]]:
    """Write the files of formats to the work folder.

    Args:
        store: The output that they will be part of.
        manifest: What the tokens are.
        source: Where the tokens are.
        requests: Which formats.
        in_folders: Whether each format gets a folder of its name, unless it must be beside the
            tokens.
        has_raw: Whether the tokens are in the same output, so that a link needs no checksum.
        progress: Shows how far it is.

    Returns:
        The records for the manifest, and the files to publish.

    Raises:
        UsageError: If a format cannot hold the tokens; then nothing was written.
        DamageError: If the tokens or their index are damaged.
        WriteError: If a file cannot be written.
    """
    for request in requests:
        if not isinstance(store, FolderStore):
            raise _no_folder(request.name)
        _find_format(request.name).refuse(source, request.options)
    num_tokens = sum(source.splits[split].num_tokens for split in SPLITS)
    total_bytes = count_copied_bytes(requests, source.dtype, num_tokens)
    with progress or SilentProgress() as shown:
        meter = Meter(shown, total_bytes, num_units=0)
        made = [
            _stage_format(
                store, manifest, source, request, meter, in_folders=in_folders, has_raw=has_raw
            )
            for request in requests
        ]
    return [record for record, _ in made], [file for _, files in made for file in files]


def _stage_format(
    store: OutputStore,
    manifest: Manifest,
    source: TokenSource,
    request: FormatRequest,
    meter: Meter,
    *,
    in_folders: bool,
    has_raw: bool,
) -> tuple[FormatRecord, list[StagedFile]]:
    if not isinstance(store, FolderStore):
        raise _no_folder(request.name)
    output_format = _find_format(request.name)
    prefix = f"{request.name}/" if in_folders and not output_format.is_beside else ""
    key = _digest_request(manifest, request)
    files, staged = list[FormatFileRecord](), list[StagedFile]()
    num_dropped = num_split = 0
    item_bytes = output_format.copied_bytes(source.dtype)
    for file in output_format.iter_files(source, request.options):
        linked = None if file.same_as is None else file.same_as.path
        before = meter.done_bytes
        name, location, num_bytes, digest = store.stage_file(
            prefix + file.name,
            _count(file.content, meter, item_bytes),
            linked,
            key,
            hash_links=not has_raw,
        )
        # Also for a file that an earlier run has staged.
        meter.done_bytes = before + file.num_tokens * item_bytes
        staged.append((name, location, num_bytes))
        is_link = file.same_as is not None and not digest
        same_as = file.same_as.name if is_link and file.same_as is not None else None
        files.append(FormatFileRecord(name, num_bytes, file.num_tokens, digest, same_as))
        num_dropped += file.dropped_tokens
        num_split += file.split_documents
    options = msgspec.to_builtins(request.options)
    return FormatRecord(request.name, options, files, num_dropped, num_split), staged


def _count(
    content: Iterable[bytes | memoryview], meter: Meter, item_bytes: int
) -> Iterator[bytes | memoryview]:
    """Pass pieces on, and show how many bytes there were."""
    for piece in content:
        yield piece
        if item_bytes:
            num_bytes = memoryview(piece).nbytes
            meter.done_bytes += num_bytes
            meter.num_tokens += num_bytes // item_bytes
        meter.tick()


def _no_folder(name: str) -> UsageError:
    return UsageError(
        "object stores take only the format `raw`",
        where=f"--format {name}",
        next_step="choose a folder as `-o`",
    )


def _find_format(name: str) -> OutputFormat:
    # Imported only here: most jobs write no other format.
    from penstok.output.formats.registry import OUTPUT_FORMATS

    return OUTPUT_FORMATS[name]


def _digest_request(manifest: Manifest, request: FormatRequest) -> str:
    """Return what tells files of this request from those of another run with other tokens."""
    running = xxhash.xxh3_128(msgspec.json.encode([request, manifest.tokenizer, manifest.settings]))
    for split in SPLITS:
        for file in manifest.splits[split].files:
            running.update(f"{file.path}\0{file.tokens}\0{file.digest}\n".encode())
    return running.hexdigest()
