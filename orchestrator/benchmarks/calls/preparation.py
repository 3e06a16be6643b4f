# SPDX-License-Identifier: GPL-2.0-only
"""What cells of calls need before their guest starts: a module for each probe, and a program for each workload."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from orchestrator.artifacts.bpf_objects import BpfObject, bpf_object
from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.compiler import bpf_tool, compiled_workload
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import ModuleSource, check_parameters, render, render_own
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.program_code import SharedLibrary, find_in_library, find_in_program, obtain_library
from orchestrator.artifacts.sources import OwnSource, own_file
from orchestrator.benchmarks.calls import probe_setup
from orchestrator.benchmarks.calls.benchmarks import benchmarks, call_probe
from orchestrator.benchmarks.calls.call_programs import OWN_PROGRAM, PROGRAM, WholeProgram, system_call, user_function
from orchestrator.benchmarks.calls.probe_setup import KernelPlaces, ProbeSetup, call_number
from orchestrator.benchmarks.calls.table import CallCell
from orchestrator.benchmarks.calls.workload import Workload
from orchestrator.catalog.probes import ProbeKind
from orchestrator.catalog.user_files import find_library, find_workload
from orchestrator.errors import BuildError, UnsupportedError
from orchestrator.experiment.fields import in_program
from orchestrator.probes.place import UserPoint
from orchestrator.run.boot import (
    Prepared,
    Ready,
    Refused,
    compiler_note,
    failed,
    module_outcomes,
    own_sources,
    unsupported,
    with_parameters,
)

_Made = TypeVar("_Made")

_WORD_SIZES = {"i386": 4, "x86_64": 8}


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
        """What the probe is armed with."""
        return self.module or self.tool


def prepare_calls(
    context: BuildContext, kernel: Kernel, cells: Sequence[CallCell]
) -> Mapping[str, Prepared[CallSetup]]:
    """Each cell's preparation, by its id. Raises ConfigError for a user's file that no longer exists."""
    prepared: dict[str, Prepared[CallSetup]] = {}
    setups: dict[str, ProbeSetup] = {}
    places = KernelPlaces(kernel)
    for cell in cells:
        reason = cell.task.refusal or probe_setup.unsupported_reason(kernel, cell) or places.refusal(cell)
        if reason is not None:
            prepared[cell.id] = unsupported(reason)
        else:
            setups[cell.id] = probe_setup.set_up(kernel, cell)
    wanted = {id_: _module_source(setup) for id_, setup in setups.items()}
    modules = module_outcomes(context, kernel, {id_: one for id_, one in wanted.items() if one is not None})

    # A broken file is not compiled anew for each cell.
    compiled = cache(lambda *calls: _outcome(lambda: _compiled(context, kernel, *calls)))
    tool = cache(lambda: _outcome(lambda: bpf_tool(context, kernel.spec.arch)))
    own = cache(lambda file: _outcome(lambda: bpf_object(context, kernel, file)))
    for cell in (one for one in cells if one.id in setups):
        calls, probe = _c_file(cell), call_probe(cell.task.probe)
        program = None if calls is None else compiled(*calls)
        attaches: Path | BpfObject | Refused | None = None
        if probe.program is not None or probe.one_liner is not None:
            attaches = tool()
        if probe.bpf_file is not None:
            attaches = own(probe.bpf_file)
        made = _prepared(kernel, cell, setups[cell.id], modules.get(cell.id), program, attaches)
        if isinstance(made, Ready):
            made = replace(made, sources=_own_sources(cell, probe, wanted[cell.id], program, attaches))
        prepared[cell.id] = made
    return prepared


def _own_sources(
    cell: CallCell,
    probe: ProbeKind,
    module: ModuleSource | Path | None,
    program: _Program | Refused | None,
    attaches: Path | BpfObject | Refused | None,
) -> Mapping[str, OwnSource]:
    """What is the user's of a cell that is ready."""
    sources = dict(own_sources(probe, module, cell.image))
    if isinstance(attaches, BpfObject):
        sources["probe"] = attaches.source
    if isinstance(program, _Program):
        sources["workload"] = program.source
        sources |= {f"library {one.name}": one.source for one in program.libraries if one.source is not None}
    elif cell.task.file is not None:
        sources["workload"] = own_file(Path(cell.task.file))
    return sources


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
        module = with_parameters(module, call_probe(cell.task.probe).parameters)
        if isinstance(module, Refused):
            return module
    try:
        point = _program_point(cell, program)
    except BuildError as error:
        return failed(error)
    return Ready(
        CallSetup(setup.symbol, setup.offset, _workload(kernel, cell, program), module, tool, point),
        modules=() if module is None else (module,),
        notes=(*setup.notes, *compiler_note(kernel, module)),
        keys={**_workload_key(cell, program), **_tool_keys(tool)},
    )


def _program_point(cell: CallCell, program: _Program | None) -> UserPoint | None:
    """The cell's point in its program or a library, if it is there. Raises BuildError where there is no such place."""
    place = in_program(cell.task.point)
    if place is None:
        return None
    library = None
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


def _workload_key(cell: CallCell, program: _Program | None) -> dict[str, str]:
    """The digests of a user's program, as it was given or compiled, and of its libraries."""
    if program is None:
        return {} if cell.task.file is None else {"workload": _digest(Path(cell.task.file))}
    return {"workload": _digest(program.file), **{one.name: _digest(one.file) for one in program.libraries}}


def _tool_keys(tool: Path | BpfObject | None) -> dict[str, str]:
    """The digests of what attaches BPF programs, and of a user's own."""
    if isinstance(tool, BpfObject):
        return {"bpfprobe": _digest(tool.tool), "bpfload": _digest(tool.loader), "bpf_object": _digest(tool.file)}
    return {} if tool is None else {"bpfprobe": _digest(tool)}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _module_source(setup: ProbeSetup) -> ModuleSource | Path | None:
    """The module that arms the probe: as source, a user's .ko file, or none."""
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
    word_size = _WORD_SIZES[kernel.spec.arch]
    calls = system_call(number, arguments, entry=task.entry, word_size=word_size, calls=task.calls, hits=task.hits)
    return replace(calls, expected=task.expected)
