"""`python -m penstok`."""

from __future__ import annotations

from penstok.cli import main

if __name__ == "__main__":
    main()
