# SPDX-License-Identifier: GPL-2.0-only
"""Is a guest with an image a Debian of its own, started from a base that stays as it is, with data it can only read?"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine, qemus_in
from elsewhere import ELSEWHERE
from other_users import TRACED

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.disk_images import ready_image
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.image_recipes import image
from orchestrator.errors import GuestExit, UsageError
from orchestrator.experiment.guest_spec import guest_spec
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import ChannelKind, Machine
from orchestrator.paths import data_dir
from orchestrator.run.guest_start import start_guest
from orchestrator.run.machines import machine_for

pytestmark = pytest.mark.qemu

IMAGE = "debian-i386"
IN_IMAGE = pytest.mark.guest(kernel="lab-i386-up", image=IMAGE, timing="tcg")


def machine(context: BuildContext, **arguments: object) -> Machine:
    spec = guest_spec({"kernel": "lab-i386-up", "timing": "tcg", **arguments})
    return machine_for(context, ready_kernel(context, spec.kernel_spec), spec)


@IN_IMAGE
def test_it_is_a_debian_with_the_lab_s_programs_behind_its_own(shared_guest: Guest) -> None:
    assert shared_guest.get("/etc/debian_version").startswith(b"12.")
    found = shared_guest.succeed(["sh", "-c", "command -v ls; command -v gtodbench"]).text
    assert found == "/bin/ls\n/run/orchestrator/bin/gtodbench\n"
    assert shared_guest.succeed(["readlink", "-f", "/bin/sh"]).text == "/usr/bin/dash\n"
    assert shared_guest.succeed(["dpkg", "--print-architecture"]).text == "i386\n"
    assert "sample 0 calls=100 " in shared_guest.succeed(["gtodbench", "-n", "100"]).text
    mounts = shared_guest.get("/proc/mounts").decode()
    assert "/dev/vda / ext4 rw," in mounts
    shared_guest.check_console()


@pytest.mark.nightly("boots two guests; two restored ones are compared every day")
def test_two_guests_of_one_base_have_their_own_disk_and_identity(workshop: BuildContext, tmp_path: Path) -> None:
    base = ready_image(workshop, image(IMAGE)).base
    before = hashlib.sha256(base.read_bytes()).digest()
    wanted_machine = machine(workshop, image=IMAGE, channel="ssh")
    with Guest(wanted_machine, tmp_path, "one") as one, Guest(wanted_machine, tmp_path, "other") as other_guest:
        for guest, name in ((one, "one"), (other_guest, "other")):
            guest.put(name.encode() * 1000, "/root/mine")
            guest.succeed(["sync"])
        assert (one.get("/root/mine"), other_guest.get("/root/mine")) == (b"one" * 1000, b"other" * 1000)
        for file in ("/etc/hostname", "/etc/machine-id", "/run/orchestrator/identity/host_key", "/root/mine"):
            assert one.get(file) != other_guest.get(file)
        assert one.succeed(["hostname"]).text == "one\n"
        random = ["head", "-c", "16", "/dev/urandom"]
        assert one.succeed(random).stdout != other_guest.succeed(random).stdout
        # Neither keys nor disks are left in the folder, whatever ends us now.
        assert {file.suffix for file in tmp_path.iterdir()} == {".console", ".qemu", ".log"}
    assert hashlib.sha256(base.read_bytes()).digest() == before
    assert base.stat().st_mode & 0o222 == 0


@TRACED
@pytest.mark.guest(kernel="lab-i386-up", image=IMAGE, timing="tcg", channel="ssh")
def test_the_guests_sshd_is_reached_from_the_hosts_loopback_only_and_reaches_nothing(shared_guest: Guest) -> None:
    guest = shared_guest
    assert guest.pid is not None
    listening = subprocess.run(["ss", "-Hltnp"], check=True, capture_output=True, text=True).stdout
    ours = [line.split()[3] for line in listening.splitlines() if f"pid={guest.pid}," in line]
    assert [address.rpartition(":")[0] for address in ours] == ["127.0.0.1"]
    # The address by which a guest of QEMU's would find its host, where somebody does listen.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(1)
        probe = f"exec 3<>/dev/tcp/10.0.2.2/{listener.getsockname()[1]}"
        assert guest.run(["timeout", "3", "bash", "-c", probe]).status != 0
        with pytest.raises(TimeoutError):
            listener.accept()
    assert guest.run(["sshd", "-T"]).status == 0
    effective = guest.succeed(["sh", "-c", "$(command -v sshd) -T"]).text.splitlines()
    assert {"passwordauthentication no", "kbdinteractiveauthentication no", "usepam no"} <= set(effective)


@pytest.mark.parametrize("name", ["lab-i386-up", pytest.param("debian-686", marks=ELSEWHERE)])
def test_data_travels_on_a_disk_that_is_only_read(workshop: BuildContext, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "my.data"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_bytes(bytes(range(256)) * 1000)
    (folder / "program").write_text("#!/bin/sh\necho ran\n")
    (folder / "program").chmod(0o755)
    data = (folder, data_dir("configs"))
    with Guest(machine(workshop, data=data, kernel=name), tmp_path) as guest:
        assert guest.get("/data/my.data/deep/file") == bytes(range(256)) * 1000
        assert guest.succeed(["/data/my.data/program"]).text == "ran\n"
        assert guest.get("/data/configs/quickstart.yaml") == (data_dir("configs") / "quickstart.yaml").read_bytes()
        assert guest.run(["touch", "/data/my.data/x"]).status != 0


@pytest.mark.skipif(not Path("/usr/sbin/depmod").exists(), reason="needs what images/module-packages.txt lists")
@pytest.mark.parametrize("image", [pytest.param(None, marks=ELSEWHERE), IMAGE])
def test_modprobe_finds_the_kernel_s_own_modules(workshop: BuildContext, tmp_path: Path, image: str | None) -> None:
    """Busybox's modprobe in the initramfs, Debian's in an image, whose disk Debian's own kernel finds."""
    own_machine = machine(workshop, image=image, kernel_modules=True, kernel="debian-686")
    with start_guest(workshop, Guest(own_machine, tmp_path)) as guest:
        assert "-686 " in guest.succeed(["uname", "-a"]).text
        if image is not None:
            assert guest.get("/etc/debian_version").startswith(b"12.")
        guest.succeed(["modprobe", "vfat"])
        loaded = {line.split()[0] for line in guest.get("/proc/modules").decode().splitlines()}
        assert {"vfat", "fat"} <= loaded
        assert guest.run(["modprobe", "no_such_module"]).status != 0
        # The kernel asks modprobe for a file system that it does not know.
        assert "minix" not in guest.get("/proc/filesystems").decode()
        guest.run(["mount", "-t", "minix", "none", "/tmp"])
        assert "minix" in guest.get("/proc/filesystems").decode()
        release = guest.succeed(["uname", "-r"]).text.strip()
        assert guest.run(["touch", f"/lib/modules/{release}/x"]).status != 0
        guest.check_console()


