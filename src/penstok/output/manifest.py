"""The manifest of a finished job: inputs, settings, counts and files.

It reads and writes `manifest.json` (version 1, specified in `docs/reference/manifest.md`) and reads
no token. `jobs.commit` writes it last; `verification`, `data` and `training` read it first.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
import xxhash
from msgspec import to_builtins

from penstok.errors import DamageError, is_refused, quoted, read_error
from penstok.output.documents import IndexRecord  # noqa: TC001 msgspec reads annotations
from penstok.output.layout import JOB, MANIFEST, SEGMENTS, WORK, Layout, is_final_name
from penstok.output.spools import IndexKind  # noqa: TC001 msgspec reads annotations
from penstok.storage.object_paths import repair_step
from penstok.types import (
    SPLITS,
    UTF_8,
    Counts,
    EotPosition,
    Split,
    Struct,
    TokenizerRecord,
    field,
    replace,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstok.output.ledger.journal import NodeTotals
    from penstok.output.ledger.lines import Ending
    from penstok.output.offsets import Offsets
    from penstok.storage.object_paths import OutputPath
    from penstok.types import JobRecord, Source

__all__ = [
    "FileRecord",
    "ForeignManifestError",
    "FormatFileRecord",
    "FormatRecord",
    "InputRecord",
    "Lineage",
    "Manifest",
    "NewerManifestError",
    "RunRecord",
    "RunSeries",
    "SplitRecord",
    "TaskFacts",
    "check_readable",
    "digest_inputs",
    "has_content",
    "is_manifest",
    "make_manifest",
]

_FORMAT, _VERSION = "penstok", 1
# Earlier versions did not count these.
_LATER_COUNTS = {"text_bytes"}
_START_CHARS = 256
_FORMAT_NAME = re.compile("[a-z][a-z0-9_-]{0,63}")
_COLUMN_NAME = re.compile("[a-z_]+")
_START = re.compile(rb'\s*\{\s*"format"\s*:\s*"penstok"')


class KnowsDigests(Protocol):
    """Returns the digest of each output file."""

    def of(self, split: Split, shard: int) -> str:
        """Return the digest of one file."""
        ...


class NewerManifestError(DamageError):
    """The manifest was written by a newer version: it is not damaged and must not be repaired."""


class ForeignManifestError(DamageError):
    """The file belongs to another program: nobody may be told to repair or delete it."""


class FileRecord(Struct, frozen=True):
    """One output file; `digest` is an xxh3_128 over the digests of its segments."""

    path: str
    bytes: int
    tokens: int
    digest: str


class SplitRecord(Struct, frozen=True):
    """One split, with its files in order, and the indexes beside them."""

    documents: int
    tokens: int
    files: list[FileRecord]
    indexes: list[IndexRecord] = field(default_factory=list)

    def indexes_of(self, kind: IndexKind) -> list[IndexRecord]:
        """Return the indexes of one kind, in the order of the files."""
        return [index for index in self.indexes if index.kind == kind]

    def iter_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the size of every file: those with tokens, then their indexes."""
        yield from ((file.path, file.bytes) for file in self.files)
        yield from ((index.path, index.bytes) for index in self.indexes)


class FormatFileRecord(Struct, frozen=True):
    """One file of another format.

    Attributes:
        path: Its name in the output folder, with slashes.
        bytes: Its size.
        tokens: How many tokens it holds; 0 for an index.
        digest: The xxh3_128 of its content; empty if it is a link.
        same_as: The token file that it is a link to.
    """

    path: str
    bytes: int
    tokens: int
    digest: str
    same_as: str | None = None


class FormatRecord(Struct, frozen=True):
    """The files of another format.

    Attributes:
        name: Its name.
        options: How it was written.
        files: Its files.
        dropped_tokens: How many tokens are in no file, because the format has no place for them.
        split_documents: How many documents are in several rows, because the format limits rows.
    """

    name: str
    options: dict[str, Any]
    files: list[FormatFileRecord]
    dropped_tokens: int = 0
    split_documents: int = 0


