"""`penstok verify`: is an output what its job made?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstok.cli._report import errors_reported, escape, say
from penstok.cli.tokenize import choose_progress

if TYPE_CHECKING:
    from penstok.verification.findings import Finding, Report

__all__ = ["verify"]

_EXIT_DAMAGED = 6
_MAX_LISTED = 20


def verify(
    output: Annotated[
        str,
        typer.Argument(metavar="OUT", help="A finished output: a folder, or s3://BUCKET/NAME."),
    ],
    full: Annotated[
        bool, typer.Option("--full", help="Read every token; with --source, prove every document.")
    ] = False,
    source: Annotated[
        bool,
        typer.Option("--source", help="Read the inputs too, and compare with the reference."),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Make what is damaged anew from the inputs; in folders only."
        ),
    ] = False,
    workers: Annotated[
        int | None, typer.Option("-j", "--workers", help="Threads, and processes; default: cores.")
    ] = None,
    memory: Annotated[
        str, typer.Option("--memory", help="For the processes of --source and --repair.")
    ] = "1GiB",
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Look at the sample of an earlier run.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON lines to standard output.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only errors.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Tracebacks with errors.")
    ] = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No progress line.")] = False,
) -> None:
    """Check that an output is whole: in seconds, or every token, or against its inputs.

    Examples:  penstok verify tokens/   ·   penstok verify tokens/ --full   ·   penstok verify
    tokens/ --source   ·   penstok verify tokens/ --repair   ·   penstok verify s3://bucket/run
    """
    with errors_reported(as_json=as_json, verbose=verbose, reads_only=not repair):
        from penstok.quantities import parse_bytes
        from penstok.storage.object_paths import output_path
        from penstok.verification import VerifySettings, verify_output
        from penstok.verification.restore import repair_output

        settings = VerifySettings(
            output=output_path(output),
            full=full,
            source=source,
            workers=workers,
            memory_bytes=parse_bytes(memory, "--memory"),
            seed=seed,
        )
        silent = no_progress or (quiet and not as_json)
        progress = choose_progress(as_json, silent, "verifying")
        report = (repair_output if repair else verify_output)(settings, progress)
    if as_json:
        _print_json(report)
    if not quiet or not report.is_whole:
        say("\n".join(_lines(report, full=full, source=source)))
    if not report.is_whole:
        raise typer.Exit(_EXIT_DAMAGED)


def _print_json(report: Report) -> None:
    lines: list[dict[str, Any]] = [
        *({"type": "repaired", **asdict(finding)} for finding in report.mended),
        *({"type": "finding", **asdict(finding)} for finding in report.findings),
        {
            "type": "summary",
            "output": str(report.folder),
            "is_whole": report.is_whole,
            "is_repairable": report.is_repairable,
            "findings": report.num_findings,
            "seed": report.seed,
            "tokens": report.tokens,
            "documents": report.documents,
            "units": report.num_units,
            "units_read": report.units_read,
            "bytes_read": report.bytes_read,
            "units_proved": report.units_proved,
            "documents_proved": report.documents_proved,
            "text_proved": report.text_proved,
            "is_all_proved": report.is_all_proved,
            "repaired": report.repaired,
            "units_repaired": report.units_repaired,
            "notes": report.notes,
            "exit_code": 0 if report.is_whole else _EXIT_DAMAGED,
        },
    ]
    sys.stdout.write("".join(json.dumps(line) + "\n" for line in lines))
    sys.stdout.flush()


def _lines(report: Report, *, full: bool, source: bool) -> list[str]:
    folder = escape(str(report.folder)).rstrip("/") + "/"
    lines = [f"  repaired: {_located(finding)}" for finding in report.mended[:_MAX_LISTED]]
    if report.repaired:
        names = ", ".join(report.repaired[:_MAX_LISTED])
        lines.append(f"  made whole: {names} (units encoded again: {report.units_repaired})")
    if not report.is_whole:
        return [f"error: {folder} is damaged", *lines, *_damage(report, folder)]
    tokens, documents = sum(report.tokens.values()), sum(report.documents.values())
    whole = f"{folder} is whole: {tokens:,} tokens of {documents:,} documents"
    lines = [whole, *lines, f"  {_looked_at(report, full=full)}"]
    if source:
        lines.append(f"  {_proved(report)}")
    lines += [f"  note: {note}" for note in report.notes]
    if not full:
        lines.append(f"next: penstok verify {folder} --full reads every token")
    return lines


def _looked_at(report: Report, *, full: bool) -> str:
    from penstok.quantities import format_bytes

    size = format_bytes(report.bytes_read)
    if full:
        return f"every token was read ({size}): checksums, ids, end-of-text ids"
    return (
        f"records and sizes fit; {report.units_read:,} of {report.num_units:,} units were read "
        f"({size}); `--seed {report.seed}` chooses the same again"
    )


def _proved(report: Report) -> str:
    from penstok.quantities import format_bytes

    which = "all" if report.is_all_proved else "a sample"
    return (
        f"{report.documents_proved:,} documents ({which}, {format_bytes(report.text_proved)} of "
        "text) were encoded again with the reference: every id is in its place"
    )


def _damage(report: Report, folder: str) -> list[str]:
    from penstok.storage.object_paths import ObjectPath, repair_step

    lines = [f"  {_located(finding)}" for finding in report.findings[:_MAX_LISTED]]
    if report.num_findings > _MAX_LISTED:
        lines.append(f"  and {report.num_findings - _MAX_LISTED:,} more")
    lines += [f"  note: {note}" for note in report.notes]
    if report.is_repairable and isinstance(report.folder, ObjectPath):
        return [*lines, f"  next:  {escape(repair_step(report.folder))}"]
    if report.is_repairable and not report.mended:
        return [*lines, f"  next:  penstok verify {folder} --repair"]
    again = f"penstok tokenize INPUT... -o {folder} --overwrite"
    return [*lines, f"  next:  what cannot be repaired must be made anew: {again}"]


def _located(finding: Finding) -> str:
    place = finding.file
    if finding.start is not None:
        place += f", byte {finding.start} to {finding.end}"
    text = f"{place}: {finding.what}"
    if finding.unit is not None:
        text += f"\n    unit {finding.unit}, made from {finding.input}, "
        if finding.input_in_rows:
            text += f"rows {finding.input_start} to {(finding.input_end or 0) - 1}"
        else:
            text += f"byte {finding.input_start} to {finding.input_end}"
    return "\n    ".join(escape(line) for line in text.split("\n    "))
