# SPDX-License-Identifier: GPL-2.0-only
"""Does what a boot needs arrive: its objects, the same files by content, and no path that leads elsewhere?"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
from file_permissions import reading_by_modes
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.artifacts import digests
from orchestrator.artifacts.compiler import Toolchain
from orchestrator.artifacts.kernels import Kernel
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import HostError
from orchestrator.fleet.parcel import Parcel, Reference, packed, unpacked

SHA256 = "0" * 64


def written(path: Path, content: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def delivered(parcel: Parcel, there: Path) -> Any:
    """The objects, as they are unpacked where all files have come to a folder."""
    for reference, file in parcel.files.items():
        content = file if isinstance(file, bytes) else file.read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (reference.size, reference.sha256)
        written(there / reference.place, content)
    return unpacked(parcel.data, there.joinpath)


def kernel(folder: Path, release: str = "6.1.0") -> Kernel:
    return Kernel(
        spec=kernel_spec("debian-686"),
        release=release,
        key="abc",
        image=written(folder / "kernels" / release / "bzImage", release.encode()),
        modules=folder / "kernels" / release / "modules",
        headers=folder / "headers",
        headers_makefile=folder / "headers" / "Makefile",
        packages={},
        config={"CONFIG_KPROBES": "y"},
        toolchain=cast(Toolchain, None),
    )


def test_a_file_of_the_cache_keeps_its_place(tmp_path: Path) -> None:
    file = written(tmp_path / "cache" / "modules" / "4f0c" / "probe.ko")
    parcel = packed({"module": file}, tmp_path / "cache")
    assert [(one.place, path) for one, path in parcel.files.items()] == [("modules/4f0c/probe.ko", file)]
    assert delivered(parcel, tmp_path / "there") == {"module": tmp_path / "there" / "modules" / "4f0c" / "probe.ko"}


def test_a_file_from_elsewhere_gets_a_place_by_its_content(tmp_path: Path) -> None:
    first = written(tmp_path / "one" / "mine.ko", b"1")
    same = written(tmp_path / "two" / "mine.ko", b"1")
    other = written(tmp_path / "three" / "mine.ko", b"3")
    parcel = packed([first, same, other], tmp_path / "cache")
    assert len(parcel.files) == 2
    places = delivered(parcel, tmp_path / "there")
    assert [place.read_bytes() for place in places] == [b"1", b"1", b"3"]
    assert places[0] == places[1] != places[2]
    assert all(place.name == "mine.ko" and place.is_relative_to(tmp_path / "there" / "given") for place in places)


def test_a_folder_and_what_is_missing_become_places_where_nothing_is(tmp_path: Path) -> None:
    folder = written(tmp_path / "cache" / "headers" / "Makefile").parent
    outside = tmp_path / "usr" / "include"
    outside.mkdir(parents=True)
    (tmp_path / "cache" / "kernels" / "k").mkdir(parents=True)
    paths = [folder, tmp_path / "cache" / "kernels" / "k" / "vmlinux", outside, Path("/no/such/compiler")]
    parcel = packed(paths, tmp_path / "cache")
    assert parcel.files == {}
    there = delivered(parcel, tmp_path / "there")
    assert there[:2] == [tmp_path / "there" / "headers", tmp_path / "there" / "kernels" / "k" / "vmlinux"]
    assert all(place.is_relative_to(tmp_path / "there") for place in there)
    assert not any(place.exists() for place in there)


def test_an_artifact_that_was_removed_is_told(tmp_path: Path) -> None:
    file = written(tmp_path / "cache" / "modules" / "4f0c" / "probe.ko")
    made = kernel(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache" / "modules" / "4f0c")
    with pytest.raises(HostError, match=r"^modules/4f0c has gone from the cache .* while the run went on") as caught:
        packed([made, file], tmp_path / "cache")
    assert "--resume" in caught.value.hint
    shutil.rmtree(tmp_path / "cache" / "kernels")
    with pytest.raises(HostError, match=r"^kernels/6\.1\.0 has gone from the cache"):
        packed([made, made.image], tmp_path / "cache")  # as its machine names it


def test_relative_paths_are_texts_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "boot1")
    monkeypatch.chdir(tmp_path)
    parcel = packed(Path("boot1"), tmp_path / "cache")
    assert parcel.files == {}
    assert delivered(parcel, tmp_path / "there") == Path("boot1")


def test_files_that_are_not_named_travel_too(tmp_path: Path) -> None:
    file = written(tmp_path / "cache" / "kernels" / "k" / "System.map")
    parcel = packed("no path", tmp_path / "cache", [file])
    assert delivered(parcel, tmp_path / "there") == "no path"
    assert (tmp_path / "there" / "kernels" / "k" / "System.map").read_bytes() == b"content"


def test_boots_share_the_file_of_their_kernel(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    one, other = kernel(cache), kernel(cache, "6.12.0")
    parcels = [packed([one, number], cache) for number in range(2)]
    assert parcels[0].files == parcels[1].files
    assert {reference.place.partition("/")[0] for reference in parcels[0].files} == {"kernels", "objects"}
    assert packed([other, 0], cache).files.keys().isdisjoint(parcels[0].files)
    (there, number) = delivered(parcels[1], tmp_path / "there")
    assert (number, there.release, there.config) == (1, "6.1.0", {"CONFIG_KPROBES": "y"})
    assert there.image == tmp_path / "there" / "kernels" / "6.1.0" / "bzImage"
    assert there.headers == tmp_path / "there" / "headers"


def test_a_file_that_changes_gets_another_reference(tmp_path: Path) -> None:
    file = written(tmp_path / "cache" / "m" / "k" / "probe.ko", b"before")
    (before,) = packed(file, tmp_path / "cache").files
    written(file, b"behind it")
    (after,) = packed(file, tmp_path / "cache").files
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
    (reference,) = packed(file, tmp_path / "cache").files
    assert reference.sha256 == hashlib.sha256(b"content").hexdigest()


def test_a_file_that_cannot_be_read_is_an_error_of_the_system(tmp_path: Path) -> None:
    file = written(tmp_path / "secret.ko")
    file.chmod(0)
    with reading_by_modes(), pytest.raises(PermissionError):
        packed(file, tmp_path / "cache")


@pytest.mark.parametrize(
    "place", ["", ".", "..", "/", "/etc/passwd", "//etc/passwd", "a/../../b", "a/..", "../a", "a\0b", "a/" * 600]
)
def test_a_place_that_leads_out_is_refused(place: str) -> None:
    with pytest.raises(ValidationError):
        Reference(place=place, sha256=SHA256, size=0)


@given(st.text() | st.lists(st.sampled_from(["..", ".", "", "a", "b.ko", "/", "~"])).map("/".join))
def test_every_place_is_below_the_folder(place: str) -> None:
    root = Path("/cache/fleet")
    try:
        kept = Reference(place=place, sha256=SHA256, size=0).place
    except ValidationError:
        return
    below = root / kept
    assert below.is_relative_to(root)
    assert below != root
    assert ".." not in below.parts


@pytest.mark.parametrize(
    "wrong", [{"sha256": "0" * 63}, {"sha256": "G" * 64}, {"sha256": SHA256 + "\n"}, {"size": -1}, {"size": 2**40}]
)
def test_a_reference_is_bounded(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Reference.model_validate({"place": "a/b", "sha256": SHA256, "size": 1, **wrong})
