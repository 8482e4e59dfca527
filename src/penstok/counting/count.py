"""Counts the tokens of a corpus with one tokenizer or several, in one pass, and writes nothing.

It finds inputs and divides them as a job does, and its workers encode them as those of a job do, so
that the number of tokens is what `tokenize` would write. `worker.counting` counts a unit and
`estimate` extrapolates a sample; `cli` and `api` call `count_tokens`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from penstok.counting.estimate import SampleTotals, choose_strata, measure_inputs
from penstok.engines import choose_engine, engine_needs
from penstok.errors import EngineError, PenstokError, UsageError
from penstok.inputs.changes import refuse_changed_meanwhile
from penstok.jobs.few_documents import find_val_hash
from penstok.jobs.job import choose_dtype, choose_workers, make_processes, make_record
from penstok.jobs.plan import input_needs, make_plan, nothing_found
from penstok.jobs.progress import Meter
from penstok.output.layout import Layout
from penstok.output.offsets import Offsets
from penstok.quantities import plural
from penstok.tokenizers import load_tokenizer
from penstok.types import Counts, FailedTokenizer, Struct, field, replace
from penstok.worker.counting import UnitSample
from penstok.worker.memory import tree_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstok.counting.settings import CountSettings
    from penstok.executors.processes import ProcessExecutor
    from penstok.jobs.job import Workers
    from penstok.jobs.plan import Plan
    from penstok.jobs.progress import Progress
    from penstok.jobs.settings import JobSettings
    from penstok.tokenizers import Tokenizer
    from penstok.types import FinishedUnit, Source, Unit
    from penstok.worker.worker import WorkerSpec

__all__ = [
    "CountResult",
    "FailedTokenizer",
    "InputCount",
    "TokenizerCount",
    "count_tokens",
    "find_warnings",
]

_PEAK_SECONDS = 0.2


class TokenizerCount(Struct, frozen=True):
    """What one tokenizer makes of the text.

    Attributes:
        name: Its name, as it was asked for.
        vocab_size: How many ids it has: the rows of an embedding table.
        engine: What encoded the text.
        tokens: How many tokens `tokenize` would write, end-of-text tokens included.
        margin: Of an estimate, the 95 % margin of error of `tokens`; 0 if all text was counted.
        bytes_per_token: Bytes of text per token.
        characters_per_token: Characters per token.
    """

    name: str
    vocab_size: int
    engine: str
    tokens: int
    margin: int
    bytes_per_token: float
    characters_per_token: float


class InputCount(Struct, frozen=True):
    """What one input has.

    Attributes:
        path: Its path or URL.
        documents: How many documents begin in it.
        text_bytes: The length of its text in bytes.
        characters: The length of its text in characters.
        tokens: How many tokens it has, by tokenizer.
    """

    path: str
    documents: int
    text_bytes: int
    characters: int
    tokens: dict[str, int]


class CountResult(Struct, frozen=True):
    """What was counted, or estimated from a sample.

    Attributes:
        documents: How many documents there are.
        text_bytes: The length of all text in bytes.
        characters: The length of all text in characters.
        tokenizers: What each tokenizer makes of it, in the order in which they were asked for.
        failed: The tokenizers that could not be used, and why.
        inputs: The same by input; of a sample, estimates for the inputs that it has text of.
        counts: What the text that was read contained, repaired and skipped records included.
        sample_bytes: How much of the content was counted; None if all of it.
        num_inputs: How many inputs there are.
        workers: How many processes counted.
        seconds: How long it took.
        peak_memory_bytes: The most memory that all processes had together.
        skipped: Inputs that were skipped or ignored, and why.
        num_skipped: How many of them were skipped.
        hints: What would make it faster.
    """

    documents: int
    text_bytes: int
    characters: int
    tokenizers: list[TokenizerCount]
    failed: list[FailedTokenizer]
    inputs: list[InputCount]
    counts: Counts
    sample_bytes: int | None
    num_inputs: int
    workers: int
    seconds: float
    peak_memory_bytes: int
    skipped: dict[str, str] = field(default_factory=dict)
    num_skipped: int = 0
    hints: list[str] = field(default_factory=list)


def count_tokens(settings: CountSettings, progress: Progress) -> CountResult:
    """Count the tokens of all inputs, or of a sample of them, with every tokenizer.

    Raises:
        PenstokError: If the inputs cannot be read, or no tokenizer can be used.
    """
    started, job = time.monotonic(), settings.job
    plan = make_plan(job)
    loaded, failed = _load_tokenizers(settings)
    plan, sample = _choose_sample(settings, plan)
    workers, others = _make_workers(settings, plan, loaded)
    spec = replace(workers.spec, others=tuple(others), sample=sample)
    tally = _Tally(plan, [each.name for each in loaded], sample)
    meter = Meter(progress, plan.input_bytes, tally.num_units)
    with progress, _start(settings, plan, spec, workers) as executor:
        peak = _Peak(executor, meter)
        executor.check(plan.samples(), is_beside=True)
        for finished in executor.run(tally.iter_units(executor.lengths), Offsets(), peak.tick):
            tally.add(finished)
            tally.show(finished.unit, meter)
        peak.tick()
        failed += tally.fail(executor.failed)
        lengths = dict(executor.lengths)
    refuse_changed_meanwhile(plan.sources)
    engines = [each.engine for each in (spec, *others)]
    return replace(
        tally.result(loaded, engines, lengths),
        failed=_in_order(settings, failed),
        workers=workers.number,
        seconds=round(time.monotonic() - started, 3),
        peak_memory_bytes=peak.num_bytes,
        hints=[hint for hint in (workers.idle, *_slow_hints(workers), *plan.hints) if hint],
    )


def find_warnings(result: CountResult) -> list[str]:
    """List what is missing from the result."""
    warnings = [f"`{each.name}` was not counted: {each.what}" for each in result.failed]
    if result.num_skipped:
        warnings.append(f"{plural(result.num_skipped, 'input')} skipped")
    if result.counts.skipped_records:
        warnings.append(f"{plural(result.counts.skipped_records, 'record')} skipped")
    return warnings


def _load_tokenizers(settings: CountSettings) -> tuple[list[Tokenizer], list[FailedTokenizer]]:
    """Load the tokenizers that can be loaded; raise if none can."""
    loaded: list[Tokenizer] = []
    failed: list[FailedTokenizer] = []
    error: PenstokError | None = None
    for name in settings.tokenizers:
        found = _load(name, settings.job)
        if isinstance(found, PenstokError):
            error = found
            failed.append(FailedTokenizer(name, error.what, error.where, error.next_step))
        else:
            loaded.append(found)
    if error is not None and not loaded:
        raise error
    return loaded, failed


def _load(name: str, job: JobSettings) -> Tokenizer | PenstokError:
    """Load a tokenizer for which there is an engine; otherwise return why that is not possible."""
    try:
        found = load_tokenizer(name, eot_token=job.eot_token, bos=job.bos, pattern=job.pattern)
        choose_engine(job.engine, found)
    except PenstokError as error:
        return error
    return found


def _choose_sample(settings: CountSettings, plan: Plan) -> tuple[Plan, UnitSample | None]:
    """Return the plan, divided for the sample if there is one."""
    sample_bytes = settings.sample_bytes
    if sample_bytes is None:
        return plan, None
    if not plan.input_bytes:
        raise UsageError(
            "there is no sample of an input whose size is not known: it has to be read to its end",
            where=f"--sample, INPUT `{plan.sources[0].path}`",
            next_step="leave out `--sample`, or pass files",
        )
    if sample_bytes >= plan.input_bytes:
        return plan, None
    size, stratum_units = choose_strata(sample_bytes, plan.input_bytes, plan.unit_bytes)
    return plan.divided_by(size), UnitSample(stratum_units)


def _make_workers(
    settings: CountSettings, plan: Plan, loaded: Sequence[Tokenizer]
) -> tuple[Workers, list[WorkerSpec]]:
    """Divide the memory; return the workers for the first tokenizer, and what the others are."""
    job = settings.job
    rules = [
        job.text_rules(plan.rule, each.fingerprint, choose_dtype("auto", each)) for each in loaded
    ]
    layouts = [
        Layout.of_job(job.output, make_record(plan, each, own))
        for each, own in zip(loaded, rules, strict=True)
    ]
    engines = [choose_engine(job.engine, each)[0] for each in loaded]
    more = [engine_needs(*pair) for pair in zip(engines[1:], loaded[1:], strict=True)]
    workers = choose_workers(
        loaded[0],
        rules[0],
        layouts[0],
        engine=job.engine,
        num_sources=len(plan.sources),
        input_bytes=plan.input_bytes,
        needs=[*input_needs(plan.sources, plan.unit_bytes), *more],
        memory_bytes=job.memory_bytes,
        num_workers=job.workers,
        on_error=job.on_error,
        block_bytes=job.block_bytes,
        sink="count",
    )
    others = [
        replace(workers.spec, tokenizer=each, engine=engine, rules=own, layout=layout)
        for each, engine, own, layout in zip(
            loaded[1:], engines[1:], rules[1:], layouts[1:], strict=True
        )
    ]
    if plan.rule.kind == "file" and settings.sample_bytes is None:
        # Only then does the split decide about tokens: those that end parts of a giant document.
        return (
            replace(workers, spec=_with_val(plan, workers.spec)),
            [_with_val(plan, each) for each in others],
        )
    return workers, others


def _with_val(plan: Plan, spec: WorkerSpec) -> WorkerSpec:
    return replace(spec, rules=replace(spec.rules, val_hash=find_val_hash(plan, spec)))


def _start(
    settings: CountSettings, plan: Plan, spec: WorkerSpec, workers: Workers
) -> ProcessExecutor:
    return make_processes(
        spec,
        workers.number,
        plan.sources,
        plan.unit_bytes,
        priority=settings.job.priority,
        lock_file=None,
        num_at_start=max(plan.input_bytes // plan.unit_bytes, 1),
    )


def _slow_hints(workers: Workers) -> list[str]:
    why = workers.why_not_kernel
    return [f"slower than it could be: {why}"] if why else []


def _in_order(settings: CountSettings, failed: Sequence[FailedTokenizer]) -> list[FailedTokenizer]:
    first = {each.name: each for each in reversed(failed)}
    return [first[name] for name in settings.tokenizers if name in first]


class _Peak:
    """Follows the memory of all processes, and shows the progress."""

    def __init__(self, executor: ProcessExecutor, meter: Meter) -> None:
        self.num_bytes: int = 0
        self._executor = executor
        self._meter = meter
        self._next = 0.0

    def tick(self) -> None:
        """Measure, unless that was done a moment ago."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PEAK_SECONDS
        pids = self._executor.pids()
        self.num_bytes = max(self.num_bytes, tree_bytes(pids))
        self._meter.tick(pids)


