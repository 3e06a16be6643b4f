# SPDX-License-Identifier: GPL-2.0-only
"""Where the instructions of a guest's unattended work went, read when the work has ended and its module has gone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.unattended import FOLDER
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine
from orchestrator.probes.module_symbols import code_at
from orchestrator.probes.symbols import MODULES, MODULES_MAX, ModuleMemory, Symbols
from orchestrator.profile.cache_misses import CacheMisses, work_misses
from orchestrator.profile.counts import Region, read_regions
from orchestrator.profile.guest_code import OwnModule, kernel_start, places_of
from orchestrator.profile.places import Places
from orchestrator.profile.timed_work import CountedWork, counted_work
from orchestrator.results.contract import ProfileEvidence
from orchestrator.results.profile import CellProfile, Unit, write_profile
from orchestrator.results.validity import valid_result

_MODULES, _SECTIONS = f"{FOLDER}/modules", f"{FOLDER}/sections"
"""In the guest: what steps.sh keeps of the module while it is loaded."""
_SECTIONS_MAX = 64 << 10
"""Bytes; a module has some forty sections."""
_SECTION = re.compile(r"(\.[A-Za-z0-9_.]{1,60}):(0x[0-9a-f]{8,16})")
_PROGRAMS = "all programs"
_INT3 = "cc"
_BEGIN_AGAIN = re.compile(r"asm_exc_(?!int3|debug|nmi|noist|machine_check|double_fault)\w+|__text_poke")
"""Entries of exceptions after which an instruction begins again (arch/x86/include/asm/idtentry.h). A store into the
page that the CPU executes has QEMU begin it again as well: of kernels, what patches code (alternative.c)."""


def counting_together(machine: Machine, text: int) -> Machine:
    """A machine whose plugin, if it has one, counts user space together; the kernel's ``text`` begins there.

    A plugin of interface 1 does not see which program runs, and their addresses are the same. Models of caches need
    each instruction.
    """
    if machine.counter is None or machine.counter.caches is not None:
        return machine
    return replace(machine, counter=replace(machine.counter, together_below=kernel_start(text)))


@dataclass(frozen=True)
class WorkCounts:
    """A guest that has done its work, with the ``module`` that was loaded meanwhile, if any, and what was counted.

    ``symbols`` are the kernel's own, and those of modules that are still loaded; ``listing`` and ``sections`` are what
    the guest tells of its modules.
    """

    guest: Guest
    module: Module | None
    symbols: Symbols
    listing: bytes
    sections: bytes

    @classmethod
    def of(cls, guest: Guest, module: Module | None) -> WorkCounts:
        """Read all that only the guest knows: from then on it may rest. Raises GuestError."""
        symbols = Symbols.of(guest)
        if module is None:
            return cls(guest, None, symbols, guest.get(MODULES, largest=MODULES_MAX), b"")
        listing = guest.get(_MODULES, largest=MODULES_MAX)
        return cls(guest, module, symbols, listing, guest.get(_SECTIONS, largest=_SECTIONS_MAX))

    @cached_property
    def regions(self) -> Sequence[Region]:
        """What the plugin has kept, in order. Raises EvidenceError where it could not count all."""
        return read_regions(self.guest.counts_file, 0)

    @cached_property
    def places(self) -> Places:
        """Whose code was where while it was counted. Raises EvidenceError where the guest has not kept that."""
        return places_of(self.symbols, self._modules.values(), self._own, _PROGRAMS)

    @property
    def module_memory(self) -> ModuleMemory | None:
        """Where the module was."""
        return None if self._own is None else ModuleMemory(self._own.start, self._own.code.end)

    def counted(self, regions: Sequence[Region], ticks: Sequence[int]) -> CountedWork:
        """Some of the regions, each proved by the ticks of the clock that it took. Raises EvidenceError."""
        return counted_work(regions, ticks, frozenset(self.symbols.functions_like(_BEGIN_AGAIN).values()))

    def profile(
        self, work: CountedWork, cell: str, *, calls: int, unit: Unit, again: Region | None = None
    ) -> CellProfile:
        """The profile of a cell that ``calls`` times did some work, and what it missed in models of caches.

        ``again`` is the same work once more. Raises EvidenceError unless the models have seen all of it.
        """
        machine = self.guest.machine
        assert machine.counter is not None
        arch: Literal["i386", "x86_64"] = "x86_64" if self.places.kernel_start >= 1 << 63 else "i386"
        cpu = machine.counter.caches
        with valid_result():
            missed = (
                CacheMisses()
                if cpu is None
                else work_misses(work.regions, work.regions[-1] if again is None else again, cpu)
            )
            return CellProfile(
                cell=cell,
                arch=arch,
                calls=calls,
                unit=unit,
                has_details=machine.counter.is_detailed,
                symbols=self.places.symbols(work.together.counts, missed.by_code),
                caches=missed.caches,
                names=self.places.names(work.together.counts),
            )

    def write(self, work: CountedWork, profile: CellProfile, file: Path) -> ProfileEvidence:
        """Write a profile of some work; the proof."""
        return ProfileEvidence(
            sha256=write_profile(profile, file),
            calls=profile.calls,
            instructions=profile.executed,
            int3=sum(one.executed for code, one in work.together.counts.items() if code.code == _INT3),
            ticks=work.ticks,
            faults=work.faults,
            halts=work.halts,
        )

    @cached_property
    def _modules(self) -> dict[str, ModuleMemory]:
        return dict(ModuleMemory.all_in(self.listing))

    @cached_property
    def _own(self) -> OwnModule | None:
        if self.module is None:
            return None
        memory = self._modules.get(self.module.name)
        if memory is None:
            raise EvidenceError(f"the guest has not kept where module {self.module.name} was")
        found = [_SECTION.fullmatch(line) for line in self.sections.decode("ascii", errors="replace").splitlines()]
        starts = {match[1]: match[2] for match in found if match is not None}
        code = code_at(self.module.name, self.module.file, lambda section: starts.get(section, ""))
        return OwnModule(self.module.name, memory.start, code)
