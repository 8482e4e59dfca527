"""What is published with the code: versions, workflows, the citation, and the rules for wheels."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import check_jsonschema
import check_release
import pytest
import wheels
from click.testing import CliRunner
from support import ROOT

TOOLS = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NAME = "penstok-0.1.0-cp312-abi3-manylinux_2_17_x86_64.whl"
LICENCES = "penstok-0.1.0.dist-info/licenses"
CONTENTS = {
    "penstok/py.typed": b"",
    "penstok/_kernel.pyi": b"",
    "penstok/tokenizers/vocab/gpt2.tiktoken": b"",
    "penstok/tokenizers/vocab/LICENSE.gpt2": b"",
    f"{LICENCES}/LICENSE": b"",
    f"{LICENCES}/src/penstok/tokenizers/vocab/LICENSE.gpt2": b"",
}


def find_weaknesses(path: Path) -> str:
    command = [str(TOOLS / "zizmor"), "--offline", "--quiet", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode else ""


def find_schema_errors(schema: str, *files: Path) -> str:
    command = ["--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = CliRunner().invoke(check_jsonschema.main, command)
    return done.output if done.exit_code else ""


def test_version_changelog_and_citation_agree() -> None:
    assert check_release.find_problems(ROOT, None) == []


def test_a_release_needs_its_tag_and_a_date(tmp_path: Path) -> None:
    package = tmp_path / "src" / "penstok"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "src/penstok/__init__.py", package)
    shutil.copy(ROOT / "CITATION.cff", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [0.1.0] - unreleased\n")
    assert check_release.find_problems(tmp_path, "v0.2.0") == [
        "the tag is v0.2.0, the package says 0.1.0",
        "the first heading of CHANGELOG.md, `[0.1.0] - unreleased`, has no date",
    ]
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [0.1.0] - 2026-12-01\n\n## [0.0.9]\n")
    assert check_release.find_problems(tmp_path, "v0.1.0") == []
    (tmp_path / "CITATION.cff").write_text("version: 0.0.9\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [0.0.9] - 2026-12-01\n")
    assert check_release.find_problems(tmp_path, None) == [
        "CITATION.cff says 0.0.9, the package 0.1.0",
        "the first heading of CHANGELOG.md is `[0.0.9] - 2026-12-01`, not [0.1.0]",
    ]


def test_the_workflows_have_no_known_weakness(tmp_path: Path) -> None:
    assert find_weaknesses(ROOT / ".github" / "workflows") == ""
    weak = re.sub(r"(actions/checkout)@\w+ # v[\d.]+", r"\1@main", WORKFLOWS[0].read_text())
    (tmp_path / "weak.yml").write_text(weak)
    assert "unpinned" in find_weaknesses(tmp_path / "weak.yml")


@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-workflows", WORKFLOWS), ("citation-file-format", [ROOT / "CITATION.cff"])],
)
def test_workflows_and_citation_follow_their_schema(
    schema: str, files: list[Path], tmp_path: Path
) -> None:
    assert find_schema_errors(schema, *files) == ""
    (tmp_path / "wrong.yml").write_text("title: something else\n")
    assert "is a required property" in find_schema_errors(schema, tmp_path / "wrong.yml")


def test_the_workflows_test_every_python_that_is_allowed() -> None:
    tests = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    (versions,) = re.findall(r"python: \[(.+)\]", tests)
    assert versions == ", ".join(f'"3.{minor}"' for minor in range(10, 15))
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert 'requires-python = ">=3.10"' in pyproject
    assert 'build = ["cp310-*", "cp311-*", "cp312-*"]' in pyproject
    assert 'wheel.py-api = "cp312"' in pyproject
    # Without a compiler there is no module, and the wheel is for no version in particular.
    assert 'wheel.cmake = false\nwheel.py-api = "py3"\n' in pyproject


@pytest.fixture(scope="module")
def module() -> bytes:
    """A shared library that links what every Linux has: the kernel of this environment."""
    from penstok import _kernel

    return Path(str(_kernel.__file__)).read_bytes()


def write_wheel(
    folder: Path, module: bytes, changed: dict[str, bytes | None] | None = None, name: str = NAME
) -> Path:
    contents: dict[str, bytes | None] = {**CONTENTS, "penstok/_kernel.abi3.so": module}
    contents.update(changed or {})
    with zipfile.ZipFile(folder / name, "w") as archive:
        for member, content in contents.items():
            if content is not None:
                archive.writestr(member, content)
    return folder / name


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")
def test_a_wheel_that_breaks_a_rule_is_refused(
    module: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_wheel(tmp_path, module)
    assert wheels.find_faults(whole) == []
    assert wheels.find_faults(
        write_wheel(tmp_path, module, {"penstok/kernel/bpe/variant.cpp": b""})
    ) == ["contains penstok/kernel/bpe/variant.cpp"]
    assert wheels.find_faults(write_wheel(tmp_path, module, {"penstok/py.typed": None})) == [
        "lacks penstok/py.typed"
    ]
    local = write_wheel(tmp_path, module, name=NAME.replace("manylinux_2_17", "linux"))
    assert wheels.find_faults(local) == ["is tagged linux_x86_64, which is this machine only"]
    # A module for one version of Python in a wheel for all of them would fail at import.
    one: dict[str, bytes | None] = {
        "penstok/_kernel.abi3.so": None,
        "penstok/_kernel.cpython-312.so": module,
    }
    (fault,) = wheels.find_faults(write_wheel(tmp_path, module, one))
    assert "should have one module, penstok/_kernel*.abi3.so" in fault
    monkeypatch.setattr(wheels, "ALLOWED_LIBRARIES", re.compile(r"libc\.so\.6"))
    whole = write_wheel(tmp_path, module)
    assert "links libgcc_s.so.1" in wheels.find_faults(whole)
    with pytest.raises(wheels.WheelError, match="breaks the rules:\nlinks lib"):
        wheels.check(whole)


def test_the_kernel_contains_all_instruction_sets_of_the_processor_family() -> None:
    from penstok import _kernel

    built = _kernel.built_isas()
    assert built == wheels.ISAS.get(platform.machine(), ["portable"])
    available = _kernel.available_isas()
    assert available == [isa for isa in built if isa in available]
    assert _kernel.isa() == available[0]


def test_a_wheel_suits_its_own_python_and_with_abi3_newer_ones() -> None:
    this = Path(sys.executable)
    minor = sys.version_info.minor

    def suits(tags: str) -> bool:
        return wheels.suits(Path(f"penstok-0.1.0-{tags}-manylinux_2_17_x86_64.whl"), this)

    assert suits(f"cp3{minor}-cp3{minor}")
    assert not suits(f"cp3{minor - 1}-cp3{minor - 1}")
    assert suits(f"cp3{minor}-abi3")
    assert suits(f"cp3{minor - 1}-abi3")
    assert not suits(f"cp3{minor + 1}-abi3")
