# SPDX-License-Identifier: GPL-2.0-only
"""A guest that works unattended: booted with its work, watched on the console, read from at the end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.unattended_initramfs import OUTPUT, STATUS, progress, write_work
from orchestrator.errors import EvidenceError, GuestError, GuestHang, UnsupportedError
from orchestrator.guest.console import QUOTED_LINES
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine
from orchestrator.probes.kernel_text import text_since
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.text_layout import Span, TextLayout
from orchestrator.profile.counted.places import kernel_start
from orchestrator.results.contract import TextEvidence, valid_result
from orchestrator.results.faults import storage_faults
from orchestrator.run.benchmark_kind import Session
from orchestrator.run.boot_events import GuestBooted
from orchestrator.run.guest_checks import (
    EARLY_CLOCKSOURCE,
    check_clocksource,
    check_cpus,
    permitted_taint,
    read_clocksource,
    wait_for_clocksource,
)
from orchestrator.steps import step

# The steps that unattended work prints: ``COMMAND NUMBERS: NAME=VALUE NAME=VALUE``.

_STEP = re.compile(r"([a-z]{1,16})((?: [a-z0-9]{1,16}){0,3}): ((?:[a-z0-9_]{1,32}=-?[0-9a-f]{1,20}(?: |$))+)")
_MOST_STEPS = 10_000
_QUOTED_AROUND = 5
"""Lines quoted before and after the unexpected one."""


@dataclass(frozen=True)
class ScriptStep:
    """One command of a module, its arguments, and its results."""

    command: str
    arguments: tuple[str, ...]
    values: Mapping[str, str]

    def number(self, name: str) -> int:
        """A number among the step's results. Raises EvidenceError if there is none of that name."""
        text = self.values.get(name, "")
        if not re.fullmatch(r"-?\d{1,18}", text):
            raise EvidenceError(f"step '{self}' has no number {name}")
        return int(text)

    def positive(self, name: str) -> int:
        number = self.number(name)
        if number <= 0:
            raise EvidenceError(f"step '{self}' has {name}={number}")
        return number

    def hexadecimal(self, name: str) -> str:
        text = self.values.get(name, "")
        if not re.fullmatch(r"[0-9a-f]{1,20}", text):
            raise EvidenceError(f"step '{self}' has no {name}")
        return text

    def __str__(self) -> str:
        return " ".join((self.command, *self.arguments))


def parse_steps(text: str) -> list[ScriptStep]:
    """The steps in order. Raises EvidenceError for any other output, quoting it."""
    steps: list[ScriptStep] = []
    for line in text.splitlines():
        match = _STEP.fullmatch(line)
        if match is None or len(steps) == _MOST_STEPS:
            refuse(text.splitlines(), len(steps), f"{line[:200]!r}")
        values = dict(pair.split("=", 1) for pair in match[3].split())
        steps.append(ScriptStep(match[1], tuple(match[2].split()), values))
    return steps


def refuse(lines: Sequence[str], at: int, why: str) -> NoReturn:
    """Raise EvidenceError with the reason why an output is invalid, and the lines around line ``at``."""
    around = [line[:200] for line in lines[max(0, at - _QUOTED_AROUND) : at + _QUOTED_AROUND]]
    raise EvidenceError(f"the work in the guest printed something unexpected: {why}", detail=around)


def of_command(steps: Sequence[ScriptStep], command: str, count: int) -> list[ScriptStep]:
    """The steps of one command, of which there must be ``count``."""
    script_steps = [step for step in steps if step.command == command]
    if len(script_steps) != count:
        raise EvidenceError(f"{len(script_steps)} steps '{command}' were made, not {count}")
    return script_steps


def counting_together(machine: Machine, text: int) -> Machine:
    """A machine whose plugin, if any, counts user space as one; the kernel's ``text`` begins there.

    A plugin of interface 1 does not see which program runs, and programs share addresses. Models of caches need each
    instruction.
    """
    if machine.counter is None or machine.counter.caches is not None:
        return machine
    return replace(machine, counter=replace(machine.counter, together_below=kernel_start(text)))


