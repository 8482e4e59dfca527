"""The recording in the README: its commands still print what it shows."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import record_demo
from pages import prepare, run_command


def normalized(text: str) -> list[str]:
    """Replace what differs from run to run: sizes, rates, seconds, seeds, workers."""
    lines = [re.sub(r"\d[\d.,:]*( [kMG]?B\b)?", "N", line).rstrip() for line in text.splitlines()]
    return [line for line in lines if line]


def test_the_recording_shows_what_the_commands_print(tmp_path: Path) -> None:
    prepare(tmp_path)
    picture = record_demo.PICTURE.read_text(encoding="utf-8")
    transcript = record_demo.read_transcript(picture)
    assert tuple(transcript) == record_demo.COMMANDS
    for command, shown in transcript.items():
        assert normalized(run_command(command, tmp_path, "the demo")) == normalized(shown), command
    assert "train.bin" in transcript[record_demo.COMMANDS[0]]


def test_the_recording_is_a_picture_that_ends_with_all_lines() -> None:
    root = ElementTree.fromstring(record_demo.PICTURE.read_bytes())
    texts = root.findall("{http://www.w3.org/2000/svg}text")
    assert len([text for text in texts if "gone" not in (text.get("class") or "")]) > 10
    assert not root.findall(".//{http://www.w3.org/2000/svg}image")


def test_a_screen_keeps_what_is_erased_only_for_its_time() -> None:
    screen = record_demo.Screen()
    screen.write("\r\x1b[Jstarting\r", 1.0)
    screen.write("\r\x1b[J", 2.0)
    screen.write("done\r\nnext " + "x" * record_demo.COLUMNS, 3.0)
    seen = [(line.row, line.text, line.start, line.end) for line in screen.lines]
    assert seen[:2] == [(0, "starting", 1.0, 2.0), (0, "", 2.0, 3.0)]
    assert seen[2] == (0, "done", 3.0, None)
    assert [(row, len(text)) for row, text, *_ in seen[3:]] == [(1, record_demo.COLUMNS), (2, 5)]
