"""Words that must not change by accident: the reference of the command line, links, commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import list_memory
import pytest
from python_source import SOURCE, python_reference, python_source
from support import ROOT

from penstok.cli.app import Command
from penstok.cli.commands import COMMANDS
from penstok.cli.flags import GROUPS, Argument, Flag

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
CLI_PAGE = ROOT / "docs" / "reference" / "cli.md"
PYTHON_PAGE = ROOT / "docs" / "reference" / "python.md"
GUIDES = ROOT / "docs" / "guides"

CLI_NOTES = """
## Settings from elsewhere

A flag can also be set by a variable or in a configuration file. The flag wins over the variable,
the variable over the file, the file over the default.

- Variable: `PENSTOK_VAL_FRACTION=0.01` is `--val-fraction 0.01`; a switch is set by `1`.
  A name that sets no flag of any command is a warning.
- File: `--config FILE` (or `PENSTOK_CONFIG`) reads TOML. No file is read unless it is named. In a
  file called `pyproject.toml` it is the table `[tool.penstok]`.

Keys are named like the flags, with `-` or `_`; `inputs` and `output` are the arguments. Keys at the
top apply to every command that has the flag, those in a table to the command of that name (`plan`
also reads `[tokenize]`). Relative paths start at the current folder, as on the command line. A key
or table that no command knows, a key that is set twice, and a value of the wrong type are errors.

```toml
inputs = ["corpus/", "web/*.jsonl.gz"]
output = "tokens"
memory = "2GiB"

[tokenize]
tokenizer = "cl100k_base"
val-fraction = 0.001
strip = true

[verify]
full = true
```

`--log FILE` appends what a command says to a file, errors and a line of progress every 30 seconds
included, each line with the time. If the name ends in `.jsonl` or `.json`, the lines are
[JSON objects](json.md#a-log-of-json-lines). A file that cannot be opened, that is an input or
lies in an input folder or in the output, is an error before anything is done; a disk that is full
later does not stop the job.

## Shell completion

| shell | add this line to | |
|---|---|---|
| bash | `~/.bashrc` | `eval "$(penstok --show-completion bash)"` |
| zsh | `~/.zshrc`, after `compinit` | `eval "$(penstok --show-completion zsh)"` |
| fish | `~/.config/fish/config.fish` | `penstok --show-completion fish \\| source` |

Commands, flags, the values of flags and file names are completed.
"""


def cli_reference() -> str:
    """Write the command line as a page."""
    lines = ["# Command line", ""]
    lines += ["Generated from the program; `pytest tests/golden --update-golden` rewrites it.", ""]
    lines += ["Counts take K M G (powers of ten), sizes also KiB MiB GiB. Standard output is data,"]
    lines += ["standard error is narration.", "", *CLI_NOTES.strip().splitlines(), ""]
    for row in COMMANDS:
        command = Command(row)
        lines += [f"## penstok {row.name}", "", row.summary, ""]
        lines += ["```console", *(f"$ {example}" for example in command.examples), "```", ""]
        arguments = [each for each in command.flags if isinstance(each, Argument)]
        lines += ["| argument | |", "|---|---|"]
        lines += [f"| `{each.metavar}` | {each.text} |" for each in arguments]
        for group in GROUPS:
            flags = [each for each in command.flags if isinstance(each, Flag)]
            members = [each for each in flags if each.group == group]
            if members:
                lines += ["", f"| {group} | default | |", "|---|---|---|"]
                lines += map(flag_row, members)
        lines += ["", "| exit code | |", "|---|---|"]
        lines += [f"| {code} | {text} |" for code, text in row.exit_codes.items()]
        lines += [""]
    return "\n".join(lines)


def flag_row(flag: Flag) -> str:
    names = ", ".join(f"`{name}`" for name in flag.opts)
    value = "" if flag.is_flag else f" {flag.metavar}"
    default = "" if flag.default is None or flag.is_flag else f"`{flag.default}`"
    text = (flag.help or "").replace(f" (default: {flag.default})", "").replace("|", "\\|")
    return f"| {names}{value} | {default} | {text} |"


def test_the_cli_reference_is_what_the_program_says(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        CLI_PAGE.write_text(cli_reference(), encoding="utf-8")
    assert CLI_PAGE.read_text(encoding="utf-8") == cli_reference()


def test_the_python_functions_are_what_the_settings_say(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        SOURCE.write_text(python_source(), encoding="utf-8")
    assert SOURCE.read_text(encoding="utf-8") == python_source()


def test_the_python_reference_is_what_the_docstrings_say(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PYTHON_PAGE.write_text(python_reference(), encoding="utf-8")
    assert PYTHON_PAGE.read_text(encoding="utf-8") == python_reference()


def example_block(name: str) -> str:
    """Return an example as a page prints it; of a notebook, its code."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        text = "\n\n".join(code) + "\n"
    assert len(text.splitlines()) < 40
    return f"```python\n{text}```"


def included() -> dict[tuple[Path, str], str]:
    """Return what pages include, by the page and the comment before it."""
    examples = (
        "examples/train_nanogpt.py",
        "examples/count_your_corpus.py",
        "examples/report.ipynb",
    )
    memory = json.loads(list_memory.RESULT.read_text())
    return {
        **{(GUIDES / "examples.md", name): example_block(name) for name in examples},
        (GUIDES / "why-it-froze.md", "list-memory"): list_memory.table(memory),
    }


@pytest.mark.parametrize(("page", "name"), included())
def test_a_page_includes_what_is_elsewhere(
    page: Path, name: str, request: pytest.FixtureRequest
) -> None:
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    text = page.read_text(encoding="utf-8")
    wanted = pattern.sub(lambda found: f"{found[1]}{included()[page, name]}\n{found[2]}", text)
    if request.config.getoption("--update-golden"):
        page.write_text(wanted, encoding="utf-8")
    assert pattern.search(text)
    assert page.read_text(encoding="utf-8") == wanted


def test_the_picture_of_memory_is_what_was_measured() -> None:
    result = json.loads(list_memory.RESULT.read_text())
    assert list_memory.PICTURE.read_text() == list_memory.picture(result)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_exit_code_is_documented() -> None:
    from penstok import errors

    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    for name in errors.__all__:
        if name.endswith("Error"):
            assert f"| {getattr(errors, name).exit_code} |" in page
    assert "| 141 |" in page


def test_every_count_is_documented() -> None:
    from penstok.types import Counts

    pages = [ROOT / "docs" / "reference" / name for name in ("errors.md", "manifest.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for name in Counts.__struct_fields__:
        assert f"`{name}`" in text
