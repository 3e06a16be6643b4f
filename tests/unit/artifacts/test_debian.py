# SPDX-License-Identifier: GPL-2.0-only
"""Is a chosen set of packages kept to, and is what is missing named? (With a real apt: test_apt.)"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.artifacts import debian_mirror as mirrors
from orchestrator.artifacts import pinned_packages
from orchestrator.artifacts import unpacked_packages as unpacking
from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact, Cache
from orchestrator.artifacts.debian_mirror import (
    DebianMirror,
    archive_keyring,
    debian_mirror,
    mirror_in,
    without_passwords,
)
from orchestrator.artifacts.debian_package import NoSuchPackageError, Package
from orchestrator.artifacts.pinned_packages import versions
from orchestrator.artifacts.ready_kernels import newest_packages
from orchestrator.artifacts.unpacked_packages import unpacked_packages
from orchestrator.catalog.debian_release import Suites, debian
from orchestrator.catalog.kernels import kernel, version_numbers
from orchestrator.errors import HostError, LabError, UsageError

CHOSEN = {
    "name": "lab-tool",
    "architecture": "i386",
    "version": "1.0-1",
    "sha256": "a" * 64,
    "depends": "",
    "suite": "bookworm",
}


def nothing(apt: AptRoot) -> list[Package]:
    raise AssertionError(f"{apt} is asked although the packages are there")


def put_in(cache: Cache, *packages: dict[str, str]) -> Artifact:
    """An artifact as an earlier run left it, and the record that it was chosen."""
    inputs = {"packages": {f"{p['name']}:{p['architecture']}": [p["version"], p["sha256"]] for p in packages}}
    (cache.root / "pins").mkdir(parents=True, exist_ok=True)
    (cache.root / "pins" / "tools.json").write_text(json.dumps(packages))
    return cache.obtain("debian", inputs, "tools", lambda folder: (folder / "content").touch())


def test_a_chosen_set_needs_no_network(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    made = put_in(cache, CHOSEN)
    assert unpacked_packages(BuildContext(cache, offline=True), "tools", "i386", nothing) == made


def test_another_version_in_the_cache_is_not_taken(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    newer = put_in(cache, {**CHOSEN, "version": "2.0-1"})
    made = put_in(cache, CHOSEN)
    assert newer != made
    assert unpacked_packages(BuildContext(cache, offline=True), "tools", "i386", nothing) == made


@pytest.mark.parametrize("pinned", [False, True])
def test_offline_reports_what_is_missing(tmp_path: Path, pinned: bool) -> None:
    cache = Cache(tmp_path)
    if pinned:
        (put_in(cache, CHOSEN).path / "manifest.json").unlink()
    with pytest.raises(HostError, match="tools is not in the cache") as caught:
        unpacked_packages(BuildContext(cache, offline=True), "tools", "i386", nothing)
    assert str(tmp_path) in str(caught.value)
    assert "--offline" in caught.value.hint


@pytest.mark.parametrize("content", [b"", b"{", b"3", b"[1]", b"null", b'[{"name": "x"}]', b'[{"no": "x"}]', b"\xff"])
def test_a_damaged_record_hints_what_to_remove(tmp_path: Path, content: bytes) -> None:
    pin = tmp_path / "pins" / "tools.json"
    pin.parent.mkdir()
    pin.write_bytes(content)
    with pytest.raises(LabError, match="not a record of chosen packages") as caught:
        unpacked_packages(BuildContext(Cache(tmp_path), offline=True), "tools", "i386", nothing)
    assert f"rm '{pin}'" in caught.value.hint


# Which mirror has the guests' release, by the host's own apt sources?

A, B = "http://a.invalid/debian/", "https://b.invalid/mirrors/debian"


SECURITY = "http://s.invalid/debian-security/"


BESIDE_A, BESIDE_B = "http://a.invalid/debian-security", "https://b.invalid/mirrors/debian-security"


VENDOR, CONTAINERS = "https://v.invalid/repos/tool", "https://c.invalid/linux/debian"


@pytest.mark.parametrize(
    ("rows", "archive", "security"),
    [
        (f"{A} bookworm main\n{A} bookworm-updates main\n{SECURITY} bookworm-security main\n", A, SECURITY),
        (f"{A} trixie main\n{SECURITY} trixie-security main", A, SECURITY),
        (f"{A} trixie main\n", A, BESIDE_A),
        (f"{B} sid main\n", B, BESIDE_B),
        (f"{B} stable/ main\n{SECURITY} stable/updates main\n", B, SECURITY),
        # The release itself before others, whatever comes first.
        (f"{A} forky main\n{B} bookworm main\n", B, BESIDE_B),
        # Somebody else's security archive, and a mirror that is laid out differently.
        (
            "http://x.invalid/deb12 bookworm main\nhttp://x.invalid/u noble-security main\n",
            "http://x.invalid/deb12",
            None,
        ),
        (f"cdrom:[Debian 12.0 - amd64]/ bookworm main\n{A} trixie main\n", A, BESIDE_A),
        # Vendors have suites of the same names: before Debian's in the list, of an older release, under an alias.
        (f"{VENDOR} bookworm main\n{A} bookworm main\n{A} bookworm-updates main\n", A, BESIDE_A),
        (f"{VENDOR} bookworm main\n{A} bookworm main\n", A, BESIDE_A),
        (f"{A} trixie main\n{A} trixie-updates main\n{CONTAINERS} bookworm main\n", A, BESIDE_A),
        (f"{VENDOR} stable main\n{A} trixie main\n{A} trixie-updates main\n", A, BESIDE_A),
        (f"{VENDOR} bookworm-security main\n{SECURITY} bookworm-security main\n{A} bookworm main", A, SECURITY),
    ],
)
def test_the_mirror_of_a_host(rows: str, archive: str, security: str | None) -> None:
    assert mirror_in(rows) == DebianMirror(archive, security)


@pytest.mark.parametrize(
    "rows",
    [
        "",
        "\n",
        "http://a.invalid/ubuntu noble main\n",
        f"{SECURITY} trixie-security main\n",
        f"{CONTAINERS} bookworm stable\n",
        "x",
    ],
)
def test_a_host_without_one(rows: str) -> None:
    assert mirror_in(rows) is None


@given(st.text())
def test_any_rows_name_a_mirror_or_are_refused(rows: str) -> None:
    mirror = mirror_in(rows)
    assert mirror is None or mirror.archive in rows


def test_the_users_own_mirror_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_DEBIAN_MIRROR", B)
    assert debian_mirror() == DebianMirror(B, BESIDE_B)


@pytest.mark.parametrize("value", ["mirror.invalid", "http://a.invalid/x y", "deb http://a.invalid", "http:\n"])
def test_wrong_address_reaches_no_source_list(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ORCHESTRATOR_DEBIAN_MIRROR", value)
    with pytest.raises(UsageError, match="ORCHESTRATOR_DEBIAN_MIRROR"):
        debian_mirror()


def test_a_password_is_for_apt_alone() -> None:
    mirror = DebianMirror("https://me:secret@a.invalid/debian", None)
    assert mirror.shown == "https://a.invalid/debian"
    printed = "E: Failed to fetch http://me:p%20w@a.invalid/d  400\nmail root@a.invalid http://a.invalid/x@y"
    assert (
        without_passwords(printed)
        == "E: Failed to fetch http://a.invalid/d  400\nmail root@a.invalid http://a.invalid/x@y"
    )
    assert DebianMirror("mirror+file:/etc/apt/mirrors/debian.list", None).shown.endswith("/debian.list")


def test_every_suite_asks_for_debians_own_signature(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keyring = tmp_path / "keyring.gpg"
    release = debian().model_copy(update={"keyrings": [str(tmp_path / "none.gpg"), str(keyring)]})
    monkeypatch.setattr(mirrors, "debian", lambda: release)
    with pytest.raises(HostError, match="keys of Debian's archive") as caught:
        DebianMirror(A, None).sources(debian())
    assert "debian-archive-keyring" in caught.value.hint
    keyring.touch()
    assert archive_keyring() == keyring
    lines = DebianMirror(A, SECURITY).sources(debian())
    assert lines == {
        **{suite: f"deb [signed-by={keyring}] {A} {suite} main\n" for suite in ("bookworm", "bookworm-updates")},
        "bookworm-security": f"deb [signed-by={keyring}] {SECURITY} bookworm-security main\n",
    }
    assert "bookworm-security" not in DebianMirror(A, None).sources(debian())


# Is a version of Linux that the catalogue does not list found in Debian's suites, and what is not there named?

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


def packages_of(
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
            return sorted(filter(re.compile(pattern).fullmatch, lists[self.suites.release]), key=version_numbers)

        def show(self, name: str, architecture: str) -> Package:
            depends = lists[self.suites.release].get(name)
            if depends is None:
                raise NoSuchPackageError(f"the suites of {self.suites.title} have no {name} for {architecture}")
            version = ".".join(map(str, version_numbers(name)))
            return Package(name, architecture, version or "1", "0" * 64, depends)

        def with_suites(self, packages: Sequence[Package]) -> Sequence[Package]:
            return packages

        def has(self, packages: Sequence[Package]) -> bool:
            return all(package.name in lists[self.suites.release] for package in packages)

    monkeypatch.setattr(pinned_packages, "AptRoot", Root)
    monkeypatch.setattr(unpacking, "_unpack", lambda *_: None)
    return newest_packages(BuildContext(Cache(folder), say=said.append, offline=offline), kernel(name))


said: list[str] = []
"""What was said to the user last, in all calls."""


def names(artifact: Artifact) -> set[str]:
    return {name.partition(":")[0] for name in versions(artifact)}


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
    found = names(packages_of(name, tmp_path, monkeypatch))
    assert [one for one in found if "-image-" in one] == [image]
    assert len([one for one in found if re.match("linux-(base|binary|modules)-", one)]) == parts
    # What the build's programs are linked with comes along, and nothing else that they depend on.
    libraries = {"libc6", "libelf1t64", "libgcc-s1", "zlib1g"} if parts else set()
    assert {one for one in found if not one.startswith("linux-")} == libraries


def test_the_guests_own_release_needs_no_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = names(packages_of("debian-amd64@6.12.95", tmp_path, monkeypatch))
    assert found == {
        "linux-image-6.12.95+deb12-amd64",
        "linux-headers-6.12.95+deb12-amd64",
        "linux-headers-6.12.95+deb12-common",
        "linux-kbuild-6.12.95+deb12",
    }


def test_suites_that_cannot_be_read_are_named_and_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said.clear()
    there = {"trixie-backports": TRIXIE}
    assert "linux-image-7.3.4+deb13-amd64" in names(packages_of("debian-amd64@newest", tmp_path, monkeypatch, there))
    assert [line for line in said if line.startswith("continuing without")] == [
        "continuing without Debian 12 with its backports: the mirror has no Debian 12 with its backports",
        "continuing without Debian unstable: the mirror has no Debian unstable",
    ]
    with pytest.raises(HostError, match=r"^the mirror has no Debian unstable"):
        packages_of("debian-amd64@newest", tmp_path / "other", monkeypatch, {})


@pytest.mark.parametrize("name", ["debian-amd64@5.19", "debian-amd64@7.30", "debian-amd64@6.18.1", "debian-amd64@7.1"])
def test_what_the_archive_has_not_is_a_sentence_with_what_it_has(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HostError) as refused:
        packages_of(
            name, tmp_path, monkeypatch, {one: LISTS[one] for one in ("bookworm-backports", "trixie-backports")}
        )
    assert refused.value.what == (
        f"Debian has no kernel {name} available: Debian 12 with its backports has 6.1, 6.12; "
        "Debian 13 with its backports has 6.18, 7.2, 7.3"
    )


def test_a_kernel_with_a_part_that_is_gone_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trixie = {name: needs for name, needs in TRIXIE.items() if name != "linux-base-7.3.4+deb13-amd64"}
    older = {**trixie, **image("7.3.2+deb13", is_split=True)}
    artifact = packages_of("debian-amd64@7.3", tmp_path, monkeypatch, {**LISTS, "trixie-backports": older})
    assert "linux-image-7.3.2+deb13-amd64" in names(artifact)
    with pytest.raises(HostError, match=r"available: .* \(the suites .* have no linux-base-7\.3\.4\+deb13-amd64"):
        packages_of("debian-amd64@7.3", tmp_path / "other", monkeypatch, {**LISTS, "trixie-backports": trixie})


def test_the_newest_is_looked_for_each_time_and_a_version_is_kept_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages_of("debian-amd64@newest", tmp_path, monkeypatch)
    kept = packages_of("debian-amd64@7.2", tmp_path, monkeypatch)
    later = {**LISTS, "sid": image("7.4.1+deb14", is_split=True)}
    assert "linux-image-7.4.1+deb14-amd64" in names(packages_of("debian-amd64@newest", tmp_path, monkeypatch, later))
    offline = packages_of("debian-amd64@newest", tmp_path, monkeypatch, {}, offline=True)
    assert "linux-image-7.4.1+deb14-amd64" in names(offline)
    assert packages_of("debian-amd64@7.2", tmp_path, monkeypatch, later) == kept


def test_suites_are_looked_in_from_the_guests_own_release_on() -> None:
    assert [suites.release for suites in debian().elsewhere] == list(LISTS)
    assert debian().elsewhere[0].suites[0] == debian().release
