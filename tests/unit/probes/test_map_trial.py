# SPDX-License-Identifier: GPL-2.0-only
"""Does a map without room for what hits put in fail the cell, with a size that has room, and one with room not?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

import pytest

from orchestrator.errors import EvidenceError
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.paths import data_dir
from orchestrator.probes.bpf_program import BpfProgram
from orchestrator.probes.map_reader import MapReader
from orchestrator.probes.map_trial import AttendedMapTrial, MapTrial
from orchestrator.probes.map_use import MapUse, map_uses


class TriedMaps:
    """A guest in which each trial says the next of some answers; ``commands`` are what it was told."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.commands: list[Sequence[str]] = []

    def succeed(self, argv: Sequence[str]) -> CommandResult:
        self.commands.append(argv)
        if "try" in argv[2]:
            said = f"{len(self.answers[0].splitlines())}\n" if self.answers else "0\n"
        else:
            said = self.answers.pop(0)
        return CommandResult(tuple(argv), 0, said.encode(), b"")


def tried(*answers: str, kind: type[MapTrial] = MapTrial, calls: int = 1000) -> MapTrial:
    """A trial without calls, and one with them if there is a second answer."""
    guest = TriedMaps(*answers)
    trial = kind(cast(Guest, guest), [BpfProgram(cast(Guest, guest), "/sys/fs/bpf/lab-own/f")])
    for number in range(len(answers)):
        with trial.trying():
            pass
        trial.check(number and calls, number and calls)
    return trial


def test_contents_of_maps_are_read() -> None:
    said = "1 7 256 256 1 1 16 full\n27 12 4096 3960 72 1 4032 AT_ring\n"
    assert map_uses(said) == [
        MapUse(1, 7, 256, 256, 1, is_short=True, new=16, name="full"),
        MapUse(27, 12, 4096, 3960, 72, is_short=True, new=4032, name="AT_ring"),
    ]
    assert map_uses("") == []


def test_why_a_map_was_not_tried_is_read() -> None:
    said = "1 7 256 0 1 memory 0 wide\n0 0 0 0 0 maps 0 -\n"
    assert map_uses(said) == [
        MapUse(1, 7, 256, 0, 1, is_short=False, new=0, name="wide", untried="memory"),
        MapUse(0, 0, 0, 0, 0, is_short=False, new=0, name="-", untried="maps"),
    ]


def test_as_many_maps_as_the_guest_tries_are_read() -> None:
    longest = f"{'9' * 3} {'9' * 10} {'9' * 10} {'9' * 20} {'9' * 20} unopened {'9' * 20} {'n' * 15}\n"
    assert len(map_uses(longest * 513)) == 513


def words_of_the_guests_tool() -> set[str]:
    text = "".join((data_dir("images") / "bpf" / name).read_text() for name in ("map_trial.c", "map_reader.c"))
    return set(re.findall(r'\b(?:untried|unwatched) = "(\w+)"', text))


def test_each_reason_of_the_guests_tool_is_known() -> None:
    words = words_of_the_guests_tool()
    assert len(words) >= 7
    assert {use.untried for use in map_uses("".join(f"1 7 256 0 1 {word} 0 m\n" for word in words))} == words


@pytest.mark.parametrize(
    ("use", "what", "hint"),
    [
        ("1 7 256 0 1 memory 0 wide\n", "map wide was not tried, and may be full: the lab keeps at most 32", "smaller"),
        ("1 7 256 0 1 refused 0 kept\n", "map kept was not tried, and may be full: the kernel does not", "freeze"),
        ("3 7 9 0 1 slots 0 next\n", "map next was not tried, and may be full: it has more than", "max_entries"),
        ("4 7 1 0 1 events 0 out\n", "map out was not tried, and may be full: the kernel opens no", "ring buffer"),
        ("0 0 0 0 0 maps 0 -\n", "a map was not tried, and may be full: the lab tries 512 maps", "fewer programs"),
    ],
)
def test_a_map_that_was_not_tried_fails_the_cell(use: str, what: str, hint: str) -> None:
    with pytest.raises(EvidenceError) as error:
        tried(use, use)
    assert error.value.what.startswith(what)
    assert hint in error.value.hint
    tried(use)  # no calls


