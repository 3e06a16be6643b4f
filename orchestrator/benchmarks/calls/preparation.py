# SPDX-License-Identifier: GPL-2.0-only
"""What cells of calls need before their guest starts: how a kernel gets the probe, a module for it, a workload."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.bpf_objects import BpfObject, bpf_object
from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.compiler import bpf_tool, compiled_workload
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.machine_code import UnknownDispatchError, dispatched, entry_offset, tracer_place
from orchestrator.artifacts.module_files import loaded_code
from orchestrator.artifacts.module_source import ModuleSource, Scalar, Value, check_parameters, render, render_own
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.program_code import SharedLibrary, find_in_library, find_in_program, obtain_library
from orchestrator.artifacts.sources import OwnSource, own_file
from orchestrator.benchmarks.calls.benchmarks import ENTRIES, benchmarks, capability_list
from orchestrator.benchmarks.calls.call_programs import (
    OWN_PROGRAM,
    PROGRAM,
    WholeProgram,
    Workload,
    system_call,
    user_function,
)
from orchestrator.benchmarks.calls.table import CallCell
from orchestrator.catalog.kernels import without_option
from orchestrator.catalog.probes import ProbeKind
from orchestrator.catalog.user_files import find_library, find_workload
from orchestrator.catalog.words import system_calls
from orchestrator.errors import BuildError, UnsupportedError
from orchestrator.experiment.fields import ProgramPoint
from orchestrator.files import sha256_of
from orchestrator.probes.place import UserPoint
from orchestrator.probes.placement import ProbePlace, means_of, places_of, refusal_of
from orchestrator.run.boot import (
    Prepared,
    Ready,
    Refused,
    compiler_note,
    failed,
    module_outcomes,
    own_sources,
    parameters_note,
    smp_note,
    unsupported,
    with_parameters,
)

_NOT_IMPLEMENTED = "_ni_syscall"
"""The end of the name of the function that numbers without a call of their own go to."""


def call_number(kernel: Kernel, cell: CallCell) -> int | None:
    """The number of the system call that the cell makes; None where it makes none or this kernel lacks it."""
    return None if cell.task.call is None else system_calls()[cell.task.call].number(kernel.spec.arch, cell.task.entry)


def entered_function(kernel: Kernel, cell: CallCell) -> str:
    """The function that the cell's system call enters, by the benchmark or by the kernel's own dispatch.

    Raises UnknownDispatchError where that cannot be read.
    """
    number, arch = call_number(kernel, cell), kernel.spec.arch
    assert number is not None
    symbols = benchmarks()[cell.benchmark].symbols
    if symbols:
        return symbols[arch][cell.task.entry]
    if kernel.code is None:
        raise UnknownDispatchError("the kernel's vmlinux and System.map are not at hand")
    return dispatched(kernel.code, "i386" if cell.task.entry == "int80" else arch, number)


def _no_function_reason(kernel: Kernel, cell: CallCell) -> str | None:
    """Why the cell's system call enters no known function of its own; None where it does."""
    call = f"{cell.task.call} (number {call_number(kernel, cell)})"
    try:
        function = entered_function(kernel, cell)
    except UnknownDispatchError as error:
        return f"which function {call} enters is not known, since {error}; name it, with points: [...]"
    if function.endswith(_NOT_IMPLEMENTED):
        return f"this kernel has no system call {call}: it goes to {function}"
    return None


def probed_place(kernel: Kernel, cell: CallCell) -> tuple[str, int]:
    """The function that a cell probes, and the offset of its own first instruction or of the tracer's site, in bytes.

    Raises UnknownDispatchError where the function is not known.
    """
    place = cell.task.place
    if place is not None:
        return place.symbol, place.offset
    if cell.task.point is not None:
        symbol, plus, offset = cell.task.point.partition("+")
        if plus:
            return symbol, int(offset, 0)
    else:
        symbol = entered_function(kernel, cell)
    entry = _own_entry(kernel, cell, symbol)
    return symbol, entry if cell.task.kind.at == "after-ftrace-nop" else tracer_place(entry)


def _own_entry(kernel: Kernel, cell: CallCell, symbol: str) -> int:
    """Bytes from a function's symbol to its first own instruction: the kernel's, or a loaded module's of its own."""
    code = _code_with(kernel, cell, symbol)
    found = entry_offset(code, symbol) if code is not None and code.is_module else None
    return kernel.entry_offset(symbol) if found is None else found


