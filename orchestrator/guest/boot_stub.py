# SPDX-License-Identifier: GPL-2.0-only
"""Detecting that the kernel's boot stub refused the CPU. It prints why and halts (arch/x86/boot/main.c, cpu.c).

It prints through the BIOS, before it parses console=. QEMU's qboot prints on the serial port; SeaBIOS prints on a
screen, which the guest lacks. Then only the CPU's state shows it: halted in real mode outside of the BIOS.
"""

from __future__ import annotations

import re

from orchestrator.deadline import Deadline
from orchestrator.errors import (
    GuestError,
    UnsupportedError,
)
from orchestrator.guest.console import (
    Console,
)
from orchestrator.guest.monitor import Monitor

_STUB_SILENCE = 5.0
"""Seconds without console output after which the CPU is examined; a kernel prints within three."""


_LAST_WORDS = "Unable to boot - please use a kernel appropriate for your CPU."


_REASON = "This kernel requires "


# x86_cpu_dump_state() of QEMU 7.2 and 10.0, target/i386/cpu-dump.c.
_HALTED = re.compile(r"\bHLT=1\b")


_SEGMENT = re.compile(r"^CS =[0-9a-f]{4} (?P<base>[0-9a-f]{8})", re.MULTILINE)


_CONTROL = re.compile(r"\bCR0=(?P<bits>[0-9a-f]{8})")


_PROTECTED = 0x1


_BIOS = 0xC0000
"""Where ROMs begin. The stub is in RAM below; a BIOS waiting for an interrupt in real mode is above."""


class BootStub:
    """The boot stub of a booting guest's kernel."""

    def __init__(self, monitor: Monitor, console: Console, cpu: str) -> None:
        self._monitor, self._console, self._cpu = monitor, console, cpu
        self._silence = Deadline(_STUB_SILENCE)

    def check(self) -> None:
        """Raise UnsupportedError if the stub has refused the CPU."""
        lines = self._console.last_lines()
        has_complained = any(_LAST_WORDS in line for line in lines)
        if not has_complained and (lines or self._silence.left()):
            return
        self._silence = Deadline(_STUB_SILENCE)
        try:
            if not is_stopped_stub(self._monitor.human("info registers")):
                return  # a program may have printed these words
        except GuestError:  # QEMU has ended or is stopped; the wait for the agent reports it
            return
        why = (
            _reason(lines)
            if has_complained
            else "its boot stub has stopped silently, as it does for a CPU that it refuses"
        )
        raise UnsupportedError(
            f"the kernel does not boot on CPU '{self._cpu}': {why}",
            where=str(self._console.path) if has_complained else "",
            detail=lines,
            hint="use another CPU (`cpu:` of a machine in an experiment, --cpu) or another kernel",
        )


def is_stopped_stub(registers: str) -> bool:
    """Whether a CPU has halted in a boot stub, from the output of ``info registers``."""
    segment, control = _SEGMENT.search(registers), _CONTROL.search(registers)
    if segment is None or control is None or _HALTED.search(registers) is None:
        return False
    return not int(control["bits"], 16) & _PROTECTED and int(segment["base"], 16) < _BIOS


def _reason(lines: list[str]) -> str:
    """The stub's message as one sentence; it prints missing features on a separate line."""
    message = [line.strip() for line in lines[: next(n for n, line in enumerate(lines) if _LAST_WORDS in line)]]
    first = next((n for n, line in enumerate(message) if line.startswith(_REASON)), None)
    return "it does not say why" if first is None else " ".join(message[first:]).rstrip(".")
