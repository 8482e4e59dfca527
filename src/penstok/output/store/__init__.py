"""Where the output of tasks is kept: a folder that all nodes see, or an object store.

It knows no documents and no units. Tasks write through it from any node; `finishing` gives their
shards the final names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.output.store.folder import FolderPlace
from penstok.storage import is_url

if TYPE_CHECKING:
    from penstok.output.store.base import Place

__all__ = ["open_place"]


def open_place(output: str) -> Place:
    """Return the place that an output names; nothing is made yet.

    Raises:
        UsageError: If it is a URL that cannot be written to.
    """
    if not is_url(output):
        return FolderPlace(output)
    from penstok.output.store.objects import ObjectPlace

    return ObjectPlace(output)
