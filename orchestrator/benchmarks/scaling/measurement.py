# SPDX-License-Identifier: GPL-2.0-only
"""One boot whose guest does all of its work by itself: all of its cells come out of one piece of work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernel_config import MAINLINE_HASH_BITS
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.unattended import with_work
from orchestrator.benchmarks.scaling.figures import MassFigures
from orchestrator.benchmarks.scaling.rows import mass_benchmark
from orchestrator.benchmarks.scaling.sites import functions
from orchestrator.benchmarks.scaling.work import mass_work
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import BuildError, EvidenceError, HostError, LabError, UnsupportedError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.plan import Boot
from orchestrator.probes.symbols import Symbols
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.results.statistics import mean
from orchestrator.run.boot_artifacts import BootArtifacts, Target
from orchestrator.run.coordinator import Coordinator
from orchestrator.run.journal import RunJournal
from orchestrator.run.kernel_functions import kernel_functions
from orchestrator.run.outcome import identity, without_number
from orchestrator.run.postconditions import valid_result
from orchestrator.run.ready_guest import CLOCKSOURCE
from orchestrator.run.unattended_guest import UnattendedGuest, close, output_of

_CACHE = "kpcache"
"""The per-CPU object of images/patches/kprobe-cache.patch."""


@dataclass
class MassWorker:
    """Does the work of a boot and records ``cells``; ``name`` is what its guest's logs begin with."""

    context: BuildContext
    coordinator: Coordinator
    journal: RunJournal
    boot: Boot
    cells: Sequence[Cell]
    artifacts: BootArtifacts
    name: str

    def measure(self) -> None:
        """Give every cell an outcome. Raises HostError and UsageError, which end runs."""
        possible = []
        for cell in self.cells:
            target = self.artifacts.targets[cell.id]
            if isinstance(target, str):
                self.journal.end(without_number(self.artifacts, cell, "unsupported", target))
            else:
                possible.append(cell)
        if not possible:
            return
        for cell in possible:
            self.journal.begin(cell)
        try:
            done = self._work(possible[0])
            records = [self._record(cell, done) for cell in possible]
        except UnsupportedError as error:
            records = [without_number(self.artifacts, cell, "unsupported", str(error)) for cell in possible]
        except LabError as error:
            if isinstance(error, HostError | UsageError):
                raise
            records = [without_number(self.artifacts, cell, "failed", str(error)) for cell in possible]
        for record in records:
            self.journal.end(record)

    def _work(self, cell: Cell) -> _Done:
        benchmark, target = mass_benchmark(cell.benchmark), self.artifacts.targets[cell.id]
        assert benchmark is not None
        assert isinstance(target, Target)
        assert cell.size is not None
        if isinstance(target.module, BuildError):
            raise target.module
        assert isinstance(target.module, Module)
        context = replace(self.context, say=self.journal.say)  # whoever is told, is told at the coordinator
        lists = kernel_functions(context, self.artifacts.kernel, self.artifacts.machine, self.coordinator.watch)
        work = mass_work(benchmark.script, lists, self.artifacts.kernel.spec.arch, cell.size, cell.seed)
        files = {f"{target.module.name}.ko": target.module.file.read_bytes(), **work.files}
        # By the function tracer, enabling takes the longer the more there are: a rehearsal would take twice as long.
        rehearse = self.artifacts.kernel.config.get("CONFIG_KPROBES_ON_FTRACE") != "y"
        settings = {"probes": cell.size, "seed": cell.seed, "rehearse": int(rehearse)}
        image = with_work(self.artifacts.machine.initramfs, benchmark.script, settings, files)
        place = UnattendedGuest(self.coordinator, self.journal, self.boot, self.artifacts, self.name)
        what = f"{cell.size} probes"
        with place.worked(self.artifacts.machine, lambda file: _write(file, image), what, cell.time_limit) as guest:
            if functions(guest.get("/proc/kallsyms")) != functions(lists.symbols):
                raise EvidenceError("the guest's kernel has its functions elsewhere than it said before")
            output, taint = output_of(guest), close(guest)
        facts = _kernel_facts(self.artifacts)
        cache = Symbols(lists.symbols).object_size(_CACHE) if facts["kprobe_cache"] else None
        if cache is not None:
            facts["cache_bytes"] = cache
        return _Done(work.read(output, cell.size), taint, facts)

    def _record(self, cell: Cell, done: _Done) -> CellRecord:
        figures = done.figures
        row = BASELINE if cell.probe == BASELINE else cell.probe.partition(".")[2]
        samples, proof, baseline = figures.samples[row], figures.proof, mean(figures.samples[BASELINE])
        target = self.artifacts.targets[cell.id]
        assert isinstance(target, Target)
        compared = row == BASELINE or row in figures.compared
        overhead = mean(samples) - baseline if compared else None
        live = proof.original if row == BASELINE else proof.live
        parameters = {**done.kernel, **figures.facts, **figures.row_facts.get(row, {})}
        fields = identity(self.artifacts, cell)
        told = fields.pop("parameters")
        assert isinstance(told, dict)
        with valid_result():
            return CellRecord(
                **fields,
                parameters={**told, **parameters},
                status="ok",
                notes=target.notes,
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
                    taint=done.taint,
                    batches=len(samples),
                    disturbed=0,
                ),
            )


def _kernel_facts(artifacts: BootArtifacts) -> dict[str, str | int | bool]:
    """What the kernel finds its kprobes by."""
    config = artifacts.kernel.config
    bits = config.get("CONFIG_KPROBE_HASH_BITS", MAINLINE_HASH_BITS)
    return {
        "kernel_release": artifacts.kernel.release,
        "hash_bits": int(bits) if re.fullmatch(r"\d{1,2}", bits) else 0,
        "kprobe_cache": config.get("CONFIG_KPROBE_CACHE") == "y",
    }


@dataclass(frozen=True)
class _Done:
    """What the work came to, the kernel's taint mask after it, and what is known of the kernel."""

    figures: MassFigures
    taint: int
    kernel: Mapping[str, str | int | bool]


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)
