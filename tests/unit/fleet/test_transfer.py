# SPDX-License-Identifier: GPL-2.0-only
"""Does what a boot needs arrive, with the same files by content, and does a worker keep it, complete or not at all?"""

from __future__ import annotations

import hashlib
import shutil
import stat
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from file_permissions import reading_by_modes
from full_disk import room
from host_toolchain import a_kernel
from hypothesis import given
from hypothesis import strategies as st
from namespaces import OWN_MOUNTS, fork_with_mount

from orchestrator.artifacts import digests
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import HostError, LabError
from orchestrator.fleet.file_store import FileStore
from orchestrator.fleet.transfer import Bundle, FileReference, bundled, unbundled


def written(path: Path, content: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def delivered(bundle: Bundle, there: Path) -> Any:
    """The objects, as they are unpacked where all files have come to a folder."""
    for reference, file in bundle.files.items():
        content = file.read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (reference.size, reference.sha256)
        written(there / reference.place, content)
    return unbundled(bundle.data, there.joinpath)


def kernel(folder: Path, release: str = "6.1.0") -> Kernel:
    image = written(folder / "kernels" / release / "bzImage", release.encode())
    modules = folder / "kernels" / release / "modules"
    facts = {"release": release, "image": image, "modules": modules}
    return a_kernel("debian-686", {"CONFIG_KPROBES": "y"}, folder / "headers", **facts)


def test_a_file_of_the_cache_keeps_its_place(tmp_path: Path) -> None:
    file = written(tmp_path / "cache" / "modules" / "4f0c" / "probe.ko")
    bundle = bundled({"module": file}, tmp_path / "cache")
    assert [(reference.place, path) for reference, path in bundle.files.items()] == [("modules/4f0c/probe.ko", file)]
    assert delivered(bundle, tmp_path / "there") == {"module": tmp_path / "there" / "modules" / "4f0c" / "probe.ko"}


def test_a_file_from_elsewhere_gets_a_place_by_its_content(tmp_path: Path) -> None:
    first = written(tmp_path / "one" / "mine.ko", b"1")
    same = written(tmp_path / "two" / "mine.ko", b"1")
    other_path = written(tmp_path / "three" / "mine.ko", b"3")
    bundle = bundled([first, same, other_path], tmp_path / "cache")
    assert len(bundle.files) == 2
    places = delivered(bundle, tmp_path / "there")
    assert [place.read_bytes() for place in places] == [b"1", b"1", b"3"]
    assert places[0] == places[1] != places[2]
    assert all(place.name == "mine.ko" and place.is_relative_to(tmp_path / "there" / "given") for place in places)


def test_a_folder_and_what_is_missing_become_places_where_nothing_is(tmp_path: Path) -> None:
    folder = written(tmp_path / "cache" / "headers" / "Makefile").parent
    outside = tmp_path / "usr" / "include"
    outside.mkdir(parents=True)
    (tmp_path / "cache" / "kernels" / "k").mkdir(parents=True)
    paths = [folder, tmp_path / "cache" / "kernels" / "k" / "vmlinux", outside, Path("/no/such/compiler")]
    bundle = bundled(paths, tmp_path / "cache")
    assert bundle.files == {}
    there = delivered(bundle, tmp_path / "there")
    assert there[:2] == [tmp_path / "there" / "headers", tmp_path / "there" / "kernels" / "k" / "vmlinux"]
    assert all(place.is_relative_to(tmp_path / "there") for place in there)
    assert not any(place.exists() for place in there)


def test_an_artifact_that_was_removed_is_told(tmp_path: Path) -> None:
    file = written(tmp_path / "cache" / "modules" / "4f0c" / "probe.ko")
    made = kernel(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache" / "modules" / "4f0c")
    with pytest.raises(HostError, match=r"^modules/4f0c was removed from the cache .* during the run") as caught:
        bundled([made, file], tmp_path / "cache")
    assert "--resume" in caught.value.hint
    shutil.rmtree(tmp_path / "cache" / "kernels")
    with pytest.raises(HostError, match=r"^kernels/6\.1\.0 was removed from the cache"):
        bundled([made, made.image], tmp_path / "cache")  # as its machine names it


def test_relative_paths_are_texts_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "boot1")
    monkeypatch.chdir(tmp_path)
    bundle = bundled(Path("boot1"), tmp_path / "cache")
    assert bundle.files == {}
    assert delivered(bundle, tmp_path / "there") == Path("boot1")


def test_files_that_are_not_named_travel_too(tmp_path: Path) -> None:
    file = written(tmp_path / "cache" / "kernels" / "k" / "System.map")
    bundle = bundled("no path", tmp_path / "cache", [file])
    assert delivered(bundle, tmp_path / "there") == "no path"
    assert (tmp_path / "there" / "kernels" / "k" / "System.map").read_bytes() == b"content"


def test_a_kernel_arrives_and_what_it_was_built_with_may_be_gone(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    made = kernel(cache)
    bundle = bundled([made, made.image], cache)
    there, image = delivered(bundle, tmp_path / "there")
    assert (there.release, there.config) == ("6.1.0", {"CONFIG_KPROBES": "y"})
    assert there.image == image == tmp_path / "there" / "kernels" / "6.1.0" / "bzImage"
    assert there.headers == tmp_path / "there" / "headers"


def test_a_file_that_changes_gets_another_reference(tmp_path: Path) -> None:
    file = written(tmp_path / "cache" / "m" / "k" / "probe.ko", b"before")
    (before,) = bundled(file, tmp_path / "cache").files
    written(file, b"behind it")
    (after,) = bundled(file, tmp_path / "cache").files
    assert (before.place, before.size, after.size) == (after.place, 6, 9)
    assert after.sha256 == hashlib.sha256(b"behind it").hexdigest()


def test_the_digest_of_a_recorded_file_is_taken_from_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "cache" / "m" / "k" / "probe.ko")
    digests.record(file.parent, "")

    def unread(path: Path) -> str:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr("orchestrator.artifacts.digests.of_content", unread)
    (reference,) = bundled(file, tmp_path / "cache").files
    assert reference.sha256 == hashlib.sha256(b"content").hexdigest()


def test_a_file_that_cannot_be_read_is_an_error_of_the_system(tmp_path: Path) -> None:
    file = written(tmp_path / "secret.ko")
    file.chmod(0)
    with reading_by_modes(), pytest.raises(PermissionError):
        bundled(file, tmp_path / "cache")


CONTENT = bytes(range(256)) * 4
PLACE = "modules/4f0c/probe.ko"
MIB = 1 << 20


def reference_to(content: bytes = CONTENT, place: str = PLACE) -> FileReference:
    return FileReference(place=place, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def send(store: FileStore, reference: FileReference, pieces: Iterable[bytes]) -> None:
    offset = 0
    for piece in pieces:
        store.receive(reference, offset, piece)
        offset += len(piece)


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_file_that_was_sent_is_there(tmp_path: Path) -> None:
    store, reference = FileStore(tmp_path), reference_to()
    assert store.missing([reference]) == [reference]
    send(store, reference, [CONTENT[:100], CONTENT[100:]])
    assert store.missing([reference]) == []
    assert store.place(PLACE).read_bytes() == CONTENT
    again = FileStore(tmp_path)  # of the worker that is started anew
    assert again.missing([reference]) == []
    assert again.place(PLACE) == store.place(PLACE)


@given(cuts=st.lists(st.integers(0, len(CONTENT))))
def test_any_pieces_will_do(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    folder = tmp_path_factory.mktemp("cache")
    bounds = [0, *sorted(cuts), len(CONTENT)]
    pieces = [CONTENT[begin:end] for begin, end in pairwise(bounds) if begin < end]
    store = FileStore(folder)
    send(store, reference_to(), pieces)
    assert store.place(PLACE).read_bytes() == CONTENT
    assert files_of(folder) == [f"fleet/{PLACE}"]


def test_an_empty_file_is_one_piece(tmp_path: Path) -> None:
    store, reference = FileStore(tmp_path), reference_to(b"")
    send(store, reference, [b""])
    assert store.missing([reference]) == []
    assert store.place(PLACE).read_bytes() == b""


def test_half_a_file_is_none(tmp_path: Path) -> None:
    store, reference = FileStore(tmp_path), reference_to()
    send(store, reference, [CONTENT[:100]])
    assert store.missing([reference]) == [reference]
    assert not store.place(PLACE).exists()
    send(FileStore(tmp_path), reference, [CONTENT])  # another client sends it from its beginning
    assert store.missing([reference]) == []


@pytest.mark.parametrize("offset", [-1, 1, 99, 101, len(CONTENT)])
def test_pieces_that_do_not_follow_each_other_are_refused(tmp_path: Path, offset: int) -> None:
    store, reference = FileStore(tmp_path), reference_to()
    store.receive(reference, 0, CONTENT[:100])
    with pytest.raises(LabError, match=f"pieces of {PLACE} are out of order"):
        store.receive(reference, offset, CONTENT[offset : offset + 10])
    assert store.missing([reference]) == [reference]
    send(store, reference, [CONTENT])
    assert store.place(PLACE).read_bytes() == CONTENT


def test_a_file_is_not_longer_than_announced(tmp_path: Path) -> None:
    store, reference = FileStore(tmp_path), reference_to()
    for pieces in ([CONTENT + b"!"], [CONTENT[:-1], b"!!"]):
        with pytest.raises(LabError, match="are out of order"):
            send(store, reference, pieces)
        assert store.missing([reference]) == [reference]


def test_another_content_is_not_kept(tmp_path: Path) -> None:
    store, reference = FileStore(tmp_path), reference_to()
    with pytest.raises(LabError, match="is not what was sent: its SHA-256 is"):
        send(store, reference, [CONTENT[:100], bytes(len(CONTENT) - 100)])
    assert files_of(tmp_path) == []
    assert store.missing([reference]) == [reference]


def test_file_damaged_later_is_asked_for_again(tmp_path: Path) -> None:
    store, reference = FileStore(tmp_path), reference_to()
    send(store, reference, [CONTENT])
    kept = store.place(PLACE)
    kept.chmod(0o600)
    kept.write_bytes(CONTENT[::-1])
    assert store.missing([reference]) == [reference]
    send(store, reference, [CONTENT])
    assert kept.read_bytes() == CONTENT


def test_the_machines_own_cache_is_used(tmp_path: Path) -> None:
    path = tmp_path / PLACE
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    store = FileStore(tmp_path)
    assert store.missing([reference_to()]) == []
    assert store.place(PLACE) == path
    assert files_of(tmp_path) == [PLACE]


def test_another_file_of_that_name_in_the_own_cache_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / PLACE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"built here with another compiler")
    store, reference = FileStore(tmp_path), reference_to()
    assert store.missing([reference]) == [reference]
    send(store, reference, [CONTENT])
    assert path.read_bytes() == b"built here with another compiler"
    assert store.place(PLACE).read_bytes() == CONTENT
    again = FileStore(tmp_path)
    assert again.missing([reference]) == []
    assert again.place(PLACE).read_bytes() == CONTENT


def test_files_are_their_owners_and_not_to_be_changed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    plugin = reference_to(b"\x7fELF", "plugins/k/count.so")  # QEMU maps it
    send(store, reference_to(), [CONTENT])
    send(store, plugin, [b"\x7fELF"])
    root = tmp_path / "fleet"
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root, root / PLACE, root / plugin.place)}
    assert modes == {root: 0o700, root / PLACE: 0o400, root / plugin.place: 0o500}


