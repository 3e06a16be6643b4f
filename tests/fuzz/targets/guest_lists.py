# SPDX-License-Identifier: GPL-2.0-only
"""What a guest's kernel lists of itself: symbols, modules, kprobes, traced functions."""

from __future__ import annotations

from typing import cast

from orchestrator.benchmarks.scaling.kind import choose_sites, choose_sites_by_name
from orchestrator.catalog.probes import probe_kind
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import check_armed, observe
from orchestrator.probes.placement import RefusedPlaces
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import ModuleMemory, Symbols
from orchestrator.probes.traced_functions import called_by_tracer, find_traced

_SYMBOL, _ADDRESS = "__ia32_sys_gettimeofday", 0xC1093A10
_POINT = ProbePoint(_SYMBOL, 5, _ADDRESS + 5, bytes.fromhex("8b442404538b0885c9740f"))
_SYMBOLS = Symbols(f"{_ADDRESS:08x} T {_SYMBOL}\n".encode())


class _Files:
    """A guest in which each file says the same."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def get(self, source: str, **limits: object) -> bytes:
        """Whatever file it is."""
        return self._content

    def read_memory(self, address: int, size: int) -> bytes:
        """Memory in which a probe is armed."""
        return b"\xcc".ljust(size, b"\x90")


def _guest(data: bytes) -> Guest:
    return cast(Guest, _Files(data))


def read_kallsyms(data: bytes) -> None:
    """/proc/kallsyms, and every question about it."""
    symbols = Symbols(data)
    symbols.anywhere("_stext")
    symbols.object_size("jiffies")
    symbols.at(_ADDRESS)
    symbols.data_at(_ADDRESS)
    symbols.names(_ADDRESS)
    symbols.function_at(_ADDRESS)
    symbols.functions(_SYMBOL)
    symbols.size(_SYMBOL)


def read_modules(data: bytes) -> None:
    """/proc/modules."""
    ModuleMemory.all_in(data)


def read_kprobes_list(data: bytes) -> None:
    """kprobes/list, in which the lab's probe is looked for."""
    check_armed(probe_kind("kprobe"), _POINT, observe(_guest(data), _POINT), "while it is tried")


def read_kprobes_blacklist(data: bytes) -> None:
    """kprobes/blacklist."""
    RefusedPlaces.of(_guest(data), _SYMBOLS).reason(_ADDRESS)


def read_traced_functions(data: bytes) -> None:
    """The function tracer's list of what it traces, and where a trampoline in it leads."""
    traced = find_traced(data.decode("ascii", errors="replace"), [_SYMBOL])
    if traced is not None:
        called_by_tracer(_guest(data), Symbols(data), traced, _ADDRESS)


def read_probe_sites(data: bytes) -> None:
    """A list of symbols and a blacklist, behind a NUL, from which functions for thousands of kprobes are chosen."""
    listing, _, blacklist = data.partition(b"\0")
    choose_sites(listing, blacklist, 1, 1)
    choose_sites_by_name(listing, blacklist, 1, 1, 1.5)
