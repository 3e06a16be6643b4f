# SPDX-License-Identifier: GPL-2.0-only
"""A bpftrace one-liner in a guest whose image has bpftrace: started, verified in the kernel, paused, ended.

The kernel, not bpftrace, says what is attached. While calls are timed the process is stopped: it would wake ten times
a second to read its programs' output. If that output overflows its buffer, or a map gets full, the cost of a hit
changes, and the cell fails.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator.catalog.bpftrace_text import prints
from orchestrator.catalog.probes import IMAGE, ProbeKind
from orchestrator.errors import (
    CommandFailed,
    EvidenceError,
    GuestError,
    GuestHang,
    LabError,
)
from orchestrator.guest.console import plain_lines
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_scripts import lab_script
from orchestrator.probes import bpf_program
from orchestrator.probes.bpf_attachment import attaching_programs
from orchestrator.probes.bpf_hits import UserBpfProgram
from orchestrator.probes.bpf_program import Attached
from orchestrator.probes.bpf_refusal import QUOTED_LINES
from orchestrator.probes.map_trial import AttendedMapTrial
from orchestrator.probes.place import Place
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.user_bpf_attachment import UserBpfAttachment, misplaced, placed
from orchestrator.results.parameters import ATTACHED, BPFTRACE

_OUTPUT = "/tmp/bpftrace.out"  # noqa: S108 - in the guest


_LARGEST_OUTPUT = 8 << 20


_IDLE_TURNS = 100
"""Pauses of a bpftrace that uses no processor time, after which the lab gives up."""


_LOOKS = 3
"""Consecutive checks that find the process waiting: it has read all events."""


_WAITING = ("232", "281", "441")
"""epoll_wait, epoll_pwait and epoll_pwait2 of x86_64: where bpftrace waits for events, once all is attached."""


_STATE = re.compile(r"(\S+)[^\n]*\n\d+ \(.*\) (\S) (?:-?\d+ ){10}(\d{1,15}) (\d{1,15}) ", re.DOTALL)
"""The system call; from /proc/PID/stat the state, and the ticks of user and kernel time (proc(5))."""


_VERSION = re.compile(r"bpftrace v?([\w.+-]{1,60})")


class _Process:
    """A bpftrace that runs a one-liner; its ``version`` and what it has ``attached`` are known once it has."""

    version = ""
    attached: Sequence[Attached] = ()

    def __init__(self, guest: Guest, text: str, time_left: Callable[[], float]) -> None:
        self._guest, self._time_left = guest, time_left
        script, blocks = lab_script("start-bpftrace.sh").decode(), str(_LARGEST_OUTPUT // 512)
        started = re.fullmatch(r"(\d{1,7})\n", guest.succeed(["sh", "-c", script, "sh", text, _OUTPUT, blocks]).text)
        if started is None:
            raise EvidenceError("the guest does not say which process bpftrace is")
        self.pid = int(started[1])

    def attach(self) -> None:
        """Wait until it has attached everything, stop it, and ask what that is. Raises EvidenceError if it ends."""
        if not self._wait(1, "neither attaches the one-liner nor ends"):
            raise EvidenceError("bpftrace ended instead of attaching the one-liner", detail=self.words())
        self.signal("STOP")
        self.attached = bpf_program.attached_by(self._guest, self.pid)
        version = _VERSION.match(self._guest.run(["bpftrace", "--version"]).text)
        self.version = "unknown" if version is None else version[1]

    def read(self) -> None:
        """Let it read its programs' output so far. Raises EvidenceError if that never ends, or it has ended."""
        self.signal("CONT")
        if not self._wait(_LOOKS, "cannot finish reading its programs' output"):
            raise self._ended()
        self.signal("STOP")

    def end(self) -> None:
        """Let it detach and print its maps. Raises EvidenceError if it does not end, or output was lost."""
        self.read()
        self.signal("INT", "CONT")
        self._wait(None, "does not end")
        check_all_kept(self._guest.get(_OUTPUT, largest=_LARGEST_OUTPUT))

    def kill(self) -> None:
        self.signal("KILL")
        self._wait(None, "does not end")

    def signal(self, *names: str) -> None:
        for name in names:
            if self._guest.run(["kill", f"-{name}", str(self.pid)]).status != 0:
                raise self._ended()

    def words(self) -> Sequence[str]:
        printed = self._guest.run(["tail", "-c", "4096", _OUTPUT]).stdout
        return [line for line in plain_lines(printed) if line.strip()][-QUOTED_LINES:]

    def _ended(self) -> EvidenceError:
        return EvidenceError("bpftrace ended while its probes were measured", detail=self.words())

    def _wait(self, looks: int | None, what_else: str) -> bool:
        """Wait until it has ended (False), or was found waiting for events ``looks`` times in a row.

        A busy one may use the cell's time: each pause checks what is left of it.
        """
        ticks, idle, waiting = -1, 0, 0
        while idle < _IDLE_TURNS:
            said = self._guest.run(["cat", f"/proc/{self.pid}/syscall", f"/proc/{self.pid}/stat"]).text
            match = _STATE.match(said[:2048])
            if match is None or match[2] == "Z":
                return False
            taken = int(match[3]) + int(match[4])
            ticks, idle = taken, idle + 1 if taken == ticks else 0
            waiting = waiting + 1 if match[1] in _WAITING else 0
            if waiting == looks:
                return True
            self._guest.succeed(("sleep", "0.1"), time_limit=self._time_left())
        raise EvidenceError(f"bpftrace {what_else}", detail=self.words())


