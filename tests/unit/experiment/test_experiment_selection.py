# SPDX-License-Identifier: GPL-2.0-only
"""Does ``--only`` leave what its filters match, and the baselines those need?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loaded_tables import calls_experiment

from orchestrator.catalog.probes import BASELINE, probes
from orchestrator.errors import ConfigError
from orchestrator.experiment.plan import plan, select

PLAN = plan(
    calls_experiment(
        machines=[{"cpu": "pentium4"}, {"cpu": "athlon"}], probes=list(probes()), benchmark={"name": "gtodbench"}
    )
)


def selected(*filters: str) -> list[str]:
    return [cell.id.replace("/debian-686", "").replace("/noop", "") for cell in select(PLAN, filters).cells]


def refusal(*filters: str) -> str:
    with pytest.raises(ConfigError) as caught:
        select(PLAN, filters)
    return str(caught.value)


@pytest.mark.parametrize(
    ("filters", "cells"),
    [
        (["probe=djprobe,cpu=pentium4"], ["pentium4/none", "pentium4/djprobe"]),
        ([" cpu = athlon , probe = djprobe "], ["athlon/none", "athlon/djprobe"]),
        (["djprobe"], ["pentium4/none", "pentium4/djprobe", "athlon/none", "athlon/djprobe"]),
        (["athlon,kprobe-[o]*"], ["athlon/none", "athlon/kprobe-optimized"]),
        (["id=athlon/*/jprobe/*"], ["athlon/none", "athlon/jprobe"]),
        (["athlon/*/none/*"], ["athlon/none"]),
        (["athlon,jprobe", "cpu=p*,jprobe"], ["pentium4/none", "pentium4/jprobe", "athlon/none", "athlon/jprobe"]),
    ],
)
def test_selected_cells(filters: list[str], cells: list[str]) -> None:
    assert selected(*filters) == cells


def test_no_filter_selects_everything() -> None:
    assert select(PLAN, []) == PLAN
    assert select(PLAN, ["*"]) == PLAN


def test_boots_without_a_selected_cell_are_dropped() -> None:
    assert [boot.guest.cpu for boot in select(PLAN, ["cpu=athlon"]).boots] == ["athlon"]


def test_an_unknown_key_names_the_nearest() -> None:
    assert refusal("prob=djprobe") == (
        "--only prob=djprobe: unknown key 'prob'; allowed: table, cpu, kernel, point, probe, handler, benchmark, id; "
        "did you mean 'probe'?"
    )


def test_a_filter_that_matches_nothing_lists_the_names() -> None:
    assert refusal("athlon", "probe=djprob,cpu=pentium4") == "\n".join(
        [
            "--only probe=djprob,cpu=pentium4: no cell matches",
            "    cpu: pentium4, athlon",
            "    kernel: debian-686",
            f"    probe: {', '.join(probes())}",
            "    handler: noop",
            "    benchmark: gtodbench",
            "hint: did you mean 'djprobe'?",
        ]
    )
    assert refusal("cpu=djprobe").endswith("hint: choose among the names above")


@pytest.mark.parametrize("text", ["", ",", "probe=", "athlon,,djprobe", "="])
def test_an_incomplete_filter_is_refused(text: str) -> None:
    assert refusal(text).startswith(f"--only {text or repr(text)}: expected PATTERN or KEY=PATTERN")


words = st.sampled_from(["cpu=", "probe=", "athlon", "djprobe", "none", "*", "?", "[", "!a]", ",", "k*", "/", "noop"])


@given(st.lists(st.lists(words, max_size=5).map("".join) | st.text(), max_size=3))
def test_a_selection_is_part_of_the_plan_with_its_baselines(filters: list[str]) -> None:
    place, chosen = "--only ", PLAN
    try:
        chosen = select(PLAN, filters)
    except ConfigError as error:
        place = error.where
    assert place.startswith("--only ")
    assert chosen.cells
    places = [PLAN.cells.index(cell) for cell in chosen.cells]
    assert places == sorted(places)
    for boot in chosen.boots:
        assert boot.cells
        for cell in boot.cells:
            assert any(other_cell.probe == BASELINE and other_cell.handler == cell.handler for other_cell in boot.cells)
