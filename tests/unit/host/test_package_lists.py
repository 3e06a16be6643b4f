# SPDX-License-Identifier: GPL-2.0-only
"""Do the package lists hold all that the lab and its tests call, and would it be noticed if they did not?

All tests run with the listed packages' programs on their PATH and no others (tests/conftest.py), so that each of them
shows something of this. Here stands what shows that the PATH is such a one.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

import pytest
from called_programs import called_programs
from dpkg_database import DpkgDatabase, InstalledPackage, files_of, names_of_files, read_dpkg_database
from program_folder import PREFIX, link_programs, listed_programs, programs_of, read_lists

from orchestrator import host_packages
from orchestrator.artifacts.kernel_source import unpack_tarball
from orchestrator.errors import HostError
from orchestrator.host_packages import Requirement, check_installed

ROOT = Path(__file__).resolve().parents[3]
LISTED = [requirement for listed in read_lists().values() for requirement in listed]
SOURCES = [file for folder in ("orchestrator", "tests") for file in sorted((ROOT / folder).rglob("*.py"))]


@pytest.fixture(scope="module")
def database() -> DpkgDatabase:
    """The host's packages."""
    dpkg_database = read_dpkg_database()
    if dpkg_database is None:
        pytest.skip("this host has no dpkg, and so no record of the programs that the listed packages bring")
    return dpkg_database


@pytest.fixture
def tarball(tmp_path: Path) -> Path:
    """A kernel's source of one file."""
    file = tmp_path / "Makefile"
    file.write_text("all:\n")
    with tarfile.open(tmp_path / "linux-source-toy.tar.xz", "w:xz") as archive:
        archive.add(file, arcname="linux-source-toy/Makefile")
    return tmp_path / "linux-source-toy.tar.xz"


