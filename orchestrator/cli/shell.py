# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator shell``: the guest's console, for a person."""

from __future__ import annotations

import sys

import typer

from orchestrator.cli import guest_modules, one_guest, options
from orchestrator.cli.failures import expected_failures


@expected_failures
def shell(
    kernel: one_guest.Kernel = None,
    image: one_guest.Image = None,
    data: one_guest.Data = None,
    cpu: one_guest.Cpu = None,
    smp: one_guest.Smp = 1,
    memory: one_guest.Memory = 256,
    accel: one_guest.AccelOption = one_guest.Accel.AUTO,
    module: guest_modules.Modules = None,
    param: guest_modules.Parameters = None,
    set_values: guest_modules.Values = None,
    allow_oops: one_guest.AllowOops = None,
    console: one_guest.ConsoleLog = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Boot a guest and give its console to the terminal. `exit` or Ctrl-] ends it.

    Where its kernel has reported trouble, or the console shows such a report, the status is 1.
    """
    from orchestrator.errors import GuestOops, UsageError
    from orchestrator.guest.terminal import ESCAPE_KEY, attend

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "a shell needs a terminal", hint="for a command and its output: orchestrator exec -- COMMAND..."
        )
    expected = one_guest.expected_reports(allow_oops or [])
    wanted = guest_modules.GuestModules(module or [], param or [], set_values or [])
    choice = one_guest.Choice(
        kernel, cpu, smp, memory, accel, wanted, offline, image=image, data=data or [], expected=expected
    )
    with options.printed_steps(verbose=verbose):
        machine = choice.machine()
        print(f"booting {machine.cpu.title}; `exit` or {ESCAPE_KEY} ends the guest", file=sys.stderr, flush=True)
        with one_guest.log_folder(console) as directory:
            try:
                attend(machine, directory, choice.prepare)
            except GuestOops as trouble:
                raise one_guest.reported(trouble, directory / "guest.console") from None
    print("\nthe guest has ended", file=sys.stderr)
    raise typer.Exit(0)
