"""`penstok show`: tokens of an output as text.

It reads only the tokens it prints, through `data`; `info` shows an output as a whole.
"""

from __future__ import annotations

from typing import Any

from penstok.cli.flags import make_flags, out_argument
from penstok.cli.messages import ErrorReporter, escape, print_data
from penstok.data.settings import IDS, ShowSettings
from penstok.jobs.definition import settings_of
from penstok.verification.settings import OUT

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = ("penstok show tokens/", "penstok show tokens/ --split val --at 1000 --tokens 50")
FLAGS = make_flags((out_argument(OUT), *settings_of(ShowSettings), IDS))


def run(*, output: str, ids: bool, **fields: Any) -> int:
    """Print tokens; what is in `fields` are the settings that say which."""
    with ErrorReporter(reads_only=True):
        from penstok.data.dataset import open_dataset

        settings = ShowSettings(**fields)
        dataset = open_dataset(output)
        found = dataset.read_shown(settings)
        if ids:
            print_data(" ".join(map(str, found.tolist())))
        else:
            print_data(escape(dataset.decode_stored(found)))
        return 0
