# SPDX-License-Identifier: GPL-2.0-only
"""A guest that does its work by itself: started with it, watched on its console, read from at its end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from orchestrator.artifacts.boot_files import OUTPUT, STATUS, progress, write_work
from orchestrator.artifacts.kernels import Kernel
from orchestrator.errors import EvidenceError, GuestError, GuestHang, UnsupportedError
from orchestrator.guest.console import QUOTED_LINES
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine
from orchestrator.probes.kernel_text import Span, TextLayout, text_since
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.places import kernel_start
from orchestrator.results.contract import TextEvidence, valid_result
from orchestrator.results.faults import storage_faults
from orchestrator.run.boot import GuestBooted, Session
from orchestrator.run.guests import (
    EARLY_CLOCKSOURCE,
    check_clocksource,
    check_cpus,
    permitted_taint,
    read_clocksource,
    wait_for_clocksource,
)
from orchestrator.steps import step

# What a guest's unattended work printed, step by step: ``COMMAND NUMBERS: NAME=VALUE NAME=VALUE``.

_STEP = re.compile(r"([a-z]{1,16})((?: [a-z0-9]{1,16}){0,3}): ((?:[a-z0-9_]{1,32}=-?[0-9a-f]{1,20}(?: |$))+)")
_MOST_STEPS = 10_000
_QUOTED_AROUND = 5
"""Lines before and behind the one that was not expected."""


@dataclass(frozen=True)
class Step:
    """One command of a module, its arguments, and what it came to."""

    command: str
    arguments: tuple[str, ...]
    values: Mapping[str, str]

    def number(self, name: str) -> int:
        """A whole number that the step came to. Raises EvidenceError where it has none of that name."""
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


def parse_steps(text: str) -> list[Step]:
    """The steps in their order. Raises EvidenceError for anything else that was printed, quoting it."""
    steps: list[Step] = []
    for line in text.splitlines():
        match = _STEP.fullmatch(line)
        if match is None or len(steps) == _MOST_STEPS:
            refuse(text.splitlines(), len(steps), f"{line[:200]!r}")
        values = dict(pair.split("=", 1) for pair in match[3].split())
        steps.append(Step(match[1], tuple(match[2].split()), values))
    return steps


def refuse(lines: Sequence[str], at: int, why: str) -> NoReturn:
    """Raise EvidenceError with the reason why an output is invalid, and the lines around line ``at``."""
    around = [line[:200] for line in lines[max(0, at - _QUOTED_AROUND) : at + _QUOTED_AROUND]]
    raise EvidenceError(f"the work in the guest did not go as planned: {why}", detail=around)


def of_command(steps: Sequence[Step], command: str, count: int) -> list[Step]:
    """The steps of one command, of which there must be so many."""
    found = [step for step in steps if step.command == command]
    if len(found) != count:
        raise EvidenceError(f"{len(found)} steps '{command}' were taken, not {count}")
    return found


def counting_together(machine: Machine, text: int) -> Machine:
    """A machine whose plugin, if it has one, counts user space together; the kernel's ``text`` begins there.

    A plugin of interface 1 does not see which program runs, and their addresses are the same. Models of caches need
    each instruction.
    """
    if machine.counter is None or machine.counter.caches is not None:
        return machine
    return replace(machine, counter=replace(machine.counter, together_below=kernel_start(text)))


# How far a guest is that works by itself: what it says on its console, and how long its kernel has run by then.

_TICKS = "jiffies_64"
_BEFORE_WRAP = 300
"""Seconds: the kernel's count begins this long before 2**32 (INITIAL_JIFFIES in include/linux/jiffies.h)."""

_INTERVAL = 10.0
_SILENCE = 30.0
"""Seconds: of a guest that prints nothing, such as one that compiles a whole kernel for an hour."""


