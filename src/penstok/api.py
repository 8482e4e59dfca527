"""The Python interface: a function for each command, with the same settings and errors.

It does no work of its own, prints nothing, and imports what a function needs only when it is
called. `jobs`, `verification` and `data` do the work; `penstok` itself exports these functions.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstok.data.dataset import Dataset
    from penstok.jobs.settings import JobSettings
    from penstok.output.manifest import Manifest
    from penstok.verification.findings import Report

__all__ = ["finish", "open", "tokenize", "tokenize_part", "verify"]


def tokenize(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] = "tokens",
    **settings: Any,
) -> Manifest:
    """Turn text into `train.bin` and `val.bin`; return the manifest.

    Args:
        inputs: Files, folders, globs, URLs.
        output: The folder to write to, or `s3://BUCKET/NAME`.
        settings: Any field of `JobSettings`; they are named like the flags of
            `penstok tokenize`, with sizes in bytes: `memory_bytes`, `limit_bytes`.

    Example:
        >>> manifest = penstok.tokenize("corpus/*.txt", "tokens", val_fraction=0.01)
        >>> manifest.splits["train"].tokens
        41273
    """
    from penstok.jobs.progress import SilentProgress
    from penstok.jobs.run import run_job

    return run_job(_settings(inputs, output, settings), SilentProgress()).manifest


def tokenize_part(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    part: int,
    num_parts: int,
    **settings: Any,
) -> None:
    """Run one part of a job; call `finish` when all parts are done.

    Args:
        inputs: Files, folders, globs, URLs; the same for all parts.
        output: The folder that all parts write to, or `s3://BUCKET/NAME`.
        part: The number of this part, from 1.
        num_parts: The number of parts.
        settings: As for `tokenize`.
    """
    from penstok.jobs.progress import SilentProgress
    from penstok.jobs.run import run_part

    job = _settings(inputs, output, {**settings, "part": (part, num_parts)})
    run_part(job, SilentProgress())


def finish(output: str | os.PathLike[str]) -> Manifest:
    """Finish a job whose parts are all done; return the manifest.

    Raises:
        DamageError: If parts are missing; it names them.
    """
    from penstok.jobs.run import finish_job

    return finish_job(os.fspath(output))[0]


def _settings(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    settings: dict[str, Any],
) -> JobSettings:
    from penstok.jobs.settings import JobSettings, parse_output

    several = [inputs] if isinstance(inputs, (str, os.PathLike)) else inputs
    paths = tuple(os.fspath(path) for path in several)
    return JobSettings(inputs=paths, output=parse_output(os.fspath(output)), **settings)


def open(folder: str | os.PathLike[str]) -> Dataset:  # noqa: A001 reads as `penstok.open`
    """Open a finished output: `penstok.open("tokens").train` is a read-only memory map.

    For an output in an object store, such as `penstok.open("s3://bucket/run")`, it is a
    `RemoteTokens`, where each slice is a request.
    """
    from penstok.data.dataset import open_dataset

    return open_dataset(folder)


def verify(folder: str | os.PathLike[str], *, repair: bool = False, **settings: Any) -> Report:
    """Check a finished output for damage; see `report.is_whole` and `report.findings`.

    Args:
        folder: The output: a folder, or `s3://BUCKET/NAME`.
        repair: Re-encode damaged units from the inputs.
        settings: Any field of `VerifySettings`: `full`, `source`, `workers`, `memory_bytes`,
            `seed`.

    Example:
        >>> penstok.verify("tokens", full=True).is_whole
        True
    """
    from penstok.jobs.progress import SilentProgress
    from penstok.storage.object_paths import output_path
    from penstok.verification import VerifySettings, repair_output, verify_output

    wanted = VerifySettings(output=output_path(folder), **settings)
    return (repair_output if repair else verify_output)(wanted, SilentProgress())
