"""Names in the commands of messages: the shell reads them as they are, whatever they hold."""

from __future__ import annotations

import os
import subprocess

import pytest

from penstok.errors import quoted

NAMES = [
    b"plain.txt",
    b"$(touch PWNED).txt",
    b"`touch PWNED`.txt",
    b"two words; 'single' \"double\" \\back",
    b"line\nbreak's",
    b"latin-1 \xe9\n3.txt",
    "Äpfel\x1b[31m.txt".encode(),
    b"-rf",
    b"~",
    b"",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_the_name(name: bytes) -> None:
    command = f"printf %s {quoted(os.fsdecode(name))}"
    assert "\n" not in command
    command.encode()
    read = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
    assert read == (b"./-rf" if name == b"-rf" else name)
