"""A sample of a corpus: texts spread evenly over all inputs, and over each of them.

What is taken depends on the inputs and settings alone, never on time or cores. It finds and reads
inputs as a job does, by `plan` and `readers`, and learns nothing from them; that is `training`'s.
"""

from __future__ import annotations

import select
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import psutil

from penstok.engines.kernel import find_kernel_function
from penstok.errors import InputError
from penstok.inputs.feed import make_feed
from penstok.inputs.files import open_unit
from penstok.inputs.streams import ContentStream
from penstok.readers import Readers
from penstok.readers.base import ReaderOptions
from penstok.readers.formats import open_scanner
from penstok.types import Counts
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

# The smaller the units, the more places a sample comes from; each costs a look at its borders.
_LEAST_UNIT_BYTES, _MOST_UNIT_BYTES = 1 << 16, 1 << 20
_LEAST_UNITS = 256
# How many inputs of a kind are looked at to say how long the content of all of them is.
_LOOKS = 8
_LOOK_BYTES = 8 << 20
_WAIT_SECONDS = 0.2
_SPACE, _NEWLINE = 0x20, 0x0A


class Sample:
    """The texts of a sample, read once.

    Of the content that was passed so far, the same share has been taken at every moment: a unit is
    read if less was taken than is due, and passed over if not.

    Attributes:
        total_bytes: About how long the content of all inputs is; 0 where nobody knows.
        passed_bytes: How much of that was read or passed over.
        text_bytes: How much text was taken.
        counts: What was seen in what was read.
    """

    def __init__(self, plan: Plan, settings: JobSettings, sample_bytes: int) -> None:
        unit_bytes = min(max(sample_bytes // _LEAST_UNITS, _LEAST_UNIT_BYTES), _MOST_UNIT_BYTES)
        self._plan = plan.divided_by(unit_bytes)
        self._settings = settings
        self._sample_bytes = sample_bytes
        # Smaller inputs may stay cached for the job that follows.
        self._gives_back = plan.input_bytes > int(psutil.virtual_memory().total) // 4
        self._ratios = self._look_at_kinds()
        is_known = all(source.num_bytes or source.is_empty for source in plan.sources)
        self.total_bytes = sum(map(self._content_bytes, plan.sources)) if is_known else 0
        self.passed_bytes = self.text_bytes = 0
        self.counts = Counts()

    def iter_texts(self) -> Iterator[list[bytes]]:
        """Yield valid text, some pieces at a time; none where units are passed over or awaited."""
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
        """Tell whether to read a unit: its share of the content is a share of the sample."""
        length = unit.end - unit.start
        if unit.source.is_rows:
            length = self._content_bytes(unit.source) * length // unit.source.num_rows
        self.passed_bytes += length
        due = self._sample_bytes * self.passed_bytes
        return not self.total_bytes or self.text_bytes * self.total_bytes < due

    def _read(self, unit: Unit, readers: Readers) -> Iterator[list[bytes]]:
        reader = readers.choose(unit)
        place = unit.place if unit.source.is_rows else unit.source.path
        for block in reader.iter_blocks(unit):
            texts, repairs = _valid_texts(block, self._settings, place)
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
            find_all=find_kernel_function("find_all"),
            extract_json=find_kernel_function("extract_json_lines"),
            extract_csv=find_kernel_function("extract_csv_records"),
        )
        return Readers(_WordCuts(), options)

    def _content_bytes(self, source: Source) -> int:
        """Return how long the content of an input is, or about how long."""
        if source.is_empty:
            return 0
        if source.is_stream or source.is_rows:
            return round(source.num_bytes * self._ratios[source.format, source.compression])
        return source.size

    def _look_at_kinds(self) -> dict[tuple[str, str | None], float]:
        """Look at a few inputs of each kind that does not say how long its content is."""
        kinds: dict[tuple[str, str | None], list[Source]] = {}
        for source in self._plan.sources:
            if source.num_bytes and (source.is_stream or source.is_rows):
                kinds.setdefault((source.format, source.compression), []).append(source)
        ratios = {}
        for kind, sources in kinds.items():
            content = stored = 0.0
            for source in sources[:: -(-len(sources) // _LOOKS)]:
                # What is wrong with an input is said when it is read.
                with suppress(InputError):
                    seen = self._look_at_rows(source) if source.is_rows else _look(source)
                    content, stored = content + seen[0], stored + seen[1]
            ratios[kind] = content / stored if stored else 1.0
        return ratios

    def _look_at_rows(self, source: Source) -> tuple[float, float]:
        """Return the length of the first rows' texts, and what they take in the file."""
        unit = next(replace(self._plan, sources=[source]).iter_units())
        reader = self._make_readers(None).choose(unit)
        content = sum(int((each.ends - each.starts).sum()) for each in reader.iter_blocks(unit))
        return content, source.num_bytes * unit.end / source.num_rows


class _WordCuts:
    """Where long texts may be divided when nobody asks for exact ids: before white space."""

    max_document_bytes: int | None = None

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark the first white space behind a word."""
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


def _look(source: Source) -> tuple[float, float]:
    """Return how much content the head of a stream has, and what that takes as it is stored."""
    buffer = memoryview(bytearray(_LOOK_BYTES))
    done = 0
    with ContentStream(source) as stream:
        while done < len(buffer) and (count := stream.readinto(buffer[done:])):
            done += count
        return done, stream.stored_position


def _valid_texts(block: Block, settings: JobSettings, place: str) -> tuple[list[bytes], Counts]:
    texts = _texts(block)
    try:
        for text in texts:
            text.decode()
    except UnicodeDecodeError:
        repaired, counts = repair_block(block, settings.invalid_utf8, place)
        return _texts(repaired), counts
    return texts, Counts()


def _texts(block: Block) -> list[bytes]:
    pieces = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
    return [bytes(block.text[start:end]) for start, end in pieces]
