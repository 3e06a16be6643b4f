# SPDX-License-Identifier: GPL-2.0-only
"""Does a worker keep what was sent, complete and unaltered, or nothing?"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from full_disk import room
from hypothesis import given
from hypothesis import strategies as st
from namespaces import OWN_MOUNTS, call_with_mount

from orchestrator.errors import HostError, LabError
from orchestrator.fleet.parcel import Reference, Warehouse

CONTENT = bytes(range(256)) * 4
PLACE = "modules/4f0c/probe.ko"
MIB = 1 << 20


def reference_to(content: bytes = CONTENT, place: str = PLACE) -> Reference:
    return Reference(place=place, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def send(warehouse: Warehouse, reference: Reference, pieces: Iterable[bytes]) -> None:
    offset = 0
    for piece in pieces:
        warehouse.receive(reference, offset, piece)
        offset += len(piece)


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_file_that_was_sent_is_there(tmp_path: Path) -> None:
    warehouse, reference = Warehouse(tmp_path), reference_to()
    assert warehouse.missing([reference]) == [reference]
    send(warehouse, reference, [CONTENT[:100], CONTENT[100:]])
    assert warehouse.missing([reference]) == []
    assert warehouse.place(PLACE).read_bytes() == CONTENT
    again = Warehouse(tmp_path)  # of the worker that is started anew
    assert again.missing([reference]) == []
    assert again.place(PLACE) == warehouse.place(PLACE)


@given(cuts=st.lists(st.integers(0, len(CONTENT))))
def test_any_pieces_will_do(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    folder = tmp_path_factory.mktemp("cache")
    bounds = [0, *sorted(cuts), len(CONTENT)]
    pieces = [CONTENT[begin:end] for begin, end in pairwise(bounds) if begin < end]
    warehouse = Warehouse(folder)
    send(warehouse, reference_to(), pieces)
    assert warehouse.place(PLACE).read_bytes() == CONTENT
    assert files_of(folder) == [f"fleet/{PLACE}"]


def test_an_empty_file_is_one_piece(tmp_path: Path) -> None:
    warehouse, reference = Warehouse(tmp_path), reference_to(b"")
    send(warehouse, reference, [b""])
    assert warehouse.missing([reference]) == []
    assert warehouse.place(PLACE).read_bytes() == b""


def test_half_a_file_is_none(tmp_path: Path) -> None:
    warehouse, reference = Warehouse(tmp_path), reference_to()
    send(warehouse, reference, [CONTENT[:100]])
    assert warehouse.missing([reference]) == [reference]
    assert not warehouse.place(PLACE).exists()
    send(Warehouse(tmp_path), reference, [CONTENT])  # another client sends it from its beginning
    assert warehouse.missing([reference]) == []


@pytest.mark.parametrize("offset", [-1, 1, 99, 101, len(CONTENT)])
def test_pieces_that_do_not_follow_each_other_are_refused(tmp_path: Path, offset: int) -> None:
    warehouse, reference = Warehouse(tmp_path), reference_to()
    warehouse.receive(reference, 0, CONTENT[:100])
    with pytest.raises(LabError, match=f"pieces of {PLACE} do not come one after the other"):
        warehouse.receive(reference, offset, CONTENT[offset : offset + 10])
    assert warehouse.missing([reference]) == [reference]
    send(warehouse, reference, [CONTENT])
    assert warehouse.place(PLACE).read_bytes() == CONTENT


def test_a_file_is_not_longer_than_announced(tmp_path: Path) -> None:
    warehouse, reference = Warehouse(tmp_path), reference_to()
    for pieces in ([CONTENT + b"!"], [CONTENT[:-1], b"!!"]):
        with pytest.raises(LabError, match="do not come one after the other"):
            send(warehouse, reference, pieces)
        assert warehouse.missing([reference]) == [reference]


def test_another_content_is_not_kept(tmp_path: Path) -> None:
    warehouse, reference = Warehouse(tmp_path), reference_to()
    with pytest.raises(LabError, match="is not what was sent: its SHA-256 is"):
        send(warehouse, reference, [CONTENT[:100], bytes(len(CONTENT) - 100)])
    assert files_of(tmp_path) == []
    assert warehouse.missing([reference]) == [reference]


def test_what_is_damaged_later_is_asked_for_again(tmp_path: Path) -> None:
    warehouse, reference = Warehouse(tmp_path), reference_to()
    send(warehouse, reference, [CONTENT])
    kept = warehouse.place(PLACE)
    kept.chmod(0o600)
    kept.write_bytes(CONTENT[::-1])
    assert warehouse.missing([reference]) == [reference]
    send(warehouse, reference, [CONTENT])
    assert kept.read_bytes() == CONTENT


def test_the_machines_own_cache_is_used(tmp_path: Path) -> None:
    own = tmp_path / PLACE
    own.parent.mkdir(parents=True)
    own.write_bytes(CONTENT)
    warehouse = Warehouse(tmp_path)
    assert warehouse.missing([reference_to()]) == []
    assert warehouse.place(PLACE) == own
    assert files_of(tmp_path) == [PLACE]


def test_another_file_of_that_name_in_the_own_cache_is_left_alone(tmp_path: Path) -> None:
    own = tmp_path / PLACE
    own.parent.mkdir(parents=True)
    own.write_bytes(b"built here with another compiler")
    warehouse, reference = Warehouse(tmp_path), reference_to()
    assert warehouse.missing([reference]) == [reference]
    send(warehouse, reference, [CONTENT])
    assert own.read_bytes() == b"built here with another compiler"
    assert warehouse.place(PLACE).read_bytes() == CONTENT
    again = Warehouse(tmp_path)
    assert again.missing([reference]) == []
    assert again.place(PLACE).read_bytes() == CONTENT


def test_files_are_their_owners_and_not_to_be_changed(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    plugin = reference_to(b"\x7fELF", "plugins/k/count.so")  # QEMU maps it
    send(warehouse, reference_to(), [CONTENT])
    send(warehouse, plugin, [b"\x7fELF"])
    root = tmp_path / "fleet"
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root, root / PLACE, root / plugin.place)}
    assert modes == {root: 0o700, root / PLACE: 0o400, root / plugin.place: 0o500}


def send_to_a_full_disk(disk: str) -> None:
    """Room for a piece beside what guests need, then not, and then again."""
    folder = Path(disk)
    content = bytes(2 * MIB)
    warehouse, reference = Warehouse(folder), reference_to(content)
    warehouse.receive(reference, 0, content[:MIB])
    with room(folder, (64 << 10) + 512), pytest.raises(HostError, match=r"there is no room for 1048576 bytes in"):
        warehouse.receive(reference, MIB, content[MIB:])
    assert warehouse.missing([reference]) == [reference]
    send(warehouse, reference, [content])
    assert warehouse.missing([reference]) == []


@OWN_MOUNTS
def test_a_disk_is_not_filled_up(tmp_path: Path) -> None:
    mount = ("tmpfs", "size=72m", "tmpfs", tmp_path)
    assert call_with_mount(mount, "test_warehouse:send_to_a_full_disk", tmp_path) == ""


def test_two_senders_do_not_write_into_each_others_files(tmp_path: Path) -> None:
    one, other, reference = Warehouse(tmp_path), Warehouse(tmp_path), reference_to()
    half = len(CONTENT) // 2
    for warehouse in (one, other):
        for sender in ("a", "b"):
            warehouse.receive(reference, 0, CONTENT[:half], sender)
    for warehouse in (one, other):
        for sender in ("a", "b"):
            warehouse.receive(reference, half, CONTENT[half:], sender)
    assert one.place(PLACE).read_bytes() == other.place(PLACE).read_bytes() == CONTENT
    assert files_of(tmp_path) == [f"fleet/{PLACE}"]
