"""What is compared on which text, and the marks: one function for each table of the result.

A section starts its contenders, lets them take turns and keeps the figures that the project has set
a mark for, with some for information. It does not decide how something is measured (`measure`) nor
what a figure means (`figures`). `run` chooses the sections.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from contenders import (
    BARE,
    COPY,
    DECOMPRESSION,
    FASTOKENS,
    GIGATOKEN,
    IN_MEMORY,
    KERNEL,
    KERNEL_AVX2,
    NO_INDEX,
    PENSTOK,
    PLAIN,
    PORTABLE,
    PYTHON,
    SCRIPT,
    SENTENCEPIECE,
    STEADY,
    TIKTOKEN,
    TOKENIZERS,
    TWO_BARE,
    bare_loop,
    convert,
    copy,
    decompress,
    engine,
    gigatoken_script,
    plain_script,
    small_command,
    tokenize,
    workers,
)
from corpora import (
    FORMATS,
    JSONL,
    JSONL_GZ,
    JSONL_ZST,
    PARQUET,
    write_format,
    write_hard,
    write_head,
    write_lines,
    write_long,
    write_unspaced,
)
from engines import TOKENIZERS_1
from figures import (
    INTERPRETER,
    Estimate,
    Figure,
    core_use,
    scaling_ratio,
    seconds_per_gb,
    share_of_parts,
    speed_ratio,
    time_ratio,
)
from measure import Command, Effort, take_turns

from penstok.engines.kernel import available_isas
from penstok.tokenizers import ByteLevel, load_tokenizer
from penstok.tokenizers.vocabulary import find_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from corpora import Text
    from figures import Quantity
    from measure import Contender, EngineProcess, Samples
    from usage import Usage

MB, GB = 10**6, 10**9
ONE, TWO = workers(1), workers(2)

# With AVX2; where there is AVX-512, neither may be slower.
_KERNEL_MARKS = {"web": 2.5, "multi": 5.0, "code": 2.5}
_HARD_MARKS = dict.fromkeys(("one letter", "DNA", "new words", "random Han"), 3.0)
# Below it `--engine auto` would be wrong to take the kernel on a machine without AVX2.
_PORTABLE_MARK = 1.0
# By pattern: cl100k is also Llama 3's, and qwen2 that of Qwen 2 to 3.
_TOKENIZER_MARKS = {"cl100k": 1.8, "qwen2": 1.8, "o200k": 1.8, "deepseek": 1.3}
_CHARACTERS_MARK = 3.0  # Llama 2, Gemma, Mistral
# What is left of a command without its startup is short, and has the noise of both.
_DIFFERENCE_TURNS = 80
_STEADY_MARKS = {"web": 2.0, "multi": 4.0, "code": 2.0}
_BARE_MARK = 0.9
_START_UP_CPU_MARK = 1.5
_SMALL_COMMAND_MARKS_SECONDS = {
    "penstok --version": 0.1,
    "penstok --help": 0.1,
    "penstok info": 0.3,
    "penstok show": 0.3,
    "penstok verify": 0.3,
}
_IMPORT_MARK_SECONDS = 0.02
_SMALL_JOB_MARK_SECONDS = 0.4
_WHOLE_MARKS = {"web": 1.2}
_SCALING_MARK = 0.95
_FORMAT_MARKS = {JSONL: 0.65, PARQUET: 0.6, JSONL_ZST: 0.55, JSONL_GZ: 0.55}
# Of the time for a compressed input, what JSON Lines and decompression alone take.
_DECOMPRESSION_MARK = 0.8
# Of what two cores could do: with one worker the driver already decompresses on the other one.
_STREAM_WORKERS_MARK = 0.9
_INDEX_MARK, _LINES_INDEX_MARK = 1.02, 1.1
# 1 GB/s; an index beside the tokens copies none of them.
_CONVERT_MARKS_SECONDS = {"megatron": 1.0, "llmc": 1.0, "mds": 1.0, "parquet": None}
_MEMORY_MARK_MIB = 1024.0
_FLAT_MARK = 1.05
_SMALL = "1 kB"
_IMPORT = "import penstok, python apart"


@dataclass(frozen=True, slots=True)
class Row:
    """One contender on one text in one section.

    Attributes:
        section: Where it took part.
        contender: Who it was.
        text: The name of the text; empty if there was none.
        turns: What it used in every turn.
        peak_bytes: Its memory, if it was watched.
        is_difference: The turns are differences between those of two others.
    """

    section: str
    contender: str
    text: str
    turns: list[Usage]
    peak_bytes: int | None = None
    is_difference: bool = False


@dataclass(slots=True)
class Bench:
    """What a run of the benchmark has, and what it has found so far.

    Attributes:
        texts: The corpora.
        folder: For everything that is written.
        is_quick: Only what `make bench-quick` compares, with fewer turns.
        large_bytes: The size of the text that two workers are measured on.
        flat_bytes: The size of the larger one of the section `memory`.
        tokenizers: For the section `tokenizers`: names or files that `penstok -t` takes.
        say: Tells how far it is.
    """

    texts: list[Text]
    folder: Path
    is_quick: bool
    large_bytes: int
    flat_bytes: int
    tokenizers: list[str]
    say: Callable[[str], None]
    rows: list[Row] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def take(
        self,
        section: str,
        contenders: Sequence[Contender],
        *,
        max_seconds: float,
        num_turns: int = 10,
        are_watched: bool = False,
    ) -> Samples:
        """Let contenders take turns; keep every turn, and name those whose tokens differ."""
        effort = Effort(max_seconds, num_turns=num_turns, max_turns=max(20, num_turns))
        if self.is_quick:
            effort = Effort(max_seconds / 3, num_turns=5, max_turns=8, work_seconds=2.0)
        label = f"{section}: {contenders[-1].text}"
        samples = take_turns(contenders, effort, lambda turn: self.say(f"{label}: {turn}"))
        watched = {
            (each.name, each.text): each.peak_bytes()
            for each in contenders
            if are_watched and not self.is_quick and isinstance(each, Command)
        }
        self.rows += [Row(section, *key, turns, watched.get(key)) for key, turns in samples.items()]
        self.differences += find_differences(samples, contenders)
        return samples

    def add(self, label: str, text: str, estimate: Estimate, mark: float | None = None) -> None:
        """Keep a ratio that is to be at least the mark."""
        self.figures.append(Figure(label, text, "x", estimate, mark))

    def limit(
        self, label: str, text: str, unit: str, estimate: Estimate, mark: float | None
    ) -> None:
        """Keep a figure that is to be at most the mark."""
        self.figures.append(Figure(label, text, unit, estimate, mark, is_limit=True))

    def memory(self, section: str, contender: str) -> None:
        """Compare the memory of a contender with the limit, wherever it was watched."""
        for row in self.rows:
            if (row.section, row.contender) == (section, contender) and row.peak_bytes:
                peak = row.peak_bytes / (1 << 20)
                self.limit(
                    f"peak memory: {contender}", row.text, " MiB", _once(peak), _MEMORY_MARK_MIB
                )


def run_engines(bench: Bench) -> None:
    """Compare engines in memory, block by block, on the corpora and on hard texts."""
    kernels = [KERNEL, *([KERNEL_AVX2] if "avx2" in available_isas()[1:] else [])]
    rivals = [GIGATOKEN]
    if not bench.is_quick:
        rivals += [FASTOKENS, TIKTOKEN, *([TOKENIZERS] if TOKENIZERS_1.exists() else [])]
    marks = _KERNEL_MARKS if "avx2" in available_isas() else {}
    for text in bench.texts:
        portable = [] if bench.is_quick else [PORTABLE]
        with _engines([*kernels, *portable, *rivals], text) as contenders:
            samples = bench.take("engines", contenders, max_seconds=60)
        for kernel in kernels:
            _add_speed(bench, samples, kernel, GIGATOKEN, text.name, marks.get(text.name))
        for rival in rivals[1:]:
            _add_speed(bench, samples, KERNEL, rival, text.name, None)
        for name in portable:
            _add_speed(bench, samples, name, FASTOKENS, text.name, _PORTABLE_MARK)
    for text in [] if bench.is_quick else write_hard(bench.folder):
        with _engines([KERNEL, GIGATOKEN], text) as contenders:
            samples = bench.take("hard texts", contenders, max_seconds=8)
        _add_speed(bench, samples, KERNEL, GIGATOKEN, text.name, _HARD_MARKS.get(text.name))


def run_tokenizers(bench: Bench) -> None:
    """Compare engines in memory with other tokenizers than GPT-2's."""
    for tokenizer in bench.tokenizers:
        rivals, mark = _rivals_with(tokenizer)
        names = [KERNEL, *rivals]
        for text in bench.texts:
            name = f"{tokenizer.rpartition('/')[2]}, {text.name}"
            with _engines(names, replace(text, name=name), tokenizer) as contenders:
                samples = bench.take("tokenizers", contenders, max_seconds=40)
            ratios = [
                speed_ratio(samples[KERNEL, name], samples[rival, name], "CPU") for rival in rivals
            ]
            faster = min(ratios, key=lambda ratio: ratio.median)
            of_several = "the faster of " if len(rivals) > 1 else ""
            label = f"CPU: kernel against {of_several}{' and '.join(rivals)}"
            bench.add(label, name, faster, mark)


