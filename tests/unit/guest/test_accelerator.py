# SPDX-License-Identifier: GPL-2.0-only
"""Is KVM judged by what it does, and is the accelerator chosen by that judgement?"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog.cpus import cpu, cpus
from orchestrator.errors import HostError, UsageError
from orchestrator.guest import accelerator, kvm_probe
from orchestrator.guest.accelerator import (
    DEVICE,
    FAST_MS,
    KvmSpeed,
    KvmState,
    check_cpu,
    choose_accelerator,
    known_kvm_speed,
    measure_kvm,
    read_probe_answer,
)

SLOW = KvmSpeed(state=KvmState.SLOW, reason="2 million instructions a second", cpu_ms=100, wall_ms=100, instructions=1)
FAST = KvmSpeed(state=KvmState.FAST, reason="2000 million instructions a second", cpu_ms=0.1, instructions=200_000)

needs_kvm = pytest.mark.skipif(not os.access(DEVICE, os.R_OK | os.W_OK), reason="needs a /dev/kvm that opens")


@pytest.fixture(autouse=True)
def user_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(cache))
    return cache


def test_ioctl_numbers_are_the_kernels() -> None:
    assert 8 * kvm_probe.SEGMENT.size < kvm_probe.CR0 < kvm_probe.SREGS_SIZE
    assert kvm_probe.SEGMENT.size == 24
    assert kvm_probe.RUN == 0xAE80
    assert kvm_probe.SET_USER_MEMORY_REGION == 0x4020AE46
    assert kvm_probe.GET_SREGS == 0x8138AE83
    assert kvm_probe.SET_SREGS == 0x4138AE84
    assert kvm_probe.SET_REGS == 0x4090AE82


@needs_kvm
def test_a_real_measurement(user_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speed = measure_kvm()
    assert speed.state in (KvmState.SLOW, KvmState.FAST)
    assert (speed.cpu_ms < FAST_MS) == speed.usable
    assert "instructions a second" in speed.reason
    # It is remembered until the next boot, and the memory is believed.
    file = user_cache / "kvm-speed.json"
    memory = json.loads(file.read_bytes())
    assert known_kvm_speed() == speed
    memory["speed"]["reason"] = "remembered"
    file.write_text(json.dumps(memory))
    assert known_kvm_speed().reason == "remembered"
    # Another boot's memory, or a damaged one, is not: it is measured again.
    monkeypatch.setattr(accelerator, "measure_kvm", lambda *_: speed)
    for damaged in (json.dumps({**memory, "boot": "another"}), '{"boot":', "[]"):
        file.write_text(damaged)
        assert known_kvm_speed() == speed


@needs_kvm
def test_a_time_limit_ends_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "TIME_LIMIT_SECONDS", 0.001)
    assert measure_kvm().state is KvmState.BROKEN


@needs_kvm
def test_a_limit_of_processor_time_ends_the_probe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spinning = tmp_path / "spinning.py"
    spinning.write_text("import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True:\n    pass\n")
    monkeypatch.setattr(kvm_probe, "__file__", str(spinning))
    speed = measure_kvm()
    assert speed.state is KvmState.BROKEN
    assert "of processor time" in speed.reason


@needs_kvm
def test_a_cache_that_cannot_be_written_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", "/proc/nowhere")
    assert measure_kvm().instructions == kvm_probe.INSTRUCTIONS


def test_no_device(tmp_path: Path) -> None:
    speed = measure_kvm(tmp_path / "kvm")
    assert (speed.state, speed.usable) == (KvmState.ABSENT, False)


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


@pytest.mark.parametrize(("mode", "words"), [(0o060, "the group"), (0o000, "owner alone")])
def test_no_permission(mode: int, words: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, which other users cannot enter
        Path(folder).chmod(0o755)
        device = Path(folder) / "kvm"
        device.touch()
        device.chmod(mode)
        speed = as_ordinary_user(lambda: measure_kvm(device))
    assert speed.state is KvmState.DENIED
    assert words in speed.reason


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"", -9),
        (b"Traceback", 1),
        (b"[]", 0),
        (b"7", 0),
        (b"{}", 1),
        (b'{"error": "Inappropriate ioctl for device"}', 0),
        (b'{"cpu_ms": -1, "wall_ms": 1, "instructions": 5}', 0),
        (b'{"cpu_ms": NaN, "wall_ms": 1, "instructions": 5}', 0),
        (b'{"cpu_ms": 1, "wall_ms": 1, "instructions": 5, "more": 1}', 0),
    ],
)
def test_answers_that_are_none(answer: bytes, status: int) -> None:
    assert read_probe_answer(answer, status).state is KvmState.BROKEN


@given(st.floats(min_value=0, max_value=1e6))
def test_fast_means_under_the_limit(cpu_ms: float) -> None:
    answer = json.dumps({"cpu_ms": cpu_ms, "wall_ms": cpu_ms, "instructions": 200_002})
    assert read_probe_answer(answer.encode(), 0).usable == (cpu_ms < FAST_MS)


@given(st.binary())
def test_no_answer_breaks_the_reader(answer: bytes) -> None:
    assert isinstance(read_probe_answer(answer, 0), KvmSpeed)


def test_the_speed_is_stated() -> None:
    speed = read_probe_answer(b'{"cpu_ms": 100, "wall_ms": 101, "instructions": 200000}', 0)
    assert "only 2 million instructions a second" in speed.reason


def test_choices() -> None:
    assert choose_accelerator("auto", FAST).name == "kvm"
    assert choose_accelerator("kvm", FAST).name == "kvm"
    assert choose_accelerator("tcg", FAST).name == "tcg"
    chosen = choose_accelerator("auto", SLOW)
    assert (chosen.name, chosen.reason) == ("tcg", SLOW.reason)
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
def test_what_is_there() -> None:
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
    with pytest.raises(HostError, match="which takes KVM: 2 million"):
        check_cpu(cpu("host"), "tcg")
    monkeypatch.setattr(accelerator, "known_kvm_speed", lambda: FAST)
    with pytest.raises(HostError, match="which takes KVM: emulation was asked for"):
        check_cpu(cpu("host"), "tcg")
