# SPDX-License-Identifier: GPL-2.0-only
"""Does a hit of a jprobe cost the same wherever its module and the copied instruction lie?

The kernel looks for a kprobe at every int3, in one of 64 lists (more on some kernels). Two of a jprobe's three are no
kprobe's; where one of them falls into the probe's own list, the hit costs some instructions more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import pytest
from command_line import CommandLine
from djprobe_trial import insert
from elsewhere import ELSEWHERE
from gettimeofday import gettimeofday
from module_maker import ModuleMaker
from needed_images import needed_image

from orchestrator.artifacts.kernel_config import MAINLINE_HASH_BITS
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.catalog.probes import probes
from orchestrator.probes.arming import module_attached
from orchestrator.probes.point import find_entry
from orchestrator.run.ready_guest import ReadyGuest

EXPERIMENT = Path(__file__).parent / "experiments" / "jprobe.yaml"
IMAGE = "debian-i386"
OCCUPIER = "/sys/module/occupier/parameters"
PAGE_AND_HOLE = 2 * 4096


@dataclass(frozen=True)
class Load:
    """One load of the jprobe module: where its int3s were, the exits it could choose from, and what a call cost."""

    exits: list[int]
    exit: int
    copy_end: int
    cost: float


Loader = Callable[[], Load]
Lists = Callable[[int], int]


@pytest.fixture
def probed(ready: ReadyGuest, guest_kernel: Kernel) -> tuple[str, int, int]:
    """gettimeofday's entry: symbol, offset, address."""
    spec = guest_kernel.spec
    symbol = benchmarks()["gtodbench"].symbols[spec.arch]["auto"]
    return symbol, spec.entry_offset, ready.symbols.address(symbol) + spec.entry_offset


@pytest.fixture
def load(ready: ReadyGuest, guest_kernel: Kernel, modules: ModuleMaker, probed: tuple[str, int, int]) -> Loader:
    """Loads the jprobe module, measures, unloads it."""
    symbol, offset, _ = probed
    point = find_entry(ready.guest, ready.symbols, symbol, offset)
    module = modules.probe("jprobe", symbol, offset)
    calls = gettimeofday(guest_kernel.spec.arch, calls=500)

    def load() -> Load:
        with module_attached(ready.guest, probes()["jprobe"], module, point, ready.symbols) as attachment:
            attachment.wait_until_armed()
            listing = ready.guest.get("/proc/kallsyms").decode("ascii")
            trapped = re.findall(r"^([0-9a-f]+) t jprobe_exit_\d_trapped\t", listing, re.MULTILINE)
            return Load(
                exits=[int(address, 16) - 1 for address in trapped],
                exit=int(attachment.parameter("exit"), 16),
                copy_end=int(attachment.parameter("copy_end"), 16),
                cost=calls.measure_exact(ready.guest, repeats=1, ticks_per_second=250, time_limit=60).samples[0],
            )

    return load


@pytest.fixture
def list_of(guest_kernel: Kernel) -> Lists:
    """The kernel's own choice of a list: hash_ptr() of include/linux/hash.h."""
    word, factor = (64, 0x61C8864680B583EB) if guest_kernel.spec.arch == "x86_64" else (32, 0x61C88647)
    bits = int(guest_kernel.config.get("CONFIG_KPROBE_HASH_BITS", MAINLINE_HASH_BITS))
    return lambda address: (address * factor % (1 << word)) >> (word - bits)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param("debian-686", marks=[pytest.mark.guest(timing="instructions"), ELSEWHERE]),
        pytest.param("lab-i386-up", marks=pytest.mark.guest(kernel="lab-i386-up", timing="instructions")),
        *(
            pytest.param(name, marks=[pytest.mark.kernels(name), pytest.mark.guest(kernel=name, timing="instructions")])
            for name in ("lab-x86_64-smp", "lab-x86_64-smp-hash12")
        ),
    ],
)
def test_a_jprobe_s_own_int3s_are_in_other_lists_than_the_probe(
    kernel: str, probed: tuple[str, int, int], load: Loader, list_of: Lists
) -> None:
    seen = load()
    assert seen.exit in seen.exits
    assert list_of(seen.exit) != list_of(probed[2])
    assert list_of(seen.copy_end) != list_of(probed[2])
    # So at most one of neighbours is in the probe's, wherever the module lies.
    assert len({list_of(address) for address in seen.exits}) == len(seen.exits) == 4


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions", fresh=True)
def test_a_module_in_an_unlucky_place_costs_no_instruction_more(
    ready: ReadyGuest, modules: ModuleMaker, probed: tuple[str, int, int], load: Loader, list_of: Lists
) -> None:
    insert(ready.guest, modules.rogue("occupier"))
    # The holes that other modules left are filled first.
    ready.guest.put(b"16", f"{OCCUPIER}/pages")
    unlucky = load()
    # Something else may lie on the way, and the module behind it.
    for _ in range(10):
        first = unlucky.exits[0]
        steps = next(n for n in count() if list_of(first + n * PAGE_AND_HOLE) == list_of(probed[2]))
        if steps == 0:
            break
        ready.guest.put(str(steps).encode(), f"{OCCUPIER}/pages")
        unlucky = load()
    assert list_of(unlucky.exits[0]) == list_of(probed[2])
    assert unlucky.exit == unlucky.exits[1]

    ready.guest.put(b"1", f"{OCCUPIER}/pages")
    lucky = load()
    assert lucky.exit == lucky.exits[0]
    assert unlucky.cost == lucky.cost
    ready.guest.check_console()


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions", fresh=True)
def test_a_copy_in_an_unlucky_place_costs_no_instruction_more(
    ready: ReadyGuest, modules: ModuleMaker, probed: tuple[str, int, int], load: Loader, list_of: Lists
) -> None:
    insert(ready.guest, modules.rogue("occupier"))
    # With each load the copy moves on: looking up a symbol has used up a place. Three, since one may have been unlucky.
    loads = [load() for _ in range(3)]
    last = loads[-1].copy_end
    stride = min(after.copy_end - before.copy_end for before, after in pairwise(loads))
    assert 0 < stride < 32
    steps = next(n for n in count() if list_of(last + (1 + n) * stride) == list_of(probed[2]))
    ready.guest.put(str(steps).encode(), f"{OCCUPIER}/slots")
    unlucky = load()
    assert unlucky.copy_end == last + (2 + steps) * stride
    assert [seen.cost for seen in loads] == [unlucky.cost] * 3
    ready.guest.check_console()


@pytest.mark.qemu
@pytest.mark.nightly("more calls than test_image_guest.py makes every day: a guest more")
def test_an_image_changes_no_exact_value(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The values without an image are in ``test_profile.py``."""
    needed_image(request.config, IMAGE)
    command = CommandLine(tmp_path)
    done = command.run("run", EXPERIMENT, "--set", f"image={IMAGE}")
    assert done.returncode == 0, done.stderr
    assert {probe: cell.value for probe, cell in command.cells().items()} == {"none": 360, "jprobe": 1661}
