"""What several test layers need: the reference by hand, and the pipeline without processes."""

from __future__ import annotations

import functools
import gzip
import json
import os
import random
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import pytest
import tiktoken
import xxhash
from specs import worker_spec

from penstok.engines import load_engine
from penstok.engines.base import Engine
from penstok.inputs.feed import Feed, make_feed
from penstok.jobs.plan import Plan, make_plan
from penstok.jobs.settings import JobSettings
from penstok.output.layout import Layout
from penstok.output.offsets import Offsets
from penstok.output.store.folder import FolderStore
from penstok.readers.formats import open_scanner
from penstok.tokenizers import load_tokenizer
from penstok.tokenizers.cuts import ByteLevelCuts
from penstok.types import SPLITS, Counts, EotPosition, Unit, replace
from penstok.worker.worker import Worker, WorkerSpec

ROOT = Path(__file__).resolve().parent.parent
# `make test-all` asks for all of what `make test` has a part of.
IS_THOROUGH = "PENSTOK_TEST_THOROUGH" in os.environ
EXAMPLES = ROOT / "examples" / "corpus"
EOT = 50256
HEAD_BYTES = 65536

_THOROUGH = pytest.mark.thorough
_Value = TypeVar("_Value")

# Characters that matter to the pattern, to UTF-8 and to the rules for cuts.
HOSTILE_CHARACTERS = (
    "aZ019 \t\n\r\v\f'’.,-<|>!_"
    "\x00\x1c\x1f\x7f\x85\xa0\u1680\u2003\u2028\u202f\u3000\ufeff\u200b\u200d"
    "äßéÆçøñжЯλאبحिकาทกมन한국어字漢日本ひらカ。、「」€—…"
    "\u0301\u0327\u20dd\ufe0f👍🏽👨‍👩‍👧𝒜𠀀\U0010ffff"
)

# Text that would do something in a page or a terminal.
HOSTILE_MARKUP = (
    "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
    "\"' & \u202eright to left \x07 \x1b[31m <!-- "
)


def rounds(number: int) -> int:
    """How often to try something at random: `make test` is content with a fifth."""
    return number if IS_THOROUGH else max(number // 5, 2)


def part_of(values: Sequence[_Value]) -> Sequence[_Value]:
    """Take every seventh of many; `make test-all` takes all."""
    return values if IS_THOROUGH else values[::7]


def few(values: Iterable[Any], number: int = 1) -> list[Any]:
    """Mark all parameters of a test behind the first few as `thorough`."""
    chosen: list[Any] = list(values)
    rest = [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=_THOROUGH)
        for value in chosen[number:]
    ]
    return [*chosen[:number], *rest]


@functools.cache
def reference() -> tiktoken.Encoding:
    """GPT-2 as tiktoken itself spells it."""
    from tiktoken_ext.openai_public import r50k_pat_str

    return tiktoken.Encoding(
        name="gpt2",
        pat_str=r50k_pat_str,
        mergeable_ranks=load_tokenizer("gpt2").ranks,
        special_tokens={"<|endoftext|>": EOT},
    )


@functools.cache
def _engine(name: str, eot: EotPosition) -> Engine:
    return load_engine(name, load_tokenizer("gpt2"), eot)


@functools.cache
def _cuts() -> ByteLevelCuts:
    return ByteLevelCuts(load_tokenizer("gpt2"))


def expected_splits(
    documents: list[bytes],
    *,
    val_fraction: float = 0.0005,
    seed: int = 0,
    eot: str = "append",
    head_bytes: int = HEAD_BYTES,
    head: Callable[[bytes], bytes] | None = None,
) -> dict[str, list[int]]:
    """Encode whole documents one by one, as the contract says it in words."""
    splits: dict[str, list[int]] = {"train": [], "val": []}
    for document in documents:
        if not document:
            continue
        decisive = document[:head_bytes] if head is None else head(document)
        is_val = xxhash.xxh3_64_intdigest(decisive, seed) < round(val_fraction * 2**64)
        ids = reference().encode_ordinary(document.decode(errors="replace"))
        placed = {"append": [*ids, EOT], "prepend": [EOT, *ids], "none": ids}[eot]
        splits["val" if is_val else "train"] += placed
    return splits


def make_worker(spec: WorkerSpec) -> Worker:
    """Make a worker with the tables of the last: a law tries hundreds of jobs."""
    if spec.tokenizer.name != "gpt2":
        return Worker(spec)
    with (
        mock.patch("penstok.worker.worker.load_engine", lambda name, _, eot: _engine(name, eot)),
        mock.patch("penstok.worker.worker.find_cuts", return_value=_cuts()),
    ):
        return Worker(spec)


