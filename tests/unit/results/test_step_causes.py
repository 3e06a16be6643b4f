# SPDX-License-Identifier: GPL-2.0-only
"""Does a step name what changed for its cell, and not what changed for others in the same run?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stored_histories import EXPERIMENT, KPROBE, counted, store_days

from orchestrator.results.history import Metric, history
from orchestrator.results.history_steps import Origins, causes, steps_of
from orchestrator.results.origin import FILE_NAME
from orchestrator.results.store import Store

DJPROBE = KPROBE.replace("kprobe", "djprobe")


def boot(kernel: str, version: str, sources: dict[str, str]) -> dict[str, Any]:
    """A boot of a kernel with a module for each cell, by the state of the module's template."""
    return {
        "name": f"boot1/guest1-pentium4-{kernel}",
        "kernel": {"name": kernel, "release": "6.1", "packages": {f"linux-image-{kernel}": version}},
        "modules": {cell: {"name": f"lab_{_probe(cell)}", "key": state + cell} for cell, state in sources.items()},
        "sources": {state + cell: {f"lab_{_probe(cell)}_main.c": state} for cell, state in sources.items()},
    }


def _probe(cell: str) -> str:
    return cell.rpartition(": ")[0].split("/")[2] if ": " in cell else cell.split("/")[2]


def sentences(lab: Path, *boots: list[dict[str, Any]]) -> list[str]:
    """What the history of the kprobe says of its only step, between two runs of these boots."""
    runs = store_days(lab, [counted(1036), counted(1048)])
    metric = Metric(EXPERIMENT, KPROBE)
    with Store.open(lab) as store:
        for run, content in zip(runs, boots, strict=True):
            (store.entry(run).directory / FILE_NAME).write_text(json.dumps({"sessions": [], "boots": content}))
        found = history(store, metric)
        assert found is not None
        (step,) = steps_of(found).found
        return [cause.sentence for cause in causes(Origins(store), step, metric)]


def test_another_cells_module_and_another_kernel_are_no_cause(tmp_path: Path) -> None:
    before = [boot("debian-686", "1", {KPROBE: "a", DJPROBE: "a"}), boot("lab-i386-up", "1", {})]
    after = [boot("debian-686", "1", {KPROBE: "b", DJPROBE: "b"}), boot("lab-i386-up", "2", {})]
    assert sentences(tmp_path, before, after) == ["module lab_kprobe: its template changed"]


def test_what_only_others_had_changed_is_nothing(tmp_path: Path) -> None:
    before = [boot("debian-686", "1", {KPROBE: "a", DJPROBE: "a"}), boot("lab-i386-up", "1", {})]
    after = [boot("debian-686", "1", {KPROBE: "a", DJPROBE: "b"}), boot("lab-i386-up", "2", {})]
    assert sentences(tmp_path, before, after) == []


def test_each_module_of_a_cell_is_its_own(tmp_path: Path) -> None:
    names = [f"{KPROBE}: first", f"{KPROBE}: second"]
    before, after = ([boot("debian-686", "1", dict.fromkeys(names, state))] for state in "ab")
    assert sentences(tmp_path, before, after) == ["module lab_kprobe: its template changed"]


def test_where_no_boot_has_the_cells_kernel_all_that_changed_is_said(tmp_path: Path) -> None:
    before, after = ([boot("another", version, {})] for version in "12")
    assert sentences(tmp_path, before, after) == ["kernel another: 6.1 (1) -> 6.1 (2)"]
