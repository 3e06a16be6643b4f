# SPDX-License-Identifier: GPL-2.0-only
"""One boot whose guest does all of its work by itself: all of its cells come out of one piece of work."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.artifacts.kernel_config import MAINLINE_HASH_BITS
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.sealed import OUTPUT, STATUS, with_work
from orchestrator.artifacts.workshop import Workshop
from orchestrator.benchmarks.mass_figures import MassFigures
from orchestrator.catalog.kpcache import mass_benchmark
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import BuildError, EvidenceError, GuestError, HostError, LabError, UnsupportedError, UsageError
from orchestrator.experiment.bench import CLOCKSOURCE, check_identity
from orchestrator.experiment.closing import check_clocksource, read_taint, valid_result
from orchestrator.experiment.desk import Desk
from orchestrator.experiment.mass_work import mass_work
from orchestrator.experiment.outcome import identity, without_number
from orchestrator.experiment.plan import Boot, Cell
from orchestrator.experiment.run_book import RunBook
from orchestrator.experiment.supplies import Supplies, Target
from orchestrator.experiment.survey import survey
from orchestrator.guest.guest import Guest
from orchestrator.probes.mass_sites import functions
from orchestrator.probes.symbols import Symbols
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.results.faults import storage_faults
from orchestrator.results.statistics import mean

_PROGRESS = "lab: "
"""What a line of the console begins with where the work says how far it has got, behind the kernel's time stamp."""
_SAYING_INTERVAL = 10.0
_CACHE = "kpcache"
"""The per-CPU object of images/patches/kprobe-cache.patch."""


