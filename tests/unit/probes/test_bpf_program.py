# SPDX-License-Identifier: GPL-2.0-only
"""Is what a guest says of its BPF programs read in full, and anything else an error of the cell?"""

from __future__ import annotations

import struct

import pytest
from guest_with_files import guest_with

from orchestrator.errors import EvidenceError
from orchestrator.probes.bpf_program import Attached, BpfEvent, BpfProgram, ProgramInfo, attached_by


def program(printed: bytes) -> BpfProgram:
    return BpfProgram(guest_with({}, printed=printed), "/sys/fs/bpf/lab-a")


def test_what_it_is_and_did_is_read() -> None:
    assert program(b"type=2 jited=57 runs=1234 missed=0\n").info() == ProgramInfo(jited=57, runs=1234, missed=0)
    assert program(b"count=1000 dropped=2\n").counts() == (1000, 2)
    assert program(b"1 40\n72 1000\n").hits() == {1: 40, 72: 1000}
    assert program(b"").hits() == {}


@pytest.mark.parametrize("printed", [b"", b"type=2", b"type=2 jited=57 runs=-1 missed=0\n", b"\xff\n", b"9" * 5000])
def test_what_it_cannot_have_said_is_refused(printed: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest does not say what its BPF program is$"):
        program(printed).info()
    with pytest.raises(EvidenceError, match=r"^the guest does not say what its BPF program has counted$"):
        program(printed).counts()


@pytest.mark.parametrize(
    "printed", [b"1\n", b"1 2 3\n", b"1 2\n1 3\n", b"one 2\n", b"".join(b"%d 1\n" % pid for pid in range(4096))]
)
def test_hits_of_nobody_or_of_too_many_are_refused(printed: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest does not say who hit the BPF program: "):
        program(printed).hits()


def test_events_are_whole() -> None:
    content = struct.pack("<QII6Q", 99, 0, 72, 1, 2, 3, 4, 5, 6)
    assert program(content * 2).events() == [BpfEvent(99, 72, (1, 2, 3, 4, 5, 6))] * 2
    with pytest.raises(EvidenceError, match=r"have 65 bytes, which are no whole ones$"):
        program(content + b"x").events()


def test_what_a_process_has_attached_is_read() -> None:
    printed = b"4 kprobe vfs_read 0\n7 fentry vfs_read 0\n9 other - 0\n"
    assert attached_by(guest_with({}, printed=printed), 121) == [
        Attached(4, "kprobe", "vfs_read", 0),
        Attached(7, "fentry", "vfs_read", 0),
        Attached(9, "other", "", 0),
    ]
    assert attached_by(guest_with({}, printed=b""), 121) == []


def test_maps_without_room_are_read() -> None:
    assert program(b"AT_ 4096\nAT_n 16\n").full_maps() == {"AT_": 4096, "AT_n": 16}
    assert program(b"").full_maps() == {}


@pytest.mark.parametrize("printed", [b"AT_\n", b"AT_ many\n", b"@ 4096\n", b"a_name_of_16_char 1\n"])
def test_what_is_no_map_is_refused(printed: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest does not say which maps are full: "):
        program(printed).full_maps()


@pytest.mark.parametrize(
    "printed",
    [b"4 kprobe x 0\n" * 30_000, b"4 kprobe vfs_read\n", b"x kprobe vfs_read 0\n", b"4 kprobe " + b"v" * 256 + b" 0\n"],
)
def test_what_no_process_can_have_attached_is_refused(printed: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest does not say what is attached: "):
        attached_by(guest_with({}, printed=printed), 121)
