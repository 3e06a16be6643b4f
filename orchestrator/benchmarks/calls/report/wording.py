# SPDX-License-Identifier: GPL-2.0-only
"""Titles and sentences that the layouts of calls share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.benchmarks.calls.capabilities import capability_list, capability_names
from orchestrator.catalog.probes import BASELINE, probe_in_catalogue
from orchestrator.report.panel import Panel
from orchestrator.report.wording import INDICATION, processors, unit_meaning
from orchestrator.results.contract import CellRecord

_TWO_UNITS = "Ratios in two different units are not expected to agree."


def benchmark_title(cell: CellRecord) -> str:
    """Return what the cell runs, in a word: the user's file or the system call where the experiment names it."""
    if cell.benchmark == "gtodbench":
        return cell.benchmark
    return str(cell.parameters.get("workload") or cell.parameters.get("call") or cell.benchmark)


def called(cell: CellRecord) -> str:
    """Return what each call of the cell runs, and the place that it is probed at where the experiment names it."""
    title = benchmark_title(cell)
    what = "gettimeofday" if title == "gtodbench" else title
    at = None if "points" in cell.parameters else cell.parameters.get("at")
    return f"{what} at {at}" if at else what


def probe_title(cell: CellRecord) -> str:
    """Return the documents' name of the cell's probe; a bpftrace one-liner is its own, shortened."""
    if "one_liner" in cell.parameters:
        return str(cell.parameters["one_liner"])
    if cell.probe in capability_names():
        probe, capability = capability_names()[cell.probe]
        return f"{probe}, {capability_list().capabilities[capability].title}"
    kind = probe_in_catalogue(cell.probe)
    return kind.title if kind else cell.probe


def heading(cell: CellRecord) -> str:
    """Return the heading of the cell's column: for the unprobed kernel its release."""
    if cell.probe == BASELINE:
        return f"linux-{cell.parameters.get('kernel_release', cell.kernel)}"
    return probe_title(cell)


def conditions(panel: Panel) -> str:
    """Return the line with the conditions that the panel's cells share."""
    first = panel.first
    table = f"{first.table}: " if first.table else ""
    at = None if "points" in first.parameters else first.parameters.get("at")
    what = f"{benchmark_title(first)} at {at}, " if at else ""
    indication = f"; {INDICATION}" if panel.emulated else ""
    image, channel = first.parameters.get("image"), first.parameters.get("channel")
    modules = first.parameters.get("kernel_modules")
    named = (("image", image), ("channel", channel), ("with its modules", modules))
    where = "".join(f"{name} {value}, " for name, value in named if value)
    return (
        f"{table}{first.cpu}, {processors(first)}, kernel {panel.kernel}, {where}handler {first.handler}, {what}"
        f"{first.metric} in {first.unit}{indication}"
    )


@dataclass(frozen=True)
class Outcomes:
    """What the calls of a table returned, in sentences; ``failing`` are those of cells with calls that failed."""

    failing: Sequence[str]
    others: Sequence[str]


def outcomes(cells: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> Outcomes:
    """Return the outcome of each system call of the valid cells: ``close(-1): always EBADF``.

    Of a user's function, that of its system calls: ``mine.c: ioctl always ENOTTY; read always 1``.

    Where cells of one call differ in it, ``name`` says whose it is. Runs of earlier versions have no outcomes.
    """
    calls: dict[str, list[CellRecord]] = {}
    for cell in cells:
        if cell.status == "ok" and "outcome" in cell.parameters:
            calls.setdefault(_calls(cell), []).append(cell)
    sentences = {call: [f"{call}: {text}." for text in _outcomes(group, name)] for call, group in calls.items()}
    return Outcomes(
        failing=[text for call, texts in sentences.items() if _has_failed(calls[call]) for text in texts],
        others=[text for call, texts in sentences.items() if not _has_failed(calls[call]) for text in texts],
    )


def _calls(cell: CellRecord) -> str:
    if "call" not in cell.parameters:
        return benchmark_title(cell)
    arguments = str(cell.parameters.get("arguments", "[...]"))
    return f"{cell.parameters['call']}({arguments.strip('[]')})"


def _has_failed(group: Sequence[CellRecord]) -> bool:
    return any(cell.parameters.get("result_failed") for cell in group)


def _outcomes(group: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> Sequence[str]:
    by_text: dict[str, list[CellRecord]] = {}
    for cell in group:
        by_text.setdefault(str(cell.parameters["outcome"]), []).append(cell)
    if len(by_text) == 1:
        return list(by_text)
    if not _has_failed(group):
        return ["always success, with different results"]  # process numbers, addresses
    return [f"{text} ({', '.join(dict.fromkeys(map(name, those)))})" for text, those in by_text.items()]


def comparison_meaning(panel: Panel) -> str:
    """Return the sentences on the panel's unit where published figures, in nanoseconds, stand beside."""
    meaning = unit_meaning(panel)
    return f"{meaning} {_TWO_UNITS}" if panel.first.clock == "instructions" else meaning
