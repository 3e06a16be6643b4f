# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator disasm``: a function's instructions, and which probes can be at each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion, guest_modules, one_guest, options
from orchestrator.cli.failures import expected_failures
from orchestrator.cli.profile_forms import Form, FormOption, print_profiles
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from orchestrator.artifacts.build_context import BuildContext
    from orchestrator.artifacts.kernel_code import KernelCode
    from orchestrator.artifacts.kernels import Kernel
    from orchestrator.probes.placement import FunctionPlaces

_RANGE = r"(?P<symbol>[^+]*)(?:\+(?P<first>[^.]*)(?:\.\.(?P<last>.*))?)?"
_OFFSET = r"0x[0-9a-fA-F]{1,6}|[0-9]{1,7}"


@expected_failures
def disasm(
    name: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL",
            help="A kernel's name, or the path of a build tree of your own.",
            autocompletion=completion.kernels,
        ),
    ],
    function: Annotated[
        str, typer.Argument(metavar="FUNCTION", help="A function of it, or a part: vfs_read+0x10..0x40.")
    ],
    cpu: one_guest.Cpu = None,
    no_guest: Annotated[bool, typer.Option("--no-guest", help="Start no guest: what only it knows is ?.")] = False,
    form: FormOption = Form.TABLE,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Print a function's instructions, and which probes a guest's kernel takes at each."""
    from dataclasses import replace

    from orchestrator.artifacts.kernels import ready_kernel
    from orchestrator.catalog.kernels import kernel as kernel_spec
    from orchestrator.errors import LabError, UsageError
    from orchestrator.probes.placement import places_of
    from orchestrator.profile.probe_places import Disassembly

    symbol, bounds = _place(function)
    spec = kernel_spec(name)
    context = options.open_context(offline=offline)
    with options.printed_steps(verbose=verbose):
        kernel = ready_kernel(context, spec)
    code = _code(kernel)
    _check(kernel, code, symbol)
    places = places_of(code, kernel.config, symbol)
    assert places is not None  # _check() has asked
    found = Disassembly.of(spec.name, kernel.release, code, places)
    if bounds is not None:
        found = found.part(*bounds)
        if not found.text:
            raise UsageError(
                f"no instruction of {symbol} begins between +{bounds[0]:#x} and +{bounds[1]:#x}",
                hint=f"{PROGRAM} disasm {spec.argument} {symbol} lists all of them",
            )
    if not no_guest:
        try:
            with options.printed_steps(verbose=verbose):
                answers, guest = _answered(context, kernel, name, cpu, found.function)
            found = replace(found, function=answers, source=f"Answered by a guest of this kernel on {guest}.")
        except UsageError:
            raise
        except LabError as error:
            found = replace(found, source=f"No guest could be asked: {error.what}. ? is not known before a boot.")
    print_profiles("Disassembly", form, lambda: [found.sheet()], lambda: [found.json().model_dump()])


def _answered(
    context: BuildContext, kernel: Kernel, name: str, cpu: str | None, function: FunctionPlaces
) -> tuple[FunctionPlaces, str]:
    """The places with the answers of a guest, restored where one can be, and the guest's CPU. Raises LabError."""
    from orchestrator.artifacts.module_source import render
    from orchestrator.artifacts.modules import build_modules
    from orchestrator.errors import BuildError
    from orchestrator.probes.placement import answered
    from orchestrator.run.started_guest import started
    from orchestrator.scratch import ScratchFolder

    (module,) = build_modules(context, kernel, [render("places", {})])
    if isinstance(module, BuildError):
        raise module
    choice = one_guest.Choice(
        name, cpu, 1, one_guest.USUAL_MIB, one_guest.Accel.AUTO, guest_modules.GuestModules([], [], [])
    )
    machine = choice.machine(context)
    with ScratchFolder("orchestrator-disasm-") as directory, started(context, machine, directory) as guest:
        return answered(guest, module, function), machine.cpu.name


def _place(function: str) -> tuple[str, tuple[int, int] | None]:
    """The function, and the offsets of the part that is asked for. Raises UsageError."""
    import re

    from orchestrator.errors import UsageError

    found = re.fullmatch(_RANGE, function)
    if found is None or not found["symbol"]:
        raise UsageError(f"found '{function}'; expected a kernel function, such as vfs_read")
    symbol, first, last = found.group("symbol", "first", "last")
    if first is None:
        return symbol, None
    if last is None and re.fullmatch(_OFFSET, first):
        place = int(first, 0)
        raise UsageError(
            f"found '{function}', a place in a function; expected the function",
            hint=f"name {symbol}, or a part of it: {symbol}+{place:#x}..{place + 0x10:#x}",
        )
    if last is None or not (re.fullmatch(_OFFSET, first) and re.fullmatch(_OFFSET, last)):
        raise UsageError(f"found '{function}'; expected a function, or a part of one, such as vfs_read+0x10..0x40")
    bounds = int(first, 0), int(last, 0)
    if bounds[0] > bounds[1]:
        raise UsageError(f"found '{function}', whose part ends before it begins")
    return symbol, bounds


def _code(kernel: Kernel) -> KernelCode:
    """The kernel's image. Raises HostError where it is not at hand."""
    from orchestrator.errors import HostError

    code = kernel.code
    if code is None:
        raise HostError(
            f"the code of kernel {kernel.spec.name} is not at hand",
            where=str(kernel.spec.tree or kernel.image),
            hint="a build tree of your own needs its vmlinux and System.map, or a bzImage packed by gzip, xz or zstd",
        )
    return code


def _check(kernel: Kernel, code: KernelCode, symbol: str) -> None:
    """Raise UsageError for what is no function of the kernel's, or several."""
    from orchestrator.artifacts.kernel_code import FUNCTION_TYPES
    from orchestrator.errors import UsageError
    from orchestrator.probes.static_point import wrong_point_reason

    reason = wrong_point_reason(code, symbol, None)
    if reason is not None:
        types = [one.type for one in code.named(symbol)]
        hint = "" if types else "a module's function is not in the image"
        if sum(one in FUNCTION_TYPES for one in types) > 1:
            hint = "name a function whose name the kernel has once"
        raise UsageError(f"kernel {kernel.spec.name}: {reason}", hint=hint)
