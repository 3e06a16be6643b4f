# SPDX-License-Identifier: GPL-2.0-only
"""A process in a guest that attaches BPF programs itself: started, awaited, stopped while calls are timed, ended.

The kernel, not the tool, says what is attached. The guest's side is ``images/bpf/background.c``, ``attached.c`` and
``output_rings.c``. While calls are timed the process is stopped, and reads between their batches (``reader.c``): it
would wake many times a second to read its programs' output.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from orchestrator.errors import EvidenceError
from orchestrator.guest.console import plain_lines
from orchestrator.guest.guest import Guest
from orchestrator.probes import bpf_program
from orchestrator.probes.bpf_program import TOOL, Attached, LoadedProgram
from orchestrator.probes.bpf_refusal import QUOTED_LINES

_OUTPUT = "/tmp/lab-tool.out"  # noqa: S108 - in the guest
_LARGEST_OUTPUT = 8 << 20
"""Bytes that a tool may print. The kernel ends a process that writes more into a file (SIGXFSZ)."""
_TERMINAL = "vt100"
"""A kind that Debian's ncurses-base knows how to clear: filetop and its like end where ``clear`` fails, as of dumb."""
_PAUSE = "0.2"
_MOST_RESTS = 20
"""How often a tool may rest with nothing attached, or with other programs each time: some twenty seconds of its own."""
_MOST_BUSY = 5
"""Times that it may be found busy, each after two minutes of the guest's time."""
_REST = re.compile(r"(ended|busy|waiting \d{1,18})\n")
_RING = re.compile(r"(\d{1,7}) (\d{1,20}) (\d{1,20})")
_LOST = re.compile(r"\blost (?:\w+: )?(\d+)(?: (?:events|samples|records))?\b", re.IGNORECASE)
_OF_TERMINALS = re.compile(r"\b(?:tty|terminal|TERM|ioctl)\b", re.IGNORECASE)


class OutputBuffer(NamedTuple):
    """A buffer that a process reads: its size, and what is in it, in bytes."""

    size: int
    used: int


