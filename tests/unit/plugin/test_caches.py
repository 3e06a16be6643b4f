# SPDX-License-Identifier: GPL-2.0-only
"""Do the plugin's models of caches hit and miss as a simple model of the same caches does?"""

from __future__ import annotations

import subprocess
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.paths import data_dir

KINDS = ("l1i", "l1d_loads", "l1d_stores", "l2", "itlb", "dtlb")
PAGE = 4096
INDEXES = 16


class Geometry(NamedTuple):
    size: int
    ways: int
    line: int

    @property
    def argument(self) -> str:
        return ":".join(map(str, self))


class Access(NamedTuple):
    what: str
    instruction: int = 0
    address: int = 0
    physical: int = 0
    size: int = 1

    @property
    def line(self) -> str:
        return f"{self.what} {self.instruction:x} {self.address:x} {self.physical:x} {self.size:x}\n"


BEGIN, END, EMPTY = Access("begin"), Access("end"), Access("empty")
TINY = {
    "l1i": Geometry(512, 2, 32),
    "l1d": Geometry(512, 4, 64),
    "l2": Geometry(2048, 4, 64),
    "itlb": Geometry(4 * PAGE, 2, PAGE),
    "dtlb": Geometry(3 * PAGE, 3, PAGE),
}


class Reference:
    """Each set of a cache is an ordered mapping: the line used last is at its end."""

    def __init__(self, caches: dict[str, Geometry]) -> None:
        self.caches = caches
        self.sets: defaultdict[tuple[str, int], OrderedDict[int, None]] = defaultdict(OrderedDict)
        self.misses: Counter[tuple[int, str]] = Counter()
        self.lookups: Counter[tuple[str, bool]] = Counter()

    def hits(self, name: str, address: int, physical: int) -> bool:
        geometry = self.caches[name]
        sets = geometry.size // geometry.ways // geometry.line
        lines = self.sets[name, address // geometry.line % sets]
        line = physical // geometry.line
        hit = line in lines
        self.lookups[name, hit] += 1
        lines[line] = None
        lines.move_to_end(line)
        if len(lines) > geometry.ways:
            lines.popitem(last=False)
        return hit

    def do(self, access: Access) -> None:
        what, index, address, physical, size = access
        if what == "empty":
            self.sets.clear()
        elif what == "begin":
            self.misses.clear()
            self.lookups.clear()
        elif what != "end":
            tlb, first = ("itlb", "l1i") if what == "fetch" else ("dtlb", "l1d")
            if not self.hits(tlb, address, address):
                self.misses[index, tlb] += 1
            kind = {"fetch": "l1i", "load": "l1d_loads", "store": "l1d_stores"}.get(what)
            if kind is not None:
                end = min(address + size, (address // PAGE + 1) * PAGE)
                self.look_up_lines(index, first, kind, range(address, end), physical)

    def look_up_lines(self, index: int, name: str, kind: str, addresses: range, physical: int) -> None:
        line = self.caches[name].line
        for start in sorted({address // line * line for address in addresses}):
            place = physical - addresses[0] + start
            if not self.hits(name, start, place):
                self.misses[index, kind] += 1
                if not self.hits("l2", place, place):
                    self.misses[index, "l2"] += 1

    @property
    def printed(self) -> str:
        lines = [f"{name} {self.lookups[name, True]} {self.lookups[name, False]}" for name in self.caches]
        counts = [[index, *(self.misses[index, kind] for kind in KINDS)] for index in range(INDEXES)]
        lines += [" ".join(map(str, count)) for count in counts]
        return "".join(f"{line}\n" for line in lines)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models as a program of this host's."""
    program = tmp_path_factory.mktemp("caches") / "driver"
    plugin = data_dir("images") / "plugin"
    sources = [Path(__file__).parent / "caches_driver.c", plugin / "caches.c"]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-fsanitize=undefined", f"-I{plugin}"]
    argv = ["gcc", *flags, "-fno-sanitize-recover", "-o", str(program), *map(str, sources)]
    subprocess.run(argv, check=True, timeout=600)
    return program


def run(driver: Path, caches: Sequence[str], accesses: Sequence[Access]) -> subprocess.CompletedProcess[str]:
    text = "".join(access.line for access in accesses)
    return subprocess.run([driver, *caches], input=text, capture_output=True, text=True, timeout=600)


def arguments(caches: dict[str, Geometry]) -> list[str]:
    return [f"{name}={geometry.argument}" for name, geometry in caches.items()]


@st.composite
def geometries(draw: st.DrawFn) -> dict[str, Geometry]:
    def one(lines: Sequence[int], sets: Sequence[int]) -> Geometry:
        line, ways = draw(st.sampled_from(lines)), draw(st.integers(1, 5))
        chosen = draw(st.sampled_from(sets))
        return Geometry(line * ways * chosen, ways, line)

    # Of 256 sets and more some are chosen by the page as well: by the virtual one, or the physical one.
    cached = {name: one([16, 32, 64], [1, 2, 4, 256, 512]) for name in ("l1i", "l1d", "l2")}
    return {**cached, "itlb": one([PAGE], [1, 2, 4]), "dtlb": one([PAGE], [1, 2, 4])}


@st.composite
def accesses(draw: st.DrawFn) -> Access:
    """To few lines of few pages, so that they come back."""
    what = draw(st.sampled_from(["fetch", "load", "store", "device"]))
    place = draw(st.sampled_from([0, 30, 64, 1024, PAGE - 3]))
    size = draw(st.sampled_from([1, 4, 8, 15, 100]))
    if what != "fetch":
        size = min(size, PAGE - place)
    page, frame = draw(st.integers(0, 7)), draw(st.integers(0, 1))
    return Access(what, draw(st.integers(0, INDEXES - 1)), page * PAGE + place, frame * PAGE + place, size)


@st.composite
def streams(draw: st.DrawFn) -> list[Access]:
    """Accesses that repeat themselves, now and then with a new region, or with empty caches."""
    pool = [*draw(st.lists(accesses(), min_size=15, max_size=30)), BEGIN, EMPTY]
    often = st.integers(0, 8 * len(pool))
    numbers = draw(st.lists(often, min_size=100, max_size=300))
    return [pool[number if number < len(pool) else number % (len(pool) - 2)] for number in numbers]


@given(caches=geometries(), stream=streams())
def test_the_models_miss_as_the_simple_model_does(
    driver: Path, caches: dict[str, Geometry], stream: list[Access]
) -> None:
    everything = [BEGIN, *stream, END]
    reference = Reference(caches)
    for access in everything:
        reference.do(access)
    done = run(driver, arguments(caches), everything)
    assert (done.returncode, done.stdout, done.stderr) == (0, reference.printed, "")


def test_by_hand(driver: Path) -> None:
    """Two loads of a line, one of the next, one that crosses into a third: three misses, in both levels; one page."""
    loads = [
        Access("load", 1, 0x1000),
        Access("load", 2, 0x1001),
        Access("load", 3, 0x1040),
        Access("load", 4, 0x107F, 0x107F, 2),
    ]
    loads = [load._replace(physical=load.address) for load in loads]
    lines = run(driver, arguments(TINY), [BEGIN, *loads, END]).stdout.splitlines()
    assert lines[:5] == ["l1i 0 0", "l1d 2 3", "l2 0 3", "itlb 0 0", "dtlb 3 1"]
    assert lines[6:10] == ["1 0 1 0 1 0 1", "2 0 0 0 0 0 0", "3 0 1 0 1 0 0", "4 0 1 0 1 0 0"]


def test_what_ran_before_a_region_is_in_the_caches(driver: Path) -> None:
    load = Access("load", 1, 0x1000, 0x5000)
    lines = run(driver, arguments(TINY), [load, BEGIN, load, END]).stdout.splitlines()
    assert lines[:5] == ["l1i 0 0", "l1d 1 0", "l2 0 0", "itlb 0 0", "dtlb 1 0"]


@pytest.mark.parametrize(
    "wrong",
    [
        "l3=512:2:32",
        "l1i",
        "l1i=",
        "l1i=512:2",
        "l1i=512:2:32:1",
        "l1i=512:2:33",
        "l1i=512:0:32",
        "l1i=0:2:32",
        "l1i=768:8:32",  # three sets
        "l1i=512:3:32",
        "l1i=-512:2:32",
        "l1i=0x200:2:32",
        "l1i=99999999999999999999512:2:32",
        "l1i=1073741824:16:1",  # more lines than there is room for
    ],
)
def test_a_cache_that_cannot_be_is_refused(driver: Path, wrong: str) -> None:
    assert run(driver, [wrong], []).returncode == 1


def test_all_caches_are_needed_once(driver: Path) -> None:
    given_ = arguments(TINY)
    assert run(driver, given_[:-1], []).returncode == 2
    assert run(driver, [*given_, given_[0]], []).returncode == 1
