# SPDX-License-Identifier: GPL-2.0-only
"""Is a version of Linux that the catalogue does not list found in Debian's suites, and what is not there named?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from orchestrator.artifacts import debian as pins
from orchestrator.artifacts import debian as unpacking
from orchestrator.artifacts.cache import Artifact, BuildContext, Cache
from orchestrator.artifacts.debian import NoSuchPackageError, Package, numbers_in, versions
from orchestrator.artifacts.kernels import packages_at_hand
from orchestrator.catalog.images import Suites, debian
from orchestrator.catalog.kernels import kernel
from orchestrator.errors import HostError

Lists = Mapping[str, Mapping[str, str]]
"""Each release's packages: what each depends on, by its name."""


def image(release: str, *, is_split: bool = False, has_headers: bool = True) -> dict[str, str]:
    """The packages of a kernel, as Debian 13 has them."""
    headers = {
        f"linux-headers-{release}-amd64": f"linux-headers-{release}-common, linux-kbuild-{release}, gcc-14-for-host",
        f"linux-headers-{release}-common": "",
        f"linux-kbuild-{release}": "libc6 (>= 2.38), libelf1t64, pahole",
        "libc6": "libgcc-s1",
        "libelf1t64": "libc6, zlib1g",
        **dict.fromkeys(["libgcc-s1", "zlib1g", "pahole"], "libc6"),
    }
    parts = [f"linux-{part}-{release}-amd64" for part in ("base", "binary", "modules")] if is_split else []
    # The image that is whole has its configuration itself.
    needs = parts or [f"linux-base-{release}-amd64"]
    named = {f"linux-image-{release}-amd64": ", ".join(["kmod", "linux-base (>= 4.3~)", *needs])}
    return {**named, **dict.fromkeys(parts, ""), **(headers if has_headers else {})}


BOOKWORM = {**image("6.1.0-50"), **image("6.12.95+deb12"), "linux-image-6.12-amd64": "linux-image-6.12.95+deb12-amd64"}
TRIXIE = {
    **image("6.18.9+deb13", has_headers=False),
    **image("6.18.15+deb13", has_headers=False),
    **image("7.2.12+deb13", is_split=True),
    **image("7.3.4+deb13", is_split=True),
    "linux-image-7.3.4+deb13-cloud-amd64": "",
    "linux-image-7.30.1+deb13-rt-amd64": "",
}
SID = {**image("7.2.13+deb14", is_split=True), **image("7.4~rc3", is_split=True)}
LISTS: Lists = {"bookworm-backports": BOOKWORM, "trixie-backports": TRIXIE, "sid": SID}


def at_hand(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, lists: Lists = LISTS, *, offline: bool = False
) -> Artifact:
    """The packages of a kernel, where the suites have these; a release without a list cannot be fetched."""

    class Root:
        def __init__(self, context: BuildContext, architectures: Sequence[str], suites: Suites) -> None:
            assert architectures == ("amd64",)
            self.suites = suites

        def refresh(self) -> None:
            if self.suites.release not in lists:
                raise HostError(f"the mirror has no {self.suites.title}")

        def names(self, pattern: str) -> list[str]:
            return sorted(filter(re.compile(pattern).fullmatch, lists[self.suites.release]), key=numbers_in)

        def show(self, name: str, architecture: str) -> Package:
            depends = lists[self.suites.release].get(name)
            if depends is None:
                raise NoSuchPackageError(f"the suites of {self.suites.title} have no {name} for {architecture}")
            version = ".".join(map(str, numbers_in(name)))
            return Package(name, architecture, version or "1", "0" * 64, depends)

        def with_suites(self, packages: Sequence[Package]) -> Sequence[Package]:
            return packages

        def has(self, packages: Sequence[Package]) -> bool:
            return all(package.name in lists[self.suites.release] for package in packages)

    monkeypatch.setattr(pins, "AptRoot", Root)
    monkeypatch.setattr(unpacking, "_unpack", lambda *_: None)
    return packages_at_hand(BuildContext(Cache(folder), say=said.append, offline=offline), kernel(name))


said: list[str] = []
"""What was said to the user last, in all calls."""


def names(found: Artifact) -> set[str]:
    return {name.partition(":")[0] for name in versions(found)}


