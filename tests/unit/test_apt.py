# SPDX-License-Identifier: GPL-2.0-only
"""Are packages had from the host's own sources, whole and verified, and which suites are kept when an archive limps?"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from namespaces import OWN_MOUNTS, call_with_mount

from orchestrator.artifacts import apt
from orchestrator.artifacts.apt import (
    AptRoot,
    NoSuchPackageError,
    main_suites_of_list,
    main_suites_of_stanzas,
    package_of,
)
from orchestrator.artifacts.archive import system_archive
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.debian import unpacked_packages
from orchestrator.artifacts.pins import versions
from orchestrator.artifacts.workshop import Workshop
from orchestrator.catalog.images import ImageRecipe
from orchestrator.errors import HostError

ONE_LINE = """\
# bookworm, as installed
deb http://archive.invalid/debian bookworm main contrib
deb-src http://archive.invalid/debian bookworm main   # sources, too

deb [ arch=amd64 signed-by=/usr/share/keyrings/a.gpg ] http://archive.invalid/debian bookworm-updates main
deb [arch=amd64,i386] http://archive.invalid/debian bookworm main
deb http://security.invalid/debian-security bookworm-security main
deb http://security.invalid/debian-security/ bookworm-security/updates main
deb http://security.invalid/ buster/updates main
deb http://archive.invalid/debian bookworm-backports main
deb http://archive.invalid/debian bookworm-proposed-updates main
#deb http://archive.invalid/debian sid main
deb http://archive.invalid/flat ./
deb http://archive.invalid/ubuntu noble main universe
deb http://archive.invalid/ubuntu noble-updates main universe
deb http://archive.invalid/ubuntu noble-security main
deb cdrom:[A Disc 12.0 _Bookworm_ - amd64]/ bookworm main
deb incomplete
"""

ONE_LINE_KEPT = """\
deb http://archive.invalid/debian bookworm main contrib
deb-src http://archive.invalid/debian bookworm main   # sources, too
deb [arch=amd64,i386] http://archive.invalid/debian bookworm main
deb http://archive.invalid/flat ./
deb http://archive.invalid/ubuntu noble main universe
deb cdrom:[A Disc 12.0 _Bookworm_ - amd64]/ bookworm main
"""

STANZAS = """\
# Comment before everything
Types: deb
URIs: http://archive.invalid/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEY865UxYJKwYBBAHaRw8BAQdAd7Z0srwuhlB6JKFkcf4HU4SSS/xcRfwEQWzr
 Suites: none-updates
 -----END PGP PUBLIC KEY BLOCK-----

Types: deb
URIs: http://security.invalid/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

# The rest

types: deb deb-src
uris: http://archive.invalid/ubuntu/
suites: noble
 noble-updates
# noble-proposed
\tnoble-backports noble-security
components: main universe
"""

STANZAS_KEPT = """\
Types: deb
URIs: http://archive.invalid/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEY865UxYJKwYBBAHaRw8BAQdAd7Z0srwuhlB6JKFkcf4HU4SSS/xcRfwEQWzr
 Suites: none-updates
 -----END PGP PUBLIC KEY BLOCK-----

