# SPDX-License-Identifier: GPL-2.0-only
"""Does a guest report the CPU of the catalogue?"""

from __future__ import annotations

import pytest

from orchestrator.catalog.cpus import cpus
from orchestrator.guest.guest import Guest

IDENTITIES = {
    "pentium4": ("GenuineIntel", "15", "2", "9", "Intel(R) Pentium(R) 4 CPU 3.06GHz"),
    "athlon": ("AuthenticAMD", "6", "10", "0", "AMD Athlon(tm) XP 2400+"),
    "athlon64": ("AuthenticAMD", "15", "4", "8", "AMD Athlon(tm) 64 Processor 2400+"),
    "pentium-m": ("GenuineIntel", "6", "9", "5", "Intel(R) Pentium(R) M processor 1600MHz"),
    "xeon-e5410": ("GenuineIntel", "6", "23", "6", "Intel(R) Xeon(R) CPU           E5410  @ 2.33GHz"),
    "core-i7-1165g7": ("GenuineIntel", "6", "140", "1", "11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz"),
}
FLAGS = {
    "pentium4": ({"pae", "sse2", "tsc", "sep"}, {"lm", "nx", "pni", "ht"}),
    "athlon": ({"pae", "3dnow", "sse"}, {"lm", "nx", "sse2"}),
    "athlon64": ({"pae", "3dnow", "sse2", "nx", "lm"}, {"pni"}),
    "pentium-m": ({"sse2", "sep"}, {"pae", "lm", "nx", "pni"}),
    "xeon-e5410": ({"pae", "lm", "nx", "ssse3", "sse4_1"}, {"sse4_2", "avx"}),
    "core-i7-1165g7": ({"lm", "avx2", "fsgsbase", "erms", "smap", "umip", "pku"}, {"la57", "avx512f", "rtm"}),
}
KERNELS = dict.fromkeys(IDENTITIES, "lab-i386-up") | dict.fromkeys(("xeon-e5410", "core-i7-1165g7"), "debian-amd64")
CASES = [pytest.param(name, marks=pytest.mark.guest(cpu=name, kernel=KERNELS[name])) for name in IDENTITIES]


def cpuinfo(guest: Guest) -> dict[str, str]:
    """The guest's description of its first CPU."""
    first = guest.get("/proc/cpuinfo").decode().split("\n\n")[0]
    fields = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in fields}


def test_no_cpu_is_forgotten_here() -> None:
    assert list(cpus()) == list(IDENTITIES) == list(FLAGS)


@pytest.mark.guest(timing="tcg")
@pytest.mark.parametrize("name", CASES)
def test_a_guest_takes_its_cpu_for_what_it_is_named(shared_guest: Guest, name: str) -> None:
    shown = cpuinfo(shared_guest)
    keys = ("vendor_id", "cpu family", "model", "stepping", "model name")
    assert tuple(shown[key] for key in keys) == IDENTITIES[name]
    has, has_not = FLAGS[name]
    flags = set(shown["flags"].split())
    assert has - flags == set()
    assert has_not & flags == set()


@pytest.mark.guest(cpu="pentium4", timing="tcg", smp=2, memory="128M")
def test_two_cpus_are_threads_of_one_core(shared_guest: Guest) -> None:
    shown = cpuinfo(shared_guest)
    assert (shown["siblings"], shown["cpu cores"]) == ("2", "1")
    assert "ht" in shown["flags"].split()
    assert shared_guest.succeed(["nproc"]).text == "2\n"
    memory = int(shared_guest.get("/proc/meminfo").split()[1]) // 1024
    assert 90 < memory < 128
