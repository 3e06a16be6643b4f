# SPDX-License-Identifier: GPL-2.0-only
"""Which function is to blame for what a kernel reports? Linux 6.1 and 6.12 on x86 print it so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from orchestrator.catalog.reporting_functions import reporting_functions

# Behind the name is what GCC adds to that of a part or a copy of a function: ".cold", ".isra.0", ".constprop.0".
_FUNCTION = (
    r"(?P<name>[A-Za-z_]\w{0,255})(?:\.[\w.]{1,64})?\+0x[0-9a-f]{1,16}/0x[0-9a-f]{1,16}"
    r"(?: \[(?P<module>\w{1,64})\])?"
)

# What names a function in a sentence: the report is about that one, whoever prints it.
_SENTENCES = tuple(
    re.compile(pattern + _FUNCTION)
    for pattern in (
        r"\bBUG: K[A-Z]+: [\w -]{1,60} in ",  # KASAN, KMSAN, KFENCE (mm/kasan/report.c, mm/kfence/report.c)
        r"\bWARNING: CPU: \d+ PID: \d+ at \S{1,256} ",  # kernel/panic.c, __warn()
    )
)
_DATA_RACE = re.compile(r"\bBUG: KCSAN: [\w -]{1,60} in (?P<name>[A-Za-z_][\w.]{0,255})(?P<module>)")

# Of the kernel's code, which 64 bit says by its segment: show_iret_regs() of arch/x86/kernel/dumpstack.c. In user mode
# there are no symbols.
_POINTER = re.compile(r"\b(?:RIP: 0010:|EIP: |IP: \[<[0-9a-f]{8,16}>\] )" + _FUNCTION)
# "(acquired here) at: " of lockdep: the lock that is asked for comes first (kernel/locking/lockdep.c, print_lock()).
_ASKED = re.compile(r"\bis trying to (?:acquire|release) lock\b|\[HC\d\[\d+\]:SC\d\[\d+\]:HE\d:SE\d\] takes:")
_LOCK = re.compile(r" at: " + _FUNCTION)
# Of a panic: all frames until it tell of it. A console over which a channel runs may have a damaged name there.
_PANIC_FRAME = re.compile(r"\bpanic\+0x[0-9a-f]{1,16}/0x[0-9a-f]{1,16}")
# A frame with a question mark is a word on the stack that may be a return address of an earlier call.
_FRAME = re.compile(r"(?:^|\]) {1,3}(?:\[<[0-9a-f]{8,16}>\] )?" + _FUNCTION + r"$")


def guilty_function(lines: Sequence[str]) -> str | None:
    """The function that a report is about, ``name`` or ``name [module]``; None where it names none.

    That is the one in its sentence, else where the CPU was, else the first frame of its call trace, whichever of these
    neither reports nor serves its caller. A module's function is never one of those, whatever its name.
    """
    known = reporting_functions()
    for name, module in _named(lines):
        if module:
            return f"{name} [{module}]"
        if not known.has(name):
            return name
    return None


def is_idle(lines: Sequence[str]) -> bool:
    """Whether the CPU that a report is of was waiting for work."""
    places = (found["name"] for line in lines for pattern in (_POINTER, _FRAME) if (found := pattern.search(line)))
    return any(reporting_functions().is_idle(name) for name in places)


def _named(lines: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Functions and their modules, the most telling first."""
    for patterns in (_SENTENCES, (_DATA_RACE,), (_POINTER,)):
        for line in lines:
            for pattern in patterns:
                if found := pattern.search(line):
                    yield found["name"], found["module"]
    asked = next((number for number, line in enumerate(lines) if _ASKED.search(line)), len(lines))
    panic = next((number for number, line in enumerate(lines) if _PANIC_FRAME.search(line)), 0)
    for pattern, part in ((_LOCK, lines[asked:]), (_FRAME, lines[panic:])):
        for line in part:
            if found := pattern.search(line):
                yield found["name"], found["module"]
