"""What the user of a finished job should know and can act on, in words.

It computes nothing: every number comes from the manifest or the outcome. `cli` prints the warnings,
`api` issues them as Python warnings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstok.output.layout import Layout
from penstok.quantities import plural
from penstok.readers.formats import FORMATS
from penstok.types import UTF_8

if TYPE_CHECKING:
    from penstok.jobs.run import Outcome
    from penstok.output.manifest import Manifest

__all__ = ["count_divided", "find_warnings", "limited_to", "way_to_val"]

_FEW_DOCUMENTS = 10
_MAX_LISTED = 5
# What text is called, and the encoding that such text often is: it has more characters.
_WIDER_ENCODINGS = {
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
}


def find_warnings(manifest: Manifest, outcome: Outcome | None = None) -> list[str]:
    """List what the user can act on; without an outcome, of a job that was run in parts."""
    from penstok.jobs.few_documents import was_searched

    warnings = _invalid_text(manifest)
    counts, settings = manifest.counts, manifest.settings
    formats = {record.format for record in manifest.inputs}
    if counts["special_text_documents"]:
        eot = "the end-of-text string" if outcome is None else f"the text `{outcome.eot_text}`"
        flag = "TEXT" if outcome is None else f"'{outcome.eot_text}'"
        has_texts = any(not row.has_records for name, row in FORMATS.items() if name in formats)
        advice = f"; if it separates documents, pass `--doc-separator {flag} --overwrite`"
        warnings.append(
            f"{eot} occurs in {plural(counts['special_text_documents'], 'document')} and was "
            f"encoded as ordinary text{advice if has_texts else ''}"
        )
    warnings += _missing_fields(manifest)
    num_texts = sum(record.bytes > 0 for record in manifest.inputs)
    # Parts do not record whether the separator was found or given.
    is_given = outcome is not None and not outcome.found_separator
    is_given = is_given and settings["docs_by"] == "separator"
    if is_given and counts["documents"] + counts["empty_documents"] <= num_texts:
        warnings.append(
            f"the separator {settings['doc_separator']!r} does not occur in the input: each file "
            "is one document"
        )
    val = manifest.splits["val"]
    if val.tokens == 0 and settings["val_fraction"] > 0:
        way = way_to_val(
            counts["documents"],
            settings,
            is_limited=limited_to(manifest) is not None,
            are_equal=counts["documents"] > 1 and was_searched(manifest),
        )
        warnings.append(f"val is empty: {way}")
    elif settings.get("val_hash") is not None:
        was = "was taken, chosen by its hash" if val.documents == 1 else "were taken, all equal"
        noun = "passage" if count_divided(manifest)[0] == num_texts else "document"
        warnings.append(
            f"val: {plural(val.documents, noun)} {was}, because "
            f"`--val-fraction {settings['val_fraction']}` of "
            f"{plural(counts['documents'], noun)} gave none"
        )
    if manifest.splits["train"].tokens == 0:
        warnings.append("train is empty: pass a smaller `--val-fraction`")
    return warnings


def _missing_fields(manifest: Manifest) -> list[str]:
    """Name the fields that were to be kept and that no record has."""
    indexes = [index for split in manifest.splits.values() for index in split.indexes_of("fields")]
    names = Layout.of_manifest("", manifest).kept_fields if indexes else ()
    missing = [name for name in names if not any(index.values.get(name) for index in indexes)]
    if not missing:
        return []
    listed = ", ".join(f"`{name}`" for name in missing[:_MAX_LISTED])
    return [
        f"no document has a value in the kept {plural(len(missing), 'field')} {listed}: is the "
        "name right?"
    ]


def _invalid_text(manifest: Manifest) -> list[str]:
    """Name the inputs with the most invalid sequences."""
    records = [record for record in manifest.inputs if record.invalid_utf8]
    if not records:
        return []
    records.sort(key=lambda record: -record.invalid_utf8)
    named = ", ".join(
        f"{record.path} ({record.invalid_utf8:,}"
        + (")" if record.encoding == UTF_8 else f", read as {record.encoding})")
        for record in records[:_MAX_LISTED]
    )
    more = f" and {len(records) - _MAX_LISTED:,} more" if len(records) > _MAX_LISTED else ""
    which = "this input" if len(records) == 1 else "these inputs, the worst first"
    # The text of rows is always read as UTF-8.
    rows = {name for name, row in FORMATS.items() if row.is_rows}
    advice = (
        "if their text has another encoding, write them again with text in UTF-8"
        if {record.format for record in records} <= rows
        else "if their encoding is another one, pass it with `--encoding`"
    )
    wider = _WIDER_ENCODINGS.get(records[0].encoding)
    if wider is not None:
        advice += f"; text that is called {records[0].encoding} is often {wider}"
    return [f"invalid sequences were found in {which}: {named}{more}; {advice}"]


def count_divided(manifest: Manifest) -> tuple[int, int]:
    """Return how many files, each one document, were divided for val, and into how many passages.

    Each passage is the text between two places where the split changes.
    """
    if manifest.settings["docs_by"] != "file":
        return 0, 0
    texts = {name for name, row in FORMATS.items() if not row.has_records}
    numbers = [each.documents for each in manifest.inputs if each.format in texts]
    return sum(number > 1 for number in numbers), sum(number for number in numbers if number > 1)


def limited_to(manifest: Manifest) -> int | None:
    """Return how many bytes of the inputs `--limit` left; None if it left everything."""
    limit, total = manifest.settings.get("limit_bytes"), sum(each.bytes for each in manifest.inputs)
    if limit is None or limit >= total:
        return None
    plain = {(name, None, UTF_8) for name, row in FORMATS.items() if not row.is_rows}
    used = [each for each in manifest.inputs if each.reason is None]
    if all((each.format, each.compression, each.encoding) in plain for each in used):
        # The last document is read to its end.
        limit = max(limit, manifest.counts["input_bytes"])
    return limit if limit < total else None


def way_to_val(
    num_documents: int,
    settings: dict[str, Any],
    *,
    is_limited: bool = False,
    are_equal: bool = False,
) -> str:
    """Name flags that would give a val split: a larger fraction, or more and smaller documents.

    Args:
        num_documents: The number of documents.
        settings: The settings of the job.
        is_limited: Whether `--limit` left something out.
        are_equal: Whether all documents are equal.
    """
    if are_equal:
        return (
            f"all {num_documents:,} documents are equal, and equal documents go to the same split; "
            + ("pass a larger `--limit`" if is_limited else "add other text")
        )
    if num_documents < _FEW_DOCUMENTS and is_limited:
        return f"`--limit` left only {plural(num_documents, 'document')}; pass a larger `--limit`"
    if num_documents < _FEW_DOCUMENTS and settings["docs_by"] in ("record", "line"):
        noun = "record" if settings["docs_by"] == "record" else "document"
        return f"the input has only {plural(num_documents, noun)} to choose from; add more"
    if num_documents < _FEW_DOCUMENTS:
        return (
            f"the input has only {plural(num_documents, 'document')}; pass `--docs-by line` or "
            "`--doc-separator` to divide it differently"
        )
    fraction = min(max(round(20 / num_documents, 4), 0.001), 0.5)
    return (
        f"{num_documents:,} documents are too few for `--val-fraction {settings['val_fraction']}`; "
        f"pass `--val-fraction {fraction} --overwrite`"
    )