class Lineage(Struct, frozen=True):
    """What an output was made from, if not from text.

    Attributes:
        kind: `converted`, from an output of Penstok, or `imported`, from files of another program.
        sources: The output, or the files.
        digest: A digest of what was read.
    """

    kind: Literal["converted", "imported"]
    sources: list[str]
    digest: str


class InputRecord(Struct, frozen=True):
    """What one input contributed; `reasons` says why its first skipped records were skipped.

    With a `reason`, it was not used: `skipped` is 1 if it could not be, 0 if it was found in a
    folder and is not text.
    """

    path: str
    bytes: int
    documents: int
    tokens: int
    skipped: int
    invalid_utf8: int
    reason: str | None = None
    format: str | None = None
    compression: str | None = None
    reasons: list[str] = field(default_factory=list)
    encoding: str = UTF_8
    archive: str | None = None

    def to_json(self) -> str:
        """Format it as JSON; without an encoding if it is UTF-8, or an archive if there is none."""
        content = to_builtins(self)
        if self.encoding == UTF_8:
            del content["encoding"]
        if self.archive is None:
            del content["archive"]
        return json.dumps(content)


class TaskFacts(Struct, frozen=True):
    """The tasks of a run; how many earlier runs had finished, and how many were tried again."""

    executor: str
    tasks: int
    tasks_kept: int
    tasks_retried: int


class RunSeries(Struct, frozen=True):
    """How fast a run was and how much memory it had, at a few moments.

    Attributes:
        seconds: The moments, from the first unit on.
        text_bytes: How much text was done by then.
        memory_bytes: How much memory all processes had then.
    """

    seconds: list[float] = field(default_factory=list)
    text_bytes: list[int] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)


class RunRecord(Struct, frozen=True, kw_only=True):
    """How the last run of a job went.

    Attributes:
        seconds: How long it took.
        work_seconds: How long its tasks ran.
        work: What it read.
        workers: How many workers it had.
        peak_bytes: Its peak memory.
        units_kept: How many units earlier runs had finished.
        is_resumed: Whether earlier runs had finished anything.
        tasks: Its tasks, if each writes its own shards.
        series: Its speed and memory over time; None if it was run in parts.
    """

    seconds: float
    work_seconds: float
    work: Counts
    workers: int
    peak_bytes: int
    units_kept: int
    is_resumed: bool
    tasks: TaskFacts | None
    series: RunSeries | None = None

    def to_dict(
        self, num_replaced: int, engines: Iterable[str], nodes: Mapping[str, NodeTotals]
    ) -> dict[str, Any]:
        """Return the manifest's `run`, with what the journals of all runs say."""
        per_node = [to_builtins(each) for _, each in sorted(nodes.items())]
        return {
            "seconds": round(self.seconds, 3),
            "work_seconds": round(self.work_seconds, 3),
            "work_bytes": self.work.input_bytes,
            "work_text_bytes": self.work.text_bytes,
            "workers": self.workers,
            "peak_memory_bytes": self.peak_bytes,
            "resumed": self.is_resumed,
            "units_kept": self.units_kept,
            "host": _host_facts(),
            "workers_replaced": num_replaced,
            "engine": ", ".join(sorted(engines)),
            **({"nodes": per_node} if per_node else {}),
            **({} if self.tasks is None else to_builtins(self.tasks)),
            **({} if self.series is None else {"series": to_builtins(self.series)}),
        }


class _NeededSettings(Struct, frozen=True):
    """The settings without which an output cannot be shown; the others are only compared."""

    eot: EotPosition
    docs_by: Literal["separator", "line", "file", "record"]
    val_fraction: float
    limit_bytes: int | None = None
    task_bytes: int | None = None


