"""`python -m penstok`."""

from __future__ import annotations

import contextlib
import os
import sys

# `-m` puts the current folder first, where a `json.py` of the user would replace Python's own.
if not getattr(sys.flags, "safe_path", False):
    with contextlib.suppress(OSError):
        here: str = os.getcwd()  # noqa: PTH109 pathlib imports modules that may be the user's
        if sys.path[0] in ("", here) and not __file__.startswith(here):
            del sys.path[0]

from penstok.cli import main

if __name__ == "__main__":
    main()
