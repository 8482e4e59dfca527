"""The quick starts in other languages have the same steps and links, so that none falls behind."""

from __future__ import annotations

import re
import shlex

import pytest
from support import ROOT

LANGUAGES = ("de", "zh", "ja", "hi", "es")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"[0-9.]+(?:[KMG](?:i?B)?)?")


def page(language: str) -> str:
    return (ROOT / "docs" / language / "index.md").read_text(encoding="utf-8")


def steps(language: str) -> list[str]:
    """List what a reader types and runs, without names of files and encodings."""
    found = []
    for kind, body in _FENCE.findall(page(language)):
        if kind == "python":
            found.append(f"python, {len(body.splitlines())} lines")
        elif kind == "console":
            lines = [line.removeprefix("$ ") for line in body.splitlines() if line[:2] == "$ "]
            found += [_step(shlex.split(line)) for line in lines]
        else:
            found.append(f"{kind} block")
    return found


def _step(words: list[str]) -> str:
    """Keep the program, the command of `penstok`, flags, numbers and words that are not names."""
    program, *rest = words
    if program != "penstok":
        return program
    kept = [word for word in rest[1:] if word.startswith("-") or _NUMBER.fullmatch(word)]
    kept += [word for word in rest[1:] if word in ("line", "val", "megatron", "tokens/")]
    return " ".join([program, rest[0], *kept])


def links(language: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", page(language))


def test_the_first_page_shows_the_main_commands() -> None:
    commands = {step.split()[1] for step in steps(LANGUAGES[0]) if step.startswith("penstok ")}
    assert {"tokenize", "plan", "info", "show", "verify", "convert", "train-tokenizer"} <= commands
    assert len(links(LANGUAGES[0])) > 10


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_every_page_has_the_same_steps_in_the_same_order(language: str) -> None:
    assert steps(language) == steps(LANGUAGES[0])


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_every_page_has_the_same_sections_and_links(language: str) -> None:
    headings = [re.findall(r"^#+", page(each), re.MULTILINE) for each in (language, LANGUAGES[0])]
    assert headings[0] == headings[1]
    assert links(language) == links(LANGUAGES[0])
