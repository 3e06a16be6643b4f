# SPDX-License-Identifier: GPL-2.0-only
"""A guest that does all of its work by itself: booted with it, watched on its console, and read from at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.unattended import OUTPUT, STATUS
from orchestrator.errors import EvidenceError, GuestError, GuestHang, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.probes.kernel_text import text_since
from orchestrator.probes.static_branches import Span
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.text_layout import TextLayout
from orchestrator.results.contract import TextEvidence
from orchestrator.results.faults import storage_faults
from orchestrator.results.validity import valid_result
from orchestrator.run.boot import Session
from orchestrator.run.events import GuestBooted
from orchestrator.run.guest_checks import EARLY_CLOCKSOURCE, check_cpus, read_clocksource, wait_for_clocksource
from orchestrator.run.postconditions import check_clocksource, permitted_taint
from orchestrator.run.unattended_profile import counting_together
from orchestrator.run.work_progress import WorkProgress, kernel_seconds
from orchestrator.steps import step

_QUOTED = 10


@dataclass(frozen=True)
class Work:
    """What a guest does by itself: ``write`` makes the initramfs that has it, ``what`` is its name for a person.

    ``inputs`` name the exact content of what it works on; ``time_limit`` is in seconds without progress.
    """

    write: Callable[[Path], None]
    what: str
    time_limit: int
    inputs: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def worked(session: Session, work: Work) -> Iterator[Worked]:
    """A guest that has ended its work well, for as long as results are read from it; it is killed at the end.

    Raises EvidenceError with the work's last lines, GuestError with how far it had got, and UnsupportedError where the
    kernel's symbols are not there to find its text by.
    """
    span = _text_of(session.artifacts.kernel)
    before: list[bytes] = []
    directory, machine, cpu = session.task.directory, session.artifacts.machine, session.task.boot.cpu
    name, kernel = session.guest_name(), session.artifacts.kernel.spec.name
    file = directory / f"{name}.initramfs"
    counting = counting_together(machine, span.start)
    guest = Guest(replace(counting, initramfs=file, works_alone=True), directory, name)
    progress = WorkProgress(
        session.report, f"{kernel}, {work.what}", lambda: kernel_seconds(guest, session.artifacts.kernel)
    )
    try:
        with storage_faults(directory):
            work.write(file)
        guest.say = session.report
        session.watch(guest)
        session.report(f"booting {kernel} on {cpu} with {work.what} to do")
        try:
            guest.boot(
                work.time_limit, progress.listen, lambda: before.append(guest.read_memory(span.start, span.size))
            )
            file.unlink(missing_ok=True)
            session.emit(GuestBooted(name, guest.command_line, work.inputs))
            check_cpus(guest)
            _check_status(guest)
            if not before:
                raise EvidenceError("the guest did not stop before its work, so what it changed is not known")
            yield Worked(guest, before[0], span)
        finally:
            guest.kill()
    except GuestError as error:
        slow = f"if it was only slow: --set time_limit={2 * work.time_limit}" if isinstance(error, GuestHang) else ""
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


@dataclass(frozen=True)
class Worked:
    """A guest that has worked, and the kernel's text before that: QEMU read it at ``span``."""

    guest: Guest
    text: bytes
    span: Span


@dataclass(frozen=True)
class Ending:
    """What a guest is after its work: the kernel's taint mask, and its text."""

    taint: int
    text: TextEvidence


def close(worked: Worked) -> Ending:
    """What the work has left. Raises EvidenceError where something went wrong beside it, or changed text is left.

    Raises UnsupportedError where the kernel is of another build than its symbols.
    """
    guest = worked.guest
    guest.check_console()
    # The kernel takes it a second of its own time after it has booted, and a short work may have ended before. On an
    # idle host that second passes while the guest waits for us; on a busy one it had not.
    if read_clocksource(guest) == EARLY_CLOCKSOURCE:
        wait_for_clocksource(guest)
    check_clocksource(guest)
    taint = permitted_taint(guest)
    with step("compare the kernel's text with what it was"), valid_result():
        return Ending(taint, text_since(guest, worked.text, worked.span))


def _text_of(kernel: Kernel) -> Span:
    code = kernel.code
    if code is None:
        raise UnsupportedError(
            f"what is left in the text of '{kernel.spec.name}' cannot be known: "
            "its vmlinux and System.map are not at hand"
        )
    return TextLayout.of_kernel(Symbols.of_image(code)).text[0]


def _check_status(guest: Guest) -> None:
    status = guest.get(STATUS).decode("ascii", errors="replace").strip()
    if status != "0":
        guest.check_console()
        raise EvidenceError("the work in the guest did not end well", detail=output_of(guest).splitlines()[-_QUOTED:])