@pytest.fixture
def new_folder(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "new"
    folder.mkdir()
    return folder


def restrict_path(database: DpkgDatabase, without: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a package out of the lists, and set PATH to the programs that are left."""
    left = [requirement for requirement in LISTED if requirement.package != without]
    assert len(left) < len(LISTED)
    link_programs(listed_programs(database, left), folder)
    monkeypatch.setenv("PATH", str(folder))


# --- the PATH of all tests ------------------------------------------------------------------------


def test_the_path_holds_the_programs_of_the_lists_alone(database: DpkgDatabase) -> None:
    folder = Path(os.environ["PATH"])
    assert folder.name.startswith(PREFIX)
    assert {path.name for path in folder.iterdir()} == set(listed_programs(database, LISTED))
    for name in ("sh", "awk", "ld", "qemu-system-x86_64"):
        assert shutil.which(name) == str(folder / name)


def test_the_kernel_source_unpacks(tarball: Path, new_folder: Path) -> None:
    unpack_tarball(tarball, new_folder)
    assert (new_folder / "Makefile").read_text() == "all:\n"


def test_programs_called_by_name_are_in_a_package_list(database: DpkgDatabase) -> None:
    listed = listed_programs(database, LISTED)
    paths = {path.resolve() for path in listed.values()}  # /usr/sbin/e2fsck and its like; /usr may be merged
    calls = {(name, file.name) for file in SOURCES for name in called_programs(file.read_text())}
    unlisted = {(name, file) for name, file in calls if name not in listed and Path(name).resolve() not in paths}
    assert unlisted == {("no-such-program", "test_process.py")}
    assert {"tar", "patch", "make", "gcc", "qemu-img", "ss", "/usr/sbin/e2fsck"} <= {name for name, _ in calls}


def test_calls_are_found() -> None:
    source = """
argv = ["one", "-x"]
def call(argv, folder):
    run(argv, time_limit=1)
    subprocess.run([*UNSHARE, "two"], check=True)
    subprocess.Popen(("three", folder))
    spawn(["four"])
    guest.run(["five"])
    run([sys.executable, "six"])
UNSHARE = ["unshare", "--mount"]
"""
    assert called_programs(source) == {"one", "unshare", "three", "four"}


# --- what each list has ---------------------------------------------------------------------------


def test_each_list_has_lines() -> None:
    assert {name: bool(listed) for name, listed in read_lists().items()} == {
        f"{name}-packages.txt": True
        for name in ("bpf", "bpf-compiler", "header", "host", "image", "kernel", "module", "test", "type")
    }


@pytest.mark.parametrize("requirement", LISTED, ids=lambda requirement: requirement.need)
def test_a_package_brings_what_it_is_listed_for(database: DpkgDatabase, requirement: Requirement) -> None:
    if requirement.is_python:
        pytest.skip("./lab takes the newest Python that it finds, wherever it is from")
    assert requirement.location() is not None
    if not database.providing(requirement.package):
        pytest.skip(f"{requirement.package} is not installed; {requirement.need} is here all the same")
    if requirement.need.startswith("/"):
        names = names_of_files(database.with_dependencies([requirement.package]))
        assert os.path.realpath(requirement.need) in map(os.path.realpath, names)
    else:
        assert requirement.need in programs_of(database, [requirement.package])


# --- what is taken out is missed ------------------------------------------------------------------


OTHERS = pytest.mark.nightly("other packages are taken out: two seconds")


@pytest.mark.parametrize(
    ("package", "program"),
    [
        ("xz-utils", "xz"),
        ("mount", "mount"),
        *(
            pytest.param(*more, marks=OTHERS)
            for more in (("iproute2", "ss"), ("flex", "flex"), ("qemu-utils", "qemu-img"))
        ),
    ],
)
def test_a_program_goes_with_its_package(
    database: DpkgDatabase, package: str, program: str, new_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not database.providing(package):
        pytest.skip(f"{package} is not installed")
    assert shutil.which(program) is not None
    restrict_path(database, package, new_folder, monkeypatch)
    assert shutil.which(program) is None
    assert shutil.which("sh") == str(new_folder / "sh")


def test_without_xz_the_source_does_not_unpack(
    database: DpkgDatabase, tarball: Path, new_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restrict_path(database, "xz-utils", new_folder, monkeypatch)
    (tmp_path / "source").mkdir()
    with pytest.raises(HostError, match=r"cannot unpack .*linux-source-toy\.tar\.xz") as caught:
        unpack_tarball(tarball, tmp_path / "source")
    assert any("xz: Cannot exec" in line for line in caught.value.detail)
    with pytest.raises(HostError, match="unpacking needs xz-utils") as missing:
        check_installed("kernel-packages.txt", "unpacking")
    assert missing.value.hint == f"as root: {host_packages.INSTALL_COMMAND} xz-utils"


# --- dependencies ---------------------------------------------------------------------------------


def package(name: str, *dependencies: tuple[str, ...], provides: tuple[str, ...] = ()) -> InstalledPackage:
    return InstalledPackage(f"{name}:amd64", name, name == "base", dependencies, provides)


def test_dependencies_are_followed() -> None:
    installed = (
        package("base", ("awk",)),
        package("mawk", provides=("awk",)),
        package("gawk", ("mpfr",), provides=("awk",)),
        package("mpfr"),
        package("tool", ("absent", "present", "mpfr")),
        package("present", ("tool",)),
        package("alone"),
    )
    database = DpkgDatabase(installed)

    def closure(*names: str) -> set[str]:
        return {dependency.name for dependency in database.with_dependencies(names)}

    assert database.essential() == {"base"}
    assert closure("base") == {"base", "mawk", "gawk", "mpfr"}
    assert closure("tool") == {"tool", "present"}
    assert closure("nowhere") == set()


def test_this_host_s_relations_are_read(database: DpkgDatabase) -> None:
    assert {"dpkg", "bash", "coreutils", "util-linux"} <= database.essential()
    found = {dependency.name for dependency in database.with_dependencies(["gcc"])}
    assert {"gcc", "binutils", "libc6"} <= found
    assert Path("/usr/bin/gcc") in files_of(database.providing("gcc"))
