# SPDX-License-Identifier: GPL-2.0-only
"""Is a CPU that QEMU or the host cannot give an error, with the reason, and every other one let through?"""

from __future__ import annotations

import pytest

from orchestrator.catalog.cpus import cpu, cpus
from orchestrator.errors import HostError, UsageError
from orchestrator.guest import accelerator
from orchestrator.guest.accelerator import KvmSpeed, KvmState, check_cpu

SLOW = KvmSpeed(state=KvmState.SLOW, reason="/dev/kvm is slow")
FAST = KvmSpeed(state=KvmState.FAST, reason="/dev/kvm is fast")


@pytest.fixture(autouse=True)
def a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with an old QEMU and a slow KVM."""
    monkeypatch.setattr(accelerator, "qemu_cpu_names", lambda: frozenset({"host", "max", "qemu32", "athlon"}))
    monkeypatch.setattr(accelerator, "qemu_version", lambda: "QEMU emulator version 1.0")
    monkeypatch.setattr(accelerator, "known_kvm_speed", lambda: SLOW)


def test_what_is_there() -> None:
    for name in ("max", "qemu32"):
        check_cpu(cpu(name), "instructions")
    check_cpu(cpu("host"), "kvm")


def test_a_model_that_qemu_lacks() -> None:
    lacking = next(model for model in cpus().values() if model.qemu.startswith("Penryn"))
    with pytest.raises(HostError, match="needs QEMU's model 'Penryn', which QEMU emulator version 1"):
        check_cpu(lacking, "tcg")
    with pytest.raises(HostError, match=r"'athlonx'.*; the nearest is 'athlon'"):
        check_cpu(cpu("athlonx"), "kvm")


def test_the_hosts_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="the exact clock needs an emulated one\nhint: name another CPU"):
        check_cpu(cpu("host"), "instructions")
    with pytest.raises(HostError, match="which takes KVM: /dev/kvm is slow"):
        check_cpu(cpu("host"), "tcg")
    monkeypatch.setattr(accelerator, "known_kvm_speed", lambda: FAST)
    with pytest.raises(HostError, match="which takes KVM: emulation was asked for"):
        check_cpu(cpu("host"), "tcg")
