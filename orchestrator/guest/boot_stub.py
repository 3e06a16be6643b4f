# SPDX-License-Identifier: GPL-2.0-only
"""Has the kernel's boot stub refused the guest's CPU? It says why, and halts for ever (arch/x86/boot/main.c, cpu.c).

It prints by the BIOS, before it knows of any console= of its command line. QEMU's qboot prints on the serial port;
SeaBIOS prints on a screen, which the guest has not. Then only the CPU shows it: halted in real mode outside the BIOS.
"""

from __future__ import annotations

import re

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError, UnsupportedError
from orchestrator.guest.console import Console
from orchestrator.guest.monitor import Monitor

_SILENCE = 5.0
"""Seconds without a word on the console after which the CPU is looked at; a kernel prints within three."""

_LAST_WORDS = "Unable to boot - please use a kernel appropriate for your CPU."
_REASON = "This kernel requires "

# x86_cpu_dump_state() of QEMU 7.2 and 10.0, target/i386/cpu-dump.c.
_HALTED = re.compile(r"\bHLT=1\b")
_SEGMENT = re.compile(r"^CS =[0-9a-f]{4} (?P<base>[0-9a-f]{8})", re.MULTILINE)
_CONTROL = re.compile(r"\bCR0=(?P<bits>[0-9a-f]{8})")
_PROTECTED = 0x1
_BIOS = 0xC0000
"""Where ROMs begin. The stub is below, in RAM, and a BIOS that waits for an interrupt in real mode is not."""


class BootStub:
    """The boot stub of a guest's kernel, while it boots."""

    def __init__(self, monitor: Monitor, console: Console, cpu: str) -> None:
        self._monitor, self._console, self._cpu = monitor, console, cpu
        self._silence = Deadline(_SILENCE)

    def check(self) -> None:
        """Raise UnsupportedError where it has refused the CPU."""
        lines = self._console.last_lines()
        said = any(_LAST_WORDS in line for line in lines)
        if not said and (lines or self._silence.left()):
            return
        self._silence = Deadline(_SILENCE)
        # A program can print these words as well.
        if not self._has_stopped():
            return
        why = (
            _reason(lines) if said else "its boot stub has stopped without a word, as it does for a CPU that it refuses"
        )
        raise UnsupportedError(
            f"the kernel does not boot on CPU '{self._cpu}': {why}",
            where=str(self._console.path) if said else "",
            detail=lines,
            hint="take another CPU (`cpu:` of a machine in an experiment, --cpu) or another kernel",
        )

    def _has_stopped(self) -> bool:
        try:
            return is_stopped_stub(self._monitor.human("info registers"))
        except GuestError:  # QEMU has ended, or is stopped itself: the wait for the agent tells
            return False


def is_stopped_stub(registers: str) -> bool:
    """Whether a CPU has halted in a boot stub, by what QEMU says to ``info registers``."""
    segment, control = _SEGMENT.search(registers), _CONTROL.search(registers)
    if segment is None or control is None or _HALTED.search(registers) is None:
        return False
    return not int(control["bits"], 16) & _PROTECTED and int(segment["base"], 16) < _BIOS


def _reason(lines: list[str]) -> str:
    """What the stub has said, as one sentence: missing features are on a line of their own."""
    said = [line.strip() for line in lines[: next(n for n, line in enumerate(lines) if _LAST_WORDS in line)]]
    first = next((n for n, line in enumerate(said) if line.startswith(_REASON)), None)
    return "it does not say why" if first is None else " ".join(said[first:]).rstrip(".")
