# SPDX-License-Identifier: GPL-2.0-only
"""Which kprobes does a hit find through the cache of 2014, as it was published and mended?

What is wrong with the published one is asserted as it is: a kernel that is not wrong there is not the published one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import capstone
import pytest
from djprobe_trial import insert
from module_maker import ModuleMaker

from orchestrator.artifacts.module_source import ModuleSource
from orchestrator.artifacts.modules import Module
from orchestrator.errors import GuestPanic
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import check_taint
from orchestrator.probes.symbols import Symbols

Hits = tuple[list[int], list[int]]
"""Hits of the first and of the second kprobe, on each CPU."""

_SECOND_CPU = "/sys/devices/system/cpu/cpu1/online"
_CPUS = {"i386": "pentium4", "x86_64": "xeon-e5410"}


def on(*variants: str, fresh: bool = False) -> list[object]:
    """Parameters of a fixture: these variants of the kernel for several CPUs, on two, of each architecture."""
    return [
        pytest.param(
            name,
            marks=[
                pytest.mark.kernels(name),
                pytest.mark.guest(kernel=name, cpu=cpu, smp=2, timing="tcg", fresh=fresh),
            ],
        )
        for arch, cpu in _CPUS.items()
        for name in (f"lab-{arch}-smp-{variant}" for variant in variants)
    ]


@pytest.fixture(params=on("hash12", "kpcache", "kpcache-published"))
def kernel(request: pytest.FixtureRequest) -> str:
    """The name of the guest's kernel."""
    return str(request.param)


@pytest.fixture
def sound(shared_guest: Guest) -> Iterator[Guest]:
    """The guest, whose kernel must have had nothing to complain of at the end."""
    mark = shared_guest.console.length()
    yield shared_guest
    shared_guest.check_console(mark)
    check_taint(int(shared_guest.get("/proc/sys/kernel/tainted")))


@dataclass(frozen=True)
class Loaded:
    """A test module in a guest's kernel, controlled by its parameters. A refused command is a GuestError."""

    guest: Guest
    name: str

    def write(self, parameter: str, *values: object) -> None:
        for value in values:
            self.guest.put(str(value).encode(), f"/sys/module/{self.name}/parameters/{parameter}")

    def read(self, parameter: str) -> str:
        return self.guest.get(f"/sys/module/{self.name}/parameters/{parameter}").decode("ascii").strip()

    def table(self, parameter: str) -> list[list[int]]:
        """Lines of numbers."""
        return [[int(number) for number in line.split()] for line in self.read(parameter).splitlines()]


def loaded(guest: Guest, module: Module, arguments: Sequence[str] = ()) -> Loaded:
    """A test module, inserted."""
    insert(guest, module, arguments)
    return Loaded(guest, module.name)


# --- the second kprobe at an address --------------------------------------------------------------


def life_of_a_pair(pair: Loaded) -> Iterator[Hits]:
    """One kprobe is hit on the first CPU, then comes another, then the first goes: hits so far after each."""

    def hits() -> Hits:
        first, second = pair.table("hits")
        return first, second

    pair.write("call", 0)
    yield hits()
    pair.write("put", 1)
    pair.write("call", 0, 1)
    yield hits()
    pair.write("take", 0)
    pair.write("call", 0, 1)
    yield hits()


RIGHT = [([1, 0], [0, 0]), ([2, 1], [1, 1]), ([2, 1], [2, 2])]
# The first CPU has the first kprobe in its cache, and goes on hitting it alone, even when it has been unregistered.
DEFECTIVE = [([1, 0], [0, 0]), ([2, 1], [0, 1]), ([3, 1], [0, 2])]


def test_the_second_kprobe_at_an_address(kernel: str, sound: Guest, modules: ModuleMaker) -> None:
    pair = loaded(sound, modules.rogue("kprobe_pair"), ["symbol=pair_short"])
    pair.write("put", 0)
    assert pair.read("alone") == "1"  # so it cannot be optimized: that would have needed an aggregator
    assert list(life_of_a_pair(pair)) == (DEFECTIVE if kernel.endswith("-published") else RIGHT)
    before = pair.table("hits")
    pair.write("take", 1)
    pair.write("call", 0, 1)
    assert pair.table("hits") == before
    sound.succeed(["rmmod", "kprobe_pair"])


def test_where_a_jump_fits_there_is_an_aggregator_from_the_start(
    kernel: str, sound: Guest, modules: ModuleMaker
) -> None:
    """So the published cache, too, finds both kprobes there."""
    pair = loaded(sound, modules.rogue("kprobe_pair"), ["symbol=pair_long"])
    pair.write("put", 0)
    assert pair.read("alone") == "0"
    assert list(life_of_a_pair(pair)) == RIGHT
    sound.succeed(["rmmod", "kprobe_pair"])