def _code_with(kernel: Kernel, cell: CallCell, symbol: str) -> KernelCode | None:
    """The code that has a function: the kernel's, or a loaded module's where only that has it."""
    if kernel.code is not None and kernel.code.has_function(symbol):
        return kernel.code
    return next(iter(loaded_code(kernel, cell.kernel_modules, symbol).values()), kernel.code)


class KernelPlaces:
    """What a boot's kernel and modules say of the places that cells probe, each function decoded once."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._functions: dict[str, dict[int, ProbePlace]] = {}

    def refusal(self, cell: CallCell) -> str | None:
        """Why no kernel takes the cell's kind of probe at the point that the experiment names; None where one may."""
        kind = cell.task.kind
        if cell.task.point is None or cell.task.place is not None or means_of(kind) is None:
            return None
        place = self._at(cell, *probed_place(self._kernel, cell))
        return None if place is None else refusal_of(kind, place)

    def _at(self, cell: CallCell, symbol: str, offset: int) -> ProbePlace | None:
        """The instruction at a cell's place; None where the code is not at hand, or has none there."""
        if symbol not in self._functions:
            code = _code_with(self._kernel, cell, symbol)
            found = None if code is None else places_of(code, self._kernel.config, symbol)
            self._functions[symbol] = {} if found is None else {one.offset: one for one in found.places}
        return self._functions[symbol].get(offset)


SITES_WITHOUT_POINT = ("hook", "tracepoint")
"""Sites that are where the kernel has them, whatever a table's points are."""


@dataclass(frozen=True)
class ProbeSetup:
    """A probe point (symbol and offset in bytes), the module that probes it, and notes for the report.

    ``template`` is a module of ``kmods`` (None: no module of the lab is loaded), ``own`` a user's file; both are
    rendered with ``values``. The point is among the ``parameters`` that a module of ``kmods`` is loaded with, so that
    one build serves all points, and among the values that a user's template is rendered with.
    """

    symbol: str
    offset: int
    template: str | None
    values: dict[str, Value]
    notes: tuple[str, ...]
    own: Path | None = None
    parameters: Mapping[str, Scalar] = field(default_factory=dict)


def unsupported_reason(kernel: Kernel, cell: CallCell) -> str | None:
    """Why this kernel's release or configuration does not support the cell; None where they do."""
    kind = cell.task.kind
    why_not = calls_unsupported_reason(kernel, cell) or _place_unsupported_reason(kernel, cell, kind)
    if kind.has_own_programs and cell.handler == "record":
        why_not = why_not or "BPF programs of your own have no handlers, so they cannot record"
    why_not = why_not or kind.lacking_in(kernel.release, kernel.spec.arch)
    if why_not is not None:
        return why_not
    for option in kind.needs:
        if kernel.config.get(option) != "y":
            return without_option(option, kind.needs, kernel.spec.arch)
    single_stepped_return = kind.template == "kretprobe" and _breakpoints(kind) == 2
    if single_stepped_return and has_booster(kernel) and not _behind_nop(kernel, kind):
        other = "lab-x86_64-smp-preempt" if kernel.spec.arch == "x86_64" else "lab-i386-smp-preempt"
        return (
            "register_kretprobe() takes no post-handler, so this kernel always boosts a kretprobe; "
            f"take a preemptible one, such as {other}"
        )
    return None


