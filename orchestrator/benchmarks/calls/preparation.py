# SPDX-License-Identifier: GPL-2.0-only
"""What cells of calls need before their guest starts: whether a kernel supports the probe, its module, the workload."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.bpf_objects import BpfObject, bpf_object, user_section
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.dispatch import UnknownDispatchError, dispatched
from orchestrator.artifacts.function_entry import entry_offset, tracer_place
from orchestrator.artifacts.guest_programs import bpf_tool
from orchestrator.artifacts.image_files import ImageFile, file_of_image
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.module_code import loaded_code
from orchestrator.artifacts.module_source import Scalar, Value, check_parameters, render
from orchestrator.artifacts.modules import Module, parameter_names
from orchestrator.artifacts.object_state import in_state
from orchestrator.artifacts.program_code import (
    SharedLibrary,
    find_in_image,
    find_in_library,
    find_in_program,
    obtain_library,
)
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.sources import UserSource, user_source
from orchestrator.artifacts.user_programs import compiled_workload
from orchestrator.benchmarks.calls.benchmarks import ENTRIES, benchmarks, capability_grants
from orchestrator.benchmarks.calls.call_cells import CallCell
from orchestrator.benchmarks.calls.call_programs import system_call, user_function
from orchestrator.benchmarks.calls.copied_programs import OWN_PROGRAM, PROGRAM
from orchestrator.benchmarks.calls.whole_programs import WholeProgram, Workload
from orchestrator.catalog.kernels import without_option
from orchestrator.catalog.probes import FETCHES, Handler, KernelChange, ProbeKind, is_recording, probes, shortened
from orchestrator.catalog.system_calls import system_calls
from orchestrator.catalog.user_files import find_library, find_workload
from orchestrator.errors import BuildError, EvidenceError, UnsupportedError
from orchestrator.files import sha256_of
from orchestrator.guest.qemu_facts import executes_spinning_cpus_in_turns, qemu_has_plugins
from orchestrator.probes.place_answers import KnownAnswer
from orchestrator.probes.placement import ProbePlace, places_of, refusal_of, technique_of
from orchestrator.probes.point import Point
from orchestrator.probes.user_point import UserPoint, optimisation_refusal
from orchestrator.profile.counted.kernel_entries import has_landmarks
from orchestrator.run.benchmark_kind import Prepared, Ready, Refused, failed, unsupported
from orchestrator.run.user_modules import (
    OwnModule,
    compiler_note,
    module_outcomes,
    own_module,
    parameters_note,
    smp_note,
    user_sources,
    with_parameters,
)


def call_number(kernel: Kernel, cell: CallCell) -> int | None:
    """The number of the cell's system call; None where it makes none, or this kernel lacks it."""
    return None if cell.task.call is None else system_calls()[cell.task.call].number(kernel.spec.arch, cell.task.entry)


def entered_function(kernel: Kernel, cell: CallCell) -> str:
    """The function that the cell's system call enters. Raises UnknownDispatchError where that cannot be read."""
    number, arch = call_number(kernel, cell), kernel.spec.arch
    assert number is not None
    symbols = benchmarks()[cell.benchmark].symbols
    if symbols:
        return symbols[arch][cell.task.entry]
    if kernel.code is None:
        raise UnknownDispatchError("the kernel's vmlinux and System.map are not at hand")
    return dispatched(kernel.code, "i386" if cell.task.entry == "int80" else arch, number)


def _no_function_reason(kernel: Kernel, cell: CallCell) -> str | None:
    call = f"{cell.task.call} (number {call_number(kernel, cell)})"
    try:
        function = entered_function(kernel, cell)
    except UnknownDispatchError as error:
        return f"the function that {call} enters is not known: {error}; name it, with points: [...]"
    if function.endswith("_ni_syscall"):  # where numbers without a call of their own go to
        return f"this kernel has no system call {call}: it goes to {function}"
    return None


_LAST = "do_exit"
"""A function that every program enters, for tables that name none because they have no probes."""


