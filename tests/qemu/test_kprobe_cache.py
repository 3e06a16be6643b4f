# SPDX-License-Identifier: GPL-2.0-only
"""Which kprobes does a hit find through the cache of 2014, as it was published and mended?

What is wrong with the published one is asserted as it is: a kernel that is not wrong there is not the published one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from djprobe_trial import insert
from module_maker import ModuleMaker

from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import check_taint

Hits = tuple[list[int], list[int]]
"""Hits of the first and of the second kprobe, on each CPU."""

_CPUS = {"i386": "pentium4", "x86_64": "xeon-e5410"}


def on(*variants: str) -> list[object]:
    """Parameters of a fixture: these variants of the kernel for several CPUs, on two, of each architecture."""
    return [
        pytest.param(
            name, marks=[pytest.mark.kernels(name), pytest.mark.guest(kernel=name, cpu=cpu, smp=2, timing="tcg")]
        )
        for arch, cpu in _CPUS.items()
        for name in (f"lab-{arch}-smp-{variant}" for variant in variants)
    ]


@pytest.fixture(params=on("hash12", "kpcache", "kpcache-published"))
def kernel(request: pytest.FixtureRequest) -> str:
    """The name of the guest's kernel."""
    return str(request.param)


@pytest.fixture
def sound(guest: Guest) -> Iterator[Guest]:
    """The guest, whose kernel must have had nothing to complain of at the end."""
    mark = guest.console.length()
    yield guest
    guest.check_console(mark)
    check_taint(int(guest.get("/proc/sys/kernel/tainted")))


@dataclass(frozen=True)
class Loaded:
    """A test module in a guest's kernel, told what to do by its parameters. What it refuses is a GuestError."""

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


def loaded(guest: Guest, modules: ModuleMaker, name: str, arguments: Sequence[str] = ()) -> Loaded:
    """A test module, built and inserted."""
    insert(guest, modules.rogue(name), arguments)
    return Loaded(guest, name)


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
    pair = loaded(sound, modules, "kprobe_pair", ["symbol=pair_short"])
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
    pair = loaded(sound, modules, "kprobe_pair", ["symbol=pair_long"])
    pair.write("put", 0)
    assert pair.read("alone") == "0"
    assert list(life_of_a_pair(pair)) == RIGHT
    sound.succeed(["rmmod", "kprobe_pair"])
