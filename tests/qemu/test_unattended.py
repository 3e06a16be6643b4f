# SPDX-License-Identifier: GPL-2.0-only
"""Is work that a guest does by itself the same in every boot, and is the progress reported of one that did not end?"""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import ready_kernel
from orchestrator.artifacts.unattended import FOLDER, OUTPUT, STATUS
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import kernel
from orchestrator.cpio import Entry, archive
from orchestrator.errors import GuestHang, GuestPanic
from orchestrator.guest.guest import Guest
from orchestrator.run.machines import Hardware, machine_for

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

BUSY = """
i=0
while [ $i -lt 300 ]; do ls -l /sys/kernel > /tmp/list; i=$((i + 1)); done
grep "now at" /proc/timer_list
cat /proc/interrupts /proc/vmstat
"""
SAYS = 'say() { echo "<4>lab: $*" > /dev/kmsg; }\n'


def guest_with(context: BuildContext, folder: Path, work: str, name: str = "guest") -> Guest:
    built = ready_kernel(context, kernel("lab-i386-up"))
    machine = machine_for(context, built, Hardware(cpu("pentium4"), 1, 256, "instructions"))
    image = folder / f"{name}.initramfs"
    unattended = archive(
        [Entry.folder(FOLDER.removeprefix("/")), Entry.file(f"{FOLDER}/work.sh".removeprefix("/"), work.encode())]
    )
    image.write_bytes(machine.initramfs.read_bytes() + unattended)
    return Guest(dataclasses.replace(machine, initramfs=image), folder, name)


@contextmanager
def busy_host() -> Iterator[None]:
    """Keep both CPUs from doing one thing after the other in the same order each time."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def test_two_boots_agree_to_the_nanosecond_however_busy_the_host(workshop: BuildContext, tmp_path: Path) -> None:
    outputs = []
    with guest_with(workshop, tmp_path, BUSY, "idle") as guest:
        outputs.append(guest.get(OUTPUT))
    with busy_host(), guest_with(workshop, tmp_path, BUSY, "busy") as guest:
        outputs.append(guest.get(OUTPUT))
        assert guest.get(STATUS) == b"0"
    assert b"now at" in outputs[0]
    assert outputs[0] == outputs[1]


def test_a_guest_that_has_work_to_do_is_as_any_other_afterwards(workshop: BuildContext, tmp_path: Path) -> None:
    with guest_with(workshop, tmp_path, "echo done; echo wrong >&2; exit 3\n") as guest:
        assert (guest.get(OUTPUT), guest.get(STATUS)) == (b"done\nwrong\n", b"768")
        assert guest.succeed(["echo", "hello"]).text == "hello\n"


def test_a_guest_that_dies_in_the_middle_has_reported_its_progress(workshop: BuildContext, tmp_path: Path) -> None:
    work = SAYS + "say first half\nsay second half\necho c > /proc/sysrq-trigger\nsay never\n"
    received: list[str] = []
    guest = guest_with(workshop, tmp_path, work)
    with pytest.raises(GuestPanic, match="panicked while booting"):
        guest.boot(20, received.append)
    assert [line.partition("lab: ")[2] for line in received if "lab: " in line] == ["first half", "second half"]
    assert guest.pid is None


@pytest.mark.parametrize("last_words", ["", "printf 'and no end of a line' > /dev/console\n"])
def test_a_guest_without_output_for_too_long_is_given_up(
    workshop: BuildContext, tmp_path: Path, last_words: str
) -> None:
    received: list[str] = []
    guest = guest_with(workshop, tmp_path, f"{SAYS}say begun\n{last_words}while :; do :; done\n")
    with pytest.raises(GuestHang, match="no console output for 3 s"):
        guest.boot(3, received.append)
    assert any("lab: begun" in line for line in received)
    assert guest.pid is None


def test_a_guest_that_goes_on_may_take_longer_than_its_time_limit(workshop: BuildContext, tmp_path: Path) -> None:
    part = 'i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); done; say "part $part"'
    work = f"{SAYS}for part in $(seq 40); do {part}; done\n"
    moments = moments_of(guest_with(workshop, tmp_path, work, "first"), limit=600)
    # However fast the host is: longer than any silence of the guest, and shorter than all that it does.
    silence = max(later - earlier for earlier, later in pairwise(moments))
    limit = math.sqrt(silence * moments[-1])
    assert len(moments_of(guest_with(workshop, tmp_path, work, "second"), limit)) >= 40


def moments_of(guest: Guest, limit: float) -> list[float]:
    """When a guest printed, in host seconds from its start. Raises GuestHang after ``limit`` without output."""
    start, moments = time.monotonic(), [0.0]
    try:
        guest.boot(limit, lambda line: moments.append(time.monotonic() - start))
    finally:
        guest.kill()
    return moments
