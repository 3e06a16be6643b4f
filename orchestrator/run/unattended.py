# SPDX-License-Identifier: GPL-2.0-only
"""A guest that works unattended: booted with its work, watched on the console, read from at the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from orchestrator.artifacts.unattended_initramfs import OUTPUT, STATUS, write_work
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
from orchestrator.run.work_progress import WorkProgress, kernel_seconds
from orchestrator.steps import step


def counting_together(machine: Machine, text: int) -> Machine:
    """A machine whose plugin, if any, counts user space as one; the kernel's ``text`` begins there.

    A plugin of interface 1 does not see which program runs, and programs share addresses. Models of caches need each
    instruction.
    """
    if machine.counter is None or machine.counter.caches is not None:
        return machine
    return replace(machine, counter=replace(machine.counter, together_below=kernel_start(text)))


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
