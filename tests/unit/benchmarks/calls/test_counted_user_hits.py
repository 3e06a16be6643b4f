# SPDX-License-Identifier: GPL-2.0-only
"""Is a hit of a command's runs what its traps begin, and refused where the traps are not known to be the probe's?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from orchestrator.benchmarks.calls.counted_user_hits import HitsOfRun, UserHits, check_hits, check_plain
from orchestrator.benchmarks.calls.samples import Figures, run_figures
from orchestrator.errors import EvidenceError, NotEntered
from orchestrator.profile.counted.kernel_entries import Part

INT3: Part = ("exception", "int3")
STEP: Part = ("exception", "debug")
RETURN: Part = ("call", "uretprobe")
USER: Part = ("user", "")


def run(hits: int, entered: Mapping[Part, int], counts: Mapping[Part, int]) -> HitsOfRun:
    return HitsOfRun(hits, Counter(entered), counts)


def whole(*samples: float) -> Figures:
    return run_figures([*samples], [1000.0, 1100.0])


def test_an_emulated_instruction_is_replaced_by_the_int3() -> None:
    emulated = run(10, {INT3: 10}, {INT3: 13000, USER: 500, ("call", "read"): 100})
    figures = UserHits([emulated], [{USER: 500}], has_semaphore=False).figures(whole(14000), emulated)
    assert (figures.overhead, figures.interval, figures.verdict) == (13000, (13000, 13000), None)


def test_a_stepped_instruction_is_executed_besides_the_int3() -> None:
    stepped = run(10, {INT3: 10, STEP: 10}, {INT3: 13000, STEP: 7000, USER: 510})
    assert (stepped.in_kernel, stepped.in_program) == (20000, 10)


@pytest.mark.parametrize(
    ("entered", "in_program"),
    [({INT3: 20}, 10), ({INT3: 20, STEP: 10}, 20), ({INT3: 10, RETURN: 10}, 80)],
)
def test_a_return_has_a_trap_or_a_call_of_its_own(entered: Mapping[Part, int], in_program: int) -> None:
    assert run(10, entered, {}).in_program == in_program


def test_what_a_program_does_for_a_semaphore_is_what_its_instructions_differ_by() -> None:
    runs = [run(10, {INT3: 10}, {INT3: 13000, USER: user}) for user in (800, 820)]
    hits = UserHits(runs, [{USER: 500}, {USER: 520}, {USER: 540}], has_semaphore=True)
    figures = hits.figures(whole(14000, 14020), runs[0])
    assert figures.overhead == 13000 + 800 - 520
    assert figures.interval == (13000 + 800 - 540, 13000 + 820 - 500)
    assert hits.facts()["run_hits"].startswith("2 runs of 10 hits: a hit takes 1326 to 1332 on the mean")
    assert "semaphore" in hits.facts()["run_semaphore"]


def test_a_hit_is_that_of_each_run_whatever_number_of_hits_it_has() -> None:
    runs = [run(10, {INT3: 10}, {INT3: 13000}), run(20, {INT3: 20}, {INT3: 25000})]
    figures = UserHits(runs, [{}], has_semaphore=False).figures(whole(14000, 26000), runs[0])
    assert figures.overhead == 13000
    assert figures.interval == (12500, 13000)


def test_a_program_that_varies_by_more_than_its_hits_has_no_verdict() -> None:
    one_run = run(1, {INT3: 1}, {INT3: 1000, USER: 5000})
    figures = UserHits([one_run], [{USER: 3000}, {USER: 9000}], has_semaphore=True).figures(whole(9000), one_run)
    assert figures.verdict == "none"
    assert figures.notes[0].startswith("no verdict: a hit takes -3000 to 3000")


def test_traps_without_the_probe_are_not_taken_for_its_own() -> None:
    with pytest.raises(EvidenceError, match="a run without the probe has 2 exception int3"):
        check_plain([Counter[Part](), Counter({INT3: 2})])
    check_plain([Counter({("call", "read"): 2})])


@pytest.mark.parametrize("entered", [{INT3: 11}, {INT3: 20, STEP: 7}])
def test_hits_that_take_unequal_traps_are_refused(entered: Mapping[Part, int]) -> None:
    with pytest.raises(EvidenceError, match="hits take unequal traps: 10 hits"):
        check_hits([run(10, entered, {})])


def test_runs_without_a_hit_never_entered_the_point() -> None:
    with pytest.raises(NotEntered):
        check_hits([run(10, {INT3: 10}, {}), run(0, {}, {})])
