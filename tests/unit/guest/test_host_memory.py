# SPDX-License-Identifier: GPL-2.0-only
"""Is a guest refused that the lab's control group, or the host, has no memory for?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import HostError
from orchestrator.guest import slots
from orchestrator.guest.slots import check_memory, host_memory_mib

WITHOUT = 1 << 53
"""What version 1 has for no limit, about."""

GROUPS = {
    "version 2": ("0::/user.slice/lab\n", "user.slice/lab/memory.max", "{}\n"),
    "version 2, a group above": ("0::/user.slice/lab\n", "user.slice/memory.max", "{}\n"),
    "version 1": ("9:name=systemd:/\n4:cpu,memory:/lab\n0::/\n", "memory/lab/memory.limit_in_bytes", "{}\n"),
}


def limited(root: Path, groups: str, file: str, text: str) -> None:
    """Lay out a host's files as they are in groups of which one has a limit, and others have none."""
    (root / "groups").write_text(groups)
    (root / "user.slice/lab").mkdir(parents=True)
    (root / "user.slice/lab/memory.max").write_text("max\n")
    (root / "memory/lab").mkdir(parents=True)
    (root / "memory/memory.limit_in_bytes").write_text(f"{WITHOUT}\n")
    (root / file).write_text(text)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(slots, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(slots, "_MOUNTED", tmp_path)
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("group", GROUPS)
def test_a_control_group_limits_the_lab(host: Path, group: str) -> None:
    groups, file, text = GROUPS[group]
    limited(host, groups, file, text.format(200 << 20))
    assert host_memory_mib() == 200
    assert slots.host_slots() == 1
    check_memory(200)
    with pytest.raises(HostError, match=r"201 MiB of memory does not fit: the lab may have 200 MiB") as caught:
        slots.take_slots(201, lambda text: None, lambda: None)
    assert "memory.max" in caught.value.hint
    assert not (host / "cache").exists()


@pytest.mark.parametrize(("groups", "text"), [("", "1"), ("0::/lab\n", "max\n"), ("0::/lab\n", "what?\n")])
def test_without_a_limit_it_is_the_hosts(host: Path, groups: str, text: str) -> None:
    limited(host, groups, "user.slice/memory.max", text)
    whole = host_memory_mib()
    assert whole > 201
    with pytest.raises(HostError, match=f"the lab may have {whole} MiB on this host"):
        check_memory(whole + 1)


def test_this_hosts_groups_are_read() -> None:
    assert host_memory_mib() > 0
