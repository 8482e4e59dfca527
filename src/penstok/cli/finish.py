"""`penstok finish`: from parts to a finished job."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstok.cli._report import errors_reported, say

__all__ = ["finish"]

_EXIT_SKIPPED = 3


def finish(
    output: Annotated[
        str, typer.Argument(metavar="OUT", help="The output that all parts were written to.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print what exists now as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only errors.")] = False,
) -> None:
    """Finish a job that was done in parts: check that all are there, and commit.

    Examples:  penstok finish tokens/   ·   penstok finish s3://bucket/run
    """
    with errors_reported(as_json=as_json):
        from penstok.cli._summary import finished_json, finished_lines
        from penstok.jobs.run import finish_job

        manifest, is_new = finish_job(output)
        if as_json:
            typer.echo(json.dumps(finished_json(manifest, output, is_new=is_new)))
        if not quiet:
            say("\n".join(finished_lines(manifest, output, is_new=is_new)))
        if manifest.counts["skipped_records"]:
            raise typer.Exit(_EXIT_SKIPPED)
