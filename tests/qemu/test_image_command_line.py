# SPDX-License-Identifier: GPL-2.0-only
"""Does a person who names an image, a channel or data get what was asked for, and is nothing left behind?"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import PATIENCE, CommandLine, qemus_by_pid
from elsewhere import ELSEWHERE
from needed_images import needed_image
from test_shell import shell

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.disk_images import ready_image
from orchestrator.catalog.image_recipes import image

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

IMAGE = "debian-i386"
SYSTEMD = "debian-i386-systemd"
QUICK = ("--kernel", "lab-i386-up", "--accel", "tcg")


@pytest.fixture
def command(tmp_path: Path, workshop: BuildContext) -> CommandLine:
    ready_image(workshop, image(IMAGE))
    return CommandLine(tmp_path / "lab")


def test_the_command_line_of_a_guest_with_an_image_is_shown(command: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        f"{{name: x, image: {IMAGE}, kernels: [lab-i386-up], machines: [{{cpu: pentium4}}], probes: [none], "
        "benchmark: {name: gtodbench}}\n"
    )
    done = command.run("run", file, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "(the guest" in done.stdout


@ELSEWHERE
@pytest.mark.parametrize("channel", ["ssh", "serial"])
def test_an_oops_fails_a_command_over_every_channel(command: CommandLine, late_oops: Path, channel: str) -> None:
    logs = command.lab / "logs"
    done = command.run(
        *("exec", *QUICK, "--image", IMAGE, "--channel", channel, "--module", late_oops, "--console", logs),
        *("--", "sh", "-c", "sleep 1; echo hello"),
    )
    assert (done.returncode, done.stdout) == (1, "hello\n")
    assert "guest.console: the guest's kernel reported trouble (" in done.stderr


@pytest.mark.parametrize(
    "channel", [pytest.param("framed", marks=ELSEWHERE), "ssh", pytest.param("serial", marks=ELSEWHERE)]
)
def test_a_command_runs_in_an_image_with_data(command: CommandLine, tmp_path: Path, channel: str) -> None:
    folder = tmp_path / "tool"
    folder.mkdir()
    (folder / "run.sh").write_text('. /etc/os-release; echo "$ID $(hostname) $(id -un)"; echo no >&2; exit 7\n')
    done = command.run(
        *("exec", *QUICK, "--image", IMAGE, "--channel", channel, "--data", folder), *("--", "sh", "/data/tool/run.sh")
    )
    assert (done.returncode, done.stdout) == (7, "debian guest root\n")
    assert done.stderr.endswith("no\n")


def test_the_lab_s_sudden_death_leaves_neither_guest_nor_keys(command: CommandLine, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    arguments = ("exec", *QUICK, "--image", IMAGE, "--channel", "ssh", "--console", logs)
    running = command.start(*arguments, "--", "sh", "-c", "echo begun; sleep 1000", stderr=subprocess.DEVNULL)
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    assert len(CommandLine(logs).qemus()) == 1
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert CommandLine(logs).qemus_after() == []
    assert {file.name for file in logs.iterdir()} == {"guest.console", "guest.qemu", "lab.log"}


@pytest.mark.nightly("three guests; test_saved_guests.py has two with disks of their own every day")
def test_two_at_once_in_one_folder_do_not_disturb_each_other(command: CommandLine, tmp_path: Path) -> None:
    arguments = ("exec", *QUICK, "--image", IMAGE, "--console", tmp_path / "logs")
    work = ("sh", "-c", "echo mine >/mine; sync; echo begun; sleep 2; cat /mine; dpkg -l | tail -n 1")
    first = command.start(*arguments, "--", *work, stderr=subprocess.DEVNULL)
    assert first.stdout is not None
    assert first.stdout.readline() == "begun\n"
    # The first guest stands still meanwhile, however long that takes.
    (qemu,) = qemus_by_pid(tmp_path / "logs")
    os.kill(qemu, signal.SIGSTOP)
    try:
        second = command.run(*arguments, "--", "sh", "-c", "test ! -e /mine && rm -r /var/lib/dpkg && sync")
    finally:
        os.kill(qemu, signal.SIGCONT)
    assert second.returncode == 0
    printed, _ = first.communicate(timeout=PATIENCE)
    assert first.returncode == 0
    assert printed.startswith("mine\nii  zlib1g")


@pytest.mark.nightly("a shell on a console is tried every day without an image")
def test_a_shell_in_an_image(tmp_path: Path, workshop: BuildContext) -> None:
    ready_image(workshop, image(IMAGE))
    with shell(tmp_path, "--image", IMAGE) as person:
        person.expect(r"[#$] ")
        person.sendline("cat /etc/debian_version; command -v dpkg; tty")
        person.expect(r"12\.[0-9]+\r\n/\S*bin/dpkg\r\n/dev/ttyS0\r\n")
        person.sendline("exit")
        person.expect_exact("the guest has ended")


@pytest.mark.parametrize("channel", ["framed", pytest.param("serial", marks=ELSEWHERE)])
def test_systemd_is_ready_when_the_guest_is(request: pytest.FixtureRequest, command: CommandLine, channel: str) -> None:
    needed_image(request.config, SYSTEMD)
    options = ("--image", SYSTEMD, "--memory", "512", "--channel", channel)
    done = command.run("exec", *options, "--", "systemctl", "is-system-running")
    assert (done.returncode, done.stdout) == (0, "running\n"), done.stderr