types: deb deb-src
uris: http://archive.invalid/ubuntu/
Suites: noble
components: main universe
"""


def test_one_line_sources_without_the_daily_suites() -> None:
    assert main_suites_of_list(ONE_LINE) == ONE_LINE_KEPT


def test_stanzas_without_the_daily_suites() -> None:
    kept = main_suites_of_stanzas(STANZAS)
    assert kept == STANZAS_KEPT
    assert main_suites_of_stanzas(kept) == kept


@pytest.mark.parametrize("text", ["", "\n\n\n", "Suites:\n", "# only a comment", "Types: deb\n"])
def test_sources_that_name_nothing(text: str) -> None:
    assert main_suites_of_list(text) == ""
    assert main_suites_of_stanzas(text) == "\n"


suites = st.builds(str.__add__, st.sampled_from(["bookworm", "noble", "stable", "a-b"]), st.sampled_from(["", "/"]))
daily = st.builds(
    str.__add__,
    st.sampled_from(["bookworm", "noble"]),
    st.sampled_from(["-security", "-updates", "-backports", "-proposed-updates", "/updates", "-updates/"]),
)
options = st.sampled_from(["", "[trusted=yes] ", "[ arch=amd64 ] ", "[signed-by=/a/b.gpg arch=i386]\t"])


@given(st.lists(st.tuples(options, st.one_of(suites, daily))))
def test_only_main_suites_stay_in_lines(entries: list[tuple[str, str]]) -> None:
    lines = [f"deb {option}http://archive.invalid/ {suite} main" for option, suite in entries]
    kept = main_suites_of_list("\n".join(lines)).splitlines()
    assert kept == [line for line in lines if "updates" not in line and "-security" not in line and "-back" not in line]


@given(
    st.lists(
        st.tuples(st.lists(st.one_of(suites, daily), min_size=1, max_size=5), st.sampled_from([" ", "\n ", "\n#x\n\t"]))
    )
)
def test_only_main_suites_stay_in_stanzas(entries: list[tuple[list[str], str]]) -> None:
    stanzas = [f"Types: deb\nSuites: {gap.join(names)}\nComponents: main" for names, gap in entries]
    kept = main_suites_of_stanzas("\n\n".join(stanzas))
    found = [line.removeprefix("Suites: ").split() for line in kept.splitlines() if line.startswith("Suites:")]
    mains = [[n for n in names if not n.rstrip("/").endswith(("s", "/updates", "-security"))] for names, _ in entries]
    assert found == [names for names in mains if names]


@given(st.text(st.sampled_from("Suites: \n\t#[]deb-updates/\r\x0b\0x")))
def test_any_text_is_survived(text: str) -> None:
    for kept in (main_suites_of_list(text), main_suites_of_stanzas(text)):
        assert kept.endswith("\n") or not kept


# --- apt itself, on sources of our own ---------------------------------------------------------------------------

NEEDS_APT = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("apt-get", "apt-cache", "dpkg-deb")), reason="needs apt and dpkg"
)


def publish(repository: Path, name: str, version: str, architecture: str, depends: str = "", more: str = "") -> Path:
    """Add a package with one file to a flat repository, and its paragraph to the repository's list."""
    tree = repository / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "opt").mkdir()
    (tree / "opt" / name).write_text(f"{name} {version} for {architecture}\n")
    control = f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n"
    control += "Maintainer: Nobody <nobody@archive.invalid>\nDescription: a test\n"
    control += f"Depends: {depends}\n" if depends else ""
    control += more
    (tree / "DEBIAN" / "control").write_text(control)
    file = repository / f"{name}_{version}_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, file], check=True, capture_output=True)
    shutil.rmtree(tree)
    content = file.read_bytes()
    facts = f"Filename: ./{file.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
    with (repository / "Packages").open("a") as packages:
        packages.write(control + facts + "\n")
    return file


