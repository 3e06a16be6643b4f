# SPDX-License-Identifier: GPL-2.0-only
"""Do markers cost nothing but a look until a probe is connected, tell it what they are told to, and let it go again?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from module_maker import ModuleMaker

from orchestrator.artifacts.inclusion import included
from orchestrator.artifacts.module_source import ModuleSource
from orchestrator.errors import GuestError
from orchestrator.guest.guest import Guest
from orchestrator.paths import data_dir
from orchestrator.probes.evidence import check_taint
from orchestrator.probes.loading import load

NAME = "marker_trial"
MACHINES = {
    "lab-i386-up": "pentium4",
    "debian-686": "pentium4",
    "debian-amd64": "xeon-e5410",
}
CYCLES = 30
_TRIAL = Path(__file__).with_name("modules") / f"{NAME}.c"


@dataclass(frozen=True)
class Place:
    """A marker in the code: where its immediate value is loaded (0: it has none), and its flag."""

    name: str
    flavour: str
    connected: bool
    load: int
    flag: int
    format: str


@dataclass(frozen=True)
class Trial:
    """The loaded trial module. What it refuses is a GuestError."""

    guest: Guest

    def connect(self, name: str, format_: str) -> None:
        self.write("connect", f"{name} {format_}")

    def disconnect(self, name: str) -> None:
        self.write("disconnect", name)

    def pass_markers(self, times: int = 1) -> None:
        self.guest.put(str(times).encode(), f"/sys/kernel/debug/{NAME}/pass")

    def hits(self) -> int:
        return sum(int(count) for count in self.read("hits").split())

    def told(self) -> str:
        return self.read("told").strip()

    def places(self) -> list[Place]:
        lines = self.read("markers").splitlines()
        found = [re.fullmatch(r"(\S+) (\S+) (\S+) ([0-9a-f]+) ([0-9a-f]+) (.*)", line) for line in lines]
        assert all(found), lines
        return [
            Place(one[1], one[2], one[3] == "connected", int(one[4], 16), int(one[5], 16), one[6])
            for one in found
            if one is not None
        ]

    def loads(self, name: str) -> list[bytes]:
        """The live bytes of the instructions that load a marker's immediate value."""
        return [self.guest.read_memory(place.load, 2) for place in self.places() if place.name == name and place.load]

    def flag(self, name: str) -> int:
        (flag,) = {place.flag for place in self.places() if place.name == name}
        return self.guest.read_memory(flag, 1)[0]

    def refusal(self, name: str, format_: str) -> str:
        """Why a connection is refused, in the kernel's log."""
        self.guest.succeed(["dmesg", "-c"])
        with pytest.raises(GuestError):
            self.connect(name, format_)
        (said,) = [line for line in self.guest.run(["dmesg"]).text.splitlines() if f"{NAME}: " in line]
        return said.partition(f"{NAME}: ")[2]

    def read(self, parameter: str) -> str:
        return self.guest.get(f"/sys/module/{NAME}/parameters/{parameter}").decode("ascii")

    def write(self, parameter: str, value: str) -> None:
        self.guest.put(value.encode(), f"/sys/module/{NAME}/parameters/{parameter}")


def trial_source() -> ModuleSource:
    """The trial module with all that it includes."""
    shared = included(_TRIAL.read_text(), [data_dir("kmods")])
    files = {f"{NAME}_main.c": _TRIAL.read_text(), **{file.name: file.read_text() for file in shared}}
    objects = " ".join(f"{Path(name).stem}.o" for name in files if name.endswith((".c", ".S")))
    return ModuleSource(NAME, {**files, "Kbuild": f"obj-m := {NAME}.o\n{NAME}-y := {objects}\n"})


def loaded(guest: Guest, modules: ModuleMaker) -> Iterator[Trial]:
    """The trial module in a guest; at the end the kernel must have had nothing to complain of."""
    mark = guest.console.length()
    load(guest, NAME, modules.built(trial_source()).file)
    yield Trial(guest)
    guest.succeed(["rmmod", NAME])
    guest.check_console(mark)
    check_taint(int(guest.get("/proc/sys/kernel/tainted")))


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.guest(kernel=name, cpu=cpu, timing="tcg"))
        for name, cpu in MACHINES.items()
    ]
)
def trial(request: pytest.FixtureRequest, guest: Guest, modules: ModuleMaker) -> Iterator[Trial]:
    yield from loaded(guest, modules)


