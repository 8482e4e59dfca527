"""Open every output format with its owner's own reader; `make test-formats` runs this.

Samples are written here, with Penstok. The readers run in environments of their own, one per
family of packages that can be installed together, and compare every id. A package that cannot be
installed is not a failure, but is reported at the end with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "formats"
ENVIRONMENTS = ROOT / ".venv-formats"
# Named in every command, so that no package replaces it by a build with CUDA.
TORCH = "torch==2.13.0"

if TYPE_CHECKING:
    from token_sources import Documents

    from penstok.output.formats.base import FormatOptions, OutputFormat, TokenSource


@dataclass(frozen=True)
class Family:
    """Packages that can be installed together.

    Attributes:
        name: The name of its environment.
        readers: The requirement that each file of tests needs.
    """

    name: str
    readers: dict[str, str]


FAMILIES = (
    Family(
        "shared",
        {
            "test_megatron.py": "megatron-core==0.16.1",
            "test_litdata.py": "litdata==0.2.76",
            "test_datatrove.py": "datatrove[io]==0.10.1",
            "test_datasets.py": "datasets==5.2.0",
        },
    ),
    Family("mosaicml", {"test_mosaicml.py": "mosaicml-streaming==0.13.0"}),
    Family("olmo", {"test_olmo.py": "ai2-olmo-core==3.0.0"}),
)
# Needs nothing but NumPy, so it runs where Penstok is installed.
SCRIPTS = "test_torchtitan_llmc_nanogpt.py"


@dataclass
class Report:
    """What to say at the end."""

    lines: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def main(names: list[str]) -> int:
    """Check the families of the given names, or all."""
    known = [family.name for family in FAMILIES]
    if unknown := [name for name in names if name not in known]:
        print(f"unknown family `{unknown[0]}`; known: {', '.join(known)}", file=sys.stderr)
        return 2
    samples = ENVIRONMENTS / "samples"
    write_samples(samples)
    report = Report()
    run_tests("scripts", Path(sys.executable), [SCRIPTS], samples, report)
    for family in FAMILIES:
        if family.name in names or not names:
            check_family(family, samples, report)
    print("\n".join(["", *report.lines]))
    for line in report.skipped:
        print(f"\n*** SKIPPED, NOT TESTED: {line}", file=sys.stderr)
    if report.failed:
        print(f"\nerror: failed: {', '.join(report.failed)}", file=sys.stderr)
    return 1 if report.failed else 0


def check_family(family: Family, samples: Path, report: Report) -> None:
    """Install a family, and run the tests of what could be installed."""
    folder = ENVIRONMENTS / family.name
    python = folder / "bin" / "python"
    wanted = [TORCH, "pytest", *family.readers.values()]
    stamp = folder / ".installed"
    started = time.monotonic()
    tests = list(family.readers)
    if not stamp.exists() or stamp.read_text(encoding="utf-8").split() != wanted:
        make_environment(folder)
        if (reason := install(python, wanted)) is None:
            stamp.write_text("\n".join(wanted), encoding="utf-8")
        else:
            tests = install_apart(python, family, reason, report)
        seconds = time.monotonic() - started
        report.lines.append(f"{family.name:10} installed in {seconds:4.0f} s")
    if tests:
        run_tests(family.name, python, tests, samples, report)


def make_environment(folder: Path) -> None:
    """Make an empty environment, in place of what is there."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)


def install(python: Path, requirements: list[str]) -> str | None:
    """Install packages; return why it failed."""
    print(f"installing {' '.join(requirements)}", flush=True)
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements],
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.returncode:
        return None
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return errors[-1] if errors else f"pip ended with exit code {done.returncode}"


def install_apart(python: Path, family: Family, reason: str, report: Report) -> list[str]:
    """Install the packages of a family one by one; return the tests that can be run."""
    if install(python, [TORCH, "pytest"]) is not None:
        report.skipped.append(f"{family.name}: {TORCH} cannot be installed: {reason}")
        return []
    tests = []
    for test, requirement in family.readers.items():
        if (reason_apart := install(python, [TORCH, requirement])) is None:
            tests.append(test)
        else:
            report.skipped.append(f"{test}: {requirement} cannot be installed: {reason_apart}")
    return tests


