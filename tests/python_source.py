"""Writes the source of the Python functions from the definitions of their settings."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass
from typing import Any

from support import ROOT

import penstok
from penstok import errors
from penstok.conversion.settings import ConvertSettings
from penstok.counting.settings import TEXT_SETTINGS, CountSettings
from penstok.data.settings import ShowSettings
from penstok.jobs.definition import Setting, settings_of
from penstok.jobs.settings import JobSettings
from penstok.reports.settings import ReportSettings
from penstok.training.settings import INPUT_SETTINGS, TrainingSettings
from penstok.verification.settings import OUT, REPAIR, VerifySettings

SOURCE = ROOT / "src" / "penstok" / "api.py"
WIDTH = 100
PATH_TYPE = "str | os.PathLike[str]"
INPUTS = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
PROGRESS = "bool | Callable[[Status], object]"
PROGRESS_TEXT = (
    "True draws a line on standard error, or a bar in a notebook, that is updated in place; a "
    "function is called with a `Status` a few times a second."
)
JOB = tuple(each for each in settings_of(JobSettings) if each.in_python)


@dataclass(frozen=True)
class Function:
    """What the generator is told about a function.

    Attributes:
        arguments: Its positional parameters: name, type, default, text.
        settings: Its keywords.
        call: What `calls` is given beside the values.
    """

    name: str
    summary: str
    about: str
    arguments: tuple[tuple[str, str, str, str], ...]
    settings: tuple[Setting, ...]
    returns: str
    call: str
    example: str
    raises: str = ""
    has_progress: bool = True


def repr_of(setting: Setting) -> str:
    """Write a default as in Python source."""
    value: Any = setting.default
    return f'"{value}"' if isinstance(value, str) else repr(value)


def text_of(setting: Setting) -> str:
    """Word the help of a flag for a keyword."""
    text = re.sub(r"--([a-z0-9-]+)", lambda flag: f"`{flag[1].replace('-', '_')}`", setting.text)
    return text.replace("<|endoftext|>", "`<|endoftext|>`")


def positional(*settings: Setting, **defaults: str) -> tuple[tuple[str, str, str, str], ...]:
    """Take settings as positional parameters; one in `defaults` has another default."""
    return tuple(
        (
            each.name,
            INPUTS if each.is_argument else each.kind.annotation,
            defaults.get(each.name, "" if each.is_argument else repr_of(each)),
            text_of(each),
        )
        for each in settings
    )


def by_name(settings: tuple[Setting, ...], *names: str) -> tuple[Setting, ...]:
    return tuple(next(each for each in settings if each.name == name) for name in names)


def without(settings: tuple[Setting, ...], *names: str) -> tuple[Setting, ...]:
    return tuple(each for each in settings if each.name not in names)


CONVERT = settings_of(ConvertSettings)
COUNTING = (*TEXT_SETTINGS, *settings_of(CountSettings))
TRAINING = (*INPUT_SETTINGS, *settings_of(TrainingSettings))
OUTPUT = (("output", PATH_TYPE, "", OUT),)
JOB_KEYWORDS = without(JOB, "inputs", "output")
FUNCTIONS = (
    Function(
        "tokenize",
        "Turn text into `train.bin` and `val.bin`; return the manifest.",
        "The same call again continues a job that was interrupted, and does nothing if it is "
        "finished.",
        positional(*by_name(JOB, "inputs", "output")),
        JOB_KEYWORDS,
        "Manifest",
        "_tokenize(values, progress)",
        """
        >>> manifest = penstok.tokenize("corpus/*.txt", "tokens", val_fraction=0.1, memory="2GiB")
        >>> manifest.splits["train"].documents
        9
        """,
        raises="PenstokError: If it cannot be done: what happened, where, and what to do next.",
    ),
    Function(
        "plan",
        "Say what `tokenize` would do with the same arguments; write nothing.",
        "A sample of the text is encoded, which takes about a second.",
        positional(*by_name(JOB, "inputs", "output")),
        JOB_KEYWORDS,
        "Preview",
        "_plan(values)",
        """
        >>> preview = penstok.plan("corpus/*.txt", docs_by="file")
        >>> preview.documents[0].head
        'The first text.'
        >>> preview.estimate.documents
        10
        """,
        has_progress=False,
    ),
    Function(
        "count",
        "Count tokens without writing any; compare tokenizers.",
        "The number of tokens is what `tokenize` would write with the same arguments.",
        positional(*by_name(COUNTING, "inputs", "tokenizer")),
        tuple(each for each in without(COUNTING, "inputs", "tokenizer") if each.in_python),
        "CountResult",
        "_count(values, progress)",
        """
        >>> counted = penstok.count("corpus/*.txt", ["gpt2", "cl100k_base"])
        >>> [each.tokens for each in counted.tokenizers]
        [40, 40]
        """,
        raises="PenstokError: If the inputs cannot be read, or no tokenizer can be used.",
    ),
    Function(
        "tokenize_part",
        "Run one part of a job; call `finish` when all parts are done.",
        "Parts can run at the same time, on any machines that share the output.",
        (
            *positional(*by_name(JOB, "inputs", "output"), output=""),
            ("part", "int", "", "The number of this part, from 1."),
            ("num_parts", "int", "", "The number of parts."),
        ),
        JOB_KEYWORDS,
        "PartOutcome",
        "_tokenize_part(values, part, num_parts, progress)",
        """
        >>> for part in (1, 2):
        ...     _ = penstok.tokenize_part("corpus/*.txt", "shards", part, 2)
        >>> penstok.finish("shards").counts["documents"]
        10
        """,
    ),
    Function(
        "finish",
        "Finish a job whose parts are all done; return the manifest.",
        "",
        (("output", PATH_TYPE, "", "The output that all parts were written to."),),
        (),
        "Manifest",
        "_finish(output)",
        "",
        raises="DamageError: If parts are missing; it names them.",
        has_progress=False,
    ),
    Function(
        "info",
        "Return the manifest of a finished output: its counts, settings, inputs and files.",
        "",
        OUTPUT,
        (),
        "Manifest",
        "_info(output)",
        """
        >>> penstok.info("tokens").tokenizer.name
        'gpt2'
        """,
        raises="DamageError: If there is no finished job.",
        has_progress=False,
    ),
    Function(
        "show",
        "Return tokens of a finished output as text.",
        "For ids, use `open`.",
        OUTPUT,
        settings_of(ShowSettings),
        "str",
        "_show(output, values)",
        """
        >>> penstok.show("tokens", at=0, tokens=3)
        'The first text'
        """,
        has_progress=False,
    ),
    Function(
        "report",
        "Write one HTML page about a finished output; say where it is.",
        "The page has lengths, inputs, vocabulary, the run and documents to read. It loads "
        "nothing from the network.",
        OUTPUT,
        settings_of(ReportSettings),
        "WrittenReport",
        "_report(output, values)",
        """
        >>> penstok.report("tokens", page="report.html").documents
        10
        """,
        raises="DamageError: If there is no finished job, or it is damaged.",
        has_progress=False,
    ),
    Function(
        "find",
        "Return the documents of a finished output that came from an input, as an iterator.",
        "The output must have been made with `provenance=True`.",
        (
            *OUTPUT,
            ("pattern", "str", "", "Name of an input as the manifest has it, or a glob pattern."),
        ),
        (),
        "Iterator[FoundDocument]",
        "_find(output, pattern)",
        """
        >>> manifest = penstok.tokenize("corpus/*.txt", "traced", provenance=True)
        >>> next(penstok.find("traced", "corpus/*.txt")).origin.where
        'corpus/a.txt, byte 0'
        """,
        raises="UsageError: If the output has no such input, or does not say where documents are "
        "from.",
        has_progress=False,
    ),
    Function(
        "verify",
        "Check a finished output for damage; see `report.is_whole` and `report.findings`.",
        "",
        OUTPUT,
        (*settings_of(VerifySettings), REPAIR),
        "Report",
        "_verify(output, values, repair, progress)",
        """
        >>> penstok.verify("tokens", full=True).is_whole
        True
        """,
        raises="DamageError: If there is no finished job.",
    ),
    Function(
        "convert",
        "Write other formats of a finished output, or import files of another program.",
        "The same call again continues a conversion that was interrupted, and does nothing if it "
        "is finished.",
        positional(*by_name(CONVERT, "inputs")),
        without(CONVERT, "inputs"),
        "Manifest",
        "_convert(values)",
        """
        >>> penstok.convert("tokens", format="megatron").formats[0].files[0].path
        'train.idx'
        """,
        raises="DamageError: If there is no finished job, or it has no document index.",
        has_progress=False,
    ),
    Function(
        "train_tokenizer",
        "Train a byte-level BPE tokenizer on a sample of the corpus, and write it to a file.",
        "It needs `pip install 'penstok[hf]'`.",
        positional(*by_name(TRAINING, "inputs", "output")),
        without(TRAINING, "inputs", "output"),
        "TrainingResult",
        "_train_tokenizer(values, progress)",
        """
        >>> trained = penstok.train_tokenizer("corpus/*.txt", "my.json", vocab_size=300)
        >>> trained.output.name
        'my.json'
        """,
    ),
    Function(
        "open",
        'Open a finished output: `penstok.open("tokens").train` is a read-only memory map.',
        "For an output in an object store, such as `s3://bucket/run`, it is a `RemoteTokens`, "
        "where each slice is a request.",
        OUTPUT,
        (),
        "Dataset",
        "_open(output)",
        """
        >>> tokens = penstok.open("tokens")
        >>> tokens.train[:3].tolist()
        [464, 717, 2420]
        >>> tokens.decode(tokens.train[:3])
        'The first text'
        """,
        raises="DamageError: If there is no finished job.",
        has_progress=False,
    ),
)

MARKS = ("# <generated>\n", "# </generated>\n")


def annotation_of(setting: Setting) -> str:
    """Write the type of a keyword."""
    words = ", ".join(f'"{word}"' for word in setting.choices)
    kind = f"Literal[{words}]" if words else setting.kind.annotation
    return kind if setting.default is not None else f"{kind} | None"


def parameter(name: str, annotation: str, default: str) -> list[str]:
    """Write a parameter; a long list of words has lines of its own."""
    line = f"    {name}: {annotation}" + (f" = {default}" if default else "") + ","
    if len(line) <= WIDTH:
        return [line]
    opening, words, closing = re.fullmatch(r"(.*?\[)(.*)(\].*)", line).groups()  # type: ignore[union-attr]
    inside = f"        {words}"
    split = [f"        {word}," for word in words.split(", ")]
    end = [f"    {part}" for part in closing.replace("] | ", "]\n| ").split("\n")]
    return [opening, *([inside] if len(inside) <= WIDTH else split), *end]


def described(name: str, text: str) -> list[str]:
    """Write a line or more of `Args`."""
    indent = " " * 8
    return textwrap.wrap(
        f"{name}: {text}",
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "    ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def function_source(function: Function) -> list[str]:
    """Write a function."""
    lines = [f"def {function.name}("]
    if function.name == "open":
        lines[0] += "  # noqa: A001 reads as `penstok.open`"
    for name, annotation, default, _ in function.arguments:
        lines += parameter(name, annotation, default)
    if function.settings or function.has_progress:
        lines.append("    *,")
    for each in function.settings:
        lines += parameter(each.name, annotation_of(each), repr_of(each))
    if function.has_progress:
        lines += parameter("progress", PROGRESS, "False")
    lines += [f") -> {function.returns}:", f'    """{function.summary}', ""]
    if function.about:
        about = f"{function.about}"
        lines += textwrap.wrap(about, WIDTH, initial_indent="    ", subsequent_indent="    ")
        lines.append("")
    lines.append("    Args:")
    for name, _, _, text in function.arguments:
        lines += described(name, text)
    for each in function.settings:
        lines += described(each.name, text_of(each))
    if function.has_progress:
        lines += described("progress", PROGRESS_TEXT)
    if function.raises:
        lines += ["", "    Raises:", *described(*function.raises.split(": ", 1))]
    if function.example:
        example = textwrap.dedent(function.example).strip().splitlines()
        lines += ["", "    Example:", *(f"        {line}" for line in example)]
    lines.append('    """')
    if "values" in function.call:
        own = {"inputs", "output", "tokenizer"} if "output, values" not in function.call else set()
        names = [name for name, *_ in function.arguments if name in own]
        names += [each.name for each in function.settings if each is not REPAIR]
        lines += ["    values = {", *(f'        "{name}": {name},' for name in names), "    }"]
    return [*lines, f"    return {function.call}", "", ""]


