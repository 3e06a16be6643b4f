# SPDX-License-Identifier: GPL-2.0-only
"""Is a QEMU that cannot be used told as the host's, with its own words, and which one is needed?

Small programs stand for the QEMUs that no host should have.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.arch import QEMU
from orchestrator.catalog.cpus import cpu
from orchestrator.errors import GuestError, GuestExit, HostError
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine, qemu_cpu_names, qemu_version

BROKEN = Path(__file__).parent / "broken_qemu"

Use = Callable[[str], None]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Put one of the programs in QEMU's place."""

    def forget() -> None:
        qemu_version.cache_clear()
        qemu_cpu_names.cache_clear()

    def use(name: str) -> None:
        (tmp_path / QEMU).symlink_to(BROKEN / f"{name}.sh")
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        forget()

    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    yield use
    forget()


def test_one_that_is_too_old_is_named_with_what_is_needed(use: Use) -> None:
    use("old")
    with pytest.raises(HostError, match=r"QEMU is too old: QEMU emulator version 6\.2\.0 \(Debian") as caught:
        qemu_version()
    assert "install QEMU 7.0 or newer" in caught.value.hint


@pytest.mark.parametrize("ask", [qemu_version, qemu_cpu_names])
def test_one_that_dies_at_once(use: Use, ask: Callable[[], object]) -> None:
    use("dead")
    with pytest.raises(HostError, match=r"QEMU does not .*\(status 139\)") as caught:
        ask()
    assert "undefined symbol: spice_server_new" in caught.value.detail
    assert "install QEMU 7.0 or newer" in caught.value.hint


def fail_to_boot(tmp_path: Path) -> GuestError | HostError:
    machine = Machine(cpu("pentium4"), tmp_path / "kernel", tmp_path / "initramfs")
    with pytest.raises((GuestError, HostError)) as caught:
        Guest(machine, tmp_path).boot()
    error = caught.value
    assert isinstance(error, GuestError | HostError)
    return error


@pytest.mark.parametrize(
    ("name", "how", "words", "hint"),
    [
        ("crashing", "signal 11", "an assertion failed", "needs a QEMU of 7.0 or newer"),
        ("refusing", "status 1", "qemu-system-x86_64: -sandbox: invalid option", "needs a QEMU of 7.0 or newer"),
        ("unconfined", "status 1", "-sandbox support is not enabled in this QEMU binary", "--enable-seccomp"),
        ("starved", "status 1", "allocate 1073741824 bytes for jit buffer: Cannot allocate memory", "ulimit -v"),
    ],
)
def test_one_that_makes_no_machine_is_the_hosts(
    use: Use, tmp_path: Path, name: str, how: str, words: str, hint: str
) -> None:
    use(name)
    error = fail_to_boot(tmp_path)
    assert isinstance(error, HostError)
    assert error.what == (
        f"QEMU ended ({how}) before it had made the guest's machine; the host has QEMU emulator version 7.2.0"
    )
    assert error.detail[0].startswith(f"$ {QEMU} -machine ")
    assert words in error.detail[1]
    assert hint in error.hint


def test_one_that_is_killed_is_not_the_hosts(use: Use, tmp_path: Path) -> None:
    use("killed")
    error = fail_to_boot(tmp_path)
    assert isinstance(error, GuestExit)
    assert error.status == -9