def probed_place(kernel: Kernel, cell: CallCell) -> tuple[str, int]:
    """The function that a cell probes, and the offset in bytes. Raises UnknownDispatchError."""
    point = cell.point
    if point is not None and (point.file is not None or point.offset is not None):
        return point.symbol, point.offset or 0
    if point is not None:
        symbol = point.symbol
    elif cell.task.is_counted:
        symbol = _LAST
    else:
        symbol = entered_function(kernel, cell)
    entry = _own_entry(kernel, cell, symbol)
    return symbol, entry if cell.task.kind.at == "after-ftrace-nop" else tracer_place(entry)


def _own_entry(kernel: Kernel, cell: CallCell, symbol: str) -> int:
    """Bytes from a function's symbol to its first own instruction, in the kernel or in one of its loaded modules."""
    code = _code_with(kernel, cell, symbol)
    offset = None if code is None else entry_offset(code, symbol)
    return kernel.spec.entry_offset if offset is None else offset


def _code_with(kernel: Kernel, cell: CallCell, symbol: str) -> KernelCode | None:
    if kernel.code is not None and kernel.code.has_function(symbol):
        return kernel.code
    return next(iter(loaded_code(kernel, cell.kernel_modules, symbol).values()), kernel.code)


Places = dict[str, Mapping[int, ProbePlace]]
"""The instructions of functions, by their symbols and offsets."""


SITES_WITHOUT_POINT = ("hook", "tracepoint")
"""Sites whose place the kernel decides, whatever a table's points are."""


@dataclass(frozen=True)
class ProbeSetup:
    """A probe point (symbol and offset in bytes), the module that probes it, and notes for the report.

    ``template`` is a module of ``kmods``, None where no module of the lab is loaded. It and a user's are rendered with
    ``values``. A module of ``kmods`` gets the point as a load parameter, so that one build serves all points; a user's
    template is rendered with it.
    """

    symbol: str
    offset: int
    template: str | None
    values: dict[str, Value]
    notes: tuple[str, ...]
    parameters: Mapping[str, Scalar] = field(default_factory=dict)


def unsupported_reason(
    kernel: Kernel, cell: CallCell, places: Places | None = None, known: KnownAnswer | None = None
) -> str | None:
    """Why a guest, or this kernel, does not support the cell; None where they do.

    ``places`` keeps what was read of the kernel's image, ``known`` has the answers of earlier guests.
    """
    reasons = chain(_reasons(kernel, cell, {} if places is None else places), _answer(kernel, cell, known))
    return next(iter(reasons), None)


def _answer(kernel: Kernel, cell: CallCell, known: KnownAnswer | None) -> Iterator[str]:
    kind, point = cell.task.kind, cell.point
    if known is None or (point is not None and point.file is not None) or technique_of(kind) is None:
        return
    with contextlib.suppress(UnknownDispatchError):
        yield from filter(None, [known(kind, *probed_place(kernel, cell))])


def _reasons(kernel: Kernel, cell: CallCell, places: Places) -> Iterator[str]:
    kind, arch = cell.task.kind, kernel.spec.arch
    yield from filter(None, [cell.task.refusal])
    yield from filter(None, [calls_unsupported_reason(kernel, cell)])
    if cell.takes_turns and cell.smp > 1:
        if arch != "x86_64":
            yield "several CPUs on the exact clock need a kernel for x86_64"
        elif kernel.config.get(_STARTS_TOGETHER) != "y" and not executes_spinning_cpus_in_turns():
            newer = f"QEMU 8.1 or newer, or a kernel with {_STARTS_TOGETHER}, as x86_64 since Linux 6.5 has it"
            yield f"several CPUs on the exact clock need {newer}"
    yield from _reasons_at_point(kernel, cell)
    if kind.functions and not fnmatchcase(probed_place(kernel, cell)[0], kind.functions):
        yield f"the lab attaches it to functions {kind.functions} alone: name one, with points: [FUNCTION]"
    if kind.has_own_programs and is_recording(cell.handler):
        yield "BPF programs of your own have no handlers, so they cannot record"
    if kind.is_together:
        yield from _reasons_together(cell)
    yield from filter(None, [kind.lacking_in(kernel.release, arch)])
    needs = kind.needed_in(kernel.release)
    missing = [option for option in needs if kernel.config.get(option) != "y"]
    if missing:
        yield without_option(missing[0], needs, arch)
    is_return, behind_nop = kind.template == "kretprobe", _behind_nop(kernel, kind)
    if is_return and _breakpoints(kind) == 2 and has_booster(kernel) and not behind_nop:
        yield (
            "register_kretprobe() takes no post-handler, so this kernel always boosts a kretprobe; take a preemptible "
            f"one, such as lab-{arch}-smp-preempt"
        )
    is_hooked = is_return and (behind_nop or _needs_booster(kernel, kind))
    if is_hooked and kernel.config.get("CONFIG_RETHOOK") != "y":
        yield f"register_kretprobe() does not make it, and Linux has other hooks of returns since {_RETURN_HOOKS}"
    yield from _reasons_of_handler(kernel, kind, cell.handler)
    yield from filter(None, [place_refusal(kernel, cell, places)])