def _rivals_with(tokenizer: str) -> tuple[list[str], float | None]:
    """Return who can encode with a tokenizer, and how much faster the kernel should be."""
    model = load_tokenizer(tokenizer, bos="none").model
    if isinstance(model, ByteLevel):
        pattern = find_pattern(model.pattern)
        return [GIGATOKEN, FASTOKENS], _TOKENIZER_MARKS.get(pattern.name if pattern else "")
    rival = SENTENCEPIECE if model.library == "sentencepiece" else FASTOKENS
    return [rival], _CHARACTERS_MARK


def run_steady(bench: Bench) -> None:
    """Compare the command without its startup: what is left of it after a job on 1 MB."""
    for text in bench.texts:
        head = write_head(text, f"{text.name}, 1 MB", MB, bench.folder)
        with closing(engine(GIGATOKEN, text)) as gigatoken:
            commands = [tokenize(head, 1), tokenize(text, 1), bare_loop(text, is_self_timed=True)]
            contenders: list[Contender] = [*commands, gigatoken]
            samples = bench.take("steady", contenders, max_seconds=150, num_turns=_DIFFERENCE_TURNS)
        _take_apart(bench, "steady", samples, STEADY, (ONE, text.name), (ONE, head.name))
        for rival, mark in ((GIGATOKEN, _STEADY_MARKS.get(text.name)), (BARE, _BARE_MARK)):
            _add_speed(bench, samples, STEADY, rival, text.name, mark)


