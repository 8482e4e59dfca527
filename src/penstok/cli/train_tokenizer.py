"""`penstok train-tokenizer`: a tokenizer for the corpus at hand.

It trains nothing itself: `training` does, and this module words the result.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from penstok.cli.flags import RUN, make_flags
from penstok.cli.messages import ErrorReporter, escape, print_result
from penstok.errors import quoted
from penstok.jobs.definition import settings_of
from penstok.quantities import format_bytes, format_seconds, plural
from penstok.training.settings import DEFAULT_SPECIAL, INPUT_SETTINGS, TrainingSettings

if TYPE_CHECKING:
    from penstok.training.train import TrainingResult

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = (
    "penstok train-tokenizer corpus/ -o my.json",
    "penstok train-tokenizer 'web/*.parquet' --vocab-size 50257 --pattern gpt2 -o my.json",
)
FLAGS = make_flags((*INPUT_SETTINGS, *settings_of(TrainingSettings), *RUN))
_EXIT_SKIPPED = 3
_MAX_LISTED = 5


def run(*, as_json: bool, quiet: bool, verbose: bool, no_progress: bool, **fields: Any) -> int:
    """Train; what is in `fields` are the settings of the training and its input."""
    with ErrorReporter(as_json=as_json, verbose=verbose, reads_only=True):
        from penstok.cli.progress import choose_progress
        from penstok.training import train

        settings = TrainingSettings.from_fields(fields)
        silent = no_progress or (quiet and not as_json)
        progress = choose_progress(as_json=as_json, silent=silent, title="training")
        trained = train.train_tokenizer(settings, progress)
        warnings = train.find_warnings(settings, trained)
        lines = _lines(settings, trained, warnings)
        print_result(lines, _as_json(trained, warnings), as_json=as_json, is_quiet=quiet)
        return _EXIT_SKIPPED if trained.counts.skipped_records or trained.num_skipped else 0


def _as_json(trained: TrainingResult, warnings: list[str]) -> dict[str, Any]:
    return {
        "type": "summary",
        **to_builtins(trained, enc_hook=str),
        "bytes_per_token": round(trained.bytes_per_token, 4),
        "seconds": round(trained.seconds, 3),
        "warnings": warnings,
    }


def _lines(settings: TrainingSettings, trained: TrainingResult, warnings: list[str]) -> list[str]:
    """Say what was written, from how much text, and what to type next."""
    special = ", ".join(f"{escape(text)} is {token}" for text, token in trained.special.items())
    counts = trained.counts
    notes = (
        (counts.skipped_records, "bad record", "skipped"),
        (counts.invalid_utf8, "invalid UTF-8 sequence", "replaced or ignored"),
    )
    eot = settings.special[0]
    eot_flag = "" if eot == DEFAULT_SPECIAL else f" --eot-token {shlex.quote(eot)}"
    inputs = settings.job.inputs
    quoted_inputs = (
        "INPUT..."
        if settings.job.files_from or len(inputs) > _MAX_LISTED
        else " ".join(map(quoted, inputs))
    )
    return [
        f"wrote {trained.output}: {trained.vocab_size:,} tokens, pattern {settings.pattern}, "
        f"{special}",
        f"  {trained.bytes_per_token:.2f} bytes per token on the sample, "
        f"{format_bytes(trained.sample_bytes)} of text; {format_seconds(trained.seconds)}, "
        f"peak memory {format_bytes(trained.peak_memory_bytes)}",
        *(f"  note: {plural(number, noun)} {what}" for number, noun, what in notes if number),
        *(
            f"  skipped: {escape(path)}: {why}"
            for path, why in list(trained.skipped.items())[:_MAX_LISTED]
        ),
        *(f"  warning: {warning}" for warning in warnings),
        f"next: penstok tokenize {quoted_inputs} -t {quoted(trained.output)}{eot_flag}",
    ]
