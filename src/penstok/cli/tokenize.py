"""`penstok tokenize`: the main job.

It runs nothing itself: `jobs` does, and `job_summary` words the result. `plan` shows what the same
flags would do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstok.cli.flags import RUN, make_flags
from penstok.cli.messages import ErrorReporter, print_result
from penstok.jobs.definition import SWITCH, define, settings_of
from penstok.jobs.settings import JobSettings

if TYPE_CHECKING:
    from penstok.jobs.progress import Progress

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = (
    "penstok tokenize corpus.txt",
    "penstok tokenize books/ 'web/*.jsonl.gz' -o tokens/ --shard-tokens 500M",
)
_DRY_RUN = define(
    "Run",
    "-n --dry-run",
    "Show what would be done, like `penstok plan`.",
    kind=SWITCH,
    default=False,
    in_python=False,
)
FLAGS = make_flags((*settings_of(JobSettings), *RUN, _DRY_RUN))
_EXIT_SKIPPED = 3


def run(
    *, as_json: bool, quiet: bool, verbose: bool, no_progress: bool, dry_run: bool, **job: Any
) -> int:
    """Tokenize; what is in `job` are the settings of the job."""
    with ErrorReporter(as_json=as_json, verbose=verbose):
        from penstok.cli.progress import choose_progress

        settings = JobSettings(**job)
        if dry_run:
            from penstok.cli.plan import print_plan

            print_plan(settings, as_json=as_json)
            return 0
        silent = no_progress or (quiet and not as_json)
        progress = choose_progress(as_json=as_json, silent=silent, title="tokenizing")
        run_it = _run_job if settings.part is None else _run_part
        record, lines, num_skipped = run_it(settings, progress)
        print_result(lines, record, as_json=as_json, is_quiet=quiet)
        return _EXIT_SKIPPED if num_skipped else 0


def _run_job(settings: JobSettings, progress: Progress) -> tuple[dict[str, Any], list[str], int]:
    from penstok.cli.job_summary import summary_json, summary_lines
    from penstok.jobs.run import run_job

    outcome = run_job(settings, progress)
    num_skipped = outcome.manifest.counts["skipped_records"]
    return summary_json(outcome, settings), summary_lines(outcome, settings), num_skipped


def _run_part(settings: JobSettings, progress: Progress) -> tuple[dict[str, Any], list[str], int]:
    from penstok.cli.job_summary import part_json, part_lines
    from penstok.jobs.run import run_part

    outcome = run_part(settings, progress)
    return part_json(outcome, settings), part_lines(outcome, settings), outcome.num_skipped
