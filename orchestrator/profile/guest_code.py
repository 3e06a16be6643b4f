# SPDX-License-Identifier: GPL-2.0-only
"""The code of a running guest, with the module that is loaded in it now."""

from __future__ import annotations

from bisect import bisect_right

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


def code_of(guest: Guest, symbols: Symbols, module: Module | None, program: str) -> Places:
    """Its functions: those of ``symbols``, and of the ``module`` that was loaded since they were read.

    Raises EvidenceError where the guest's lists make no sense.
    """
    start, end = symbols.anywhere("_stext"), symbols.anywhere("_etext")
    if start is None or end is None:
        raise EvidenceError("the guest's kernel does not list where its text is (_stext, _etext)")
    own = {} if module is None else module_functions(guest, module.name, module.file)
    known = sorted((address, name) for name, address in own.items())
    modules = ModuleMemory.all_of(guest)
    loaded = None if module is None else modules.get(module.name)

    def function_at(address: int) -> Function | None:
        if module is not None and loaded is not None and loaded.start <= address < loaded.end:
            at = bisect_right(known, (address, _BEHIND_NAMES)) - 1
            return Function(*known[at], module.name) if at >= 0 else None
        found = symbols.function_at(address)
        return None if found is None else Function(*found)

    return Places(
        function_at=function_at,
        ranges=[CodeRange(start, end), *(CodeRange(one.start, one.end) for one in modules.values())],
        kernel_start=_HALF if start >= _HALF else start & _SPLITS,
        program=program,
    )