# The progress of an unattended guest: what it prints on its console, and its kernel's uptime.

_TICKS = "jiffies_64"
_BEFORE_WRAP = 300
"""Seconds: the kernel's count begins this long before 2**32 (INITIAL_JIFFIES in include/linux/jiffies.h)."""

_INTERVAL = 10.0
_SILENCE = 30.0
"""Seconds without output, such as from a guest that compiles a whole kernel for an hour."""


class WorkProgress:
    """Listens to a working guest's console and reports periodically; ``seconds`` reads the guest's clock."""

    def __init__(self, report: Callable[[str], None], what: str, seconds: Callable[[], int | None]) -> None:
        self._report, self._what, self._seconds = report, what, seconds
        self._reported = time.monotonic()
        self._said = ""
        self._reached: int | None = None

    def listen(self, lines: Sequence[str]) -> None:
        reported = [words for words in map(progress, lines) if words is not None]
        silent = time.monotonic() - self._reported
        is_due = silent > (_INTERVAL if reported else _SILENCE)
        if reported:
            self._said = reported[-1][:200]
        elif is_due:
            self._reached = self._seconds()
        if is_due:
            self._reported = time.monotonic()
            self._report(f"{self._what}: {self.reached}")

    @property
    def reached(self) -> str:
        after = None if self._reached is None else f"{self._reached} seconds of the guest's time"
        return ", ".join(filter(None, (self._said, after))) or "its beginning"


def kernel_seconds(guest: Guest, kernel: Kernel) -> int | None:
    """Whole seconds of timer ticks that a guest's kernel has counted, read from memory without its noticing.

    None before the kernel has its page tables, or if the count cannot be found.
    """
    address = None if kernel.code is None else kernel.code.address(_TICKS)
    rate = kernel.config.get("CONFIG_HZ", "")
    if address is None or not rate.isdecimal():
        return None
    try:
        ticks = int.from_bytes(guest.read_memory(address, 8), "little")
    except GuestError:
        return None
    seconds = (ticks - (1 << 32)) // int(rate) + _BEFORE_WRAP
    return seconds if seconds >= 0 else None


# An unattended guest: booted with its work, watched on its console, and read from at its end.

_REFUSED_PLACE = re.compile(
    r"lab_[a-z]+: (\w{1,64}\+0x[0-9a-f]{1,8})(?:/0x[0-9a-f]{1,8})?: "
    r"((?:an instruction under the jump|shorter than five) .{1,80}|not optimised: it cannot be)"
)
"""What a module says of a place without a djprobe (kmods/djprobe/djprobe_site.c), or whose kprobe is not optimised.

``images/unattended/runs.sh`` has let the kernel optimise it.
"""
_NOT_LOADED = "cannot load the module"
"""The last line of ``images/unattended/runs.sh`` then."""

FiguresT = TypeVar("FiguresT")


