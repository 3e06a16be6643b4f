# SPDX-License-Identifier: GPL-2.0-only
"""Does the key of a plan's content change with all that decides its numbers, and with nothing else?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from host_toolchain import a_kernel

from orchestrator.artifacts.modules import Module
from orchestrator.catalog.cpus import cpu
from orchestrator.experiment.plan import plan
from orchestrator.guest.machine import DataDisk, Machine
from orchestrator.library.lab import Lab
from orchestrator.run import runner
from orchestrator.run.benchmark_kind import BootArtifacts, Prepared, Ready, Refused
from orchestrator.run.runner import PreparedPlan

CONTENT: dict[str, Any] = {
    "name": "mine",
    "kernels": ["lab-i386-up"],
    "machines": [{"cpu": "pentium4"}],
    "probes": ["none", "kprobe"],
    "benchmark": {"name": "gtodbench"},
}
BROKEN = "own.c:3: module own does not build\n    own.c:3:2: error: unknown type name 'this'"


@pytest.fixture(autouse=True)
def _qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "qemu_digests", lambda: {"qemu": "of this test"})


def prepared(
    content: Mapping[str, Any] = CONTENT,
    change: Callable[[BootArtifacts], BootArtifacts] = lambda artifacts: artifacts,
    cell: Prepared[Any] | None = None,
) -> PreparedPlan:
    experiment = Lab().build(content)
    whole = plan(experiment)
    folder = Path("/cache/initramfs/key")
    machine = Machine(cpu("pentium4"), Path("/kernel"), folder / "file")
    ready = cell or Ready(None, (Module("own", Path("/own.ko"), "a-module", None),), keys={"workload": "a-program"})
    artifacts = BootArtifacts(a_kernel("lab-i386-up"), machine, {one.id: ready for one in whole.cells})
    return PreparedPlan(experiment, whole, {boot: change(artifacts) for boot in whole.boots})


def test_it_is_the_same_under_another_name_with_another_budget_and_other_steps() -> None:
    described = {**CONTENT, "name": "mine-series", "description": "of another commit", "budgets": {"*": "+1%"}}
    assert prepared(described).content == prepared().content
    assert replace(prepared(), steps=["something"]).content == prepared().content


def test_each_change_of_what_is_measured_is_another_key() -> None:
    ready = Ready(None, (Module("own", Path("/own.ko"), "another", None),), keys={"workload": "a-program"})
    disk = (DataDisk("modules of 6.1", Path("/cache/kernel-modules/key2/file")),)
    loaded = {"mine": Path("/mine.ko")}
    plans = [
        prepared(),
        prepared({**CONTENT, "benchmark": {"name": "gtodbench", "calls": 7}}),
        prepared({**CONTENT, "probes": ["none"]}),
        prepared(change=lambda artifacts: replace(artifacts, kernel=replace(artifacts.kernel, key="of another image"))),
        prepared(
            change=lambda artifacts: replace(
                artifacts, machine=replace(artifacts.machine, initramfs=Path("/cache/other/file"))
            )
        ),
        prepared(change=lambda artifacts: replace(artifacts, kernel_modules=loaded)),
        prepared(
            change=lambda artifacts: replace(
                artifacts, kernel_modules=loaded, machine=replace(artifacts.machine, data=disk)
            )
        ),
        prepared(cell=ready),
        prepared(cell=replace(ready, keys={"workload": "another"})),
        prepared(cell=Refused("failed", BROKEN)),
        prepared(cell=Refused("failed", "it is no C")),
        prepared(cell=Refused("unsupported", "it is no C")),
    ]
    assert len({prepared_plan.content for prepared_plan in plans}) == len(plans)


def test_another_qemu_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even of the same version: firmware and the emulator have files of their own."""
    before = prepared().content
    monkeypatch.setattr(runner, "qemu_digests", lambda: {"qemu": "rebuilt"})
    assert prepared().content != before


@pytest.mark.parametrize(
    ("refused", "is_broken"),
    [
        (Refused("failed", BROKEN), True),
        (Refused("failed", "mine does not build\n    ld: mine.o: undefined reference to `work'"), True),
        (Refused("failed", 'ERROR: modpost: "work" [mine.ko] undefined!'), True),
        (Refused("failed", "own.c:1:10: fatal error: missing.h: No such file or directory"), False),
        (Refused("failed", "gcc: fatal error: Killed signal terminated program cc1"), False),
        (Refused("unsupported", BROKEN), False),
    ],
)
def test_a_cell_fails_for_good_only_for_its_code(refused: Refused, is_broken: bool) -> None:
    prepared_plan = prepared(cell=refused)
    assert prepared_plan.broken == (
        frozenset(cell.id for cell in prepared_plan.plan.cells) if is_broken else frozenset()
    )
