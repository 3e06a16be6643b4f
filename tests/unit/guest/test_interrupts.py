# SPDX-License-Identifier: GPL-2.0-only
"""Which records of QEMU's interrupt log are counted?"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from orchestrator.guest.interrupts import counted_interrupts
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.shared_file import SharedFile

REGISTERS = b"EAX=00000003 EBX=c1093a15 ECX=00000000 EDX=00000000\n" * 20


class Logging:
    """A QEMU that logs these records; ``said`` has its commands."""

    def __init__(self, *records: bytes) -> None:
        self.content = b"".join(record + REGISTERS for record in records)
        self.said: list[str] = []

    @contextmanager
    def passed(self, file: SharedFile) -> Iterator[str]:
        os.write(file.descriptor, self.content)
        yield "/proc/self/fd/5"

    def human(self, line: str) -> str:
        self.said.append(line)
        return ""


def record(number: int, vector: int, privilege: int) -> bytes:
    place = "0060:c1093a15 pc=c1093a15 SP=0068:c1000000 env->regs[R_EAX]=00000003"
    return f"{number:6}: v={vector:02x} e=0000 i=1 cpl={privilege} IP={place}\n".encode()


@pytest.mark.parametrize(
    ("records", "counts"),
    [
        ([], {}),
        ([record(0, 3, 3)], {}),
        ([record(0, 3, 0), record(1234, 0x30, 0), record(1235, 0x80, 3), record(123456, 3, 0)], {3: 2, 0x30: 1}),
    ],
)
def test_records_of_kernel_code_are_counted(records: list[bytes], counts: dict[int, int]) -> None:
    qemu = Logging(*records)
    with counted_interrupts(cast("Monitor", qemu)) as found:
        assert not found
    assert found == Counter(counts)
    assert qemu.said == ['logfile "/proc/self/fd/5"', "log int", "log none"]
