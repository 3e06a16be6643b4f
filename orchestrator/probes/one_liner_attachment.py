# SPDX-License-Identifier: GPL-2.0-only
"""A bpftrace one-liner with one place: its hits are proved by the lab's witness there, as those of a user's programs.

The kernel, not bpftrace, says what is attached. If a map gets full, the cost of a hit changes, and the cell fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator.catalog.probes import ProbeKind
from orchestrator.catalog.tools import BPFTRACE_PROGRAM, ToolCommand
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes import bpf_program
from orchestrator.probes.attachment import Reader, cleanup_after
from orchestrator.probes.bpf_attachment import attaching_programs
from orchestrator.probes.bpf_hits import UserBpfProgram
from orchestrator.probes.bpf_program import attached_as
from orchestrator.probes.map_trial import AttendedMapTrial
from orchestrator.probes.place import Place
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.tool_attachment import (
    check_left_nothing,
    pins_in,
    reader_beside,
    running_tool,
    version_facts,
)
from orchestrator.probes.tool_process import ToolProcess
from orchestrator.probes.user_bpf_attachment import UserBpfAttachment, hits_at, misplaced, placed
from orchestrator.results.parameters import ATTACHED


class OneLinerAttachment(UserBpfAttachment):
    """The programs of a one-liner, attached by ``one_liner_attached``."""

    trial_of = AttendedMapTrial

    def __init__(
        self,
        guest: Guest,
        kind: ProbeKind,
        place: Place,
        programs: tuple[Sequence[UserBpfProgram], Sequence[UserBpfProgram]],
        process: ToolProcess,
    ) -> None:
        super().__init__(guest, kind, place, programs[0], hits_at(guest, place.point, *programs))
        self._process = process

    def facts(self) -> Mapping[str, int | str]:
        """The same, the version of bpftrace, and the probe kinds that it has attached, as the kernel says."""
        return {
            **super().facts(),
            **version_facts(self._guest, BPFTRACE_PROGRAM),
            ATTACHED: attached_as(self._process.attached),
        }

    def reader(self, call: Callable[[int], object]) -> Reader | None:
        return reader_beside(self._process, call)

    @contextlib.contextmanager
    def separate_caller(self) -> Iterator[None]:
        """Before hits are counted, bpftrace reads the output of the timed calls.

        The kernel reports lost output only with the next event that fits.
        """
        self._process.read()
        with super().separate_caller():
            yield


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
    command = ToolCommand(kind.one_liner, (BPFTRACE_PROGRAM, "-e", kind.one_liner))
    with contextlib.ExitStack() as proof, contextlib.ExitStack() as stack:
        stack.enter_context(bpf_program.restoring_printk(guest))
        place = stack.enter_context(attaching_programs(guest, kind, tool, point, symbols))
        pins = pins_in(guest)
        with running_tool(guest, command, time_left) as (process, _):
            proof.enter_context(cleanup_after(lambda: check_left_nothing(guest, process, pins)))
            programs, elsewhere = placed(point, lambda: _attached(guest, process))
            if not programs:
                raise misplaced(elsewhere[0], point)
            yield OneLinerAttachment(guest, kind, place, (programs, elsewhere), process)


def _attached(guest: Guest, process: ToolProcess) -> Sequence[UserBpfProgram]:
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
