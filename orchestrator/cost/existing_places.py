# SPDX-License-Identifier: GPL-2.0-only
"""Whether a kernel has the place where a subject is attached, and the nearest name that it has."""

from __future__ import annotations

from fnmatch import fnmatchcase

from orchestrator.arch import Arch
from orchestrator.artifacts.kernel_code import FUNCTION_TYPES, KernelCode
from orchestrator.artifacts.kernel_events import events, system_call_names, tracepoints
from orchestrator.artifacts.module_code import loaded_code
from orchestrator.artifacts.module_files import missing_module_reason
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.data import nearest
from orchestrator.cost.call_table import call_table
from orchestrator.cost.subjects import AttachPlace
from orchestrator.probes.point_check import functions_like, wrong_point_reason


def lacking(kernel: Kernel, place: AttachPlace) -> str | None:
    """Why the kernel lacks the place, with the nearest name; None if it has it, or its image is not at hand.

    Events that only a module may have are not looked for.
    """
    code = kernel.code if place != AttachPlace() else None  # 60 MB to read
    if code is None:
        return None
    if place.function is not None:
        function = place.function
        if ":" in function or _is_in_module(kernel, code, function):
            return None
        return _function(code, function, place.offset)
    if place.system_call is not None:
        return _system_call(code, kernel.spec.arch, place.system_call)
    return None if place.event is None else _event(code, place.event)


def _is_in_module(kernel: Kernel, code: KernelCode, name: str) -> bool:
    """Whether a function is one of the modules that calls of the table load, and not of the kernel itself."""
    if is_pattern(name) or code.named(name):
        return False
    modules = dict.fromkeys(module for call in call_table().values() for module in call.modules)
    there = [module for module in modules if missing_module_reason(kernel, [module]) is None]
    return bool(loaded_code(kernel, there, name))


def _function(code: KernelCode, name: str, offset: int | None) -> str | None:
    if not is_pattern(name):
        return wrong_point_reason(code, name, offset)
    if any(symbol.type in FUNCTION_TYPES and fnmatchcase(symbol.name, name) for symbol in code.symbols):
        return None
    alike = functions_like(name.strip("*?"), code)
    return f"it has no function {name} of its own" + (f"; did you mean {' or '.join(alike)}?" if alike else "")


def _system_call(code: KernelCode, arch: Arch, name: str) -> str | None:
    names = system_call_names(code, arch)
    if not names or name in names or (is_pattern(name) and any(fnmatchcase(known, name) for known in names)):
        return None
    return f"it has no system call {name}{_guess(name, nearest(name, sorted(names)))}"


def _event(code: KernelCode, name: str) -> str | None:
    system, colon, event = name.rpartition(":")
    systems = events(code)
    names = systems if colon else tracepoints(code)
    if not names or name in names or is_pattern(name):
        return None
    elsewhere = [known for known in systems if colon and known.endswith(f":{event}")]
    guess = elsewhere[0] if len(elsewhere) == 1 else nearest(name, sorted(names))
    if guess is None and system not in systems.values():
        return None
    return f"it has no tracepoint {name} of its own{_guess(name, guess)}"


def _guess(name: str, guess: str | None) -> str:
    return f"; did you mean {guess}?" if guess is not None and guess != name else ""


def is_pattern(name: str) -> bool:
    """Whether a name stands for several, by wildcards."""
    return any(sign in name for sign in "*?[")