def test_an_lru_map_that_calls_will_fill_is_refused_before_it_evicts() -> None:
    nearly = "9 7 10240 10200 1 0 {} newest\n"
    with pytest.raises(EvidenceError, match=r"^map newest evicts old keys for new ones") as error:
        tried(nearly.format(0), nearly.format(62))
    assert error.value.hint.startswith("with max_entries 32768 ")
    tried(nearly.format(0), nearly.format(0))
    roomy = "9 7 10240 1000 1 0 {} newest\n"
    tried(roomy.format(0), roomy.format(62))


@pytest.mark.parametrize(
    "said",
    ["1 7 256 256 1 2 16 full\n", "1 7 256 256 1 1 16\n", "1 7 256 256 1 1 16 a_name_of_16_char\n", "\n", "x" * 9000],
)
def test_wrong_descriptions_of_maps_are_refused(said: str) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest does not say what is in the maps: "):
        map_uses(said)


def test_an_answer_on_fewer_maps_is_refused() -> None:
    guest = TriedMaps("1 7 256 9 1 0 0 a\n1 8 256 9 1 0 0 b\n")
    trial = MapTrial(cast(Guest, guest), [])
    with pytest.raises(EvidenceError, match=r"^the guest tried 2 maps and says what is in 1$"), trial.trying():
        guest.answers = ["1 7 256 9 1 0 0 a\n"]


@pytest.mark.parametrize(
    ("before", "after", "what", "hint"),
    [
        ("1 7 256 256 1 1 3 seen\n", "1 7 256 240 1 0 16 seen\n", "map seen is full with 256 keys: ", "8192"),
        ("1 7 8000 4000 1 0 3 seen\n", "1 7 8000 5000 1 0 1003 seen\n", "1000 hits add 1003: it fills up", "8192"),
        ("1 7 4096 4096 1 1 1 same\n", "1 7 4096 4081 1 0 0 same\n", "map same is full with 4096 keys: ", "8192"),
        ("27 7 4096 3960 72 1 72 r\n", "27 7 4096 72 72 0 4032 r\n", "map r is full with 3960 bytes: ", "1048576"),
        ("9 7 256 240 1 1 2 new\n", "9 7 256 250 1 1 16 new\n", "map new evicts old keys for new ones", "8192"),
        ("3 7 4 0 1 1 1 next\n", "3 7 4 0 1 1 1 next\n", "map next, a program array, is empty: ", ".values = {"),
        ("7 7 4 2 1 1 0 stacks\n", "7 7 4 2 1 1 1 stacks\n", "stacks share a bucket of map stacks: ", "max_entries"),
        ("31 7 4096 0 1 1 1 in\n", "31 7 4096 0 1 1 1 in\n", "nobody writes into map in, a user ring: ", "without it"),
    ],
)
def test_a_map_without_room_fails_the_cell(before: str, after: str, what: str, hint: str) -> None:
    with pytest.raises(EvidenceError) as error:
        tried(before, after)
    assert what in error.value.what
    assert hint in error.value.hint
    tried(before)  # calls have not hit it


@pytest.mark.parametrize(
    "use",
    [
        "1 7 1 1 1 1 0 one_key\n",  # what was taken out has come again
        "1 7 1024 20 1 0 4 by_process\n",
        "9 7 256 200 1 1 0 newest\n",
        "27 7 16777216 900000 256 0 264000 large\n",
        "7 7 1024 2 1 1 0 stacks\n",
    ],
)
def test_a_map_with_room_does_not(use: str) -> None:
    assert "bpf_new_keys" not in tried(use, use).facts()


def test_hits_that_insert_are_told() -> None:
    use = "1 7 65536 9000 1 0 {} seen\n"
    said = {
        "bpf_map_states": "seen: insert",
        "bpf_new_keys": "100 of 100 calls add a key to map seen: those insert, and do not update",
    }
    assert tried(use.format(3), use.format(1007)).facts() == said
    assert tried(use.format(3), use.format(49)).facts() == {"bpf_map_states": "seen: keys are there"}
    assert tried(use.format(3), use.format(250)).facts()["bpf_map_states"] == "seen: 25 of 100 insert"