def _reasons_together(cell: CallCell) -> Iterator[str]:
    """Why programs that are attached together are not measured by the cell's calls at its point."""
    if cell.task.hits != 1:
        yield f"programs that are attached together have a number of a call: leave out hits: {cell.task.hits}"
    if cell.task.run is not None or (cell.task.file is not None and _c_file(cell) is None):
        yield "programs that are attached together are counted in calls: take one, or a C file with workload()"
    if cell.point is not None and cell.point.file is not None:
        yield "programs that are attached together are where their sections say: the point is a function of the kernel"


_DETOURS = ("jump", "detour", "jmp")
"""Mechanisms whose handlers are called from code that is made while the kernel runs."""


def _reasons_of_handler(kernel: Kernel, kind: ProbeKind, handler: Handler) -> Iterator[str]:
    in_detour = kind.template is not None and kind.mechanism in _DETOURS and not kind.at_return
    if handler == "stack" and in_detour and kernel.config.get("CONFIG_UNWINDER_ORC") == "y":
        yield "the kernel's unwinder (ORC) has no table of the detour that the handler is called from"
    if handler == "count-shared" and kind.mechanism != "none" and kind.program is None:
        yield "only the lab's BPF programs count in a map that all CPUs share; take handler count"
    if handler == "count-shared" and kernel.spec.arch == "i386":
        yield "the kernel's compiler for i386 refuses the atomic addition to a map that all CPUs share"
    if kind.event == "graph" and handler == "count":
        yield "the function graph tracer has no counter"
    if kind.event == "graph" and handler == "stack":
        yield "the function graph tracer records calls, and no stacks"
    if handler in FETCHES and kind.mechanism != "none" and kind.event in (None, "graph", "trace"):
        yield "only events that are made in tracefs, such as kprobe-event, fetch values"


_NO_PROGRAM = (
    "it is in the program that makes the calls: name the function, with points: ['program:FUNCTION'] or, in a shared "
    "library, ['libc.so.6:FUNCTION']"
)
_NO_UPROBE = "it probes the kernel, and the point is in a program: take a uprobe"
_NO_ENTRY = "a return is probed at a function's entry: name the function, without an offset"


def _reasons_at_point(kernel: Kernel, cell: CallCell) -> Iterator[str]:
    kind, point, call = cell.task.kind, cell.point, cell.task.call
    if point is not None and point.file is not None:
        yield from _reasons_in_program(kind, point)
        if kind.mechanism == "call" and _c_file(cell) is None:
            yield "a program does not tell whether its uprobe is optimised: measure a workload() of your own"
    elif kind.site == "program":
        yield _NO_PROGRAM
    elif kind.site in SITES_WITHOUT_POINT:
        if point is not None:
            yield "it is where the kernel has it, and at no other point"
        # Kinds at other tracepoints count all hits of a process.
        if call is None and (kind.site == "hook" or kind.tracepoint in ("sys_enter", "raw_syscalls.sys_enter")):
            yield "it is at every system call, and which ones the workload makes is not known"
    elif kind.capability is not None and (point is not None or call is None):
        yield "what its handler must see is known at the function of a system call that is made"
    elif point is not None and point.offset is not None and kind.at == "entry":
        site = tracer_place(_own_entry(kernel, cell, point.symbol))
        if point.offset != site:
            yield f"the function tracer's site is at +{site:#x}: name it so, or the function without an offset"


def _reasons_in_program(kind: ProbeKind, point: Point) -> Iterator[str]:
    if kind.mechanism != "none" and kind.site != "program" and not kind.has_own_programs:
        yield _NO_UPROBE
    if kind.at_return and (point.offset or ":" in point.symbol):
        yield _NO_ENTRY