class _Tally:
    """Adds up units, by input and tokenizer."""

    def __init__(self, plan: Plan, names: list[str], sample: UnitSample | None) -> None:
        self._plan = plan
        self._names = names
        self._sample = sample
        self._offsets = [Offsets() for _ in names]
        self._failed: dict[str, FailedTokenizer] = {}
        self._characters: dict[int, int] = {}
        self._starts = [0]
        for source in plan.sources:
            self._starts.append(self._starts[-1] + source.num_bytes)
        # Of a sample: by whether units are rows, and how much of each input was counted.
        self._totals: dict[bool, SampleTotals] = {}
        self._measured: dict[int, float] = {}

    @property
    def num_units(self) -> int:
        """How many units will be counted, as far as that is known."""
        number = self._plan.num_units or 0
        return number if self._sample is None else 2 * number // self._sample.stratum_units

    def iter_units(self, lengths: Mapping[int, int]) -> Iterator[Unit]:
        """Yield the units of the sample, and all units of streams, which have to be read."""
        for unit in self._plan.iter_units(lengths=lengths):
            if self._sample is None or unit.source.is_stream or self._sample.has(unit.index):
                yield unit

    def add(self, finished: FinishedUnit) -> None:
        """Add a unit; units must come in order."""
        unit, counted = finished.unit, 0
        values = [0.0, 0.0, 0.0, *(0.0 for _ in self._names)]
        content = 0.0
        for number, encoded in enumerate(finished.encoded.by_tokenizer):
            if isinstance(encoded, FailedTokenizer):
                self._failed.setdefault(encoded.name, encoded)
                continue
            self._offsets[number].grant(unit, encoded)
            counted, counts = encoded.num_characters, encoded.counts
            values[:3] = counts.documents, counts.text_bytes, counted
            values[3 + number] = counts.tokens
            content = counts.input_bytes
        self._characters[unit.source_idx] = self._characters.get(unit.source_idx, 0) + counted
        if self._sample is not None and finished.encoded.by_tokenizer:
            is_rows = unit.source.is_rows
            if is_rows:
                content = unit.stored_bytes(0)
            totals = self._totals.setdefault(is_rows, SampleTotals(self._sample, len(values)))
            totals.add(unit, content, values)
            known = self._measured.get(unit.source_idx, 0.0)
            self._measured[unit.source_idx] = known + content

    def show(self, unit: Unit, meter: Meter) -> None:
        """Take note of the progress."""
        meter.done_bytes = self._starts[unit.source_idx] + unit.stored_end
        meter.num_units_done += 1
        first = self._offsets[0].counts
        meter.num_tokens, meter.num_documents = first.tokens, first.documents

    def fail(self, failed: Sequence[FailedTokenizer]) -> list[FailedTokenizer]:
        """Leave out tokenizers that failed the comparison; return all that failed meanwhile."""
        self._failed = {each.name: each for each in failed} | self._failed
        return list(self._failed.values())

    def result(
        self, loaded: Sequence[Tokenizer], engines: Sequence[str], lengths: Mapping[int, int]
    ) -> CountResult:
        """Return what was counted, or what it amounts to.

        Raises:
            InputError: If there is no document.
        """
        plan, chosen = self._plan, self._chosen()
        counts = self._offsets[chosen[0]].counts
        if not counts.documents:
            raise nothing_found(plan.sources, counts.empty_documents)
        sizes = [] if self._sample is None else measure_inputs(plan, lengths)
        values, margins = self._estimate(sizes, counts)
        documents, text_bytes, characters = values[:3]
        return CountResult(
            documents=documents,
            text_bytes=text_bytes,
            characters=characters,
            tokenizers=[
                TokenizerCount(
                    loaded[number].name,
                    loaded[number].vocab_size,
                    engines[number],
                    tokens := values[3 + number],
                    margins[3 + number],
                    round(text_bytes / max(tokens, 1), 4),
                    round(characters / max(tokens, 1), 4),
                )
                for number in chosen
            ],
            failed=[],
            inputs=[
                self._input_count(idx, source, chosen, sizes)
                for idx, source in enumerate(plan.sources)
                if self._sample is None or self._measured.get(idx)
            ],
            counts=counts,
            sample_bytes=None if self._sample is None else counts.input_bytes,
            num_inputs=len(plan.sources),
            workers=0,
            seconds=0.0,
            peak_memory_bytes=0,
            skipped=plan.skipped | plan.ignored,
            num_skipped=len(plan.skipped),
        )

    def _chosen(self) -> list[int]:
        """Return the numbers of the tokenizers that did not fail."""
        chosen = [idx for idx, name in enumerate(self._names) if name not in self._failed]
        if chosen:
            return chosen
        first = next(iter(self._failed.values()))
        raise EngineError(first.what, where=first.where, next_step=first.next_step)

    def _estimate(self, sizes: Sequence[int], counts: Counts) -> tuple[list[int], list[int]]:
        """Return documents, bytes, characters and the tokens of each tokenizer, and margins."""
        if self._sample is None:
            exact = [counts.documents, counts.text_bytes, sum(self._characters.values())]
            exact += [each.counts.tokens for each in self._offsets]
            return exact, [0] * len(exact)
        totals = dict.fromkeys(self._totals, 0)
        for source, size in zip(self._plan.sources, sizes, strict=True):
            if source.is_rows in totals:
                totals[source.is_rows] += size
        estimates = [each.estimate(totals[kind]) for kind, each in self._totals.items()]
        values = np.sum([each.values for each in estimates], axis=0)
        margins = np.sqrt(np.sum([each.margins**2 for each in estimates], axis=0))
        return np.rint(values).astype(int).tolist(), np.ceil(margins).astype(int).tolist()

    def _input_count(
        self, idx: int, source: Source, chosen: Sequence[int], sizes: Sequence[int]
    ) -> InputCount:
        times = 1.0 if self._sample is None else sizes[idx] / self._measured[idx]
        counts = self._offsets[chosen[0]].of_source(idx)
        return InputCount(
            source.path,
            round(counts.documents * times),
            round(counts.text_bytes * times),
            round(self._characters.get(idx, 0) * times),
            {
                self._names[number]: round(self._offsets[number].of_source(idx).tokens * times)
                for number in chosen
            },
        )
