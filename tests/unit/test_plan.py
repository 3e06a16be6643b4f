# SPDX-License-Identifier: GPL-2.0-only
"""Does a plan hold exactly the experiment's matrix, with a baseline where one is needed?"""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog.probes import BASELINE, probes
from orchestrator.errors import ConfigError
from orchestrator.experiment.file.experiment import Experiment
from orchestrator.experiment.plan import MAX_CELLS, plan


def experiment(**fields: object) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "x",
            "kernels": ["debian-686"],
            "machines": [{"cpu": "pentium4"}],
            "probes": ["none", "kprobe"],
            "benchmark": {"name": "gtodbench", "calls": 1000, "repeats": 2, "entry": "int80"},
            **fields,
        }
    )


def test_a_cell_carries_all_its_number_depends_on() -> None:
    cell = plan(experiment(reference="djprobe-2005/list5", time_limit=7)).cells[1]
    assert (cell.id, cell.cpu, cell.smp, cell.memory_mib) == ("pentium4/debian-686/kprobe/noop", "pentium4", 1, 256)
    assert (cell.kernel, cell.probe, cell.handler) == ("debian-686", "kprobe", "noop")
    assert (cell.benchmark, cell.calls, cell.repeats, cell.entry) == ("gtodbench", 1000, 2, "int80")
    assert (cell.clock, cell.reference, cell.time_limit) == ("instructions", "djprobe-2005/list5", 7)


def test_cells_are_in_the_file_s_order_behind_their_baseline() -> None:
    planned = plan(
        experiment(
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
    assert [cell.probe for cell in plan(experiment(probes=["djprobe"])).cells] == ["none", "djprobe"]


def test_several_cpus_show_in_the_id() -> None:
    machine = {"cpu": "pentium4", "smp": 2, "memory": "512M"}
    benchmark = {"name": "gtodbench"}
    planned = plan(experiment(machines=[machine], clock="wall", benchmark=benchmark))
    assert {cell.repeats for cell in planned.cells} == {12}
    assert planned.cells[0].id == "pentium4+x2+512M/debian-686/none/noop"
    assert planned.boots[0].smp == 2


def test_the_number_of_cells_is_bounded() -> None:
    machines = [{"cpu": "athlon64", "memory": f"{64 + index}M"} for index in range(1000)]
    several = experiment(machines=machines, probes=list(probes()), kernels=["debian-686", "debian-amd64"])
    with pytest.raises(ConfigError, match=rf"'x' has 32000 cells, baselines included; at most {MAX_CELLS} are allowed"):
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
    described = experiment(
        machines=[{"cpu": cpu, "memory": memory} for cpu, memory in machines], kernels=kernels, probes=kinds
    )
    planned = plan(described)
    found = [(cell.cpu, cell.memory_mib, cell.kernel, cell.probe, cell.handler) for cell in planned.cells]
    assert set(found) == {
        (machine.cpu, machine.memory_mib, kernel, probe, "noop")
        for machine, kernel, probe in product(described.machines, kernels, {BASELINE, *kinds})
    }
    assert len(found) == len(set(found)) == len({cell.id for cell in planned.cells})
    for boot in planned.boots:
        assert boot.cells[0].probe == BASELINE
        assert {(cell.cpu, cell.memory_mib, cell.kernel) for cell in boot.cells} == {
            (boot.cpu, boot.memory_mib, boot.kernel)
        }
        assert [cell.probe for cell in boot.cells[1:]] == [kind for kind in kinds if kind != BASELINE]
    assert all(re.fullmatch(r"[A-Za-z0-9_.+-]+(/[a-z0-9-]+){3}", cell.id) for cell in planned.cells)
