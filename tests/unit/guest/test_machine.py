# SPDX-License-Identifier: GPL-2.0-only
"""Does QEMU's command line describe exactly the machine, one argument for each option?"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.arch import QEMU
from orchestrator.catalog.cpus import cpu, cpu_caches, cpus
from orchestrator.errors import GuestError, GuestExit, HostError
from orchestrator.guest import confinement
from orchestrator.guest.confinement import USERS, Confinement, confinement_here, environment
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import CountingPlugin, Machine, Timing
from orchestrator.guest.qemu_command import AGENT_PORT, Wiring, escape, kernel_command_line, qemu_command
from orchestrator.guest.qemu_facts import qemu_cpu_names, qemu_version

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
    exact = qemu_command(replace(MACHINE, smp=smp, timing="instructions"), WIRING)
    assert ("hpet=off" in exact) == (smp > 1)


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


# Is a QEMU that cannot be used told as the host's, with its own words, and which one is needed?

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


def test_too_old_qemu_is_named_with_the_version_needed(use: Use) -> None:
    use("old")
    with pytest.raises(HostError, match=r"QEMU is too old: QEMU emulator version 6\.2\.0 \(Debian") as caught:
        qemu_version()
    assert "install QEMU 7.0 or newer" in caught.value.hint


@pytest.mark.parametrize("ask", [qemu_version, qemu_cpu_names])
def test_qemu_that_dies_at_once_is_an_error(use: Use, ask: Callable[[], object]) -> None:
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
def test_qemu_that_makes_no_machine_is_a_host_error(
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


def test_killed_qemu_is_not_a_host_error(use: Use, tmp_path: Path) -> None:
    use("killed")
    error = fail_to_boot(tmp_path)
    assert isinstance(error, GuestExit)
    assert error.status == -9


# What of its host does a QEMU get by its options, limits and environment, on each host?

GIB = 1 << 30


FULL = "000001ffffffffff"


@pytest.fixture
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A QEMU that prints this version."""
    monkeypatch.setattr(confinement, "qemu_version", lambda: request.param)


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
    monkeypatch.setattr(confinement, "_SELF", tmp_path)
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
