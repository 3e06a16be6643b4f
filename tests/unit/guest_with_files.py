# SPDX-License-Identifier: GPL-2.0-only
"""A guest of which only the files are there, with the limits of the real one's ``get``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

from orchestrator.errors import GuestError
from orchestrator.guest.channel import OUTPUT_MAX, CommandResult
from orchestrator.guest.guest import Guest


class _GuestWithFiles:
    def __init__(self, files: Mapping[str, bytes], smp: int, printed: bytes, memory: Sequence[range] | None) -> None:
        self.machine = SimpleNamespace(smp=smp)
        self._files, self._printed, self._memory = files, printed, memory

    def get(self, source: str, *, time_limit: float = 0.0, largest: int = OUTPUT_MAX) -> bytes:
        content = self._files[source]
        if len(content) > largest:
            raise GuestError(f"cannot read {source}: it has more than {largest} bytes")
        return content

    def put(self, content: bytes, target: str) -> None:
        assert target in self._files, content

    def read_memory(self, address: int, size: int) -> bytes:
        if self._memory is not None and not any({address, address + size - 1} <= {*part} for part in self._memory):
            raise GuestError(f"QEMU's monitor: memsave failed: Invalid addr {address:#x}/size {size} specified")
        return bytes(size)

    def succeed(self, argv: Sequence[str], *, time_limit: float = 0.0) -> CommandResult:
        return CommandResult(tuple(argv), 0, self._printed, b"")


def guest_with(
    files: Mapping[str, bytes], *, smp: int = 1, printed: bytes = b"", memory: Sequence[range] | None = None
) -> Guest:
    """A guest with these files, in which every program prints the same; ``memory`` is what is mapped, None for all."""
    return cast(Guest, _GuestWithFiles(files, smp, printed, memory))
