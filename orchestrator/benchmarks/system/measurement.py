# SPDX-License-Identifier: GPL-2.0-only
"""Prepare and measure one cell of a whole-system workload: an unattended guest, a module beside the work, a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.arch import Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.module_source import render
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.system import system_parameters
from orchestrator.benchmarks.system.work import (
    REPORT,
    REPORT_AFTER,
    SystemCell,
    SystemFigures,
    SystemInputs,
    system_inputs,
    system_work,
    warm_reports,
)
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import BASELINE, RecorderKind, probe_kind
from orchestrator.errors import EvidenceError, UnsupportedError, UsageError
from orchestrator.guest.guest import Guest
from orchestrator.guest.pausing import paused
from orchestrator.probes import recorder
from orchestrator.probes.marker_code import marker_code
from orchestrator.probes.recorder import RecorderReport, Site, parse_report
from orchestrator.probes.symbols import ModuleMemory
from orchestrator.profile.counted.counter import Counter, stored
from orchestrator.profile.counted.counts import Code, Region
from orchestrator.profile.counted.places import Places
from orchestrator.results import parameters
from orchestrator.results.contract import CellRecord, ProfileEvidence, WorkEvidence, valid_result
from orchestrator.results.statistics import median
from orchestrator.run.benchmark_kind import BootArtifacts, Prepared, Ready, Refused, Session, failed
from orchestrator.run.cell_records import identity, kernel_facts
from orchestrator.run.guest_checks import CLOCKSOURCE
from orchestrator.run.unattended import collect_proof, output_of, unattended_guest
from orchestrator.run.user_modules import (
    OwnModule,
    compiler_note,
    module_outcomes,
    own_module,
    parameters_note,
    smp_note,
    user_sources,
    with_parameters,
)
from orchestrator.steps import step


@dataclass(frozen=True)
class Instrumentation:
    """Where the instrumentation's own instructions are.

    They are the code of the kernel's ``markers``, the ``module`` beside the work with its hooks, handlers and detours,
    code that is generated while the guest runs (slots in which kprobes execute a copied instruction, detours of
    optimised kprobes), and the int3 or the jump at each of the ``sites``. The kernel's trap handling is not included.
    """

    places: Places
    markers: Sequence[range]
    module: ModuleMemory | None
    sites: Sequence[Site]
    _known: dict[int, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def executed(self, region: Region) -> int:
        # At the probe points while it records: an int3 is one byte, a jump is five.
        armed = {Code(site.address, site.live[: 1 if site.live[:1] == b"\xcc" else 5].hex()) for site in self.sites}
        return sum(
            counts.executed for code, counts in region.counts.items() if self._is_own(code.address) or code in armed
        )

    def _is_own(self, address: int) -> bool:
        if address not in self._known:
            in_module = self.module is not None and self.module.start <= address < self.module.end
            made = address >= self.places.kernel_start and self.places.owner(address).place == "generated"
            self._known[address] = in_module or made or any(address in marker for marker in self.markers)
        return self._known[address]


_WITH_MARKERS: Mapping[Arch, str] = {"i386": "lab-i386-up-markers", "x86_64": "lab-x86_64-smp-markers"}


_NEEDED = ("CONFIG_BLK_DEV_LOOP", "CONFIG_SQUASHFS", "CONFIG_SQUASHFS_LZ4", "CONFIG_TMPFS")


def unsupported_reason(kernel: Kernel, cell: SystemCell) -> str | None:
    """Why this kernel does not support the cell's workload, or the module beside it; None where it does."""
    kind = cell.task.recorder
    if cell.smp > 1 and not kernel.smp:
        return f"this kernel is for one CPU, and the machine has {cell.smp}"
    sentence = None if kind is None else recorder.unsupported_reason(kernel, kind)
    if sentence is not None and kind is not None and kind.module == "marker":
        base, at, version = kernel.spec.of_catalogue.partition("@")
        marked = f"{base}-markers{at}{version}"
        marked_kernel = marked if marked in kernels() else _WITH_MARKERS[kernel.spec.arch]
        return f"{sentence}: hooks are in kernels that have markers, such as {marked_kernel}"
    there = ("y", "m") if kernel.modules.is_dir() else ("y",)
    lacking = [option for option in _NEEDED if kernel.config.get(option) not in there]
    if sentence is None and lacking:
        return f"kernel '{kernel.spec.name}' cannot have a whole system in memory: it lacks {', '.join(lacking)}"
    return sentence


def passed_notes(kernel: Kernel, cell: SystemCell) -> tuple[str, ...]:
    """A note on each extra cost of a hit of the recorder's kprobes, besides their handler.

    Only tables of calls measure these costs; in a whole system nothing separates them.
    """
    kind = cell.task.recorder
    if kind is None or kind.mechanism != "int3":
        return ()
    passed = ["the post-handler that keeps it single-stepped"] if kind.module == "kprobe" else []
    if kernel.config.get("CONFIG_OPTPROBES") == "y":
        passed.append("the aggregator that the kernel puts before a kprobe that could become a jump (OPTPROBES)")
    return tuple(f"a hit passes {what}; a table of calls measures what that costs" for what in passed)


