"""JSON Lines: one record per line, one document per record."""

from penstok.readers.jsonl.reader import JsonlReader, check_head
from penstok.readers.jsonl.scanner import open_scanner

__all__ = ["JsonlReader", "check_head", "open_scanner"]
