# SPDX-License-Identifier: GPL-2.0-only
"""The tracepoints, events and system calls of a kernel itself, from its image: no guest is asked, no module is read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from orchestrator.arch import Arch
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.catalog.probes import CALL_PREFIX

_EVENT = "event_"
_OF_CALL = re.compile(r"(enter|exit)_(_\w+)")
_TRACEPOINT = "__tracepoint_"
_CLASS_AT = 2
"""Words before ``class`` of ``struct trace_event_call`` (include/linux/trace_events.h): the links of a list."""
_OF_TRACERS = "ftrace"
"""The system of the records that tracers write; nothing is attached to them."""
_LONGEST = 64
_NAME = re.compile(rb"[A-Za-z_]\w{0,62}\0")


def tracepoints(code: KernelCode) -> Collection[str]:
    """The names of raw tracepoints; empty for a kernel that lists no data (CONFIG_KALLSYMS_ALL)."""
    names = (symbol.name for symbol in code.symbols if symbol.name.startswith(_TRACEPOINT))
    return {name.removeprefix(_TRACEPOINT) for name in names}


def events(code: KernelCode) -> Mapping[str, str]:
    """The systems of events by ``SYSTEM:NAME``; empty for a kernel that lists no data."""
    return {f"{system}:{name}": system for system, name in _events(code)}


def _events(code: KernelCode) -> Iterator[tuple[str, str]]:
    for symbol in code.symbols:
        if symbol.name.startswith(_EVENT):
            system = _system(code, symbol.address)
            if system is not None and system != _OF_TRACERS:
                name = symbol.name.removeprefix(_EVENT)
                call = _OF_CALL.fullmatch(name) if system == "syscalls" else None
                yield system, name if call is None else f"sys_{call[1]}{call[2]}"


def _system(code: KernelCode, event: int) -> str | None:
    """The text that ``system``, the first member of an event's class, points to; None for what is no event."""
    event_class = code.number(event + _CLASS_AT * code.word)
    text = None if event_class is None else code.number(event_class)
    match = None if text is None else _NAME.match(code.read(text, _LONGEST))
    return None if match is None else match[0][:-1].decode()


def system_call_names(code: KernelCode, arch: Arch) -> Collection[str]:
    """The system calls that have a function of their own, as the kernel's events name them (``newstat``)."""
    prefix = CALL_PREFIX[arch]
    functions = (symbol.name for symbol in code.symbols if symbol.name.startswith(prefix))
    return {name.removeprefix(prefix) for name in functions}
