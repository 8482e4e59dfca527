"""Checks an output that was not made from text, and so has no ledger: its manifest is all there is.

It reads each token file once and changes nothing. `verify` calls it for outputs of
`penstok convert`; the checks of indexes and formats are those of every output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xxhash

from penstok.errors import DamageError, quoted
from penstok.output.layout import MANIFEST, SEGMENTS
from penstok.output.manifest import Manifest
from penstok.output.segments import SegmentReader
from penstok.quantities import plural
from penstok.types import SPLITS, Segment
from penstok.verification.findings import Finding
from penstok.verification.formats import check_formats
from penstok.verification.indexes import check_indexes

if TYPE_CHECKING:
    from penstok.output.manifest import FileRecord
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Split
    from penstok.verification.findings import Report

__all__ = ["check_converted", "find_converted"]


def find_converted(folder: OutputPath) -> Manifest | None:
    """Return the manifest of an output that has no ledger because it was converted."""
    if (folder / SEGMENTS).exists() or not (folder / MANIFEST).exists():
        return None
    try:
        manifest = Manifest.load(folder)
    except DamageError:
        return None
    return None if manifest.lineage is None else manifest


def check_converted(
    folder: OutputPath, manifest: Manifest, report: Report, *, is_full: bool
) -> None:
    """Compare every file with its size and checksum."""
    report.tokens = {split: manifest.splits[split].tokens for split in SPLITS}
    report.documents = {split: manifest.splits[split].documents for split in SPLITS}

    def path_of(split: Split, shard: int) -> OutputPath:
        return folder / manifest.splits[split].files[shard].path

    reader = SegmentReader(path_of, int(manifest.dtype[4:]) // 8)
    for split in SPLITS:
        for shard, file in enumerate(manifest.splits[split].files):
            problem = _find_problem(reader, manifest, split, shard, file)
            if problem:
                report.damaged_files.add((split, shard))
                report.add(Finding("tokens", problem, file.path, is_repairable=False))
            report.bytes_read += file.bytes
    reader.close()
    # Other programs may begin or end a file inside a document, so the ids need not say the same.
    check_indexes(folder, manifest, report, starts=None)
    check_formats(folder, manifest, report, is_full=is_full)
    report.is_repairable = False
    report.next_step = (
        f"delete {quoted(folder)} and run the `penstok convert` that made it again"
        if report.num_findings
        else ""
    )


def _find_problem(
    reader: SegmentReader, manifest: Manifest, split: Split, shard: int, file: FileRecord
) -> str:
    running, largest = xxhash.xxh3_128(), 0
    try:
        for piece in reader.iter_tokens(Segment(split, shard, 0, file.tokens, "")):
            running.update(piece.data)
            largest = max(largest, int(np.max(piece)))
    except DamageError as error:
        return error.what
    if largest >= manifest.tokenizer.vocab_size:
        return f"id {largest} is outside the vocabulary of {manifest.tokenizer.vocab_size}"
    # Such a file is one segment.
    if xxhash.xxh3_128_hexdigest(running.digest()) != file.digest:
        return f"checksum mismatch in {plural(file.tokens, 'token')}: the file was changed"
    return ""