@dataclass
class SealedWorker:
    """Does the work of a boot and records ``cells``; ``name`` is what its guest's logs begin with."""

    workshop: Workshop
    desk: Desk
    book: RunBook
    boot: Boot
    cells: Sequence[Cell]
    supplies: Supplies
    name: str

    def measure(self) -> None:
        """Give every cell an outcome. Raises HostError and UsageError, which end runs."""
        possible = []
        for cell in self.cells:
            target = self.supplies.targets[cell.id]
            if isinstance(target, str):
                self.book.end(without_number(self.supplies, cell, "unsupported", target))
            else:
                possible.append(cell)
        if not possible:
            return
        for cell in possible:
            self.book.begin(cell)
        try:
            done = self._work(possible[0])
            records = [self._record(cell, done) for cell in possible]
        except UnsupportedError as error:
            records = [without_number(self.supplies, cell, "unsupported", str(error)) for cell in possible]
        except LabError as error:
            if isinstance(error, HostError | UsageError):
                raise
            records = [without_number(self.supplies, cell, "failed", str(error)) for cell in possible]
        for record in records:
            self.book.end(record)

    def _work(self, cell: Cell) -> _Done:
        benchmark, target = mass_benchmark(cell.benchmark), self.supplies.targets[cell.id]
        assert benchmark is not None
        assert isinstance(target, Target)
        assert cell.size is not None
        if isinstance(target.module, BuildError):
            raise target.module
        assert isinstance(target.module, Module)
        workshop = replace(self.workshop, say=self.book.say)  # whoever is told, is told at the desk
        lists = survey(workshop, self.supplies.kernel, self.supplies.machine, self.desk.watch)
        work = mass_work(benchmark.script, lists, self.supplies.kernel.spec.arch, cell.size, cell.seed)
        files = {f"{target.module.name}.ko": target.module.file.read_bytes(), **work.files}
        # By the function tracer, enabling takes the longer the more there are: a rehearsal would take twice as long.
        rehearse = self.supplies.kernel.config.get("CONFIG_KPROBES_ON_FTRACE") != "y"
        settings = {"probes": cell.size, "seed": cell.seed, "rehearse": int(rehearse)}
        image = with_work(self.supplies.machine.initramfs, benchmark.script, settings, files)
        output, taint = self._run(cell, image, lists.symbols)
        facts = _kernel_facts(self.supplies)
        cache = Symbols(lists.symbols).object_size(_CACHE) if facts["kprobe_cache"] else None
        if cache is not None:
            facts["cache_bytes"] = cache
        return _Done(work.read(output, cell.size), taint, facts)

    def _run(self, cell: Cell, initramfs: bytes, symbols: bytes) -> tuple[str, int]:
        """Boot a guest that does the work; return what that printed, and the kernel's taint after it."""
        directory = self.book.entry.directory
        name, _ = self.book.guest_name(self.name, self.boot, 1)
        file = directory / f"{name}.initramfs"
        progress = _Progress(self.book.say, f"{self.supplies.kernel.spec.name}, {cell.size} probes")
        try:
            with storage_faults(directory):
                file.write_bytes(initramfs)
            guest = Guest(replace(self.supplies.machine, initramfs=file), directory, name)
            self.desk.watch(guest)
            self.book.say(f"booting {self.supplies.kernel.spec.name} on {self.boot.cpu} with {cell.size} probes to do")
            try:
                guest.boot(cell.time_limit, progress.line)
                self.book.booted(name, self.supplies, guest.command_line)
                return self._collect(guest, symbols)
            finally:
                guest.kill()
        except GuestError as error:
            raise GuestError(
                f"{error.what}; the work had got to: {progress.latest or 'its beginning'}",
                where=error.where,
                detail=error.detail,
                hint=error.hint or f"if it was only slow: --set time_limit={2 * cell.time_limit}",
            ) from None
        finally:
            file.unlink(missing_ok=True)

    def _collect(self, guest: Guest, symbols: bytes) -> tuple[str, int]:
        check_identity(guest, self.supplies.machine.cpu)
        if functions(guest.get("/proc/kallsyms")) != functions(symbols):
            raise EvidenceError("the guest's kernel has its functions elsewhere than it said before")
        output = guest.get(OUTPUT).decode("ascii", errors="replace")
        status = guest.get(STATUS).decode("ascii", errors="replace").strip()
        guest.check_console()
        if status != "0":
            raise EvidenceError("the work in the guest did not end well", detail=output.splitlines()[-10:])
        check_clocksource(guest)
        return output, read_taint(guest)

    def _record(self, cell: Cell, done: _Done) -> CellRecord:
        figures = done.figures
        row = BASELINE if cell.probe == BASELINE else cell.probe.partition(".")[2]
        samples, proof, baseline = figures.samples[row], figures.proof, mean(figures.samples[BASELINE])
        target = self.supplies.targets[cell.id]
        assert isinstance(target, Target)
        compared = row == BASELINE or row in figures.compared
        overhead = mean(samples) - baseline if compared else None
        live = proof.original if row == BASELINE else proof.live
        parameters = {**done.kernel, **figures.facts, **figures.row_facts.get(row, {})}
        fields = identity(self.supplies, cell)
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


def _kernel_facts(supplies: Supplies) -> dict[str, str | int | bool]:
    """What the kernel finds its kprobes by."""
    config = supplies.kernel.config
    bits = config.get("CONFIG_KPROBE_HASH_BITS", MAINLINE_HASH_BITS)
    return {
        "kernel_release": supplies.kernel.release,
        "hash_bits": int(bits) if re.fullmatch(r"\d{1,2}", bits) else 0,
        "kprobe_cache": config.get("CONFIG_KPROBE_CACHE") == "y",
    }


@dataclass(frozen=True)
class _Done:
    """What the work came to, the kernel's taint mask after it, and what is known of the kernel."""

    figures: MassFigures
    taint: int
    kernel: Mapping[str, str | int | bool]


class _Progress:
    """Hears the console: what the work says of itself is passed on now and then."""

    def __init__(self, say: Callable[[str], None], what: str) -> None:
        self._say = say
        self._what = what
        self._said = time.monotonic()
        self.latest = ""

    def line(self, text: str) -> None:
        _, mark, words = text.partition(_PROGRESS)
        if not mark:
            return
        self.latest = words[:200]
        if time.monotonic() - self._said > _SAYING_INTERVAL:
            self._said = time.monotonic()
            self._say(f"{self._what}: {self.latest}")
