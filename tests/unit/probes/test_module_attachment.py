# SPDX-License-Identifier: GPL-2.0-only
"""Is a jump that comes late waited for in the guest's time, and not for ever?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from orchestrator.artifacts.modules import Module
from orchestrator.catalog.probes import Handler, probes
from orchestrator.errors import EvidenceError, GuestError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.probes.arming import ModuleAttachment
from orchestrator.probes.evidence import KPROBES_LIST
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols

POINT = ProbePoint("vfs_read", 0, 0xC1000000, bytes(range(16)))
JUMP = b"\xe9\x00\x10\x00\x00"


class Optimising:
    """A guest whose optimiser puts the jump in when the guest has slept so often; the host's time means nothing."""

    def __init__(self, sleeps: int, address: bytes = b"c1000000\n") -> None:
        self.left, self.address = sleeps, address
        self.slept = 0

    def succeed(self, argv: Sequence[str]) -> None:
        assert argv[0] == "sleep"
        self.slept += 1
        self.left -= 1

    def read_memory(self, address: int, size: int) -> bytes:
        assert (address, size) == (POINT.address, len(POINT.original))
        return (JUMP if self.left <= 0 else b"\xcc") + POINT.original[5 if self.left <= 0 else 1 :]

    def get(self, source: str, **_: object) -> bytes:
        if source == KPROBES_LIST:
            return b"c1000000  k  vfs_read+0x0    [OPTIMIZED]\n"
        return {"address": self.address, "step": b"boosted\n"}[source.rpartition("/")[2]]


def armed_in(guest: Optimising) -> ModuleAttachment:
    module = Module("lab_kprobe", Path("lab_kprobe.ko"), "key", None)
    return ModuleAttachment(cast(Guest, guest), probes()["kprobe-optimized"], module, POINT, Symbols(b""))


@pytest.mark.parametrize("sleeps", [0, 3, 100])
def test_a_late_jump_is_waited_for_in_the_guests_time(sleeps: int) -> None:
    guest = Optimising(sleeps)
    assert armed_in(guest).wait_until_armed().live[:5] == JUMP
    assert guest.slept == sleeps


def test_a_jump_that_does_not_come_is_not_waited_for_for_ever() -> None:
    guest = Optimising(101)
    with pytest.raises(EvidenceError, match="int3, waiting to be optimised"):
        armed_in(guest).wait_until_armed()
    assert guest.slept == 100


@pytest.mark.parametrize("address", [b"", b"(null)", b"c1000000 c1000000", b"\x1b[2J", b"-c1000000", b"f" * 4000])
def test_a_module_that_does_not_say_where_its_probe_is_is_quoted(address: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^the module reports address='.{0,44}'$"):
        armed_in(Optimising(0, address)).wait_until_armed()


def test_a_module_whose_probe_is_elsewhere_is_told() -> None:
    with pytest.raises(EvidenceError, match=r"^the module's probe is at c1000001, not at vfs_read$"):
        armed_in(Optimising(0, b"0xc1000001\n")).wait_until_armed()


class Refusing:
    """A guest whose module's handlers are refused with an error of the kernel's."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def put(self, content: bytes, target: str) -> None:
        raise GuestError(f"cannot write {target}: {self.reason}")


@pytest.mark.parametrize(
    ("handler", "reason", "raised"),
    [
        ("record", "operation not supported", UnsupportedError),
        ("record", "invalid argument", GuestError),
        ("count", "operation not supported", GuestError),
    ],
)
def test_a_module_that_does_not_record_is_unsupported(handler: Handler, reason: str, raised: type[Exception]) -> None:
    module = Module("own_dj", Path("own_dj.ko"), "key", None)
    kind = probes()["djprobe"].model_copy(update={"name": "dj.c"})
    attachment = ModuleAttachment(cast(Guest, Refusing(reason)), kind, module, POINT, Symbols(b""))
    with pytest.raises(raised) as refused:
        attachment.set_handler(handler)
    assert (str(refused.value) == "dj.c has no recording handler") is (raised is UnsupportedError)