def _object_refusal(own_object: BpfObject, point: Point | None) -> str | None:
    """Why no program of a user's object can be at the cell's point: the sections say where they are attached."""
    sections = {section: user_section(section) for section in own_object.programs.values()}
    if point is None or point.file is None:
        return _NO_PROGRAM if all(sections.values()) else None
    if not any(sections.values()):
        return _NO_UPROBE
    is_static = ":" in point.symbol
    if not is_static and "usdt" in sections:
        return "a static probe point has two names: points: ['program:PROVIDER:NAME']"
    at_return = any(kind is not None and kind.startswith("uretprobe") for kind in sections.values())
    return _NO_ENTRY if at_return and (is_static or point.offset) else None


def place_refusal(kernel: Kernel, cell: CallCell, places: Places) -> str | None:
    """Why no kernel accepts the cell's kind of probe at its named point; None where one may, or the code is missing."""
    kind, point = cell.task.kind, cell.point
    if point is None or point.file is not None or technique_of(kind) is None:
        return None
    symbol, offset = probed_place(kernel, cell)
    if symbol not in places:
        code = _code_with(kernel, cell, symbol)
        function_places = None if code is None else places_of(code, kernel.config, symbol)
        places[symbol] = {} if function_places is None else {place.offset: place for place in function_places.places}
    return None if offset not in places[symbol] else refusal_of(kind, places[symbol][offset])


def set_up(kernel: Kernel, cell: CallCell) -> ProbeSetup:
    """How the cell's probe is installed in this kernel, which supports it."""
    kind = cell.task.kind
    symbol, offset = probed_place(kernel, cell)
    point: Mapping[str, Scalar] = {"symbol": symbol, "offset": offset}
    # Handlers at all system calls compare with the number; a constant saves an instruction.
    values: dict[str, Value] = {"number": call_number(kernel, cell) or 0}
    if kind.file is not None:
        values.update(point)
    if not is_wrapper(symbol):
        values["wrapper"] = 0
    # The column's heading may have only a part of a one-liner.
    is_cut = kind.one_liner is not None and shortened(kind.one_liner) != kind.title
    template, notes = kind.template, [kind.title] if is_cut else []
    own_booster = _needs_booster(kernel, kind)
    if template == "kretprobe" and (own_booster or _behind_nop(kernel, kind)):
        template = "kretprobe_rethook"
        why = "accepts no module's booster" if own_booster else "refuses a place after the function tracer's nop"
        notes.append(f"the return is hooked by the module: register_kretprobe() {why}")
    if _breakpoints(kind) == 2 and (has_booster(kernel) or kind.optimisation):
        values["single_step"] = 1
        if kind.extras != "removed":
            why = "it could be optimised" if kind.optimisation else "this kernel boosts kprobes"
            notes.append(f"single-stepped because of a post-handler; without one {why}")
    if own_booster:
        values["own_booster"] = 1
        notes.append("boosted by the module's own booster: this kernel is preemptible, and such a kernel has none")
    if kind.capability is not None:
        values["capability"] = kind.capability.replace("-", "_")
        *_, grant = capability_grants()[kind.name]
        notes += [grant.note] if grant.note else []
    if kind.mechanism == "detour":
        values["hold_optimiser"] = 1
        notes.append("the module delays the kernel's optimiser, so that every hit comes before the optimisation")
    notes += smp_note(kernel, cell.smp)
    parameters = point if template is not None and kind.site not in SITES_WITHOUT_POINT else {}
    if template is not None and kind.tracepoint is not None:
        parameters = {"tracepoint": kind.tracepoint}
    notes += parameters_note(kind.parameters if kind.bpf_file is None else kind.state.parameters)
    return ProbeSetup(symbol, offset, template, values, tuple(notes), parameters)


def is_wrapper(symbol: str) -> bool:
    """Whether a function is a wrapper of a system call, which gets the user's registers (SYSCALL_DEFINEx on x86)."""
    return re.match(r"__(x64|ia32)_(compat_)?sys_", symbol) is not None


