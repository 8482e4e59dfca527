"""How the settings of two jobs differ, in the words of the command line.

It compares records and decides nothing. `conflicts` puts the result into its errors: `there` is the
job in the output, `here` the one that was asked for.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Protocol

from penstok.quantities import format_size

if TYPE_CHECKING:
    from penstok.types import TokenizerRecord

__all__ = ["find_differences"]

# The flag of each setting, if it is not the name of the setting. Those that follow from others, and
# those that are compared elsewhere, have none.
_FLAGS = {"limit_bytes": "--limit", "task_bytes": "--task-size"}
_OTHERS = ("tokenizer", "dtype", "text_rules", "docs_by", "doc_separator", "val_hash")


class _Recorded(Protocol):
    """A job or a manifest."""

    @property
    def tokenizer(self) -> TokenizerRecord: ...

    @property
    def settings(self) -> dict[str, Any]: ...


def find_differences(there: _Recorded, here: _Recorded) -> list[str]:
    """List the settings that differ, as `--seed 7 there, 0 here`."""
    old, new = there.settings, here.settings
    found = []
    if old.get("text_rules") != new.get("text_rules"):
        found.append("the output was made by a version of penstok that reads text differently")
    if old.get("tokenizer") != new.get("tokenizer"):
        found.append(_compare_tokenizers(there.tokenizer, here.tokenizer))
    elif old.get("dtype") != new.get("dtype"):
        # With another tokenizer the type may follow from it.
        found.append(f"`--dtype` {old.get('dtype')} there, {new.get('dtype')} here")
    if (before := _documents(old)) != (after := _documents(new)):
        found.append(f"{before} there, {after} here")
    for name in sorted((old.keys() | new.keys()) - set(_OTHERS)):
        if name == "task_bytes" and None in (old.get(name), new.get(name)):
            if old.get(name) != new.get(name):
                found.append(" there, ".join(map(_division, (old, new))) + " here")
        elif old.get(name) != new.get(name):
            flag = _FLAGS.get(name, "--" + name.replace("_", "-"))
            found.append(f"`{flag}` {_value(old, name)} there, {_value(new, name)} here")
    return found


def _compare_tokenizers(there: TokenizerRecord, here: TokenizerRecord) -> str:
    """Name two tokenizers that differ; if their names are the same, say what does."""
    if there.name != here.name:
        return f"`-t` {shlex.quote(there.name)} there, {shlex.quote(here.name)} here"
    if there.eot_id != here.eot_id:
        old, new = _token(there.eot_id, there.eot_text), _token(here.eot_id, here.eot_text)
        return f"end-of-text {old} there, {new} here; `--eot-token {there.eot_id}` is the one there"
    if there.bos_id != here.bos_id:
        old, new = _token(there.bos_id, there.bos_text), _token(here.bos_id, here.bos_text)
        way = "none" if there.bos_id is None else there.bos_id
        return f"begin-of-text {old} there, {new} here; `--bos {way}` is the one there"
    return f"`-t {shlex.quote(here.name)}`: the same name, but its content or `--pattern` differs"


def _token(token_id: int | None, text: str) -> str:
    if token_id is None:
        return "none"
    return f"`{text}` ({token_id})" if text else str(token_id)


def _documents(settings: dict[str, Any]) -> str:
    """Return the flag that divides text into documents as these settings do."""
    rule = settings.get("docs_by")
    if rule == "separator":
        return f"`--doc-separator` {settings.get('doc_separator')!r}"
    return "one document per record" if rule == "record" else f"`--docs-by` {rule}"


def _division(settings: dict[str, Any]) -> str:
    is_one = settings.get("task_bytes") is None
    return "one task" if is_one else "many tasks (`--task-size`, `--part` or Ray)"


def _value(settings: dict[str, Any], name: str) -> str:
    """Return a value as it would be typed."""
    value = settings.get(name)
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "given" if value else "not given"
    if name in _FLAGS:
        return format_size(value)
    return shlex.quote(value) if isinstance(value, str) else str(value)