def test_what_hits_find_in_each_map_is_told() -> None:
    several = "1 7 65536 0 1 0 0 starts\n9 8 65536 9 1 0 1 recent\n2 9 4 0 1 0 0 array\n5 10 65536 9 1 0 1000 cpus\n"
    assert tried(several, several).facts()["bpf_map_states"] == "starts: no keys, recent: keys are there, cpus: insert"


def test_bpftraces_own_map_has_its_name() -> None:
    use = "1 7 4096 4096 1 1 1 AT_n\n"
    with pytest.raises(EvidenceError, match=r"^bpftrace's map @n is full with 4096 keys") as error:
        tried(use, use, kind=AttendedMapTrial)
    assert error.value.hint == "key the map by what repeats from call to call"


def test_the_guests_process_ends_when_the_calls_fail() -> None:
    guest = TriedMaps("1 7 256 9 1 0 0 a\n")
    with pytest.raises(ValueError, match="calls"), MapTrial(cast(Guest, guest), []).trying():
        raise ValueError("calls")
    assert guest.answers == []


def test_programs_without_maps_are_not_asked() -> None:
    guest = TriedMaps()
    with MapTrial(cast(Guest, guest), []).trying():
        pass
    assert len(guest.commands) == 1


class ReadMaps(TriedMaps):
    """The same with a reader, which says the next of its answers to each ``s``; ``letters`` are what it was told."""

    def __init__(self, *answers: str, read: Sequence[str]) -> None:
        super().__init__(*answers)
        self.read, self.letters = list(read), list[str]()

    def succeed(self, argv: Sequence[str]) -> CommandResult:
        if "map-reader" not in argv[2]:
            return super().succeed(argv)
        self.letters.append(argv[2].split("echo ")[1][0])
        return CommandResult(tuple(argv), 0, (self.read.pop(0) if self.letters[-1] == "s" else "").encode(), b"")


def read_by(guest: ReadMaps) -> MapTrial:
    return MapTrial(cast(Guest, guest), [], MapReader(cast(Guest, guest), 2))


def test_a_perf_event_array_is_what_its_reader_says() -> None:
    guest = ReadMaps("1 7 65536 9 1 0 0 seen\n", read=["4 8 16777216 80 40 0 40000 out\n"])
    trial = read_by(guest)
    with trial.trying():
        assert guest.letters == ["t"]
    trial.check(1000, 1000)
    assert guest.letters == ["t", "s"]
    assert trial.written_buffers() == ["out"]
    assert trial.buffers_of_events() == {"out": 16777216}


@pytest.mark.parametrize(
    ("use", "what", "hint"),
    [
        ("4 8 65536 65500 64 1 640 out\n", "map out is full with 65500 bytes: ", "no larger buffer"),
        ("4 8 65536 100 64 0 9000 out\n", "map out has room for 65536 bytes, and 1000 hits add 9000", "less at a hit"),
        ("4 8 1 0 0 events 0 out\n", "map out was not tried, and may be full: the kernel opens no", "ring buffer"),
    ],
)
def test_a_reader_without_room_fails_the_cell(use: str, what: str, hint: str) -> None:
    trial = read_by(ReadMaps(read=[use]))
    with trial.trying():
        pass
    with pytest.raises(EvidenceError) as error:
        trial.check(1000, 1000)
    assert what in error.value.what
    assert hint in error.value.hint


def test_nothing_may_come_into_full_buffers() -> None:
    room, full = "27 8 4096 80 40 0 4000 ring\n", "27 8 4096 80 40 0 {} ring\n"
    guest = ReadMaps(room, read=["", full.format(0), full.format(40)])
    reader = MapReader(cast(Guest, guest), 1)
    trial = MapTrial(cast(Guest, guest), [], reader)
    with trial.trying():
        pass
    assert trial.written_buffers() == ["ring"]
    reader.fill()
    with trial.trying():
        pass
    assert guest.letters == ["t", "s", "f", "s"]
    with pytest.raises(EvidenceError, match=r"^map ring was left without room, and 40 bytes came in$"), trial.trying():
        pass
