# SPDX-License-Identifier: GPL-2.0-only
"""Do markers pass their arguments to a connected probe, and nothing before and after?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from elsewhere import ELSEWHERE
from module_maker import ModuleMaker

from orchestrator.artifacts.module_source import ModuleSource, module_folders, render_own
from orchestrator.artifacts.sources import included
from orchestrator.errors import BuildError, GuestError
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import check_taint
from orchestrator.probes.loading import load

NAME = "marker_trial"
MACHINES = {
    "lab-i386-up": "pentium4",
    "debian-686": "pentium4",
    "debian-amd64": "xeon-e5410",
}
WAIT_ROUNDS = 2000
"""Of 10 ms of the guest's time and some commands each."""


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
        return sum(sum(counts) for counts in self.counts().values())

    def counts(self) -> dict[str, list[int]]:
        """Hits on each CPU by the marker's name."""
        lines = [line.split() for line in self.read("hits").splitlines()]
        return {f"trial_{word}": [int(count) for count in counts] for word, *counts in lines}

    def received(self) -> str:
        return self.read("received").strip()

    def places(self) -> list[Place]:
        lines = self.read("markers").splitlines()
        matches = [re.fullmatch(r"(\S+) (\S+) (\S+) ([0-9a-f]+) ([0-9a-f]+) (.*)", line) for line in lines]
        assert all(matches), lines
        return [
            Place(match[1], match[2], match[3] == "connected", int(match[4], 16), int(match[5], 16), match[6])
            for match in matches
            if match is not None
        ]

    def loads(self, name: str) -> list[bytes]:
        """The live bytes of the instructions that load a marker's immediate value."""
        return [self.guest.read_memory(place.load, 2) for place in self.places() if place.name == name and place.load]

    def flag(self, name: str) -> int:
        """The live flag of a name's one marker of the generic flavour."""
        (flag,) = {place.flag for place in self.places() if place.name == name and place.flavour == "generic"}
        return self.guest.read_memory(flag, 1)[0]

    def refusal(self, name: str, format_: str) -> str:
        """Why a connection is refused, in the kernel's log."""
        self.guest.succeed(["dmesg", "-c"])
        with pytest.raises(GuestError):
            self.connect(name, format_)
        (message,) = [line for line in self.guest.run(["dmesg"]).text.splitlines() if f"{NAME}: " in line]
        return message.partition(f"{NAME}: ")[2]

    def read(self, parameter: str) -> str:
        return self.guest.get(f"/sys/module/{NAME}/parameters/{parameter}").decode("ascii")

    def write(self, parameter: str, value: str) -> None:
        self.guest.put(value.encode(), f"/sys/module/{NAME}/parameters/{parameter}")


def source_of(name: str) -> ModuleSource:
    """A test's module with all that it includes."""
    own = Path(__file__).with_name("modules").joinpath(f"{name}.c").read_text()
    shared = included(own, module_folders())
    files = {f"{name}_main.c": own, **{file.name: file.read_text() for file in shared}}
    objects = " ".join(f"{Path(name).stem}.o" for name in files if name.endswith((".c", ".S")))
    return ModuleSource(name, {**files, "Kbuild": f"obj-m := {name}.o\n{name}-y := {objects}\n"})


def loaded(guest: Guest, modules: ModuleMaker) -> Iterator[Trial]:
    """The trial module in a guest; at the end the kernel must have had nothing to complain of."""
    mark = guest.console.length()
    load(guest, NAME, modules.built(source_of(NAME)).file)
    yield Trial(guest)
    guest.succeed(["rmmod", NAME])
    guest.check_console(mark)
    check_taint(int(guest.get("/proc/sys/kernel/tainted")))


@pytest.fixture(
    params=[
        pytest.param(
            name,
            marks=[
                pytest.mark.guest(kernel=name, cpu=cpu, timing="tcg"),
                *([] if name == "lab-i386-up" else [ELSEWHERE]),
            ],
        )
        for name, cpu in MACHINES.items()
    ]
)
def trial(request: pytest.FixtureRequest, shared_guest: Guest, modules: ModuleMaker) -> Iterator[Trial]:
    yield from loaded(shared_guest, modules)


