"""`penstok report`: a finished output as one page.

It writes nothing itself: `reports` does, and this module says where the page is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstok.cli.flags import JSON, QUIET, VERBOSE, make_flags, out_argument
from penstok.cli.messages import ErrorReporter, escape, print_data, say
from penstok.jobs.definition import settings_of
from penstok.quantities import format_bytes, plural
from penstok.reports.settings import ReportSettings
from penstok.verification.settings import OUT

if TYPE_CHECKING:
    from penstok.reports.report import WrittenReport

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = ("penstok report tokens/", "penstok report s3://bucket/run -o run.html")
FLAGS = make_flags((out_argument(OUT), *settings_of(ReportSettings), JSON, QUIET, VERBOSE))


def run(*, output: str, as_json: bool, quiet: bool, verbose: bool, **fields: Any) -> int:
    """Write the page."""
    with ErrorReporter(as_json=as_json, verbose=verbose, reads_only=True):
        from penstok.reports.report import write_report
        from penstok.storage.object_paths import output_path

        written = write_report(ReportSettings(output=output_path(output), **fields))
        if as_json:
            from msgspec import to_builtins

            print_data(json.dumps({"type": "summary", **to_builtins(written, enc_hook=str)}))
        say("\n".join(_lines(written)), is_quiet=quiet)
        return 0


def _lines(written: WrittenReport) -> list[str]:
    return [
        f"wrote {escape(str(written.page))}, {format_bytes(written.num_bytes)}: "
        f"{plural(written.tokens, 'token')} in {plural(written.documents, 'document')}",
        *(f"  note: {escape(note)}" for note in written.notes),
        "next: open it in a browser",
    ]