def run_start_up(bench: Bench) -> None:
    """Measure small commands, and whole commands from 1 kB to 1 GB."""
    small = write_head(bench.texts[0], _SMALL, 1000, bench.folder)
    output = bench.folder / "small-output"
    subprocess.run([PENSTOK, "tokenize", small.path, "-o", output, "-q"], check=True)
    contenders = [
        small_command(sys.executable, "-c", "pass", name=PYTHON),
        small_command(sys.executable, "-c", "import penstok", name="import penstok"),
        *(small_command(PENSTOK, flag) for flag in ("--version", "--help")),
        *(small_command(PENSTOK, command, str(output)) for command in ("info", "show", "verify")),
        *(tokenize(small, 2, num_cores=2), plain_script(small)),
    ]
    if not bench.is_quick:
        middle = write_head(bench.texts[0], "1 MB", MB, bench.folder)
        contenders += [gigatoken_script(small), bare_loop(small)]
        contenders += [tokenize(middle, 2, num_cores=2), plain_script(middle)]
        contenders += [gigatoken_script(middle), bare_loop(middle)]
    samples = bench.take("start-up", contenders, max_seconds=75)
    start_up_marks: dict[Quantity, float | None] = {"CPU": _START_UP_CPU_MARK, "wall": None}
    for quantity, mark in start_up_marks.items():
        ratio = time_ratio(samples[TWO, _SMALL], samples[PLAIN, _SMALL], quantity)
        bench.limit(f"{quantity}: {TWO} against {PLAIN}", _SMALL, "x", ratio, mark)
    bench.limit(INTERPRETER, "", "s", _wall(samples[PYTHON, ""]), None)
    for name, mark in _SMALL_COMMAND_MARKS_SECONDS.items():
        bench.limit(f"wall: {name}", "", "s", _wall(samples[name, ""]), mark)
    job_seconds = _wall(samples[TWO, _SMALL])
    bench.limit(f"wall: {TWO}", _SMALL, "s", job_seconds, _SMALL_JOB_MARK_SECONDS)
    _take_apart(bench, "start-up", samples, _IMPORT, ("import penstok", ""), (PYTHON, ""))
    bench.limit("wall: import penstok", "", "s", _wall(samples[_IMPORT, ""]), _IMPORT_MARK_SECONDS)
    if not bench.is_quick:
        _run_large(bench)


