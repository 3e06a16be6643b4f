# SPDX-License-Identifier: GPL-2.0-only
"""Has a guest's QEMU nothing of its host but what docs/faults.md says, whoever starts it, booted and restored?"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from elsewhere import ELSEWHERE
from other_users import TRACED, as_ordinary_user, is_readable_to_all

import orchestrator
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernels
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.confinement import USERS, confinement_here
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_files import SharedMemory
from orchestrator.guest.saved_state import SavedGuest
from orchestrator.guest.saving_and_restoring import restore_guest, save_guest
from orchestrator.guest.trap_counter import counted_interrupts
from orchestrator.pytest_plugin.guest_factory import GuestFactory
from orchestrator.run.machines import machine_for

KERNEL = "lab-i386-up"
ON_AGENT = pytest.mark.guest(kernel=KERNEL, cpu="pentium4", timing="tcg")
OVER_SSH = pytest.mark.guest(kernel=KERNEL, timing="tcg", image="debian-i386", channel="ssh")
ON_CONSOLE = pytest.mark.guest(kernel=KERNEL, timing="tcg", image="debian-i386", channel="serial")
READABLE = pytest.mark.skipif(
    not is_readable_to_all(Path(orchestrator.__file__).parent), reason="the lab's checkout is not everybody's"
)
AS_ROOT = pytest.mark.skipif(confinement_here().user is None, reason="only root can become any other user")

NEEDLESS = re.compile(
    "vga|cirrus|qxl|usb|[uoex]hci|audio|hda|sb16|ac97|es1370|parallel|^floppy$|^ide-[hc]d|^scsi-|e1000|rtl|ne2k|9p|vhost"
    "|vfio|ivshmem|tpm|balloon|rng"
)
"""Devices; the machine's own that have no switch are not among them: a floppy controller, an IDE controller."""

FRAMED = pytest.param([], marks=ON_AGENT, id="framed")
SSH = pytest.param(["127.0.0.1"], marks=OVER_SSH, id="ssh")
SERIAL = pytest.param([], marks=[ON_CONSOLE, ELSEWHERE], id="serial")


def status_of(task: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in (task / "status").read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}


def limits_of(process: Path) -> dict[str, tuple[str, str]]:
    """The soft and the hard limit of each resource."""
    lines = (process / "limits").read_text().splitlines()[1:]
    return {line[:26].strip(): (line[26:47].strip(), line[47:68].strip()) for line in lines}


def listeners_of(process: Path) -> Iterator[str]:
    """Where a process waits for connections or packets, of whatever family: an address, or the file in /proc/net."""
    sockets = {str(file.readlink()) for file in (process / "fd").iterdir()}
    for file in (process / "net").iterdir():
        if file.name not in {"tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp", "icmp6"}:
            continue
        for words in map(str.split, file.read_text().splitlines()[1:]):
            is_listening = not file.name.startswith("tcp") or words[3] == "0A"
            if f"socket:[{words[9]}]" in sockets and is_listening:
                is_loopback = file.name == "tcp" and words[1].startswith("0100007F:")
                yield "127.0.0.1" if is_loopback else f"{file.name} {words[1]}"
    for words in map(str.split, (process / "net" / "unix").read_text().splitlines()[1:]):
        if f"socket:[{words[6]}]" in sockets and (len(words) > 7 or int(words[3], 16) & 0x10000):  # SO_ACCEPTCON
            yield f"unix {words[7:]}"
    for words in map(str.split, (process / "net" / "packet").read_text().splitlines()[1:]):
        if f"socket:[{words[8]}]" in sockets:
            yield "packet"


def check_process(guest: Guest, user: int) -> None:
    """What is the same on every host, for each of QEMU's threads."""
    process = Path(f"/proc/{guest.pid}")
    tasks = [status_of(task) for task in (process / "task").iterdir()]
    assert len(tasks) > 1
    for task in tasks:
        assert set(task["Uid"].split()) == set(task["Gid"].split()) == {str(user)}
        assert {task[f"Cap{which}"] for which in ("Inh", "Prm", "Eff", "Amb")} == {"0000000000000000"}
        assert (task["NoNewPrivs"], task["Seccomp"], task["Umask"]) == ("1", "2", "0077")
        assert set(task["Groups"].split()) <= {str(user)}
    limits = limits_of(process)
    assert limits["Max core file size"] == ("0", "0")
    assert limits["Max open files"] == ("256", "256")
    assert limits["Max stack size"] == ("8388608", "8388608")
    memory = str((guest.machine.memory_mib << 20) + (3 << 30))
    assert limits["Max data size"] == (memory, memory)


