"""CSV and TSV: the first record names the columns, one document per record after it."""

from penstok.readers.csv.header import CSV, TSV, CsvDialect, check_column, check_head
from penstok.readers.csv.reader import CsvReader
from penstok.readers.csv.scanner import open_scanner

__all__ = ["CSV", "TSV", "CsvDialect", "CsvReader", "check_column", "check_head", "open_scanner"]