def iter_fed(feed: Feed, plan: Plan) -> Iterator[Unit]:
    """Wait for every unit that a feed fills."""
    for unit in feed.iter_filled(plan.iter_units(lengths=feed.lengths)):
        if unit is None:
            select.select([feed.wake_file], [], [], 0.1)
        else:
            yield unit


def run_units(
    inputs: list[Path], output: Path, **settings: Any
) -> tuple[dict[str, list[int]], Counts]:
    """Run a job's units one after the other in this process; return the ids and the counts."""

    def read(layout: Layout, offsets: Offsets) -> tuple[dict[str, list[int]], Counts]:
        ids: dict[str, list[int]] = {}
        for split in SPLITS:
            shards = range(layout.num_shards(split, offsets.tokens[split]))
            paths = [layout.partial_path(split, shard) for shard in shards]
            data = b"".join(path.read_bytes() for path in paths if path.exists())
            ids[split] = np.frombuffer(data, np.uint16).tolist()
            assert len(ids[split]) == offsets.tokens[split]
        return ids, offsets.counts

    return run_units_and(read, inputs, output, **settings)


def run_units_and(
    finish: Callable[[Layout, Offsets], _Value], inputs: list[Path], output: Path, **settings: Any
) -> _Value:
    """Run a job's units; return what `finish` makes of the files before they are deleted."""
    chosen = {"engine": "tiktoken", **settings}
    job = JobSettings(inputs=tuple(map(os.fspath, inputs)), output=output, **chosen)
    plan = make_plan(job)
    feed = make_feed(
        plan.sources,
        1,
        plan.unit_bytes,
        open_scanner=open_scanner,
        on_error=job.on_error,
        give_back=False,
    )
    spec = worker_spec(job, job.engine)
    worker = make_worker(replace(spec, ring=None if feed is None else feed.ring.file))
    offsets = Offsets()
    with FolderStore(spec.layout.folder).lock(), closing(feed) if feed else nullcontext():
        units = plan.iter_units() if feed is None else iter_fed(feed, plan)
        for unit in units:
            worker.write(offsets.grant(unit, worker.encode(unit)))
            if feed is not None:
                feed.release(unit)
        worker._sink.close()  # hundreds of workers in one process
        return finish(spec.layout, offsets)


def hostile_runs(seed: int) -> str:
    """Text with runs without any cut, far longer than the limit, between ordinary words."""
    chance = random.Random(seed)
    runs: list[Callable[[], str]] = [
        lambda: "x" * chance.randrange(1000),
        lambda: " " * chance.randrange(1000),
        lambda: "\n" * chance.randrange(400),
        lambda: "жизнь" * chance.randrange(100),
        lambda: "".join(chance.choices("0123456789abcdef", k=chance.randrange(600))),
        lambda: "an ordinary sentence, and one more. " * chance.randrange(8),
        lambda: "漢字かな交じり文。" * chance.randrange(30),
        lambda: "|",
    ]
    return "a" + "".join(chance.choice(runs)() for _ in range(30))


def write_sample_corpus(folder: Path, kind: str) -> list[Path]:
    """Write some 8 MB in which languages alternate: `text`, `jsonl.gz`, `parquet` or `mixed`."""
    if kind == "mixed":
        return [path for each in ("text", "jsonl.gz", "parquet") for path in
                write_sample_corpus(folder, each)]  # fmt: skip
    rng = random.Random(3)
    texts = [
        text.strip()
        for path in sorted(EXAMPLES.glob("*.txt"))
        for text in path.read_text(encoding="utf-8").split("<|endoftext|>")
    ]
    documents = [
        "\n\n".join(rng.choices(texts[language : language + 9], k=rng.randrange(1, 9)))
        for language in (rng.randrange(len(texts)) for _ in range(2000))
    ]
    path = folder / f"a.{'txt' if kind == 'text' else kind}"
    if kind == "text":
        path.write_text("<|endoftext|>".join(documents), encoding="utf-8")
    elif kind == "jsonl.gz":
        # Random characters, so that it stays large.
        lines = (json.dumps({"text": one, "id": f"{rng.getrandbits(4096):x}"}) for one in documents)
        path.write_bytes(gzip.compress("\n".join(lines).encode(), 1))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"text": documents}), path, row_group_size=100, compression="none")
    return [path]