def set_up(kernel: Kernel, cell: CallCell) -> ProbeSetup:
    """How this kernel gets the cell's probe. Only for a cell that it supports."""
    kind = cell.task.kind
    symbol, offset = probed_place(kernel, cell)
    point: Mapping[str, Scalar] = {"symbol": symbol, "offset": offset}
    # The handlers at all system calls compare with the number: as a constant that takes an instruction less.
    values: dict[str, Value] = {"number": call_number(kernel, cell) or 0}
    if kind.file is not None:
        values.update(point)
    if not is_wrapper(symbol):
        values["wrapper"] = 0
    template, notes = kind.template, [] if kind.one_liner is None else [kind.title]
    own_booster = _breakpoints(kind) == 1 and not has_booster(kernel)
    if template == "kretprobe" and (own_booster or _behind_nop(kernel, kind)):
        template = "kretprobe_rethook"
        why = "takes no booster of a module's" if own_booster else "refuses a place behind the function tracer's nop"
        notes.append(f"the return is hooked by the module: register_kretprobe() {why}")
    if _breakpoints(kind) == 2 and (has_booster(kernel) or kind.optimisation):
        values["single_step"] = 1
        if kind.extras != "removed":
            notes.append(_stepping_note(kind))
    if own_booster:
        values["own_booster"] = 1
        notes.append("boosted by the module's own booster: this kernel is preemptible, and such a kernel has none")
    if kind.capability is not None:
        values["capability"] = kind.capability.replace("-", "_")
        note = capability_list().capabilities[kind.capability].probes[kind.name.partition(".")[0]].note
        notes += [note] if note else []
    if kind.mechanism == "detour":
        values["hold_optimiser"] = 1
        notes.append("the module holds the kernel's optimiser back, so that every hit comes before the optimisation")
    notes += smp_note(kernel, cell.smp)
    parameters = point if template is not None and kind.site not in SITES_WITHOUT_POINT else {}
    if template is not None and kind.tracepoint is not None:
        parameters = {"tracepoint": kind.tracepoint}
    notes += parameters_note(kind.parameters)
    return ProbeSetup(symbol, offset, template, values, tuple(notes), kind.file, parameters)


def _stepping_note(kind: ProbeKind) -> str:
    """Why a kprobe is single-stepped on a kernel that would go on otherwise where the instruction allows it."""
    why = "it could be optimised" if kind.optimisation else "this kernel boosts kprobes"
    return f"single-stepped because of a post-handler; without one {why}"


def is_wrapper(symbol: str) -> bool:
    """Whether a function is a system call's wrapper, which takes the user's registers (SYSCALL_DEFINEx on x86)."""
    return re.match(r"__(x64|ia32)_(compat_)?sys_", symbol) is not None


def calls_unsupported_reason(kernel: Kernel, cell: CallCell) -> str | None:
    """Why this kernel cannot run what the cell runs."""
    arch = kernel.spec.arch
    if cell.task.file is not None:
        whole = find_workload(cell.task.file).unsupported_reason(arch)
        each = [find_library(library).unsupported_reason(arch) for library in cell.task.libraries]
        return next(filter(None, [whole, *each]), None)
    if cell.task.entry not in ENTRIES[arch]:
        return f"programs of {arch} have no system call entry {cell.task.entry}"
    if cell.task.call is not None and call_number(kernel, cell) is None:
        return f"{arch} has no system call {cell.task.call}"
    if cell.task.call is not None and cell.task.point is None:
        return _no_function_reason(kernel, cell)
    return None


def _place_unsupported_reason(kernel: Kernel, cell: CallCell, kind: ProbeKind) -> str | None:
    place = cell.task.place
    if kind.site == "program" and place is None:
        return (
            "it is in the program that makes the calls: name the function, with points: ['program:FUNCTION'] or, in a "
            "shared library, ['libc.so.6:FUNCTION']"
        )
    if place is not None:
        return _program_unsupported_reason(place, kind)
    if kind.site in SITES_WITHOUT_POINT:
        if cell.task.point is not None:
            return "it is where the kernel has it, and at no other point"
        # The kinds at other tracepoints count all hits of a process.
        is_at_system_calls = kind.site == "hook" or kind.tracepoint in ("sys_enter", "raw_syscalls.sys_enter")
        if cell.task.call is None and is_at_system_calls:
            return "it is at every system call, and which ones the workload makes is not known"
    if kind.capability is not None and (cell.task.point is not None or cell.task.call is None):
        return "what its handler must see is known at the function of a system call that is made"
    symbol, plus, offset = (cell.task.point or "").partition("+")
    if plus and kind.at == "entry":
        site = tracer_place(_own_entry(kernel, cell, symbol))
        if int(offset, 0) != site:
            return f"the function tracer's site is at +{site:#x}: name it so, or the function without an offset"
    return None


def _program_unsupported_reason(place: ProgramPoint, kind: ProbeKind) -> str | None:
    if kind.has_own_programs:
        return "BPF programs of your own are measured at functions of the kernel only"
    if kind.mechanism != "none" and kind.site != "program":
        return "it probes the kernel, and the point is in a program: take a uprobe"
    if kind.at_return and (place.offset or ":" in place.symbol):
        return "a return is probed at a function's entry: name the function, without an offset"
    return None


