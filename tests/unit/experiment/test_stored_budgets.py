# SPDX-License-Identifier: GPL-2.0-only
"""Are a stored run's budgets found, whatever else its experiment has?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import ConfigError
from orchestrator.experiment.budgets_in_files import stored_budgets
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.source import MAX_BYTES

HEAD = """\
name: large
kernels: [debian-686]
machines: [{cpu: pentium4}, {cpu: athlon64}, {cpu: pentium-m}]
probes: [none, kprobe, jprobe, djprobe]
benchmark: {name: syscall, call: getpid}
"""
POINTS = "[vfs_read, vfs_write, ksys_read, ksys_write, do_sys_openat2, ktime_get_real_ts64]"
TABLES = "".join(f"  table-number-{number}: {{points: {POINTS}}}\n" for number in range(100))


def resolved(folder: Path, text: str) -> Path:
    (folder / "file.yaml").write_text(text)
    (folder / "experiment.yaml").write_text(load_experiment(folder / "file.yaml", kinds()).resolved_yaml())
    return folder


def test_the_budgets_of_a_run(tmp_path: Path) -> None:
    run = resolved(tmp_path, f"{HEAD}budgets: {{kprobe: +5, '*': {{overhead: +1%}}}}\n")
    assert dict(stored_budgets(run).plain()) == {"kprobe": "+5", "*": {"overhead": "+1%"}}
    assert stored_budgets(tmp_path / "elsewhere").entries == ()


def test_an_experiment_may_be_larger_with_its_defaults_than_a_file_may_be(tmp_path: Path) -> None:
    run = resolved(tmp_path, f"{HEAD}budgets: {{kprobe: +5}}\ntables:\n{TABLES}")
    assert (run / "experiment.yaml").stat().st_size > MAX_BYTES
    assert dict(stored_budgets(run).plain()) == {"kprobe": "+5"}
    assert stored_budgets(resolved(tmp_path, f"{HEAD}tables:\n{TABLES}")).entries == ()


def test_a_damaged_budget_has_its_place(tmp_path: Path) -> None:
    run = resolved(tmp_path, f"{HEAD}budgets: {{kprobe: +5}}\n")
    file = run / "experiment.yaml"
    lines = file.read_text().replace("+5", "much").splitlines()
    file.write_text("\n".join(lines))
    number = next(number for number, line in enumerate(lines, start=1) if "much" in line)
    with pytest.raises(ConfigError, match=r"budgets\.kprobe: found 'much'") as caught:
        stored_budgets(run)
    assert caught.value.where == f"{file}:{number}"
