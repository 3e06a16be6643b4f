# SPDX-License-Identifier: GPL-2.0-only
"""Does QEMU's command line describe exactly the machine, one argument for each option?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.arch import QEMU
from orchestrator.catalog.cpus import cpu, cpu_caches, cpus
from orchestrator.guest.machine import (
    AGENT_PORT,
    CountingPlugin,
    Machine,
    Timing,
    Wiring,
    escape,
    kernel_command_line,
    qemu_command,
)

MACHINE = Machine(cpu("pentium4"), Path("/cache/my kernel,1"), Path("/cache/initramfs"))
WIRING = Wiring(7, 8, Path("/run/a, b/guest.console"))


def value(command: list[str], option: str) -> str:
    """The one value of an option that is given once."""
    assert command.count(option) == 1
    return command[command.index(option) + 1]


def values(command: list[str], option: str) -> list[str]:
    return [command[i + 1] for i, word in enumerate(command) if word == option]


def fields(text: str) -> list[str]:
    """A comma-separated option as QEMU splits it, where two commas are one."""
    return [part.replace("\0", ",") for part in text.replace(",,", "\0").split(",")]


def test_the_exact_clock() -> None:
    command = qemu_command(MACHINE, WIRING)
    assert command[0] == QEMU
    assert value(command, "-icount") == "shift=0,sleep=off"
    assert value(command, "-rtc") == "base=2005-07-13T00:00:00,clock=vm"
    assert value(command, "-accel") == "tcg"
    assert value(command, "-smp") == "1"
    assert value(command, "-seed") == "1"


def test_work_that_is_done_alone_is_recorded_on_the_exact_clock() -> None:
    alone = replace(MACHINE, works_alone=True)
    # QEMU puts the values of both options together.
    assert values(qemu_command(alone, WIRING), "-icount") == ["shift=0,sleep=off", "rr=record,rrfile=/dev/null"]
    assert qemu_command(MACHINE, WIRING).count("-icount") == 1
    assert "-icount" not in qemu_command(replace(alone, timing="tcg"), WIRING)


@pytest.mark.parametrize(("timing", "accelerator"), [("tcg", "tcg"), ("kvm", "kvm")])
def test_the_other_clocks_count_nothing(timing: Timing, accelerator: str) -> None:
    machine = replace(MACHINE, timing=timing)
    command = qemu_command(machine, WIRING)
    assert value(command, "-accel") == accelerator
    assert value(command, "-rtc") == "base=utc"
    assert "-icount" not in command
    assert "tsc_early_khz" not in kernel_command_line(machine)
    assert value(command, "-rtc") == "base=utc"
    assert "pmtmr=0x608" in kernel_command_line(machine).split()


@pytest.mark.parametrize(
    ("smp", "topology"),
    [
        (1, "1"),
        (2, "2,sockets=1,cores=1,threads=2"),
        (3, "3"),
        (4, "4,sockets=1,cores=2,threads=2"),
        (16, "16,sockets=1,cores=8,threads=2"),
    ],
)
def test_several_cpus(smp: int, topology: str) -> None:
    command = qemu_command(replace(MACHINE, smp=smp, timing="tcg"), WIRING)
    assert value(command, "-smp") == topology
    assert value(command, "-accel") == ("tcg,thread=single" if smp > 1 else "tcg")
    assert value(qemu_command(replace(MACHINE, smp=smp, timing="kvm"), WIRING), "-accel") == "kvm"


@pytest.mark.parametrize("name", [*cpus(), "qemu64"])
def test_a_cpu_is_one_argument(name: str) -> None:
    model = cpu(name)
    assert value(qemu_command(replace(MACHINE, cpu=model), WIRING), "-cpu") == model.qemu


def test_files_are_not_quoted_and_commas_are_doubled_where_qemu_splits() -> None:
    command = qemu_command(MACHINE, WIRING)
    assert value(command, "-kernel") == "/cache/my kernel,1"
    assert value(command, "-initrd") == "/cache/initramfs"
    console = next(option for option in values(command, "-chardev") if option.startswith("file,"))
    assert fields(console) == ["file", "id=console", "path=/run/a, b/guest.console"]
    assert value(command, "-m") == "256M"


def test_the_agent_s_port_and_the_monitor_are_sockets_that_are_passed_on() -> None:
    command = qemu_command(MACHINE, WIRING)
    assert "socket,id=monitor,fd=7" in values(command, "-chardev")
    assert "socket,id=agent,fd=8" in values(command, "-chardev")
    assert f"virtserialport,chardev=agent,name={AGENT_PORT}" in values(command, "-device")
    assert value(command, "-mon") == "chardev=monitor,mode=control"


def test_nothing_is_there_that_was_not_asked_for() -> None:
    command = qemu_command(MACHINE, WIRING)
    for option in ("-nodefaults", "-no-user-config", "-no-reboot"):
        assert command.count(option) == 1
    assert value(command, "-display") == value(command, "-vga") == "none"
    assert value(command, "-machine").startswith("pc-i440fx-7.0,")
    assert value(command, "-sandbox").startswith("on,")
    assert not {"-netdev", "-nic", "-drive", "-hda", "-monitor"} & set(command)


def test_the_kernel_s_command_line() -> None:
    words = kernel_command_line(replace(MACHINE, extra_parameters=("a=1", "b"))).split(" ")
    assert words[-2:] == ["a=1", "b"]
    for word in ("console=ttyS0", "panic=-1", "nokaslr", "mitigations=off", "tsc_early_khz=1000000"):
        assert words.count(word) == 1
    assert len(set(words)) == len(words)
    assert value(qemu_command(MACHINE, WIRING), "-append") == kernel_command_line(MACHINE)


@given(st.text())
def test_an_escaped_value_is_one_field_for_qemu(text: str) -> None:
    text = text.replace("\0", "")
    assert fields(f"path={escape(text)}") == [f"path={text}"]


@given(
    st.integers(1, 32),
    st.integers(1, 1 << 20),
    st.sampled_from(["instructions", "tcg", "kvm"]),
    st.text(st.characters(exclude_characters="\0/"), min_size=1),
)
def test_nothing_of_a_machine_becomes_another_option(smp: int, memory: int, timing: Timing, name: str) -> None:
    usual = qemu_command(replace(MACHINE, smp=smp, timing=timing), WIRING)
    machine = replace(
        MACHINE, smp=smp, memory_mib=memory, timing=timing, kernel=Path("/", name), initramfs=Path("/i", name)
    )
    command = qemu_command(machine, replace(WIRING, console=Path("/c", name)))
    assert len(command) == len(usual)
    changed = {usual[i - 1] for i in range(len(usual)) if command[i] != usual[i]}
    assert changed <= {"-kernel", "-initrd", "-m", "-chardev"}


@pytest.mark.parametrize(("built_in", "smp", "quick"), [(True, 1, True), (False, 1, False), (True, 2, False)])
def test_a_kernel_with_its_drivers_built_in_starts_without_a_bios(built_in: bool, smp: int, quick: bool) -> None:
    """But not on two CPUs: the second is found through ACPI."""
    machine = replace(MACHINE, drivers_built_in=built_in, smp=smp, timing="tcg")
    assert ("qboot.rom" in qemu_command(machine, WIRING)) is quick
    assert ("acpi=off" in kernel_command_line(machine).split()) is quick
    timed = replace(machine, keeps_time=True)
    assert "acpi=off" not in kernel_command_line(timed).split()


@pytest.mark.parametrize(("smp_kernel", "smp", "kept"), [(True, 1, True), (True, 2, False), (False, 1, False)])
def test_an_smp_kernel_keeps_its_lock_prefixes_on_one_cpu(smp_kernel: bool, smp: int, kept: bool) -> None:
    timing: Timing = "instructions" if smp == 1 else "tcg"
    machine = replace(MACHINE, smp_kernel=smp_kernel, smp=smp, timing=timing)
    assert ("noreplace-smp" in kernel_command_line(machine).split()) is kept


def test_a_terminal_has_the_console_beside_its_log() -> None:
    wired = replace(WIRING, terminal="/dev/pts/7,x")
    assert values(qemu_command(MACHINE, wired), "-chardev")[0].startswith(
        "serial,id=console,path=/dev/pts/7,,x,logfile="
    )


def test_what_counts_instructions_is_named_by_the_consoles_log() -> None:
    counter = CountingPlugin(Path("/cache/a, b/count.so"))
    assert "-plugin" not in qemu_command(MACHINE, WIRING)
    plain = value(qemu_command(replace(MACHINE, counter=counter), WIRING), "-plugin")
    assert fields(plain) == ["file=/cache/a, b/count.so", "out=/run/a, b/guest.counts"]
    detailed = qemu_command(replace(MACHINE, counter=replace(counter, is_detailed=True)), WIRING)
    assert fields(value(detailed, "-plugin"))[2:] == ["detail=on"]
    caches = qemu_command(replace(MACHINE, counter=replace(counter, caches=cpu_caches()["pentium4"])), WIRING)
    assert fields(value(caches, "-plugin"))[2:] == [
        "l1i=16384:8:64",
        "l1d=8192:4:64",
        "l2=524288:8:64",
        "itlb=524288:4:4096",
        "dtlb=262144:64:4096",
    ]