def python_source() -> str:
    """Write the module: the functions between the marks, the rest as it is."""
    before, rest = SOURCE.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    lines = [line for function in FUNCTIONS for line in function_source(function)]
    return "".join([before, MARKS[0], "\n\n", "\n".join(lines), "\n", MARKS[1], after])


def python_reference() -> str:
    """Write the reference page from the signatures and docstrings of what `penstok` exports."""
    lines = [
        "# Python",
        "",
        "Generated from the docstrings; `pytest tests/golden --update-golden` rewrites it.",
        "",
        "Every command has a function of the same name, with the same settings and errors.",
        'Sizes and counts are numbers, or text as on the command line: `memory="2GiB"`,',
        '`shard_tokens="500M"`. Importing `penstok` imports neither numpy nor pyarrow.',
        "`penstok.__version__` is the version.",
        "",
    ]
    for function in FUNCTIONS:
        lines += function_reference(function)
    lines += ["## Records", ""]
    for name in sorted(_records()):
        lines += record_reference(name, getattr(penstok, name))
    lines += ["## Errors and warnings", "", "| class | exit code | |", "|---|---|---|"]
    for name in errors.__all__:
        kind = getattr(errors, name)
        code = getattr(kind, "exit_code", "")
        lines.append(f"| `{name}` | {code} | {str(kind.__doc__).splitlines()[0]} |")
    lines += [
        "",
        "Every error is a `PenstokError` and has `what`, `where` and `next_step`. What the caller",
        "of a finished job should know is issued as a `PenstokWarning`, which `warnings`",
        "filters can hide or turn into an error.",
    ]
    return "\n".join(lines) + "\n"