@pytest.mark.kernels("lab-x86_64-smp")
def test_a_64_bit_image_takes_a_64_bit_kernel(workshop: BuildContext, tmp_path: Path) -> None:
    with Guest(machine(workshop, image="debian-amd64", channel="ssh", kernel="lab-x86_64-smp"), tmp_path) as guest:
        assert guest.succeed(["uname", "-m"]).text == "x86_64\n"
        assert guest.succeed(["dpkg", "--print-architecture"]).text == "amd64\n"


# --- disks of one's own ---------------------------------------------------------------------------


@pytest.fixture
def user_disk(workshop: BuildContext, tmp_path: Path) -> Path:
    disk = tmp_path / "mine.qcow2"
    shutil.copyfile(ready_image(workshop, image(IMAGE)).base, disk)
    return disk


def test_a_disk_of_one_s_own_is_started_from_and_not_written_to(
    workshop: BuildContext, tmp_path: Path, user_disk: Path
) -> None:
    before = user_disk.read_bytes()
    with Guest(machine(workshop, image=str(user_disk)), tmp_path) as guest:
        guest.succeed(["sh", "-c", "echo changed >/etc/motd; sync"])
        assert guest.get("/etc/motd") == b"changed\n"
    assert user_disk.read_bytes() == before


def test_a_disk_without_a_system_is_an_error(workshop: BuildContext, tmp_path: Path) -> None:
    disk = tmp_path / "empty.img"
    disk.write_bytes(bytes(0x1FE) + b"\x55\xaa")  # a table of no partitions
    os.truncate(disk, 16 << 20)
    guest = Guest(machine(workshop, image=str(disk)), tmp_path)
    with pytest.raises(GuestExit) as ended:
        guest.boot()
    assert any("no ext4 file system on the image's disk holds a system" in line for line in ended.value.detail)
    assert not list(tmp_path.glob("*.overlay"))
    assert not qemus_in(tmp_path)