def calls_unsupported_reason(kernel: Kernel, cell: CallCell) -> str | None:
    """Why this kernel does not support the cell's workload; None where it does."""
    arch = kernel.spec.arch
    if cell.task.is_counted and not has_landmarks(kernel.code):
        return "where system calls begin is not known: the kernel's vmlinux and System.map are not available"
    if cell.task.file is not None:
        whole = find_workload(cell.task.file, is_program=cell.task.is_counted).unsupported_reason(arch)
        each = [find_library(library).unsupported_reason(arch) for library in cell.task.libraries]
        return next(filter(None, [whole, *each]), None)
    if cell.task.run is None and cell.task.entry not in ENTRIES[arch]:
        return f"programs of {arch} have no system call entry {cell.task.entry}"
    if cell.task.call is not None and call_number(kernel, cell) is None:
        return f"{arch} has no system call {cell.task.call}"
    if cell.task.call is not None and cell.point is None:
        return _no_function_reason(kernel, cell)
    return None


def has_booster(kernel: Kernel) -> bool:
    """Whether the kernel boosts kprobes: can_boost() is compiled in only without CONFIG_PREEMPTION."""
    return kernel.config.get("CONFIG_PREEMPTION") != "y"


def _breakpoints(kind: ProbeKind) -> int:
    """int3 a hit of a kprobe or kretprobe that an int3 arms: 1 if it is boosted, 2 if single-stepped; else 0."""
    return kind.int3_per_hit or 0 if kind.template in ("kprobe", "kretprobe") and kind.mechanism == "int3" else 0


_STARTS_TOGETHER = "CONFIG_HOTPLUG_PARALLEL"
"""CPUs start in parallel (7e75178a0950). Else the first one waits for each in a loop that QEMU has to interrupt."""
_RETURN_HOOKS = KernelChange(release="5.18", commit="54ecbe6f1ed5")


def _needs_booster(kernel: Kernel, kind: ProbeKind) -> bool:
    return _breakpoints(kind) == 1 and not has_booster(kernel)


def _behind_nop(kernel: Kernel, kind: ProbeKind) -> bool:
    return kind.at == "after-ftrace-nop" and kernel.config.get("CONFIG_DYNAMIC_FTRACE") == "y"


_Made = TypeVar("_Made")


@dataclass(frozen=True)
class CallSetup:
    """A cell's probe point (``offset`` in bytes), its workload, and the module or program that arms the probe, if any.

    ``in_program`` is the point, if it is in the program that makes the calls.
    """

    symbol: str
    offset: int
    workload: Workload
    module: Module | None
    tool: Path | BpfObject | None = None
    in_program: UserPoint | None = None


def prepare_calls(
    context: BuildContext, kernel: Kernel, cells: Sequence[CallCell]
) -> Mapping[str, Prepared[CallSetup]]:
    """The preparation of each cell that the kernel supports, by its id."""
    prepared: dict[str, Prepared[CallSetup]] = {}
    setups = {cell.id: set_up(kernel, cell) for cell in cells}
    sources: dict[str, OwnModule] = {}
    for cell in cells:
        template, values = setups[cell.id].template, setups[cell.id].values
        source = own_module(cell.task.kind, values) if template is None else render(template, values)
        if source is not None:
            sources[cell.id] = source
    modules = module_outcomes(context, kernel, sources)

    # Each file is compiled once, also one that does not compile.
    compiled = cache(lambda *calls: _outcome(lambda: _compiled(context, kernel, *calls)))
    image_file = cache(lambda *named: _outcome(lambda: file_of_image(context, kernel.spec.arch, *named)))
    tool = cache(lambda: _outcome(lambda: bpf_tool(context, kernel.spec.arch)))
    wrapper = cache(lambda file, flags: _outcome(lambda: bpf_object(context, kernel, file, flags)))
    for cell in cells:
        calls, probe = _c_file(cell), cell.task.kind
        program: _Program | ImageFile | Refused | None = None if calls is None else compiled(*calls)
        if cell.task.run is not None and cell.point is not None and cell.point.file is not None:
            program = image_file(cell.image or "", cell.point.file)
        attaches: Path | BpfObject | Refused | None = None
        if probe.bpf_file is not None:
            attaches = wrapper(probe.bpf_file, probe.flags)
            if isinstance(attaches, BpfObject):
                attaches = _outcome(partial(_chosen, context, kernel, cell, attaches))
        elif probe.program is not None or probe.attaches_itself:
            attaches = tool()
        made = _prepared(kernel, cell, setups[cell.id], modules.get(cell.id), program, attaches)
        if isinstance(made, Ready):
            given = user_sources(probe, sources.get(cell.id), cell.image)
            made = replace(made, sources={**given, **made.sources})
        prepared[cell.id] = made
    return prepared


