"""Record the commands of the demo in a terminal, as the animated picture docs/demo.svg.

`python tools/record_demo.py` runs them for real, in a pseudo-terminal, in a folder with the example
corpus. `tests/golden/test_demo.py` runs them again and compares what they print with the picture.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "demo.svg"
COMMANDS = (
    "penstok tokenize examples/corpus/english.txt -o tokens/ --val-fraction 0.1",
    "penstok show tokens/ --split val --at 0 --tokens 70",
    "penstok verify tokens/",
)
COLUMNS = 100
_MAX_WAIT_SECONDS = 0.4
_LINE_HEIGHT, _CHARACTER_WIDTH, _MARGIN = 20, 8.4, 16
_SECONDS_PER_CHARACTER, _PAUSE_SECONDS, _END_SECONDS = 0.012, 0.8, 8.0
# The control sequences that Penstok writes: erase to the end of the line or of the screen.
_CONTROLS = re.compile(r"(\r\n|\r|\n|\x1b\[[0-9]*[JKm])")


@dataclass
class Line:
    """What is in a row of the terminal from one moment on; `end` is None if it stays."""

    row: int
    text: str
    start: float
    end: float | None = None


class Screen:
    """The rows of a terminal that never scrolls, and when they changed."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.row = 0
        self._column = 0

    def write(self, text: str, now: float) -> None:
        """Take what a program wrote."""
        for part in _CONTROLS.split(text):
            if part in ("\n", "\r\n"):
                self.row, self._column = self.row + 1, 0
            elif part == "\r":
                self._column = 0
            elif _CONTROLS.fullmatch(part) and not part.endswith("m"):
                self._set(self._text()[: self._column], now)
            elif not _CONTROLS.fullmatch(part):
                for character in part:
                    self._put(character, now)

    def _put(self, character: str, now: float) -> None:
        if self._column == COLUMNS:
            self.row, self._column = self.row + 1, 0
        old = self._text().ljust(self._column)
        self._set(old[: self._column] + character + old[self._column + 1 :], now)
        self._column += 1

    def _current(self) -> Line | None:
        return next((line for line in self.lines if line.row == self.row and not line.end), None)

    def _text(self) -> str:
        current = self._current()
        return "" if current is None else current.text

    def _set(self, text: str, now: float) -> None:
        current = self._current()
        if current is not None and current.start == now:
            current.text = text
        elif current is None or current.text != text:
            if current is not None:
                current.end = now
            self.lines.append(Line(self.row, text, now))


def record(folder: Path) -> Screen:
    """Run the commands in a terminal; the screen has what was seen."""
    screen, now = Screen(), 0.0
    for command in COMMANDS:
        screen.write(f"$ {command}", now)
        now += len(command) * _SECONDS_PER_CHARACTER + 0.2
        screen.write("\r\n", now)
        last = 0.0
        for seconds, text in run(command, folder):
            # A machine that is busy with something else must not make the picture slow.
            now += min(seconds - last, _MAX_WAIT_SECONDS)
            last = seconds
            screen.write(text, now)
        now += _PAUSE_SECONDS
    screen.lines = [line for line in screen.lines if line.text]
    return screen


def run(command: str, folder: Path) -> list[tuple[float, str]]:
    """Run a command in a terminal; return what it wrote, and when."""
    started = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        os.execv(sys.executable, [sys.executable, "-m", *command.split()])
    written: list[tuple[float, str]] = []
    rest = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        rest += data
        text = rest.decode("utf-8", errors="ignore")
        rest = rest[len(text.encode()) :]
        written.append((time.monotonic() - started, text))
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"error: a command of the demo failed\n  where: {command}")
    return written


def draw(screen: Screen) -> str:
    """Draw the rows; each appears when it was written. Without animation, the end is shown."""
    total = max(line.start for line in screen.lines) + _END_SECONDS
    width = round(COLUMNS * _CHARACTER_WIDTH + 2 * _MARGIN)
    height = (screen.row + 1) * _LINE_HEIGHT + 2 * _MARGIN + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="title">',
        '<title id="title">A terminal in which a corpus is tokenized, shown and verified</title>',
        "<style>",
        "rect{fill:#0d1117}circle{fill:#30363d}",
        f"text{{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#c9d1d9;"
        f"white-space:pre;animation-duration:{total:.2f}s;animation-iteration-count:infinite;"
        "animation-timing-function:step-end}.typed{fill:#7ee787}.gone{visibility:hidden}",
        "@media(prefers-reduced-motion:reduce){text{animation:none!important}}",
    ]
    rows = []
    for number, line in enumerate(screen.lines):
        begins, ends = (
            100 * (moment or total) / total for moment in (max(line.start, 0.001), line.end)
        )
        frames = f"0%{{visibility:hidden}}{begins:.2f}%{{visibility:visible}}"
        frames += f"{min(ends, 100):.2f}%{{visibility:hidden}}" if line.end else ""
        parts.append(f"@keyframes f{number}{{{frames}}}")
        kinds = ["typed"] if line.text.startswith("$ ") else []
        kinds += ["gone"] if line.end else []
        rows.append(
            f'<text x="{_MARGIN}" y="{_MARGIN + 12 + (line.row + 1) * _LINE_HEIGHT - 5}" '
            f'class="{" ".join(kinds)}" style="animation-name:f{number}" '
            f'textLength="{round(len(line.text) * _CHARACTER_WIDTH)}" '
            f'xml:space="preserve">{escape(line.text)}</text>'
        )
    dots = [f'<circle cx="{_MARGIN + 6 + 18 * dot}" cy="14" r="5"/>' for dot in range(3)]
    frame = f'<rect width="{width}" height="{height}" rx="8"/>'
    return "\n".join([*parts, "</style>", frame, *dots, *rows, "</svg>", ""])


def read_transcript(picture: str) -> dict[str, str]:
    """Return what each command printed, from a picture; rows are joined where they were wrapped."""
    rows = re.findall(r'<text[^>]*class="(?:typed)?"[^>]*>(.*?)</text>', picture)
    transcript: dict[str, str] = {}
    command = ""
    for text in map(unescape, rows):
        if text.startswith("$ "):
            command = text[2:]
            transcript[command] = ""
        else:
            transcript[command] += text + ("" if len(text) == COLUMNS else "\n")
    return transcript


def main() -> None:
    """Record and draw."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder, "examples"))
        PICTURE.write_text(draw(record(Path(folder))), encoding="utf-8")
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
