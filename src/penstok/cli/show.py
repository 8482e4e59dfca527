"""`penstok show`: tokens of an output as text.

It reads only the tokens it prints, through `data`; `info` shows an output as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstok.cli.flags import make_flags, out_argument
from penstok.cli.messages import ErrorReporter, escape, one_line, print_data, say
from penstok.data.settings import IDS, ShowSettings
from penstok.jobs.definition import settings_of
from penstok.verification.settings import OUT

if TYPE_CHECKING:
    from penstok.data.dataset import Dataset

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = ("penstok show tokens/ --document 17", "penstok show tokens/ --split val --at 1000")
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
            for text in dataset.iter_decoded(found):
                print_data(escape(text), ends_line=False)
            print_data("")
        if settings.document is not None:
            _say_origin(dataset, settings)
            _say_fields(dataset, settings)
        return 0


def _say_origin(dataset: Dataset, settings: ShowSettings) -> None:
    """Say where a document came from, if the output knows."""
    from penstok.data.origins import Origins

    if dataset.manifest.settings.get("provenance") and settings.document is not None:
        origins = Origins(dataset.folder, dataset.manifest)
        say(f"from {one_line(origins.of(settings.split, settings.document).where)}")


def _say_fields(dataset: Dataset, settings: ShowSettings) -> None:
    """Print the fields of its record that the job kept."""
    if dataset.manifest.settings.get("keep") and settings.document is not None:
        for name, value in dataset.fields(settings.split)[settings.document].items():
            say(f"{one_line(name)}: {'(none)' if value is None else one_line(value)}")
