"""Compares the manifest with the ledger it was made from, or with itself if the ledger is damaged.

It reads records, never tokens, and changes nothing. `records` calls it first; `repair` and
`ledger_repair` derive the manifest and the ledger from each other with it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, get_args

import msgspec
from msgspec import to_builtins

from penstok.errors import DamageError, own_version, quoted
from penstok.output.documents import index_name
from penstok.output.layout import MANIFEST, Layout
from penstok.output.ledger.lines import Ending
from penstok.output.ledger.reader import LedgerReader
from penstok.output.manifest import (
    ForeignManifestError,
    Manifest,
    NewerManifestError,
    has_content,
    make_manifest,
)
from penstok.types import SPLITS, InputFormat, JobRecord, replace
from penstok.verification.findings import Finding

if TYPE_CHECKING:
    from penstok.output.manifest import InputRecord
    from penstok.storage.object_paths import OutputPath
    from penstok.verification.findings import Report

__all__ = [
    "add_up",
    "check_sums",
    "compare_manifest",
    "format_of",
    "job_of_manifest",
    "load_manifest",
    "read_ledger",
    "with_derived",
]

# A longer one is not read to say how it differs.
_MAX_MANIFEST_BYTES = 256 << 20


def read_ledger(path: OutputPath) -> LedgerReader:
    """Read a ledger to its end.

    Raises:
        DamageError: If it is damaged.
    """
    reader = LedgerReader(path)
    for _ in reader.iter_units():
        pass
    if reader.problem or reader.ending is None:
        raise DamageError(
            f"the ledger is damaged: {reader.problem or 'the line of its end is missing'}",
            where=str(path),
            next_step=f"`penstok verify {quoted(path.parent)} --repair`",
        )
    return reader


def add_up(reader: LedgerReader) -> Manifest:
    """Make the manifest from a ledger that was read to its end."""
    return make_manifest(
        job=reader.job,
        sources=reader.sources,
        offsets=reader.offsets,
        digests=reader.digests,
        ending=reader.ending or Ending({}, {}),
        starts=reader.starts,
    )


def job_of_manifest(manifest: Manifest, unit_bytes: int) -> JobRecord:
    """Return the first line of the ledger, with `unit_bytes`, which the manifest does not have.

    Raises:
        ValueError: If no job can have these settings.
    """
    job = msgspec.convert(
        {
            "penstok": manifest.penstok,
            "tokenizer": to_builtins(manifest.tokenizer),
            "dtype": manifest.dtype,
            "unit_bytes": unit_bytes,
            "settings": manifest.settings,
        },
        JobRecord,
    )
    if not 0 <= job.tokenizer.eot_id < job.tokenizer.vocab_size <= 1 << int(job.dtype[4:]):
        raise ValueError("the ids do not fit the vocabulary")
    return job


def format_of(record: InputRecord) -> InputFormat:
    """Return the format in which an input of a manifest was read."""
    known: tuple[InputFormat, ...] = get_args(InputFormat)
    return next((each for each in known if each == record.format), "text")


def load_manifest(folder: OutputPath, report: Report) -> Manifest | None:
    """Read the manifest; report one that is damaged, and return None."""
    path = folder / MANIFEST
    try:
        size = 0
        with contextlib.suppress(OSError):
            size = path.stat().st_size
        if size > _MAX_MANIFEST_BYTES:
            report.add(Finding("manifest", "the manifest is far too large", MANIFEST))
            return None
        return Manifest.load(folder)
    except (NewerManifestError, ForeignManifestError):
        raise
    except DamageError as error:
        what = error.what if path.exists() else "the manifest is missing"
        report.add(Finding("manifest", what, MANIFEST))
        return None


def with_derived(expected: Manifest, found: Manifest) -> Manifest:
    """Add what a manifest on disk says about files that the ledger does not list.

    Only records with the names that such files have are taken; `indexes` compares their contents.
    """
    splits, kinds = {}, (*Layout.of_manifest("", expected).index_kinds, "mask")
    for split, record in expected.splits.items():
        names = {index_name(file.path, kind) for file in record.files for kind in kinds}
        indexes = [each for each in found.splits[split].indexes if each.path in names]
        splits[split] = replace(record, indexes=indexes)
    return replace(expected, splits=splits, formats=found.formats, lineage=found.lineage)


def compare_manifest(folder: OutputPath, expected: Manifest, report: Report) -> Manifest:
    """Compare the manifest with what the ledger adds up to: every byte, in the same version.

    Returns it as it should be, with the files that the ledger does not list.
    """
    path = folder / MANIFEST
    manifest = load_manifest(folder, report)
    if manifest is None:
        return expected
    expected = with_derived(expected, manifest)
    if has_content(path, expected.to_json().encode()):
        return expected
    here, there = to_builtins(expected), to_builtins(manifest)
    differing = [f"`{name}`" for name in here if here[name] != there[name]]
    # A later version may have added what this one does not know.
    if differing or expected.penstok == own_version():
        names = ", ".join(differing) or "something"
        verb = "differ" if len(differing) > 1 else "differs"
        what = f"the manifest was changed: {names} {verb} from the ledger"
        report.add(Finding("manifest", what, MANIFEST))
    return expected


def check_sums(manifest: Manifest, layout: Layout, report: Report) -> None:
    """Check that the manifest's own numbers add up, where there is no ledger to compare with."""
    splits = manifest.splits
    sums = {
        "tokens of the splits": sum(splits[split].tokens for split in SPLITS),
        "tokens of the inputs": sum(record.tokens for record in manifest.inputs),
        "tokens of the files": sum(file.tokens for each in SPLITS for file in splits[each].files),
    }
    sums = {name: found for name, found in sums.items() if found != manifest.counts.get("tokens")}
    num_bytes = {
        file.path: file.bytes
        for split in SPLITS
        for file in splits[split].files
        if file.bytes != file.tokens * layout.token_bytes
    }
    for name, found in (sums | num_bytes).items():
        what = f"the numbers do not add up: {found} in {name}"
        report.add(Finding("manifest", what, MANIFEST, is_repairable=False))