def test_markers_are_listed_with_their_places(trial: Trial) -> None:
    places = trial.places()
    assert [(place.name, place.flavour, place.format) for place in places] == [
        ("trial_inline", "optimized", "inline %ld"),
        ("trial_inline", "optimized", "inline %ld"),
        ("trial_optimized", "optimized", "optimized %ld %s"),
        ("trial_generic", "generic", "generic %ld"),
        ("trial_last", "optimized", "last"),
    ] or sorted(place.name for place in places) == sorted(
        ["trial_inline", "trial_inline", "trial_optimized", "trial_generic", "trial_last"]
    )
    assert not any(place.connected for place in places)
    assert all((place.load == 0) == (place.flavour == "generic") for place in places)
    trial.pass_markers(5)
    assert trial.hits() == 0


def test_a_probe_is_told_what_the_marker_is(trial: Trial) -> None:
    for name, format_, told, hits in (
        ("trial_optimized", "optimized %ld %s", "optimized 20 text", 1),
        ("trial_generic", "generic %ld", "generic 20", 1),
        ("trial_inline", "inline %ld", "inline 20", 2),
        ("trial_last", "last", "last", 1),
    ):
        before = trial.hits()
        trial.connect(name, format_)
        trial.pass_markers()
        assert trial.told() == told
        assert trial.hits() - before == hits
        trial.disconnect(name)
        trial.pass_markers()
        assert trial.hits() - before == hits


def test_the_live_bytes_say_whether_a_probe_is_connected(trial: Trial) -> None:
    """Of the optimized flavour the immediate value, of the generic one the flag: read from outside the guest."""
    assert trial.loads("trial_inline") == [b"\xb0\x00"] * 2
    trial.connect("trial_inline", "-")
    assert trial.loads("trial_inline") == [b"\xb0\x01"] * 2
    assert trial.loads("trial_optimized") == [b"\xb0\x00"]
    trial.disconnect("trial_inline")
    assert trial.loads("trial_inline") == [b"\xb0\x00"] * 2
    assert trial.flag("trial_generic") == 0
    trial.connect("trial_generic", "-")
    assert (trial.flag("trial_generic"), trial.loads("trial_generic")) == (1, [])
    trial.disconnect("trial_generic")
    assert trial.flag("trial_generic") == 0


def test_several_markers_are_connected_at_once(trial: Trial) -> None:
    for name in ("trial_optimized", "trial_generic", "trial_inline"):
        trial.connect(name, "-")
    before = trial.hits()
    trial.pass_markers(10)
    assert trial.hits() - before == 40
    trial.disconnect("trial_generic")
    trial.pass_markers(10)
    assert trial.hits() - before == 70


@pytest.mark.parametrize(
    ("name", "format_", "reason"),
    [
        ("trial_optimized", "optimized %d %s", "the probe expects another format"),
        ("trial_last", "last ", "the probe expects another format"),
        ("trial_lost", "-", "no such marker"),
    ],
)
def test_a_wrong_connection_is_refused(trial: Trial, name: str, format_: str, reason: str) -> None:
    assert trial.refusal(name, format_) == f"marker {name}: {reason}"
    assert not any(place.connected for place in trial.places())


def test_a_second_probe_is_refused(trial: Trial) -> None:
    trial.connect("trial_last", "last")
    assert trial.refusal("trial_last", "last") == "marker trial_last: a probe is connected"
    trial.disconnect("trial_last")
    with pytest.raises(GuestError):
        trial.disconnect("trial_last")
    trial.connect("trial_last", "last")  # and goes with the module


@pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", smp=2, timing="tcg", fresh=True)
def test_probes_come_and_go_while_two_cpus_pass_by(guest: Guest, modules: ModuleMaker) -> None:
    for trial in loaded(guest, modules):
        guest.put(b"", "/tmp/go")
        script = f"while [ -e /tmp/go ]; do echo 10000 > /sys/kernel/debug/{NAME}/pass; done"
        for mask in ("1", "2"):
            guest.succeed(["sh", "-c", f"taskset {mask} sh -c '{script}' > /dev/null 2>&1 &"])
        for cycle in range(CYCLES):
            before = trial.hits()
            for name in ("trial_optimized", "trial_inline", "trial_generic"):
                trial.connect(name, "-")
            while min(int(count) for count in trial.read("hits").split()) == 0 or trial.hits() == before:
                guest.succeed(["sleep", "0.01"])
            for name in ("trial_optimized", "trial_inline", "trial_generic"):
                trial.disconnect(name)
            gone = trial.hits()
            guest.succeed(["sleep", "0.02"])
            assert trial.hits() == gone, f"cycle {cycle}"
        guest.succeed(["sh", "-c", "rm /tmp/go; sleep 0.5"])
