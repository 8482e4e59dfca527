"""What the user asked for: one frozen record of a job's settings, checked once.

Each field defines a setting for the command line, the configuration file and Python alike. It reads
no files and knows no inputs, and imports nothing heavy, since `--help` reads it. `cli` and `api`
make it; `jobs.job` turns it into a job.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from penstok.choices import (
    DocsBy,
    DocumentIndex,
    Dtype,
    EngineChoice,
    EotPosition,
    ExecutorChoice,
    FormatChoice,
    FormatName,
    InvalidUtf8,
    OnError,
    PatternName,
    Priority,
)
from penstok.errors import UsageError
from penstok.jobs.definition import (
    COUNT,
    ESCAPED,
    INTEGER,
    NUMBER,
    PATH,
    SIZE,
    SWITCH,
    TEXTS,
    TOKEN,
    Kind,
    argument,
    python_only,
    setting,
    settings_of,
)

if TYPE_CHECKING:
    from penstok.types import DocumentRule, TextRules

__all__ = [
    "DEFAULT_BLOCK_BYTES",
    "DEFAULT_UNIT_BYTES",
    "FORMATS",
    "INPUTS",
    "PATTERNS",
    "JobSettings",
    "check_choices",
    "columns_setting",
    "parse_formats",
    "parse_output",
    "sequence_length_setting",
]

# What a unit and a block hold unless a caller of the Python interface asks for another size.
DEFAULT_UNIT_BYTES = 16 << 20
DEFAULT_BLOCK_BYTES = 2 << 20
INPUTS = "Files, folders, globs or URLs (https, s3, gs, hf); - is standard input."
PATTERNS = (
    "gpt2, starcoder, cl100k, llama3, nanochat, qwen2, qwen35, o200k, tekken, kimi, "
    "deepseek or bloom"
)


def parse_output(text: str, _flag: str = "") -> Path | str:
    """Return a folder as a path, a URL as text."""
    # What needs a look at the name is left to `storage`, which `--help` must not load.
    if text and text[0] not in "-~/" and "://" not in text and "\0" not in text:
        return Path(text)
    from penstok.storage import is_url
    from penstok.storage.object_paths import output_path

    return text if is_url(text) else Path(str(output_path(text)))


def _parse_part(text: str, flag: str) -> tuple[int, int]:
    words = text.split("/")
    if len(words) != 2 or not all(word.isascii() and word.isdecimal() for word in words):
        raise UsageError(
            f"`{text}` is not a part such as `3/16`",
            where=flag,
            next_step="pass the part and the number of parts, as in `--part 3/16`",
        )
    return int(words[0]), int(words[1])


def parse_formats(text: str, flag: str) -> str:
    """Check a list of formats; return it without repetitions, `raw` first.

    Raises:
        UsageError: If one is not known.
    """
    known, names = get_args(FormatName), [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            from difflib import get_close_matches

            meant = get_close_matches(name, known, 1)
            what = f"unknown format `{name}`" + (f"; did you mean `{meant[0]}`?" if meant else "")
            raise UsageError(
                f"{what}; known: {', '.join(known)}",
                where=flag,
                next_step=f"pass `{flag} {meant[0] if meant else 'raw,megatron'}`",
            )
    return ",".join(dict.fromkeys(["raw", *names]))


FORMATS = Kind("formats such as `raw,megatron`", "str", (str,), parse_formats, is_parsed=True)
_OUTPUT = Kind(*PATH[:3], parse_output, is_parsed=True)
_PART = Kind("a part such as `3/16`", "str", (str,), _parse_part, is_parsed=True)


def sequence_length_setting() -> Any:
    """Define how long the rows of formats are, for every command that writes formats."""
    return setting(
        "Output",
        "--sequence-length COUNT",
        "Tokens per row of the formats litdata, mds and parquet (default: that of the format; "
        "parquet: one row per document).",
        kind=COUNT,
    )


def columns_setting() -> Any:
    """Define the columns of formats, for every command that writes formats."""
    return setting(
        "Output",
        "--columns LIST",
        "Columns of the format parquet: input_ids, attention_mask, labels.",
        default="input_ids",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """Everything a user can ask for.

    `output` is a folder, or the URL of one in an object store as text; `part` is (which, of many).
    """

    inputs: tuple[str, ...] = argument("INPUT", INPUTS, kind=TEXTS)
    files_from: str | None = setting(
        "Input",
        "--files-from FILE",
        "Read the list of inputs from a file, one per line; - is standard input.",
        kind=PATH,
    )
    null: bool = setting(
        "Input",
        "-0 --null",
        "The names in --files-from are separated by NUL bytes, as `find -print0` writes them.",
        kind=SWITCH,
        default=False,
    )
    input_format: FormatChoice = setting(
        "Input",
        "--input-format FORMAT",
        "Input format: auto (by file name), text, jsonl, csv, tsv, parquet or arrow.",
        default="auto",
        choices=get_args(FormatChoice),
    )
    encoding: str = setting(
        "Input",
        "--encoding NAME",
        "Encoding of the text: utf-8, gb18030, shift_jis, cp1252, ... or auto (detect that of each "
        "input).",
        default="utf-8",
    )
    text_key: str = setting(
        "Input",
        "--text-key NAME",
        "Field or column that holds the text; a.b is field b of field a.",
        default="text",
    )
    csv_delimiter: str | None = setting(
        "Input",
        "--csv-delimiter CHARACTER",
        "What separates the fields of CSV, such as ; or | (default: a comma, in TSV a tab).",
        kind=ESCAPED,
    )
    no_header: bool = setting(
        "Input",
        "--no-header",
        "CSV begins with a record instead of column names: --text-key is a column number, from 1.",
        kind=SWITCH,
        default=False,
    )
    doc_separator: str | None = setting(
        "Input",
        "--doc-separator TEXT",
        "Separator between documents in text files (default: <|endoftext|> if it occurs near the "
        "start of the input, else one document per file).",
        kind=ESCAPED,
    )
    docs_by: DocsBy = setting(
        "Input",
        "--docs-by RULE",
        "How text files are divided into documents: auto, separator, line or file.",
        default="auto",
        choices=get_args(DocsBy),
    )
    strip: bool = setting(
        "Input",
        "--strip",
        "Strip white space from both ends of each document.",
        kind=SWITCH,
        default=False,
    )
    invalid_utf8: InvalidUtf8 = setting(
        "Input",
        "--invalid-utf8 ACTION",
        "What to do with invalid UTF-8: replace, ignore or stop.",
        default="replace",
        choices=get_args(InvalidUtf8),
    )
    on_error: OnError = setting(
        "Input",
        "--on-error ACTION",
        "What to do with bad records and unreadable files: stop, or skip and exit with 3.",
        default="stop",
        choices=get_args(OnError),
    )
    limit_bytes: int | None = setting(
        "Input",
        "--limit SIZE",
        "Use only about this much of the input, such as 100MB.",
        kind=SIZE,
    )
    tokenizer: str = setting(
        "Tokenizer",
        "-t --tokenizer TOKENIZER",
        "A name (gpt2, cl100k_base, o200k_base, ...), an OpenAI model, OWNER/NAME on the "
        "Hugging Face Hub, or a file: tokenizer.json or its folder, .tiktoken, SentencePiece "
        ".model.",
        kind=PATH._replace(expected="the name or the path of a tokenizer"),
        default="gpt2",
    )
    eot: EotPosition = setting(
        "Tokenizer",
        "--eot WHERE",
        "Where the end-of-text token of each document goes: append, prepend or none.",
        default="append",
        choices=get_args(EotPosition),
    )
    eot_token: str | None = setting(
        "Tokenizer",
        "--eot-token TOKEN",
        "End-of-text token, as text or id (default: the one the tokenizer defines).",
        kind=TOKEN,
    )
    bos: str = setting(
        "Tokenizer",
        "--bos TOKEN",
        "Token before each document: auto (the one the tokenizer adds), none, or a token as "
        "text or id.",
        kind=TOKEN,
        default="auto",
    )
    pattern: PatternName | None = setting(
        "Tokenizer",
        "--pattern NAME",
        f"Pattern that splits text into words, for a .tiktoken file: {PATTERNS}.",
        choices=get_args(PatternName),
    )
    engine: EngineChoice = setting(
        "Tokenizer",
        "--engine NAME",
        "Encoder: auto, kernel, fastokens, tiktoken, tokenizers or sentencepiece; all give "
        "the same ids.",
        default="auto",
        choices=get_args(EngineChoice),
    )
    output: Path | str = setting(
        "Output",
        "-o --output OUT",
        "Folder to write to, or s3://BUCKET/NAME.",
        kind=_OUTPUT,
        default="tokens",
    )
    val_fraction: float = setting(
        "Output",
        "--val-fraction FRACTION",
        "Fraction of the documents that goes to the val split; at least one of few.",
        kind=NUMBER,
        default=0.0005,
    )
    seed: int = setting(
        "Output", "--seed NUMBER", "Seed for the train/val split.", kind=INTEGER, default=0
    )
    shard_tokens: int | None = setting(
        "Output",
        "--shard-tokens COUNT",
        "Tokens per shard, such as 500M (default: one file per split).",
        kind=COUNT,
    )
    dtype: Dtype = setting(
        "Output",
        "--dtype TYPE",
        "Type of a token on disk: auto (uint16 if every id fits), uint16 or uint32.",
        default="auto",
        choices=get_args(Dtype),
    )
    format: str = setting(
        "Output",
        "--format LIST",
        f"Formats to write, separated by commas: {', '.join(get_args(FormatName))}; raw, which the "
        "others are made from, is always written.",
        kind=FORMATS,
        default="raw",
    )
    sequence_length: int | None = sequence_length_setting()
    columns: str = columns_setting()
    document_index: DocumentIndex = setting(
        "Output",
        "--document-index KIND",
        "Index of where documents start, beside the tokens: npy (a NumPy file) or none.",
        default="npy",
        choices=get_args(DocumentIndex),
    )
    provenance: bool = setting(
        "Output",
        "--provenance",
        "Write where each document came from beside the tokens: its input, and its place there.",
        kind=SWITCH,
        default=False,
    )
    keep: str = setting(
        "Output",
        "--keep LIST",
        "Fields of records to write beside the tokens, such as url,lang: one row per document in a "
        "parquet file.",
        default="",
    )
    overwrite: bool = setting(
        "Output",
        "--overwrite",
        "Delete the output of another job in this folder.",
        kind=SWITCH,
        default=False,
    )
    workers: int | None = setting(
        "Run",
        "-j --workers COUNT",
        "Worker count (default: all cores, or as many workers as fit in --memory).",
        kind=INTEGER,
    )
    memory_bytes: int = setting(
        "Run",
        "--memory SIZE",
        "Memory limit for all processes together; with --executor ray, per task.",
        kind=SIZE,
        default="1GiB",
    )
    priority: Priority = setting(
        "Run",
        "--priority LEVEL",
        "CPU priority: low, or normal on a dedicated machine.",
        default="low",
        choices=get_args(Priority),
    )
    executor: ExecutorChoice = setting(
        "Cluster",
        "--executor NAME",
        "local, or ray: run on all nodes of a Ray cluster; each task writes its own shards.",
        default="local",
        choices=get_args(ExecutorChoice),
    )
    ray_address: str | None = setting(
        "Cluster",
        "--ray-address ADDRESS",
        "Ray cluster to use (default: the one Ray finds, else one on this machine).",
    )
    part: tuple[int, int] | None = setting(
        "Cluster",
        "--part K/N",
        "Run only part K of N, such as 3/16; run `penstok finish` when all parts are done.",
        kind=_PART,
        in_python=False,
    )
    task_bytes: int | None = setting(
        "Run",
        "--task-size SIZE",
        "Divide the job into tasks of about this much input, such as 1GiB; each reads its own "
        "part of the input and writes its own shards (default: one task; with --executor ray, "
        "--part or S3 64MiB, more above 1TiB).",
        kind=SIZE,
    )
    unit_bytes: int = python_only(
        DEFAULT_UNIT_BYTES, "Text per unit, in bytes; the output is the same whatever it is."
    )
    block_bytes: int = python_only(
        DEFAULT_BLOCK_BYTES, "Text encoded at once, in bytes; the output is the same."
    )

    def __post_init__(self) -> None:
        if not self.inputs and self.files_from is None:
            raise UsageError(
                "no input", where="INPUT", next_step="name a file, folder, glob or URL"
            )
        if self.null and self.files_from is None:
            raise UsageError(
                "there is no list of inputs",
                where="--null",
                next_step="also pass `--files-from FILE`",
            )
        check_choices(self)
        # Imported only here: the command line reads this module before it knows the command.
        from penstok.inputs.encodings import resolve_encoding

        object.__setattr__(self, "encoding", resolve_encoding(self.encoding))
        if not 0 <= self.val_fraction <= 1:
            raise UsageError(
                f"the val fraction must be between 0 and 1, not `{self.val_fraction}`",
                where="--val-fraction",
                next_step="pass a fraction, such as `--val-fraction 0.0005`",
            )
        if not 0 <= self.seed < 2**64:
            raise UsageError(
                f"the seed `{self.seed}` is out of range",
                where="--seed",
                next_step="pass an integer from 0 to 2^64 - 1",
            )
        _check_positive(
            self,
            *("shard_tokens", "workers", "limit_bytes", "task_bytes", "unit_bytes", "block_bytes"),
            "sequence_length",
        )
        self._check_tasks()
        self._check_separator()
        self._check_csv()
        self._check_provenance()
        self._check_keep()
        if not self.text_key:
            raise UsageError(
                "the text key is empty",
                where="--text-key",
                next_step="pass the field that holds the text, such as `--text-key text`",
            )

    @property
    def is_by_task(self) -> bool:
        """Whether the job is many tasks, each of which writes its own shards."""
        is_spread = self.executor == "ray" or self.part is not None or isinstance(self.output, str)
        return is_spread or self.task_bytes is not None

    @property
    def folder(self) -> Path:
        """The output folder, of a job whose output is one."""
        return Path(self.output)

    def _check_tasks(self) -> None:
        if self.part is not None and not 1 <= self.part[0] <= self.part[1]:
            raise UsageError(
                f"there is no part {self.part[0]} of {self.part[1]}",
                where="--part",
                next_step="count from 1, as in `--part 3/16`",
            )
        if self.part is not None and (self.executor == "ray" or self.overwrite):
            other = "--overwrite" if self.overwrite else "--executor ray"
            raise UsageError(
                f"`--part` cannot be combined with `{other}`",
                where=f"--part, {other}",
                next_step="delete the old output first, or choose another `-o`"
                if self.overwrite
                else "leave out one of the two: Ray runs all parts",
            )
        if self.is_by_task and self.shard_tokens is not None:
            raise UsageError(
                "jobs of many tasks write one shard per task",
                where="--shard-tokens",
                next_step="leave out `--shard-tokens`; `--task-size` sets the size of shards",
            )
        if self.ray_address is not None and self.executor != "ray":
            raise UsageError(
                "this job does not run on a cluster",
                where="--ray-address",
                next_step="also pass `--executor ray`",
            )

    def _check_separator(self) -> None:
        separator = self.doc_separator
        if separator is None:
            if self.docs_by == "separator":
                raise UsageError(
                    "no separator was given",
                    where="--docs-by separator",
                    next_step="pass `--doc-separator '<|endoftext|>'`",
                )
            return
        if self.docs_by in ("line", "file"):
            raise UsageError(
                f"documents cannot be divided by a separator and by {self.docs_by}",
                where="--doc-separator, --docs-by",
                next_step="pass one of the two",
            )
        from penstok.types import MAX_SEPARATOR_BYTES

        try:
            size = len(separator.encode())
        except UnicodeEncodeError as error:
            raise UsageError(
                "the separator is not valid UTF-8",
                where="--doc-separator",
                next_step="pass text, such as `--doc-separator '<|endoftext|>'`",
            ) from error
        if not 0 < size <= MAX_SEPARATOR_BYTES:
            raise UsageError(
                f"the separator has {size} bytes",
                where="--doc-separator",
                next_step=f"pass 1 to {MAX_SEPARATOR_BYTES} bytes, or `--docs-by file`",
            )

    def _check_provenance(self) -> None:
        if self.provenance and self.document_index == "none":
            raise UsageError(
                "origins are listed in the order of the document index, and there is none",
                where="--provenance, --document-index none",
                next_step="leave out `--document-index none`, or `--provenance`",
            )

    def _check_keep(self) -> None:
        names = [name.strip(" ") for name in self.keep.split(",")] if self.keep else []
        object.__setattr__(self, "keep", ",".join(names))
        if names and self.document_index == "none":
            raise UsageError(
                "kept fields are listed in the order of the document index, and there is none",
                where="--keep, --document-index none",
                next_step="leave out `--document-index none`, or `--keep`",
            )
        twice = [name for name in names if names.count(name) > 1]
        if "" in names or twice or not self.keep.isprintable():
            raise UsageError(
                f"the field `{twice[0]}` is named twice"
                if twice
                else f"`{self.keep!a}` is not a list of names",
                where="--keep",
                next_step="pass each field once, separated by commas, such as `--keep url,lang`",
            )

    def _check_csv(self) -> None:
        delimiter = self.csv_delimiter
        if delimiter is not None and (
            len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0'
        ):
            shown = delimiter if delimiter.isprintable() else repr(delimiter)[1:-1]
            raise UsageError(
                f"`{shown}` is not one ASCII character that can separate fields",
                where="--csv-delimiter",
                next_step="pass one character, such as `--csv-delimiter ';'`",
            )
        key = self.text_key
        if self.no_header and not (key.isascii() and key.isdecimal() and int(key) > 0):
            raise UsageError(
                f"without a header, columns have numbers, and `{self.text_key}` is not one",
                where="--text-key, --no-header",
                next_step="pass the number of the column, from 1, such as `--text-key 2`",
            )

    def text_rules(
        self, rule: DocumentRule, tokenizer: str, dtype: Literal["uint16", "uint32"]
    ) -> TextRules:
        """Return what shapes the output's bytes; the size of tasks is chosen later.

        Args:
            rule: How documents are told apart, once the inputs were read.
            tokenizer: Its fingerprint.
            dtype: The type of a token.
        """
        from penstok.types import TEXT_RULES_VERSION, TextRules

        return TextRules(
            tokenizer=tokenizer,
            dtype=dtype,
            text_rules=TEXT_RULES_VERSION,
            text_key=self.text_key,
            docs_by=rule.kind,
            doc_separator=rule.separator.decode() if rule.kind == "separator" else None,
            strip=self.strip,
            eot=self.eot,
            val_fraction=self.val_fraction,
            seed=self.seed,
            shard_tokens=self.shard_tokens,
            invalid_utf8=self.invalid_utf8,
            limit_bytes=self.limit_bytes,
            task_bytes=self.task_bytes,
            csv_delimiter=self.csv_delimiter,
            no_header=self.no_header,
            document_index=self.document_index,
            format=self.format,
            sequence_length=self.sequence_length,
            columns=self.columns,
            provenance=self.provenance,
            keep=self.keep,
        )


def check_choices(record: Any) -> None:
    """Refuse a word that a setting does not know.

    Raises:
        UsageError: If there is one.
    """
    for each in settings_of(type(record)):
        each.check(getattr(record, each.field), each.flag)


def _check_positive(record: JobSettings, *names: str) -> None:
    for each in settings_of(JobSettings):
        value = getattr(record, each.field) if each.field in names else None
        if value is not None and value < 1:
            raise UsageError(
                f"`{value}` is too small; the least is 1",
                where=each.flag,
                next_step=f"pass 1 or more, or leave out `{each.flag}`",
            )