def check_devices(guest: Guest) -> None:
    """What no guest needs, and QEMU would make of itself or could be made to have."""
    assert guest._qemu.monitor is not None
    ask = guest._qemu.monitor.human
    devices = re.findall(r"^ *dev: ([^,]+),", ask("info qtree"), re.MULTILINE)
    assert [name for name in devices if NEEDLESS.search(name)] == []
    own = int(guest.machine.root is not None)
    assert Counter(devices)["virtio-blk-pci-non-transitional"] == own
    assert len(re.findall(r"^[^\s:]+: ", ask("info block"), re.MULTILINE)) == own
    cards = re.findall(r"^ \S+ \w+: .*type=(\w+),", ask("info network"), re.MULTILINE)
    lan = ["dgram"] if guest.machine.lan is not None else []
    assert cards == (["user"] if guest.machine.channel == "ssh" else lan)
    assert set(re.findall(r"^(\w+): ", ask("info chardev"), re.MULTILINE)) == {"console", "monitor", "agent"}


def check_monitor(guest: Guest) -> None:
    """What QEMU writes into files of ours after it has become another user."""
    assert guest._qemu.monitor is not None
    assert len(guest.read_memory(0xC0100000, 4096)) == 4096
    with counted_interrupts(guest._qemu.monitor) as counted:
        guest.succeed(["true"])
    assert counted.total() > 0


@AS_ROOT
@TRACED
@pytest.mark.parametrize("listening", [FRAMED, SSH])
def test_root_s_qemu_is_nobody_s_when_it_is_restored(shared_guest: Guest, listening: list[str]) -> None:
    assert shared_guest.restored_from is not None
    check_root_s(shared_guest, listening)


@AS_ROOT
@TRACED
@pytest.mark.guest(fresh=True)
@pytest.mark.parametrize(
    "listening", [FRAMED, pytest.param(["127.0.0.1"], marks=[OVER_SSH, ELSEWHERE], id="ssh"), SERIAL]
)
def test_root_s_qemu_is_nobody_s_when_it_boots(guest: Guest, listening: list[str]) -> None:
    assert guest.restored_from is None
    check_root_s(guest, listening)


def check_root_s(guest: Guest, listening: list[str]) -> None:
    process = Path(f"/proc/{guest.pid}")
    user = int(status_of(process)["Uid"].split()[0])
    assert user in USERS
    check_process(guest, user)
    assert limits_of(process)["Max processes"] == ("256", "256")
    assert (process / "fd").stat().st_uid == 0  # not dumpable: others of its user cannot trace it
    assert (process / "cwd").readlink() == Path("/")
    names = {word.partition("=")[0] for word in (process / "environ").read_text().split("\0")}
    assert names - {""} <= {"PATH", "LD_LIBRARY_PATH", "QEMU_MODULE_DIR", "PWD", "OLDPWD", "SHLVL", "_"}
    assert list(listeners_of(process)) == listening
    check_devices(guest)
    check_monitor(guest)


@AS_ROOT
@TRACED
@ON_AGENT
@pytest.mark.nightly(
    "two guests more; those of a network differ by a card, and test_tested_guest.py has them every day"
)
def test_root_s_qemus_of_one_network_are_nobody_s(guest_factory: GuestFactory) -> None:
    first, second = guest_factory(), guest_factory()
    for guest in (first, second):
        check_root_s(guest, [])
    first.succeed(["ping", "-c", "1", str(second.address)])


@AS_ROOT
@READABLE
@ON_AGENT
@pytest.mark.guest(fresh=True)
def test_an_ordinary_user_s_qemu_is_his(workshop: BuildContext) -> None:
    """Its guests are saved and restored as root's are."""
    kernel = ready_kernel(workshop, kernels()[KERNEL])
    machine = machine_for(workshop, kernel, GuestSpec(cpu="pentium4", memory="128M", timing="tcg"))

    def check(folder: Path) -> None:
        saved = SavedGuest("mine", folder / "saved")
        saved.folder.mkdir(0o700)
        mine = replace(machine, kernel=folder / "kernel", initramfs=folder / "initramfs")
        os.chdir(folder)
        here = Path()  # QEMU itself is in another folder
        with SharedMemory(mine.memory_mib) as memory, Guest(mine, here, "first", memory=memory) as first:
            check_process(first, os.geteuid())
            assert list(listeners_of(Path(f"/proc/{first.pid}"))) == []
            check_monitor(first)
            save_guest(first, saved)
        second = Guest(mine, here, "second")
        try:
            restore_guest(second, saved)
            check_process(second, os.geteuid())
            check_monitor(second)
        finally:
            second.kill()

    in_folder_of_another(check, {"kernel": machine.kernel, "initramfs": machine.initramfs})


def in_folder_of_another(check: Callable[[Path], None], files: dict[str, Path]) -> None:
    """Call ``check`` as an ordinary user, in a folder that all can reach, which has copies of files."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, file in files.items():
            shutil.copyfile(file, folder / name)
        as_ordinary_user(folder, check)
