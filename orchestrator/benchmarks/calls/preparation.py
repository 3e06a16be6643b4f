# SPDX-License-Identifier: GPL-2.0-only
"""What cells of calls need before their guest starts: a module for each probe, and a program for each workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import workload_program
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import ModuleSource, render, render_own
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.artifacts.prebuilt import prebuilt
from orchestrator.benchmarks.calls import probe_setup
from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.calls.call_programs import system_call, user_function
from orchestrator.benchmarks.calls.probe_setup import ProbeSetup
from orchestrator.benchmarks.calls.task import CallCell
from orchestrator.benchmarks.calls.whole_program import WholeProgram
from orchestrator.benchmarks.calls.workload import Workload
from orchestrator.catalog.user_workload import find_workload
from orchestrator.errors import BuildError
from orchestrator.run.preparation import Prepared, Ready, compiler_note, failed, unsupported

_WORD_SIZES = {"i386": 4, "x86_64": 8}


@dataclass(frozen=True)
class CallSetup:
    """A cell's probe point (``offset`` in bytes), the module that arms it (None for the baseline), the workload."""

    symbol: str
    offset: int
    workload: Workload
    module: Module | None


def prepare_calls(
    context: BuildContext, kernel: Kernel, cells: Sequence[CallCell]
) -> Mapping[str, Prepared[CallSetup]]:
    """Each cell's preparation, by its id. Raises ConfigError for a user's file that no longer exists."""
    prepared: dict[str, Prepared[CallSetup]] = {}
    setups: dict[str, ProbeSetup] = {}
    for cell in cells:
        reason = probe_setup.unsupported_reason(kernel, cell)
        if reason is not None:
            prepared[cell.id] = unsupported(reason)
        else:
            setups[cell.id] = probe_setup.set_up(kernel, cell)
    modules = _modules(context, kernel, setups)

    @cache
    def compiled(file: Path) -> Path | BuildError:
        try:
            return workload_program(context, kernel.spec.arch, file)
        except BuildError as error:
            return error

    for cell in (one for one in cells if one.id in setups):
        setup, module = setups[cell.id], modules.get(cell.id)
        file = _c_file(cell)
        program = None if file is None else compiled(file)
        errors = [part for part in (module, program) if isinstance(part, BuildError)]
        if isinstance(module, str):
            prepared[cell.id] = unsupported(module)
        elif errors:
            prepared[cell.id] = failed(errors[0])
        else:
            assert module is None or isinstance(module, Module)
            assert not isinstance(program, BuildError)
            prepared[cell.id] = Ready(
                CallSetup(setup.symbol, setup.offset, _workload(kernel, cell, program), module),
                modules=() if module is None else (module,),
                notes=(*setup.notes, *compiler_note(kernel, module)),
            )
    return prepared


def _c_file(cell: CallCell) -> Path | None:
    """The user's workload, where it is to be compiled."""
    own = None if cell.task.file is None else find_workload(cell.task.file)
    return None if own is None or own.kind == "program" else own.file


def _workload(kernel: Kernel, cell: CallCell, program: Path | None) -> Workload:
    task = cell.task
    if program is not None:
        return user_function(program, calls=task.calls, hits=task.hits)
    if task.file is not None:
        return WholeProgram(Path(task.file), [str(argument) for argument in task.arguments], task.hits)
    number = probe_setup.call_number(kernel, cell)
    assert number is not None
    arguments = task.arguments or benchmarks()[cell.benchmark].arguments
    word_size = _WORD_SIZES[kernel.spec.arch]
    return system_call(number, arguments, entry=task.entry, word_size=word_size, calls=task.calls, hits=task.hits)


def _modules(
    context: BuildContext, kernel: Kernel, setups: Mapping[str, ProbeSetup]
) -> dict[str, Module | BuildError | str]:
    """The cells' modules; a reason where a user's module does not fit this kernel."""
    found: dict[str, Module | BuildError | str] = {}
    sources: dict[str, ModuleSource] = {}
    for id_, setup in setups.items():
        if setup.template is not None:
            sources[id_] = render(setup.template, setup.values)
        elif setup.own is not None and setup.own.suffix == ".ko":
            found[id_] = prebuilt(setup.own, kernel)
        elif setup.own is not None:
            sources[id_] = render_own(setup.own, setup.values)
    found |= zip(sources, build_modules(context, kernel, list(sources.values())), strict=True)
    return found
