# SPDX-License-Identifier: GPL-2.0-only
"""Does a plan hold exactly the experiment's matrix, with a baseline where one is needed?"""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loaded_tables import calls_experiment, only_table

from orchestrator.benchmarks.calls.table import CallsTable
from orchestrator.catalog.probes import BASELINE, probes
from orchestrator.errors import ConfigError
from orchestrator.experiment.plan import MAX_CELLS, plan


def test_a_cell_has_every_fact_its_number_depends_on() -> None:
    cell = plan(calls_experiment(reference="djprobe-2005/list5", time_limit=7)).cells[1]
    assert (cell.id, cell.cpu, cell.smp, cell.memory_mib) == ("pentium4/debian-686/kprobe/noop", "pentium4", 1, 256)
    assert (cell.kernel, cell.row, cell.handler) == ("debian-686", "kprobe", "noop")
    assert (cell.benchmark, cell.task.calls, cell.repeats, cell.task.entry) == ("gtodbench", 1000, 2, "int80")
    assert cell.published is not None
    assert (cell.clock, cell.published.table, cell.time_limit) == ("instructions", "djprobe-2005/list5", 7)
    assert cell.compared_with == ("pentium4/debian-686/none/noop",)


def test_cells_are_in_the_file_s_order_behind_their_baseline() -> None:
    planned = plan(
        calls_experiment(
            machines=[{"cpu": "xeon-e5410"}, {"cpu": "athlon64", "memory": "1G"}],
            kernels=["debian-amd64", "debian-686"],
            probes=["jprobe", "none", "kprobe"],
        )
    )
    assert [(boot.cpu, boot.memory_mib, boot.kernel) for boot in planned.boots] == [
        ("xeon-e5410", 256, "debian-amd64"),
        ("xeon-e5410", 256, "debian-686"),
        ("athlon64", 1024, "debian-amd64"),
        ("athlon64", 1024, "debian-686"),
    ]
    assert [cell.id for cell in planned.boots[2].cells] == [
        "athlon64+1024M/debian-amd64/none/noop",
        "athlon64+1024M/debian-amd64/jprobe/noop",
        "athlon64+1024M/debian-amd64/kprobe/noop",
    ]


def test_a_missing_baseline_is_added() -> None:
    assert [cell.row for cell in plan(calls_experiment(probes=["djprobe"])).cells] == ["none", "djprobe"]


def test_cells_with_other_modules_of_the_kernel_s_have_another_boot() -> None:
    (with_modules,) = plan(calls_experiment(kernel_modules=["snd-pcm", "vfat"])).boots
    (without,) = plan(calls_experiment()).boots
    assert (with_modules.kernel_modules, without.kernel_modules) == (("snd_pcm", "vfat"), ())
    assert {cell.parameters["kernel_modules"] for cell in with_modules.cells} == {"snd_pcm, vfat"}
    assert all("kernel_modules" not in cell.parameters for cell in without.cells)


def test_several_cpus_show_in_the_id() -> None:
    machine = {"cpu": "pentium4", "smp": 2, "memory": "512M"}
    benchmark = {"name": "gtodbench"}
    planned = plan(calls_experiment(machines=[machine], clock="wall", benchmark=benchmark))
    assert {cell.repeats for cell in planned.cells} == {12}
    assert planned.cells[0].id == "pentium4+x2+512M/debian-686/none/noop"
    assert planned.boots[0].smp == 2


def test_the_number_of_cells_is_bounded() -> None:
    machines = [{"cpu": "athlon64", "memory": f"{64 + index}M"} for index in range(1000)]
    several = calls_experiment(machines=machines, probes=list(probes()), kernels=["debian-686", "debian-amd64"])
    with pytest.raises(ConfigError, match=f"'x' has more than {MAX_CELLS} cells, baselines included"):
        plan(several)


@given(
    st.lists(
        st.tuples(st.sampled_from(["athlon64", "xeon-e5410"]), st.sampled_from(["64M", "256M", "1G"])),
        min_size=1,
        unique=True,
    ),
    st.lists(st.sampled_from(["debian-686", "debian-amd64"]), min_size=1, unique=True),
    st.lists(st.sampled_from(list(probes())), min_size=1, unique=True),
)
def test_the_plan_is_exactly_the_matrix(machines: list[tuple[str, str]], kernels: list[str], kinds: list[str]) -> None:
    described = calls_experiment(
        machines=[{"cpu": cpu, "memory": memory} for cpu, memory in machines], kernels=kernels, probes=kinds
    )
    planned = plan(described)
    found = [(cell.cpu, cell.memory_mib, cell.kernel, cell.row, cell.handler) for cell in planned.cells]
    assert set(found) == {
        (machine.cpu, machine.memory_mib, kernel, probe, "noop")
        for machine, kernel, probe in product(only_table(described, CallsTable).machines, kernels, {BASELINE, *kinds})
    }
    assert len(found) == len(set(found)) == len({cell.id for cell in planned.cells})
    for boot in planned.boots:
        assert boot.cells[0].row == BASELINE
        assert {(cell.cpu, cell.memory_mib, cell.kernel) for cell in boot.cells} == {
            (boot.cpu, boot.memory_mib, boot.kernel)
        }
        assert [cell.row for cell in boot.cells[1:]] == [kind for kind in kinds if kind != BASELINE]
    assert all(re.fullmatch(r"[A-Za-z0-9_.+-]+(/[a-z0-9-]+){3}", cell.id) for cell in planned.cells)
