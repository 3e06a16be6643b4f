# SPDX-License-Identifier: GPL-2.0-only
"""Does a kept guest go on as what it was when its test failed, and is any other file refused?"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pexpect
import pytest
from command_line import CommandLine, qemus_in
from elsewhere import ELSEWHERE
from ended_terminals import exit_status
from pseudo_terminals import PSEUDO_TERMINALS

from orchestrator.artifacts.kept_guests import keep_guest, kept_guest
from orchestrator.errors import GuestError, HostError, UsageError
from orchestrator.guest.guest import Guest, State
from orchestrator.guest.saving_and_restoring import reopen_guest
from orchestrator.library.tested_guest import TestedGuest
from orchestrator.pytest_plugin.guest_factory import GuestFactory

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="tcg", memory="128M")

_CAPABILITY_VERSION_3 = 0x20080522
_CAP_SYS_PTRACE = 19
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def reopened(file: Path, folder: Path) -> tuple[bytes, bytes]:
    """The boot's identity and what a test left, in a guest that goes on from a file."""
    folder.mkdir(mode=0o700)
    with kept_guest(file, folder) as (machine, saved):
        guest = Guest(machine, folder)
        reopen_guest(guest, saved)
        with guest:
            return guest.get(_BOOT_ID), guest.get("/root/left")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a test keeps its guest."""
    return tmp_path / "kept.guest"


ON_CLOCK = [
    pytest.param("instructions", marks=pytest.mark.guest(timing="instructions")),
    pytest.param("tcg", marks=[pytest.mark.guest(timing="tcg"), ELSEWHERE]),
]


@pytest.mark.parametrize("timing", ON_CLOCK)
@pytest.mark.usefixtures("timing")
def test_a_restored_guest_goes_on_twice(guest: TestedGuest, file: Path, tmp_path: Path) -> None:
    assert guest.restored_from is not None
    guest.put(b"in memory", "/root/left")
    boot = guest.get(_BOOT_ID)
    keep_guest(guest, file)
    assert guest.state is State.GONE
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.glob(".kept-*")) == []
    for name in ("once", "twice"):
        assert reopened(file, tmp_path / name) == (boot, b"in memory")
    with pytest.raises(GuestError, match="a guest that has ended cannot be kept"):
        keep_guest(guest, file)


@pytest.mark.nightly("a guest that is booted; restored ones go on every day")
def test_a_booted_guest_of_a_network_goes_on(guest_factory: GuestFactory, file: Path, tmp_path: Path) -> None:
    guest = guest_factory()
    guest.put(b"on a network", "/root/left")
    boot = guest.get(_BOOT_ID)
    keep_guest(guest, file)
    guest_factory.close()
    assert reopened(file, tmp_path / "kept") == (boot, b"on a network")


@pytest.fixture
def containers_rights() -> Iterator[None]:
    """A thread without CAP_SYS_PTRACE, as root of a container is by default: QEMU's descriptors are not to be seen."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    before = ctypes.create_string_buffer(24)
    assert libc.capget(header, before) == 0
    effective, *rest = struct.unpack("6I", before.raw)
    assert libc.capset(header, struct.pack("6I", effective & ~(1 << _CAP_SYS_PTRACE), *rest)) == 0
    yield
    assert libc.capset(header, before) == 0


@pytest.mark.guest(image="debian-i386", channel="ssh", memory="256M")
@pytest.mark.usefixtures("containers_rights")
def test_a_guest_of_an_image_goes_on_with_its_disk(guest: TestedGuest, file: Path, tmp_path: Path) -> None:
    guest.put(b"on disk", "/root/left")
    guest.succeed(["sh", "-c", "sync; echo 3 >/proc/sys/vm/drop_caches"])
    boot = guest.get(_BOOT_ID)
    keep_guest(guest, file)
    assert reopened(file, tmp_path / "kept") == (boot, b"on disk")


def test_another_file_is_refused(
    guest: TestedGuest, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_guest(guest, file)
    file.chmod(0o640)
    with pytest.raises(UsageError, match="must be the user's own, with mode 0600"):
        reopened(file, tmp_path / "readable")
    file.chmod(0o600)
    with monkeypatch.context() as patched:
        patched.setattr("orchestrator.artifacts.kept_guests.key_inputs", lambda machine: "another QEMU")
        with pytest.raises(HostError, match="is not what it was when the guest was kept"):
            reopened(file, tmp_path / "changed")
    file.write_bytes(file.read_bytes()[:100_000])
    with pytest.raises(UsageError, match="not a guest that a test has kept"):
        reopened(file, tmp_path / "short")
    done = CommandLine(tmp_path).refused("shell", "--saved", tmp_path / "nowhere")
    assert "a shell needs a terminal" in done.stderr


@PSEUDO_TERMINALS
def test_a_failed_tests_guest_is_kept_and_a_shell_goes_on_with_it(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="tcg", memory="128M")

        def test_right(guest): pass
        def test_wrong(shared_guest):
            shared_guest.put(b"what it left", "/root/left")
            assert False
        """
    )
    result = pytester.runpytest_inprocess("--qemu", "--qemu-keep", "--junitxml=report.xml")
    result.assert_outcomes(passed=1, failed=1)
    (state,) = (
        str(element.get("value"))
        for element in ElementTree.parse(pytester.path / "report.xml").iter("property")
        if element.get("name") == "qemu_state"
    )
    result.stdout.fnmatch_lines([f"*::test_wrong: orchestrator shell --saved {state}"])
    program = "from orchestrator.cli.main import main; main()"
    person = pexpect.spawn(sys.executable, ["-P", "-c", program, "shell", "--saved", state], timeout=600)
    person.expect_exact("pentium4:/ # ")
    person.sendline("cat /root/left")
    person.expect_exact("what it left")
    person.sendline("exit")
    person.expect_exact("the guest has ended")
    assert exit_status(person) == 0
    assert qemus_in(pytester.path) == []
    wrong = pexpect.spawn(sys.executable, ["-P", "-c", program, "shell", "--saved", state, "--smp", "2"], timeout=600)
    wrong.expect_exact("--saved restores the machine as it was saved")
    assert exit_status(wrong) == 2
