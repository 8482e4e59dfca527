"""The command line: the only package that prints.

`commands` is the registry, and each command is a module of its own; no work is done here.
`app` reads the arguments, and everything else is called through `jobs`, `verification`,
`training` and `data`.
"""

from __future__ import annotations

from penstok.cli.app import app, main

__all__ = ["app", "main"]