def has_booster(kernel: Kernel) -> bool:
    """Whether the kernel's kprobes are boosted where the instruction allows it.

    can_boost() of arch/x86/kernel/kprobes/core.c is compiled in without CONFIG_PREEMPTION only.
    """
    return kernel.config.get("CONFIG_PREEMPTION") != "y"


def _breakpoints(kind: ProbeKind) -> int:
    """Of a kprobe or kretprobe that an int3 arms: one int3 a hit when it is boosted, two when it is single-stepped."""
    return kind.int3_per_hit or 0 if kind.template in ("kprobe", "kretprobe") and kind.mechanism == "int3" else 0


def _behind_nop(kernel: Kernel, kind: ProbeKind) -> bool:
    return kind.at == "after-ftrace-nop" and kernel.config.get("CONFIG_DYNAMIC_FTRACE") == "y"


# What cells of calls need before their guest starts: a module for each probe, and a program for each workload.

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class CallSetup:
    """A cell's probe point (``offset`` in bytes), the module or the program that arms it, if one does, the workload.

    ``in_program`` is the point where it is in the program that makes the calls.
    """

    symbol: str
    offset: int
    workload: Workload
    module: Module | None
    tool: Path | BpfObject | None = None
    in_program: UserPoint | None = None

    @property
    def means(self) -> Module | Path | BpfObject | None:
        return self.module or self.tool


def prepare_calls(
    context: BuildContext, kernel: Kernel, cells: Sequence[CallCell]
) -> Mapping[str, Prepared[CallSetup]]:
    """Each cell's preparation, by its id. Raises ConfigError for a user's file that no longer exists."""
    prepared: dict[str, Prepared[CallSetup]] = {}
    setups: dict[str, ProbeSetup] = {}
    places = KernelPlaces(kernel)
    for cell in cells:
        reason = cell.task.refusal or unsupported_reason(kernel, cell) or places.refusal(cell)
        if reason is not None:
            prepared[cell.id] = unsupported(reason)
        else:
            setups[cell.id] = set_up(kernel, cell)
    sources = {id_: source for id_, setup in setups.items() if (source := _module_source(setup)) is not None}
    modules = module_outcomes(context, kernel, sources)

    # A broken file is not compiled anew for each cell.
    compiled = cache(lambda *calls: _outcome(lambda: _compiled(context, kernel, *calls)))
    tool = cache(lambda: _outcome(lambda: bpf_tool(context, kernel.spec.arch)))
    own = cache(lambda file: _outcome(lambda: bpf_object(context, kernel, file)))
    for cell in (one for one in cells if one.id in setups):
        calls, probe = _c_file(cell), cell.task.kind
        program = None if calls is None else compiled(*calls)
        attaches: Path | BpfObject | Refused | None = None
        if probe.bpf_file is not None:
            attaches = own(probe.bpf_file)
        elif probe.program is not None or probe.one_liner is not None:
            attaches = tool()
        made = _prepared(kernel, cell, setups[cell.id], modules.get(cell.id), program, attaches)
        if isinstance(made, Ready):
            given = own_sources(probe, sources.get(cell.id), cell.image)
            made = replace(made, sources={**given, **made.sources})
        prepared[cell.id] = made
    return prepared


def _outcome(compile_it: Callable[[], _Made]) -> _Made | Refused:
    try:
        return compile_it()
    except BuildError as error:
        return failed(error)
    except UnsupportedError as error:
        return unsupported(str(error))


@dataclass(frozen=True)
class _Program:
    """A user's C file, compiled, what it was made from, and the shared libraries that it was linked with."""

    file: Path
    source: OwnSource
    libraries: tuple[SharedLibrary, ...]


def _compiled(
    context: BuildContext, kernel: Kernel, file: Path, libraries: tuple[str, ...], image: str | None
) -> _Program:
    arch = kernel.spec.arch
    # A table refuses libraries without an image.
    linked = tuple(obtain_library(context, arch, image or "", find_library(library)) for library in libraries)
    compiled = compiled_workload(context, arch, file, [library.file for library in linked])
    return _Program(compiled.file, compiled.source, linked)


