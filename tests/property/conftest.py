"""Texts of any characters: the laws also hold for what a user's file would be refused for."""

from __future__ import annotations

import pytest

from penstok.inputs.content import Sample
from penstok.readers import probe
from penstok.types import UTF_8


@pytest.fixture(autouse=True)
def every_sample_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose_encoding(path: str, sample: Sample, wanted: str) -> str:
        return UTF_8 if wanted == "auto" else wanted

    monkeypatch.setattr(probe, "choose_encoding", choose_encoding)
