# SPDX-License-Identifier: GPL-2.0-only
"""Programs by system call: their cells, their figures, and the table of what they and probes take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from loaded_tables import calls_experiment
from pydantic import ValidationError
from record_builders import cell, evidence, failed, run
from report_text import check_golden_table, printed

from orchestrator.benchmarks.calls.samples import run_figures
from orchestrator.experiment.plan import plan
from orchestrator.results.contract import BACKGROUND, CellRecord
from orchestrator.results.statistics import median

COMMAND = "sort /etc/passwd | wc -l"
PLAIN: Mapping[tuple[str, str], tuple[int, Sequence[int]]] = {
    ("user", ""): (0, (5000, 5000, 5000)),
    ("call", "execve"): (3, (70_000, 70_900, 69_800)),
    ("call", "read"): (12, (4800, 4800, 4803)),
    ("exception", "page_fault"): (40, (90_000, 90_004, 90_000)),
    ("interrupt", ""): (2, (1700, 900, 900)),
    ("kernel", ""): (0, (400, 30_400, 400)),
}


def parts(added: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """The parts of three runs; with a probe that adds so much to a part, they are compared with two runs without."""
    found = []
    for (kind, name), (calls, plain) in PLAIN.items():
        more = 0 if added is None else added.get(name, 0)
        runs = [one + more for one in plain]
        before = [] if added is None else plain[:2]
        one = {"kind": kind, "name": name, "calls": calls, "runs": runs, "plain": before}
        found.append({**one, "instructions": runs[0]})
    return found


def program(probe: str, added: Mapping[str, int] | None = None, /, **changes: Any) -> CellRecord:
    """A valid cell of a program."""
    found = parts(added)
    own, plain = (
        [float(sum(run)) for run in zip(*(one[key] for one in found if one["kind"] not in BACKGROUND), strict=True)]
        for key in ("runs", "plain")
    )
    total = sum(sum(one["runs"]) for one in found)
    profile = {"sha256": "0" * 64, "calls": 3, "instructions": total, "int3": 0, "ticks": total, "parts": found}
    figures = run_figures(own, plain)
    return cell(
        probe,
        id=f"xeon-e5410/debian-amd64/{probe}/noop",
        cpu="xeon-e5410",
        kernel="debian-amd64",
        benchmark="program",
        metric="cost per run",
        samples=own,
        value=figures.value,
        overhead=figures.overhead,
        interval=figures.interval,
        verdict=figures.verdict,
        notes=figures.notes,
        parameters={"workload": COMMAND, "kernel_release": "6.1.0-50-amd64"},
        evidence=evidence(probe, calls=12, hits=0 if probe == "none" else 12, int3=24 if probe == "kprobe" else 0),
        **{"profile": profile, **changes},
    )


def test_the_table_is_as_in_the_golden_file() -> None:
    panic = failed("djprobe", "the guest panicked", id="4", benchmark="program", metric="cost per run")
    shared = {"cpu": "xeon-e5410", "kernel": "debian-amd64", "parameters": {"workload": COMMAND}}
    lost = panic.model_copy(update=shared)
    check_golden_table("programs", run(program("none"), program("kprobe", {"read": 6000, "execve": 500}), lost))


def test_a_baseline_that_failed_leaves_what_probes_add() -> None:
    nothing = {"profile": None, "samples": (), "value": None, "overhead": None, "interval": None, "evidence": None}
    base = program("none").model_copy(update={**nothing, "status": "failed", "reason": "it panicked", "notes": ()})
    text = printed(run(base, program("kprobe", {"read": 6000})))
    assert next(line.split() for line in text.splitlines() if line.startswith("  read"))[-2:] == ["+6000", "3"]


def test_parts_that_do_not_add_up_to_the_samples_are_refused() -> None:
    wrong = parts()
    wrong[1]["runs"] = [1, 2, 3]
    total = sum(sum(one["runs"]) for one in wrong)
    profile = {"sha256": "0" * 64, "calls": 3, "instructions": total, "int3": 0, "ticks": total, "parts": wrong}
    with pytest.raises(ValidationError, match="the parts of the runs add up to"):
        program("none", profile=profile)


def test_a_probe_has_a_verdict_where_its_runs_all_take_more() -> None:
    more, equal = run_figures([30.0, 33.0, 31.0], [20.0, 24.0]), run_figures([30.0, 33.0, 31.0], [20.0, 30.0])
    assert (more.overhead, more.interval, more.verdict) == (9.0, (6.0, 13.0), None)
    assert (equal.overhead, equal.interval, equal.verdict) == (6.0, (0.0, 13.0), "none")
    assert more.value == median(more.samples)
    assert run_figures([30.0, 33.0, 31.0], []).overhead == 0.0


def test_programs_have_a_guest_of_their_own() -> None:
    """QEMU follows whole programs in another way than calls."""
    table = {"kernels": ["debian-amd64"], "machines": [{"cpu": "xeon-e5410"}], "probes": ["none"]}
    counted = calls_experiment(**table, benchmark={"name": "program", "run": COMMAND})
    calls = calls_experiment(**table, benchmark={"name": "gtodbench"}, profile=["stacks"])
    (boot,) = plan(counted).boots
    assert boot.profile == {"system-calls"}
    assert boot.cells[0].repeats == 7
    named = [replace(experiment.tables[0], name=name) for name, experiment in (("a", counted), ("b", calls))]
    assert len(plan(replace(counted, tables=named)).boots) == 2
