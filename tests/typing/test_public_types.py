"""The public types: what `penstok` exports is known to type checkers, as a user writes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import ROOT

import penstok

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import assert_type


def uses() -> None:
    """Use the package as a caller would; mypy checks it, and it never runs."""
    manifest = penstok.tokenize("corpus/", "tokens", memory="2GiB", limit=10**9, progress=True)
    assert_type(manifest, penstok.Manifest)
    assert_type(manifest.splits["train"].tokens, int)
    penstok.tokenize(["a.txt", Path("b.txt")], Path("tokens"), eot_token=50256, shard_tokens="500M")
    preview = penstok.plan("corpus/", tokenizer=Path("tokenizer.json"))
    assert_type(preview, penstok.Preview)
    assert_type(preview.warnings, list[str])
    assert_type(penstok.verify("tokens", full=True), penstok.Report)
    assert_type(penstok.show("tokens", split="val"), str)
    assert_type(penstok.__version__, str)
    tokens = penstok.open("tokens")
    assert_type(tokens.train, penstok.MappedTokens | penstok.RemoteTokens)
    assert_type(tokens.train.document(17), NDArray[np.unsignedinteger[Any]])
    assert_type(tokens.documents("val"), penstok.Documents)
    assert_type(tokens.documents("val")[:2], list[NDArray[np.unsignedinteger[Any]]])
    assert_type(tokens.decode([1, 2, 3]), str)

    def show(status: penstok.Status) -> None:
        assert_type(status.fraction, float)

    shown: Callable[[penstok.Status], None] = show
    penstok.train_tokenizer("corpus/", vocab_size="32K", progress=shown)


def misuses() -> None:
    """Misuse it: each of these lines must be an error, or the comment is reported as unused."""
    penstok.tokenize("corpus/", engine="fast")  # type: ignore[arg-type]
    penstok.tokenize("corpus/", memory_bytes=1)  # type: ignore[call-arg]
    penstok.tokenize("corpus/", "tokens", "gpt2")  # type: ignore[call-arg]
    penstok.verify("tokens", seed="1")  # type: ignore[arg-type]
    penstok.tokenize("corpus/", progress=lambda: None)  # type: ignore[arg-type, misc]


@pytest.mark.slow
@pytest.mark.thorough
def test_pyright_knows_the_type_of_everything_public(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--verifytypes", "penstok"),
            *("--ignoreexternal", "--outputjson", "--pythonpath", sys.executable),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    symbols = {
        each["name"]: each["isTypeKnown"] and not each["isTypeAmbiguous"]
        for each in found["symbols"]
    }
    assert {f"penstok.api.{name}" for name in ("tokenize", "plan", "open")} <= symbols.keys()
    assert [name for name, is_known in symbols.items() if not is_known] == []
    assert found["completenessScore"] == 1


def exported() -> dict[str, Any]:
    return {name: getattr(penstok, name) for name in penstok.__all__ if name != "__version__"}


def test_everything_exported_can_be_imported_and_is_documented() -> None:
    for name, value in exported().items():
        assert value.__doc__, name
        assert value.__name__ == name
    assert penstok.__version__
    with pytest.raises(AttributeError, match="no attribute `nothing`"):
        _ = penstok.nothing
    assert set(dir(penstok)) == set(penstok.__all__)