def test_what_cannot_be_is_refused_before_anything_is_built(workshop: BuildContext, user_disk: Path) -> None:
    for arguments, sentence in (
        ({"image": "debian-amd64"}, "image 'debian-amd64' is for x86_64, and kernel 'lab-i386-up' is for"),
        ({"image": "debian-i386-systemd"}, "does not support systemd: it lacks CONFIG_CGROUPS"),
        ({"kernel_modules": True}, "'lab-i386-up' has no modules: everything is built"),
        ({"channel": "ssh"}, "channel 'ssh' needs an image"),
        ({"image": str(user_disk), "channel": "ssh"}, "the lab does not know the SSH host key"),
        ({"data": (Path("/etc"), Path("/usr/etc"))}, "two data folders are called etc"),
    ):
        with pytest.raises(UsageError, match=sentence):
            machine(workshop, **arguments)


# --- experiments ----------------------------------------------------------------------------------


SLOWEST = pytest.param("serial", marks=pytest.mark.nightly("moves the modules over a serial console: half a minute"))


@pytest.mark.parametrize("channel", ["framed", pytest.param("ssh", marks=ELSEWHERE), SLOWEST])
def test_the_same_exact_values_over_each_channel(tmp_path: Path, channel: ChannelKind) -> None:
    """Those of a guest without an image, as ``test_profile.py`` has them."""
    file = tmp_path / "gtod.yaml"
    file.write_text(
        "name: gtod\nkernels: [lab-i386-up]\nmachines: [{cpu: pentium4}]\nprobes: [none, jprobe]\n"
        f"image: {IMAGE}\nchannel: {channel}\nbenchmark: {{name: gtodbench, calls: 100, repeats: 2}}\n"
    )
    command = CommandLine(tmp_path)
    run = command.refused("run", file)
    assert run.returncode == 0, run.stdout + run.stderr
    assert {probe: set(cell.samples) for probe, cell in command.cells().items()} == {"none": {360}, "jprobe": {1661}}
    printed = run.stdout
    assert f"image {IMAGE}" in printed
    assert (f"channel {channel}" in " ".join(printed.split())) == (channel != "framed")
    provenance = json.loads(next((tmp_path / "runs").glob("*/provenance.json")).read_text())
    (boot,) = provenance["boots"]
    assert boot["image"]["name"] == IMAGE
    assert boot["image"]["packages"]["openssh-server"].startswith("1:9")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["image=debian-i368"], "did you mean 'debian-i386'?"),
        (["image=debian-amd64"], "is for x86_64, and kernel 'lab-i386-up' is for i386"),
        (["channel=ssh"], "channel 'ssh' needs an image"),
        ([f"image={IMAGE}", "channel=telnet"], "allowed: framed, ssh, serial"),
        (["image=./none.qcow2"], "this file does not exist"),
        ([f"image={IMAGE}", "benchmark.name=kpcache", "probes=[none]", "benchmark.calls=5000"], "leave it out"),
    ],
)
def test_a_wrong_image_or_channel_is_refused_and_nothing_is_run(
    tmp_path: Path, settings: list[str], problem: str
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "name: wrong\nkernels: [lab-i386-up]\nmachines: [{cpu: pentium4}]\nprobes: [none]\n"
        "benchmark: {name: gtodbench}\n"
    )
    command = CommandLine(tmp_path / "lab")
    run = command.refused("run", file, *(word for setting in settings for word in ("--set", setting)))
    assert run.returncode == 2
    assert problem in " ".join(run.stderr.split())
    assert not (tmp_path / "lab" / "runs").exists()