def with_sources(check: str, tmp_path: Path, more: str = "") -> None:
    """Call one of the checks below where /etc/apt holds a repository of two packages, and what ``more`` says."""
    repository = tmp_path / "repository"
    repository.mkdir()
    for version in ("1.9-1", "1.10-1"):
        publish(repository, "lab-tool", version, "i386", "lab-data (>= 1.0), libc6 | libc7")
    publish(repository, "lab-data", "1:2.0~rc1+b2", "all")
    sources = tmp_path / "etc" / "sources.list.d"
    sources.mkdir(parents=True)
    (sources / "lab.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    (sources / "more.list").write_text(more)
    before = sorted(tmp_path.glob("etc/**/*"))
    mount = ("none", "bind", str(tmp_path / "etc"), Path("/etc/apt"))
    assert call_with_mount(mount, f"test_apt:{check}", tmp_path) == ""
    assert sorted(tmp_path.glob("etc/**/*")) == before


def bench(folder: str) -> tuple[Workshop, AptRoot, list[str]]:
    said: list[str] = []
    workshop = Workshop(Cache(Path(folder) / "a cache"), say=said.append)
    return workshop, AptRoot(workshop, ["amd64", "i386"]), said


def check_show_and_download(folder: str) -> None:
    workshop, root, _ = bench(folder)
    root.refresh()
    tool, data = root.show("lab-tool", "i386"), root.show("lab-data", "all")
    assert tool.pinned == "lab-tool:i386=1.10-1"
    assert tool.depends == "lab-data (>= 1.0), libc6 | libc7"
    assert data.pinned == "lab-data=1:2.0~rc1+b2"
    for name, architecture in (("lab-tool", "amd64"), ("lab-nothing", "i386"), ("--help", "i386"), ("a b", "all")):
        with pytest.raises(NoSuchPackageError):
            root.show(name, architecture)
    files = root.download([data, tool], workshop.cache.root / "debs")
    assert [file.name.split("_")[0] for file in files] == ["lab-data", "lab-tool"]
    assert [hashlib.sha256(file.read_bytes()).hexdigest() for file in files] == [data.sha256, tool.sha256]


def check_pin(folder: str) -> None:
    workshop, _, said = bench(folder)

    def choose(root: AptRoot) -> list[apt.Package]:
        return [root.show("lab-tool", "i386"), root.show("lab-data", "all")]

    chosen = unpacked_packages(workshop, "tools", "i386", choose)
    assert (chosen.path / "opt/lab-tool").read_text() == "lab-tool 1.10-1 for i386\n"
    assert (chosen.path / "opt/lab-data").exists()
    assert not (chosen.path / "archives").exists()
    packages = chosen.inputs["packages"]
    assert isinstance(packages, dict)
    assert {name: version for name, (version, _) in packages.items()} == {
        "lab-tool:i386": "1.10-1",
        "lab-data:all": "1:2.0~rc1+b2",
    }
    publish(Path(folder) / "repository", "lab-tool", "1.11-1", "i386")
    offline = Workshop(workshop.cache, offline=True)
    assert unpacked_packages(workshop, "tools", "i386", choose) == chosen
    assert unpacked_packages(offline, "tools", "i386", choose) == chosen
    # The record gone, the newest is chosen.
    said.clear()
    (workshop.cache.root / "pins/tools.json").unlink()
    (workshop.cache.root / "apt/amd64-i386/sources").unlink()
    newer = unpacked_packages(workshop, "tools", "i386", choose)
    assert (newer.path / "opt/lab-tool").read_text() == "lab-tool 1.11-1 for i386\n"
    assert said[0].startswith("fetching the package lists")


RECIPE = ImageRecipe(name="toy", title="a toy", arch="i386", packages=("lab-shell",), init="small", size=1 << 30)


def publish_system(folder: str) -> Path:
    """A repository with a package that every system has, and one with a dependency."""
    repository = Path(folder) / "repository"
    publish(repository, "lab-core", "1-1", "i386", more="Essential: yes\n")
    publish(repository, "lab-shell", "1:5-1", "i386", "lab-data (>= 1.0)")
    return repository


def check_system(folder: str) -> None:
    workshop, _, said = bench(folder)
    repository = publish_system(folder)
    first = system_archive(workshop, RECIPE)
    assert versions(first) == {"lab-core:i386": "1-1", "lab-data:all": "1:2.0~rc1+b2", "lab-shell:i386": "1:5-1"}
    stanzas = (first.path / "Packages").read_text().split("\n\n")
    assert len(stanzas) == 3
    for package, stanza in ((package_of(stanza), stanza) for stanza in stanzas):
        name = re.findall(r"^Filename: \./(.*)$", stanza, re.MULTILINE)[0]
        assert hashlib.sha256((first.path / name).read_bytes()).hexdigest() == package.sha256
    # What was chosen is fetched again as long as the archive has it, and after that chosen anew.
    publish(repository, "lab-shell", "1:6-1", "i386", "lab-data (>= 1.0)")
    (workshop.cache.root / "apt/i386/sources").unlink()
    shutil.rmtree(first.path)
    assert versions(system_archive(workshop, RECIPE)) == versions(first)
    index = repository / "Packages"
    index.write_text("\n\n".join(s for s in index.read_text().split("\n\n") if "Version: 1:5-1" not in s))
    (workshop.cache.root / "apt/i386/sources").unlink()
    shutil.rmtree(first.path)
    said.clear()
    assert versions(system_archive(workshop, RECIPE))["lab-shell:i386"] == "1:6-1"
    assert said == ["fetching the package lists (i386)", *(f"fetching {line}" for line in CHOSEN_ANEW)]
    # Another wish is another choice.
    more = RECIPE.model_copy(update={"packages": ("lab-data",)})
    assert set(versions(system_archive(workshop, more))) == {"lab-core:i386", "lab-data:all"}


CHOSEN_ANEW = ["lab-core 1-1", "lab-data 1:2.0~rc1+b2", "lab-shell 1:6-1"]


def check_impossible_system(folder: str) -> None:
    workshop, _, _ = bench(folder)
    publish_system(folder)
    for wanted in ("lab-tool", "lab-nothing"):
        impossible = RECIPE.model_copy(update={"packages": (wanted,)})
        with pytest.raises(HostError, match="cannot make a system") as caught:
            system_archive(workshop, impossible)
        assert wanted in " ".join(caught.value.detail[1:])
    assert list(workshop.cache.artifacts()) == []
    assert not (workshop.cache.root / "pins").exists()


def check_damaged_package(folder: str) -> None:
    workshop, root, _ = bench(folder)
    root.refresh()
    tool = root.show("lab-tool", "i386")
    file = Path(folder) / "repository" / f"lab-tool_{tool.version}_i386.deb"
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    with pytest.raises(HostError, match="apt could not fetch lab-tool:i386=1") as caught:
        unpacked_packages(workshop, "tools", "i386", lambda root: [root.show("lab-tool", "i386")])
    assert caught.value.detail[0].startswith("$ apt-get -q download lab-tool:i386=")
    assert list(workshop.cache.artifacts()) == []


def check_limping_archive(folder: str) -> None:
    apt._PAUSE = 0.0
    _, root, said = bench(folder)
    root.refresh()
    assert "trying the main suites alone" in said[-1]
    assert root.show("lab-tool", "i386").version == "1.10-1"
    said.clear()
    root.refresh()
    assert said == []


@NEEDS_APT
@OWN_MOUNTS
def test_packages_are_found_and_fetched(tmp_path: Path) -> None:
    with_sources("check_show_and_download", tmp_path)


@NEEDS_APT
@OWN_MOUNTS
def test_what_was_chosen_is_kept_to(tmp_path: Path) -> None:
    with_sources("check_pin", tmp_path)


@NEEDS_APT
@OWN_MOUNTS
def test_a_system_is_fetched_with_all_that_it_needs(tmp_path: Path) -> None:
    with_sources("check_system", tmp_path)


@NEEDS_APT
@OWN_MOUNTS
def test_a_system_that_cannot_be_is_told_in_apt_s_words(tmp_path: Path) -> None:
    with_sources("check_impossible_system", tmp_path)


@NEEDS_APT
@OWN_MOUNTS
def test_a_package_that_is_not_the_listed_one_is_refused(tmp_path: Path) -> None:
    with_sources("check_damaged_package", tmp_path)


@NEEDS_APT
@OWN_MOUNTS
def test_an_archive_in_mid_synchronisation_is_left_to_its_main_suite(tmp_path: Path) -> None:
    with_sources("check_limping_archive", tmp_path, "deb [trusted=yes] file:/nowhere bookworm-security main\n")
