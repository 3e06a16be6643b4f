# SPDX-License-Identifier: GPL-2.0-only
"""What of its host does a QEMU get by its options, limits and environment, on each host?"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from orchestrator.errors import HostError
from orchestrator.guest import machine
from orchestrator.guest.machine import USERS, Confinement, confinement_here, environment

GIB = 1 << 30
FULL = "000001ffffffffff"


@pytest.fixture
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A QEMU that prints this version."""
    monkeypatch.setattr(machine, "qemu_version", lambda: request.param)


@pytest.mark.parametrize(
    ("version", "drop"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", ("-runas", "60800:60800")),
        ("QEMU emulator version 9.0.2", ("-runas", "60800:60800")),
        ("QEMU emulator version 9.1.0", ("-run-with", "user=60800:60800")),
        ("QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)", ("-run-with", "user=60800:60800")),
    ],
    indirect=["version"],
)
@pytest.mark.usefixtures("version")
def test_root_s_qemu_becomes_another_user_as_its_version_can(drop: tuple[str, str]) -> None:
    sandbox = "on,obsolete=deny,elevateprivileges=allow,spawn=deny,resourcecontrol=deny"
    assert Confinement(60800).options() == ("-sandbox", sandbox, *drop)


@pytest.mark.parametrize("version", ["QEMU"], indirect=True)
@pytest.mark.usefixtures("version")
def test_a_qemu_without_a_version_is_the_host_s_fault() -> None:
    with pytest.raises(HostError, match="QEMU prints no version"):
        Confinement(60800).options()


def test_an_ordinary_user_s_qemu_can_become_nobody_else() -> None:
    sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
    assert Confinement().options() == ("-sandbox", sandbox)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /proc/self, of root with all rights."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine, "_SELF", tmp_path)
    (tmp_path / "status").write_text(f"Name:\tpython\nCapPrm:\t{FULL}\nCapEff:\t{FULL}\nCapBnd:\t{FULL}\n")
    for name in ("uid_map", "gid_map"):
        (tmp_path / name).write_text("         0          0 4294967295\n")
    return tmp_path


@pytest.mark.usefixtures("host")
def test_root_gives_each_qemu_a_user_that_nobody_has() -> None:
    users = {confinement_here().user for _ in range(100)}
    assert len(users) > 10
    assert users <= set(USERS)


def test_an_ordinary_user_changes_nothing(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (host / "status").exists()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert confinement_here() == Confinement(None)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("uid_map", "0 1000 1\n"),  # unshare --map-root-user
        ("gid_map", "0 1000 1\n"),
        ("uid_map", "0 100000 1000\n1000 1000 1\n"),
        ("uid_map", "0 1000 1\n1 100000 60000\n"),
        ("status", "CapPrm:\t0\nCapEff:\t00000000000000bf\nCapBnd:\t0\n"),  # without CAP_SETGID
        ("status", "CapPrm:\t0\nCapEff:\t00000000000000df\nCapBnd:\t0\n"),  # without CAP_KILL
        ("status", "CapPrm:\t0\nCapEff:\t0000000000000000\nCapBnd:\t0\n"),
    ],
)
def test_root_of_a_container_stays_who_he_is_where_he_can_become_nobody(host: Path, name: str, content: str) -> None:
    before = (host / name).read_text()
    assert confinement_here().user in USERS
    (host / name).write_text(f"Name:\tx\n{content}" if name == "status" else content)
    assert confinement_here() == Confinement(None)
    (host / name).write_text(before)


def test_root_of_a_container_with_all_users_becomes_one(host: Path) -> None:
    for name in ("uid_map", "gid_map"):
        (host / name).write_text("0 1000 1\n1 100000 65535\n")
    assert confinement_here().user in USERS


def users_limits(monkeypatch: pytest.MonkeyPatch, soft: dict[int, int]) -> None:
    infinite = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (soft.get(limit, infinite), infinite))


def test_limits_follow_the_guest_s_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    users_limits(monkeypatch, {})
    always = {"core": 0, "nofile": 256, "stack": 8 << 20}
    assert Confinement().limits(256) == {**always, "data": GIB // 4 + 3 * GIB}
    assert Confinement(60800).limits(4096) == {**always, "data": 7 * GIB, "nproc": 256}


def test_no_limit_is_above_the_user_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    users_limits(monkeypatch, {resource.RLIMIT_NOFILE: 100, resource.RLIMIT_DATA: GIB, resource.RLIMIT_STACK: 1 << 30})
    assert Confinement(60800).limits(256) == {"core": 0, "data": GIB, "nofile": 100, "stack": 8 << 20, "nproc": 256}


def test_the_environment_is_what_finds_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QEMU_MODULE_DIR", "/mine")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent")
    monkeypatch.setenv("PASSWORD", "secret")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setenv("PATH", "/one:/two")
    assert environment() == {"PATH": "/one:/two", "QEMU_MODULE_DIR": "/mine"}


def test_a_relative_folder_of_the_environment_stays_the_same_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """QEMU runs in another folder: with PATH=build:$PATH one QEMU was examined, and the guest ran in another."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "build::/usr/bin")
    monkeypatch.setenv("LD_LIBRARY_PATH", "")  # which the loader ignores, and no folder at all
    monkeypatch.setenv("QEMU_MODULE_DIR", "../a:b")
    assert environment() == {
        "PATH": f"{tmp_path}/build:{tmp_path}:/usr/bin",
        "QEMU_MODULE_DIR": f"{tmp_path.parent}/a:b",
    }