def change_while_offline(pair: Loaded) -> None:
    """The second CPU hits a kprobe and goes offline; another takes the kprobe's place, and the CPU comes back and hits.

    No interrupt reaches it while its entry is invalidated.
    """
    pair.write("put", 0)
    pair.write("call", 1)
    pair.guest.put(b"0", _SECOND_CPU)
    pair.write("take", 0)
    pair.write("put", 1)
    pair.guest.put(b"1", _SECOND_CPU)
    pair.write("call", 1)


@pytest.mark.parametrize("kernel", on("hash12", "kpcache"))
def test_a_cpu_back_online_finds_the_current_kprobes(kernel: str, sound: Guest, modules: ModuleMaker) -> None:
    pair = loaded(sound, modules.rogue("kprobe_pair"), ["symbol=pair_short"])
    change_while_offline(pair)
    assert pair.table("hits") == [[0, 1], [0, 1]]
    pair.write("take", 1)
    sound.succeed(["rmmod", "kprobe_pair"])


@pytest.mark.allow_oops(".")
@pytest.mark.parametrize("kernel", on("kpcache-published", fresh=True))
def test_the_published_cache_returns_removed_kprobes(kernel: str, guest: Guest, modules: ModuleMaker) -> None:
    """The hit goes on with a kprobe whose copy of the instruction has been freed."""
    pair = loaded(guest, modules.rogue("kprobe_pair"), ["symbol=pair_short"])
    with pytest.raises(GuestPanic):
        change_while_offline(pair)


# --- what comes between a hit's look into the cache and its end ------------------------------------

_MODULES = Path(__file__).with_name("modules")
_CODE_BYTES = 512
"""More than the functions looked into have."""


@dataclass(frozen=True)
class Places:
    """Addresses in the kernel at which a hit can be held."""

    found: int
    """The kprobe has been found, in the cache or the hash, and is about to be used."""
    searched: int
    """It has been found in the hash, and its entry in the cache is about to be set."""
    set: int
    """The entry has the kprobe, and is about to get the address."""


def places_in(guest: Guest, name_of_handler: str) -> Places:
    """Of a hit that this handler looks up; found in the live code, which is not the same for every compiler."""
    symbols = Symbols.of(guest)
    lookup, handler = symbols.address("get_kprobe_cached"), symbols.address(name_of_handler)
    machine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64 if lookup >> 32 else capstone.CS_MODE_32)

    def code(address: int) -> list[tuple[int, int, str, str]]:
        return list(machine.disasm_lite(guest.read_memory(address, _CODE_BYTES), address))

    found = next(at + size for at, size, name, operands in code(handler) if (name, operands) == ("call", hex(lookup)))
    stores = [
        (at, operands.split(", ")) for at, _, name, operands in code(lookup) if name == "mov" and "ptr" in operands
    ]
    # The entry's address becomes 0, then its kprobe is set, then its address.
    searched, entry = next((at, target) for at, (target, value) in stores if value == "0")
    set_ = next(at for at, (target, _) in stores if at > searched and target == entry)
    return Places(found, searched, set_)


@dataclass(frozen=True)
class Outcome:
    """What a race has left. Of each kprobe: hits at its own address, and at another one."""

    interrupts: bool
    """Whether they were on where the hit was held."""
    timed_out: bool
    """Whether it was held until it gave up waiting for the other CPU."""
    removed: bool
    """Whether the first kprobe was out of the hash by then."""
    first: tuple[int, int]
    second: tuple[int, int]
    others: list[tuple[int, int]]


def race_source() -> ModuleSource:
    """The module that runs races, with what it holds a CPU with."""
    name = "kprobe_race"
    parts = ["cpu_hold.h", "cpu_hold.c", "cpu_hold_detour.S", "traced_kprobes.h", "traced_kprobes.c"]
    files = {part: (_MODULES / part).read_text() for part in parts}
    files[f"{name}_main.c"] = (_MODULES / f"{name}.c").read_text()
    objects = " ".join(f"{Path(file).stem}.o" for file in files if not file.endswith(".h"))
    # objtool rightly warns of a return to a place without a call.
    kbuild = f"obj-m := {name}.o\n{name}-y := {objects}\nOBJECT_FILES_NON_STANDARD_cpu_hold_detour.o := y\n"
    return ModuleSource(name, {**files, "Kbuild": kbuild})