class Manifest(Struct, frozen=True):
    """A finished job: its inputs, outputs, settings and counts."""

    penstok: str
    tokenizer: TokenizerRecord
    dtype: Literal["uint16", "uint32"]
    byte_order: str
    splits: dict[Split, SplitRecord]
    inputs: list[InputRecord]
    inputs_digest: str
    counts: dict[str, int]
    settings: dict[str, Any]
    run: dict[str, Any]
    formats: list[FormatRecord] = field(default_factory=list)
    lineage: Lineage | None = None

    def to_json(self) -> str:
        """Format it as JSON, with one input per line."""
        content = {"format": _FORMAT, "version": _VERSION, **to_builtins(replace(self, inputs=[]))}
        content["tokenizer"] = self.tokenizer.to_dict()
        for name in ("formats", "lineage"):
            if not content[name]:
                del content[name]
        inputs = ",\n    ".join(record.to_json() for record in self.inputs)
        # Hundreds of numbers, on one line.
        series = json.dumps(self.run.get("series"))
        if "series" in self.run:
            content["run"] = {**self.run, "series": {}}
        text = json.dumps(content, indent=2).replace('"series": {}', f'"series": {series}', 1)
        return text.replace('"inputs": []', f'"inputs": [\n    {inputs}\n  ]', 1) + "\n"

    @classmethod
    def from_json(cls, text: str, path: OutputPath) -> Manifest:
        """Parse a manifest.

        Raises:
            DamageError: If the text is damaged, not a manifest, or was written by a newer version.
        """
        try:
            content = json.loads(text)
            version = content.get("version")
            if content.get("format") != _FORMAT:
                raise _damage("it does not say that penstok wrote it", text, path)
            if type(version) is int and version > _VERSION:
                raise NewerManifestError(
                    f"manifest version {version} is newer than this penstok",
                    where=str(path),
                    next_step="upgrade: `pip install --upgrade penstok`",
                )
            if version != _VERSION:
                raise _damage("its version is missing or not valid", text, path)
            manifest = msgspec.convert(content, cls)
            names = [*manifest.files(), *manifest.format_files()]
            if any(Path(name).name != name or name == ".." for name in manifest.files()):
                raise _damage("it lists files outside its folder", text, path)
            if not all(map(_is_format_file, manifest.format_files())):
                raise _damage("it lists files outside its folder", text, path)
            if problem := _find_problem(manifest):
                raise _damage(problem, text, path)
            if not all(name.isprintable() for name in names):
                raise _damage("it lists names that no output file has", text, path)
            msgspec.convert(content["settings"], _NeededSettings)
            missing = set(Counts.__struct_fields__) - _LATER_COUNTS - manifest.counts.keys()
            if missing:
                raise _damage(f"`{min(missing)}` is missing in `counts`", text, path)
            return manifest
        except json.JSONDecodeError as error:
            what = f"it is not valid JSON after line {error.lineno}, column {error.colno}"
            raise _damage(what, text, path) from error
        except msgspec.ValidationError as error:
            raise _damage(f"{error}", text, path) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _damage("it is not a JSON object of a manifest", text, path) from error

    @classmethod
    def load(cls, folder: OutputPath) -> Manifest:
        """Read the manifest of a finished job.

        Raises:
            DamageError: If there is no finished job in the folder.
            InputError: If it cannot be read.
        """
        path = folder / MANIFEST
        try:
            return cls.from_json(path.read_bytes().decode(errors="replace"), path)
        except (FileNotFoundError, IsADirectoryError) as error:
            what = "there is no finished job here"
            next_step = f"create one: `penstok tokenize INPUT... -o {quoted(folder)}`"
            if (folder / WORK / JOB).exists():
                what = "the job here is not finished"
                next_step = "run the command that was started here again: it continues"
                if (folder / WORK / "parts").exists():
                    next_step = (
                        f"if all parts are done, run `penstok finish {quoted(folder)}`: it names "
                        "those that are missing"
                    )
            elif (folder / SEGMENTS).exists():
                what, next_step = "the manifest is missing", repair_step(folder)
            raise DamageError(what, where=str(folder), next_step=next_step) from error
        except NotADirectoryError as error:
            raise DamageError(
                f"`{folder}` is not a folder, so there is no finished job here",
                where="OUT",
                next_step="name the folder that was `-o`, such as `tokens/`",
            ) from error
        except OSError as error:
            raise read_error(error, str(path), _permissions_step(folder)) from error

    def shard_starts(self) -> dict[Split, list[int]] | None:
        """Return where the shards of each split start, if each task wrote its own."""
        if self.settings.get("task_bytes") is None:
            return None
        return {
            split: list(accumulate((file.tokens for file in record.files[:-1]), initial=0))
            for split, record in self.splits.items()
        }

    def has_skipped(self) -> bool:
        """Return whether any record or input was left out, so that a file lists them."""
        return bool(self.counts["skipped_records"]) or any(each.reason for each in self.inputs)

    def files(self) -> list[str]:
        """Return the names of all files with tokens, and of their indexes."""
        return [name for split in SPLITS for name, _ in self.splits[split].iter_sizes()]

    def iter_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the size of every file, also of other formats."""
        for split in SPLITS:
            yield from self.splits[split].iter_sizes()
        for record in self.formats:
            yield from ((file.path, file.bytes) for file in record.files)

    def format_files(self) -> list[str]:
        """Return the names of all files of other formats."""
        return [file.path for each in self.formats for file in each.files]


def make_manifest(
    *,
    job: JobRecord,
    sources: Sequence[Source],
    offsets: Offsets,
    digests: KnowsDigests,
    ending: Ending,
    starts: Mapping[Split, Sequence[int]] | None = None,
    indexes: Mapping[Split, list[IndexRecord]] | None = None,
) -> Manifest:
    """Create the manifest of a job whose tokens are all written, from a run or from its ledger.

    Args:
        job: The settings that affect token bytes.
        sources: The inputs.
        offsets: The totals.
        digests: The digests of the files.
        ending: How the job ran.
        starts: Where the shards of each split start, if each task wrote its own.
        indexes: The indexes of each split; the ledger does not have them.
    """
    layout = Layout.of_job(Path(), job, starts)
    splits = {}
    for split in SPLITS:
        total = offsets.tokens[split]
        files = [
            FileRecord(
                layout.file_name(split, shard),
                num_tokens * layout.token_bytes,
                num_tokens,
                digests.of(split, shard),
            )
            for shard, num_tokens in layout.iter_shards(split, total)
        ]
        splits[split] = SplitRecord(
            offsets.documents[split], total, files, [] if indexes is None else indexes[split]
        )
    counts = to_builtins(offsets.counts)
    if not counts["text_bytes"]:
        del counts["text_bytes"]
    counts["skipped_records"] += len(ending.skipped)
    counts["empty_documents"] += sum(1 for source in sources if source.is_empty)
    return Manifest(
        penstok=job.penstok,
        tokenizer=job.tokenizer,
        dtype=job.dtype,
        byte_order="little",
        splits=splits,
        inputs=[
            *(_input_record(source, idx, offsets) for idx, source in enumerate(sources)),
            *(InputRecord(path, 0, 0, 0, 1, 0, why) for path, why in ending.skipped.items()),
            *(InputRecord(path, 0, 0, 0, 0, 0, why) for path, why in ending.ignored.items()),
        ],
        inputs_digest=digest_inputs(sources),
        counts=counts,
        settings=job.settings,
        run=ending.run,
    )


def _is_format_file(name: str) -> bool:
    """Return whether a name is that of a file below the output folder, and not one of its own."""
    parts = name.split("/")
    is_inside = not {"", ".", ".."} & set(parts) and parts[0] != WORK
    return is_inside and (name.endswith(".idx") or not is_final_name(name))


def _find_problem(manifest: Manifest) -> str:
    """Return what no conversion could have recorded; nothing if all could be."""
    names = manifest.format_files()
    if len({*names}) < len(names) or len({each.name for each in manifest.formats}) < len(
        manifest.formats
    ):
        return "it lists a format, or a file of one, twice"
    for record in manifest.formats:
        if not _FORMAT_NAME.fullmatch(record.name):
            return "it lists a format whose name is not valid"
        numbers = [record.dropped_tokens, record.split_documents]
        numbers += [number for file in record.files for number in (file.bytes, file.tokens)]
        if min(numbers) < 0 or max(numbers) >= 1 << 63:
            return f"it lists impossible sizes of the format `{record.name}`"
        if problem := _find_bad_option(record):
            return problem
        links = {file.same_as for file in record.files} - {None}
        if links - {file.path for split in SPLITS for file in manifest.splits[split].files}:
            return f"files of the format `{record.name}` are links to no token file"
    if manifest.lineage is not None and not manifest.lineage.sources:
        return "it does not say what the output was made from"
    return ""


class _KnownOptions(Struct, frozen=True):
    """The options of formats that this version knows; a later one may have more."""

    sequence_length: int | None = None
    shard_tokens: int | None = None
    columns: list[str] = field(default_factory=lambda: ["input_ids"])


def _find_bad_option(record: FormatRecord) -> str:
    options = msgspec.convert(record.options, _KnownOptions)
    counts = [options.sequence_length or 1, options.shard_tokens or 1]
    names = options.columns
    is_valid = min(counts) > 0 and max(counts) < 1 << 63 and names
    if is_valid and all(map(_COLUMN_NAME.fullmatch, names)):
        return ""
    return f"it lists impossible options of the format `{record.name}`"


def has_content(path: OutputPath, content: bytes) -> bool:
    """Return whether a file has just these bytes; it is opened once, and no more of it is read."""
    try:
        with path.open("rb") as file:
            return file.read(len(content) + 1) == content
    except OSError:
        return False


def is_manifest(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a manifest of Penstok."""
    return _START.match(head) is not None


