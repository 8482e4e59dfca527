"""`penstok find`: the documents of an output that came from an input.

It prints them as they are read, through `data`, and holds none; `show --document` prints the text
of one.
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING

from penstok.cli.flags import JSON, make_flags, out_argument
from penstok.cli.messages import ErrorReporter, one_line, print_data
from penstok.cli.streams import failure_of
from penstok.data.settings import INPUT
from penstok.verification.settings import OUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.data.origins import FoundDocument

__all__ = ["EXAMPLES", "FLAGS", "run"]

EXAMPLES = (
    "penstok find tokens/ --input corpus/a.txt",
    "penstok find tokens/ --input 'corpus/2024-*' --json",
)
FLAGS = make_flags((out_argument(OUT), INPUT, JSON._replace(group="Output")))
# Printed at once.
_NUM_LINES = 1000


def run(*, output: str, pattern: str | None, as_json: bool) -> int:
    """Print one line per document: split, number, position and input, separated by tabs."""
    with ErrorReporter(as_json=as_json, reads_only=True):
        from penstok.data.origins import find_documents

        lines = _iter_lines(find_documents(output, pattern), output, as_json=as_json)
        # Nobody may be left to read them.
        while failure_of(sys.stdout) is None and (batch := list(islice(lines, _NUM_LINES))):
            print_data("\n".join(batch))
        return 0


def _iter_lines(documents: Iterator[FoundDocument], output: str, *, as_json: bool) -> Iterator[str]:
    num_documents = 0
    for found in documents:
        num_documents += 1
        origin = found.origin
        if not as_json:
            fields = (found.split, found.document, f"{origin.unit} {origin.position}")
            yield "\t".join((*map(str, fields), one_line(origin.path)))
            continue
        line = {
            "type": "document",
            "split": found.split,
            "document": found.document,
            "input": origin.path,
            "position": origin.position,
            "unit": origin.unit,
        }
        yield json.dumps(line)
    if as_json:
        yield json.dumps({"type": "summary", "output": output, "documents": num_documents})