_LESS = "print less at a hit, or give the guest more memory, of which a quarter keeps the output: set memory: 2G"


def check_all_kept(printed: bytes) -> None:
    """Raise EvidenceError if a buffer had no room for the programs' output: such a hit has another cost.

    bpftrace reports that anywhere in its output, also in the middle of a line.
    """
    if len(printed) == _LARGEST_OUTPUT:
        raise EvidenceError(f"bpftrace printed more than {_LARGEST_OUTPUT >> 20} MB")
    lost = re.search(r"Lost \d+ events", printed.decode(errors="replace"))
    if lost is not None:
        raise EvidenceError(f"bpftrace's buffer had no room for its programs' output: {lost[0]}", hint=_LESS)


class OneLinerAttachment(UserBpfAttachment):
    """The programs of a one-liner, attached by ``one_liner_attached``."""

    trial_of = AttendedMapTrial

    def __init__(
        self,
        guest: Guest,
        kind: ProbeKind,
        place: Place,
        programs: tuple[Sequence[UserBpfProgram], Sequence[UserBpfProgram]],
        process: _Process,
    ) -> None:
        super().__init__(guest, kind, place, *programs)
        self._process = process

    def facts(self) -> Mapping[str, int | str]:
        """The same, the version of bpftrace, and the probe kinds that it has attached, as the kernel says."""
        return {
            **super().facts(),
            BPFTRACE: self._process.version,
            ATTACHED: written(self._process.attached),
        }

    def renewal(self) -> Callable[[], None] | None:
        """Let bpftrace read what the calls so far have left to print; None for a line that prints nothing."""
        return self._process.read if prints(self._kind.one_liner or "") else None

    @contextlib.contextmanager
    def separate_caller(self) -> Iterator[None]:
        """Before hits are counted, bpftrace reads the output of the timed calls.

        The kernel reports lost output only with the next event that fits.
        """
        self._process.read()
        with super().separate_caller():
            yield


def written(attached: Sequence[Attached]) -> str:
    """How programs are attached: ``bpf-kprobe, bpf-kprobe-multi (3 places)``."""
    places: Counter[str] = Counter()
    for attachment in attached:
        places[attachment.kind] += attachment.places
    return ", ".join(kind if number == 1 else f"{kind} ({number} places)" for kind, number in sorted(places.items()))


@contextlib.contextmanager
def one_liner_attached(
    guest: Guest, kind: ProbeKind, tool: Path, point: ProbePoint, symbols: Symbols, time_left: Callable[[], float]
) -> Iterator[OneLinerAttachment]:
    """Let bpftrace attach a one-liner; end it, and prove that the kernel has none of its programs. ``tool``: bpfprobe.

    ``time_left`` returns the host seconds that the cell has left, or raises GuestHang if none. Raises EvidenceError
    with bpftrace's output if it refuses the one-liner, if the image lacks bpftrace, if a program is attached to another
    function than the point's, or if the original bytes are not restored at the end.
    """
    assert kind.one_liner is not None
    with (
        bpf_program.restoring_printk(guest),
        attaching_programs(guest, kind, tool, point, symbols) as place,
    ):
        if guest.run(["sh", "-c", "command -v bpftrace"]).status != 0:
            hint = f"set image: {IMAGE}, or add the package to your recipe"
            raise EvidenceError("the guest's image has no bpftrace", hint=hint)
        process = _Process(guest, kind.one_liner, time_left)
        try:
            programs, elsewhere = placed(point, lambda: _attached(guest, process))
            if not programs:
                raise misplaced(elsewhere[0], point)
            yield OneLinerAttachment(guest, kind, place, (programs, elsewhere), process)
        except LabError as error:
            # Report the first error. A guest in trouble gets no commands.
            if not isinstance(error, GuestError):
                with contextlib.suppress(CommandFailed, EvidenceError, GuestHang):
                    process.kill()
            raise
        process.end()
    bpf_program.wait_until_gone(guest, [attached.number for attached in process.attached])


def _attached(guest: Guest, process: _Process) -> Sequence[UserBpfProgram]:
    process.attach()
    all_attached = process.attached
    if not all_attached:
        raise EvidenceError("bpftrace has attached nothing", detail=process.words())
    # A program may be at several places.
    if any(attached.link == "trampoline" and not attached.name for attached in all_attached):
        raise EvidenceError("the kernel's type information has no name for a function that bpftrace has attached to")
    numbers = {attached.number for attached in all_attached}
    pinned = {number: bpf_program.pinned(guest, f"lab-own-{number}", number) for number in numbers}
    programs = []
    for attached in all_attached:
        kind, offset = attached.kind.removeprefix("bpf-"), f"+{attached.offset:#x}" if attached.offset else ""
        section = f"{kind}/{attached.name}{offset}"
        programs.append(UserBpfProgram(attached.number, f"{kind}:{attached.name}", section, pinned[attached.number]))
    return programs
