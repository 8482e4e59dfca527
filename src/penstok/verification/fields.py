"""Makes the kept fields of an output again: reads all its inputs, and writes no token.

The checksums of the tokens prove that the inputs still say what they said. `repair` calls it when
the fields are damaged and everything else is whole; `indexes` finds that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.inputs.changes import refuse_changed
from penstok.jobs.progress import Meter
from penstok.output.documents import index_name
from penstok.output.formats.base import TokenSource
from penstok.output.layout import SEGMENTS
from penstok.output.ledger.reader import LedgerReader
from penstok.types import SPLITS, replace
from penstok.verification.reencode import make_executor, reencode_units

if TYPE_CHECKING:
    from penstok.jobs.progress import Progress
    from penstok.output.layout import Layout
    from penstok.output.manifest import Manifest
    from penstok.output.store.base import HeldLock
    from penstok.output.store.folder import FolderStore
    from penstok.verification.settings import VerifySettings

__all__ = ["rebuild_fields"]


def rebuild_fields(
    store: FolderStore,
    lock: HeldLock,
    layout: Layout,
    manifest: Manifest,
    settings: VerifySettings,
    progress: Progress,
) -> Manifest:
    """Write the fields of all documents again; return the manifest with their records.

    Raises:
        InputError: If an input cannot be read.
        ConflictError: If an input has changed.
    """
    files = store.begin_rebuild(replace(layout, has_origins=False))
    ledger = store.folder / SEGMENTS
    reader = LedgerReader(ledger)
    for _ in reader.iter_units():
        pass
    sources = reader.sources
    for each in sources:
        refuse_changed(each, by_time=False)
    executor = make_executor(
        reader.job, files.layout, sources, "fields", settings, lock_file=lock.file
    )
    meter = Meter(progress, manifest.counts["input_bytes"], reader.num_units)
    reencode_units(executor, LedgerReader(ledger).iter_units(), meter)
    tokens = TokenSource.from_manifest(manifest, lambda name: store.folder / name)
    for split in SPLITS:
        files.restore_spool(split, "documents", tokens.splits[split].iter_starts())
    staged = files.seal_indexes(
        {split: manifest.splits[split].tokens for split in SPLITS},
        {split: manifest.splits[split].documents for split in SPLITS},
    )
    splits, kinds = {}, layout.index_kinds
    for split, record in manifest.splits.items():
        made = [index for index in staged[split] if index.record.kind == "fields"]
        store.publish((index.record.path, index.location, index.record.bytes) for index in made)
        known = {index.path: index for index in record.indexes}
        known |= {index.record.path: index.record for index in made}
        names = [index_name(each.path, kind) for each in record.files for kind in kinds]
        splits[split] = replace(record, indexes=[known[name] for name in names if name in known])
    return replace(manifest, splits=splits)
