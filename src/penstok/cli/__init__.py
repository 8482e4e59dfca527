"""The command line: the only package that prints.

`commands` is the registry, and each command is a module of its own; no work is done here.
`app` reads the arguments, and everything else is called through `jobs`, `verification`,
`training` and `data`.
"""

from __future__ import annotations

try:
    from penstok.cli.app import app, main
except KeyboardInterrupt:
    # A Ctrl-C before the program is loaded: nothing was begun, and there is nothing to say.
    raise SystemExit(130) from None

__all__ = ["app", "main"]