def send_to_a_full_disk(disk: str) -> None:
    """Room for a piece beside what guests need, then not, and then again."""
    folder = Path(disk)
    content = bytes(2 * MIB)
    store, reference = FileStore(folder), reference_to(content)
    store.receive(reference, 0, content[:MIB])
    with room(folder, (64 << 10) + 512), pytest.raises(HostError, match=r"there is no room for 1048576 bytes in"):
        store.receive(reference, MIB, content[MIB:])
    assert store.missing([reference]) == [reference]
    send(store, reference, [content])
    assert store.missing([reference]) == []


@OWN_MOUNTS
def test_a_disk_is_not_filled_up(tmp_path: Path) -> None:
    mount = ("tmpfs", "size=72m", "tmpfs", tmp_path)
    assert fork_with_mount(mount, send_to_a_full_disk, tmp_path) == ""


def test_two_senders_do_not_write_into_each_others_files(tmp_path: Path) -> None:
    file_store, other_store, reference = FileStore(tmp_path), FileStore(tmp_path), reference_to()
    half = len(CONTENT) // 2
    for store in (file_store, other_store):
        for sender in ("a", "b"):
            store.receive(reference, 0, CONTENT[:half], sender)
    for store in (file_store, other_store):
        for sender in ("a", "b"):
            store.receive(reference, half, CONTENT[half:], sender)
    assert file_store.place(PLACE).read_bytes() == other_store.place(PLACE).read_bytes() == CONTENT
    assert files_of(tmp_path) == [f"fleet/{PLACE}"]
