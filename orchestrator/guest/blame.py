# SPDX-License-Identifier: GPL-2.0-only
"""Blame: the function responsible for a report, as Linux 5.10 to 7.3 print it on x86."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import dropwhile

from orchestrator.catalog.data import CatalogEntry, matches_any, read
from orchestrator.guest.kernel_reports import FRAME, FUNCTION, is_dump, sign_in


class ReportingFunctions(CatalogEntry):
    """Patterns of function names: those that ``report``, those that ``serve`` their caller, and the ``idle`` ones."""

    report: list[str]
    serve: list[str]
    idle: list[str]


@lru_cache(maxsize=1)
def reporting_functions() -> ReportingFunctions:
    """The catalogue's."""
    return ReportingFunctions.model_validate(read("reporting_functions.yaml"))


# A place inside a message; at the beginning it is a frame. A lock's place is where the lock was taken.
_PLACE = re.compile(rf"(?:[^\s\]>?] |[(=])(?<! at: )(?<!lock: ){FUNCTION}")

_WARNING = re.compile(r"\bWARNING: ")

# Named without an offset (%ps): a module's function, or the name after words of kernel/workqueue.c and kcsan.
_MODULES_OWN = re.compile(r"\b(?P<name>[A-Za-z_]\w{0,511}) \[(?P<module>[A-Za-z_]\w{0,63})(?: [0-9a-f]{1,64})?\]")

_WITHOUT_OFFSET = re.compile(
    r"(?:\bBUG: KCSAN: [\w -]{1,60} in |\blast function: |\bworkfn=|\bin-flight: \d+(?:\(RESCUER\))?:|"
    r"(?:^(?:<\d>)?|\] )\[<[0-9a-f]{8,16}>\] )(?P<name>[A-Za-z_]\w{0,511})(?!\w*[.+])"
    r"(?: \[(?P<module>\w{1,64})[^\]]{0,64}\])?"
)

# do_init_module() of kernel/module/main.c.
_INIT = re.compile(r"'(?P<module>\w{1,64})'->(?P<name>init) suspiciously returned")

# In kernel code, which 64-bit kernels show by its segment: show_iret_regs() of arch/x86/kernel/dumpstack.c. User code
# has no symbols.
_POINTER = re.compile(r"\b(?:RIP: 0010:|EIP: |IP: \[<[0-9a-f]{8,16}>\] )" + FUNCTION)

# "(acquired here) at: " of lockdep: the requested lock comes first (kernel/locking/lockdep.c, print_lock()).
_ASKED = re.compile(r"\bis trying to (?:acquire|release)\b|\[HC\d\[\d+\]:SC\d\[\d+\]:HE\d:SE\d\] takes:")

_LOCK = re.compile(r" at: " + FUNCTION)

_MODULES_FRAME = re.compile(rf"(?=.*\+0x[0-9a-f]{{1,16}}/0x[0-9a-f]{{1,16}} \[){FRAME.pattern}")

# Of a panic: skip all frames up to this one. A console that a channel uses may have damaged names before it.
_PANIC_FRAME = re.compile(r"\bv?panic\+0x[0-9a-f]{1,16}/0x[0-9a-f]{1,16}")


def culprit_of(lines: Sequence[str]) -> str | None:
    """The function that a report blames, ``name`` or ``name [module]``; None if it names none.

    It is the one named in the message, else where the CPU was, else the first frame of the call trace, in each case
    without functions that report or serve their caller. A module's function is never one of those, whatever its name.
    """
    known = reporting_functions()
    for name, module in _named(lines):
        if module:
            return f"{name} [{module}]"
        if not matches_any(name, (*known.report, *known.serve, *known.idle)):
            return name
    return None


def interrupted_at(lines: Sequence[str]) -> Sequence[str]:
    """The lines about an interrupt from the CPU's place on, without the interrupt's own."""
    return list(dropwhile(lambda line: not _POINTER.search(line), lines)) or lines[1:]


def is_idle(lines: Sequence[str]) -> bool:
    """Whether the CPU of a report was waiting for work."""
    places = (match["name"] for line in lines for pattern in (_POINTER, FRAME) if (match := pattern.search(line)))
    return any(matches_any(name, reporting_functions().idle) for name in places)


def _named(lines: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Functions with their modules, the most telling first."""
    message = lines[: next((number for number, line in enumerate(lines) if is_dump(line)), len(lines))]
    sentences = [line for line in message if not _WARNING.search(line)]
    asked = next((number for number, line in enumerate(lines) if _ASKED.search(line)), len(lines))
    panic = next((number for number, line in enumerate(lines) if _PANIC_FRAME.search(line)), 0)
    for pattern, part in (
        *((pattern, sentences) for pattern in (_PLACE, _MODULES_OWN, _INIT)),
        (_WITHOUT_OFFSET, lines),
        (_PLACE, message),  # WARN()'s own place is that of the check
        (_POINTER, lines),
        (_LOCK, lines[asked:]),
        # Without a known first line, a kernel function complains about its caller.
        (_MODULES_FRAME, [] if any(map(sign_in, lines)) else lines),
        (FRAME, lines[panic:]),
    ):
        for line in part:
            if match := pattern.search(line):
                yield match["name"], match["module"]
