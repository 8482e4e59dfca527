"""`penstok verify`: is an output what its job wrote?

It checks and repairs nothing itself: `verification` does, and this module words its report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from penstok.cli.flags import RUN, make_flags, out_argument
from penstok.cli.messages import ErrorReporter, escape, print_result
from penstok.errors import quoted
from penstok.jobs.definition import settings_of
from penstok.quantities import format_bytes, plural
from penstok.verification.settings import OUT, REPAIR, VerifySettings

if TYPE_CHECKING:
    from penstok.verification.findings import Finding, Report

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = (
    "penstok verify tokens/",
    "penstok verify tokens/ --full --source",
    "penstok verify tokens/ --repair",
)
FLAGS = make_flags((out_argument(OUT), *settings_of(VerifySettings), REPAIR, *RUN))
_EXIT_DAMAGED = 6
_MAX_LISTED = 20


def run(
    *,
    output: str,
    repair: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    no_progress: bool,
    **check: Any,
) -> int:
    """Verify; what is in `check` are the settings of the check."""
    with ErrorReporter(as_json=as_json, verbose=verbose, reads_only=not repair):
        from penstok.cli.progress import choose_progress
        from penstok.storage.object_paths import output_path
        from penstok.verification.repair import repair_output
        from penstok.verification.verify import verify_output

        settings = VerifySettings(output=output_path(output), **check)
        silent = no_progress or (quiet and not as_json)
        progress = choose_progress(as_json=as_json, silent=silent, title="verifying")
        report = (repair_output if repair else verify_output)(settings, progress)
        lines = _lines(report, full=settings.full, source=settings.source)
        is_quiet = quiet and report.is_whole
        print_result(lines, *_json_lines(report), as_json=as_json, is_quiet=is_quiet)
        return 0 if report.is_whole else _EXIT_DAMAGED


def _json_lines(report: Report) -> list[dict[str, Any]]:
    return [
        *({"type": "repaired", **to_builtins(finding)} for finding in report.repaired_findings),
        *({"type": "finding", **to_builtins(finding)} for finding in report.findings),
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


def _lines(report: Report, *, full: bool, source: bool) -> list[str]:
    plain = str(report.folder).rstrip("/") + "/"
    folder, quoted_name = escape(plain), quoted(plain)
    lines = [
        f"  repaired: {_located(finding)}" for finding in report.repaired_findings[:_MAX_LISTED]
    ]
    if report.repaired:
        names = ", ".join(report.repaired[:_MAX_LISTED])
        lines.append(
            f"  repaired files: {names} ({plural(report.units_repaired, 'unit')} re-encoded)"
        )
    if not report.is_whole:
        return [f"error: {folder} is damaged", *lines, *_damage(report, quoted_name)]
    tokens, documents = sum(report.tokens.values()), sum(report.documents.values())
    whole = f"{folder} is whole: {plural(tokens, 'token')} in {plural(documents, 'document')}"
    lines = [whole, *lines, f"  {_checked(report, full=full)}"]
    if source:
        lines.append(f"  {_compared(report)}")
    lines += [f"  note: {note}" for note in report.notes]
    if not full and report.num_units:
        lines.append(f"next: to check every token, run penstok verify {quoted_name} --full")
    return lines


def _checked(report: Report, *, full: bool) -> str:
    size = format_bytes(report.bytes_read)
    if not report.num_units:
        return f"checked the sizes and checksums of all files ({size})"
    if full:
        return f"checked checksums, ids and end-of-text ids of every token ({size})"
    return (
        f"checked all records and sizes, and {report.units_read:,} of "
        f"{plural(report.num_units, 'unit')} ({size}); `--seed {report.seed}` repeats this sample"
    )


def _compared(report: Report) -> str:
    which = "all" if report.is_all_proved else "a sample of"
    return (
        f"re-encoded {which} {plural(report.documents_proved, 'document')} "
        f"({format_bytes(report.text_proved)}) with the reference tokenizer: all ids are the same"
    )


def _damage(report: Report, quoted_name: str) -> list[str]:
    from penstok.storage.object_paths import ObjectPath, repair_step

    lines = [f"  {_located(finding)}" for finding in report.findings[:_MAX_LISTED]]
    if report.num_findings > _MAX_LISTED:
        lines.append(f"  and {report.num_findings - _MAX_LISTED:,} more")
    lines += [f"  note: {note}" for note in report.notes]
    if report.is_repairable and isinstance(report.folder, ObjectPath):
        return [*lines, f"  next:  {escape(repair_step(report.folder))}"]
    if report.is_repairable and not report.repaired_findings:
        return [*lines, f"  next:  penstok verify {quoted_name} --repair"]
    if report.next_step:
        return [*lines, f"  next:  {escape(report.next_step)}"]
    again = f"penstok tokenize INPUT... -o {quoted_name} --overwrite"
    return [*lines, f"  next:  this cannot be repaired; tokenize again: {again}"]


def _located(finding: Finding) -> str:
    where = finding.file
    if finding.start is not None:
        where += f", byte {finding.start} to {finding.end}"
    text = f"{where}: {finding.what}"
    if finding.unit is not None:
        text += f"\n    unit {finding.unit}, from {finding.input}, "
        if finding.input_in_rows:
            text += f"rows {finding.input_start} to {(finding.input_end or 0) - 1}"
        else:
            text += f"byte {finding.input_start} to {finding.input_end}"
    return "\n    ".join(escape(line) for line in text.split("\n    "))
