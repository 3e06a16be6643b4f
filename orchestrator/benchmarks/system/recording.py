# SPDX-License-Identifier: GPL-2.0-only
"""The module loaded beside a whole-system workload: the lab's recorder of the standard events, or a user's module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import ModuleSource, render, render_own
from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.system.task import SystemCell
from orchestrator.benchmarks.system.work import REPORT, REPORT_AFTER, Beside, warm_reports
from orchestrator.catalog.kernels import Arch, kernels
from orchestrator.catalog.probes import BASELINE, probe_kind
from orchestrator.catalog.recorders import RecorderKind, recorder_kinds
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes import recorder
from orchestrator.probes.loading import insmod_word
from orchestrator.probes.recorder_report import RecorderReport, parse_report
from orchestrator.results.statistics import median

_WITH_MARKERS: Mapping[Arch, str] = {"i386": "lab-i386-up-markers", "x86_64": "lab-x86_64-smp-markers"}


@dataclass(frozen=True)
class Recorded:
    """The events of a recorder at ``places`` probe points: of all runs by event, and of a warm run.

    ``lost`` are hits whose handler did not run, ``overwritten`` events that newer ones replaced in a CPU's ring of
    ``slots`` events.
    """

    places: int
    by_event: Mapping[str, int]
    lost: int
    overwritten: int
    slots: int
    in_a_run: float

    @property
    def events(self) -> int:
        """Events recorded, of all kinds."""
        return sum(self.by_event.values())


def recorder_of(cell: SystemCell) -> RecorderKind | None:
    """How the cell's events are recorded; None where none are."""
    return recorder_kinds().get(cell.task.probe)


def unsupported_reason(kernel: Kernel, cell: SystemCell) -> str | None:
    """Why this kernel does not support the module beside the cell's workload; None where it does."""
    kind = recorder_of(cell)
    if cell.smp > 1 and not kernel.smp:
        return f"this kernel is for one CPU, and the machine has {cell.smp}"
    sentence = None if kind is None else recorder.unsupported_reason(kernel, kind.module)
    if sentence is None or kind is None or kind.module != "marker":
        return sentence
    base, at, version = kernel.spec.name.partition("@")
    own = f"{base}-markers{at}{version}"
    other = own if own in kernels() else _WITH_MARKERS[kernel.spec.arch]
    return f"{sentence}: hooks are in kernels that have markers, such as {other}"


def module_source(kernel: Kernel, cell: SystemCell) -> ModuleSource | Path | None:
    """The module that is loaded beside the cell's workload: as source, a user's .ko file, or none."""
    kind = recorder_of(cell)
    if kind is not None:
        values = recorder.recorder_values(kind.module, kernel.spec.arch, cell.task.events or None, kernel.code)
        return render(recorder.TEMPLATE, values)
    own = None if cell.task.probe == BASELINE else probe_kind(cell.task.probe).file
    return own if own is None or own.suffix == ".ko" else render_own(own, {})


def passed_notes(kernel: Kernel, cell: SystemCell) -> tuple[str, ...]:
    """A note for the report on what a hit of the recorder's kprobes passes besides their handler.

    The sizes are measured in tables of calls; among a whole system's instructions nothing separates them.
    """
    kind = recorder_of(cell)
    if kind is None or kind.mechanism != "int3":
        return ()
    passed = ["the post-handler that keeps it single-stepped"] if kind.module == "kprobe" else []
    if kernel.config.get("CONFIG_OPTPROBES") == "y":
        passed.append("the aggregator that the kernel puts before a kprobe that could become a jump (OPTPROBES)")
    return tuple(f"a hit passes {what}; a table of calls measures what that costs" for what in passed)


def beside(cell: SystemCell, module: Module | None) -> Beside | None:
    """How the module beside the cell's workload is loaded and used; None without one."""
    if module is None:
        return None
    kind = recorder_of(cell)
    if kind is None:
        words = tuple(insmod_word(name, value) for name, value in module.parameters.items())
        return Beside(module.file, module.name, parameters=words)
    return Beside(module.file, module.name, recorder.REPORT, recorder.STOP, kind.optimisation)


def read_recorded(guest: Guest, kind: RecorderKind, warm: int) -> Recorded:
    """The recorder's reports of all runs, of which ``warm`` were warm, from a guest that has finished its work.

    Raises EvidenceError where the recorder was not of this kind, left handlers out, or did not restore the kernel's
    code.
    """
    during, after = parse_report(guest.get(REPORT)), parse_report(guest.get(REPORT_AFTER))
    check_armed(kind, during)
    check_missed(kind, after)
    if after.recording or not after.restored:
        wrong = [f"{site.symbol} at {site.address:#x}" for site in after.sites if site.live != site.original]
        raise EvidenceError("the kernel's original bytes are not back after recording", detail=wrong[:10])
    runs = [_in_a_run(kind, guest, start, end) for start, end in warm_reports(warm)]
    return Recorded(
        places=len(after.sites),
        by_event={event.event: event.recorded for event in after.events},
        lost=after.missed,
        overwritten=after.overwritten,
        slots=after.slots,
        in_a_run=median([float(count) for count in runs]),
    )


def check_armed(kind: RecorderKind, report: RecorderReport) -> None:
    """Raise EvidenceError unless a report is of a recorder of this kind at work, with all of its places armed."""
    if report.mechanism != kind.module or not report.recording:
        state = "recording" if report.recording else "stopped"
        raise EvidenceError(f"the recorder was a {report.mechanism}, {state}, and not a {kind.module} that records")
    wrong = [
        f"{site.symbol} at {site.address:#x}: {site.live.hex()}"
        for site in report.sites
        if not site.live.hex().startswith(kind.live)
    ]
    if wrong:
        raise EvidenceError(f"places were not armed as {kind.mechanism} ({kind.live}) while it recorded", detail=wrong)


def check_missed(kind: RecorderKind, report: RecorderReport) -> None:
    """Raise EvidenceError where handlers were left out, more than this kind of recorder cannot help."""
    if report.missed > kind.missed * report.hits:
        missed = {event.event: event.missed for event in report.events if event.missed}
        raise EvidenceError(
            f"the kernel skipped the recorder's handler at {report.missed} of {report.hits} hits",
            detail=[f"{event}: {count}" for event, count in missed.items()],
        )


def _in_a_run(kind: RecorderKind, guest: Guest, start: str, end: str) -> int:
    """Events recorded between two reports, each of a recorder at work."""
    before, behind = parse_report(guest.get(start)), parse_report(guest.get(end))
    for report in (before, behind):
        check_armed(kind, report)
    counts = {event.event: event.recorded for event in behind.events}
    fewer = [event.event for event in before.events if counts.get(event.event, -1) < event.recorded]
    if fewer or len(counts) != len(before.events):
        raise EvidenceError("the recorder's counts went back during a run", detail=fewer)
    return _recorded(behind) - _recorded(before)


def _recorded(report: RecorderReport) -> int:
    return sum(event.recorded for event in report.events)
