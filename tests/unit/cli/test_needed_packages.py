# SPDX-License-Identifier: GPL-2.0-only
"""Are all packages that a command's experiments need asked for together, before anything is fetched?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from called_commands import refusal

from orchestrator.cost import request
from orchestrator.errors import HostError
from orchestrator.library import needed_packages

pytestmark = pytest.mark.usefixtures("lab")

EXPERIMENT = """\
name: {name}
kernels: [{kernel}]
machines: [{{cpu: xeon-e5410}}]
probes: [none, kprobe, {probe}]
benchmark: {{name: gtodbench}}
"""
KERNEL, TYPES = "kernel-packages.txt", "type-packages.txt"
BPF, COMPILER = "bpf-packages.txt", "bpf-compiler-packages.txt"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Mapping[str, str]]:
    """What is asked for, before the command ends there."""
    found: list[Mapping[str, str]] = []

    def check(lists: Mapping[str, str]) -> None:
        found.append(lists)
        raise HostError("not here")

    for module in (needed_packages, request):
        monkeypatch.setattr(module, "check_all_installed", check)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.bpf.c").touch()
    (tmp_path / "own.o").touch()
    return found


@pytest.mark.parametrize(
    ("kernel", "probe", "lists"),
    [
        ("debian-amd64", "kprobe-optimized", set()),
        ("lab-i386-up", "kprobe-optimized", {KERNEL}),
        ("lab-x86_64-smp-bpf@7.3", "./own.bpf.c", {KERNEL, TYPES, BPF, COMPILER}),
        ("debian-amd64@7.3", "./own.bpf.c", {BPF, COMPILER}),
        ("debian-amd64", "./own.o", {BPF}),
    ],
)
def test_an_experiment_s_packages(
    asked: list[Mapping[str, str]], tmp_path: Path, kernel: str, probe: str, lists: set[str]
) -> None:
    (tmp_path / "x.yaml").write_text(EXPERIMENT.format(name="x", kernel=kernel, probe=probe))
    assert "not here" in refusal("run", "x.yaml", status=3)
    assert [set(one) for one in asked] == [lists]


def test_packages_of_several_experiments_are_asked_for_once(asked: list[Mapping[str, str]], tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(EXPERIMENT.format(name="x", kernel="lab-i386-up", probe="jprobe"))
    (tmp_path / "y.yaml").write_text(EXPERIMENT.format(name="y", kernel="debian-amd64", probe="./own.bpf.c"))
    assert "not here" in refusal("run", "x.yaml", "y.yaml", status=3)
    assert [set(one) for one in asked] == [{KERNEL, BPF, COMPILER}]


@pytest.mark.parametrize(
    ("command", "lists"),
    [
        ("cost own.bpf.c --kernels 7.3,lab-x86_64-smp-bpf", {KERNEL, TYPES, BPF, COMPILER}),
        ("cost ./own.o --kernels 6.1", {BPF}),
        ("cost kprobe --kernels lab-x86_64-smp", {KERNEL}),
    ],
)
def test_packages_of_a_cost_are_asked_for_once(asked: list[Mapping[str, str]], command: str, lists: set[str]) -> None:
    assert "not here" in refusal(*command.split(), status=3)
    assert [set(one) for one in asked] == [lists]


def test_offline_nothing_is_asked_for(asked: list[Mapping[str, str]], tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(EXPERIMENT.format(name="x", kernel="lab-i386-up", probe="jprobe"))
    refusal("run", "--offline", "x.yaml", status=3)
    assert asked == []