class WorkProgress:
    """Listens to the console of a guest at work, and reports now and then; ``seconds`` reads the guest's clock."""

    def __init__(self, report: Callable[[str], None], what: str, seconds: Callable[[], int | None]) -> None:
        self._report, self._what, self._seconds = report, what, seconds
        self._reported = time.monotonic()
        self._said = ""
        self._reached: int | None = None

    def listen(self, lines: Sequence[str]) -> None:
        said = [words for words in map(progress, lines) if words is not None]
        silent = time.monotonic() - self._reported
        is_due = silent > (_INTERVAL if said else _SILENCE)
        if said:
            self._said = said[-1][:200]
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
    """Whole seconds that a guest's kernel has counted timer ticks, read from its memory: the guest does not notice.

    None before the kernel has its page tables, and where its count cannot be found.
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


# A guest that does all of its work by itself: booted with it, watched on its console, and read from at its end.

FiguresT = TypeVar("FiguresT")


@dataclass(frozen=True)
class Work(Generic[FiguresT]):
    """What a guest does by itself: a script of ``images/unattended``, and how its output is read.

    ``inputs`` name the exact content of what it works on.
    """

    script: str
    settings: Mapping[str, int | str]
    files: Mapping[str, bytes | Path]
    read: Callable[[str], FiguresT]
    inputs: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def unattended_guest(session: Session, work: Work[Any], what: str, time_limit: int) -> Iterator[FinishedGuest]:
    """A guest that has ended its work well, for as long as results are read from it; it is killed at the end.

    ``what`` is the work's name for a person, ``time_limit`` in seconds without progress. Raises EvidenceError with the
    work's last lines, GuestError with how far it had got, and UnsupportedError where the kernel's symbols are not there
    to find its text by.
    """
    code = session.artifacts.kernel.code
    if code is None:
        raise UnsupportedError(
            f"what is left in the text of '{session.artifacts.kernel.spec.name}' cannot be known: "
            "its vmlinux and System.map are not at hand"
        )
    span = TextLayout.of_kernel(Symbols.of_image(code)).text[0]
    before: list[bytes] = []
    directory, machine, cpu = session.task.directory, session.artifacts.machine, session.task.boot.cpu
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
                raise EvidenceError("the work in the guest did not end well", detail=detail)
            if not before:
                raise EvidenceError("the guest did not stop before its work, so what it changed is not known")
            yield FinishedGuest(guest, before[0], span)
        finally:
            guest.kill()
    except GuestError as error:
        slow = f"if it was only slow: --set time_limit={2 * time_limit}" if isinstance(error, GuestHang) else ""
        raise GuestError(
            f"{error.what}; the work had got to: {progress.reached}",
            where=error.where,
            detail=error.detail,
            hint=error.hint or slow,
        ) from None
    finally:
        file.unlink(missing_ok=True)


def output_of(guest: Guest) -> str:
    """What the work printed."""
    return guest.get(OUTPUT).decode("ascii", errors="replace")


class FinishedGuest(NamedTuple):
    """A guest that has worked, and the kernel's text before that: QEMU read it at ``span``."""

    guest: Guest
    text: bytes
    span: Span


class Ending(NamedTuple):
    """What a guest is after its work: the kernel's taint mask, and its text."""

    taint: int
    text: TextEvidence


def collect_proof(finished: FinishedGuest) -> Ending:
    """What the work has left. Raises EvidenceError where something went wrong beside it, or changed text is left.

    Raises UnsupportedError where the kernel is of another build than its symbols.
    """
    guest = finished.guest
    guest.check_console()
    # The kernel takes it a second of its own time after it has booted, and a short work may have ended before. On an
    # idle host that second passes while the guest waits for us; on a busy one it had not.
    if read_clocksource(guest) == EARLY_CLOCKSOURCE:
        wait_for_clocksource(guest)
    check_clocksource(guest)
    taint = permitted_taint(guest)
    with step("compare the kernel's text with what it was"), valid_result():
        return Ending(taint, text_since(guest, finished.text, finished.span))
