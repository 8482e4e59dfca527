"""`penstok finish`: commit a job that was run in parts.

It runs nothing itself: `jobs` checks the parts and commits, `job_summary` words the result.
"""

from __future__ import annotations

from penstok.cli.flags import JSON, QUIET, make_flags, out_argument
from penstok.cli.messages import ErrorReporter, print_result

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = ("penstok finish tokens/", "penstok finish s3://bucket/run")
FLAGS = make_flags(
    (out_argument("The output that all parts were written to."), JSON, QUIET),
)
_EXIT_SKIPPED = 3


def run(*, output: str, as_json: bool, quiet: bool) -> int:
    """Finish a job."""
    with ErrorReporter(as_json=as_json):
        from penstok.cli.job_summary import finished_json, finished_lines
        from penstok.jobs.run import finish_job

        manifest, is_new = finish_job(output)
        lines = finished_lines(manifest, output, is_new=is_new)
        record = finished_json(manifest, output, is_new=is_new)
        print_result(lines, record, as_json=as_json, is_quiet=quiet)
        return _EXIT_SKIPPED if manifest.counts["skipped_records"] else 0
