"""Reads the tokens of units back, in several threads, and compares them with the ledger.

It reads each token once and changes nothing. `verify` chooses the units; `records` has checked the
sizes of the files before.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from penstok.errors import DamageError
from penstok.output.documents import DocumentFinder
from penstok.output.segments import SegmentReader
from penstok.types import SPLITS, FinishedUnit, Split, Struct, field
from penstok.verification.findings import Finding, at_segment
from penstok.verification.starts import sum_hashes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penstok.output.segments import SegmentSummary
    from penstok.types import EotPosition, Segment
    from penstok.verification.findings import FindingKind
    from penstok.verification.records import Records
    from penstok.verification.starts import TokenStarts

__all__ = ["Checked", "TokenChecker"]

# Small units go to a thread in groups: a message for each would cost more than the reading.
_GROUP_UNITS = 64
_GROUP_TOKENS = 4 << 20
_GROUPS_AHEAD = 4


class Checked(Struct):
    """What reading a unit's tokens showed.

    Attributes:
        unit: The unit.
        findings: What is wrong.
        is_damaged: Whether its tokens are not what was written.
        num_bytes: How much was read.
        num_eot: End-of-text ids in each split.
        sums: Per split and shard, the sum over the hashes of where documents start.
        firsts: The first id of files that begin here.
        lasts: The last id of files that end here.
    """

    unit: FinishedUnit
    findings: list[Finding] = field(default_factory=list)
    is_damaged: bool = False
    num_bytes: int = 0
    num_eot: dict[Split, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    sums: dict[tuple[Split, int], int] = field(default_factory=dict)
    firsts: dict[tuple[Split, int], int] = field(default_factory=dict)
    lasts: dict[tuple[Split, int], int] = field(default_factory=dict)


class TokenChecker:
    """Checks the tokens of any number of units."""

    def __init__(self, records: Records, num_threads: int) -> None:
        self._records = records
        self._tokenizer = records.job.tokenizer
        self._token_bytes = records.layout.token_bytes
        self._eot: EotPosition = records.job.settings.get("eot", "append")
        # A file that is one document may be a giant one, whose passages go on from unit to unit.
        self._has_spans = records.job.settings.get("docs_by") == "file"
        self._num_threads = num_threads
        self._sizes = {
            (split, shard): each.tokens
            for split, record in records.manifest.splits.items()
            for shard, each in enumerate(record.files)
        }
        self._readers: SimpleQueue[tuple[SegmentReader, DocumentFinder]] = SimpleQueue()

    def check(self, units: Iterable[FinishedUnit]) -> Iterator[Checked]:
        """Read all tokens of units, several at once; yield the results in unit order."""
        for _ in range(self._num_threads):
            finder = DocumentFinder(self._tokenizer.eot_id, self._eot)
            self._readers.put((self._make_reader(), finder))
        waiting: deque[Future[list[Checked]]] = deque()
        with ThreadPoolExecutor(self._num_threads) as pool:
            try:
                for group in _iter_groups(units):
                    waiting.append(pool.submit(self._check_group, group))
                    if len(waiting) > _GROUPS_AHEAD * self._num_threads:
                        yield from waiting.popleft().result()
                yield from chain.from_iterable(done.result() for done in waiting)
            finally:
                # After an error, do not wait for the other threads: each may wait for a server.
                pool.shutdown(wait=False, cancel_futures=True)
        while not self._readers.empty():
            self._readers.get()[0].close()

    def check_edges(self, units: Iterable[FinishedUnit]) -> Iterator[Checked]:
        """Read the first and last id of every segment only."""
        reader = self._make_reader()
        for unit in units:
            checked = Checked(unit)
            for segment in unit.written.segments:
                self._check_edges(checked, segment, reader)
            yield checked
        reader.close()

    def check_split_ends(self, starts: TokenStarts | None) -> Iterator[Finding]:
        """Check that a split ends, or begins, with an end-of-text id.

        If all tokens were read, `starts` has the ids.
        """
        reader = self._make_reader()
        for split in SPLITS:
            files = self._records.manifest.splits[split].files
            shard = len(files) - 1 if self._eot == "append" else 0
            if self._eot not in ("append", "prepend") or not files or not files[shard].tokens:
                continue
            offset = files[shard].tokens - 1 if self._eot == "append" else 0
            known = {} if starts is None else starts.lasts if offset else starts.firsts
            try:
                found = known.get((split, shard), -1)
                found = reader.read_id(split, shard, offset) if found < 0 else found
            except DamageError:
                # Its size is wrong, which is reported already.
                continue
            if found != self._tokenizer.eot_id:
                verb = "ends" if self._eot == "append" else "begins"
                what = f"the split {verb} with id {found} instead of end-of-text"
                start = offset * self._token_bytes
                name = self._records.layout.file_name(split, shard)
                yield Finding("ids", what, name, start, start + self._token_bytes)
        reader.close()

    def _make_reader(self) -> SegmentReader:
        return SegmentReader(self._records.path_of, self._token_bytes)

    def _check_group(self, units: list[FinishedUnit]) -> list[Checked]:
        reader, finder = self._readers.get()
        try:
            return [self._check_unit(unit, reader, finder) for unit in units]
        finally:
            self._readers.put((reader, finder))

    def _check_unit(
        self, unit: FinishedUnit, reader: SegmentReader, finder: DocumentFinder
    ) -> Checked:
        checked = Checked(unit)
        summaries: list[tuple[Segment, SegmentSummary]] = []
        for segment in unit.written.segments:
            if (segment.split, segment.shard) in self._records.unusable:
                checked.is_damaged = True
                continue
            try:
                summary = self._read(checked, segment, reader, finder)
            except DamageError as error:
                self._add_damage(checked, error.what, segment)
                continue
            checked.num_bytes += segment.num_tokens * self._token_bytes
            if summary.digest != segment.digest:
                self._add_damage(
                    checked,
                    "checksum mismatch: the tokens were changed",
                    segment,
                )
                continue
            self._check_id(checked, summary.max_id, segment)
            checked.num_eot[segment.split] += summary.num_eot
            summaries.append((segment, summary))
        if len(summaries) == len(unit.written.segments):
            self._check_eot(checked, summaries)
        return checked

    def _read(
        self, checked: Checked, segment: Segment, reader: SegmentReader, finder: DocumentFinder
    ) -> SegmentSummary:
        """Read a segment, and add up where documents start in it."""
        file, step = (segment.split, segment.shard), np.uint64(self._eot == "append")

        def add(places: NDArray[np.uint64]) -> None:
            checked.sums[file] = checked.sums.get(file, 0) + sum_hashes(places + step)

        summary = reader.summarize(segment, finder.iter_ids, add)
        if segment.num_tokens and segment.offset_tokens == 0:
            checked.firsts[file] = summary.first_id
        if segment.offset_tokens + segment.num_tokens == self._sizes.get(file):
            checked.lasts[file] = summary.last_id
        return summary

    def _check_edges(self, checked: Checked, segment: Segment, reader: SegmentReader) -> None:
        if (segment.split, segment.shard) in self._records.unusable:
            checked.is_damaged = True
            return
        try:
            for offset in (segment.offset_tokens, segment.offset_tokens + segment.num_tokens - 1):
                found = reader.read_id(segment.split, segment.shard, offset)
                checked.num_bytes += self._token_bytes
                if found >= self._tokenizer.vocab_size:
                    self._add_damage(checked, self._not_an_id(found), segment)
        except DamageError as error:
            self._add_damage(checked, error.what, segment)

    def _check_id(self, checked: Checked, max_id: int, segment: Segment) -> None:
        if max_id >= self._tokenizer.vocab_size:
            what = f"{self._not_an_id(max_id)}, and its checksum matches"
            checked.findings.append(
                self._located("ids", what, checked.unit, segment, is_repairable=False)
            )

    def _check_eot(self, checked: Checked, summaries: list[tuple[Segment, SegmentSummary]]) -> None:
        """Compare the number of end-of-text ids with the documents that begin and end here."""
        encoded, carried_split = checked.unit.encoded, checked.unit.offsets.carried_split
        carried, own = 0, dict.fromkeys(SPLITS, 0)
        left = encoded.carried_tokens
        for segment, summary in summaries:
            if segment.split == carried_split and left > 0:
                left -= segment.num_tokens
                carried += summary.num_eot
                # A carried document ends once, with its last token.
                if summary.num_eot > int(left <= 0 and summary.last_id == self._tokenizer.eot_id):
                    self._add_eot(checked, segment)
            else:
                own[segment.split] += summary.num_eot
        for split in SPLITS:
            least, most = self._expected_eot(checked.unit, split)
            if not least <= own[split] <= most and summaries:
                segments = [segment for segment, _ in summaries if segment.split == split]
                self._add_eot(checked, (segments or [summaries[0][0]])[-1])
        if self._eot != "append" and carried and summaries:
            self._add_eot(checked, summaries[0][0])

    def _expected_eot(self, unit: FinishedUnit, split: Split) -> tuple[int, int]:
        """Return how many end-of-text ids documents that begin here may have: at least, at most."""
        documents = unit.encoded.documents[split]
        if self._eot == "none":
            return 0, 0
        if self._eot == "prepend":
            return documents, documents
        if self._has_spans:
            return documents - 1, documents + 1
        closed = documents - int(unit.encoded.open_split == split)
        return closed, closed

    def _add_damage(self, checked: Checked, what: str, segment: Segment) -> None:
        checked.is_damaged = True
        checked.findings.append(self._located("tokens", what, checked.unit, segment))

    def _add_eot(self, checked: Checked, segment: Segment) -> None:
        what = "the number of end-of-text ids does not fit the documents, though checksums match"
        checked.findings.append(
            self._located("ids", what, checked.unit, segment, is_repairable=False)
        )

    def _not_an_id(self, found: int) -> str:
        return f"id {found} is outside the vocabulary of {self._tokenizer.vocab_size}"

    def _located(
        self,
        kind: FindingKind,
        what: str,
        unit: FinishedUnit,
        segment: Segment,
        *,
        is_repairable: bool = True,
    ) -> Finding:
        return at_segment(
            kind,
            what,
            unit.unit,
            segment,
            file=self._records.layout.file_name(segment.split, segment.shard),
            token_bytes=self._token_bytes,
            is_repairable=is_repairable,
        )


def _iter_groups(units: Iterable[FinishedUnit]) -> Iterator[list[FinishedUnit]]:
    group: list[FinishedUnit] = []
    num_tokens = 0
    for unit in units:
        group.append(unit)
        num_tokens += unit.encoded.counts.tokens
        if len(group) >= _GROUP_UNITS or num_tokens >= _GROUP_TOKENS:
            yield group
            group, num_tokens = [], 0
    if group:
        yield group
