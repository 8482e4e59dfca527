"""`penstok convert`: other formats of an output, or an output from files of another program.

It converts nothing itself: `conversion` does, and this module words the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstok.cli.flags import RUN, make_flags
from penstok.cli.messages import ErrorReporter, escape, print_result
from penstok.conversion.settings import ConvertSettings
from penstok.errors import quoted
from penstok.jobs.definition import settings_of
from penstok.quantities import plural

if TYPE_CHECKING:
    from penstok.conversion.convert import ConvertOutcome

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = (
    "penstok convert tokens/ --format megatron",
    "penstok convert tokens/ --format llmc -o llmc/",
    "penstok convert --from megatron data/web.idx -t gpt2 --eot append -o tokens/",
)
FLAGS = make_flags((*settings_of(ConvertSettings), *RUN))


def run(*, as_json: bool, quiet: bool, verbose: bool, no_progress: bool, **fields: Any) -> int:
    """Convert; what is in `fields` are the settings."""
    with ErrorReporter(as_json=as_json, verbose=verbose):
        from penstok.cli.progress import choose_progress
        from penstok.conversion.convert import convert_output
        from penstok.conversion.imports import import_tokens

        settings = ConvertSettings(**fields)
        silent = no_progress or (quiet and not as_json)
        progress = choose_progress(as_json=as_json, silent=silent, title="converting")
        convert_it = convert_output if settings.from_ is None else import_tokens
        outcome = convert_it(settings, progress)
        print_result(_lines(outcome), _to_json(outcome), as_json=as_json, is_quiet=quiet)
        return 0


def _to_json(outcome: ConvertOutcome) -> dict[str, Any]:
    from msgspec import to_builtins

    manifest = outcome.manifest
    return {
        "type": "summary",
        "output": outcome.folder,
        "is_new": outcome.is_new,
        "tokens": manifest.counts["tokens"],
        "documents": manifest.counts["documents"],
        "formats": to_builtins(manifest.formats),
        "exit_code": 0,
    }


def _lines(outcome: ConvertOutcome) -> list[str]:
    from penstok.cli.job_summary import describe_format

    plain = str(outcome.folder).rstrip("/") + "/"
    folder, manifest = escape(plain), outcome.manifest
    counts = (
        f"{plural(manifest.counts['tokens'], 'token')} in "
        f"{plural(manifest.counts['documents'], 'document')}"
    )
    if not outcome.is_new:
        return [f"{folder} has these formats already: {counts}"]
    names = ", ".join(outcome.names) or "raw"
    lines = [f"wrote {names} to {folder}: {counts}"]
    written = [record for record in manifest.formats if record.name in outcome.names]
    lines += [f"  {describe_format(record)}" for record in written]
    if manifest.counts["empty_documents"] and manifest.lineage is not None:
        lines.append(f"  {plural(manifest.counts['empty_documents'], 'empty document')} dropped")
    lines.append(f"next: penstok verify {quoted(plain)}")
    return lines
