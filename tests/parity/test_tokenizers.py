"""Every tokenizer gives the ids of its own library, with the engine that it gets.

`pytest tests/parity/test_tokenizers.py --update-tokenizers` compares on all the text there is and
writes the table of `docs/reference/tokenizers.md`; with `-k OLMo` only the rows of those.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from parity.kernel_cases import block_of
from parity.tokenizer_cases import (
    CASES,
    Case,
    corpus_texts,
    documents_for,
    load_case,
    reference_of,
)
from support import ROOT

from penstok.engines import choose_engine, load_engine
from penstok.engines.fastokens import PROVED_SHAPES
from penstok.tokenizers import LibraryModel

PAGE = ROOT / "docs" / "reference" / "tokenizers.md"
HEAD = (
    "| tokenizer | engine | documents | bytes | differences | MB/s |\n|---|---|---|---|---|---|\n"
)


def test_the_table_lists_every_tokenizer_with_its_engine() -> None:
    rows = [line.split(" | ")[:2] for line in table().splitlines()[2:]]
    assert [(name.removeprefix("| "), engine) for name, engine in rows] == [
        (case.name, case.engine) for case in CASES
    ]


def table() -> str:
    page = PAGE.read_text(encoding="utf-8")
    start = page.index(HEAD)
    return page[start : page.index("\n\n", start)]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_ids_are_those_of_its_own_library(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    full = bool(request.config.getoption("--update-tokenizers"))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    name, tokenizer = load_case(case, tmp_path)
    engine_name, _ = choose_engine("auto", tokenizer)
    assert engine_name == case.engine
    names = [engine_name]
    if isinstance(tokenizer.model, LibraryModel) and tokenizer.model.library == "tokenizers":
        # Where the kernel is not built, fastokens encodes.
        assert tokenizer.model.shape in PROVED_SHAPES
        names.append("fastokens")
    engines = [load_engine(each, tokenizer, "append") for each in names]
    encode = reference_of(name, tokenizer)
    begin = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    texts = documents_for(tokenizer, slow=case.slow_reference, full=full)
    num_bytes = differences = 0
    for text in texts:
        data = text.encode()
        num_bytes += len(data)
        expected = [*begin, *encode(text), tokenizer.eot_id]
        if any(engine.encode(block_of([data])).tolist() != expected for engine in engines):
            differences += 1
            if not full:
                pytest.fail(ascii(text[:300]))
    if full:
        speed = measure(tokenizer, engine_name)
        update_row(case, f"{len(texts):,} | {num_bytes:,} | {differences} | {speed:.1f}")
    assert differences == 0


def measure(tokenizer: object, engine_name: str) -> float:
    """Return MB of text per CPU second, in blocks, on real text that the engine has not seen."""
    texts = [text.encode() for text in corpus_texts(3)]
    engine = load_engine(engine_name, tokenizer, "none")  # type: ignore[arg-type]
    blocks, block, size = [], [], 0
    for text in texts:
        block.append(text)
        size += len(text)
        if size > 1 << 20:
            blocks.append(block_of(block))
            block, size = [], 0
    blocks = blocks if engine_name in ("kernel", "fastokens") else blocks[:3]
    start = time.process_time()
    for each in blocks:
        engine.encode(each)
    used = time.process_time() - start
    return float(sum(np.sum(each.ends - each.starts) for each in blocks)) / 1e6 / used


def update_row(case: Case, cells: str) -> None:
    lines = table().splitlines()[2:]
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    rows[case.name] = f"| {case.name} | {case.engine} | {cells} |"
    ordered = [rows[each.name] for each in CASES if each.name in rows]
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page.replace(table(), HEAD + "\n".join(ordered)), encoding="utf-8")
