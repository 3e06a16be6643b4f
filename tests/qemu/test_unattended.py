# SPDX-License-Identifier: GPL-2.0-only
"""Is work that a guest does by itself the same in every boot, and is the progress reported of one that did not end?"""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.artifacts.unattended_initramfs import FOLDER, OUTPUT, STATUS
from orchestrator.catalog.kernels import kernel
from orchestrator.cpio_archive import Entry, archive
from orchestrator.deadline import Deadline
from orchestrator.errors import GuestHang, GuestPanic
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.guest import Guest
from orchestrator.guest.panic_watch import cpus_without_interrupts
from orchestrator.run.machines import machine_for
from orchestrator.run.work_progress import kernel_seconds

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

BUSY = """
i=0
while [ $i -lt 12 ]; do ls -l /sys/kernel > /tmp/list; i=$((i + 1)); done
grep "now at" /proc/timer_list
cat /proc/interrupts /proc/vmstat
"""
_LOOK = 0.1
"""Host seconds between two looks at a console."""

SAYS = 'say() { echo "<4>lab: $*" > /dev/kmsg; }\n'


def guest_with(context: BuildContext, folder: Path, work: str, name: str = "guest") -> Guest:
    built = ready_kernel(context, kernel("lab-i386-up"))
    machine = machine_for(context, built, GuestSpec(cpu="pentium4", timing="instructions"))
    image = folder / f"{name}.initramfs"
    unattended = archive(
        [Entry.folder(FOLDER.removeprefix("/")), Entry.file(f"{FOLDER}/work.sh".removeprefix("/"), work.encode())]
    )
    image.write_bytes(machine.initramfs.read_bytes() + unattended)
    return Guest(dataclasses.replace(machine, initramfs=image, works_alone=True), folder, name)


@contextmanager
def busy_host() -> Iterator[None]:
    """Keep both CPUs from doing one thing after the other in the same order each time."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@pytest.mark.nightly("keeps all processors busy: ten seconds; two boots agree every day, one of them looked at")
def test_two_boots_agree_to_the_nanosecond_however_busy_the_host(workshop: BuildContext, tmp_path: Path) -> None:
    outputs = []
    with guest_with(workshop, tmp_path, BUSY, "idle") as guest:
        outputs.append(guest.get(OUTPUT))
    with busy_host(), guest_with(workshop, tmp_path, BUSY, "busy") as guest:
        outputs.append(guest.get(OUTPUT))
        assert guest.get(STATUS) == b"0"
    assert b"now at" in outputs[0]
    assert outputs[0] == outputs[1]


@pytest.mark.nightly("two more boots with work: five seconds")
def test_a_watch_that_reads_registers_is_not_noticed(
    workshop: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = 'echo "<0>Kernel panic - not syncing: is what the manual says" > /dev/kmsg\n' + BUSY
    looks: list[str] = []

    def look(registers: str) -> set[int]:
        looks.append(registers)
        return cpus_without_interrupts(registers)

    monkeypatch.setattr("orchestrator.guest.panic_watch.cpus_without_interrupts", look)
    with guest_with(workshop, tmp_path, work, "watched") as guest:
        output = guest.get(OUTPUT)
    seen = len(looks)
    monkeypatch.setattr("orchestrator.guest.panic_watch._WATCH_INTERVAL", 3600.0)
    with guest_with(workshop, tmp_path, work, "unwatched") as guest:
        assert guest.get(OUTPUT) == output
    assert len(looks) == seen > 0


def uptime(guest: Guest) -> float:
    return float(guest.get("/proc/uptime").split()[0])


def test_the_seconds_of_its_kernel_are_read_and_it_does_not_notice(workshop: BuildContext, tmp_path: Path) -> None:
    built = ready_kernel(workshop, kernel("lab-i386-up"))
    unseen, seen = (guest_with(workshop, tmp_path, BUSY, name) for name in ("unseen", "seen"))
    read: list[int | None] = []
    with unseen:
        output = unseen.get(OUTPUT)
    seen.boot(listener=lambda lines: read.append(kernel_seconds(seen, built)))
    with seen:
        assert seen.get(OUTPUT) == output
        earlier = uptime(seen)
        now = kernel_seconds(seen, built)
        later = uptime(seen)  # which may be seconds later: between two requests an idle guest's time flies
    seconds = [one for one in read if one is not None]
    assert seconds == sorted(seconds)
    assert now is not None
    assert seconds[-1] <= now
    assert earlier - 1.1 <= now <= later


def test_a_guest_that_has_work_to_do_is_as_any_other_afterwards(workshop: BuildContext, tmp_path: Path) -> None:
    with guest_with(workshop, tmp_path, "echo done; echo wrong >&2; exit 3\n") as guest:
        assert (guest.get(OUTPUT), guest.get(STATUS)) == (b"done\nwrong\n", b"768")
        assert guest.succeed(["echo", "hello"]).text == "hello\n"


def test_a_guest_that_dies_in_the_middle_has_reported_its_progress(workshop: BuildContext, tmp_path: Path) -> None:
    work = SAYS + "say first half\nsay second half\necho c > /proc/sysrq-trigger\nsay never\n"
    received: list[str] = []
    guest = guest_with(workshop, tmp_path, work)
    with pytest.raises(GuestPanic, match="panicked in write_sysrq_trigger while booting"):
        guest.boot(listener=received.extend)
    assert [line.partition("lab: ")[2] for line in received if "lab: " in line] == ["first half", "second half"]
    assert guest.pid is None


NO_LAST_WORDS = pytest.param("", marks=pytest.mark.nightly("the same without last words: two seconds"))


@pytest.mark.parametrize("last_words", [NO_LAST_WORDS, "printf 'and no end of a line' > /dev/console\n"])
def test_a_guest_without_output_for_too_long_is_given_up(
    workshop: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_words: str
) -> None:
    received: list[str] = []
    looks = itertools.count()

    def seconds() -> float:
        """No time passes until the guest is at work, and then a second with each look."""
        return float(next(looks)) if any("lab: begun" in line for line in received) else 0.0

    keep_time(monkeypatch, seconds)
    guest = guest_with(workshop, tmp_path, f"{SAYS}say begun\n{last_words}while :; do :; done\n")
    with pytest.raises(GuestHang, match="no console output for 5 s"):
        guest.boot(5, received.extend)
    assert any("lab: begun" in line for line in received)
    assert guest.pid is None


def test_a_guest_that_goes_on_may_take_longer_than_its_time_limit(
    workshop: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[str] = []
    keep_time(monkeypatch, lambda: 10.0 * len(received))  # with each line ten seconds pass
    part = 'i=0; while [ $i -lt 500 ]; do i=$((i + 1)); done; say "part $part"'
    guest = guest_with(workshop, tmp_path, f"{SAYS}for part in $(seq 40); do {part}; done\n")
    try:
        guest.boot(20, received.extend)
    finally:
        guest.kill()
    assert "part 40" in received[-1]


def keep_time(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[], float]) -> None:
    """Let a booting guest be watched by another clock than the host's, whose speed depends on what else runs there."""
    wait = FramedChannel.wait_for_agent

    class Kept:
        def __init__(self, limit: float) -> None:
            self._end = seconds() + limit

        def left(self) -> float:
            return max(0.0, self._end - seconds())

    monkeypatch.setattr("orchestrator.guest.qemu.Deadline", Kept)
    monkeypatch.setattr(FramedChannel, "wait_for_agent", lambda channel, _: wait(channel, Deadline(_LOOK)))
