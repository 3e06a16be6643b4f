# SPDX-License-Identifier: GPL-2.0-only
"""Which guests may be restored?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.catalog.cpus import cpu
from orchestrator.guest.machine import Lan, Machine, RootImage
from orchestrator.run.guest_start import can_be_restored
from orchestrator.run.unattended import refused_places
from orchestrator.run.work_progress import WorkProgress

MACHINE = Machine(cpu("pentium4"), Path("kernel"), Path("initramfs"))


IMAGE = RootImage("debian-i386", "key", Path("base"), "qcow2")


@pytest.mark.parametrize("machine", [MACHINE, replace(MACHINE, timing="tcg", smp=2), replace(MACHINE, root=IMAGE)])
def test_guests_that_depend_on_nothing_outside_may_be_restored(machine: Machine) -> None:
    assert can_be_restored(machine)


@pytest.mark.parametrize(
    "machine",
    [
        replace(MACHINE, timing="kvm"),
        replace(MACHINE, timing="tcg", keeps_time=True),
        replace(MACHINE, root=IMAGE, channel="serial"),
        replace(MACHINE, root=replace(IMAGE, is_users=True)),
        replace(MACHINE, timing="tcg", lan=Lan(5, 1)),
    ],
)
def test_guests_that_depend_on_the_outside_may_not_be_restored(machine: Machine) -> None:
    assert not can_be_restored(machine)


# Is it told how far a guest's work is, while it prints and while it does not?


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The host's clock: its only element."""
    clock = [100.0]
    monkeypatch.setattr("orchestrator.run.work_progress.time", SimpleNamespace(monotonic=lambda: clock[0]))
    return clock


def test_what_a_guest_says_is_reported_now_and_then(now: list[float]) -> None:
    reports: list[str] = []
    progress = WorkProgress(reports.append, "k, build", lambda: 7)
    assert progress.reached == "its beginning"
    progress.listen(["[ 1.0] lab: part 1", "[ 1.1] something else"])
    now[0] += 11
    progress.listen(["[ 2.0] lab: part 2", "[ 2.1] lab: part 3"])
    progress.listen(["[ 3.0] lab: part 4"])
    assert reports == ["k, build: part 3"]
    assert progress.reached == "part 4"


def test_silent_guests_own_time_is_reported(now: list[float]) -> None:
    reports: list[str] = []
    read = iter([None, 12, 40])
    progress = WorkProgress(reports.append, "k, build", lambda: next(read))
    for _ in range(3):
        progress.listen([])
        now[0] += 31
        progress.listen([])
        progress.listen(["[ 9.0] lab: done: cold"][: len(reports) - 1])
    assert reports == [
        "k, build: its beginning",
        "k, build: 12 seconds of the guest's time",
        "k, build: done: cold, 40 seconds of the guest's time",
    ]


NOT_LOADED = """\
insmod: can't insert '/sealed/module.ko': Invalid argument
[    1.910397] lab_recorder: __x64_sys_brk+0x9/0x20: an instruction under the jump cannot run out of line
[    5.238413] lab_recorder: ksys_umask+0x0/0x4: shorter than five bytes of whole instructions
[   16.054502] lab_recorder: __x64_sys_brk+0x9/0x20: an instruction under the jump cannot run out of line
cannot load the module
"""


@pytest.mark.parametrize(
    ("output", "refused"),
    [
        (
            NOT_LOADED,
            [
                "__x64_sys_brk+0x9: an instruction under the jump cannot run out of line",
                "ksys_umask+0x0: shorter than five bytes of whole instructions",
            ],
        ),
        (
            "[ 3.5] lab_recorder: __x64_sys_brk+0x0: not optimised: it cannot be, or "
            "debug.kprobes-optimization is off\ncannot load the module\n",
            ["__x64_sys_brk+0x0: not optimised: it cannot be"],
        ),
        (NOT_LOADED.replace("cannot load the module", "the module does not report"), []),
        ("[ 1.9] lab_recorder: nowhere+0x0: no such symbol\ncannot load the module\n", []),
        ("", []),
    ],
)
def test_work_whose_module_refuses_its_places(output: str, refused: list[str]) -> None:
    assert list(refused_places(output.splitlines())) == refused
