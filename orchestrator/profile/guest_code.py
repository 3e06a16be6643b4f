# SPDX-License-Identifier: GPL-2.0-only
"""The code of a running guest, with the module that is or was loaded in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.artifacts.modules import Module
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.module_symbols import module_functions
from orchestrator.probes.symbols import ModuleMemory, Symbols
from orchestrator.profile.places import CodeRange, Function, Places

_BEHIND_NAMES = "\x7f"
_HALF = 1 << 63
_SPLITS = 0xF0000000
"""Where a 32-bit kernel may begin (CONFIG_VMSPLIT_*): at a multiple of 256 MiB, its text 16 MiB behind."""


@dataclass(frozen=True)
class OwnModule:
    """A module that the kernel's own list of symbols does not have: its memory, and its functions by name."""

    name: str
    memory: ModuleMemory
    functions: Mapping[str, int]


def code_of(guest: Guest, symbols: Symbols, module: Module | None, program: str) -> Places:
    """Its functions: those of ``symbols``, and of the ``module`` that was loaded since they were read.

    Raises EvidenceError where the guest's lists make no sense.
    """
    modules = ModuleMemory.all_of(guest)
    own = None
    if module is not None and module.name in modules:
        own = OwnModule(module.name, modules[module.name], module_functions(guest, module.name, module.file))
    return places_of(symbols, modules.values(), own, program)


def places_of(symbols: Symbols, modules: Iterable[ModuleMemory], own: OwnModule | None, program: str) -> Places:
    """The functions of ``symbols`` and of ``own``, one of the ``modules``. Raises EvidenceError as ``code_of``."""
    start, end = symbols.anywhere("_stext"), symbols.anywhere("_etext")
    if start is None or end is None:
        raise EvidenceError("the guest's kernel does not list where its text is (_stext, _etext)")
    known = [] if own is None else sorted((address, name) for name, address in own.functions.items())

    def function_at(address: int) -> Function | None:
        if own is not None and own.memory.start <= address < own.memory.end:
            at = bisect_right(known, (address, _BEHIND_NAMES)) - 1
            return Function(*known[at], own.name) if at >= 0 else None
        found = symbols.function_at(address)
        return None if found is None else Function(*found)

    return Places(
        function_at=function_at,
        ranges=[CodeRange(start, end), *(CodeRange(one.start, one.end) for one in modules)],
        kernel_start=kernel_start(start),
        program=program,
    )


def kernel_start(text: int) -> int:
    """The lowest address of a kernel whose text begins at an address: below it are programs."""
    return _HALF if text >= _HALF else text & _SPLITS
