# SPDX-License-Identifier: GPL-2.0-only
"""Which records of QEMU's interrupt log are counted?"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from orchestrator.errors import GuestError
from orchestrator.guest import trap_counter
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.trap_counter import counted_interrupts

REGISTERS = b"EAX=00000003 EBX=c1093a15 ECX=00000000 EDX=00000000\n" * 20


class Logging:
    """A QEMU that logs these records before it answers that it logs no more; ``said`` has its commands."""

    def __init__(self, *records: bytes, piece: int = 1 << 20) -> None:
        self.content = b"".join(record + REGISTERS for record in records)
        self.piece = piece
        self.said: list[str] = []

    @contextmanager
    def passed(self, descriptor: int) -> Iterator[tuple[int, str]]:
        self.log = descriptor
        yield 1, "/proc/self/fd/5"

    def human(self, line: str) -> str:
        self.said.append(line)
        for start in range(0, len(self.content) if line == "log none" else 0, self.piece):
            piece = self.content[start : start + self.piece]
            assert os.write(self.log, piece) == len(piece)
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


def test_records_of_programs_are_counted_apart() -> None:
    qemu = Logging(record(0, 3, 0), record(1, 3, 3), record(2, 1, 3), record(3, 3, 3))
    with counted_interrupts(cast("Monitor", qemu), 3) as counts:
        pass
    assert counts == {3: 2, 1: 1}


@pytest.mark.parametrize("piece", [1, 7, 23, 24, 25, 4096])
def test_records_are_found_wherever_they_are_split(piece: int) -> None:
    qemu = Logging(record(0, 3, 0), record(1, 0x30, 0), record(2, 3, 0), piece=piece)
    with counted_interrupts(cast("Monitor", qemu)) as counts:
        pass
    assert counts == {3: 2, 0x30: 1}


def test_more_than_a_pipe_holds_is_counted() -> None:
    qemu = Logging(*(record(number, 3, 0) for number in range(20_000)))
    assert len(qemu.content) > 20 << 20
    with counted_interrupts(cast("Monitor", qemu)) as counts:
        pass
    assert counts == {3: 20_000}


def test_a_qemu_that_has_gone_leaves_no_thread_waiting() -> None:
    class Gone(Logging):
        def human(self, line: str) -> str:
            if line == "log none":
                raise GuestError("QEMU's monitor: gone")
            return super().human(line)

    threads = threading.active_count()
    with pytest.raises(GuestError, match="gone"), counted_interrupts(cast("Monitor", Gone(record(0, 3, 0)))):
        pass
    assert threading.active_count() == threads


def test_endless_log_is_read_up_to_a_pipes_size(tmp_path: Path) -> None:
    """A QEMU that does not stop when it is told to may write faster than its records can be counted."""
    endless = tmp_path / "log"  # in which there is always more
    endless.touch()
    os.truncate(endless, 1 << 33)
    with endless.open("rb", buffering=0) as log, Path("/dev/null").open("rb") as over:
        thread = threading.Thread(
            target=trap_counter._count,
            args=[log.fileno(), over.fileno(), Counter(), trap_counter._RECORDS[0]],
            daemon=True,
        )
        thread.start()
        while thread.is_alive():
            assert log.tell() <= 2 * trap_counter._PIPE_BYTES
            thread.join(0.01)
        assert log.tell() > 0