def _run_large(bench: Bench) -> None:
    """Measure whole commands on a large text, and what a second worker gives."""
    large = write_long(_size(bench.large_bytes), bench.texts, bench.large_bytes, bench.folder)
    part_bytes = bench.large_bytes // 10
    part = write_head(large, _size(part_bytes), part_bytes, bench.folder)
    contenders = [
        *(tokenize(part, 2, num_cores=2), gigatoken_script(part), bare_loop(part)),
        *(tokenize(large, 1, num_cores=2), tokenize(large, 2, num_cores=2)),
        *(bare_loop(large), bare_loop(large, 2), gigatoken_script(large)),
    ]
    samples = bench.take("start-up", contenders, max_seconds=150, are_watched=True)
    one, two, bare, two_bare = (samples[name, large.name] for name in (ONE, TWO, BARE, TWO_BARE))
    bench.add("wall: two workers against one", large.name, speed_ratio(two, one, "wall"))
    bench.add("wall: two bare loops against one", large.name, speed_ratio(two_bare, bare, "wall"))
    label = "wall: gain by a second worker, of that of two bare loops"
    bench.add(label, large.name, scaling_ratio((one, two), (bare, two_bare)), _SCALING_MARK)
    for text in (part, large):
        _add_speed(bench, samples, TWO, SCRIPT, text.name, None, "wall")
    bench.memory("start-up", TWO)


def run_totals(bench: Bench) -> None:
    """Compare whole commands on two cores, as a user sees them: startup included, in wall time."""
    for text in bench.texts:
        contenders = [tokenize(text, 2, num_cores=2)]
        contenders += [gigatoken_script(text, is_written=False), gigatoken_script(text)]
        samples = bench.take("totals", contenders, max_seconds=35, are_watched=True)
        mark = _WHOLE_MARKS.get(text.name)
        _add_speed(bench, samples, TWO, IN_MEMORY, text.name, mark, "wall")
        _add_speed(bench, samples, TWO, SCRIPT, text.name, None, "wall")
    bench.memory("totals", TWO)