def read_recorded(guest: Guest, kind: RecorderKind, warm: int) -> tuple[RecorderReport, float]:
    """The recorder's report after all runs, and the events of one of ``warm`` runs, from a guest that has finished.

    Raises EvidenceError where the recorder was not of this kind, missed handlers, or did not restore the kernel's code.
    """
    during, after = parse_report(guest.get(REPORT)), parse_report(guest.get(REPORT_AFTER))
    check_armed(kind, during)
    check_missed(kind, after)
    if after.recording or not after.restored:
        wrong = [f"{site.symbol} at {site.address:#x}" for site in after.sites if site.live != site.original]
        raise EvidenceError("the kernel's original bytes are not back after recording", detail=wrong[:10])
    runs = []
    for before, behind in ([parse_report(guest.get(file)) for file in files] for files in warm_reports(warm)):
        for report in (before, behind):
            check_armed(kind, report)
        counts = {event.event: event.recorded for event in behind.events}
        fewer = [event.event for event in before.events if counts.get(event.event, -1) < event.recorded]
        if fewer or len(counts) != len(before.events):
            raise EvidenceError("the recorder's counts went back during a run", detail=fewer)
        runs.append(float(sum(counts.values()) - sum(event.recorded for event in before.events)))
    return after, median(runs)


def check_armed(kind: RecorderKind, report: RecorderReport) -> None:
    """Raise EvidenceError unless a report is of a recorder of this kind while it records, with all places armed."""
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
    """Raise EvidenceError where the kernel skipped more handlers than is usual for this kind of recorder."""
    if report.missed > kind.missed * report.hits:
        missed = {event.event: event.missed for event in report.events if event.missed}
        raise EvidenceError(
            f"the kernel skipped the recorder's handler at {report.missed} of {report.hits} hits",
            detail=[f"{event}: {count}" for event, count in missed.items()],
        )


_MOST_AROUND = 1_000_000
"""Most ticks of the TSC between the marks and the readings of the clock: two system calls, or a timer tick in one."""


def _profiled_runs(
    session: Session, cell: SystemCell, guest: Guest, figures: SystemFigures
) -> tuple[ProfileEvidence | None, Sequence[float]]:
    """Write the cell's profile, if it is to have one; the instrumentation's own instructions, by warm run.

    Raises EvidenceError where the count is incomplete.
    """
    file, kernel = session.profile_file(cell), session.artifacts.kernel
    if file is None:
        return None, ()
    counts = Counter.after_work(guest, session.setup(cell).setup.module)
    sites = parse_report(guest.get(REPORT)).sites if cell.task.recorder is not None else ()
    for run in figures.warm:
        if not 0 <= run.ticks - run.real <= _MOST_AROUND:
            what = f"a run took {run.real:.0f} ns by one clock, and {run.ticks} ticks of the TSC around it"
            raise EvidenceError(what)
    # 80,000 instructions a run take the host as long as some runs take the guest.
    with step("profile the runs"), paused(guest):
        warm = counts.regions[1:]  # the first is the cold run's
        work = counts.work(warm, [run.ticks for run in figures.warm])
        markers = () if kernel.code is None else marker_code(kernel.code)
        instrumentation = Instrumentation(counts.places(), markers, counts.module_memory, sites)
        profile = counts.profile_work(work, cell.id, calls=len(work.regions), unit="run")
        proof = stored(profile, file, work)
        return proof, [float(instrumentation.executed(region)) for region in work.regions]


@dataclass(frozen=True)
class SystemSetup:
    """The inputs of a cell's work, and the module that is loaded beside it, if any."""

    inputs: SystemInputs
    module: Module | None


def prepare_cell(context: BuildContext, kernel: Kernel, cell: SystemCell) -> Prepared[SystemSetup]:
    """Prepare a cell's programs, and its module if it has one. Raises HostError without its image or source."""
    inputs, kind, own_kind = system_inputs(context, kernel, cell.task), cell.task.recorder, probe_kind(cell.task.probe)
    source: OwnModule | None = own_module(own_kind, {})
    if kind is not None:
        values = recorder.recorder_values(kind.module, kernel.spec.arch, cell.task.events or None, kernel.code)
        source = render(recorder.TEMPLATE, values)
    module_sources = {} if source is None else {cell.id: source}
    module = module_outcomes(context, kernel, module_sources).get(cell.id)
    if isinstance(module, Module) and own_kind.parameters:
        module = with_parameters(module, own_kind.parameters)
    if isinstance(module, Refused):
        return module
    if module is not None and module.needed:
        what = f"module {module.name} needs {module.needed[-1].name} of its folder, and one module is loaded"
        return failed(UsageError(what, hint=f"link both into one: {module.name}-y := ... in the Kbuild"))
    notes = (
        *smp_note(kernel, cell.smp),
        *compiler_note(kernel, module),
        *parameters_note(own_kind.parameters),
        *passed_notes(kernel, cell),
    )
    sources = user_sources(own_kind, source, cell.task.image)
    return Ready(SystemSetup(inputs, module), () if module is None else (module,), notes, inputs.keys, sources)