@pytest.mark.parametrize(
    ("name", "image", "parts"),
    [
        ("debian-amd64@6.18", "linux-image-6.18.15+deb13-amd64", 0),
        ("debian-amd64@6.18.9", "linux-image-6.18.9+deb13-amd64", 0),
        ("debian-amd64@7.2", "linux-image-7.2.12+deb13-amd64", 3),
        ("debian-amd64@7.3", "linux-image-7.3.4+deb13-amd64", 3),
        ("debian-amd64@7.4", "linux-image-7.4~rc3-amd64", 3),
        ("debian-amd64@newest", "linux-image-7.4~rc3-amd64", 3),
    ],
)
def test_a_version_is_found_in_the_first_suites_that_have_it(
    name: str, image: str, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = names(at_hand(name, tmp_path, monkeypatch))
    assert [one for one in found if "-image-" in one] == [image]
    assert len([one for one in found if re.match("linux-(base|binary|modules)-", one)]) == parts
    # What the build's programs are linked with comes along, and nothing else that they depend on.
    libraries = {"libc6", "libelf1t64", "libgcc-s1", "zlib1g"} if parts else set()
    assert {one for one in found if not one.startswith("linux-")} == libraries


def test_the_guests_own_release_needs_no_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = names(at_hand("debian-amd64@6.12.95", tmp_path, monkeypatch))
    assert found == {
        "linux-image-6.12.95+deb12-amd64",
        "linux-headers-6.12.95+deb12-amd64",
        "linux-headers-6.12.95+deb12-common",
        "linux-kbuild-6.12.95+deb12",
    }


def test_suites_that_cannot_be_read_are_named_and_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said.clear()
    there = {"trixie-backports": TRIXIE}
    assert "linux-image-7.3.4+deb13-amd64" in names(at_hand("debian-amd64@newest", tmp_path, monkeypatch, there))
    assert [line for line in said if line.startswith("going on without")] == [
        "going on without Debian 12 with its backports: the mirror has no Debian 12 with its backports",
        "going on without Debian unstable: the mirror has no Debian unstable",
    ]
    with pytest.raises(HostError, match=r"^the mirror has no Debian unstable"):
        at_hand("debian-amd64@newest", tmp_path / "other", monkeypatch, {})


@pytest.mark.parametrize("name", ["debian-amd64@5.19", "debian-amd64@7.30", "debian-amd64@6.18.1", "debian-amd64@7.1"])
def test_what_the_archive_has_not_is_a_sentence_with_what_it_has(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HostError) as refused:
        at_hand(name, tmp_path, monkeypatch, {one: LISTS[one] for one in ("bookworm-backports", "trixie-backports")})
    assert refused.value.what == (
        f"Debian has no kernel {name} at hand: Debian 12 with its backports has 6.1, 6.12; "
        "Debian 13 with its backports has 6.18, 7.2, 7.3"
    )


def test_a_kernel_with_a_part_that_is_gone_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trixie = {name: needs for name, needs in TRIXIE.items() if name != "linux-base-7.3.4+deb13-amd64"}
    older = {**trixie, **image("7.3.2+deb13", is_split=True)}
    found = at_hand("debian-amd64@7.3", tmp_path, monkeypatch, {**LISTS, "trixie-backports": older})
    assert "linux-image-7.3.2+deb13-amd64" in names(found)
    with pytest.raises(HostError, match=r"at hand: .* \(the suites .* have no linux-base-7\.3\.4\+deb13-amd64"):
        at_hand("debian-amd64@7.3", tmp_path / "other", monkeypatch, {**LISTS, "trixie-backports": trixie})


def test_the_newest_is_looked_for_each_time_and_a_version_is_kept_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_hand("debian-amd64@newest", tmp_path, monkeypatch)
    kept = at_hand("debian-amd64@7.2", tmp_path, monkeypatch)
    later = {**LISTS, "sid": image("7.4.1+deb14", is_split=True)}
    assert "linux-image-7.4.1+deb14-amd64" in names(at_hand("debian-amd64@newest", tmp_path, monkeypatch, later))
    offline = at_hand("debian-amd64@newest", tmp_path, monkeypatch, {}, offline=True)
    assert "linux-image-7.4.1+deb14-amd64" in names(offline)
    assert at_hand("debian-amd64@7.2", tmp_path, monkeypatch, later) == kept


def test_suites_are_looked_in_from_the_guests_own_release_on() -> None:
    assert [suites.release for suites in debian().elsewhere] == list(LISTS)
    assert debian().elsewhere[0].suites[0] == debian().release