def _prepared(
    kernel: Kernel,
    cell: CallCell,
    setup: ProbeSetup,
    module: Module | Refused | None,
    program: _Program | Refused | None,
    tool: Path | BpfObject | Refused | None,
) -> Prepared[CallSetup]:
    """A cell with what was built for it: the module, the user's workload, what attaches BPF programs."""
    if isinstance(module, Refused):
        return module
    if isinstance(program, Refused):
        return program
    if isinstance(tool, Refused):
        return tool
    if module is not None:
        module = replace(module, parameters=check_parameters(setup.parameters))
    if module is not None and setup.own is not None:
        module = with_parameters(module, cell.task.kind.parameters)
        if isinstance(module, Refused):
            return module
    try:
        point = _program_point(cell, program)
    except BuildError as error:
        return failed(error)
    files, sources = _own_files(cell, program, tool)
    return Ready(
        CallSetup(setup.symbol, setup.offset, _workload(kernel, cell, program), module, tool, point),
        modules=() if module is None else (module,),
        notes=(*setup.notes, *compiler_note(kernel, module)),
        keys={name: sha256_of(file) for name, file in files.items()},
        sources=sources,
    )


def _own_files(
    cell: CallCell, program: _Program | None, tool: Path | BpfObject | None
) -> tuple[Mapping[str, Path], Mapping[str, OwnSource]]:
    """The files besides a module that the cell's content depends on, and the sources that are the user's."""
    files: dict[str, Path] = {}
    sources: dict[str, OwnSource] = {}
    if program is not None:
        files = {"workload": program.file, **{one.name: one.file for one in program.libraries}}
        sources = {f"library {one.name}": one.source for one in program.libraries if one.source is not None}
        sources["workload"] = program.source
    elif cell.task.file is not None:
        files["workload"] = Path(cell.task.file)
        sources["workload"] = own_file(Path(cell.task.file))
    if isinstance(tool, BpfObject):
        files |= {"bpfprobe": tool.tool, "bpfload": tool.loader, "bpf_object": tool.file}
        sources["probe"] = tool.source
    elif tool is not None:
        files["bpfprobe"] = tool
    return files, sources


def _program_point(cell: CallCell, program: _Program | None) -> UserPoint | None:
    """The cell's point in its program or a library, if it is there. Raises BuildError where there is no such place."""
    place, library = cell.task.place, None
    if place is None:
        return None
    if program is None:
        assert cell.task.file is not None
        found, path = find_in_program(Path(cell.task.file), place.symbol, place.offset), PROGRAM
    elif place.library is not None:
        library = next(one for one in program.libraries if one.name == place.library)
        found, path = find_in_library(library.file, library.name, place.symbol, place.offset), OWN_PROGRAM
    else:
        found, path = find_in_program(program.file, place.symbol, place.offset), OWN_PROGRAM
    return UserPoint(
        place.symbol,
        place.offset,
        found.address,
        found.code,
        is_entry=place.offset == 0,
        is_called_directly=False,
        program=path,
        file_offset=found.file_offset,
        semaphore=found.semaphore,
        library=None if library is None else library.path,
        label=place.file,
    )


def workload_of(context: BuildContext, kernel: Kernel, cell: CallCell) -> Workload:
    """What a cell runs, compiled where it is a user's C file. Raises BuildError."""
    calls = _c_file(cell)
    return _workload(kernel, cell, None if calls is None else _compiled(context, kernel, *calls))


def _module_source(setup: ProbeSetup) -> ModuleSource | Path | None:
    if setup.template is not None:
        return render(setup.template, setup.values)
    if setup.own is None or setup.own.suffix == ".ko":
        return setup.own
    return render_own(setup.own, setup.values)


def _c_file(cell: CallCell) -> tuple[Path, tuple[str, ...], str | None] | None:
    """The user's workload, where it is to be compiled, its libraries, and the image that has some of them."""
    own = None if cell.task.file is None else find_workload(cell.task.file)
    return None if own is None or own.kind == "program" else (own.file, cell.task.libraries, cell.image)


def _workload(kernel: Kernel, cell: CallCell, program: _Program | None) -> Workload:
    task = cell.task
    if program is not None:
        function = user_function(program.file, calls=task.calls, hits=task.hits, libraries=program.libraries)
        return replace(function, expected=task.expected)
    if task.file is not None:
        return WholeProgram(Path(task.file), [str(argument) for argument in task.arguments], task.hits)
    number = call_number(kernel, cell)
    assert number is not None
    arguments = task.arguments or benchmarks()[cell.benchmark].arguments
    word_size = ARCHITECTURES[kernel.spec.arch].word
    calls = system_call(number, arguments, entry=task.entry, word_size=word_size, calls=task.calls, hits=task.hits)
    return replace(calls, expected=task.expected)
