# SPDX-License-Identifier: GPL-2.0-only
"""Is KVM judged by what it does, and is the accelerator chosen by that judgement?"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.arch import QEMU
from orchestrator.catalog.cpus import cpu, cpus
from orchestrator.errors import HostError, UsageError
from orchestrator.guest import accelerator
from orchestrator.guest.accelerator import (
    DEVICE,
    KvmSpeed,
    check_cpu,
    choose_accelerator,
    count_down,
    known_kvm_speed,
    measure_kvm,
)

SLOW = KvmSpeed(usable=False, reason="2 million instructions a second")
FAST = KvmSpeed(usable=True, reason="2000 million instructions a second")

needs_qemu = pytest.mark.skipif(shutil.which(QEMU) is None, reason="needs QEMU")
needs_kvm = pytest.mark.skipif(not os.access(DEVICE, os.R_OK | os.W_OK), reason="needs a /dev/kvm that opens")


@pytest.fixture(autouse=True)
def user_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(cache))
    return cache


@needs_kvm
@needs_qemu
def test_a_real_measurement() -> None:
    speed = measure_kvm()
    assert speed.usable == ("more than 20 million" in speed.reason)
    assert known_kvm_speed() == speed


def test_a_measurement_is_remembered_until_the_next_boot(user_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "_refusal", lambda device: None)
    monkeypatch.setattr(accelerator, "count_down", lambda kind: "it is slow")
    speed = measure_kvm()
    assert speed == KvmSpeed(usable=False, reason="/dev/kvm opens, but it is slow")
    file = user_cache / "kvm-speed.json"
    memory = json.loads(file.read_bytes())
    assert known_kvm_speed() == speed
    memory["speed"]["reason"] = "remembered"
    file.write_text(json.dumps(memory))
    assert known_kvm_speed().reason == "remembered"
    # Another boot's memory, or a damaged one, is not: it is measured again.
    earlier = {**memory, "speed": {"state": "slow", "reason": "", "cpu_ms": 1}}  # of an earlier version
    for damaged in (json.dumps({**memory, "boot": "another"}), json.dumps(earlier), '{"boot":', "[]"):
        file.write_text(damaged)
        assert known_kvm_speed() == speed
    monkeypatch.setenv("ORCHESTRATOR_CACHE", "/proc/nowhere")
    assert known_kvm_speed() == speed


# The same guest, emulated: that it comes to its end is then no question of the host's.


@needs_qemu
def test_the_guest_comes_to_its_end() -> None:
    assert count_down("tcg") is None


@needs_qemu
def test_a_time_limit_ends_the_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "TIME_LIMIT_SECONDS", 0.001)
    assert count_down("tcg") == "a guest of 40 million instructions did not end in 0.001 s"


@needs_qemu
def test_a_limit_of_processor_time_ends_a_guest_that_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "CPU_SECONDS", 1)
    monkeypatch.setattr(accelerator, "_PROGRAM", accelerator._PROGRAM[:32] + b"\xeb\xfe")
    problem = count_down("tcg")
    assert problem == "executes fewer than 20 million instructions a second: guests would seem to hang"


@needs_qemu
def test_what_qemu_complains_of_is_quoted() -> None:
    assert str(count_down("none")).endswith("with status 1: qemu-system-x86_64: -accel none: invalid accelerator none")


def test_a_host_without_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "QEMU", "qemu-nonesuch")
    assert "qemu-nonesuch" in str(count_down("tcg"))


def test_no_device(tmp_path: Path) -> None:
    speed = measure_kvm(tmp_path / "kvm")
    assert not speed.usable
    assert "this host has no " in speed.reason


def as_ordinary_user(examine: Callable[[], KvmSpeed]) -> KvmSpeed:
    """Call ``examine`` as a user who is not root, in a child process if need be: root may open everything."""
    if os.geteuid() != 0:
        return examine()
    answer, write_end = os.pipe()
    if os.fork() == 0:
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os.write(write_end, examine().model_dump_json().encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(answer, "rb") as pipe:
        speed = KvmSpeed.model_validate_json(pipe.read())
    os.wait()
    return speed


@pytest.mark.parametrize(("mode", "words"), [(0o060, "the group"), (0o000, "owner only")])
def test_no_permission(mode: int, words: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, which other users cannot enter
        Path(folder).chmod(0o755)
        device = Path(folder) / "kvm"
        device.touch()
        device.chmod(mode)
        speed = as_ordinary_user(lambda: measure_kvm(device))
    assert not speed.usable
    assert words in speed.reason


def test_choices() -> None:
    assert choose_accelerator("auto", FAST) == choose_accelerator("kvm", FAST) == "kvm"
    assert choose_accelerator("tcg", FAST) == choose_accelerator("auto", SLOW) == "tcg"
    with pytest.raises(HostError, match="2 million"):
        choose_accelerator("kvm", SLOW)
    with pytest.raises(UsageError, match="'hax'"):
        choose_accelerator("hax", FAST)


# Is a CPU that QEMU or the host cannot give an error, with the reason, and every other one let through?


@pytest.fixture
def a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with an old QEMU and a slow KVM."""
    monkeypatch.setattr(accelerator, "qemu_cpu_names", lambda: frozenset({"host", "max", "qemu32", "athlon"}))
    monkeypatch.setattr(accelerator, "qemu_version", lambda: "QEMU emulator version 1.0")
    monkeypatch.setattr(accelerator, "known_kvm_speed", lambda: SLOW)


@pytest.mark.usefixtures("a_host")
def test_available_accelerators_are_found() -> None:
    for name in ("max", "qemu32"):
        check_cpu(cpu(name), "instructions")
    check_cpu(cpu("host"), "kvm")


@pytest.mark.usefixtures("a_host")
def test_a_model_that_qemu_lacks() -> None:
    lacking = next(model for model in cpus().values() if model.qemu.startswith("Penryn"))
    with pytest.raises(HostError, match="needs QEMU's model 'Penryn', which QEMU emulator version 1"):
        check_cpu(lacking, "tcg")
    with pytest.raises(HostError, match=r"'athlonx'.*; the nearest is 'athlon'"):
        check_cpu(cpu("athlonx"), "kvm")


@pytest.mark.usefixtures("a_host")
def test_the_hosts_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="the exact clock needs an emulated one\nhint: name another CPU"):
        check_cpu(cpu("host"), "instructions")
    with pytest.raises(HostError, match="which needs KVM: 2 million"):
        check_cpu(cpu("host"), "tcg")
    monkeypatch.setattr(accelerator, "known_kvm_speed", lambda: FAST)
    with pytest.raises(HostError, match="which needs KVM: emulation was asked for"):
        check_cpu(cpu("host"), "tcg")
