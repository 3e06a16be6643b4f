# SPDX-License-Identifier: GPL-2.0-only
"""Is the clock of instructions exact, and a batch that something fell into never counted?"""

from __future__ import annotations

import pytest
from gettimeofday import gettimeofday

from orchestrator.benchmarks.calls.call_programs import Calls, system_call
from orchestrator.benchmarks.calls.samples import Measurement
from orchestrator.catalog.system_calls import system_calls
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.run.ready_guest import ReadyGuest

pytestmark = pytest.mark.guest(kernel="debian-686", cpu="pentium4", timing="instructions")

TICKS = 250


def measured(ready: ReadyGuest, *, entry: str = "auto", calls: int = 1000, repeats: int = 3) -> Measurement:
    workload = gettimeofday(ready.artifacts.kernel.spec.arch, entry, calls)
    return workload.measure_exact(ready.guest, repeats=repeats, ticks_per_second=TICKS, time_limit=60)


def test_repeats_within_one_boot_are_identical(ready: ReadyGuest) -> None:
    first = measured(ready, calls=5000, repeats=5)
    assert len(first.samples) == 5
    assert first.entry == "sysenter"
    # Whatever the guest did in between.
    ready.guest.succeed(["sh", "-c", "seq 1 10000 | sort -n | tail -n 1"])
    ready.guest.put(bytes(1 << 20), "/tmp/something")
    assert set(measured(ready, calls=5000, repeats=2).samples) == set(first.samples)


def test_the_cost_of_a_call_does_not_depend_on_how_many_there_are(ready: ReadyGuest) -> None:
    """What a batch costs by itself is taken off to the instruction, so that a call's cost is a whole number."""
    costs = {calls: measured(ready, calls=calls).samples[0] for calls in (1, 10, 999, 20_000)}
    assert len(set(costs.values())) == 1
    assert costs[1].is_integer()


def test_one_more_instruction_is_seen(ready: ReadyGuest) -> None:
    """The two ways into the kernel differ; each is exact."""
    by_interrupt, by_sysenter = (measured(ready, entry=entry).samples for entry in ("int80", "sysenter"))
    assert len(set(by_interrupt)) == len(set(by_sysenter)) == 1
    assert by_interrupt[0] != by_sysenter[0]


def test_an_entry_that_the_cpu_has_not_is_refused(ready: ReadyGuest) -> None:
    with pytest.raises(UnsupportedError, match="this CPU and kernel have no system call entry syscall"):
        measured(ready, entry="syscall")


@pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions")
def test_a_64_bit_guest_enters_by_syscall_or_int80(ready: ReadyGuest) -> None:
    assert measured(ready).entry == "syscall"
    assert measured(ready, entry="int80").entry == "int80"
    with pytest.raises(UnsupportedError):
        measured(ready, entry="sysenter")


SLEEPING = system_call(
    system_calls()["poll"].number("i386", "int80") or 0, (0, 0, 8), entry="int80", word_size=4, calls=1
)
"""A call that takes two ticks, which pass at once in a guest that waits."""
TOO_MANY = gettimeofday("i386", calls=10_000)
"""At 50 ticks a second they would fit between two; at the kernel's 250 a tick falls into each batch."""
COUNTING = pytest.mark.nightly("two million calls: five seconds")


@pytest.mark.parametrize("calls", [SLEEPING, pytest.param(TOO_MANY, marks=COUNTING)], ids=["sleeping", "too many"])
def test_a_batch_too_long_to_be_undisturbed_is_never_counted(ready: ReadyGuest, calls: Calls) -> None:
    with pytest.raises(EvidenceError) as disturbed:
        calls.measure_exact(ready.guest, repeats=1, ticks_per_second=50, time_limit=60)
    assert disturbed.value.what == (
        "callbench: no batch without an interrupt, a page fault or another task in 200 attempts: "
        "the calls take too long for the time between two ticks, or sleep, or touch new memory"
    )


def test_disturbed_batches_are_repeated_and_counted(ready: ReadyGuest) -> None:
    """Another process takes its turns; the batches it does not fall into count, and still agree exactly."""
    quiet = measured(ready).samples[0]
    script = "(while :; do sleep 0.003; done) > /dev/null 2>&1 & echo $!"
    busy = ready.guest.succeed(["sh", "-c", script]).text.strip()
    disturbed = measured(ready, calls=5000)
    ready.guest.succeed(["kill", busy])
    assert disturbed.disturbed > 0
    assert set(disturbed.samples) == {quiet}


def test_a_wait_lets_guest_time_pass(ready: ReadyGuest) -> None:
    """Ten seconds of guest time, in which the guest does nothing but wait."""
    ready.guest.succeed(["sh", "-c", "rm -f /tmp/over; (sleep 10; echo over >/tmp/over) >/dev/null 2>&1 &"])
    ready.guest.fail(["test", "-e", "/tmp/over"])
    assert ready.guest.wait_until_succeeds(["cat", "/tmp/over"]).text == "over\n"


@pytest.mark.guest(timing="tcg")
def test_calls_for_some_seconds_as_in_2005(ready: ReadyGuest) -> None:
    lines = ready.guest.succeed(["gtodbench", "-e", "int80", "-s", "1", "-r", "1"]).text.splitlines()
    assert lines[0] == "entry int80"
    assert len(lines) == 2
    for number, line in enumerate(lines[1:]):
        word, index, calls, spent, average = line.replace("=", " ").split()[0:2] + line.replace("=", " ").split()[3::2]
        assert (word, index) == ("run", str(number))
        assert int(spent) >= 1_000_000_000
        assert int(calls) % 1000 == 0
        assert int(average) == int(spent) // int(calls)
