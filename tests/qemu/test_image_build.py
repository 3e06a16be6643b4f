# SPDX-License-Identifier: GPL-2.0-only
"""Does an image hold what guests count on, and does a second build of the same packages give the same files?

debian-i386 is built where the cache has none yet, in about a minute; every night the others are looked at if somebody
built them.
"""

from __future__ import annotations

import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elsewhere import ELSEWHERE
from needed_images import needed_image

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.disk_images import Image, ready_image
from orchestrator.artifacts.package_archive import system_packages
from orchestrator.artifacts.pinned_packages import pin_of
from orchestrator.artifacts.user_namespace import as_root
from orchestrator.catalog.image_recipes import image, images

pytestmark = pytest.mark.qemu

BUILT_WHERE_MISSING = "debian-i386"
SETTINGS = {
    "hostkey /run/orchestrator/identity/host_key",
    "authorizedkeysfile /run/orchestrator/identity/authorized_keys",
    "passwordauthentication no",
    "kbdinteractiveauthentication no",
    "permitemptypasswords no",
    "permitrootlogin without-password",
    "pubkeyauthentication yes",
    "usepam no",
    "usedns no",
    "logingracetime 0",
    "tcpkeepalive no",
    "clientaliveinterval 0",
    "printmotd no",
    "printlastlog no",
    "maxsessions 100",
    "x11forwarding no",
    "subsystem sftp internal-sftp",
    "setenv PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/orchestrator/bin",
}
"""Seconds that a build may take, packages fetched."""


class Disk:
    """An image's file system, read without mounting it."""

    def __init__(self, image: Image, raw: Path) -> None:
        self.image = image
        self.raw = raw

    def text(self, path: str) -> str:
        return self._ask(f"cat {path}")

    def names(self, folder: str) -> set[str]:
        rows = [line.split("/") for line in self._ask(f"ls -p {folder}").splitlines() if line]
        assert rows, f"{folder} is not there"
        return {row[5] for row in rows} - {".", ".."}

    def target(self, path: str) -> str:
        found = [line for line in self._ask(f"stat {path}").splitlines() if line.startswith("Fast link dest:")]
        return found[0].split('"')[1] if found else ""

    def _ask(self, request: str) -> str:
        argv = ["/usr/sbin/debugfs", "-R", request, str(self.raw)]
        asked = subprocess.run(argv, check=True, capture_output=True, text=True)
        return asked.stdout


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name == BUILT_WHERE_MISSING else [ELSEWHERE]) for name in images()],
)
def disk(
    request: pytest.FixtureRequest, workshop: BuildContext, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Disk]:
    name: str = request.param
    is_built = name == BUILT_WHERE_MISSING
    found = ready_image(workshop, image(name)) if is_built else needed_image(request.config, name)
    raw = tmp_path_factory.mktemp("disk") / "raw"
    subprocess.run(["qemu-img", "convert", "-O", "raw", found.base, raw], check=True)
    yield Disk(found, raw)
    raw.unlink()


