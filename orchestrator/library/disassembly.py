# SPDX-License-Identifier: GPL-2.0-only
"""A kernel function's instructions, and the probes that each can take, which a guest of the kernel is asked."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernel_code import FUNCTION_TYPES, KernelCode
from orchestrator.artifacts.module_source import render
from orchestrator.artifacts.modules import build_modules
from orchestrator.artifacts.ready_kernels import CODE_HINT, Kernel, ready_kernel
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import BuildError, HostError, LabError, UsageError
from orchestrator.experiment.guest_spec import guest_spec, usual_cpu
from orchestrator.library.function_probes import Disassembly
from orchestrator.library.running_guest import running_guest
from orchestrator.probes.place_answers import PlaceAnswers
from orchestrator.probes.placement import FunctionPlaces, answered, places_of
from orchestrator.probes.point_check import wrong_point_reason


def disassembly(
    context: BuildContext, name: str, function: str, cpu: str | None = None, *, asks_guest: bool = True
) -> Disassembly:
    """The instructions of a function of a kernel, given by its name or the path of a build tree.

    If no guest can be asked, the disassembly says why. Raises UsageError for an unknown kernel, CPU or function,
    HostError without the kernel's code.
    """
    symbol = function.partition("+")[0]
    if symbol != function or not symbol:
        hint = f"name {symbol}" if symbol else ""
        raise UsageError(f"found '{function}'; expected a kernel function, such as vfs_read", hint=hint)
    spec = kernel_spec(name)
    kernel = ready_kernel(context, spec)
    code = _code(kernel, symbol)
    places = places_of(code, kernel.config, symbol)
    assert places is not None  # _code() has checked
    function_code = Disassembly.of(spec.name, kernel.release, code, places)
    answers_of = PlaceAnswers(context.cache, kernel, usual_cpu(spec) if cpu is None else cpu)
    function_code = replace(function_code, function=answers_of.known_of(function_code.function))
    if not asks_guest:
        return function_code
    try:
        answers, guest = _answers(context, kernel, name, cpu, function_code.function)
    except UsageError:
        raise
    except LabError as error:
        return replace(function_code, source=f"No guest has answered: {error.what}. ? is known only after a boot.")
    answers_of.keep_all(function_code.function, answers)
    return replace(function_code, function=answers, source=f"Answered by a guest of this kernel on {guest}.")


def _answers(
    context: BuildContext, kernel: Kernel, name: str, cpu: str | None, function: FunctionPlaces
) -> tuple[FunctionPlaces, str]:
    """The places with the answers of a guest, and the guest's CPU. Raises LabError."""
    (module,) = build_modules(context, kernel, [render("places", {})])
    if isinstance(module, BuildError):
        raise module
    with running_guest(context, guest_spec({"kernel": name, "cpu": cpu})) as guest:
        return answered(guest, module, function), guest.machine.cpu.name


def _code(kernel: Kernel, symbol: str) -> KernelCode:
    """The code of a kernel with a function. Raises HostError without an image, UsageError for an unknown function."""
    code = kernel.code
    if code is None:
        raise HostError(
            f"the code of kernel {kernel.spec.name} is not available",
            where=str(kernel.spec.tree or kernel.image),
            hint=CODE_HINT,
        )
    reason = wrong_point_reason(code, symbol, None)
    if reason is not None:
        types = [known.type for known in code.named(symbol)]
        hint = "" if types else "a module's function is not in the image"
        if sum(symbol_type in FUNCTION_TYPES for symbol_type in types) > 1:
            hint = "name a function whose name is unique in the kernel"
        raise UsageError(f"kernel {kernel.spec.name}: {reason}", hint=hint)
    return code
