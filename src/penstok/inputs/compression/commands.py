"""Shell commands for messages: how to run a program on the stored bytes of an input.

It runs nothing. `stream` and `frames` suggest these commands when compressed data is damaged.
"""

from __future__ import annotations

import re

from penstok.errors import quoted
from penstok.storage import is_url

__all__ = ["run_on"]

# What follows the name of a member if the archive has several with this name.
_NUMBER = re.compile(r" \(\d+\)\Z")


def run_on(command: str, path: str, archive: str = "") -> str:
    """Return a shell command that runs `command` on a file, a URL or a member of an archive.

    Standard input, and URLs that `curl` cannot read, are called FILE.
    """
    stored = archive or path
    is_local = stored != "-" and not is_url(stored)
    is_web = stored.startswith(("http://", "https://"))
    name = quoted(stored) if is_local else "FILE"
    if not archive:
        # Not by its name: some programs refuse names without their suffix.
        return f"curl -sL {quoted(stored)} | {command}" if is_web else f"{command} < {name}"
    fetch = f"curl -sLo FILE {quoted(stored)} && " if is_web else ""
    member = quoted(_NUMBER.sub("", path.removeprefix(f"{archive}/")))
    # Without `--no-anchored`, a name that begins with `./` in the archive is not found.
    return f"{fetch}tar -xOf {name} --no-anchored {member} | {command}"
