# SPDX-License-Identifier: GPL-2.0-only
"""A bpftrace one-liner in a guest whose image has bpftrace: started, looked at in the kernel, stopped, ended.

bpftrace attaches its programs itself. What it attached is asked of the kernel, not of bpftrace. While calls are timed
its process is stopped: it would wake ten times a second to read what its programs print.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalog.one_liner import IMAGE
from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import CommandFailed, EvidenceError, GuestError, LabError
from orchestrator.guest.console import plain_lines
from orchestrator.guest.guest import Guest
from orchestrator.probes.bpf_attachment import programs_removed
from orchestrator.probes.bpf_program import attached_by, pinned, wait_until_gone
from orchestrator.probes.own_programs import OwnAttachment, OwnProgram, check_place
from orchestrator.probes.place import place_of
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols

_OUTPUT = "/tmp/bpftrace.out"  # noqa: S108 - in the guest
_START = 'ulimit -f 8192; setsid bpftrace -e "$1" >"$0" 2>&1 </dev/null & echo $!'
"""Prints the process's number. The limit is in 512 bytes: programs may print at each hit."""

_PAUSE = ("sleep", "0.1")
_IDLE_TURNS = 100
"""Pauses without a tick of processor time after which bpftrace is given up. One that attaches takes some at each."""
_WAITING = ("232", "281", "441")
"""epoll_wait, epoll_pwait and epoll_pwait2 of x86_64: where bpftrace waits for events, once all is attached."""
_PROCESS = re.compile(r"(\d{1,7})\n")
_STATE = re.compile(r"(\S+)[^\n]*\n\d+ \(.*\) (\S) (?:-?\d+ ){10}(\d{1,15}) (\d{1,15}) ", re.DOTALL)
"""Its system call; of /proc/PID/stat its state, and ticks of processor time for itself and in the kernel (proc(5))."""
_ENDED = "Z"
_QUOTED_LINES = 20
_QUOTED_BYTES = 4096


@dataclass(frozen=True)
class _State:
    """A process: the ticks of processor time that it took, and whether it waits for events."""

    ticks: int
    is_waiting: bool


class _Process:
    """bpftrace with a one-liner."""

    def __init__(self, guest: Guest, text: str) -> None:
        self._guest = guest
        started = _PROCESS.fullmatch(guest.succeed(["sh", "-c", _START, _OUTPUT, text]).text)
        if started is None:
            raise EvidenceError("the guest does not say which process bpftrace is")
        self.pid = int(started[1])

    def wait_until_attached(self) -> None:
        """Wait while it works. Raises EvidenceError with its words where it ends, or does nothing any more."""
        ticks, idle = -1, 0
        while idle < _IDLE_TURNS:
            state = self._state()
            if state is None:
                raise EvidenceError("bpftrace ends instead of attaching the one-liner", detail=self.words())
            if state.is_waiting:
                return
            ticks, idle = state.ticks, idle + 1 if state.ticks == ticks else 0
            self._guest.succeed(_PAUSE)
        raise EvidenceError("bpftrace neither attaches the one-liner nor ends", detail=self.words())

    def signal(self, *names: str) -> None:
        """Send signals. Raises EvidenceError where it has ended."""
        for name in names:
            if self._guest.run(["kill", f"-{name}", str(self.pid)]).status != 0:
                raise EvidenceError("bpftrace ended while its probes were measured", detail=self.words())

    def wait_until_ended(self) -> None:
        """Wait while it detaches and prints. Raises EvidenceError where it does not end."""
        ticks, idle = -1, 0
        while (state := self._state()) is not None:
            ticks, idle = state.ticks, idle + 1 if state.ticks == ticks else 0
            if idle == _IDLE_TURNS:
                raise EvidenceError("bpftrace does not end", detail=self.words())
            self._guest.succeed(_PAUSE)

    def words(self) -> Sequence[str]:
        """The end of what it has printed."""
        printed = self._guest.run(["tail", "-c", str(_QUOTED_BYTES), _OUTPUT]).stdout
        return [line for line in plain_lines(printed) if line.strip()][-_QUOTED_LINES:]

    def _state(self) -> _State | None:
        finished = self._guest.run(["cat", f"/proc/{self.pid}/syscall", f"/proc/{self.pid}/stat"])
        found = _STATE.match(finished.text)
        if found is None or found[2] == _ENDED:
            return None
        return _State(int(found[3]) + int(found[4]), found[1] in _WAITING)


@contextlib.contextmanager
def one_liner_attached(
    guest: Guest, kind: ProbeKind, tool: Path, point: ProbePoint, symbols: Symbols
) -> Iterator[OwnAttachment]:
    """Let bpftrace attach a one-liner; end it, and prove that the kernel has none of its programs. ``tool``: bpfprobe.

    Raises EvidenceError with bpftrace's words where it refuses the one-liner or the guest has none, where a program is
    attached to another function than the point's, or where the original bytes are not back at the end.
    """
    assert kind.one_liner is not None
    numbers: list[int] = []
    with programs_removed(guest, kind, tool, place_of(guest, kind, point, symbols)):
        _check_installed(guest)
        process = _Process(guest, kind.one_liner)
        with _ended(process):
            process.wait_until_attached()
            process.signal("STOP")
            programs = _attached(guest, process)
            numbers = [one.number for one in programs]
            for one in programs:
                check_place(one, point)
            yield OwnAttachment(guest, kind, point, programs)
    wait_until_gone(guest, numbers)


def _check_installed(guest: Guest) -> None:
    if guest.run(["sh", "-c", "command -v bpftrace"]).status != 0:
        raise EvidenceError(
            "the guest's image has no bpftrace", hint=f"set image: {IMAGE}, or add the package to your recipe"
        )


@contextlib.contextmanager
def _ended(process: _Process) -> Iterator[None]:
    try:
        yield
    except LabError as error:
        # The first error is the one to report. A guest in trouble gets no commands.
        if not isinstance(error, GuestError):
            with contextlib.suppress(CommandFailed, EvidenceError):
                process.signal("KILL")
                process.wait_until_ended()
        raise
    process.signal("INT", "CONT")
    process.wait_until_ended()


def _attached(guest: Guest, process: _Process) -> Sequence[OwnProgram]:
    found = attached_by(guest, process.pid)
    if not found:
        raise EvidenceError("bpftrace has attached nothing", detail=process.words())
    return [
        OwnProgram(
            one.number,
            f"{one.kind}:{one.name}",
            f"{one.kind}/{one.name}",
            pinned(guest, f"lab-own-{one.number}", one.number),
        )
        for one in found
    ]
