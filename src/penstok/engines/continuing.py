"""The library's object for a part of a document: some tokenizers put a space only before the first.

It encodes nothing. The engines that use a library share it; the kernel knows by itself which parts
begin a document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstok.tokenizers.libraries import load_continuing_model

if TYPE_CHECKING:
    from penstok.tokenizers import LibraryModel

__all__ = ["ContinuingModel"]


class ContinuingModel:
    """Makes the object for parts that continue a document, when there is one."""

    def __init__(self, model: LibraryModel) -> None:
        self._model = model
        self.differs: bool = model.bpe is not None and model.bpe.adds_space
        self._made: Any = None

    def get(self, library: Any) -> Any:
        """Return the object for parts that continue; `library` is that for whole documents."""
        if not self.differs:
            return library
        if self._made is None:
            self._made = load_continuing_model(self._model.library, self._model.content)
        return self._made