def run_formats(bench: Bench) -> None:
    """Compare other formats of the same documents with plain text, startup apart."""
    text = bench.texts[0]
    head = write_head(text, f"{text.name}, 1 MB", MB, bench.folder)
    contenders = [tokenize(head, 1), tokenize(text, 1)]
    for kind in FORMATS:
        contenders += [tokenize(write_format(each, kind, bench.folder), 1) for each in (head, text)]
    pairs = {kind: (f"{head.name}.{kind}", f"{text.name}.{kind}") for kind in FORMATS}
    streams = {
        kind: replace(text, name=pairs[kind][1], path=bench.folder / pairs[kind][1])
        for kind in (JSONL_ZST, JSONL_GZ)
    }
    stream = streams[JSONL_GZ]
    contenders += [tokenize(stream, 2, num_cores=2), *map(decompress, streams.values())]
    samples = bench.take("formats", contenders, max_seconds=100, are_watched=True)
    for start, whole in ((head.name, text.name), *pairs.values()):
        _take_apart(bench, "formats", samples, STEADY, (ONE, whole), (ONE, start))
    format_marks: dict[Quantity, dict[str, float]] = {"CPU": _FORMAT_MARKS, "wall": {}}
    for quantity, marks in format_marks.items():
        for kind, (_, whole) in pairs.items():
            ratio = speed_ratio(samples[STEADY, whole], samples[STEADY, text.name], quantity)
            bench.add(f"{quantity}: {kind} against text", text.name, ratio, marks.get(kind))
    for kind, each in streams.items():
        parts = samples[STEADY, pairs[JSONL][1]], samples[DECOMPRESSION, each.name]
        share = share_of_parts(samples[STEADY, each.name], *parts)
        label = f"CPU: jsonl and {DECOMPRESSION} of {kind}"
        bench.add(label, text.name, share, _DECOMPRESSION_MARK)
    one, two = (samples[name, stream.name] for name in (ONE, TWO))
    bench.add("wall: two workers against one", stream.name, speed_ratio(two, one, "wall"))
    used = core_use(two, one, samples[ONE, pairs[JSONL_GZ][0]])
    label = "wall: least time of two cores against two workers"
    bench.add(label, stream.name, used, _STREAM_WORKERS_MARK)


def run_outputs(bench: Bench) -> None:
    """Measure what the document index costs, and how fast tokens are written in other formats."""
    text = bench.texts[0]
    lines = write_lines(text, f"{text.name}, lines of 100 bytes", 100, bench.folder)
    flags = {text.name: (), lines.name: ("--docs-by", "line")}
    for each, mark in ((text, _INDEX_MARK), (lines, _LINES_INDEX_MARK)):
        without = tokenize(each, 1, *flags[each.name], "--document-index", "none", name=NO_INDEX)
        contenders = [tokenize(each, 1, *flags[each.name]), without]
        samples = bench.take("outputs", contenders, max_seconds=30)
        ratio = time_ratio(samples[ONE, each.name], samples[NO_INDEX, each.name], "CPU")
        bench.limit("CPU: document index against none", each.name, "x", ratio, mark)
    _run_conversions(bench)


def _run_conversions(bench: Bench) -> None:
    """Compare conversions of the tokens of all texts with a copy of them, and with 1 GB/s."""
    name, start = "tokens of all texts", "tokens of 1 kB"
    small = write_head(bench.texts[0], _SMALL, 1000, bench.folder)
    contenders = []
    for label, texts in ((start, [small]), (name, bench.texts)):
        output = bench.folder / label.replace(" ", "-")
        paths = [text.path for text in texts]
        subprocess.run([PENSTOK, "tokenize", *paths, "-o", output, "-q"], check=True)
        num_bytes = sum(path.stat().st_size for path in output.glob("*.bin"))
        contenders += [convert(output, kind, label, num_bytes) for kind in _CONVERT_MARKS_SECONDS]
        contenders += [copy(output, label, num_bytes)]
    samples = bench.take("outputs", contenders, max_seconds=40)
    for each in contenders[-1 - len(_CONVERT_MARKS_SECONDS) : -1]:
        _add_speed(bench, samples, each.name, COPY, name, None, "wall")
    for kind, mark in _CONVERT_MARKS_SECONDS.items():
        whole = f"convert to {kind}"
        apart = f"{whole}, start-up apart"
        _take_apart(bench, "outputs", samples, apart, (whole, name), (whole, start))
        bench.limit(f"wall: {apart}, 1 GB", name, "s", seconds_per_gb(samples[apart, name]), mark)


