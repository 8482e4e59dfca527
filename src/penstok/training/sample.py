"""A sample of a corpus: texts spread evenly over all inputs, and within each of them.

The sample depends on the inputs and settings alone, never on timing or cores. Inputs are found and
read as in a job, with `plan` and `readers`; `train` passes the texts to the trainer process.
"""

from __future__ import annotations

import select
from contextlib import closing, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstok.errors import InputError
from penstok.inputs.feed import make_feed
from penstok.inputs.files import open_unit
from penstok.inputs.streams import ContentStream
from penstok.readers import Readers
from penstok.readers.base import ReaderOptions
from penstok.readers.formats import open_scanner
from penstok.types import Counts, replace
from penstok.worker.memory import total_bytes
from penstok.worker.repair import repair_block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstok.inputs.feed import Feed
    from penstok.inputs.ring import RingFile
    from penstok.jobs.plan import Plan
    from penstok.jobs.settings import JobSettings
    from penstok.types import Block, Source, Unit

__all__ = ["Sample"]

# Smaller units spread a sample better, but finding the borders of each takes time.
_MIN_UNIT_BYTES, _MAX_UNIT_BYTES = 1 << 16, 1 << 20
_MIN_UNITS = 256
# How many inputs of a kind are probed to estimate the length of their content.
_PROBES = 8
_PROBE_BYTES = 8 << 20
_WAIT_SECONDS = 0.2
_SPACE, _NEWLINE = 0x20, 0x0A


