# SPDX-License-Identifier: GPL-2.0-only
"""One boot of an unattended guest that registers, enables and hits many probes: it measures all of the boot's cells."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.kernel_config import MAINLINE_HASH_BITS
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.unattended import with_work
from orchestrator.benchmarks.scaling.figures import ScalingFigures
from orchestrator.benchmarks.scaling.profiled_steps import StepsProfile, profiled_steps
from orchestrator.benchmarks.scaling.rows import scaling_benchmark
from orchestrator.benchmarks.scaling.sites import functions
from orchestrator.benchmarks.scaling.task import ScalingCell
from orchestrator.benchmarks.scaling.work import scaling_work
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import EvidenceError
from orchestrator.guest.rest import at_rest
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX, Symbols
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.results.statistics import mean
from orchestrator.results.validity import valid_result
from orchestrator.run.boot import Session
from orchestrator.run.guest_checks import CLOCKSOURCE
from orchestrator.run.kernel_functions import kernel_functions
from orchestrator.run.record import identity
from orchestrator.run.unattended_guest import Ending, Work, close, output_of, worked
from orchestrator.run.unattended_profile import WorkCounts
from orchestrator.steps import step

_CACHE = "kpcache"
"""The per-CPU object of images/patches/kprobe-cache.patch."""


@dataclass(frozen=True)
class _Done:
    """The work's figures, what it has left, and facts about the kernel."""

    figures: ScalingFigures
    ending: Ending
    kernel: Mapping[str, str | int | bool]
    profiles: Mapping[str, StepsProfile]


def measure_rows(session: Session, cells: Sequence[ScalingCell]) -> Generator[CellRecord, None, None]:
    """The records of all rows of one size. Raises EvidenceError, GuestError, UnsupportedError for all of them."""
    for cell in cells:
        session.begin(cell)
    done = _work(session, cells)
    records = [_record(cell, done, session.setup(cell).notes) for cell in cells]
    yield from records


def _work(session: Session, cells: Sequence[ScalingCell]) -> _Done:
    cell = cells[0]
    task, benchmark, artifacts = cell.task, scaling_benchmark(cell.benchmark), session.artifacts
    assert benchmark is not None
    module, kernel = session.setup(cell).setup, artifacts.kernel
    lists = kernel_functions(session.context, kernel, artifacts.machine, session.watch)
    work = scaling_work(benchmark.script, lists, kernel.spec.arch, task.size, task.seed)
    files = {f"{module.name}.ko": module.file.read_bytes(), **work.files}
    # With ftrace the time to enable a probe grows with their number: a rehearsal would double a long boot.
    rehearse = kernel.config.get("CONFIG_KPROBES_ON_FTRACE") != "y"
    settings = {"probes": task.size, "seed": task.seed, "rehearse": int(rehearse)}
    image = with_work(artifacts.machine.initramfs, benchmark.script, settings, files)

    def write(file: Path) -> None:
        file.write_bytes(image)

    with worked(session, Work(write, f"{task.size} probes", cell.time_limit)) as worker:
        guest = worker.guest
        if functions(guest.get(KALLSYMS, largest=KALLSYMS_MAX)) != functions(lists.symbols):
            raise EvidenceError("the guest's kernel has its functions elsewhere than in the boot that listed them")
        figures = work.read(output_of(guest), task.size)
        counts = None if guest.machine.counter is None else WorkCounts.of(guest, module)
        profiles = {} if counts is None else _profiles(session, cells, counts, figures)
        ending = close(worker)
    facts = _kernel_facts(kernel)
    cache = Symbols(lists.symbols).object_size(_CACHE) if facts["kprobe_cache"] else None
    if cache is not None:
        facts["cache_bytes"] = cache
    return _Done(figures, ending, facts, profiles)


def _profiles(
    session: Session, cells: Sequence[ScalingCell], counts: WorkCounts, figures: ScalingFigures
) -> Mapping[str, StepsProfile]:
    """The profiles of the cells that are to have one, by row; each is of the steps that the row's figures are of."""
    found = {}
    with at_rest(counts.guest):
        for cell in cells:
            file, steps = session.profile_file(cell), figures.marked.get(_row(cell))
            if file is not None and steps is not None:
                with step(f"profile {cell.id}"):
                    found[_row(cell)] = profiled_steps(counts, steps, cell.id, file)
    return found


def _row(cell: ScalingCell) -> str:
    """The row's name within its benchmark."""
    return BASELINE if cell.task.row == BASELINE else cell.task.row.partition(".")[2]


def _record(cell: ScalingCell, done: _Done, notes: tuple[str, ...]) -> CellRecord:
    figures = done.figures
    row = _row(cell)
    samples, proof, baseline = figures.samples[row], figures.proof, mean(figures.samples[BASELINE])
    compared = row == BASELINE or row in figures.compared
    overhead = mean(samples) - baseline if compared else None
    live = proof.original if row == BASELINE else proof.live
    profiled = done.profiles.get(row)
    with valid_result():
        return CellRecord(
            **identity(cell),
            parameters={
                **cell.parameters,
                **done.kernel,
                **figures.facts,
                **figures.row_facts.get(row, {}),
                **({} if profiled is None else profiled.misses),
            },
            status="ok",
            notes=notes,
            samples=samples,
            value=mean(samples),
            overhead=overhead,
            interval=None if overhead is None else (overhead, overhead),
            evidence=Evidence(
                mechanism="none" if row == BASELINE else proof.mechanism,
                probe_bytes=live,
                hits=0 if row == BASELINE else proof.hits,
                int3=None,
                calls=proof.calls,
                restored=True,
                clocksource=CLOCKSOURCE,
                original_bytes=proof.original,
                address=f"{proof.address:#x}",
                symbol=proof.symbol,
                flag="",
                others=proof.others,
                taint=done.ending.taint,
                batches=len(samples),
                disturbed=0,
            ),
            text=done.ending.text,
            profile=None if profiled is None else profiled.proof,
        )


def _kernel_facts(kernel: Kernel) -> dict[str, str | int | bool]:
    """The kernel's data structures that find a kprobe."""
    config = kernel.config
    bits = config.get("CONFIG_KPROBE_HASH_BITS", MAINLINE_HASH_BITS)
    return {
        "kernel_release": kernel.release,
        "hash_bits": int(bits) if re.fullmatch(r"\d{1,2}", bits) else 0,
        "kprobe_cache": config.get("CONFIG_KPROBE_CACHE") == "y",
    }
