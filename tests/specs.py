"""What a worker is made from, for tests that drive one without the pipeline.

Apart from `support`, whose imports would count in a test that watches a worker's memory.
"""

from __future__ import annotations

from penstok.jobs.plan import make_plan
from penstok.jobs.settings import JobSettings
from penstok.output.layout import Layout
from penstok.output.segments import SinkKind
from penstok.tokenizers import load_tokenizer
from penstok.worker.memory import MemoryShare
from penstok.worker.worker import WorkerSpec

UNLIMITED = MemoryShare(1 << 40, 0)


def worker_spec(
    job: JobSettings,
    engine: str = "tiktoken",
    *,
    sink: SinkKind = "write",
    share: MemoryShare = UNLIMITED,
    give_back: bool = False,
) -> WorkerSpec:
    """Make the workers of a job, as the pipeline would."""
    return WorkerSpec(
        tokenizer=load_tokenizer(job.tokenizer),
        engine=engine,
        rules=job.text_rules(make_plan(job).rule, "", "uint16"),
        on_error=job.on_error,
        block_bytes=job.block_bytes,
        layout=Layout(str(job.output), 2, job.shard_tokens, has_origins=job.provenance),
        share=share,
        give_back=give_back,
        sink=sink,
    )