def _chosen(context: BuildContext, kernel: Kernel, cell: CallCell, own_object: BpfObject) -> BpfObject:
    kind = cell.task.kind
    assert kind.bpf_file is not None
    chosen = in_state(context, own_object.chosen(kernel, kind.named_programs), kind.state, kind.bpf_file)
    reason = None if kind.is_together else _object_refusal(chosen, cell.point)
    reason = reason or _lacking_section(kernel, chosen.programs.values())
    if reason is not None:
        raise UnsupportedError(reason)
    return chosen


def _lacking_section(kernel: Kernel, sections: Iterable[str]) -> str | None:
    """Why the kernel has no programs of one of the sections, whose kinds have the catalogue's names."""
    for section in sections:
        kind = probes().get("bpf-" + re.sub("[._]", "-", section.partition("/")[0].removesuffix(".s")))
        lacking = None if kind is None else kind.lacking_in(kernel.release, kernel.spec.arch)
        if lacking is not None:
            return f"{section}: {lacking}"
    return None


def _outcome(compile_it: Callable[[], _Made]) -> _Made | Refused:
    try:
        return compile_it()
    except (BuildError, UnsupportedError) as error:
        return failed(error)


@dataclass(frozen=True)
class _Program:
    file: Path
    source: UserSource
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
    program: _Program | ImageFile | Refused | None,
    tool: Path | BpfObject | Refused | None,
) -> Prepared[CallSetup]:
    if isinstance(module, Refused):
        return module
    if isinstance(program, Refused):
        return program
    if isinstance(tool, Refused):
        return tool
    if module is not None:
        module = replace(module, parameters=check_parameters(setup.parameters))
    workload = _workload(kernel, cell, program if isinstance(program, _Program) else None)
    is_uncounted = False
    if module is not None and cell.task.kind.file is not None:
        is_uncounted = not _counts_hits(module)
        module = _own_module(module, cell, workload)
        if isinstance(module, Refused):
            return module
    try:
        point = _program_point(cell, program)
    except BuildError as error:
        return failed(error)
    if point is not None:
        reason = optimisation_refusal(cell.task.kind, kernel.release, kernel.spec.arch, point)
        if reason is not None:
            return unsupported(reason)
    files, sources = _own_files(cell, program, tool)
    return Ready(
        CallSetup(setup.symbol, setup.offset, workload, module, tool, point),
        modules=() if module is None else (*module.needed, module),
        notes=(*setup.notes, *compiler_note(kernel, module)),
        keys={name: sha256_of(file) for name, file in files.items()},
        sources=sources,
        needs_counter=is_uncounted,
    )


def _counts_hits(module: Module) -> bool:
    """Whether a user's module has the parameter ``hits``; one without symbols may have it."""
    names = parameter_names(module.file)
    return names is None or "hits" in names


def _own_module(module: Module, cell: CallCell, workload: Workload) -> Module | Refused:
    """A user's module with its parameters; refused if it lacks one, or if nothing could prove its hits."""
    loaded = with_parameters(module, cell.task.kind.parameters)
    if isinstance(loaded, Refused) or _counts_hits(module):
        return loaded
    what = f"module {module.name} has no parameter hits"
    if cell.handler != "noop":
        return unsupported(f"{what}, so a hit does what it always does: measure it with handlers: [noop]")
    if cell.clock == "wall":
        why = "clock 'wall' counts no entries of its functions: take clock: instructions"
    elif isinstance(workload, WholeProgram) and not workload.is_counted:
        why = "the entries of its functions are counted in calls: take a C file with workload()"
    elif not qemu_has_plugins():
        why = "this QEMU has no plugins, which would count the entries of its functions"
    else:
        return loaded
    return failed(EvidenceError(f"{what}, and nothing else proves its hits: {why}, or give it the parameter"))


