"""Checks the files of other formats against their checksums; writes them again from the tokens.

They are not in the ledger: each follows from the tokens and the document index. `verify` calls it
after these were checked, `repair` after they were repaired.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstok.jobs.formats import FormatRequest, find_requests, stage_formats
from penstok.jobs.intent import commit_formats
from penstok.output.documents import hash_file
from penstok.output.formats.base import TokenSource
from penstok.quantities import plural
from penstok.types import replace
from penstok.verification.findings import Finding
from penstok.verification.indexes import find_problem

if TYPE_CHECKING:
    from penstok.output.manifest import FormatFileRecord, Manifest
    from penstok.output.store.folder import FolderStore
    from penstok.storage.object_paths import OutputPath
    from penstok.verification.findings import Report

__all__ = ["check_formats", "rewrite_formats"]

# Without `--full`, files are read only if all of them together are not larger.
_SAMPLE_BYTES = 256 << 20


def check_formats(folder: OutputPath, manifest: Manifest, report: Report, *, is_full: bool) -> None:
    """Check the sizes of the files of every format, and their checksums if they are not large.

    Args:
        folder: The output.
        manifest: What is recorded.
        report: Findings are added to it.
        is_full: Compare all checksums, however large the files are.
    """
    num_bytes = sum(file.bytes for record in manifest.formats for file in record.files)
    is_read = is_full or num_bytes <= _SAMPLE_BYTES
    for record in manifest.formats:
        for file in record.files:
            problem = _find_problem(folder, file, is_read=is_read)
            if is_read and not problem and file.same_as is None:
                report.bytes_read += file.bytes
            if problem:
                report.add(Finding("format", problem, file.path))


def rewrite_formats(store: FolderStore, manifest: Manifest) -> Manifest:
    """Write all formats again; return the manifest with their records."""
    requests = [FormatRequest.from_record(each, store.name) for each in manifest.formats]
    if manifest.lineage is None:
        # Also those that a lost manifest no longer lists.
        requests = find_requests(manifest.settings, manifest.formats, store.name)
    if not requests:
        return manifest
    source = TokenSource.from_manifest(manifest, lambda name: store.folder / name)
    formats, staged = stage_formats(store, manifest, source, requests)
    rewritten = replace(manifest, formats=formats)
    commit_formats(store, rewritten, staged, manifest.format_files())
    return rewritten


def _find_problem(folder: OutputPath, file: FormatFileRecord, *, is_read: bool) -> str:
    path = folder / file.path
    if file.same_as is None and is_read:
        return find_problem(path, file.bytes, file.digest)
    if not path.is_file():
        return "the file is missing"
    if path.stat().st_size != file.bytes:
        return f"the file has {plural(path.stat().st_size, 'byte')} instead of {file.bytes:,}"
    if file.same_as is None or not is_read or not (folder / file.same_as).is_file():
        return ""
    other = folder / file.same_as
    if isinstance(path, Path) and isinstance(other, Path) and path.samefile(other):
        return ""
    # A copy of an output, made by a program that does not keep links, has two files.
    if hash_file(path) != hash_file(other):
        return f"it no longer has the same tokens as `{file.same_as}`"
    return ""
