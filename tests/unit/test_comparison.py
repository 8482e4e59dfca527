"""The comparison with the reference: a large library is loaded once, by the process that asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from specs import worker_spec
from support import EXAMPLES, make_worker
from vocabularies import train_sentencepiece, trained_with_symbols

from penstok.engines.check_text import make_check_block
from penstok.errors import EngineError
from penstok.jobs.settings import JobSettings
from penstok.tokenizers import LibraryModel
from penstok.tokenizers.libraries import drop_library_model, has_library_model
from penstok.types import replace
from penstok.worker import comparison
from penstok.worker.comparison import ComparedText, Comparison, needs_library
from penstok.worker.worker import WorkerSpec


def is_loaded(spec: WorkerSpec) -> bool:
    model = spec.tokenizer.model
    return isinstance(model, LibraryModel) and has_library_model(model.library, model.content)


@pytest.fixture
def spec(tmp_path: Path) -> WorkerSpec:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained_with_symbols())
    return worker_spec(
        JobSettings(inputs=(str(EXAMPLES),), output=tmp_path, tokenizer=str(path)), "kernel"
    )


def refuse(*_: object) -> Any:
    raise AssertionError("the reference was loaded again")


def some_texts() -> list[ComparedText]:
    block = make_check_block(["<s>"])
    return [ComparedText.from_block("some text", block)]


def test_a_library_that_is_loaded_is_used_and_dropped(
    spec: WorkerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker(spec)
    assert is_loaded(spec)
    prepared = Comparison.prepare(some_texts(), [spec])
    assert not is_loaded(spec)
    (expected,) = prepared.expected
    assert expected is not None
    assert len(expected) == 2
    monkeypatch.setattr(comparison, "load_engine", refuse)
    worker.compare(prepared)
    for number, where in enumerate(("the built-in check text", "some text")):
        ids = list(expected)
        ids[number] = ids[number] + 1
        with pytest.raises(EngineError, match="returned other ids") as raised:
            worker.compare(replace(prepared, expected=(ids,)))
        assert raised.value.where == where


def test_a_worker_loads_the_reference_that_the_other_process_does_not_have(
    spec: WorkerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker(spec)
    drop_library_model()
    prepared = Comparison.prepare(some_texts(), [spec])
    assert prepared.expected == (None,)
    worker.compare(prepared)
    monkeypatch.setattr(comparison, "load_engine", refuse)
    with pytest.raises(AssertionError, match="loaded again"):
        worker.compare(prepared)


def test_nothing_is_encoded_if_the_engine_is_the_reference(spec: WorkerSpec) -> None:
    prepared = Comparison.prepare([], [replace(spec, engine="sentencepiece")])
    assert prepared.expected == (None,)
    assert is_loaded(spec)


def test_workers_that_need_no_library_are_not_sent_its_file(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(
        train_sentencepiece(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False)
    )
    job = JobSettings(inputs=(str(EXAMPLES),), output=tmp_path, tokenizer=str(path))
    spec = worker_spec(job, "kernel")
    assert needs_library(replace(spec, engine="sentencepiece"))
    assert needs_library(replace(spec, others=(spec,)))
    assert not needs_library(spec)
    spec = replace(spec, needs_library=False)
    sent = spec.to_send()
    assert isinstance(sent.tokenizer.model, LibraryModel)
    assert sent.tokenizer.model.content == b""
    # What another job has loaded meanwhile does not matter.
    drop_library_model()
    assert needs_library(spec)
    make_worker(sent).compare(Comparison.prepare(some_texts(), [spec]))


def test_symbols_need_the_library(spec: WorkerSpec) -> None:
    assert is_loaded(spec)
    assert needs_library(spec)
    assert spec.to_send() == spec