def test_markers_are_listed_with_their_places(trial: Trial) -> None:
    places = trial.places()
    # In the order of the code, which is the compiler's to choose.
    assert sorted((place.name, place.flavour, place.format) for place in places) == [
        ("trial_differing", "optimized", "differing %ld"),
        ("trial_differing", "optimized", "differing %s"),
        ("trial_generic", "generic", "generic %ld"),
        ("trial_inline", "optimized", "inline %ld"),
        ("trial_inline", "optimized", "inline %ld"),
        ("trial_last", "optimized", "last"),
        ("trial_optimized", "optimized", "optimized %ld %s"),
        ("trial_twice", "generic", "twice %ld"),
        ("trial_twice", "optimized", "twice %ld"),
    ]
    assert not any(place.connected for place in places)
    assert all((place.load == 0) == (place.flavour == "generic") for place in places)
    trial.pass_markers(5)
    assert trial.hits() == 0


def test_a_probe_receives_the_markers_arguments(trial: Trial) -> None:
    for name, format_, received, hits in (
        ("trial_optimized", "optimized %ld %s", "optimized 20 text", 1),
        ("trial_generic", "generic %ld", "generic 20", 1),
        ("trial_inline", "inline %ld", "inline 20", 2),
        ("trial_twice", "twice %ld", "twice 20", 2),
        ("trial_last", "last", "last", 1),
    ):
        before = trial.hits()
        trial.connect(name, format_)
        trial.pass_markers()
        assert trial.received() == received
        assert trial.hits() - before == hits
        trial.disconnect(name)
        trial.pass_markers()
        assert trial.hits() - before == hits


def test_the_live_bytes_show_whether_a_probe_is_connected(trial: Trial) -> None:
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


def test_markers_of_one_name_are_connected_together(trial: Trial) -> None:
    trial.connect("trial_twice", "twice %ld")
    assert (trial.loads("trial_twice"), trial.flag("trial_twice")) == ([b"\xb0\x01"], 1)
    assert [place.name for place in trial.places() if place.connected] == ["trial_twice"] * 2
    trial.disconnect("trial_twice")
    assert (trial.loads("trial_twice"), trial.flag("trial_twice")) == ([b"\xb0\x00"], 0)
    assert not any(place.connected for place in trial.places())


OTHER_MISFITS = pytest.mark.nightly("other arguments that do not fit: a second each")
MISFIT = Path(__file__).with_name("modules") / "marker_misfit.c.j2"


def user_module(folder: Path, flavour: str, passed: str) -> Path:
    """A user's C file with one marker, in line 15."""
    file = folder / "misfit.c"
    file.write_text(MISFIT.read_text().replace("{{ flavour }}", flavour).replace("{{ passed }}", passed))
    return file


@pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="tcg")
@pytest.mark.parametrize(
    ("flavour", "passed", "complaint"),
    [
        ("MARK", '"value %d name %s", text, 3', "format '%d' expects argument of type 'int'"),
        pytest.param(
            "MARK", '"%ld %s", number', "format '%s' expects a matching 'char *' argument", marks=OTHER_MISFITS
        ),
        pytest.param("MARK", '"%ld", number, text', "too many arguments for format", marks=OTHER_MISFITS),
        (
            "MARK_GENERIC",
            '"%d", number',
            "format '%d' expects argument of type 'int', but argument 2 has type 'long int'",
        ),
    ],
)
def test_a_marker_that_does_not_fit_its_format_does_not_build(
    modules: ModuleMaker, tmp_path: Path, flavour: str, passed: str, complaint: str
) -> None:
    file = user_module(tmp_path, flavour, passed)
    with pytest.raises(BuildError) as failure:
        modules.built(render_own(file, {}))
    assert failure.value.where == f"{file}:15"
    assert any(complaint in line and line.startswith(f"{file}:15:") for line in failure.value.detail)


@pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="tcg")
def test_other_warnings_are_shown_with_the_users_line(modules: ModuleMaker, tmp_path: Path) -> None:
    file = user_module(tmp_path, "MARK", '"%ld %s", number, text')
    for _ in ("built", "from the cache"):
        warnings = modules.built(render_own(file, {})).warnings
        assert f"{file}:13:13: warning: unused variable 'unused' [-Wunused-variable]" in warnings
        assert sum(": warning: " in line for line in warnings) == 1


def test_wrong_connections_are_refused(trial: Trial) -> None:
    for name, format_, reason in (
        ("trial_optimized", "optimized %d %s", "the probe expects another format"),
        ("trial_last", "last ", "the probe expects another format"),
        ("trial_lost", "-", "no such marker"),
        ("trial_differing", "-", "markers of this name differ in their format"),
        ("trial_differing", "differing %ld", "markers of this name differ in their format"),
    ):
        assert trial.refusal(name, format_) == f"marker {name}: {reason}"
        assert not any(place.connected for place in trial.places())


def test_a_second_probe_is_refused(trial: Trial) -> None:
    trial.connect("trial_last", "last")
    assert trial.refusal("trial_last", "last") == "marker trial_last: a probe is connected"
    trial.disconnect("trial_last")
    with pytest.raises(GuestError):
        trial.disconnect("trial_last")
    trial.connect("trial_last", "last")  # and goes with the module


@pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", smp=2, timing="tcg")
def test_probes_come_and_go_while_two_cpus_pass_by(
    guest: Guest, modules: ModuleMaker, pytestconfig: pytest.Config
) -> None:
    names = ("trial_optimized", "trial_inline", "trial_generic")
    for trial in loaded(guest, modules):
        guest.put(b"", "/tmp/go")
        passing = f"echo 10000 > /sys/kernel/debug/{NAME}/pass || touch /tmp/failed"
        guest.succeed(["sh", "-c", passing.replace("10000", "nothing")])
        guest.succeed(["rm", "/tmp/failed"])  # a write that fails is seen
        for cpu in (0, 1):
            script = f"while [ -e /tmp/go -a ! -e /tmp/failed ]; do {passing}; done; touch /tmp/ended{cpu}"
            guest.succeed(["sh", "-c", f"taskset {1 << cpu:x} sh -c '{script}' > /dev/null 2>&1 &"])
        for cycle in range(pytestconfig.getoption("cycles")):
            before = trial.counts()
            for name in names:
                trial.connect(name, "-")
            wait_for_hits(trial, names, before, f"cycle {cycle}")
            for name in names:
                trial.disconnect(name)
            gone = trial.counts()
            guest.succeed(["sleep", "0.02"])
            assert trial.counts() == gone, f"cycle {cycle}"
        guest.succeed(["rm", "/tmp/go"])
        guest.wait_until_succeeds(["test", "-e", "/tmp/ended0", "-a", "-e", "/tmp/ended1"])
        guest.fail(["test", "-e", "/tmp/failed"])


def are_all_hit(trial: Trial, names: Sequence[str], before: Mapping[str, Sequence[int]]) -> bool:
    """Whether each marker was hit on each CPU since ``before``."""
    now = trial.counts()
    return all(count > old for name in names for count, old in zip(now[name], before[name], strict=True))


def wait_for_hits(trial: Trial, names: Sequence[str], before: Mapping[str, Sequence[int]], when: str) -> None:
    """Wait until each marker was hit on each CPU since ``before``; passing the markers must not fail."""
    rounds = 0
    while not are_all_hit(trial, names, before):
        assert (rounds := rounds + 1) < WAIT_ROUNDS, f"no hits after {rounds} looks in {when}"
        trial.guest.fail(["test", "-e", "/tmp/failed"])
        trial.guest.succeed(["sleep", "0.01"])
