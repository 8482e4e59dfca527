"""Law: with a SentencePiece BPE too, output equals the library on each whole document.

Units and blocks of a few bytes divide documents at every cut; only the first part of a document
gets a space before it.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parity.test_character_bpe import ALPHABET, MARK, random_model
from support import HOSTILE_CHARACTERS, rounds, run_units
from vocabularies import trained_with_symbols

from penstok.readers import borders
from penstok.tokenizers.libraries import load_library_model

texts_of = st.lists(st.text(st.sampled_from(ALPHABET + MARK + "    "), max_size=150), max_size=8)
hostile_texts = st.lists(st.text(st.sampled_from(HOSTILE_CHARACTERS), max_size=150), max_size=8)
sizes = st.integers(1, 300)
law = settings(
    max_examples=rounds(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)


@cache
def content_of(seed: int | None) -> bytes:
    return trained_with_symbols() if seed is None else random_model(seed)


@law
@given(
    st.sampled_from([None, 1, 2, 3, 4]),
    texts_of | hostile_texts,
    sizes,
    sizes,
    st.sampled_from(["append", "prepend", "none"]),
    st.sampled_from(["kernel", "sentencepiece"]),
)
def test_separated_documents_equal_the_library(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int | None,
    texts: list[str],
    unit_bytes: int,
    block_bytes: int,
    eot: str,
    engine: str,
) -> None:
    monkeypatch.setattr(borders, "_PATIENCE_BYTES", 48)
    folder = tmp_path / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "made.model").write_bytes(content_of(seed))
    texts = [text.replace("|", "").removeprefix("\ufeff") for text in ("x", *texts, "end")]
    (folder / "text.txt").write_text("|".join(texts), encoding="utf-8", newline="")
    ids, counts = run_units(
        [folder / "text.txt"],
        folder / "out",
        tokenizer=str(folder / "made.model"),
        engine=engine,
        doc_separator="|",
        unit_bytes=unit_bytes,
        block_bytes=block_bytes,
        val_fraction=0.0,
        eot=eot,
    )
    library: Any = load_library_model("sentencepiece", content_of(seed))
    end = 2 if eot != "none" else None
    expected: list[int] = []
    for text in filter(None, texts):
        document = list(library.EncodeAsIds(text))
        if end is not None:
            document = [*document, end] if eot == "append" else [end, *document]
        expected += document
    assert ids["train"] == expected
    assert counts.forced_cuts == 0
    assert np.max(expected) < library.GetPieceSize()