def _records() -> list[str]:
    functions = {function.name for function in FUNCTIONS}
    return [
        name for name in penstok.__all__ if name not in {*functions, *errors.__all__, "__version__"}
    ]


def function_reference(function: Function) -> list[str]:
    """Write what a function does, and its parameters as a table."""
    source = function_source(function)
    end = next(idx for idx, line in enumerate(source) if line.startswith(")"))
    signature = [line.partition("  #")[0] for line in source[: end + 1]]
    lines = [f"## penstok.{function.name}", "", function.summary]
    lines += [function.about] if function.about else []
    lines += ["", "```python", *signature[:-1], f"{signature[-1]} ...", "```", ""]
    lines += ["| parameter | |", "|---|---|"]
    rows = [(name, text) for name, _, _, text in function.arguments]
    rows += [(each.name, text_of(each)) for each in function.settings]
    rows += [("progress", PROGRESS_TEXT)] if function.has_progress else []
    lines += [f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in rows]
    if function.raises:
        lines += ["", "Raises `{}`: {}".format(*function.raises.split(": ", 1))]
    if function.example:
        example = textwrap.dedent(function.example).strip().splitlines()
        lines += ["", "```pycon", *example, "```"]
    return [*lines, ""]


def record_reference(name: str, record: type[Any]) -> list[str]:
    """Write what a record is, and its public fields and methods."""
    doc = inspect.getdoc(record) or ""
    about, _, described_fields = doc.partition("Attributes:")
    lines = [f"### {name}", "", about.strip(), ""]
    texts = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8,}.*)*)", described_fields, re.MULTILINE))
    rows = [
        (field, f"`{record.__annotations__[field]}` " + " ".join(texts.get(field, "").split()))
        for field in getattr(record, "__struct_fields__", ())
    ]
    for member, value in vars(record).items():
        is_method = inspect.isfunction(value) or isinstance(value, property)
        if is_method and not member.startswith("_") and value.__doc__:
            call = "" if isinstance(value, property) else str(inspect.signature(value))
            call = call.replace("self, ", "").replace("self", "").replace("'", "")
            rows.append((f"{member}{call}", value.__doc__.splitlines()[0]))
    if not rows:
        return lines
    table = [
        "| `{}` | {} |".format(*(cell.strip().replace("|", chr(92) + "|") for cell in row))
        for row in rows
    ]
    return [*lines, "| | |", "|---|---|", *table, ""]