def test_the_base_is_read_only_and_sound(disk: Disk) -> None:
    assert stat.S_IMODE(disk.image.base.stat().st_mode) == 0o444
    assert disk.raw.stat().st_size == disk.image.recipe.size
    checked = subprocess.run(["/usr/sbin/e2fsck", "-fn", disk.raw], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_squashfs_holds_the_same_files(disk: Disk) -> None:
    squashfs = disk.image.squashfs
    assert stat.S_IMODE(squashfs.stat().st_mode) == 0o444
    argv = ["unsquashfs", "-lln", "-d", ".", str(squashfs)]
    listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    pairs = {(fields[1].replace("/", ":"), fields[5]) for fields in (line.split(maxsplit=5) for line in listed)}
    recorded = disk.image.base.with_name("files.txt").read_text().splitlines()
    rows = [line.split() for line in recorded if line[:2] in ("f ", "d ")]
    expected = {(fields[2], fields[4] if fields[0] == "f" else fields[3]) for fields in rows}
    assert len(expected) > 2000
    assert expected <= pairs


def test_image_has_the_recipes_packages(disk: Disk) -> None:
    assert {*disk.image.recipe.packages, "bash", "login", "util-linux"} <= set(disk.image.packages)
    status = disk.text("/var/lib/dpkg/status")
    assert status.count("Status: install ok installed\n") == status.count("Package: ") == len(disk.image.packages)


def test_it_belongs_to_no_machine(disk: Disk) -> None:
    assert not [name for name in disk.names("/etc/ssh") if name.startswith("ssh_host_")]
    assert "machine-id" in disk.names("/etc")
    assert disk.text("/etc/machine-id") == ""
    assert disk.text("/etc/hostname") == "lab\n"
    assert disk.text("/etc/resolv.conf") == ""
    assert "sources.list" in disk.names("/etc/apt")
    assert "deb" not in disk.text("/etc/apt/sources.list").split()


def test_root_logs_in_on_the_console_without_a_password(disk: Disk) -> None:
    assert [line for line in disk.text("/etc/shadow").splitlines() if line.startswith("root::")]
    assert "pam_unix.so nullok" in disk.text("/etc/pam.d/common-auth")
    assert {"agetty", "sshd"} <= disk.names("/usr/sbin")
    assert {"login", "bash", "su"} <= disk.names("/usr/bin")


def test_the_places_to_mount_on_are_empty(disk: Disk) -> None:
    for folder in ("/run", "/proc", "/sys", "/dev", "/tmp"):
        assert disk.names(folder) == set(), folder


def test_it_holds_no_files_without_a_use(disk: Disk) -> None:
    for folder in ("/usr/share/man", "/usr/share/doc", "/usr/share/locale", "/var/lib/apt/lists", "/var/cache/apt"):
        assert disk.names(folder) == set(), folder


def test_sshd_takes_keys_and_nothing_else_and_does_not_complain(disk: Disk, tmp_path: Path) -> None:
    script = Path(__file__).with_name("sshd_settings.sh")
    tree = tmp_path / "tree"
    tree.mkdir()
    try:
        argv = [*as_root(), "sh", str(script), str(disk.raw), str(tree)]
        asked = subprocess.run(argv, check=False, capture_output=True, text=True)
    finally:
        subprocess.run([*as_root(), "rm", "-rf", str(tree)], check=True)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert set(asked.stdout.splitlines()) >= SETTINGS
    assert [line for line in asked.stdout.splitlines() if line.startswith("acceptenv")] == ["acceptenv none"]


def test_systemd_starts_what_is_wanted_and_waits_for_nothing(disk: Disk) -> None:
    if disk.image.recipe.init == "small":
        assert "systemd" not in disk.image.packages
        return
    units = "/etc/systemd/system"
    assert disk.target("/usr/sbin/init").endswith("/lib/systemd/systemd")
    assert disk.target(f"{units}/default.target").endswith("/multi-user.target")
    assert "ssh.service" in disk.names(f"{units}/multi-user.target.wants")
    assert "serial-getty@ttyS0.service" not in disk.names(f"{units}/getty.target.wants")
    for unit in ("apt-daily.timer", "apt-daily-upgrade.timer", "systemd-networkd-wait-online.service"):
        assert disk.target(f"{units}/{unit}") == "/dev/null"


@pytest.mark.nightly("builds an image anew in an empty cache: two minutes, and the network")
def test_a_second_build_gives_the_same_files(
    workshop: BuildContext,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    recipe = image(BUILT_WHERE_MISSING)
    first = ready_image(workshop, recipe)
    again = BuildContext(Cache(tmp_path), say=workshop.say)
    pin, copy = (pin_of(context, system_packages(recipe).name) for context in (workshop, again))
    copy.parent.mkdir()
    shutil.copy(pin, copy)
    started = time.monotonic()
    second = ready_image(again, recipe)
    took = time.monotonic() - started
    record_property("seconds", round(took))
    workshop.say(f"built again in {took:.0f} s: files {first.tree[:24]} and {second.tree[:24]}")
    assert second.base != first.base
    assert second.packages == first.packages
    files = [(found.base.parent / "files.txt").read_text().splitlines() for found in (first, second)]
    assert sorted(set(files[0]) ^ set(files[1])) == []
    assert second.tree == first.tree
    assert second.squashfs.read_bytes() == first.squashfs.read_bytes()
