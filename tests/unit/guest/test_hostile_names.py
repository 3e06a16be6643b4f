# SPDX-License-Identifier: GPL-2.0-only
"""Does any text stay in its place: in QEMU's options, a guest's script, the parameters of kernel and modules?"""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_texts import hostile_texts
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.catalog.cpus import cpu
from orchestrator.errors import GuestError, UsageError
from orchestrator.guest.channel import CommandOutput, check_command
from orchestrator.guest.confinement import Confinement
from orchestrator.guest.machine import CountingPlugin, DataDisk, Lan, Machine, RootImage
from orchestrator.guest.marked_output import MarkedCommand
from orchestrator.guest.qemu_command import MemoryFile, Wiring, kernel_command_line, qemu_command
from orchestrator.paths import data_dir
from orchestrator.probes.loading import insmod_word

PLAIN = "plain"
KERNEL_SPACES = bytes([9, 10, 11, 12, 13, 32, 160])
"""What the kernel's isspace() takes for one (lib/ctype.c)."""

names = hostile_texts.map(lambda text: re.sub(r"[\0/]", "_", text)).filter(lambda name: name not in ("", ".", ".."))


def command(name: str) -> list[str]:
    """The command line of a guest that has everything, each thing under one name."""
    path = Path("/x", name)
    machine = Machine(
        cpu("pentium4"),
        path,
        path,
        root=RootImage(name, "key", path, "qcow2"),
        data=(DataDisk("data", path),),
        disk_drivers=path,
        channel="ssh",
        lan=Lan(5, 1),
        counter=CountingPlugin(path),
    )
    saved = MemoryFile(str(path), is_saved=True)
    wiring = Wiring(3, 4, path, str(path), path, path, saved, confinement=Confinement())
    return qemu_command(machine, wiring)


def fields(word: str) -> list[str]:
    """A comma-separated option as QEMU splits it (get_opt_value() of util/qemu-option.c): two commas are one."""
    return [part.replace("\0", ",") for part in word.replace(",,", "\0").split(",")]


@given(names)
@example("a,id=monitor")
@example("a,,b,share=on")
@example(",")
def test_a_path_is_one_value_of_qemu_s(name: str) -> None:
    plain, hostile = command(PLAIN), command(name)
    assert len(plain) == len(hostile)
    counts = str(Path("/x", name).with_suffix(".counts"))  # beside the console's log

    def renamed(part: str) -> str:
        return f"out={counts}" if part.startswith("out=") else part.replace(f"/x/{PLAIN}", f"/x/{name}")

    places = 0
    for expected, word in zip(plain, hostile, strict=True):
        if expected.startswith("/"):  # not split by QEMU
            assert word == renamed(expected)
        else:
            assert fields(word) == [renamed(part) for part in fields(expected)]
        places += f"/x/{PLAIN}" in expected
    assert places == 7


@given(st.lists(hostile_texts, min_size=1, max_size=3))
def test_a_kernel_parameter_is_one_or_refused(parameters: list[str]) -> None:
    machine = Machine(cpu("pentium4"), Path("/k"), Path("/i"))
    usual = kernel_command_line(machine)
    try:
        line = kernel_command_line(replace(machine, extra_parameters=tuple(parameters)))
    except UsageError:
        return
    words = [word.encode() for word in [*usual.split(" "), *parameters]]
    assert re.split(rb"[%b]" % KERNEL_SPACES, line.encode()) == words


def next_arg(line: bytes) -> tuple[bytes, bytes, bytes]:
    """A parameter's name and value, and what is behind it, as next_arg() of lib/cmdline.c finds them."""
    end, quoted = 0, line.startswith(b'"')
    start = int(quoted)
    for end in range(len(line) + 1):
        if end == len(line) or (line[end] in KERNEL_SPACES and not quoted):
            break
        quoted ^= line[end : end + 1] == b'"' and end >= start
    name, _, value = line[start:end].partition(b"=")
    if value.startswith(b'"'):
        value = value[1:].removesuffix(b'"')
    return name, value, line[end + 1 :]


@given(hostile_texts)
@example("à")
@example("aàb=1")
@example("\u00a0init=/bin/sh")
def test_a_module_s_parameter_is_one_or_refused(value: str) -> None:
    try:
        word = insmod_word("name", value)
    except UsageError:
        return
    assert next_arg(word.encode() + b" last=1") == (b"name", value.encode(), b"last=1")


@pytest.mark.parametrize("name", ["", "a b", "a=b", "a.b", "a\nb", "ä", '"', "-"])
def test_a_module_s_parameter_has_a_plain_name(name: str) -> None:
    with pytest.raises(UsageError, match="a module parameter's name"):
        insmod_word(name, "1")


@given(st.lists(hostile_texts, min_size=1, max_size=4))
def test_a_command_s_words_reach_a_guest_s_shell_as_they_are(words: list[str]) -> None:
    argv = ["printf", "%s\\0", *words]
    try:
        check_command(argv)
    except GuestError:
        assert any("\0" in word for word in words)
        return
    script = MarkedCommand(argv, CommandOutput()).script
    words_alone = script.removesuffix((data_dir("images") / "guest/run-command.sh").read_bytes())
    assert len(words_alone) < len(script)
    shown = subprocess.run(["sh"], input=words_alone + b'printf "%s\\0" "$@"', capture_output=True, check=True)
    received = shown.stdout.split(b"\0")[:-1]
    assert received[2:] == [word.encode() for word in argv]
