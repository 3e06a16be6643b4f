# SPDX-License-Identifier: GPL-2.0-only
"""What came of preparing a cell: ready, not supported by its kernel, or failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.diagnostics import warning_note
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_parameters import check_parameter_names
from orchestrator.artifacts.module_source import ModuleSource
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.artifacts.own_sources import OwnSource, own_file, own_line
from orchestrator.artifacts.prebuilt import prebuilt
from orchestrator.catalog.given_parameters import written
from orchestrator.catalog.images import SUFFIX
from orchestrator.catalog.one_liner import PREFIX
from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import BuildError, UnsupportedError, UsageError
from orchestrator.results.contract import Status

SetupT = TypeVar("SetupT", covariant=True)


@dataclass(frozen=True)
class Ready(Generic[SetupT]):
    """The cell can be measured: its kind's own ``setup``, the modules that go into the guest, notes for the reader."""

    setup: SetupT
    modules: tuple[Module, ...] = ()
    notes: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    """What names the exact content of anything else that the cell needs, by a name of its own."""
    sources: Mapping[str, OwnSource] = field(default_factory=dict)
    """What is the user's own, by what it is to the cell: ``probe``, ``workload``, ``library libmine.so``, ``image``."""


@dataclass(frozen=True)
class Refused:
    """The cell has no number, and ``reason`` says why: its kernel cannot have it, or it did not build."""

    status: Status
    reason: str
    modules: tuple[Module, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, OwnSource] = field(default_factory=dict)


Prepared = Ready[SetupT] | Refused

_LOCKS = ".smp_locks"


def unsupported(reason: str) -> Refused:
    """The kernel, by its own configuration, cannot have the cell."""
    return Refused("unsupported", reason)


def failed(error: BuildError) -> Refused:
    """Something of the cell's did not build, or cannot be built for its kernel."""
    return Refused("unsupported" if isinstance(error, UnsupportedError) else "failed", str(error))


def module_outcomes(
    context: BuildContext, kernel: Kernel, wanted: Mapping[str, ModuleSource | Path]
) -> Mapping[str, Module | Refused]:
    """The modules of cells by the cells' ids: built from source, or a user's .ko file; else why there is none.

    Raises ConfigError for a file that is no module.
    """
    outcomes: dict[str, Module | Refused] = {}
    sources = {id_: one for id_, one in wanted.items() if isinstance(one, ModuleSource)}
    for id_, built in zip(sources, build_modules(context, kernel, list(sources.values())), strict=True):
        outcomes[id_] = failed(built) if isinstance(built, BuildError) else built
    for id_, one in wanted.items():
        if isinstance(one, Path):
            try:
                outcomes[id_] = prebuilt(one, kernel)
            except UnsupportedError as error:
                outcomes[id_] = unsupported(str(error))
    return outcomes


def with_parameters(module: Module, given: Mapping[str, str]) -> Module | Refused:
    """A user's module, to be loaded with these parameters; refused where it has not got one of them."""
    try:
        check_parameter_names(module, given)
    except UsageError as error:
        return Refused("failed", str(error), (module,))
    return replace(module, parameters=given)


def own_sources(kind: ProbeKind, module: ModuleSource | Path | None, image: str | None) -> Mapping[str, OwnSource]:
    """What of a cell's probe and image is the user's: a module with what it includes, a one-liner, a recipe."""
    sources: dict[str, OwnSource] = {}
    if kind.one_liner is not None:
        sources["probe"] = own_line(f"{PREFIX} {kind.one_liner}")
    if kind.file is not None:
        sources["probe"] = own_file(kind.file, module.origins.values() if isinstance(module, ModuleSource) else [])
    if image is not None and image.endswith(SUFFIX):
        sources["image"] = own_file(Path(image))
    return sources


def smp_note(kernel: Kernel, cpus: int) -> tuple[str, ...]:
    """The note of an SMP kernel on one virtual CPU; none of any other."""
    if not kernel.smp or cpus != 1:
        return ()
    # Linux 7.3 has no table of lock prefixes any more, and never takes them away.
    has_table = kernel.code is None or _LOCKS in kernel.code.sections
    return ("an SMP kernel on one virtual CPU" + (", its lock prefixes kept (noreplace-smp)" if has_table else ""),)


def compiler_note(kernel: Kernel, module: Module | None) -> tuple[str, ...]:
    """The notes of a module that was compiled here: by another compiler than its kernel, or with warnings."""
    if module is None or module.sources is None:
        return ()
    other = () if kernel.compiler_note is None else (kernel.compiler_note,)
    return (*other, warning_note(module.name, module.warnings)) if module.warnings else other


def parameters_note(given: Mapping[str, str]) -> tuple[str, ...]:
    """The note of a user's module that is loaded with parameters."""
    return (f"loaded with {written(given)}",) if given else ()