@dataclass(frozen=True)
class UnattendedWork(Generic[FiguresT]):
    """Unattended work: a script of ``images/unattended``, and the reader of its output.

    ``inputs`` identify the exact content of what it works on.
    """

    script: str
    settings: Mapping[str, int | str]
    files: Mapping[str, bytes | Path]
    read: Callable[[str], FiguresT]
    inputs: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def unattended_guest(
    session: Session, work: UnattendedWork[Any], what: str, time_limit: int
) -> Iterator[FinishedGuest]:
    """A guest that has completed its work, while results are read from it; it is killed at the end.

    ``what`` names the work for people, ``time_limit`` is in seconds without progress. Raises EvidenceError with the
    work's last lines, GuestError with its progress, and UnsupportedError if the kernel's symbols are not available to
    find its text, or the module cannot probe its places.
    """
    code = session.artifacts.kernel.code
    if code is None:
        raise UnsupportedError(
            f"what remains in the text of '{session.artifacts.kernel.spec.name}' cannot be checked: "
            "its vmlinux and System.map are not available"
        )
    span = TextLayout.of_kernel(Symbols.of_image(code)).text[0]
    before: list[bytes] = []
    directory, machine, cpu = session.task.directory, session.artifacts.machine, session.task.boot.guest.cpu
    name, kernel = session.guest_name(), session.artifacts.kernel.spec.name
    file = directory / f"{name}.initramfs"
    counting = counting_together(machine, span.start)
    guest = Guest(replace(counting, initramfs=file, works_alone=True), directory, name)
    progress = WorkProgress(
        session.report, f"{kernel}, {what}", lambda: kernel_seconds(guest, session.artifacts.kernel)
    )
    try:
        with storage_faults(directory), file.open("wb") as target:
            write_work(target, machine.initramfs, work.script, work.settings, work.files)
        guest.say = session.report
        session.watch(guest)
        session.report(f"booting {kernel} on {cpu} with {what} to do")
        try:
            guest.boot(time_limit, progress.listen, lambda: before.append(guest.read_memory(span.start, span.size)))
            file.unlink(missing_ok=True)
            session.emit(GuestBooted(name, guest.command_line, work.inputs))
            check_cpus(guest)
            if guest.get(STATUS).decode("ascii", errors="replace").strip() != "0":
                guest.check_console()
                detail = output_of(guest).splitlines()[-QUOTED_LINES:]
                if refusals := refused_places(detail):
                    raise UnsupportedError(f"the module refuses its places: {'; '.join(refusals)}")
                raise EvidenceError("the work in the guest failed", detail=detail)
            if not before:
                raise EvidenceError("the guest did not stop before its work, so what it changed is not known")
            yield FinishedGuest(guest, before[0], span)
        finally:
            guest.kill()
    except GuestError as error:
        slow = f"if it was only slow: --set time_limit={2 * time_limit}" if isinstance(error, GuestHang) else ""
        raise GuestError(
            f"{error.what}; the work had reached: {progress.reached}",
            where=error.where,
            detail=error.detail,
            hint=error.hint or slow,
        ) from None
    finally:
        file.unlink(missing_ok=True)


def refused_places(output: Sequence[str]) -> Sequence[str]:
    """The places that a module could not probe, with its reasons, if that ended the work; else none."""
    if not output or output[-1] != _NOT_LOADED:
        return ()
    places = map(_REFUSED_PLACE.search, output)
    return list(dict.fromkeys(": ".join(match.groups()) for match in places if match))


def output_of(guest: Guest) -> str:
    """What the work printed."""
    return guest.get(OUTPUT).decode("ascii", errors="replace")


class FinishedGuest(NamedTuple):
    """A guest that has worked, and the kernel's text before that: QEMU read it at ``span``."""

    guest: Guest
    text: bytes
    span: Span


class Ending(NamedTuple):
    """A guest's state after its work: the kernel's taint mask, and the evidence on its text."""

    taint: int
    text: TextEvidence


def collect_proof(finished: FinishedGuest, own_taint: int = 0) -> Ending:
    """Check what the work has left. Raises EvidenceError if other things went wrong, or text changed for good.

    ``own_taint`` is what the work itself taints the kernel with. Raises UnsupportedError if the kernel is of another
    build than its symbols.
    """
    guest = finished.guest
    guest.check_console()
    # The kernel changes it a second of its own time after boot, and a short work may end earlier. On an idle host that
    # second passes while the guest waits for the host; on a busy one it had not.
    if read_clocksource(guest) == EARLY_CLOCKSOURCE:
        wait_for_clocksource(guest)
    check_clocksource(guest)
    taint = permitted_taint(guest, own_taint)
    with step("compare the kernel's text with what it was"), valid_result():
        return Ending(taint, text_since(guest, finished.text, finished.span))