Race = Callable[[str, str], Outcome]
"""Runs the race of a name, with the hit held at the place of a name."""


@pytest.fixture
def race(kernel: str, sound: Guest, modules: ModuleMaker) -> Iterator[Race]:
    module = loaded(sound, modules.built(race_source()))
    places = places_in(sound, "kprobe_ftrace_handler" if kernel.endswith("-ftrace") else "kprobe_int3_handler")

    def run(name: str, place: str) -> Outcome:
        module.write("hold", getattr(places, place))
        module.write("race", name)
        held, interrupts, timed_out, removed = (number == 1 for number in module.table("held")[0])
        assert held
        first, second, *other_pairs = ((hits, strays) for hits, strays in module.table("hits"))
        return Outcome(interrupts, timed_out, removed, first, second, other_pairs)

    yield run
    sound.succeed(["rmmod", "kprobe_race"])


TRACED = pytest.mark.parametrize("kernel", on("kpcache-ftrace", "kpcache-published-ftrace"), indirect=True)
UNHIT = [(0, 0)] * 4
_RACES = 10


@TRACED
def test_kprobe_removed_between_search_and_setting_does_not_come_back(kernel: str, race: Race) -> None:
    """Nor does it on the published kernel, for all its interrupts: the kprobe leaves the hash at once, but its entry is
    invalidated only after the grace period, which waits for the hit that would set it again."""
    outcome = race("removal", "searched")
    assert outcome.timed_out
    assert (outcome.second, outcome.others) == ((1, 0), UNHIT)
    if kernel.endswith("-published-ftrace"):
        assert (outcome.interrupts, outcome.removed) == (True, True)
        assert outcome.first == (0, 0)  # switched off by the time that the hit goes on
    else:
        assert not outcome.interrupts
        assert outcome.first[1] == 0


@TRACED
def test_what_an_aggregator_replaces_between_search_and_setting(kernel: str, race: Race) -> None:
    """There is no grace period before that invalidation: it needs the interrupts off, or the entry would stay."""
    outcome = race("joining", "searched")
    if kernel.endswith("-published-ftrace"):
        # Nothing is invalidated, so nothing waits.
        assert outcome == Outcome(True, False, True, (2, 0), (0, 0), UNHIT)
    else:
        assert outcome == Outcome(False, True, True, (2, 0), (1, 0), UNHIT)


@TRACED
def test_an_interrupt_that_hits_a_list_full_of_kprobes_during_the_setting(kernel: str, race: Race) -> None:
    outcome = race("setting", "set")
    if kernel.endswith("-published-ftrace"):
        # The last of the others has got the entry of the first: it is hit in its place, and the first no more.
        assert outcome == Outcome(True, False, False, (1, 0), (0, 0), [(1, 0), (1, 0), (1, 0), (1, 1)])
    else:
        assert outcome == Outcome(False, True, False, (2, 0), (0, 0), [(1, 0)] * 4)


@pytest.mark.parametrize("kernel", on("kpcache", "kpcache-published", "kpcache-ftrace"), indirect=True)
def test_an_nmi_that_hits_a_list_full_of_kprobes_during_the_setting(kernel: str, race: Race) -> None:
    """Interrupts are off in a breakpoint's handler, and the repaired cache sets its entries so; an NMI comes anyway."""
    outcome = race("nmi", "set")
    assert (outcome.interrupts, outcome.timed_out) == (False, False)
    if kernel.endswith("-published"):
        # The last of the others has got the entry of the first: it is hit in its place, and the first no more.
        assert (outcome.first, outcome.others) == ((1, 0), [(1, 0), (1, 0), (1, 0), (1, 1)])
    else:
        assert (outcome.first, outcome.others) == ((2, 0), [(1, 0)] * 4)


@TRACED
def test_a_kprobe_used_again_while_a_hit_has_it_from_the_cache(kernel: str, race: Race) -> None:
    """unregister_kprobe() has come back, and its owner may do with the kprobe what it likes: here, put it elsewhere."""
    # On a busy host the CPU that is held may not notice in time that the grace period before has ended. Then the one
    # that the race is about waits for this hit as well.
    outcome = next((found for found in (race("reuse", "found") for _ in range(_RACES)) if not found.timed_out), None)
    if kernel.endswith("-published-ftrace"):
        # It is hit where it is not any more, and the one that is there is not.
        assert outcome == Outcome(True, False, False, (1, 1), (0, 0), UNHIT)
    else:
        assert outcome == Outcome(True, False, False, (1, 0), (1, 0), UNHIT)
