# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator shell``: the guest's console, for a person."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import guest_modules, one_guest, options
from orchestrator.cli.failures import expected_failures
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    import re

    from orchestrator.guest.guest import Guest
    from orchestrator.guest.terminal import Watch


Saved = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Go on with the guest of a failed test, which pytest --qemu-keep has saved."),
]


@expected_failures
def shell(
    kernel: one_guest.Kernel = None,
    image: one_guest.Image = None,
    data: one_guest.Data = None,
    kernel_modules: one_guest.KernelModules = False,
    cpu: one_guest.Cpu = None,
    smp: one_guest.Smp = 1,
    memory: one_guest.Memory = one_guest.USUAL_MIB,
    accel: one_guest.AccelOption = one_guest.Accel.AUTO,
    module: guest_modules.Modules = None,
    param: guest_modules.Parameters = None,
    set_values: guest_modules.Values = None,
    allow_oops: one_guest.AllowOops = None,
    console: one_guest.ConsoleLog = None,
    fresh: one_guest.Fresh = False,
    saved: Saved = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Start a guest and give its console to the terminal. `exit` or Ctrl-] ends it.

    Where its kernel has reported trouble or become tainted by it, or the console shows such a report, the status is 1.
    """
    from orchestrator.errors import GuestOops, UsageError
    from orchestrator.guest.terminal import ESCAPE_KEY, attend
    from orchestrator.run.started_guest import GuestStart

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a shell needs a terminal", hint=f"for a command and its output: {PROGRAM} exec -- COMMAND...")
    expected = one_guest.expected_reports(allow_oops or [])
    one_guest.check_log_folder(console)
    if saved is not None:
        others = (kernel, image, data, kernel_modules, cpu, module, param, set_values, fresh)
        if any(others) or (smp, memory) != (1, one_guest.USUAL_MIB):
            raise UsageError("the guest of --saved is the machine that it was", hint="leave out the other options")
        with options.printed_steps(verbose=verbose), one_guest.log_folder(console) as directory:
            _reopen(saved, directory, expected)
        raise typer.Exit(0)
    wanted = guest_modules.GuestModules(module or [], param or [], set_values or [])
    choice = one_guest.Choice(
        *(kernel, cpu, smp, memory, accel, wanted),
        image=image,
        data=data or [],
        expected=expected,
        kernel_modules=kernel_modules,
    )
    with options.printed_steps(verbose=verbose):
        context = options.open_context(offline=offline)
        machine = choice.machine(context)
        print(f"starting {machine.cpu.title}; `exit` or {ESCAPE_KEY} ends the guest", file=sys.stderr, flush=True)
        with one_guest.log_folder(console) as directory:

            def start(terminal: str, watch: Watch) -> Guest:
                begin = GuestStart(context, machine, directory, watch=watch, terminal=terminal)
                return begin.booted() if fresh else begin.ready()

            try:
                attend(start, choice.prepare)
            except GuestOops as trouble:
                raise one_guest.reported(trouble, directory / "guest.console") from None
    print("\nthe guest has ended", file=sys.stderr)
    raise typer.Exit(0)


def _reopen(file: Path, directory: Path, expected: Sequence[re.Pattern[str]]) -> None:
    """Give the terminal the console of a kept guest. Raises GuestError, UsageError, HostError."""
    from orchestrator.artifacts.kept_guests import kept_guest
    from orchestrator.errors import GuestOops
    from orchestrator.guest.guest import Guest
    from orchestrator.guest.terminal import ESCAPE_KEY, attend
    from orchestrator.scratch import ScratchFolder

    with (
        ScratchFolder("orchestrator-kept-") as unpacked,
        kept_guest(file, unpacked) as (machine, saved),
    ):
        print(f"going on with {file}; `exit` or {ESCAPE_KEY} ends the guest", file=sys.stderr, flush=True)

        def start(terminal: str, watch: Watch) -> Guest:
            guest = Guest(machine, directory, terminal=terminal)
            guest.expected_reports = expected
            guest.say = options.say
            watch(guest)
            guest.reopen(saved)
            return guest

        try:
            attend(start, lambda guest: None)
        except GuestOops as trouble:
            raise one_guest.reported(trouble, directory / "guest.console") from None
    print("\nthe guest has ended", file=sys.stderr)