def digest_inputs(sources: Iterable[Source]) -> str:
    """Hash the names, sizes, times, edges and encodings of all inputs, to detect changes."""
    digest = xxhash.xxh3_128()
    for source in sources:
        encoding = "" if source.encoding == UTF_8 else f"\0{source.encoding}"
        line = f"{source.path}\0{source.num_bytes}\0{source.mtime_ns}\0{source.edges}{encoding}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _input_record(source: Source, idx: int, offsets: Offsets) -> InputRecord:
    counts = offsets.of_source(idx)
    return InputRecord(
        source.path,
        source.num_bytes,
        counts.documents,
        counts.tokens,
        counts.skipped_records,
        counts.invalid_utf8,
        format=source.format,
        compression=source.compression,
        reasons=offsets.reasons_of(idx),
        encoding=source.encoding,
        archive=source.archive.path if source.archive is not None else None,
    )


def _host_facts() -> dict[str, Any]:
    """Return what kind of machine this is, without identifying it."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def check_readable(folder: OutputPath) -> None:
    """Refuse records that cannot be read: they are neither missing nor damaged.

    Raises:
        InputError: If there is no permission, or too many files are open.
    """
    if not isinstance(folder, Path):
        return
    path = folder
    try:
        for path in (folder / MANIFEST, folder / SEGMENTS):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                path.open("rb").close()
    except OSError as error:
        if is_refused(error):
            raise read_error(error, str(path), _permissions_step(folder)) from error


def _permissions_step(folder: OutputPath) -> str:
    return (
        f"`ls -la {quoted(folder)}` shows who may read it; run the same command as a user who may"
    )


def _damage(why: str, text: str, path: OutputPath) -> DamageError:
    has_ledger = (path.parent / SEGMENTS).exists()
    if not has_ledger and not is_manifest(text[:_START_CHARS].encode()):
        return ForeignManifestError(
            f"there is no output of penstok here: `{path.name}` is not a penstok manifest",
            where=str(path),
            next_step="name the folder that was `-o`, such as `tokens/`",
        )
    return DamageError(
        f"the manifest is damaged: {why}",
        where=str(path),
        next_step=repair_step(path.parent)
        if has_ledger
        else "run the command that made this output again, with `--overwrite`",
    )
