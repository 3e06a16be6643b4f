# SPDX-License-Identifier: GPL-2.0-only
"""Does the module count what it says, what does it cost, and what does it leave behind?"""

import pytest

from orchestrator.probes.loading import RefusedError

FUNCTION = "__ia32_sys_gettimeofday"


def make_calls(guest, calls):
    guest.succeed(["gtodbench", "-c", str(calls)])


def test_every_call_is_counted(guest, kmod):
    meter = kmod("module", {"function": FUNCTION})
    make_calls(guest, 1000)
    assert meter.parameter("calls") == "1000"


@pytest.mark.guest(cpu=["pentium4", "athlon"])
def test_the_count_can_be_set_back(guest, kmod):
    meter = kmod("module", {"function": FUNCTION})
    make_calls(guest, 10)
    meter.set_parameter("calls", 0)
    make_calls(guest, 5)
    assert meter.parameter("calls") == "5"


def test_what_it_has_counted_is_in_the_log(guest, kmod):
    meter = kmod("module", {"function": FUNCTION})
    make_calls(guest, 7)
    guest.unload(meter)
    assert "call_meter: 7 calls" in guest.dmesg()


def test_a_function_that_is_not_there_is_refused(guest, kmod):
    with pytest.raises(RefusedError, match="cannot count the calls of nothing: -2"):
        kmod("module", {"function": "nothing"})
    assert "call_meter" not in guest.succeed(["lsmod"]).text


def test_what_one_test_leaves_behind(guest):
    guest.put(b"left behind", "/tmp/trace")


def test_reaches_no_other(guest):
    guest.fail(["cat", "/tmp/trace"])


def test_a_warning_that_is_expected(guest, kmod):
    kmod("module", {"function": FUNCTION, "careless": "Y"})
    with guest.expect_oops("careless"):
        make_calls(guest, 2)


def test_the_call_alone(instruction_budget):
    instruction_budget.call("gettimeofday")


def test_the_call_with_the_meter(kmod, instruction_budget):
    kmod("module", {"function": FUNCTION})
    instruction_budget.call("gettimeofday")


def test_a_kprobe_of_the_labs(probe_cost):
    assert probe_cost("kprobe").overhead == 626


@pytest.mark.guest(timing="tcg", memory="128M")
def test_two_guests_meet(guest_factory):
    first, second = guest_factory(), guest_factory()
    first.succeed(["ping", "-c", "1", second.address])
