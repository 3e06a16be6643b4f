# SPDX-License-Identifier: GPL-2.0-only
"""Is a call's first instruction found in the programs that make timed calls, and a place behind it?"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, cycle, repeat
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.errors import EvidenceError, UsageError
from orchestrator.guest.debugger import Stub
from orchestrator.paths import data_dir
from orchestrator.run.debugging import Debugging, PlaceStop, StopPlace, first_instructions

LOOP = data_dir("images") / "workload" / "workload_loop.S"
CALLER = "void workload(void) {}\nvoid _start(void) { for (;;); }\n"


def built(folder: Path, option: str, *sources: Path) -> bytes:
    (folder / "caller.c").write_text(CALLER)
    made = folder / "made"
    flags = ["-nostdlib", "-static", "-ffreestanding", "-fno-pic", "-no-pie", "-o", str(made)]
    subprocess.run(["gcc", option, *flags, str(folder / "caller.c"), *map(str, sources)], check=True)
    return made.read_bytes()


@pytest.mark.parametrize("option", ["-m32", "-m64"])
def test_the_first_instruction_of_a_call(tmp_path: Path, option: str) -> None:
    ((place, code),) = first_instructions(built(tmp_path, option, LOOP)).items()
    assert code[0] == 0xE8  # call workload
    assert 8 < len(code) <= 16
    listed = subprocess.run(["objdump", "-d", str(tmp_path / "made")], check=True, capture_output=True, text=True)
    (line,) = (text for text in listed.stdout.splitlines() if text.strip().startswith(f"{place:x}:"))
    assert "<workload>" in line


def test_another_program(tmp_path: Path) -> None:
    program = built(tmp_path, "-m64")
    for content in (program, program[:100], b""):
        with pytest.raises(EvidenceError, match="none of the loops that make timed calls"):
            first_instructions(content)


FIRST, CODE, ENTRY = 0x1000, b"\xe8", 0xC0001000
CALL = (FIRST, ENTRY, 1, ENTRY, 2)


class FakeStub:
    """A guest that is at the first call, and comes to these addresses."""

    def __init__(self, addresses: Iterable[int]) -> None:
        self._addresses, self.at, self.steps = iter(addresses), 0, 0

    @contextmanager
    def breakpoints(self, addresses: list[int]) -> Iterator[None]:
        assert addresses == [FIRST]
        yield

    def go(self) -> None:
        self.at = next(self._addresses)

    def pointer(self) -> int:
        return self.at

    def memory(self, address: int, size: int) -> bytes:
        return CODE

    def step(self) -> int:
        self.steps += 1
        self.at = next(self._addresses)
        return self.at

    def ask(self, packet: str) -> str:
        assert packet == "s"
        self.step()
        return "T05"


def a_stop(place: StopPlace, usual: int | None = None) -> Any:
    return PlaceStop(cast(Debugging, None), place, lambda argv: 1, longest=20, usual=usual)


def steps_to(place: StopPlace, addresses: Iterable[int]) -> int:
    stub = FakeStub(chain((5, FIRST), addresses))
    stop = a_stop(place)
    first = stop._usual_call(stub, {FIRST: CODE}, 1)
    stop._step_from(first, cast(Stub, stub), None if place.symbol is None else ENTRY)
    return stub.steps


@pytest.mark.parametrize(
    ("place", "steps"),
    [(StopPlace(), 0), (StopPlace(3), 2), (StopPlace(1, "f"), 1), (StopPlace(2, "f"), 3), (StopPlace(3, "f"), 6)],
)
def test_a_place_in_a_call(place: StopPlace, steps: int) -> None:
    assert steps_to(place, CALL * 5) == steps


def test_a_place_behind_the_last_call() -> None:
    with pytest.raises(UsageError, match="a batch of calls enters f only 10 times"):
        steps_to(StopPlace(11, "f"), chain(CALL * 5, repeat(3)))
    with pytest.raises(UsageError, match="the timed calls do not enter f"):
        steps_to(StopPlace(1, "f"), chain((FIRST, 1) * 5, repeat(3)))


LONGER = (1, 2, 3, 4, 5, 6, FIRST)


def test_a_call_that_is_not_as_measured_is_passed() -> None:
    stub = FakeStub(chain((5, FIRST, FIRST), LONGER, (FIRST,), repeat(3, 21), (FIRST,), CALL[1:], (FIRST,)))
    assert a_stop(StopPlace(), 5)._usual_call(stub, {FIRST: CODE}, 1) == FIRST
    assert (stub.steps, stub.at) == (len(LONGER) + 21 + len(CALL), FIRST)


def test_calls_that_are_never_as_measured() -> None:
    with pytest.raises(EvidenceError, match="none of 20 timed calls behind a breakpoint was as measured"):
        a_stop(StopPlace(), 6)._usual_call(FakeStub(chain((5, FIRST), cycle((FIRST, *LONGER)))), {FIRST: CODE}, 1)
