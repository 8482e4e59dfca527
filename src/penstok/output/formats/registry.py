"""The formats, by the name that `--format` or `--from` takes: the only place that lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.output.formats.datatrove import DatatroveFormat
from penstok.output.formats.litdata import LitdataFormat
from penstok.output.formats.llmc import LlmcFormat
from penstok.output.formats.mds import MdsFormat
from penstok.output.formats.megatron import MegatronFormat
from penstok.output.formats.olmo import OlmoFormat
from penstok.output.formats.parquet import ParquetFormat
from penstok.output.formats.raw import RawFormat
from penstok.output.formats.torchtitan import TorchtitanFormat

if TYPE_CHECKING:
    from penstok.output.formats.base import ImportableFormat, OutputFormat

__all__ = ["IMPORTABLE_FORMATS", "OUTPUT_FORMATS"]

OUTPUT_FORMATS: dict[str, OutputFormat] = {
    each.name: each
    for each in (
        MegatronFormat(),
        LlmcFormat(),
        TorchtitanFormat(),
        OlmoFormat(),
        DatatroveFormat(),
        LitdataFormat(),
        MdsFormat(),
        ParquetFormat(),
    )
}

IMPORTABLE_FORMATS: dict[str, ImportableFormat] = {
    each.name: each
    for each in (RawFormat(), MegatronFormat(), LlmcFormat(), OlmoFormat(), DatatroveFormat())
}
