# SPDX-License-Identifier: GPL-2.0-only
"""The sources of a stored cell's code: from the run, the cache, or the user's tree; fetched or built on demand."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debug_info import NoDebugInfoError, kernel_debug_info, module_debug_info
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.errors import LabError
from orchestrator.files import sha256_of
from orchestrator.profile.counted.generated_code import GENERATED
from orchestrator.profile.lines.by_line import Sources, source_key
from orchestrator.profile.lines.dwarf_lines import SourceLines
from orchestrator.profile.lines.generated_lines import CodeLines
from orchestrator.profile.lines.kept_lines import kept_lines
from orchestrator.profile.lines.line_source import LineSource
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.profile.stored.profile_files import load_profile
from orchestrator.results.contract import CellRecord
from orchestrator.results.recorded_provenance import BootModule, BootProvenance, provenance_of


def stored_sources(
    context: BuildContext,
    directory: Path,
    cell: CellRecord,
    spec: Callable[[], KernelSpec],
    function: str | None = None,
) -> Sources:
    """The sources of a stored cell's code, or of its functions of one name; fetched or built on demand.

    What has none is said. ``spec`` finds the kernel, whose tree may be gone or hold another one by now. Raises LabError
    if nothing has any.
    """
    boot = next((provenance for provenance in provenance_of(directory).boots if provenance.has(cell)), None)
    if boot is None:
        raise NoDebugInfoError(f"the run does not record what cell {cell.id} was measured on", where=str(directory))
    sources: dict[str | None, LineSource] = {}
    failures: list[LabError] = []
    profile = None if cell.profile is None else load_profile(directory, cell)
    kept = kept_lines(directory, cell.kernel, boot.kernel.image_sha256)
    if kept is not None:
        sources[None] = kept
    if profile is not None and profile.code_lines:
        keys = [artifact.key[:8] for artifact in boot.inputs.get(cell.id, {}).values() if artifact.key.isalnum()]
        sources[GENERATED] = CodeLines(
            profile, [path for key in keys for path in (directory / "sources").glob(f"*-{key}")]
        )
    modules = [module for name, module in boot.modules.items() if name.partition(": ")[0] == cell.id]
    asked = None if function is None else _code_of(profile, function)
    for recorded in (*modules, *([None] if kept is None else [])):
        if asked is not None and (None if recorded is None else recorded.name) not in asked:
            continue  # a kernel's debug information has a gigabyte
        try:
            kernel = _measured_kernel(context, spec(), boot)
            if recorded is None:
                sources[None] = SourceLines.of_kernel(kernel_debug_info(context, kernel), kernel)
            else:
                module = _measured(context, directory / "modules" / kernel.spec.name, recorded)
                sources[module.name] = SourceLines.of_module(module_debug_info(context, kernel, module), kernel)
        except LabError as error:
            failures.append(error)
    if not sources and failures:
        raise failures[0]
    for failure in failures:
        context.say(f"no lines: {failure.what}{f' ({failure.hint})' if failure.hint else ''}")
    return sources


def _code_of(profile: CellProfile | None, function: str) -> Collection[str | None]:
    """The keys of the code that has functions of this name."""
    symbols = () if profile is None else profile.symbols
    return {source_key(symbol) for symbol in symbols if function in (symbol.name, symbol.title)}


def _measured_kernel(context: BuildContext, spec: KernelSpec, boot: BootProvenance) -> Kernel:
    kernel = ready_kernel(context, spec)
    if sha256_of(kernel.image) != boot.kernel.image_sha256:
        what = f"kernel {spec.name} is another build's than that of the run"
        raise NoDebugInfoError(what, where=str(kernel.image), hint="measure the cell again")
    return kernel


def _measured(context: BuildContext, kept: Path, module: BootModule) -> Module:
    """A stored cell's module in the cache, or a user's .ko in the run.

    The sources that the run has kept are not compiled: it may come from another machine. Raises NoDebugInfoError.
    """
    name, key, cache = module.name, module.key.partition("-")[0], context.cache.root
    places = [cache / "modules" / key, cache / "module-folders" / key, kept / f"{name}-{key[:8]}"]
    if re.fullmatch(r"\w{1,64}", name) and re.fullmatch(r"[0-9a-f]{24,64}", key):
        for place in places:
            file = place / f"{name}.ko"
            if file.is_file() and sha256_of(file) == module.file_sha256:
                return Module(name, file, module.key, None if place == places[-1] else place / "sources")
    raise NoDebugInfoError(f"module {name} of the run is not in the cache any more", hint="measure the cell again")