def run_tests(name: str, python: Path, tests: list[str], samples: Path, report: Report) -> None:
    """Run tests in an environment that has neither Penstok nor the settings of this project."""
    started = time.monotonic()
    options = ["-q", "-W", "ignore", "-c", os.devnull, "-o", f"pythonpath={TESTS.parent}"]
    options += ["--rootdir", str(TESTS), "--confcutdir", str(TESTS), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [python, "-m", "pytest", *options, *(TESTS / test for test in tests)],
        env=os.environ | {"PENSTOK_FORMAT_SAMPLES": str(samples), "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    report.lines.append(f"{name:10} tested in {time.monotonic() - started:4.0f} s")
    if done.returncode:
        report.failed.append(name)


def write_samples(folder: Path) -> None:
    """Write every format, with documents in six languages, and a list of what is in each."""
    import shutil

    sys.path[:0] = [str(ROOT / "tests")]
    from token_sources import write_source

    from penstok.output.formats.base import FormatOptions
    from penstok.output.formats.registry import OUTPUT_FORMATS

    shutil.rmtree(folder, ignore_errors=True)
    train, val = load_documents()
    columns = ("input_ids", "attention_mask", "labels")
    small = FormatOptions(sequence_length=65, shard_tokens=65 * 20, columns=columns)
    records = []
    cases: list[tuple[str, Literal["uint16", "uint32"], int | None, FormatOptions]] = [
        ("uint16", "uint16", None, FormatOptions()),
        ("uint16 small", "uint16", None, small),
        ("uint16 shards", "uint16", 5000, small),
        ("uint32", "uint32", None, FormatOptions()),
        ("uint32 small", "uint32", None, small),
    ]
    for label, dtype, shard_tokens, options in cases:
        # The ids of a vocabulary of more than 65,536: those of GPT-2, and a distance.
        add = 100_000 if dtype == "uint32" else 0
        splits = {
            "train": [[token + add for token in document] for document in train],
            "val": [[token + add for token in document] for document in val],
        }
        own = folder / label.replace(" ", "-")
        source = write_source(
            own / "raw",
            train=splits["train"],
            val=splits["val"],
            dtype=dtype,
            shard_tokens=shard_tokens,
            vocab_size=50257 + add,
            eot_id=50256 + add,
        )
        names: list[tuple[str, OutputFormat | None]] = [("raw", None), *OUTPUT_FORMATS.items()]
        for name, chosen in names:
            if chosen is not None:
                write_one(chosen, source, own, options)
            is_beside = chosen is None or chosen.is_beside
            records.append(
                {
                    "format": name,
                    "label": label,
                    "folder": f"{own.name}/{'raw' if is_beside else name}",
                    "dtype": dtype,
                    "eot_id": 50256 + add,
                    "vocab_size": 50257 + add,
                    "sequence_length": options.sequence_length,
                    "columns": options.columns,
                    "shards": {
                        split: {
                            file.name.removesuffix(".bin"): file.num_tokens for file in tokens.files
                        }
                        for split, tokens in source.splits.items()
                    },
                    "documents": splits,
                }
            )
    (folder / "samples.json").write_text(json.dumps(records), encoding="utf-8")


def write_one(
    chosen: OutputFormat, source: TokenSource, folder: Path, options: FormatOptions
) -> None:
    """Write a format beside the token files, or to a folder of its name."""
    from token_sources import write_format

    write_format(chosen, source, folder / ("raw" if chosen.is_beside else chosen.name), options)


def load_documents() -> tuple[Documents, Documents]:
    """Tokenize the lines of the examples with tiktoken's GPT-2; every fifth document is val."""
    from support import EOT, EXAMPLES, reference

    encoding = reference()
    documents = [
        [*encoding.encode_ordinary(line), EOT]
        for path in sorted(EXAMPLES.glob("*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    train = [document for idx, document in enumerate(documents) if idx % 5]
    return train, documents[::5]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
