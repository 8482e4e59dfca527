"""Converts a finished output to other formats: beside its tokens, or in another folder.

Formats that share the bytes of the tokens are links. Files are staged, published and recorded by
the same protocol as those of a job; a run that was killed continues. `jobs.formats` writes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from penstok.errors import ConflictError, DamageError, UsageError, quoted
from penstok.jobs.conflicts import find_manifest, refuse_progress
from penstok.jobs.formats import (
    FormatRequest,
    count_copied_bytes,
    refuse_foreign,
    refuse_taken,
    stage_formats,
)
from penstok.jobs.intent import commit_formats, roll_forward
from penstok.output.formats.base import FormatOptions, TokenSource
from penstok.output.layout import SEGMENTS, SKIPPED
from penstok.output.manifest import Lineage, Manifest
from penstok.output.store import FolderStore, open_store
from penstok.storage import is_url
from penstok.storage.object_paths import output_path, repair_step
from penstok.types import SPLITS, Struct, replace

if TYPE_CHECKING:
    from penstok.conversion.settings import ConvertSettings
    from penstok.jobs.progress import Progress
    from penstok.output.store.base import StagedFile

__all__ = [
    "ConvertOutcome",
    "convert_output",
    "make_requests",
    "open_folder",
    "refuse_other",
]


class ConvertOutcome(Struct, frozen=True):
    """A finished conversion.

    Attributes:
        manifest: Of the output that has the new files.
        folder: That output.
        names: The formats that were asked for.
        is_new: Whether anything was written.
    """

    manifest: Manifest
    folder: str
    names: list[str]
    is_new: bool


def convert_output(settings: ConvertSettings, progress: Progress) -> ConvertOutcome:
    """Write other formats of a finished output.

    Raises:
        DamageError: If there is no finished job.
        UsageError: If a format cannot hold these tokens, or they have no document index.
        ConflictError: If something else is in the folder.
    """
    folder = _open_source(settings.inputs[0])
    manifest = Manifest.load(folder)
    requests = make_requests(settings)
    if settings.output is None:
        return _add_beside(settings, folder, requests, progress)
    return _convert_to(settings, settings.output, folder, manifest, requests, progress)


def make_requests(settings: ConvertSettings) -> list[FormatRequest]:
    """Return the formats that were asked for, other than `raw`."""
    options = FormatOptions(
        sequence_length=settings.sequence_length,
        shard_tokens=settings.shard_tokens,
        columns=tuple(settings.columns.split(",")),
    )
    names = settings.format.split(",")
    return [FormatRequest(name, options) for name in names if name != "raw"]


def open_folder(output: str) -> FolderStore:
    """Return the store of a folder to write to.

    Raises:
        UsageError: If it is in an object store.
    """
    store = open_store(output)
    if not isinstance(store, FolderStore):
        raise UsageError(
            "converted files can only be written to a folder",
            where="-o",
            next_step="choose a folder as `-o`, then copy it to the object store",
        )
    return store


def refuse_other(
    store: FolderStore, lineage: Lineage, requests: list[FormatRequest]
) -> Manifest | None:
    """Return the manifest if a folder holds exactly this conversion; refuse anything else there.

    Raises:
        ConflictError: If the folder holds something else.
    """
    try:
        found = find_manifest(store)
    except DamageError as error:
        what = f"the folder holds something else: {error.what}"
        raise ConflictError(what, where=store.name, next_step="choose another `-o`") from error
    if found is not None:
        made = found.lineage and (found.lineage.kind, found.lineage.digest)
        if made != (lineage.kind, lineage.digest):
            what = "the folder holds another output"
        elif [FormatRequest.from_record(each, store.name) for each in found.formats] != requests:
            what = f"the folder holds another conversion ({_list_formats(found)})"
        elif not store.has_files(found.iter_sizes()):
            what = "the folder holds this conversion, but files of it are missing or were changed"
        else:
            return found
    else:
        inside = store.find_entry()
        if inside is None:
            return None
        what = f"the folder is not empty: `{inside}` is not from a finished conversion"
    raise ConflictError(what, where=store.name, next_step="choose another `-o`")


def _list_formats(manifest: Manifest) -> str:
    raw = ["raw"] if manifest.files() else []
    return ", ".join([*raw, *(record.name for record in manifest.formats)])


def _open_source(output: str) -> Path:
    if is_url(output):
        raise UsageError(
            "an output in an object store cannot be converted in place",
            where=f"INPUT `{output}`",
            next_step="copy it to a folder first, then convert that",
        )
    return Path(str(output_path(output)))


def _add_beside(
    settings: ConvertSettings, folder: Path, requests: list[FormatRequest], progress: Progress
) -> ConvertOutcome:
    """Add formats to the output itself."""
    store = open_folder(str(folder))
    names = [request.name for request in requests]
    with store.lock():
        roll_forward(store)
        manifest = Manifest.load(folder)
        older = [FormatRequest.from_record(each, store.name) for each in manifest.formats]
        replaced = [each for each in manifest.formats if each.name in names]
        sizes = [(file.path, file.bytes) for record in replaced for file in record.files]
        if all(request in older for request in requests) and store.has_files(sizes):
            return ConvertOutcome(manifest, settings.inputs[0], names, is_new=False)
        refuse_progress(store)
        _refuse_without_tokens(store.name, manifest)
        own = {*manifest.files(), *manifest.format_files()}
        refuse_foreign(store, requests, own, is_finished=True)
        source = _find_source(manifest, folder)
        _check_room(store, source, requests)
        formats, staged = stage_formats(store, manifest, source, requests, progress=progress)
        refuse_taken(store, formats, own)
        kept = [record for record in manifest.formats if record.name not in names]
        manifest = replace(manifest, formats=[*kept, *formats])
        commit_formats(store, manifest, staged, [name for name, _ in sizes])
    return ConvertOutcome(manifest, settings.inputs[0], names, is_new=True)


def _check_room(store: FolderStore, source: TokenSource, requests: list[FormatRequest]) -> None:
    num_tokens = sum(source.splits[split].num_tokens for split in SPLITS)
    store.check_room(count_copied_bytes(requests, source.dtype, num_tokens))


def _refuse_without_tokens(folder: str, manifest: Manifest) -> None:
    """Refuse an output that is itself a conversion to formats without raw tokens."""
    if manifest.splits["train"].files or manifest.splits["val"].files:
        if manifest.settings.get("document_index") == "none":
            raise UsageError(
                "this output has no document index, from which formats are made",
                where=folder,
                next_step="tokenize again without `--document-index none`",
            )
        return
    raise DamageError(
        f"this output has no raw tokens, only {_list_formats(manifest)}",
        where=folder,
        next_step="convert the output that it was made from"
        + (f": `{manifest.lineage.sources[0]}`" if manifest.lineage else ""),
    )


def _find_source(manifest: Manifest, folder: Path) -> TokenSource:
    source = TokenSource.from_manifest(manifest, lambda name: folder / name)
    for split in SPLITS:
        for file in source.splits[split].files:
            path = Path(str(file.path))
            size = path.stat().st_size if path.is_file() else -1
            if size != file.num_tokens * int(manifest.dtype[4:]) // 8:
                raise DamageError(
                    f"`{file.name}` is missing or has another size",
                    where=str(path),
                    next_step=f"`penstok verify {quoted(folder)} --repair`",
                )
    return source


def _convert_to(
    settings: ConvertSettings,
    output: str,
    folder: Path,
    manifest: Manifest,
    requests: list[FormatRequest],
    progress: Progress,
) -> ConvertOutcome:
    """Write formats to another folder; those that need the tokens beside them get links to them."""
    from penstok.output.formats.registry import OUTPUT_FORMATS

    _refuse_inside(output, folder, [request.name for request in requests])
    store = open_folder(output)
    names = [request.name for request in requests]
    lineage = Lineage("converted", [settings.inputs[0]], _digest(manifest))
    has_raw = not requests or any(OUTPUT_FORMATS[name].is_beside for name in names)
    with store.lock():
        roll_forward(store)
        if (found := refuse_other(store, lineage, requests)) is not None:
            return ConvertOutcome(found, output, names, is_new=False)
        refuse_progress(store)
        _refuse_without_tokens(str(folder), manifest)
        source = _find_source(manifest, folder)
        _check_room(store, source, requests)
        in_folders = has_raw or len(requests) > 1
        formats, staged = stage_formats(
            store,
            manifest,
            source,
            requests,
            in_folders=in_folders,
            has_raw=has_raw,
            progress=progress,
        )
        splits = manifest.splits
        if has_raw:
            staged += _stage_tokens(store, folder, manifest)
        else:
            empty = [replace(splits[split], files=[], indexes=[]) for split in SPLITS]
            splits = dict(zip(SPLITS, empty, strict=True))
        manifest = replace(manifest, formats=formats, splits=splits, lineage=lineage)
        commit_formats(store, manifest, staged)
    return ConvertOutcome(manifest, output, names, is_new=True)


def _refuse_inside(output: str, folder: Path, names: list[str]) -> None:
    """Refuse the output itself, or a folder in it, as `-o`."""
    if is_url(output):
        return
    inner, outer = output_path(output), folder.resolve()
    real = Path(str(inner)).resolve()
    if real != outer and outer not in real.parents:
        return
    raise ConflictError(
        f"`{output}` is "
        + ("the output itself" if real == outer else "inside the output that is converted"),
        where="-o",
        next_step="choose another `-o`"
        + (
            f", or leave it out: `penstok convert {quoted(folder)} "
            f"--format {quoted(','.join(names))}`"
            if names
            else ""
        ),
    )


def _stage_tokens(store: FolderStore, folder: Path, manifest: Manifest) -> list[StagedFile]:
    """Link the tokens, their indexes and their records."""
    sizes = [each for split in SPLITS for each in manifest.splits[split].iter_sizes()]
    names = [name for name, _ in sizes]
    is_imported = manifest.lineage is not None and manifest.lineage.kind == "imported"
    if not is_imported:
        names += [SEGMENTS, *([SKIPPED] if manifest.has_skipped() else [])]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not FolderStore(str(folder)).has_files(sizes):
        raise DamageError(
            f"`{missing[0]}` is missing" if missing else "a file has another size than recorded",
            where=str(folder),
            next_step=repair_step(folder),
        )
    key = _digest(manifest)
    return [store.stage_file(name, (), folder / name, key)[:3] for name in names]


def _digest(manifest: Manifest) -> str:
    """Return a digest of the tokens of an output."""
    text = "".join(
        f"{file.path}\0{file.tokens}\0{file.digest}\n"
        for split in SPLITS
        for file in manifest.splits[split].files
    )
    return xxhash.xxh3_128_hexdigest(text.encode())
