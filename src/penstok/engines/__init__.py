"""Engines: from the documents of a block to ids.

Which engine ran never shows in the output. They read no files and cut no text; the worker passes
them blocks. Adding one is a file here and a row in `registry`.
"""

from __future__ import annotations

from penstok.engines.registry import (
    choose_engine,
    engine_needs,
    load_engine,
    loads_library,
    max_document_bytes,
    name_reference,
)

__all__ = [
    "choose_engine",
    "engine_needs",
    "load_engine",
    "loads_library",
    "max_document_bytes",
    "name_reference",
]