def run_unspaced(bench: Bench) -> None:
    """Measure text without blanks, one document each; cuts that had to be forced are named."""
    for text in write_unspaced(bench.folder):
        contenders = [
            tokenize(text, 1, "-t", name, name=f"{ONE}, {name.rpartition('/')[2]}")
            for name in ["gpt2", *bench.tokenizers]
        ]
        bench.take("unspaced", contenders, max_seconds=20, are_watched=True)
        for each in contenders:
            if each.forced_cuts:
                bench.say(f"{text.name}, {each.name}: {each.forced_cuts} forced cuts in all runs")


def run_memory(bench: Bench) -> None:
    """Compare the peak memory on a large text with that on 1 GB."""
    peaks = {}
    for num_bytes in (bench.large_bytes, bench.flat_bytes):
        name = _size(num_bytes)
        text = write_long(name, bench.texts, num_bytes, bench.folder)
        peaks[name] = tokenize(text, 2).peak_bytes() / (1 << 20)
        bench.say(f"memory: {name}: {peaks[name]:.0f} MiB")
        bench.limit(f"peak memory: {TWO}", name, " MiB", _once(peaks[name]), _MEMORY_MARK_MIB)
    (first, small), (last, large) = peaks.items()
    bench.limit(f"peak memory: against {first}", last, "x", _once(large / small), _FLAT_MARK)


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "engines": run_engines,
    "steady": run_steady,
    "start-up": run_start_up,
    "totals": run_totals,
    "formats": run_formats,
    "outputs": run_outputs,
    "tokenizers": run_tokenizers,
    "unspaced": run_unspaced,
    "memory": run_memory,
}
# The others need vocabularies or a lot of disk.
DEFAULT_SECTIONS = ("engines", "steady", "start-up", "totals", "formats", "outputs")
QUICK_SECTIONS = ("engines", "steady", "start-up")


@contextmanager
def _engines(
    names: Iterable[str], text: Text, tokenizer: str = "gpt2"
) -> Iterator[list[EngineProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(engine(name, text, tokenizer))) for name in names]


def _take_apart(
    bench: Bench,
    section: str,
    samples: Samples,
    name: str,
    whole: tuple[str, str],
    start: tuple[str, str],
) -> None:
    """Subtract one contender from another, turn by turn, and keep the difference as a third."""
    turns = [all_ - part for all_, part in zip(samples[whole], samples[start], strict=True)]
    samples[name, whole[1]] = turns
    bench.rows.append(Row(section, name, whole[1], turns, is_difference=True))


def _add_speed(
    bench: Bench,
    samples: Samples,
    ours: str,
    theirs: str,
    text: str,
    mark: float | None,
    quantity: Quantity = "CPU",
) -> None:
    ratio = speed_ratio(samples[ours, text], samples[theirs, text], quantity)
    bench.add(f"{quantity}: {ours} against {theirs}", text, ratio, mark)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / GB:g} GB" if num_bytes >= GB else f"{num_bytes / MB:g} MB"


def _wall(turns: Iterable[Usage]) -> Estimate:
    return Estimate.from_values([each.wall_seconds for each in turns])


def _once(value: float) -> Estimate:
    return Estimate.from_values([value])


def find_differences(samples: Samples, contenders: Iterable[Contender]) -> list[str]:
    """Name contenders that counted other tokens than another, and runs that wrote other bytes."""
    found = []
    counts: dict[tuple[str, int], tuple[str, int]] = {}
    for (name, text), turns in samples.items():
        for each in turns:
            first, num_tokens = counts.setdefault((text, each.num_bytes), (name, each.num_tokens))
            if each.num_tokens != num_tokens:
                found.append(f"{text}: {name} has {each.num_tokens} tokens, {first} {num_tokens}")
                break
    written: dict[str, set[tuple[str, ...]]] = {}
    for contender in contenders:
        if isinstance(contender, Command):
            written.setdefault(contender.text, set()).update(contender.digests)
    return found + [
        f"{text}: runs of Penstok wrote different files"
        for text, digests in written.items()
        if len(digests) > 1
    ]
