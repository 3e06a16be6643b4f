# SPDX-License-Identifier: GPL-2.0-only
"""A guest that counts instructions, and cells' profiles from its counts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path

from orchestrator.arch import INT3
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.unattended_initramfs import FOLDER
from orchestrator.catalog.cpus import CpuCaches
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value
from orchestrator.guest.pausing import paused, resumed
from orchestrator.probes.module_functions import code_at
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX, MODULES, MODULES_MAX, ModuleMemory, Symbols
from orchestrator.profile.counted import cache_misses, call_order, counts, timed_samples, timed_work
from orchestrator.profile.counted.generated_code import SLOT, MadeCode, listed_code, made_at
from orchestrator.profile.counted.places import Places, UnlistedModule, places_of
from orchestrator.profile.stored.cell_profile import CellProfile, Unit
from orchestrator.profile.stored.profile_files import write_profile
from orchestrator.profile.stored.timeline import Timeline
from orchestrator.results.contract import ExecutedClasses, ProfileEvidence, valid_result

_MODULES, _SECTIONS = f"{FOLDER}/modules", f"{FOLDER}/sections"
"""In an unattended guest: where steps.sh records the module while it is loaded."""
_SECTIONS_MAX = 64 << 10
"""Bytes; a module has some forty sections."""
_PROGRAMS = "all programs"
_BEGIN_AGAIN = re.compile(r"asm_exc_(?!int3|debug|nmi|noist|machine_check|double_fault)\w+|__text_poke")
"""Entries of exceptions that restart an instruction (arch/x86/include/asm/idtentry.h). QEMU also restarts a store into
the page that the CPU executes: in a kernel, by what patches code (alternative.c)."""


@dataclass(frozen=True)
class Counter:
    """A guest whose QEMU has the counting plugin.

    ``symbols`` were read when the guest was ready, or had finished its work; ``module`` was loaded meanwhile. ``kept``
    is an unattended guest's record of its modules and of the sections of ``module``, which it has unloaded.
    """

    guest: Guest
    symbols: Symbols
    module: Module | None = None
    kept: tuple[bytes, bytes] | None = None

    @classmethod
    def after_work(cls, guest: Guest, module: Module | None) -> Counter:
        """Read everything that only an unattended guest knows; it may then be paused. Raises GuestError."""
        listing = guest.get(MODULES if module is None else _MODULES, largest=MODULES_MAX)
        sections = b"" if module is None else guest.get(_SECTIONS, largest=_SECTIONS_MAX)
        return cls(guest, Symbols.at_end(guest), module, (listing, sections))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Pause the guest while the host makes a profile, for 0.1 s, but not while it reads from the guest for it."""
        _ = self._own  # reads what has several files
        with paused(self.guest):
            yield

    def mark(self) -> int:
        """The place where the plugin writes next. Raises EvidenceError if this guest has none.

        What it has written before was read: it is cut off, since a guest may have many cells, and the file is bounded.
        """
        try:
            os.truncate(self.guest.counts_file, 0)
            return 0
        except OSError as error:
            why = f"QEMU counts no instructions here: {error.strerror}"
            raise EvidenceError(why, where=str(self.guest.counts_file)) from None

    @cached_property
    def regions(self) -> Sequence[counts.Region]:
        """All regions of the plugin, in order. Raises EvidenceError if it could not count everything."""
        return self.regions_since(0)

    def regions_since(self, mark: int) -> Sequence[counts.Region]:
        """The plugin's regions since the ``mark``, in order. Raises EvidenceError if it could not count everything."""
        return counts.read_regions(self.guest.counts_file, mark)

    def profile(self, mark: int, timed: timed_samples.Timed, *, cell: str, calls: int, program: str) -> CellProfile:
        """The profile of a sample of ``calls`` calls that a program made since the ``mark``, for a ``cell``.

        Raises EvidenceError unless the plugin counted what the clock did.
        """
        regions = self.regions_since(mark)
        sample = timed_samples.sample_of(regions, timed)
        missed = partial(cache_misses.cache_misses, regions, timed, sample)
        return self._profile(sample, cell, calls, "call", program, missed)

    def executed(self, mark: int) -> Mapping[int, int]:
        """How often instructions were executed in the last region since the ``mark``, by their addresses.

        The clock does not prove it: QEMU counts an instruction that faults twice. A function's first one never does.
        """
        return self.regions_since(mark)[-1].executed()

    def timeline(self, mark: int, timed: timed_samples.Timed, profile: CellProfile, program: str) -> Timeline:
        """The time line of one of the calls of a ``profile``, in a guest that keeps the order of blocks."""
        regions = self.regions_since(mark)
        blocks, places = call_order.middle_call(regions, timed), self.places(program)
        with valid_result():
            return Timeline(cell=profile.cell, spans=tuple(call_order.spans(blocks, regions[-1].counts, places)))

    @property
    def only_classes(self) -> bool:
        plugin = self.guest.machine.counter
        return plugin is not None and plugin.only_classes

    def classes(self, mark: int, timed: timed_samples.Timed, *, calls: int) -> ExecutedClasses:
        """The classes of instructions of a sample of ``calls`` calls, where the guest counts only these.

        Raises EvidenceError unless all samples executed the same.
        """
        classes = timed_samples.classes_of(counts.read_classes(self.guest.counts_file, mark), timed)
        batches, total = timed.samples[0]
        with valid_result():
            return ExecutedClasses(calls=calls, instructions=total - batches * timed.empty, classes=classes)

    def profile_rounds(self, mark: int, timed: Sequence[tuple[int, int]], *, cell: str, rounds: int) -> CellProfile:
        """The profile of ``rounds`` rounds of a loop of the module's, for a ``cell``.

        Since the ``mark`` they ran several times, each followed by twice as many: ``timed`` has the clock's readings of
        both. Raises EvidenceError unless the plugin counted the same, and each time the same instructions.
        """
        sample = timed_samples.rounds_of(self.regions_since(mark), timed)
        return self._profile(sample, cell, rounds, "round", "user space")

    def work(self, regions: Sequence[counts.Region], ticks: Sequence[int]) -> timed_work.CountedWork:
        """Work in some of the regions, each proved by its ticks of the clock. Raises EvidenceError."""
        return timed_work.counted_work(regions, ticks, frozenset(self.symbols.functions_like(_BEGIN_AGAIN).values()))

    def profile_work(
        self, work: timed_work.CountedWork, cell: str, *, calls: int, unit: Unit, again: counts.Region | None = None
    ) -> CellProfile:
        """The profile of a cell that did some work ``calls`` times, and its misses in models of caches.

        ``again`` is the same work repeated. Raises EvidenceError unless the models have seen all of it.
        """
        missed = partial(cache_misses.work_misses, work.regions, work.regions[-1] if again is None else again)
        return self._profile(work.together, cell, calls, unit, _PROGRAMS, missed)

    def _profile(
        self,
        counted: counts.Region,
        cell: str,
        calls: int,
        unit: Unit,
        program: str,
        missed: Callable[[CpuCaches], cache_misses.CacheMisses] | None = None,
    ) -> CellProfile:
        plugin, places = self.guest.machine.counter, self._places_of(counted, program)
        assert plugin is not None
        with valid_result():
            misses = cache_misses.CacheMisses() if plugin.caches is None or missed is None else missed(plugin.caches)
            return CellProfile(
                cell=cell,
                arch=places.arch,
                calls=calls,
                unit=unit,
                has_details=plugin.is_detailed,
                symbols=places.symbols(counted.counts, misses.by_code),
                stacks=places.stacks(counted.stacks, None if plugin.landmarks else counted.counts),
                caches=misses.caches,
                names=places.names(counted.counts),
            )

    def _places_of(self, counted: counts.Region, program: str) -> Places:
        """As ``places``, without reading the kernel's list again for what is in the slots that a profile has found."""
        places = self.places(program)
        made = frozenset(code for code in counted.counts if places.is_made(code.address))
        # Another probe of the same point has the same instructions in the same slot. No other code consists of the
        # probed instruction and of what ends it, a breakpoint or a jump back.
        if made <= self.guest.known_slots:
            return replace(places, made_at=lambda _: MadeCode(SLOT))
        self.guest.known_slots |= {code for code in made if places.made_at(code.address).name == SLOT}
        return places

    def places(self, program: str = _PROGRAMS) -> Places:
        """The owners of the guest's code while it was counted. Raises EvidenceError if the guest does not list it."""
        places = places_of(self.symbols, self._modules.values(), self._own, program)
        if self.kept is not None:
            return places
        # Read again, and only if there is such code: it comes and goes.
        made = cache(self._listed_code)
        return replace(places, made_at=lambda address: made_at(made(), address))

    def _listed_code(self) -> Sequence[tuple[int, str]]:
        with resumed(self.guest):
            listing = self.guest.get(KALLSYMS, largest=KALLSYMS_MAX)
        return listed_code(listing)

    @property
    def module_memory(self) -> ModuleMemory | None:
        return None if self._own is None else ModuleMemory(self._own.start, self._own.code.end)

    @cached_property
    def _modules(self) -> Mapping[str, ModuleMemory]:
        return ModuleMemory.all_of(self.guest) if self.kept is None else ModuleMemory.all_in(self.kept[0])

    @cached_property
    def _own(self) -> UnlistedModule | None:
        name = "" if self.module is None else self.module.name
        memory = self._modules.get(name)
        if self.module is not None and memory is None and self.kept is not None:
            raise EvidenceError(f"the guest has not kept where module {name} was")
        if self.module is None or memory is None:
            return None
        kept = "" if self.kept is None else self.kept[1].decode("ascii", errors="replace")
        starts: dict[str, str] = dict(re.findall(r"^(\.[A-Za-z0-9_.]{1,60}):(0x[0-9a-f]{8,16})$", kept, re.MULTILINE))

        def shown(section: str) -> str:
            if self.kept is not None:
                return starts.get(section, "")
            return kernel_value(self.guest, f"/sys/module/{name}/sections/{section}")

        return UnlistedModule(name, memory.start, code_at(name, self.module.file, shown))


def stored(profile: CellProfile, file: Path, work: timed_work.CountedWork | None = None) -> ProfileEvidence:
    """Write a profile to its file; returns the evidence, for ``work`` timed as a whole with its bounds.

    Raises HostError if the disk is full.
    """
    return ProfileEvidence(
        sha256=write_profile(profile, file),
        calls=profile.calls,
        instructions=profile.executed,
        int3=sum(instruction.executed for instruction in profile.instructions if instruction.code == f"{INT3:02x}"),
        repetitions=profile.repetitions if work is None else None,
        ticks=None if work is None else work.ticks,
        faults=0 if work is None else work.faults,
        halts=0 if work is None else work.halts,
    )
