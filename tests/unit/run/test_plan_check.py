# SPDX-License-Identifier: GPL-2.0-only
"""Is a CPU that is not to be had reported at its place in the file, and a host without QEMU as that?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import HostError
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.guest.machine import qemu_cpu_names
from orchestrator.run import plan_check
from orchestrator.run.plan_check import check_plan

TABLE = """\
name: one
kernels: [lab-i386-up]
machines: [{cpu: pentium4}, {cpu: athlon}]
probes: [none]
benchmark: {name: gtodbench}
"""


def check(folder: Path) -> HostError:
    file = folder / "x.yaml"
    file.write_text(TABLE)
    experiment = load_experiment(file, kinds(), [])
    with pytest.raises(HostError) as caught:
        check_plan(experiment, plan(experiment), lambda name: None)
    return caught.value


def test_a_cpu_that_is_not_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: object, timing: object) -> None:
        raise HostError("there is no such CPU", hint="name another")

    monkeypatch.setattr(plan_check, "qemu_cpu_names", frozenset)
    monkeypatch.setattr(plan_check, "check_cpu", refuse)
    error = check(tmp_path)
    file = tmp_path / "x.yaml"
    assert error.detail == tuple(f"{file}:3: machines.{n}.cpu: there is no such CPU" for n in (0, 1))
    assert error.hint == "name another"


def test_a_host_without_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    qemu_cpu_names.cache_clear()
    error = check(tmp_path)
    assert (error.what, error.where, error.detail) == ("setpriv (util-linux) is not installed", "", ())
