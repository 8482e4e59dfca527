"""Checks the indexes of an output against their checksums and the tokens; rebuilds some.

Indexes are not in the ledger: document indexes follow from the tokens, which are, and origins have
as many documents per input as it says. It changes no token. `verify` calls it after the tokens were
checked, `repair` after they were repaired.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from penstok.errors import DamageError, quoted
from penstok.output.documents import (
    DocumentFinder,
    describe_index,
    digest_index,
    hash_file,
    index_name,
    iter_entries,
)
from penstok.output.fields import count_rows, count_values
from penstok.output.segments import SegmentReader
from penstok.output.spools import are_in_order
from penstok.quantities import plural
from penstok.types import SPLITS, Segment, replace
from penstok.verification.findings import Finding
from penstok.verification.starts import IndexStarts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from penstok.output.documents import IndexRecord
    from penstok.output.layout import Layout
    from penstok.output.manifest import Manifest, SplitRecord
    from penstok.output.spools import IndexKind
    from penstok.output.store.folder import FolderStore
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Split
    from penstok.verification.findings import Report
    from penstok.verification.starts import TokenStarts

__all__ = ["check_indexes", "find_field_problems", "find_problem", "rebuild_indexes"]


def check_indexes(
    folder: OutputPath, manifest: Manifest, report: Report, starts: TokenStarts | None
) -> None:
    """Check that every token file has its indexes.

    Args:
        folder: The output.
        manifest: What is recorded.
        report: Findings are added to it.
        starts: Where documents start in the tokens, to compare the indexes with, if all tokens were
            read; then origins are compared with the inputs, too.
    """
    if manifest.settings.get("document_index") == "none":
        return
    can_find = manifest.settings["eot"] != "none"
    # With other tokens than recorded, an index that differs from them says nothing.
    is_damaged = bool(report.damaged or report.damaged_files or report.kinds & {"ids", "index"})
    found = starts if can_find and not is_damaged else None
    for split in SPLITS:
        record = manifest.splits[split]
        problems = _find_problems(folder, record, "documents", split, found)
        is_repairable = can_find or (bool(problems) and _adopt(folder, record) is not None)
        for name, what in problems.items():
            report.add(Finding("index", what, name, is_repairable=is_repairable))
    if manifest.settings.get("provenance"):
        _check_origins(folder, manifest, report, is_full=starts is not None)
    if manifest.settings.get("keep"):
        # They are made again from the inputs.
        for name, what in find_field_problems(folder, manifest).items():
            report.add(Finding("index", what, name))
    _check_masks(folder, manifest, report)


def _check_masks(folder: OutputPath, manifest: Manifest, report: Report) -> None:
    """Check loss masks, which a later version may have written."""
    for split in SPLITS:
        for index in manifest.splits[split].indexes_of("mask"):
            if problem := find_problem(folder / index.path, index.bytes, index.digest):
                report.add(Finding("index", problem, index.path, is_repairable=False))


def _check_origins(
    folder: OutputPath, manifest: Manifest, report: Report, *, is_full: bool
) -> None:
    """Check the origins; those that are only missing in the manifest can be recorded again."""
    before = report.num_findings
    for split in SPLITS:
        record = manifest.splits[split]
        recorded = {index.path for index in record.indexes_of("origins")}
        for name, what in _find_problems(folder, record, "origins").items():
            is_repairable = name not in recorded and (folder / name).exists()
            report.add(_origins_finding(name, what, is_repairable=is_repairable))
    if is_full and report.num_findings == before:
        _compare_with_inputs(folder, manifest, report)


def _find_problems(
    folder: OutputPath,
    record: SplitRecord,
    kind: IndexKind,
    split: Split = "train",
    starts: TokenStarts | None = None,
) -> dict[str, str]:
    """Check the sizes, checksums and counts of the indexes of one kind; return what is wrong.

    With `starts`, compare document indexes with the tokens of their split, too.
    """
    recorded = {index.path: index for index in record.indexes_of(kind)}
    problems, sizes = {}, [file.tokens for file in record.files]
    for shard, file in enumerate(record.files):
        name, found = index_name(file.path, kind), IndexStarts()
        index = recorded.get(name)
        problem = _find_problem(folder / name, index, None if starts is None else found.add)
        if not problem and starts is not None and index is not None:
            fits = starts.fits(split, sizes, shard, index, found.sum)
            if not (fits and found.is_in_order):
                problem = "the index does not fit the end-of-text ids of the tokens"
        if problem:
            problems[name] = problem
    num_documents = sum(index.documents for index in recorded.values())
    if record.files and len(recorded) == len(record.files) and num_documents != record.documents:
        what = f"the indexes have {num_documents:,} of {record.documents:,} documents"
        problems.setdefault(index_name(record.files[0].path, kind), what)
    return problems


def find_field_problems(folder: OutputPath, manifest: Manifest) -> dict[str, str]:
    """Check the kept fields; return what is wrong, by the name of the file."""
    problems: dict[str, str] = {}
    for split in SPLITS:
        problems |= _find_problems(folder, manifest.splits[split], "fields")
    return problems


def _origins_finding(name: str, what: str, *, is_repairable: bool = False) -> Finding:
    if not is_repairable:
        what += "; the tokens do not say where documents came from"
    return Finding("index", what, name, is_repairable=is_repairable)


def rebuild_indexes(store: FolderStore, layout: Layout, manifest: Manifest) -> Manifest:
    """Write all document indexes again from the tokens; return the manifest with their records.

    Without end-of-text ids, only the records of the indexes can be made again. That is also true of
    origins: those that are not recorded are, if they fit the documents.

    Raises:
        DamageError: If a token file cannot be read, or has other documents than recorded.
    """
    splits = manifest.splits
    if manifest.settings["eot"] == "none":
        adopted = {split: _adopt(store.folder, splits[split]) for split in SPLITS}
        made = {split: adopted[split] or splits[split].indexes_of("documents") for split in SPLITS}
        return _with_indexes(store.folder, layout, manifest, made)
    files = store.begin_rebuild(replace(layout, has_origins=False, kept_fields=()))
    for split in SPLITS:
        starts = _iter_starts(manifest, layout.finished_path, split)
        counted = _counted(starts, splits[split].documents, store.folder)
        files.restore_spool(split, "documents", counted)
    staged = files.seal_indexes(
        {split: splits[split].tokens for split in SPLITS},
        {split: splits[split].documents for split in SPLITS},
    )
    store.publish(
        (index.record.path, index.location, index.record.bytes)
        for split in SPLITS
        for index in staged[split]
    )
    made = {split: [index.record for index in staged[split]] for split in SPLITS}
    return _with_indexes(store.folder, layout, manifest, made)


def _with_indexes(
    folder: Path, layout: Layout, manifest: Manifest, made: dict[Split, list[IndexRecord]]
) -> Manifest:
    """Return the manifest with document indexes that were made again, and its other indexes."""
    splits = {}
    for split, record in manifest.splits.items():
        recorded = {index.path: index for index in record.indexes}
        indexes: list[IndexRecord] = []
        for index in made[split]:
            indexes.append(index)
            for kind, adopt in _ADOPT.items():
                name = index.path.replace(index_name("", "documents"), index_name("", kind))
                if kind in layout.index_kinds:
                    found = recorded.get(name) or adopt(folder / name, index)
                    indexes += [] if found is None else [found]
        splits[split] = replace(record, indexes=indexes)
    return replace(manifest, splits=splits)


def _adopt_origins(path: Path, starts: IndexRecord) -> IndexRecord | None:
    """Record the origins that are there; None if they do not fit the document index."""
    try:
        num_bytes, digest = digest_index(path)
        is_in_order = all(map(are_in_order, iter_entries(path, "origins")))
    except DamageError:
        return None
    found = replace(starts, kind="origins", path=path.name, bytes=num_bytes, digest=digest)
    return found if is_in_order and num_bytes == found.expected_bytes else None


def _adopt_fields(path: Path, starts: IndexRecord) -> IndexRecord | None:
    """Record the kept fields that are there; None if they do not fit the document index."""
    try:
        num_bytes, digest = digest_index(path)
        values = count_values(path)
    except DamageError:
        return None
    found = replace(starts, kind="fields", path=path.name, bytes=num_bytes, digest=digest)
    is_whole = count_rows(path) == starts.documents
    return replace(found, values=values) if is_whole else None


# How indexes that do not follow from the tokens are recorded again.
_ADOPT: dict[IndexKind, Callable[[Path, IndexRecord], IndexRecord | None]] = {
    "origins": _adopt_origins,
    "fields": _adopt_fields,
}


def _counted(
    starts: Iterator[NDArray[np.uint64]], num_documents: int, folder: OutputPath
) -> Iterator[NDArray[np.uint64]]:
    """Pass starts on; refuse another number of them than recorded."""
    num_found = 0
    for piece in starts:
        num_found += len(piece)
        yield piece
    if num_found != num_documents:
        raise DamageError(
            f"the document index cannot be made again: the tokens have {num_found:,} documents, "
            f"the ledger {num_documents:,}",
            where=str(folder),
            next_step="re-encode everything: "
            f"`penstok tokenize INPUT... -o {quoted(folder)} --overwrite`",
        )


def _adopt(folder: OutputPath, record: SplitRecord) -> list[IndexRecord] | None:
    """Record the indexes that are there if their records were lost; None if they do not fit.

    Whether a shard begins with the rest of a document is known only if none does.
    """
    if record.indexes_of("documents"):
        return None
    try:
        found = [
            describe_index(folder / index_name(file.path), file.tokens) for file in record.files
        ]
    except DamageError:
        return None
    return found if sum(index.documents for index in found) == record.documents else None


def _find_problem(
    path: OutputPath, record: IndexRecord | None, on_piece: Callable[[bytes], None] | None = None
) -> str:
    if record is None:
        return "there is no such index" if not path.exists() else "the index is not recorded"
    if record.kind == "fields":
        return find_problem(path, record.bytes, record.digest) or _find_other_rows(path, record)
    if record.bytes != record.expected_bytes:
        return f"{record.bytes:,} bytes are recorded, which is not {record.documents:,} documents"
    return find_problem(path, record.bytes, record.digest, on_piece)


def _find_other_rows(path: OutputPath, record: IndexRecord) -> str:
    """Compare the number of rows of kept fields with that of documents."""
    try:
        num_rows = count_rows(path)
    except DamageError as error:
        return error.what
    rows, documents = plural(num_rows, "row"), plural(record.documents, "document")
    return "" if num_rows == record.documents else f"the file has {rows} for {documents}"


def find_problem(
    path: OutputPath,
    num_bytes: int,
    digest: str,
    on_piece: Callable[[bytes], None] | None = None,
) -> str:
    """Compare a file with its recorded size and checksum; return what is wrong, or nothing.

    `on_piece` is called with all its bytes, in pieces.
    """
    try:
        size, found = hash_file(path, on_piece)
    except FileNotFoundError:
        return "the file is missing"
    except OSError as error:
        return f"the file cannot be read: {error.strerror}"
    if size != num_bytes:
        return f"the file has {plural(size, 'byte')} instead of {num_bytes:,}"
    return "" if found == digest else "checksum mismatch: it was changed"


def _iter_starts(
    manifest: Manifest, path_of: Callable[[Split, int], OutputPath], split: Split
) -> Iterator[NDArray[np.uint64]]:
    """Find the documents of a split in its tokens."""
    finder = DocumentFinder(manifest.tokenizer.eot_id, manifest.settings["eot"])
    reader = SegmentReader(path_of, int(manifest.dtype[4:]) // 8)
    yield from finder.iter_starts(
        chain.from_iterable(
            reader.iter_tokens(Segment(split, shard, 0, file.tokens, ""))
            for shard, file in enumerate(manifest.splits[split].files)
        )
    )
    reader.close()


def _compare_with_inputs(folder: OutputPath, manifest: Manifest, report: Report) -> None:
    """Compare how many documents came from each input with what the ledger says."""
    inputs = manifest.inputs
    found, name = np.zeros(len(inputs), np.int64), ""
    try:
        for split in SPLITS:
            for index in manifest.splits[split].indexes_of("origins"):
                name = index.path
                found += _count_documents(folder / name, len(inputs))
    except DamageError as error:
        report.add(_origins_finding(name, error.what))
        return
    for number in np.flatnonzero(found != [each.documents for each in inputs])[:1].tolist():
        what = (
            f"{inputs[number].path} has {plural(int(found[number]), 'document')} there, and "
            f"{inputs[number].documents:,} in the manifest"
        )
        name = index_name(manifest.splits["train"].files[0].path, "origins")
        report.add(_origins_finding(name, what))


def _count_documents(path: OutputPath, num_inputs: int) -> NDArray[np.int64]:
    """Count the documents of each input in a list of origins."""
    found = np.zeros(num_inputs, np.int64)
    for entries in iter_entries(path, "origins"):
        if not are_in_order(entries) or int(entries["input"][-1]) >= num_inputs:
            raise DamageError(
                "its documents are not in the order of the inputs",
                where=str(path),
                next_step=f"re-encode everything with `--overwrite`, to {quoted(path.parent)}",
            )
        found += np.bincount(entries["input"], minlength=num_inputs)
    return found
