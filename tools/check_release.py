"""Check that a tag, the package, the changelog and `CITATION.cff` name the same version.

It reads text files and changes nothing. `.github/workflows/release.yml` runs it before anything is
built; without a tag, as in the tests, it also accepts a version that is not released yet.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def find_problems(root: Path, tag: str | None) -> list[str]:
    """Return every place that does not agree with the version in `__init__.py`."""
    version = _find(root / "src/penstok/__init__.py", r'^__version__ = "(.+)"$')
    heading = _find(root / "CHANGELOG.md", r"^## (.+)$")
    problems = []
    cited = _find(root / "CITATION.cff", r"^version: (.+)$")
    if cited != version:
        problems.append(f"CITATION.cff says {cited}, the package {version}")
    if not heading.startswith(f"[{version}] - "):
        problems.append(f"the first heading of CHANGELOG.md is `{heading}`, not [{version}]")
    if tag is not None and tag != f"v{version}":
        problems.append(f"the tag is {tag}, the package says {version}")
    if tag is not None and not re.search(r" - \d{4}-\d\d-\d\d$", heading):
        problems.append(f"the first heading of CHANGELOG.md, `{heading}`, has no date")
    return problems


def _find(path: Path, pattern: str) -> str:
    found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else "nothing"


def main() -> None:
    """Check the version against the tag on the command line."""
    problems = find_problems(ROOT, sys.argv[1] if len(sys.argv) > 1 else None)
    if problems:
        sys.exit("\n".join(f"error: {problem}" for problem in problems))
    print("tag, version, changelog and citation agree")


if __name__ == "__main__":
    main()
