"""Penstok: text of any size in, `train.bin` and `val.bin` out, in a fixed amount of memory.

Every command is a function here. Records that the functions return are imported when they are
used, so that `import penstok` imports neither numpy nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.api import (
    convert,
    count,
    find,
    finish,
    info,
    open,  # noqa: A004 reads as `penstok.open`
    plan,
    report,
    show,
    tokenize,
    tokenize_part,
    train_tokenizer,
    verify,
)
from penstok.errors import (
    ConflictError,
    DamageError,
    EngineError,
    InputError,
    InterruptedRunError,
    LockedError,
    PenstokError,
    PenstokWarning,
    UsageError,
    WriteError,
)

if TYPE_CHECKING:
    from penstok.counting.count import CountResult, InputCount, TokenizerCount
    from penstok.data.dataset import Dataset, MappedTokens
    from penstok.data.documents import Documents
    from penstok.data.fields import Fields
    from penstok.data.origins import FoundDocument, Origin
    from penstok.data.remote_tokens import RemoteTokens
    from penstok.jobs.preview import Preview
    from penstok.jobs.progress import Status
    from penstok.jobs.run import PartOutcome
    from penstok.output.manifest import Manifest
    from penstok.reports.report import WrittenReport
    from penstok.training.train import TrainingResult
    from penstok.types import FailedTokenizer
    from penstok.verification.findings import Finding, Report

__version__ = "0.1.0"

__all__ = [
    "ConflictError",
    "CountResult",
    "DamageError",
    "Dataset",
    "Documents",
    "EngineError",
    "FailedTokenizer",
    "Fields",
    "Finding",
    "FoundDocument",
    "InputCount",
    "InputError",
    "InterruptedRunError",
    "LockedError",
    "Manifest",
    "MappedTokens",
    "Origin",
    "PartOutcome",
    "PenstokError",
    "PenstokWarning",
    "Preview",
    "RemoteTokens",
    "Report",
    "Status",
    "TokenizerCount",
    "TrainingResult",
    "UsageError",
    "WriteError",
    "WrittenReport",
    "__version__",
    "convert",
    "count",
    "find",
    "finish",
    "info",
    "open",
    "plan",
    "report",
    "show",
    "tokenize",
    "tokenize_part",
    "train_tokenizer",
    "verify",
]

_RECORDS = {
    "CountResult": "penstok.counting.count",
    "Dataset": "penstok.data.dataset",
    "Documents": "penstok.data.documents",
    "FailedTokenizer": "penstok.types",
    "Fields": "penstok.data.fields",
    "Finding": "penstok.verification.findings",
    "FoundDocument": "penstok.data.origins",
    "InputCount": "penstok.counting.count",
    "Manifest": "penstok.output.manifest",
    "MappedTokens": "penstok.data.dataset",
    "Origin": "penstok.data.origins",
    "PartOutcome": "penstok.jobs.run",
    "Preview": "penstok.jobs.preview",
    "RemoteTokens": "penstok.data.remote_tokens",
    "Report": "penstok.verification.findings",
    "Status": "penstok.jobs.progress",
    "TokenizerCount": "penstok.counting.count",
    "TrainingResult": "penstok.training.train",
    "WrittenReport": "penstok.reports.report",
}


def __getattr__(name: str) -> object:
    """Import a record when it is first used."""
    if name not in _RECORDS:
        raise AttributeError(f"module `penstok` has no attribute `{name}`")
    from importlib import import_module

    return getattr(import_module(_RECORDS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
