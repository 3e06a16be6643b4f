# SPDX-License-Identifier: GPL-2.0-only
"""Does `list` show all that there is, to people and to programs, and does a shell get the same names to complete?"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import get_args

import pytest
from record_builders import cell, failed
from typer.testing import CliRunner

from orchestrator.benchmarks.attaching.rows import mechanisms
from orchestrator.benchmarks.calls.benchmarks import benchmarks, capability_grants
from orchestrator.benchmarks.markers.rows import marker_benchmarks
from orchestrator.benchmarks.scaling.rows import kprobe_cache
from orchestrator.benchmarks.system.workloads import system_workloads
from orchestrator.catalog.cpus import cpus
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import Handler, probes, standard_events
from orchestrator.catalog.published_tables import reference_tables
from orchestrator.cli.main import app
from orchestrator.cost.call_table import call_table
from orchestrator.library.name_lists import all_lists
from orchestrator.results.contract import Clock
from orchestrator.results.store import Store

NAMES = {
    "cpus": list(cpus()),
    "kernels": list(kernels()),
    "probes": list(probes()),
    "handlers": list(get_args(Handler)),
    "benchmarks": [*benchmarks(), "attach", "markers", *kprobe_cache().benchmarks, *system_workloads().benchmarks],
    "calls": list(call_table()),
    "clocks": list(get_args(Clock)),
    "references": list(reference_tables()),
    "capabilities": list(capability_grants()),
    "attach": [f"attach.{name}" for name in mechanisms()],
    "markers": [f"marker.{name}" for name in marker_benchmarks().rows],
    "scopes": list(system_workloads().scopes),
    "events": list(standard_events()),
    "kpcache": [f"{name}.{row}" for name, facts in kprobe_cache().benchmarks.items() for row in facts.rows],
}


pytestmark = pytest.mark.usefixtures("lab")


def listed(what: str, *options: str) -> str:
    result = CliRunner().invoke(app, ["list", what, *options])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def completed(*words: str) -> list[str]:
    """What a shell is offered for the last of the words."""
    asked = {
        "_ORCHESTRATOR_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["orchestrator", *words]),
        "COMP_CWORD": str(len(words)),
    }
    ended = CliRunner().invoke(app, prog_name="orchestrator", env=asked)
    assert ended.exit_code == 0, ended.output
    return ended.stdout.split()


@pytest.mark.parametrize("what", NAMES)
def test_lists_are_whole_and_in_order(what: str) -> None:
    text = listed(what)
    shown = [line.split()[0] for line in text.splitlines()]
    assert shown[1 : len(NAMES[what]) + 1] == NAMES[what]
    assert "…" not in text


@pytest.mark.parametrize("what", NAMES)
def test_programs_get_the_same(what: str) -> None:
    rows = json.loads(listed(what, "--json"))
    assert [row.get("name", row.get("id")) for row in rows] == NAMES[what]


def test_everything_that_can_be_listed_is_tested_here() -> None:
    assert set(all_lists()) == {*NAMES, "runs", "baselines"}
    assert listed_lists() == list(all_lists())


def listed_lists() -> list[str]:
    """What ``list`` prints when nothing is named."""
    result = CliRunner().invoke(app, ["list"])
    assert result.exit_code == 0
    return result.stdout.splitlines()


def test_a_former_name_of_a_list_is_understood() -> None:
    assert listed("abilities") == listed("capabilities")


def test_an_unknown_list_is_answered_with_the_nearest() -> None:
    result = CliRunner().invoke(app, ["list", "kernel"])
    assert result.exit_code == 2
    assert "did you mean 'kernels'?" in result.stderr


def test_programs_get_values_and_not_text() -> None:
    athlon64 = next(row for row in json.loads(listed("cpus", "--json")) if row["name"] == "athlon64")
    assert athlon64["modes"] == ["32 bit", "64 bit"]
    rows = {row["name"]: row for row in json.loads(listed("probes", "--json"))}
    assert (rows["kprobe"]["int3_per_hit"], rows["hook"]["int3_per_hit"]) == (2, 0)
    assert (rows["kprobe"]["linux_since"], rows["bpf-fsession"]["linux_since"]) == (None, "7.0")


def test_variants_of_kernels_are_listed() -> None:
    rows = {row["name"]: row for row in json.loads(listed("kernels", "--json"))}
    assert "preemptible, so without a booster" in rows["lab-i386-up-preempt"]["title"]
    assert "hook.patch" in rows["lab-x86_64-smp-hook"]["origin"]


def test_a_new_lab_has_no_runs_and_gets_none_by_asking(tmp_path: Path) -> None:
    assert len(listed("runs").splitlines()) == 1
    assert json.loads(listed("runs", "--json")) == []
    assert completed("report", "") == []
    assert not (tmp_path / "lab").exists()


def test_runs_with_how_their_cells_ended(tmp_path: Path) -> None:
    with Store.open(tmp_path / "lab") as store:
        old = store.begin_run("old", ["a", "b", "c", "d", "e"], digest="d", provenance={})
        store.record(old.id, cell("none", id="a"))
        store.record(old.id, cell("djprobe", id="b"))
        store.record(old.id, failed("jprobe", "an oops", id="c"))
        store.record(old.id, failed("kprobe", "no booster", id="d", status="unsupported"))
        store.finish_run(old.id, "interrupted")
        new = store.begin_run("new", ["a"], digest="d", provenance={})
        newest, oldest = json.loads(listed("runs", "--json"))
    assert (newest["run"], newest["status"], newest["open"], newest["ok"]) == (new.id, "running", 1, 0)
    assert (oldest["run"], oldest["experiment"], oldest["status"]) == (old.id, "old", "interrupted")
    assert [oldest[count] for count in ("ok", "failed", "other", "open")] == [2, 1, 1, 1]
    assert datetime.fromisoformat(oldest["started"]) == datetime.fromisoformat(old.started)
    # The process of the new one has ended without a word to the store.
    assert json.loads(listed("runs", "--json"))[0]["status"] == "interrupted"
    line = listed("runs").splitlines()[2].split()
    started = datetime.fromisoformat(old.started).astimezone()
    assert line[2:] == [*f"{started:%Y-%m-%d %H:%M}".split(), "interrupted", "2", "1", "1", "1", str(old.directory)]
    assert completed("report", "") == ["latest", new.id, old.id]
    assert completed("report", old.id[:-1]) in ([old.id], [new.id, old.id])


def test_a_shell_completes_names_of_the_catalogue() -> None:
    assert completed("exec", "--kernel", "debian-6") == ["debian-686", "debian-686-pae"]
    assert completed("shell", "--cpu", "athlon") == ["athlon", "athlon64"]
    assert completed("build", "kernel", "lab-x") == [name for name in kernels() if name.startswith("lab-x")]
    assert completed("build", "source", "djp") == ["djprobe"]
    assert completed("report", "--format", "j") == ["json", "junit"]
    assert completed("list", "be") == ["benchmarks"]
    kinds = ["kernel-source", "kernels", "kernel-modules", "kernel-functions"]
    assert completed("cache", "prune", "kern") == kinds


def test_a_damaged_store_offers_no_runs_silently(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "lab.sqlite").write_bytes(b"no database at all" * 100)
    assert completed("report", "") == []
