# SPDX-License-Identifier: GPL-2.0-only
"""What becomes of a cell whose calls are measured with full buffers, too, and that fails there."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.benchmarks.calls import full_buffers
from orchestrator.benchmarks.calls.cell_work import HitCounts
from orchestrator.benchmarks.calls.full_buffers import full_facts, varying_full_facts, when_full
from orchestrator.benchmarks.calls.samples import Measurement
from orchestrator.errors import EvidenceError
from orchestrator.results.parameters import BPF_FULL, BPF_FULL_SAVES

ROOMY, FULL = (Measurement((value,), (value,), "syscall", 5000, batches=3, disturbed=0) for value in (700.0, 640.0))
HITS = HitCounts(1000, 0, None, None)


def same(when: str) -> None:
    """The probe is as it was armed."""


def changed(when: str) -> None:
    raise EvidenceError(f"what is armed changed {when}")


def failing(*_: object, **__: object) -> Any:
    raise EvidenceError("samples differ")


def armed(check: Callable[[str], None]) -> Any:
    attachment = SimpleNamespace(written_buffers=lambda: ["events"], fill=lambda: None)
    return SimpleNamespace(attachment=attachment, check_same=check)


def working(measure: Callable[..., Measurement] = lambda *_, **__: FULL) -> Any:
    kernel = SimpleNamespace(config={"CONFIG_HZ": "250"})
    return SimpleNamespace(
        exact=SimpleNamespace(measure_exact=measure),
        workload=SimpleNamespace(hits=1),
        cell=SimpleNamespace(repeats=2),
        ready=SimpleNamespace(guest=None, artifacts=SimpleNamespace(kernel=kernel)),
        deadline=SimpleNamespace(left=lambda: 60.0),
    )


@pytest.mark.parametrize("measure", [failing, lambda *_, **__: FULL])
def test_a_probe_that_has_changed_fails_the_cell(
    measure: Callable[..., Measurement], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_buffers, "count_hits", lambda *_, **__: HITS)
    with pytest.raises(EvidenceError, match="what is armed changed while buffers were full"):
        full_facts(working(measure), armed(changed), HITS, ROOMY)
    with pytest.raises(EvidenceError, match="what is armed changed while buffers were full"):
        when_full(working(), armed(changed), measure, None)


def test_a_figure_that_is_not_proved_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_buffers, "count_hits", lambda *_, **__: HITS)
    assert full_facts(working(), armed(same), HITS, ROOMY)[BPF_FULL_SAVES] == 60.0
    assert when_full(working(), armed(same), lambda: FULL, HITS) == FULL
    failed = full_facts(working(failing), armed(same), HITS, ROOMY)
    assert str(failed[BPF_FULL]).endswith("there is no number: samples differ")
    monkeypatch.setattr(full_buffers, "count_hits", failing)
    assert full_facts(working(), armed(same), HITS, ROOMY) == failed
    sample = when_full(working(), armed(same), lambda: FULL, HITS)
    assert sample == "samples differ"
    assert when_full(working(), armed(same), lambda: FULL, None) == FULL
    assert varying_full_facts(working(), ["events"], [ROOMY], [ROOMY], [FULL, sample]) == failed
