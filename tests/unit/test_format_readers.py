"""`make test-formats`: what cannot be installed is skipped, but never silently."""

from __future__ import annotations

from pathlib import Path

import format_readers
import pytest
from format_readers import FAMILIES, SCRIPTS, TORCH, Family, Report
from support import ROOT

FAMILY = Family("pair", {"test_a.py": "good==1", "test_b.py": "bad==2"})


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return the tests that are run; `bad` cannot be installed."""
    tests: list[str] = []

    def install(python: Path, requirements: list[str]) -> str | None:
        return "ERROR: no wheel" if "bad==2" in requirements else None

    def run_tests(
        name: str, python: Path, chosen: list[str], samples: Path, report: Report
    ) -> None:
        tests.extend(chosen)

    monkeypatch.setattr(format_readers, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(format_readers, "install", install)
    monkeypatch.setattr(format_readers, "make_environment", lambda folder: folder.mkdir())
    monkeypatch.setattr(format_readers, "run_tests", run_tests)
    return tests


def test_a_package_that_cannot_be_installed_is_named_with_the_reason(
    ran: list[str], tmp_path: Path
) -> None:
    report = Report()
    format_readers.check_family(FAMILY, tmp_path, report)
    assert ran == ["test_a.py"]
    assert report.skipped == ["test_b.py: bad==2 cannot be installed: ERROR: no wheel"]
    assert report.failed == []
    # It is tried again next time.
    assert not (tmp_path / "pair" / ".installed").exists()


def test_skips_are_printed_last(
    ran: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(format_readers, "FAMILIES", (FAMILY,))
    monkeypatch.setattr(format_readers, "write_samples", lambda folder: None)
    assert format_readers.main([]) == 0
    assert ran == [SCRIPTS, "test_a.py"]
    said = capsys.readouterr().err
    assert "*** SKIPPED, NOT TESTED: test_b.py: bad==2 cannot be installed: ERROR" in said
    assert format_readers.main(["pear"]) == 2
    assert "unknown family `pear`; known: pair" in capsys.readouterr().err


def test_every_file_of_tests_has_a_family_and_every_requirement_a_version() -> None:
    listed = [SCRIPTS, *(test for family in FAMILIES for test in family.readers)]
    folder = ROOT / "tests" / "formats"
    assert sorted(listed) == sorted(path.name for path in folder.glob("test_*.py"))
    requirements = [each for family in FAMILIES for each in family.readers.values()]
    assert all("==" in each for each in [TORCH, *requirements])