class ToolProcess:
    """A tool that runs in the guest; what it has ``attached`` and ``loaded`` is known once it has.

    ``name`` is for errors. ``time_left`` returns the host seconds that the cell has left, or raises GuestHang.
    """

    attached: Sequence[Attached] = ()
    loaded: Sequence[LoadedProgram] = ()

    def __init__(
        self,
        guest: Guest,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        time_left: Callable[[], float],
    ) -> None:
        self.guest, self.name, self._time_left = guest, name, time_left
        variables = [f"{variable}={value}" for variable, value in {"TERM": _TERMINAL, **environment}.items()]
        words = [TOOL, "start", _OUTPUT, str(_LARGEST_OUTPUT), "env", *variables, *argv]
        started = re.fullmatch(r"(\d{1,7})\n", guest.succeed(words).text)
        if started is None:
            raise EvidenceError(f"the guest does not say which process {name} is")
        self.pid = int(started[1])

    def attach(self) -> None:
        """Wait until the kernel lists what it has attached, and nothing more comes; stop it.

        Raises EvidenceError with its words if it ends, attaches nothing, or never comes to rest.
        """
        seen = (self.attached, self.loaded)
        for _ in range(_MOST_RESTS):
            if not self._rest():
                raise self._ended_at_once()
            now = self._programs()
            if now == seen and any(now):
                self.attached, self.loaded = now
                self.send("STOP")
                return
            seen = now
            self.guest.succeed(("sleep", _PAUSE), time_limit=self._time_left())
        if any(seen):
            raise EvidenceError(f"{self.name} never settles: it attaches other programs again and again")
        raise EvidenceError(
            f"{self.name} attaches nothing: it waits, and the kernel lists no program of it", detail=self.words()
        )

    @property
    def has_attached(self) -> bool:
        return bool(self.attached or self.loaded)

    def read(self) -> None:
        """Let it read its programs' output so far, and stop it. Raises EvidenceError if that never ends, or it does."""
        self.send("CONT")
        if not self._rest():
            raise self.ended()
        self.send("STOP")

    def rings(self) -> Sequence[OutputBuffer]:
        """The buffers that it reads."""
        said = [line for pid in self._session() for line in self._said("rings", pid)]
        matches = [_RING.fullmatch(line) for line in said]
        if any(match is None for match in matches):
            raise EvidenceError(f"the guest does not say how full the buffers of {self.name} are: {said[:3]}"[:200])
        return [OutputBuffer(int(match[2]), int(match[3])) for match in matches if match is not None]

    def check_same(self) -> None:
        """Raise EvidenceError if it has attached something else meanwhile, or has ended."""
        if self._programs() != (self.attached, self.loaded):
            raise EvidenceError(f"{self.name} has attached other programs while calls were measured")

    def end(self) -> None:
        """Interrupt it as by Ctrl-C.

        Raises EvidenceError if it does not end, if a process stays that it has started, or if output was lost.
        """
        self.read()
        self.send("INT")
        self.send("CONT")
        for _ in range(_MOST_RESTS):
            if not self._rest():
                break
        else:
            raise EvidenceError(f"{self.name} does not end on Ctrl-C", detail=self.words())
        for _ in range(_MOST_RESTS):
            if not self._processes():
                break
            self.guest.succeed(("sleep", _PAUSE), time_limit=self._time_left())
        else:
            self.kill()
            raise EvidenceError(f"{self.name} ends on Ctrl-C, and leaves processes behind that it has started")
        check_all_kept(self.name, self.guest.get(_OUTPUT, largest=_LARGEST_OUTPUT))

    def kill(self) -> None:
        """End it whatever it does."""
        self.guest.run(self._signal("KILL"))
        self._rest()

    def send(self, name: str) -> None:
        """Send a signal to it and the processes that it has started, as a terminal would."""
        if self.guest.run(self._signal(name)).status != 0:
            raise self.ended()

    def is_gone(self) -> bool:
        """Whether the kernel has none of its processes any more."""
        return self.guest.run([TOOL, "signal", str(self.pid), "0"]).status != 0

    def _signal(self, name: str) -> Sequence[str]:
        return [TOOL, "signal", str(self.pid), str(int(signal.Signals[f"SIG{name}"]))]

    def words(self) -> Sequence[str]:
        """The last lines that it has printed."""
        printed = self.guest.run(["tail", "-c", "4096", _OUTPUT]).stdout
        return [line for line in plain_lines(printed) if line.strip()][-QUOTED_LINES:]

    def ended(self) -> EvidenceError:
        """The error of a tool that is not there any more."""
        self._check_size()
        return EvidenceError(f"{self.name} ended while its programs were measured", detail=self.words())

    def _ended_at_once(self) -> EvidenceError:
        self._check_size()
        words = self.words()
        hint = ""
        if any(map(_OF_TERMINALS.search, words)):
            hint = "the lab gives it no terminal: leave out what asks for one, such as an option that clears the screen"
        return EvidenceError(f"{self.name} ended instead of attaching its programs", detail=words, hint=hint)

    def _check_size(self) -> None:
        size = self.guest.run(["stat", "-c", "%s", _OUTPUT]).text.strip()
        if size.isdecimal() and int(size) >= _LARGEST_OUTPUT:
            raise _prints_without_end(self.name)

    def _rest(self) -> bool:
        """Wait until it waits; False once it has ended. Raises EvidenceError if it is busy for ten minutes."""
        for _ in range(_MOST_BUSY):
            said = self.guest.succeed([TOOL, "rest", str(self.pid)], time_limit=self._time_left()).text
            match = _REST.fullmatch(said)
            if match is None:
                raise EvidenceError(f"the guest does not say what {self.name} does: {said[:40]!r}")
            if match[1] != "busy":
                return match[1] != "ended"
        raise EvidenceError(f"{self.name} never comes to rest: after ten minutes it still works", detail=self.words())

    def _session(self) -> Sequence[int]:
        processes = self._processes()
        if not processes:
            raise self.ended()
        return processes

    def _processes(self) -> Sequence[int]:
        """The processes that it has started, and itself; none once all have ended."""
        said = self.guest.succeed([TOOL, "session", str(self.pid)]).text.split()
        if not all(pid.isdecimal() for pid in said):
            raise EvidenceError(f"the guest does not say which processes {self.name} has started")
        return list(map(int, said))

    def _programs(self) -> tuple[Sequence[Attached], Sequence[LoadedProgram]]:
        processes = self._session()
        attached = [each for pid in processes for each in bpf_program.attached_by(self.guest, pid)]
        loaded = {each.number: each for pid in processes for each in bpf_program.loaded_by(self.guest, pid)}
        return attached, [loaded[number] for number in sorted(loaded)]

    def _said(self, command: str, pid: int) -> Sequence[str]:
        return self.guest.succeed([TOOL, command, str(pid)]).text[: 1 << 18].splitlines()


def check_all_kept(name: str, printed: bytes) -> None:
    """Raise EvidenceError if a buffer had no room for the programs' output: such a hit has another cost.

    Tools report that anywhere in their output, also in the middle of a line.
    """
    if len(printed) >= _LARGEST_OUTPUT:
        raise _prints_without_end(name)
    losses = _LOST.finditer(printed.decode(errors="replace"))
    lost = next((loss for loss in losses if loss[1].strip("0")), None)
    if lost is not None:
        raise EvidenceError(f"the buffer of {name} had no room for its programs' output: {lost[0]}")


def _prints_without_end(name: str) -> EvidenceError:
    return EvidenceError(
        f"{name} prints more than {_LARGEST_OUTPUT >> 20} MB", hint="let it print less: a longer interval, or a filter"
    )
