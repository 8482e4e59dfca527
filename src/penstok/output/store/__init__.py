"""Output stores: a folder that all workers see, or an object store.

A store knows nothing about documents or units. Workers write through it; `jobs.commit` publishes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.output.store.folder import FolderStore
from penstok.storage import is_url
from penstok.storage.object_paths import output_path

if TYPE_CHECKING:
    from penstok.output.store.base import OutputStore

__all__ = ["FolderStore", "open_store"]


def open_store(output: str) -> OutputStore:
    """Return the store of an output; nothing is created yet.

    Raises:
        UsageError: If it is a URL that cannot be written to.
        ConflictError: If it is a file.
    """
    if not is_url(output):
        store = FolderStore(str(output_path(output)))
        store.refuse_not_a_folder()
        return store
    from penstok.output.store.objects import ObjectStore

    return ObjectStore(output)