class Sample:
    """The texts of a sample, read once.

    At every moment the same share of the content so far has been taken: a unit is read if less was
    taken than its share, and skipped otherwise.

    Attributes:
        total_bytes: About how long the content of all inputs is; 0 if unknown.
        passed_bytes: How much of that was read or skipped.
        text_bytes: How much text was taken.
        counts: What the text that was read contained.
    """

    def __init__(self, plan: Plan, settings: JobSettings, sample_bytes: int) -> None:
        unit_bytes = min(max(sample_bytes // _MIN_UNITS, _MIN_UNIT_BYTES), _MAX_UNIT_BYTES)
        self._plan = plan.divided_by(unit_bytes)
        self._settings = settings
        self._sample_bytes = sample_bytes
        # Smaller inputs may stay in the page cache for the job that follows.
        self._gives_back = plan.input_bytes > total_bytes() // 4
        self._ratios = self._estimate_ratios()
        is_known = all(source.num_bytes or source.is_empty for source in plan.sources)
        self.total_bytes: int = sum(map(self._content_bytes, plan.sources)) if is_known else 0
        self.passed_bytes: int = 0
        self.text_bytes: int = 0
        self.counts: Counts = Counts()

    def iter_texts(self) -> Iterator[list[bytes]]:
        """Yield valid texts in lists; an empty list for each unit that is skipped or awaited."""
        plan, settings = self._plan, self._settings
        feed = make_feed(
            plan.sources,
            1,
            plan.unit_bytes,
            open_scanner=open_scanner,
            on_error=settings.on_error,
            give_back=self._gives_back,
        )
        with closing(feed) if feed else nullcontext():
            readers = self._make_readers(None if feed is None else feed.ring.file)
            for unit in _iter_filled(plan, feed):
                if unit is not None:
                    if self._is_due(unit):
                        yield from self._read(unit, readers)
                    if feed is not None:
                        feed.release(unit)
                yield []
                if not self.total_bytes and self.text_bytes >= self._sample_bytes:
                    return

    def _is_due(self, unit: Unit) -> bool:
        """Tell whether to read a unit, to keep the sample in proportion to the content."""
        length = unit.end - unit.start
        if unit.source.is_rows:
            length = self._content_bytes(unit.source) * length // unit.source.num_rows
        self.passed_bytes += length
        due = self._sample_bytes * self.passed_bytes
        return not self.total_bytes or self.text_bytes * self.total_bytes < due

    def _read(self, unit: Unit, readers: Readers) -> Iterator[list[bytes]]:
        reader = readers.choose(unit)
        for block in reader.iter_blocks(unit):
            texts, repairs = _valid_texts(block, self._settings, unit)
            self.counts += repairs + Counts(documents=int(block.begins.sum()))
            self.text_bytes += sum(map(len, texts))
            yield texts
        self.counts += reader.take_counts()
        reader.take_skipped()
        if unit.window is not None and unit.window.problem:
            self.counts += Counts(skipped_records=1)

    def _make_readers(self, ring: RingFile | None) -> Readers:
        settings = self._settings
        options = ReaderOptions(
            rule=self._plan.rule,
            text_key=settings.text_key,
            open_unit=partial(open_unit, ring=ring),
            block_bytes=settings.block_bytes,
            special_text=b"",
            strip=settings.strip,
            give_back=self._gives_back,
            on_error=settings.on_error,
            invalid_utf8=settings.invalid_utf8,
        )
        return Readers(_WordCuts(), options)

    def _content_bytes(self, source: Source) -> int:
        """Return the length of an input's content, or an estimate."""
        if source.is_empty:
            return 0
        if source.is_stream or source.is_rows:
            return round(source.num_bytes * self._ratios[_kind(source)])
        return source.size

    def _estimate_ratios(self) -> dict[tuple[str, str | None, str], float]:
        """Estimate content bytes per stored byte from a few inputs of each kind."""
        kinds: dict[tuple[str, str | None, str], list[Source]] = {}
        for source in self._plan.sources:
            if source.num_bytes and (source.is_stream or source.is_rows):
                kinds.setdefault(_kind(source), []).append(source)
        ratios = {}
        for kind, sources in kinds.items():
            content = stored = 0.0
            for source in sources[:: -(-len(sources) // _PROBES)]:
                # A damaged input is reported when it is read.
                with suppress(InputError):
                    probed = self._probe_rows(source) if source.is_rows else _probe_stream(source)
                    content, stored = content + probed[0], stored + probed[1]
            ratios[kind] = content / stored if stored else 1.0
        return ratios

    def _probe_rows(self, source: Source) -> tuple[float, float]:
        """Return the length of the first rows' texts, and of what they take in the file."""
        unit = next(replace(self._plan, sources=[source]).iter_units())
        reader = self._make_readers(None).choose(unit)
        content = sum(int((each.ends - each.starts).sum()) for each in reader.iter_blocks(unit))
        return content, source.num_bytes * unit.end / source.num_rows


def _kind(source: Source) -> tuple[str, str | None, str]:
    """Return what the ratio of content to stored bytes depends on."""
    return source.format, source.compression, source.encoding


class _WordCuts:
    """Where long texts may be divided if ids do not matter: before white space."""

    max_document_bytes: int | None = None

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark the first white space after a word."""
        is_space = text <= _SPACE
        marked = np.zeros(len(text), np.bool_)
        marked[1:] = is_space[1:] & ~is_space[:-1]
        return marked

    def line_mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark those that end a line."""
        marked: NDArray[np.bool_] = self.mask(text) & (text == _NEWLINE)
        return marked


def _iter_filled(plan: Plan, feed: Feed | None) -> Iterator[Unit | None]:
    """Yield all units in order; None while the next part of a stream is being read."""
    if feed is None:
        yield from plan.iter_units()
        return
    for unit in feed.iter_filled(plan.iter_units(lengths=feed.lengths)):
        if unit is None:
            select.select([feed.wake_file], [], [], _WAIT_SECONDS)
        yield unit


def _probe_stream(source: Source) -> tuple[float, float]:
    """Return the length of content at the start of a stream, and of what it takes in the file."""
    buffer = memoryview(bytearray(_PROBE_BYTES))
    done = 0
    with ContentStream(source) as stream:
        while done < len(buffer) and (count := stream.readinto(buffer[done:])):
            done += count
        return done, stream.stored_position


def _valid_texts(block: Block, settings: JobSettings, unit: Unit) -> tuple[list[bytes], Counts]:
    texts = _texts(block)
    try:
        for text in texts:
            text.decode()
    except UnicodeDecodeError:
        repaired, counts = repair_block(block, settings.invalid_utf8, unit)
        return _texts(repaired), counts
    return texts, Counts()


def _texts(block: Block) -> list[bytes]:
    bounds = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
    return [bytes(block.text[start:end]) for start, end in bounds]