_MOST_IDLE = 0.01
"""Idle fraction of a run's time, interrupts apart, above which a note is added."""
_AA_BOOT_NOTE = "the baseline again, with other random numbers and its work begun at another phase of the timer's tick"


def measure_work(session: Session, cell: SystemCell) -> CellRecord:
    """The record of a cell's runs, not compared yet. Raises EvidenceError, GuestError, UnsupportedError."""
    session.begin(cell)
    task, kind, artifacts, prepared = cell.task, cell.task.recorder, session.artifacts, session.setup(cell)
    setup: SystemSetup = prepared.setup
    work = system_work(session.context, artifacts.kernel, task, setup.inputs, setup.module, session.watch)
    if artifacts.machine.memory_mib < work.memory_mib:
        what = f"this work needs {work.memory_mib} MiB of memory: files take twice their size while they are unpacked"
        raise UnsupportedError(what)
    what = f"{cell.benchmark} ({task.scope})" if task.scope else cell.benchmark
    with unattended_guest(session, work, what, cell.time_limit) as finished:
        guest = finished.guest
        figures = work.read(output_of(guest))
        recorded = read_recorded(guest, kind, task.warm) if kind else None
        profile, instrumentation = _profiled_runs(session, cell, guest, figures)
        ending = collect_proof(finished)
    notes = [*prepared.notes, *([_AA_BOOT_NOTE] if task.aa_boot else [])]
    idle = median([1 - (run.user + run.system) / run.real for run in figures.warm])
    if idle > _MOST_IDLE:
        skipped = ": this clock skips idle time, and counts it like instructions" if cell.clock != "wall" else ""
        notes.append(f"the workload was idle for {100 * idle:.1f} % of a run's time{skipped}")
    samples = tuple(run.real for run in figures.warm)
    is_baseline, report = not cell.compared_with, recorded[0] if recorded else None
    with valid_result():
        return CellRecord(
            **identity(cell),
            parameters={**cell.parameters, **_facts(artifacts, figures, recorded, instrumentation)},
            status="ok",
            notes=tuple(notes),
            samples=samples,
            value=median(samples),
            overhead=0.0 if is_baseline else None,
            interval=(0.0, 0.0) if is_baseline else None,
            work=WorkEvidence(
                mechanism=kind.mechanism if kind else "none" if task.probe == BASELINE else "module",
                runs=1 + len(figures.warm),
                done=figures.done,
                digest=figures.digest,
                restored=None if report is None else True,
                clocksource=CLOCKSOURCE,
                taint=ending.taint,
                places=len(report.sites) if report else 0,
                recorded=report.hits - report.missed if report else None,
                lost=report.missed if report else None,
                overwritten=report.overwritten if report else None,
            ),
            text=ending.text,
            profile=profile,
            reference=cell.published,
        )


def _facts(
    artifacts: BootArtifacts,
    figures: SystemFigures,
    recorded: tuple[RecorderReport, float] | None,
    instrumentation: Sequence[float],
) -> dict[str, str | int | float]:
    facts: dict[str, str | int | float] = {
        **kernel_facts(artifacts.kernel),
        parameters.ACCELERATOR: "kvm" if artifacts.machine.timing == "kvm" else "tcg",
        system_parameters.USER: median([run.user for run in figures.warm]),
        system_parameters.SYSTEM: median([run.system for run in figures.warm]),
        system_parameters.COLD: figures.cold.real,
        "cold_user": figures.cold.user,
        "cold_system": figures.cold.system,
        **figures.facts,
    }
    ticks = artifacts.kernel.config.get("CONFIG_HZ", "")
    if ticks.isdecimal():
        facts[system_parameters.TICKS_PER_SECOND] = int(ticks)
    if recorded is not None:
        report, in_a_run = recorded
        facts[system_parameters.RING_SLOTS] = report.slots
        facts |= {f"recorded_{event.event}": event.recorded for event in report.events}
        facts[system_parameters.EVENTS_A_RUN] = in_a_run
    if instrumentation:
        facts |= {
            system_parameters.INSTRUMENTATION: median(instrumentation),
            system_parameters.INSTRUMENTATION_LEAST: min(instrumentation),
            system_parameters.INSTRUMENTATION_MOST: max(instrumentation),
        }
    return facts
