"""The printed result: what each contender did, and how Penstok compares with the marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpora import Text
    from figures import Figure, Ratio

_LABEL_WIDTH = 58


def machine_line(facts: dict[str, Any], date: str, commit: str) -> str:
    """Say in one line where the figures come from."""
    memory = facts["memory_bytes"] / (1 << 30)
    load = facts["load_average"][0]
    return (
        f"{date}  commit {commit}  {facts['cpu']}, {facts['cores']} cores, {memory:.0f} GiB, "
        f"load {load} at the start"
    )


def figure_lines(text: Text, figures: list[Figure], *, by_format: bool = False) -> list[str]:
    """Lay out all contenders on one text, or all formats of it."""
    size = f"{text.num_bytes / 1e6:.1f} MB, {text.num_documents:,} documents"
    return [
        f"{text.name}: {size}" + (", one core" if by_format else ""),
        f"  {'':22}{'MB per':>9}{'CPU s':>9}{'CPU s':>9}{'wall s':>9}{'start-up':>10}{'peak':>10}",
        f"  {'':22}{'CPU s':>9}{'steady':>9}{'all':>9}{'all':>9}{'CPU s':>10}{'memory':>10}",
        *(
            _figure_line(figure.text if by_format else figure.contender, figure)
            for figure in figures
        ),
    ]


def ratio_lines(ratios: list[Ratio]) -> list[str]:
    """Show every ratio with its mark."""
    lines = ["", f"{'marks':{_LABEL_WIDTH}}{'text':11}{'here':>10}{'spread':>8}{'mark':>18}"]
    shown = ""
    for ratio in ratios:
        lines.append(_ratio_line(ratio, "" if ratio.label == shown else ratio.label))
        shown = ratio.label
    return lines


def _figure_line(label: str, figure: Figure) -> str:
    return (
        f"  {label:22}"
        f"{_optional(figure.mb_per_cpu_second, 1):>9}{_optional(figure.steady_cpu_seconds, 2):>9}"
        f"{figure.cpu_seconds:9.2f}{figure.wall_seconds:9.2f}{figure.start_up_cpu_seconds:10.2f}"
        f"{figure.peak_mib:6.0f} MiB"
    )


def _optional(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _ratio_line(ratio: Ratio, label: str) -> str:
    value = _optional(ratio.value, 2 if ratio.unit == "x" else 0) + ratio.unit
    spread = f"{ratio.spread:.0%}" if ratio.spread else ""
    bound = "at most" if ratio.is_limit else "at least"
    mark = "none" if ratio.mark is None else f"{bound} {ratio.mark:g}{ratio.unit}"
    line = f"{label:{_LABEL_WIDTH}}{ratio.text:11}{value:>10}{spread:>8}{mark:>18}"
    return f"{line}  {ratio.verdict}".rstrip()
