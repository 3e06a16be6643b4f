# SPDX-License-Identifier: GPL-2.0-only
"""Verdicts of a run on the documents' claims; the published figures, which satisfy the claims, test the formulas."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelled_cells import apart
from record_builders import (
    COUNTS,
    any_evidence,
    cell,
    failed,
    jumped_to,
    mail_table,
    noop_list,
    published,
    recording_list,
    run,
    table_cell,
    wall_list,
)

from orchestrator.benchmarks.registry import reports
from orchestrator.catalog.probes import probe_in_catalogue, probes
from orchestrator.catalog.published_tables import (
    ChangeClaim,
    MechanismClaim,
    OrderClaim,
    RatioClaim,
    SizeClaim,
    TrapsClaim,
    claims,
    reference_table,
    reference_tables,
)
from orchestrator.model.modelled_run import catalogue_prices, modelled_cell, used_prices
from orchestrator.report.claims import (
    Assessment,
    ClaimInputs,
    ClaimOutcome,
    Verdict,
    all_claims,
    assess,
    compare,
    decided_claims,
    published_inputs,
)
from orchestrator.results.contract import CellRecord
from orchestrator.results.modelled import ModelledRun

LIST5 = "djprobe-2005/list5"


def outcomes(*cells: CellRecord) -> dict[str, ClaimOutcome]:
    """The claims of the only document and clock that these cells have."""
    (assessment,) = assess(run(*cells), reports())
    return {outcome.claim.id: outcome for outcome in assessment.outcomes}


def changed(one: CellRecord, **changes: Any) -> CellRecord:
    """The cell with other fields."""
    return CellRecord.model_validate({**one.model_dump(), **changes})


@pytest.mark.parametrize("name", claims())
def test_a_claim_holds_for_the_figures_it_was_made_of(name: str) -> None:
    claim = claims()[name]
    tables = [published_inputs(reference_table(f"{claim.document}/{table}")) for table in claim.tables]
    inputs = [tables] if isinstance(claim, ChangeClaim) else [[table] for table in tables]
    judged = [comparison.holds for facts in inputs for comparison in compare(claim, *facts) if comparison.judged]
    assert judged
    if claim.by == "lab":
        assert None not in judged  # what a count does may be the opposite of what time does
    else:
        # The documents describe how a probe point is reached; they print no figure of it.
        assert judged == [None if isinstance(claim, MechanismClaim) else True] * len(judged)


def test_claims_are_of_known_tables_and_probes() -> None:
    for claim in claims().values():
        assert {f"{claim.document}/{table}" for table in claim.tables} <= set(reference_tables())
        has_ratios = isinstance(claim, RatioClaim | OrderClaim | ChangeClaim)
        clocks = {"instructions", "wall", "modelled"} if has_ratios else {"instructions", "wall"}
        assert sorted([*claim.why, *claim.undecided]) == sorted(clocks)
        # A count judges only what is said of counts, but for the first two documents' claims.
        if claim.document not in ("djprobe-2005", "jump-optimization-2009"):
            assert ("instructions" in claim.why) is (claim.by == "lab")
        match claim:
            case RatioClaim():
                assert all(map(probe_in_catalogue, [*claim.of, claim.to]))
                assert (claim.at_least, claim.at_most) != (None, None)
            case OrderClaim():
                assert all(map(probe_in_catalogue, claim.order))
            case ChangeClaim():
                assert set(claim.of) <= set(probes())
                assert (claim.at_least, claim.at_most) != (None, None)
            case TrapsClaim():
                assert set(claim.int3_per_hit) <= set(probes())
            case SizeClaim():
                assert claim.of in probes()
            case MechanismClaim():
                assert probes()[claim.probe].mechanism == claim.mechanism
                assert probes()[claim.probe].int3_per_hit == claim.int3_per_hit


def test_every_document_has_claims() -> None:
    assert {claim.document for claim in claims().values()} == {t.document_id for t in reference_tables().values()}


def test_claims_of_lists_without_recording() -> None:
    claim_outcomes = outcomes(*(one for name in ("list4", "list5", "list6", "list7") for one in noop_list(name)))
    assert {name: outcome.verdict for name, outcome in claim_outcomes.items()} == {
        "light-without-recording": Verdict.HOLDS,
        "thirty-times-on-pentium-4": Verdict.FAILS,
        "int3-per-hit": Verdict.FAILS,
        "jprobe-cheaper-than-kprobe": Verdict.FAILS,
        "light-when-recording": Verdict.UNKNOWN,
        "order-of-the-static-hook": Verdict.UNKNOWN,
        "kprobe-based-tracer": Verdict.UNKNOWN,
    }
    light = claim_outcomes["light-without-recording"]
    assert [column.name for column in light.columns] == ["list4", "list5", "list6", "list7"]
    assert [figure.text for figure in light.columns[1].measured] == ["12.08", "24.15"]
    assert [figure.text for figure in light.columns[1].published] == ["33.60", "52.17"]
    assert light.undecided == []


def test_claims_of_lists_with_recording() -> None:
    claim_outcomes = outcomes(*recording_list("list12"))
    assert claim_outcomes["light-when-recording"].verdict is Verdict.FAILS  # 710 / 129
    assert claim_outcomes["order-of-the-static-hook"].verdict is Verdict.HOLDS
    assert claim_outcomes["kprobe-based-tracer"].verdict is Verdict.HOLDS
    assert claim_outcomes["kprobe-based-tracer"].undecided == ["list11", "list13", "list14"]


def test_traps_are_shown_with_and_without_the_single_step() -> None:
    (column,) = outcomes(*noop_list("list5"))["int3-per-hit"].columns
    assert [(figure.label, figure.text, figure.holds) for figure in column.measured] == [
        ("kprobe: int3 a hit", "2", False),
        ("kprobe: without the single step", "1", None),
        ("jprobe: int3 a hit", "3", False),
        ("jprobe: without the single step", "2", None),
    ]
    assert [figure.text for figure in column.published] == ["1", "-", "2", "-"]


def test_claims_of_the_mail() -> None:
    claim_outcomes = outcomes(*mail_table("x86-32"), *mail_table("x86-64"))
    assert {outcome.verdict for outcome in claim_outcomes.values()} == {Verdict.HOLDS}
    bigger = claim_outcomes["optimised-is-bigger"].columns[0]
    assert [figure.text for figure in bigger.measured] == ["3.24", "215"]
    assert [figure.text for figure in bigger.published] == ["3.00", "145"]
    assert [figure.text for figure in claim_outcomes["hit-before-optimisation"].columns[0].measured] == [
        "detour, 1 int3"
    ]


@pytest.mark.parametrize(("extra", "verdict"), [(95, Verdict.FAILS), (96, Verdict.HOLDS), (337, Verdict.FAILS)])
def test_size_has_two_bounds(extra: int, verdict: Verdict) -> None:
    sizes = {"probe_bytes_plain": 96, "probe_bytes_extra": extra}
    cells = [changed(one, parameters=sizes) if one.probe == "kprobe-optimized" else one for one in mail_table("x86-32")]
    assert outcomes(*cells)["optimised-is-bigger"].verdict is verdict


def test_a_missing_size_is_not_judged() -> None:
    cells = [changed(one, parameters={"probe_bytes_plain": "96"}) for one in mail_table("x86-32")]
    assert outcomes(*cells)["optimised-is-bigger"].verdict is Verdict.UNKNOWN


def test_a_wrong_mechanism_refutes_a_claim() -> None:
    optimised = any_evidence("kprobe-optimized")
    cells = [changed(one, evidence=optimised) if one.probe == "kprobe-detour" else one for one in mail_table("x86-32")]
    outcome = outcomes(*cells)["hit-before-optimisation"]
    assert outcome.verdict is Verdict.FAILS
    assert outcome.columns[0].measured[0].text == "jump, 0 int3"


def test_uncounted_traps_are_not_judged() -> None:
    cells = [changed(one, evidence={**any_evidence(one.probe), "int3": None}) for one in noop_list("list5")]
    assert outcomes(*cells)["int3-per-hit"].verdict is Verdict.UNKNOWN


def test_a_failed_cell_leaves_a_claim_open() -> None:
    cells = [one for one in noop_list("list5") if one.probe != "jprobe"]
    cells.append(failed("jprobe", "no", table="list5", kernel="lab-i386-up", id="list5/jprobe"))
    outcome = outcomes(*cells)["light-without-recording"]
    assert outcome.verdict is Verdict.HOLDS
    assert outcome.undecided == ["list4", "list5", "list6", "list7"]


def test_a_claim_on_an_overhead_below_the_drift_is_undecided() -> None:
    (assessment,) = assess(run(*wall_list()), reports())
    assert assessment.title.endswith("by the wall clock, an indication only")
    light = assessment.outcomes[0]
    assert light.verdict is Verdict.UNDECIDED
    assert [figure.text for figure in light.columns[0].measured] == ["none", "-"]


def test_clocks_and_documents_are_assessed_apart() -> None:
    assessments = assess(run(*noop_list("list5"), *wall_list(), *mail_table("x86-64")), reports())
    assert [len(assessment.outcomes) for assessment in assessments] == [7, 7, 4]
    assert len({assessment.title for assessment in assessments}) == 3


def test_a_run_without_a_document_has_no_claims() -> None:
    assert assess(run(*(cell(probe) for probe in COUNTS)), reports()) == []


def test_one_table_on_two_kernels_has_two_columns() -> None:
    two = [
        table_cell(LIST5, probe, COUNTS[probe], COUNTS["none"], kernel=kernel)
        for kernel in ("lab-i386-up", "lab-i386-smp")
        for probe in COUNTS
    ]
    columns = outcomes(*two)["light-without-recording"].columns
    assert [column.name for column in columns] == ["list5 pentium4 lab-i386-up", "list5 pentium4 lab-i386-smp"]


def test_only_a_failing_claim_has_a_reason() -> None:
    (assessment,) = assess(run(*noop_list("list5")), reports())
    for statement, outcome in zip(all_claims(assessment).statements, assessment.outcomes, strict=True):
        explained = outcome.claim.why["instructions"] in statement.remarks
        assert explained is (statement.verdict is Verdict.FAILS)
        assert (statement.grid is None) is (outcome.columns == [])


def test_a_figure_below_zero_is_explained() -> None:
    (assessment,) = assess(run(*noop_list("list7")), reports())
    assert any("(< 0): " in remark for remark in all_claims(assessment).statements[0].remarks)


def test_published_figures_follow_the_record_builders() -> None:
    assert published("hook", "djprobe-2005/list12") is not None
    assert published("tracepoint", "djprobe-2005/list12") is None


_COSTS = st.floats(min_value=-1e6, max_value=1e6)


@given(_COSTS, st.floats(min_value=1e-3, max_value=1e6), st.floats(min_value=0.1, max_value=100))
def test_a_ratio_is_judged_as_it_is_printed(value: float, base: float, bound: float) -> None:
    claim = RatioClaim.model_validate(
        {
            "id": "any",
            "document": "any",
            "tables": [],
            "sentence": "any",
            "why": {},
            "kind": "ratio",
            "of": ["kprobe"],
            "to": "djprobe",
            "at_least": bound,
        }
    )
    (comparison,) = compare(claim, ClaimInputs({"kprobe": value, "djprobe": base}, {}, {}, {}))
    assert comparison.text == f"{value / base:.2f}"
    if abs(value / base - bound) > 1e-6 * bound:
        assert comparison.holds is (value / base > bound)


BEFORE = ("called", "debian-amd64@6.12")
AFTER = ("jumped-to", "debian-amd64@7.3")
COUNTS_OF_ALL = {"fentry": 137, "fexit": 196, "kprobe_multi": 262, "kprobe": 374, "kretprobe": 679}


def test_a_count_does_not_judge_a_claim_about_time() -> None:
    claim_outcomes = outcomes(*jumped_to(BEFORE, fentry=151, fexit=216), *jumped_to(AFTER, fentry=137, fexit=196))
    jump = claim_outcomes["fexit-is-jumped-to"]
    assert jump.verdict is Verdict.UNDECIDED
    assert jump.reason is not None
    assert "of the clock alone" in jump.reason
    (column,) = jump.columns
    assert (column.name, column.tables) == ("called to jumped-to", ["called", "jumped-to"])
    assert [(figure.text, figure.holds) for figure in column.measured] == [("0.91", None)]
    assert [figure.text for figure in column.published] == ["0.49"]
    assert claim_outcomes["jump-counted"].verdict is Verdict.HOLDS
    assert claim_outcomes["jump-counted"].claim.statement.startswith("Expected of the count: ")
    assert claim_outcomes["fentry-is-as-before"].claim.statement.startswith("By the published figures alone: ")
    assert jump.claim.statement == jump.claim.sentence


@pytest.mark.parametrize(
    ("after", "verdict"), [(151, Verdict.FAILS), (152, Verdict.HOLDS), (226, Verdict.HOLDS), (227, Verdict.FAILS)]
)
def test_a_change_between_two_kernels(after: float, verdict: Verdict) -> None:
    assert outcomes(*jumped_to(BEFORE, fexit=216), *jumped_to(AFTER, fexit=after))["jump-counted"].verdict is verdict


@pytest.mark.parametrize(
    "there", [[*jumped_to(BEFORE, fexit=216)], [*jumped_to(BEFORE, fentry=1), *jumped_to(AFTER, fexit=200)]]
)
def test_a_change_needs_both_figures(there: list[CellRecord]) -> None:
    assert outcomes(*there)["jump-counted"].verdict is Verdict.UNKNOWN


def test_a_change_pairs_each_kernel_before_with_each_after() -> None:
    two = [
        *jumped_to(BEFORE, fexit=216),
        *jumped_to(("called", "debian-amd64@6.18"), fexit=197),
        *jumped_to(AFTER, fexit=196),
    ]
    assert [column.name for column in outcomes(*two)["jump-counted"].columns] == [
        "called xeon-e5410 debian-amd64@6.12 to jumped-to",
        "called xeon-e5410 debian-amd64@6.18 to jumped-to",
    ]


def order_of(*probes: str) -> OrderClaim:
    fields = {"id": "any", "document": "any", "tables": ["any"], "sentence": "any", "kind": "order"}
    return OrderClaim.model_validate({**fields, "order": list(probes)})


def test_an_order_of_probes() -> None:
    facts = ClaimInputs({"kprobe": 600.0, "djprobe": 60.0, "jprobe": 1200.0})
    assert [figure.holds for figure in compare(order_of("djprobe", "kprobe", "jprobe"), facts)] == [True, True]
    assert [figure.holds for figure in compare(order_of("djprobe", "jprobe", "kprobe"), facts)] == [True, False]
    assert [figure.holds for figure in compare(order_of("djprobe", "hook", "kprobe"), facts)] == [None, None]
    bands = {"djprobe": (30.0, 90.0), "kprobe": (80.0, 900.0), "jprobe": (950.0, 1500.0)}
    banded = ClaimInputs(facts.overheads, ranges=apart(facts.overheads, bands))
    assert [figure.holds for figure in compare(order_of("djprobe", "kprobe", "jprobe"), banded)] == [None, None]
    assert [figure.holds for figure in compare(order_of("djprobe", "jprobe"), banded)] == [True]
    assert [figure.holds for figure in compare(order_of("djprobe", "kprobe", "jprobe", "djprobe"), banded)][-1] is False
    assert [figure.holds for figure in compare(order_of("jprobe", "djprobe"), banded)] == [False]
    hidden = ClaimInputs(facts.overheads, undecided=frozenset({"kprobe"}))
    assert [figure.holds for figure in compare(order_of("djprobe", "kprobe"), hidden)] == [None]


@given(st.permutations(list(COUNTS_OF_ALL)))
def test_an_order_holds_if_it_is_that_of_the_overheads(names: list[str]) -> None:
    facts = ClaimInputs({name: float(count) for name, count in COUNTS_OF_ALL.items()})
    held = all(figure.holds for figure in compare(order_of(*names), facts))
    assert held is (names == list(COUNTS_OF_ALL))


@pytest.mark.parametrize(
    ("after", "holds"), [((20.0, 30.0), False), ((80.0, 120.0), None), ((95.0, 104.0), True), ((-1.0, 100.0), None)]
)
def test_a_change_of_modelled_times_is_decided_by_their_bands(after: tuple[float, float], holds: bool | None) -> None:
    claim = ChangeClaim.model_validate(
        {
            "id": "any",
            "document": "any",
            "sentence": "any",
            "kind": "change",
            "of": ["kprobe"],
            "tables": ["old", "new"],
            "at_least": 0.9,
            "at_most": 1.1,
        }
    )
    middle = sum(after) / 2
    old = ClaimInputs({"kprobe": 100.0}, ranges={"kprobe": {"old": (-1.0, 1.0)}})
    new = ClaimInputs({"kprobe": middle}, ranges={"kprobe": {"new": (after[0] - middle, after[1] - middle)}})
    (figure,) = compare(claim, old, new)
    assert figure.holds is holds
    assert figure.label == "kprobe: new / old"


def test_what_varies_in_both_times_does_not_hide_their_order() -> None:
    """A kprobe has ten times the instructions, whatever an instruction takes."""
    times, ranges = {"kprobe": 100.0, "djprobe": 10.0}, {"kprobe": (-60.0, 60.0), "djprobe": (-6.0, 6.0)}
    apart_from_each_other = ClaimInputs(times, ranges={name: {name: pair} for name, pair in ranges.items()})
    together = ClaimInputs(times, ranges={name: {"instruction": pair} for name, pair in ranges.items()})
    (figure,) = compare(order_of("djprobe", "kprobe"), apart_from_each_other)
    assert (figure.text, figure.holds) == ("10.00 (2.50 to 40.00)", True)
    (figure,) = compare(order_of("djprobe", "kprobe"), together)
    assert (figure.text, figure.holds) == ("10.00 (10.00 to 10.00)", True)


@given(st.lists(st.tuples(*[st.floats(-9, 9)] * 4), min_size=1, max_size=5), st.floats(50, 500), st.floats(50, 500))
def test_a_ratio_s_extremes_are_those_of_all_corners_of_the_ranges(
    causes: list[tuple[float, float, float, float]], value: float, base: float
) -> None:
    of = {str(at): (low, high) for at, (low, high, _, _) in enumerate(causes)}
    to = {str(at): (low, high) for at, (_, _, low, high) in enumerate(causes)}
    corners = [
        (value + sum(one[end] for one, end in zip(causes, ends, strict=True)))
        / (base + sum(one[2 + end] for one, end in zip(causes, ends, strict=True)))
        for ends in product((0, 1), repeat=len(causes))
    ]
    (figure,) = compare(
        order_of("djprobe", "kprobe"),
        ClaimInputs({"kprobe": value, "djprobe": base}, ranges={"kprobe": of, "djprobe": to}),
    )
    least, most = (float(one) for one in re.findall(r"-?[0-9.]+", figure.text)[1:])
    assert least == pytest.approx(min(corners), abs=0.006)
    assert most == pytest.approx(max(corners), abs=0.006)


def test_undecided_claims_are_counted_with_their_reasons() -> None:
    (assessment,) = assess(run(*jumped_to(BEFORE, fexit=216), *jumped_to(AFTER, fexit=196)), reports())
    part = decided_claims(assessment)
    assert [statement.verdict for statement in part.statements] == [Verdict.HOLDS]
    assert any("1 of 4 claims. The gain is the return stack buffer's" in sentence for sentence in part.sentences)


@pytest.mark.parametrize(("after", "verdict"), [(137, Verdict.HOLDS), (1370, Verdict.FAILS)])
def test_modelled_times_judge_a_change_on_another_processor_than_the_document_s(after: int, verdict: Verdict) -> None:
    profile = {"sha256": "5e" * 32, "calls": 1, "int3": 0}
    exact = [
        changed(one, profile={**profile, "instructions": one.value})
        for one in (*jumped_to(BEFORE, fentry=151, fexit=216), *jumped_to(AFTER, fentry=after))
    ]
    costs = catalogue_prices()
    cells = tuple(
        modelled_cell(one, one.id, {"instruction": Fraction(one.overhead or 0)}, costs["xeon-e5410"])
        for one in exact
        if one.probe != "none"
    )
    # The document's processor is none of the catalogue's: nothing is predicted of its figures.
    assert {(cell.published, cell.role, cell.error) for cell in cells} == {(None, None, None)}
    modelled = ModelledRun(run="any", experiment="any", costs=used_prices(cells, costs), cells=cells)
    (assessment,) = assess(run(*exact), reports(), modelled)
    claim_outcomes = {outcome.claim.id: outcome for outcome in assessment.outcomes}
    assert claim_outcomes["fentry-is-as-before"].verdict is verdict
    assert claim_outcomes["fexit-is-jumped-to"].verdict is Verdict.UNKNOWN


def test_assessments_name_their_document() -> None:
    (assessment,) = assess(run(*mail_table("x86-32")), reports())
    assert isinstance(assessment, Assessment)
    assert "kprobes: support jump optimization on x86" in assessment.title
