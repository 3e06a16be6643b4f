# SPDX-License-Identifier: GPL-2.0-only
"""How much slower is the framed channel than the guest itself? Each figure is beside a floor in the same guest."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest

from orchestrator.guest.guest import Guest

pytestmark = pytest.mark.guest(kernel="debian-686", cpu="pentium4", timing="tcg")

MEGABYTE = 1 << 20
SIZE = 10 * MEGABYTE
PROCESSES = 50
MOST_OF_A_PROCESS = 5
"""A command over the channel, in processes that a shell of the guest starts: 0.9 to 1.2 at a load of 10."""
MOST_OF_A_COPY = 10
"""A file over the channel, in copies of it in the guest: 0.7 to 2.2 at a load of 10."""


def ratio(attempts: int, action: Callable[[], object], floor: Callable[[], object]) -> tuple[float, float, float]:
    """The median seconds of both, which take turns so that a busy host slows both, and their ratio."""
    pairs = [(_seconds(action), _seconds(floor)) for _ in range(attempts)]
    taken, least = (statistics.median(column) for column in zip(*pairs, strict=True))
    return taken, least, taken / least


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def test_a_round_trip_costs_some_processes_of_the_guest(guest: Guest, capsys: pytest.CaptureFixture[str]) -> None:
    many = ["sh", "-c", f"for i in $(seq {PROCESSES}); do /bin/busybox true; done"]
    taken, least, times = ratio(10, lambda: guest.succeed(["true"]), lambda: guest.succeed(many))
    times *= PROCESSES
    with capsys.disabled():
        print(
            f"\ntrue {taken * 1e3:.1f} ms, a process in the guest {least * 1e3 / PROCESSES:.1f} ms, ratio {times:.1f}"
        )
    assert times < MOST_OF_A_PROCESS


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_file_travels_in_some_copies_of_it(guest: Guest, way: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytes(SIZE)
    guest.put(content, "/tmp/speed")
    carry = {"in": lambda: guest.put(content, "/tmp/speed"), "out": lambda: guest.get("/tmp/speed")}[way]
    taken, least, times = ratio(5, carry, lambda: guest.succeed(["cp", "/tmp/speed", "/tmp/copy"]))
    with capsys.disabled():
        print(f"\n10 MB {way} {taken:.3f} s, a copy {least:.3f} s, ratio {times:.1f}")
    assert times < MOST_OF_A_COPY
