# SPDX-License-Identifier: GPL-2.0-only
"""Which function is to blame for what a kernel reports? Linux 5.10 to 7.3 on x86 print it so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile

from orchestrator.catalog.reporting_functions import reporting_functions
from orchestrator.guest.kernel_reports import FRAME, FUNCTION, is_dump, sign_in

# A place in a message, not at its beginning: there it is a frame. What is at a lock's place took that lock.
_PLACE = re.compile(rf"(?:[^\s\]>?] |[(=])(?<! at: )(?<!lock: ){FUNCTION}")
_WARNING = re.compile(r"\bWARNING: ")
# Named without an offset (%ps): a function of a module, and what stands behind words of kernel/workqueue.c and kcsan.
_MODULES_OWN = re.compile(r"\b(?P<name>[A-Za-z_]\w{0,511}) \[(?P<module>[A-Za-z_]\w{0,63})(?: [0-9a-f]{1,64})?\]")
_WITHOUT_OFFSET = re.compile(
    r"(?:\bBUG: KCSAN: [\w -]{1,60} in |\blast function: |\bworkfn=|\bin-flight: \d+(?:\(RESCUER\))?:|"
    r"(?:^(?:<\d>)?|\] )\[<[0-9a-f]{8,16}>\] )(?P<name>[A-Za-z_]\w{0,511})(?!\w*[.+])"
    r"(?: \[(?P<module>\w{1,64})[^\]]{0,64}\])?"
)
# do_init_module() of kernel/module/main.c.
_INIT = re.compile(r"'(?P<module>\w{1,64})'->(?P<name>init) suspiciously returned")

# Of the kernel's code, which 64 bit says by its segment: show_iret_regs() of arch/x86/kernel/dumpstack.c. In user mode
# there are no symbols.
_POINTER = re.compile(r"\b(?:RIP: 0010:|EIP: |IP: \[<[0-9a-f]{8,16}>\] )" + FUNCTION)
# "(acquired here) at: " of lockdep: the lock that is asked for comes first (kernel/locking/lockdep.c, print_lock()).
_ASKED = re.compile(r"\bis trying to (?:acquire|release)\b|\[HC\d\[\d+\]:SC\d\[\d+\]:HE\d:SE\d\] takes:")
_LOCK = re.compile(r" at: " + FUNCTION)
_MODULES_FRAME = re.compile(rf"(?=.*\+0x[0-9a-f]{{1,16}}/0x[0-9a-f]{{1,16}} \[){FRAME.pattern}")
# Of a panic: all frames until it tell of it. A console over which a channel runs may have a damaged name there.
_PANIC_FRAME = re.compile(r"\bv?panic\+0x[0-9a-f]{1,16}/0x[0-9a-f]{1,16}")


def guilty_function(lines: Sequence[str]) -> str | None:
    """The function that a report is about, ``name`` or ``name [module]``; None where it names none.

    That is the one that its message names, else where the CPU was, else the first frame of its call trace, whichever of
    these neither reports nor serves its caller. A module's function is never one of those, whatever its name.
    """
    known = reporting_functions()
    for name, module in _named(lines):
        if module:
            return f"{name} [{module}]"
        if not known.has(name):
            return name
    return None


def interrupted_at(lines: Sequence[str]) -> Sequence[str]:
    """The lines about an interrupt from where the CPU was, without what the kernel says of the interrupt itself."""
    return list(dropwhile(lambda line: not _POINTER.search(line), lines)) or lines[1:]


def is_idle(lines: Sequence[str]) -> bool:
    """Whether the CPU that a report is of was waiting for work."""
    places = (found["name"] for line in lines for pattern in (_POINTER, FRAME) if (found := pattern.search(line)))
    return any(reporting_functions().is_idle(name) for name in places)


def _named(lines: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Functions and their modules, the most telling first."""
    message = lines[: next((number for number, line in enumerate(lines) if is_dump(line)), len(lines))]
    said = [line for line in message if not _WARNING.search(line)]
    asked = next((number for number, line in enumerate(lines) if _ASKED.search(line)), len(lines))
    panic = next((number for number, line in enumerate(lines) if _PANIC_FRAME.search(line)), 0)
    for pattern, part in (
        *((pattern, said) for pattern in (_PLACE, _MODULES_OWN, _INIT)),
        (_WITHOUT_OFFSET, lines),
        (_PLACE, message),  # of WARN(): its own place is that of whoever checks
        (_POINTER, lines),
        (_LOCK, lines[asked:]),
        # Without a line that is known, some function of the kernel's complains of its caller.
        (_MODULES_FRAME, [] if any(map(sign_in, lines)) else lines),
        (FRAME, lines[panic:]),
    ):
        for line in part:
            if found := pattern.search(line):
                yield found["name"], found["module"]
