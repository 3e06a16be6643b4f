# SPDX-License-Identifier: GPL-2.0-only
"""What the result contract accepts, refuses and prints."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from drawn_records import cells
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from record_builders import cell, evidence, failed, fields, many_probes, recorded_build, reference, run
from report_examples import RUNS

from orchestrator.report.figures import NOTHING, ratio_figure
from orchestrator.results.contract import LONGEST_REASON, CellRecord, RunRecord, json_text
from orchestrator.results.printed_json import json_schema
from orchestrator.results.statistics import mean

IDENTITY = ["id", "table", "cpu", "smp", "kernel", "probe", "handler", "benchmark", "metric", "clock", "unit"]
OUTCOME = ["notes", "samples", "value", "overhead", "interval", "parameters", "verdict", "evidence", "reference"]
WALL = {"clock": "wall", "unit": "ns", "samples": [460.0, 470.0, 490.0], "value": 470.0}


def test_the_wall_clocks_value_is_the_median() -> None:
    record = cell("djprobe", **WALL, verdict="none", notes=["it drifted by 80 ns"])
    assert (record.value, record.verdict, record.notes) == (470.0, "none", ("it drifted by 80 ns",))


def test_a_cell_has_the_contracts_keys_in_order() -> None:
    shown = json.loads(json_text(run(cell("djprobe", reference=reference("djprobe")))))
    assert list(shown) == ["contract", "run", "experiment", "cells"]
    assert list(shown["cells"][0]) == [*IDENTITY, "status", *OUTCOME]
    assert list(shown["cells"][0]["evidence"])[:6] == [
        "mechanism",
        "probe_bytes",
        "hits",
        "calls",
        "restored",
        "clocksource",
    ]
    assert shown["cells"][0]["samples"] == [462.0] * 4
    assert shown["cells"][0]["reference"] == {
        "table": "djprobe-2005/list5",
        "value": 260.25,
        "overhead": 30.25,
        "unit": "ns",
    }


def test_only_a_cell_without_a_number_has_a_reason() -> None:
    shown = json.loads(json_text(run(failed("kprobe", "the handler never ran"))))["cells"][0]
    assert list(shown) == [*IDENTITY, "status", "reason", *OUTCOME]
    assert (shown["reason"], shown["samples"], shown["value"]) == ("the handler never ran", [], None)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"runs": 3}, "3 runs with 19 done in each are no evidence for 3 warm ones"),
        ({"done": 0}, "4 runs with 0 done in each"),
        ({"restored": False}, "the original bytes were not restored"),
        ({"mechanism": "none"}, "a cell with a probe cannot have the mechanism none"),
        ({"mechanism": "module"}, "only probes record events"),
        ({"recorded": None}, "only probes record events"),
        ({"recorded": 0}, "0 events at 12 places"),
        ({"places": 0}, "events at 0 places"),
    ],
)
def test_a_whole_system_s_number_needs_its_own_evidence(change: dict[str, Any], complaint: str) -> None:
    valid = recorded_build()[4].model_dump(mode="json")
    assert CellRecord.model_validate(valid).work is not None
    with pytest.raises(ValidationError, match=complaint):
        CellRecord.model_validate({**valid, "work": {**valid["work"], **change}})
    with pytest.raises(ValidationError, match="either the evidence of a probe or that of a whole system"):
        CellRecord.model_validate({**valid, "evidence": evidence("kprobe")})


@pytest.mark.parametrize(
    ("probe", "changes", "complaint"),
    [
        ("djprobe", {"evidence": None}, "a number needs either the evidence"),
        ("djprobe", {"evidence": evidence("djprobe", hits=4999)}, "4999 hits in 5000 calls"),
        ("djprobe", {"evidence": evidence("djprobe", restored=False)}, "the original bytes were not restored"),
        ("djprobe", {"evidence": evidence("none")}, "cannot have the mechanism none"),
        ("none", {"evidence": evidence("djprobe")}, "cannot have the mechanism jmp"),
        ("none", {"evidence": evidence("none", hits=1)}, "expected 0"),
        ("djprobe", {"samples": []}, "has samples"),
        ("djprobe", {"value": 463.0}, "not the mean"),
        ("djprobe", {"value": None}, "not the mean"),
        ("djprobe", {"reason": "why not"}, "has no reason"),
        ("djprobe", {"status": "failed"}, "needs a reason"),
        ("djprobe", {"status": "skipped", "reason": "a reason"}, "carries no samples"),
        ("djprobe", {"interval": [54.0, 53.0]}, "lower end"),
        ("djprobe", {"samples": [float("nan")] * 4, "value": float("nan")}, "finite"),
        ("djprobe", {"id": "../../etc/passwd"}, "pattern"),
        ("djprobe", {"surprise": 1}, "Extra inputs"),
        ("djprobe", {"clock": "sundial"}, "instructions"),
        ("djprobe", {"clock": "wall"}, "clock wall counts ns, not instructions"),
        ("djprobe", {"verdict": "none"}, "needs a note"),
        ("djprobe", WALL | {"value": 475.0}, "not the median"),
    ],
)
def test_contradictory_records_are_refused(probe: str, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        CellRecord.model_validate(fields(probe, **changes))


@pytest.mark.parametrize("left", ["value", "overhead", "interval", "samples"])
def test_a_failed_cell_carries_no_number(left: str) -> None:
    with pytest.raises(ValidationError, match="carries no samples"):
        failed("kprobe", "the guest panicked", **{left: fields("kprobe")[left]})


def test_a_baseline_that_was_never_probed_needs_no_restoring() -> None:
    assert cell("none", evidence=evidence("none", restored=False)).value == 409.0


def test_a_reason_quotes_a_guest_without_what_could_harm_a_terminal() -> None:
    hostile = "console:\r\n\x1b[2J\x00\udcff end\n" + "x" * 10_000
    reason = failed("kprobe", hostile).reason
    assert reason is not None
    assert reason.startswith("console:\n\\x1b[2J\\x00\\udcff end\nxxx")
    assert len(reason) == LONGEST_REASON


def test_a_run_has_each_cell_once() -> None:
    with pytest.raises(ValidationError, match="same id"):
        run(cell("none"), cell("none"))


def test_records_do_not_change() -> None:
    record, field = cell("none"), "value"
    with pytest.raises(ValidationError, match="frozen"):
        setattr(record, field, 1.0)


@given(st.lists(cells(), max_size=3, unique_by=lambda drawn: drawn.id))
def test_json_gives_back_the_same_run(drawn: list[CellRecord]) -> None:
    record = run(*drawn)
    text = json_text(record)
    assert text.isascii()
    assert text.endswith("}\n")
    assert RunRecord.model_validate_json(text) == record


SCHEMA = jsonschema.Draft202012Validator(json_schema(RunRecord))


def test_the_schema_names_every_field_and_allows_no_other() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema(RunRecord))
    cell_schema = json_schema(RunRecord)["$defs"]["CellRecord"]
    optional = {"work", "text", "profile", "executed", "purposes", "worker"}
    assert set(cell_schema["properties"]) == {*IDENTITY, "status", "reason", *OUTCOME, *optional}
    assert cell_schema["additionalProperties"] is False


@given(st.lists(cells(), max_size=3, unique_by=lambda drawn: drawn.id))
def test_printed_json_satisfies_the_schema(drawn: list[CellRecord]) -> None:
    SCHEMA.validate(json.loads(json_text(run(*drawn))))


@pytest.mark.parametrize("record", [*RUNS.values(), run(*recorded_build()), run(*many_probes())])
def test_runs_of_all_kinds_satisfy_the_schema(record: RunRecord) -> None:
    SCHEMA.validate(json.loads(json_text(record)))


def test_the_schema_refuses_what_the_contract_does_not_have() -> None:
    shown = json.loads(json_text(run(cell("none"))))
    for wrong in ({**shown, "contract": 2}, {**shown, "more": 1}, {**shown, "cells": [{"id": "x"}]}):
        with pytest.raises(jsonschema.ValidationError):
            SCHEMA.validate(wrong)


def test_a_run_without_a_version_is_of_the_first_one() -> None:
    shown = json.loads(json_text(run(cell("none"))))
    assert shown.pop("contract") == 1
    assert RunRecord.model_validate(shown) == run(cell("none"))


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(min_value=1, max_value=50))
def test_the_mean_of_equal_samples_is_the_sample(value: float, count: int) -> None:
    assert mean([value] * count) == value


def test_the_mean_is_that_of_the_document() -> None:
    assert mean([1247, 1246, 1245, 1247]) == 1246.25
    with pytest.raises(ValueError, match="data point"):
        mean([])


def test_a_ratio_to_zero_or_less_is_a_dash() -> None:
    assert ratio_figure(627.0, 53.0) == "11.83"
    assert ratio_figure(627.0, 0.0) == NOTHING
    assert ratio_figure(627.0, -115.0) == NOTHING