def _own_files(
    cell: CallCell, program: _Program | ImageFile | None, tool: Path | BpfObject | None
) -> tuple[Mapping[str, Path], Mapping[str, UserSource]]:
    files: dict[str, Path] = {}
    sources: dict[str, UserSource] = {}
    if isinstance(program, ImageFile):
        files = {program.path: program.file}
    elif program is not None:
        files = {"workload": program.file, **{library.name: library.file for library in program.libraries}}
        sources = {
            f"library {library.name}": library.source for library in program.libraries if library.source is not None
        }
        sources["workload"] = program.source
    elif cell.task.file is not None:
        files["workload"] = Path(cell.task.file)
        sources["workload"] = user_source(Path(cell.task.file))
    if isinstance(tool, BpfObject):
        files |= {"bpfprobe": tool.tool, "bpfload": tool.loader, "bpf_object": tool.file}
        sources["probe"] = tool.source
    elif tool is not None:
        files["bpfprobe"] = tool
    return files, sources


def _program_point(cell: CallCell, program: _Program | ImageFile | None) -> UserPoint | None:
    """The cell's point, if it is in its program, a library or the image. Raises BuildError for a missing place."""
    point, library, path = cell.point, None, OWN_PROGRAM
    if point is None or point.file is None:
        return None
    symbol, offset = point.symbol, point.offset or 0
    if isinstance(program, ImageFile):
        return _image_point(program, symbol, offset)
    if program is None:
        assert cell.task.file is not None
        place, path = find_in_program(Path(cell.task.file), symbol, offset), PROGRAM
    elif point.library is not None:
        library = next(shared_library for shared_library in program.libraries if shared_library.name == point.library)
        place = find_in_library(library.file, library.name, symbol, offset)
    else:
        place = find_in_program(program.file, symbol, offset)
    return UserPoint(
        symbol,
        offset,
        place.address,
        place.code,
        is_entry=offset == 0,
        is_called_directly=False,
        program=path,
        file_offset=place.file_offset,
        semaphore=place.semaphore,
        library=None if library is None else library.path,
        label=point.file,
    )


_ANY_PROGRAM = "/bin/true"
"""A program whose loader maps a library that it is told to."""


def _image_point(image_file: ImageFile, symbol: str, offset: int) -> UserPoint:
    place = find_in_image(image_file, symbol, offset)
    return UserPoint(
        symbol,
        offset,
        place.address,
        place.code,
        is_entry=offset == 0,
        is_called_directly=False,
        program=image_file.path if place.is_program else _ANY_PROGRAM,
        file_offset=place.file_offset,
        semaphore=place.semaphore,
        library=image_file.path if place.is_relative else None,
        label=Path(image_file.path).name,
        is_preloaded=not place.is_program,
    )


def workload_of(context: BuildContext, kernel: Kernel, cell: CallCell) -> Workload:
    """The cell's workload; a user's C file is compiled. Raises BuildError."""
    calls = _c_file(cell)
    return _workload(kernel, cell, None if calls is None else _compiled(context, kernel, *calls))


def _c_file(cell: CallCell) -> tuple[Path, tuple[str, ...], str | None] | None:
    if cell.task.file is None or cell.task.is_counted:
        return None
    workload = find_workload(cell.task.file)
    return None if workload.kind == "program" else (workload.file, cell.task.libraries, cell.image)


def _workload(kernel: Kernel, cell: CallCell, program: _Program | None) -> Workload:
    task = cell.task
    if program is not None:
        function = user_function(program.file, calls=task.calls, hits=task.hits, libraries=program.libraries)
        return replace(function, expected=task.expected)
    if task.file is not None:
        argv = [PROGRAM, *map(str, task.arguments)]
        return WholeProgram(Path(task.file), argv, task.hits, is_counted=task.is_counted)
    if task.run is not None:
        return WholeProgram(None, ["/bin/sh", "-c", task.run], task.hits, is_counted=True)
    number = call_number(kernel, cell)
    assert number is not None
    arguments = task.arguments or benchmarks()[cell.benchmark].arguments
    word_size = ARCHITECTURES[kernel.spec.arch].word
    calls = system_call(number, arguments, entry=task.entry, word_size=word_size, calls=task.calls, hits=task.hits)
    return replace(calls, expected=task.expected)
