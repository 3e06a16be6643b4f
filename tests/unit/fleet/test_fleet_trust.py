# SPDX-License-Identifier: GPL-2.0-only
"""Which counts are told apart, by which records can a worker be checked, and which worker gets which boot?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pytest
from drawn_records import cells
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from record_builders import cell, failed, whole_system

from orchestrator.fleet.members import Member, Roster, Standing, choose
from orchestrator.fleet.trust import counts, difference, exact_records
from orchestrator.results.contract import CellRecord

KPROBE = cell("kprobe")


def test_one_instruction_is_a_difference() -> None:
    other_cell = KPROBE.model_copy(update={"samples": (1036.0, 1036.0, 1037.0, 1036.0)})
    told = difference(counts([KPROBE]), counts([other_cell]))
    assert told == f"{KPROBE.id} is 1036, 1036, 1037, 1036 there and 1036, 1036, 1036, 1036 here"


def test_another_number_of_samples_is_a_difference() -> None:
    other_cell = KPROBE.model_copy(update={"samples": (1036.0,)})
    assert difference(counts([KPROBE]), counts([other_cell])) is not None


def test_a_failure_is_told_as_such() -> None:
    told = difference(counts([KPROBE]), counts([failed("kprobe", "an oops")]))
    assert told == f"{KPROBE.id} is failed there and 1036, 1036, 1036, 1036 here"


def test_a_cell_without_an_outcome_is_a_difference() -> None:
    told = difference(counts([KPROBE, cell("djprobe")]), counts([KPROBE]))
    assert told == f"{cell('djprobe').id} is no outcome there and 462, 462, 462, 462 here"


def test_how_a_number_was_compared_is_none() -> None:
    other_cell = KPROBE.model_copy(update={"overhead": 1.0, "notes": ("a note",), "worker": "left"})
    assert difference(counts([KPROBE]), counts([other_cell])) is None


@given(st.lists(cells(), max_size=4, unique_by=lambda record: record.id))
def test_equal_counts_are_no_difference(records: list[CellRecord]) -> None:
    assert difference(counts(records), counts(reversed(records))) is None


def test_a_worker_is_checked_by_exact_cells_failures_first() -> None:
    timed = cell("djprobe", id="timed", clock="wall", unit="ns")
    system = whole_system("lab-i386-up", real=1.0, base=1.0)
    found = exact_records([failed("jprobe", "an oops"), KPROBE, timed, system, cell("djprobe"), cell("none")])
    assert [record.probe for record in found] == ["jprobe", "kprobe", "djprobe", "none"]
    assert exact_records([timed]) == []


ADDRESSES = [f"tls://127.0.0.1:{port}" for port in range(4)]
MACHINES = ["a pentium4", "an athlon64"]
MEMORY = st.sampled_from([256, 512, 1024, 4096])


def admitted(roster: Roster, address: str, *, guests: int = 2, memory_mib: int = 1024, name: str = "") -> Member:
    """A worker that joins, and works."""
    assert roster.joined(address)
    member = roster.members[address]
    member.name, member.guests, member.memory_mib = name or address, guests, memory_mib
    member.standing = Standing.ADMITTED
    return member


def chosen(roster: Roster, memory_mib: int, avoided: Collection[str] = (), *, is_timed: bool = False) -> Member | None:
    """Who does a boot of the machine ``m``."""
    return choose(roster.able(memory_mib, is_timed=is_timed), memory_mib, "m", avoided)


def test_an_address_joins_once_until_its_worker_has_gone() -> None:
    roster = Roster()
    assert roster.joined("a")
    assert not roster.joined("a")
    first = roster.left("a")
    assert first is not None
    assert first.standing is Standing.GONE
    assert roster.left("a") is None
    assert roster.left("b") is None
    assert roster.joined("a")
    assert roster.members["a"] is not first


@pytest.mark.parametrize("standing", [standing for standing in Standing if standing is not Standing.ADMITTED])
def test_only_who_works_gets_boots(standing: Standing) -> None:
    roster = Roster()
    admitted(roster, "a").standing = standing
    assert (roster.able(1), roster.working()) == ([], [])
    assert roster.has_candidates() == (standing is Standing.CANDIDATE)


def test_workers_with_the_saved_guest_come_first_and_then_those_with_most_room() -> None:
    roster = Roster()
    admitted(roster, "a", guests=1)
    large = admitted(roster, "b", guests=3, memory_mib=4096)
    knowing = admitted(roster, "c", guests=2)
    assert chosen(roster, 100) is large
    knowing.known.add("m")
    assert chosen(roster, 100) is knowing
    knowing.taken = {"1": 10, "2": 10}
    assert chosen(roster, 100) is large


def test_worker_that_lost_a_boot_gets_it_again_only_if_no_other_can_do_it() -> None:
    roster = Roster()
    lost, other_member = admitted(roster, "a", guests=4), admitted(roster, "b", guests=1)
    assert chosen(roster, 100, ["a"]) is other_member
    other_member.taken["1"] = 100
    assert chosen(roster, 100, ["a"]) is None  # until the other is free
    other_member.standing = Standing.RETIRED
    assert chosen(roster, 100, ["a"]) is lost


def test_worker_that_lost_a_boot_gets_it_again_if_it_is_too_large_for_the_others() -> None:
    roster = Roster()
    large = admitted(roster, "a", memory_mib=4096)
    admitted(roster, "b", memory_mib=512)
    assert chosen(roster, 2048, ["a"]) is large


def test_times_are_measured_on_one_host() -> None:
    roster = Roster()
    roster.host_of_times = admitted(roster, "a", guests=1).name
    admitted(roster, "b", guests=8, memory_mib=4096)
    first = chosen(roster, 100, is_timed=True)
    assert first is roster.members["a"]
    assert first is not None
    first.taken["1"] = 100
    assert chosen(roster, 100, is_timed=True) is None
    assert chosen(roster, 100) is roster.members["b"]


@dataclass
class Given:
    """A boot under way."""

    member: Member
    is_timed: bool


class Fleet(RuleBasedStateMachine):
    """Workers that come and go, and boots that are given to them and end."""

    def __init__(self) -> None:
        super().__init__()
        self.roster = Roster()
        self.given: dict[str, Given] = {}
        self.number = 0
        self.hosts_of_times: set[str] = set()

    @rule(address=st.sampled_from(ADDRESSES), guests=st.integers(1, 3), memory=MEMORY)
    def join(self, address: str, guests: int, memory: int) -> None:
        known = self.roster.members.get(address)
        was_gone = known is None or known.standing is Standing.GONE
        if was_gone:
            admitted(self.roster, address, guests=guests, memory_mib=memory)
        else:
            assert not self.roster.joined(address)

    @rule(address=st.sampled_from(ADDRESSES))
    def leave(self, address: str) -> None:
        member = self.roster.left(address)
        if member is not None:
            for name in [name for name, one in self.given.items() if one.member is member]:
                del self.given[name]
                del member.taken[name]

    @rule(address=st.sampled_from(ADDRESSES), standing=st.sampled_from([Standing.RETIRED, Standing.REFUSED]))
    def stop_working(self, address: str, standing: Standing) -> None:
        member = self.roster.members.get(address)
        if member is not None and member.works:
            member.standing = standing

    @rule(
        memory=MEMORY,
        machine=st.sampled_from(MACHINES),
        avoided=st.sets(st.sampled_from(ADDRESSES)),
        is_timed=st.booleans(),
    )
    def give(self, memory: int, machine: str, avoided: set[str], is_timed: bool) -> None:
        working = self.roster.working()
        fitting = [one for one in working if one.memory_mib >= memory]
        if is_timed:
            fitting = [one for one in fitting if self.roster.host_of_times in ("", one.name)]
        assert self.roster.able(memory, is_timed=is_timed) == fitting
        member = choose(fitting, memory, machine, avoided)
        if member is None:
            # Whoever waits is waited for: somebody works that will have room, or may never have lost the boot.
            assert all(not one.has_room(memory) or one.name in avoided for one in fitting)
            if any(one.has_room(memory) for one in fitting):
                assert any(one.name not in avoided and one.taken for one in fitting)
            return
        assert member in fitting
        assert member.has_room(memory)
        if member.name in avoided:
            assert all(one.name in avoided for one in fitting)
        alike = [one for one in fitting if one.has_room(memory) and (one.name in avoided) == (member.name in avoided)]
        if machine not in member.known:
            assert not any(machine in one.known for one in alike)
        if is_timed:
            self.roster.host_of_times = member.name
            self.hosts_of_times.add(member.name)
        self.number += 1
        member.taken[str(self.number)] = memory
        member.known.add(machine)
        self.given[str(self.number)] = Given(member, is_timed)

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.given)))
        del self.given.pop(name).member.taken[name]

    @invariant()
    def nobody_has_more_than_it_offers(self) -> None:
        for member in self.roster.members.values():
            assert len(member.taken) <= member.guests
            assert sum(member.taken.values()) <= member.memory_mib

    @invariant()
    def one_host_has_measured_times(self) -> None:
        assert len(self.hosts_of_times) <= 1


def test_any_history_of_a_fleet() -> None:
    run_state_machine_as_test(Fleet, settings=settings(stateful_step_count=40))
