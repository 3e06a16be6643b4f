# SPDX-License-Identifier: GPL-2.0-only
"""What the lab's programs in a guest say of probes: bpfprobe of BPF programs, peek of a process's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import cast

from orchestrator.errors import EvidenceError
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.probes.bpf_program import BpfProgram, attached_by
from orchestrator.probes.map_use import map_uses
from orchestrator.probes.user_point import UserPoint, observe_program

_POINT = UserPoint("inner", 0, 0x401000, b"\x90\xc3", program="/tmp/program", file_offset=0x1000)


class _PrintingGuest:
    """A guest whose every command prints the same."""

    def __init__(self, printed: bytes) -> None:
        self._printed = printed

    def succeed(self, argv: Sequence[str]) -> CommandResult:
        """Whatever command it is."""
        return CommandResult(tuple(argv), 0, self._printed, b"")


def _guest(data: bytes) -> Guest:
    return cast(Guest, _PrintingGuest(data))


def read_bpf_reports(data: bytes) -> None:
    """What a program is and did, what a process has attached, and what came into its maps."""
    program = BpfProgram(_guest(data), "/sys/fs/bpf/lab-a")
    said = data.decode(errors="replace")
    for read in (program.info, program.counts, program.hits, program.events, partial(map_uses, said)):
        with suppress(EvidenceError):
            read()
    attached_by(_guest(data), 1)


def read_peeked_bytes(data: bytes) -> None:
    """The bytes of a process that was started, and of its file."""
    observe_program(_guest(data), _POINT, lambda guest, point: 1)
