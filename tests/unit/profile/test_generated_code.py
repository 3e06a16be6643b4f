# SPDX-License-Identifier: GPL-2.0-only
"""What does a profile read from its guest, and does the guest run only meanwhile?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.guest.guest import Guest, State
from orchestrator.probes.symbols import KALLSYMS, MODULES, Symbols
from orchestrator.profile.counted.counter import Counter

KERNEL = b"c1000000 T _stext\nc1000000 T work\nc1000400 T _etext\n"
SLOT, DETOUR, PROGRAM = 0xF8103000, 0xF8104000, 0xF8100000
MADE = (
    KERNEL
    + f"{PROGRAM:x} t bpf_prog_6deef7357e7b4530\t[bpf]\n{SLOT:x} t kprobe_insn_page\t[__builtin__kprobes]\n".encode()
    + f"{DETOUR:x} t kprobe_optinsn_page\t[__builtin__kprobes]\n".encode()
)
WORK = {(0xC1000000, "55"): 1}
HIT = {(SLOT, "55"): 1, (SLOT + 1, "cc"): 1}


class Made:
    """A guest that executes generated code; ``done`` is what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.counts_file = folder / "guest.counts"
        self.machine = SimpleNamespace(
            counter=SimpleNamespace(landmarks=None, is_detailed=False, caches=None), timing="instructions"
        )
        self.known_slots = frozenset[tuple[int, str]]()
        self.state = State.READY
        self.done: list[str] = []

    def pause(self) -> None:
        assert self.state is State.READY
        self.state = State.PAUSED

    def resume(self) -> None:
        assert self.state is State.PAUSED
        self.state = State.READY

    def get(self, path: str, *, largest: int) -> bytes:
        assert self.state is State.READY
        self.done.append(path)
        return MADE if path == KALLSYMS else b""

    def profiled(self, executed: Mapping[tuple[int, str], int]) -> dict[str, int]:
        """The instructions of a round by symbol."""
        sums = [sum(executed.values()) * times for times in (1, 2)]
        regions = [
            f"region {total} {len(executed)}\n"
            + "".join(f"{address:x} {code} {count * times} 0 0 0\n" for (address, code), count in executed.items())
            for times, total in zip((1, 2), sums, strict=True)
        ]
        self.counts_file.write_text("".join(regions))
        counter = Counter(cast(Guest, self), Symbols(KERNEL))
        timed = [(sums[0] - 1, sums[1] - 1)]
        with counter.evaluating():
            profile = counter.profile_rounds(0, timed, cell="cell", rounds=1)
        assert self.state is State.READY
        return {symbol.name: symbol.executed for symbol in profile.symbols}


@pytest.fixture
def guest(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_the_list_of_generated_code_is_read_if_some_was_executed(guest: Made) -> None:
    assert guest.profiled(WORK) == {"work": 1}
    assert guest.done == [MODULES]
    assert guest.profiled({**WORK, **HIT}) == {"work": 1, "kprobe's slot": 2}
    assert guest.done == [MODULES, MODULES, KALLSYMS]


def test_a_slot_is_known_again_by_its_instructions(guest: Made) -> None:
    for _ in range(3):
        assert guest.profiled({**WORK, **HIT}) == {"work": 1, "kprobe's slot": 2}
    assert guest.done.count(KALLSYMS) == 1


@pytest.mark.parametrize(
    "other", [{(SLOT, "50"): 1, (SLOT + 1, "cc"): 1}, {(SLOT + 16, "55"): 1, (SLOT + 17, "cc"): 1}]
)
def test_another_slot_is_looked_up(guest: Made, other: Mapping[tuple[int, str], int]) -> None:
    guest.profiled(HIT)
    for _ in range(2):
        assert guest.profiled(other) == {"kprobe's slot": 2}
    assert guest.done.count(KALLSYMS) == 2


@pytest.mark.parametrize(
    ("other", "name"),
    [({(DETOUR, "55"): 1}, "optimised kprobe's detour"), ({(PROGRAM, "55"): 1}, "a BPF program without a name")],
)
def test_all_other_code_is_looked_up_each_time(guest: Made, other: Mapping[tuple[int, str], int], name: str) -> None:
    guest.profiled(HIT)
    for reads in (2, 3):
        assert guest.profiled({**HIT, **other}) == {"kprobe's slot": 2, name: 1}
        assert guest.done.count(KALLSYMS) == reads
