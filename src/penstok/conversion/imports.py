"""Makes an output from token files that another program wrote, so that every command can use it.

Tokens are copied and checked: an id that is not in the vocabulary stops it. The files may be
hostile; `output.formats` checks their headers and sizes before anything is read. `convert` then
adds other formats.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from penstok.conversion.convert import (
    ConvertOutcome,
    make_requests,
    open_folder,
    refuse_other,
)
from penstok.errors import InputError, UsageError, own_version
from penstok.jobs.conflicts import refuse_progress
from penstok.jobs.formats import count_copied_bytes, stage_formats
from penstok.jobs.intent import commit_formats, roll_forward
from penstok.jobs.progress import Meter
from penstok.output.documents import IndexRecord, index_name, npy_header
from penstok.output.formats.base import ImportOptions, TokenSource
from penstok.output.manifest import FileRecord, InputRecord, Lineage, Manifest, SplitRecord
from penstok.tokenizers import load_tokenizer
from penstok.types import SPLITS, Counts, Struct, asdict, replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Literal

    from penstok.conversion.settings import ConvertSettings
    from penstok.jobs.progress import Progress
    from penstok.output.formats.base import ImportedFile
    from penstok.output.store.base import StagedFile
    from penstok.output.store.folder import FolderStore
    from penstok.tokenizers import Tokenizer
    from penstok.types import EotPosition, Split, TokenizerRecord

__all__ = ["import_tokens"]


class _Taken(Struct, frozen=True):
    """One file that was copied: what the manifest says about it, and what is to be published."""

    file: FileRecord
    index: IndexRecord
    input: InputRecord | None
    num_empty: int
    staged: list[StagedFile]


class _Import(Struct, frozen=True):
    """Where tokens come from: their format, their tokenizer and the digest of all files."""

    format: str
    tokenizer: Tokenizer
    digest: str


def import_tokens(settings: ConvertSettings, progress: Progress) -> ConvertOutcome:
    """Copy files of another program to a new output.

    Raises:
        InputError: If a file is damaged, or has ids that the tokenizer does not have.
        UsageError: If the files do not say something that a flag must say.
        ConflictError: If something else is in the folder.
    """
    from penstok.output.formats.registry import IMPORTABLE_FORMATS

    output, name = str(settings.output), str(settings.from_)
    tokenizer = load_tokenizer(str(settings.tokenizer), eot_token=settings.eot_token)
    options = ImportOptions(dtype=settings.dtype, eot_id=tokenizer.eot_id, eot=settings.eot)
    paths: dict[Split, Sequence[str]] = {"train": settings.inputs, "val": settings.val}
    files = {
        split: IMPORTABLE_FORMATS[name].open_files([Path(path) for path in paths[split]], options)
        if paths[split]
        else []
        for split in SPLITS
    }
    everything = [file for split in SPLITS for file in files[split]]
    dtype, eot = _agree(everything)
    _refuse_narrow(tokenizer, dtype)
    store, requests = open_folder(output), make_requests(settings)
    digest = _digest(everything, name, tokenizer)
    lineage = Lineage("imported", [str(file.path) for file in everything], digest)
    names, import_ = [request.name for request in requests], _Import(name, tokenizer, digest)
    with store.lock():
        roll_forward(store)
        if (found := refuse_other(store, lineage, requests)) is not None:
            return ConvertOutcome(found, output, names, is_new=False)
        refuse_progress(store)
        num_tokens = sum(file.num_tokens for file in everything)
        num_bytes = num_tokens * int(dtype[4:]) // 8
        store.check_room(num_bytes + count_copied_bytes(requests, dtype, num_tokens))
        with progress:
            meter = Meter(progress, num_bytes, num_units=0)
            taken = {
                split: [
                    _copy(store, file, _name(split, idx, len(files[split])), import_, meter)
                    for idx, file in enumerate(files[split])
                ]
                or [_make_empty(store, f"{split}.bin", import_)]
                for split in SPLITS
            }
        manifest = _make_manifest(tokenizer.record, dtype, eot, taken, lineage)
        staged = [one for split in SPLITS for each in taken[split] for one in each.staged]
        locations = {name: location for name, location, _ in staged}
        source = TokenSource.from_manifest(
            manifest, lambda name: store.locate(name, locations.get(name))
        )
        formats, more = stage_formats(store, manifest, source, requests, progress=progress)
        manifest = replace(manifest, formats=formats)
        commit_formats(store, manifest, staged + more)
    return ConvertOutcome(manifest, output, names, is_new=True)


def _agree(files: Sequence[ImportedFile]) -> tuple[Literal["uint16", "uint32"], EotPosition]:
    """Return the type and the place of end-of-text ids that all files have.

    Raises:
        UsageError: If they differ, or the place is not known.
    """
    dtypes = {file.token_dtype for file in files}
    places = {file.eot for file in files if file.eot is not None}
    if len(dtypes) > 1 or len(places) > 1:
        raise UsageError(
            f"the files have tokens of different kinds: {', '.join(sorted({*dtypes, *places}))}",
            where="INPUT, --val",
            next_step="import the files of each kind separately",
        )
    if not places:
        raise UsageError(
            "the files do not say where the end-of-text tokens are",
            where=str(files[0].path) if files else "INPUT",
            next_step="pass `--eot append` if one follows each document, `--eot prepend` if one "
            "precedes it, or `--eot none`",
        )
    return dtypes.pop(), places.pop()


def _refuse_narrow(tokenizer: Tokenizer, dtype: str) -> None:
    if dtype == "uint16" and tokenizer.vocab_size > 1 << 16:
        raise UsageError(
            f"tokens of 2 bytes cannot be those of `{tokenizer.name}`, which has "
            f"{tokenizer.vocab_size:,} ids",
            where="-t",
            next_step="pass the tokenizer that made the files, or `--dtype uint32`",
        )


def _name(split: Split, idx: int, num_files: int) -> str:
    return f"{split}.bin" if num_files == 1 else f"{split}_shard_{idx:05}.bin"


def _digest(files: Sequence[ImportedFile], name: str, tokenizer: Tokenizer) -> str:
    """Return a digest of which files these are; their tokens have checksums of their own."""
    running = xxhash.xxh3_128(f"{name}\0{tokenizer.fingerprint}\0{tokenizer.eot_id}\n".encode())
    for file in files:
        facts: list[object] = [file.dtype, file.eot, file.num_tokens, file.continues]
        for path in (file.path, file.index):
            if path is not None:
                status = path.stat()
                facts += [path.resolve(), status.st_size, status.st_mtime_ns]
        line = "\0".join(map(str, facts)) + "\n"
        running.update(line.encode("utf-8", "surrogateescape"))
    return running.hexdigest()


def _copy(
    store: FolderStore,
    file: ImportedFile,
    name: str,
    import_: _Import,
    meter: Meter,
) -> _Taken:
    """Copy the tokens of a file and write their index."""
    content = _iter_checked(file, import_.tokenizer, meter)
    tokens = store.stage_file(name, content, None, import_.digest)
    num_starts = sum(len(piece) for piece in file.iter_starts())
    index = store.stage_file(index_name(name), _iter_index(file, num_starts), None, import_.digest)
    num_documents = num_starts - file.continues
    return _Taken(
        FileRecord(name, tokens[2], file.num_tokens, _digest_of_one(tokens[3])),
        IndexRecord("documents", index[0], index[2], index[3], num_documents, file.continues),
        InputRecord(
            str(file.path),
            file.path.stat().st_size,
            num_documents,
            file.num_tokens,
            0,
            0,
            format=import_.format,
        ),
        file.num_empty,
        [tokens[:3], index[:3]],
    )


def _make_empty(store: FolderStore, name: str, import_: _Import) -> _Taken:
    """Write the file of a split without tokens, as jobs do."""
    content = npy_header(1) + bytes(8)
    tokens = store.stage_file(name, (), None, import_.digest)
    index = store.stage_file(index_name(name), [content], None, import_.digest)
    return _Taken(
        FileRecord(name, 0, 0, _digest_of_one(tokens[3])),
        IndexRecord("documents", index[0], index[2], index[3], 0, continues=False),
        None,
        0,
        [tokens[:3], index[:3]],
    )


def _iter_checked(file: ImportedFile, tokenizer: Tokenizer, meter: Meter) -> Iterator[memoryview]:
    done = 0
    for piece in file.iter_tokens():
        largest = int(piece.max()) if len(piece) else 0
        if largest >= tokenizer.vocab_size:
            at = done + int(piece.argmax())
            raise InputError(
                f"token {at:,} has id {largest}, and `{tokenizer.name}` has only ids below "
                f"{tokenizer.vocab_size}",
                where=str(file.path),
                next_step="check `-t` and `--dtype`: the file was made with another tokenizer",
            )
        done += len(piece)
        yield piece.data.cast("B")
        meter.done_bytes += piece.nbytes
        meter.num_tokens += len(piece)
        meter.tick()


def _iter_index(file: ImportedFile, num_starts: int) -> Iterator[bytes]:
    yield npy_header(num_starts + 1)
    for piece in file.iter_starts():
        yield piece.tobytes()
    yield file.num_tokens.to_bytes(8, "little")


def _digest_of_one(content: str) -> str:
    """Return the digest of a file that is one segment."""
    return xxhash.xxh3_128_hexdigest(bytes.fromhex(content))


def _make_manifest(
    tokenizer: TokenizerRecord,
    dtype: Literal["uint16", "uint32"],
    eot: EotPosition,
    taken: dict[Split, list[_Taken]],
    lineage: Lineage,
) -> Manifest:
    splits = {
        split: SplitRecord(
            sum(each.index.documents for each in taken[split]),
            sum(each.file.tokens for each in taken[split]),
            [each.file for each in taken[split]],
            [each.index for each in taken[split]],
        )
        for split in SPLITS
    }
    everything = [each for split in SPLITS for each in taken[split]]
    counts = Counts(
        documents=sum(each.index.documents for each in everything),
        tokens=sum(each.file.tokens for each in everything),
        empty_documents=sum(each.num_empty for each in everything),
    )
    return Manifest(
        penstok=own_version(),
        tokenizer=tokenizer,
        dtype=dtype,
        byte_order="little",
        splits=splits,
        inputs=[each.input for each in everything if each.input is not None],
        inputs_digest=lineage.digest,
        counts=asdict(counts),
        settings={
            "tokenizer": tokenizer.fingerprint,
            "dtype": dtype,
            "docs_by": "record",
            "eot": eot,
            "val_fraction": 0.0,
        },
        run={},
        lineage=lineage,
    )
