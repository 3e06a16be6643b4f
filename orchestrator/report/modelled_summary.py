# SPDX-License-Identifier: GPL-2.0-only
"""Modelled times in their three most important sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from orchestrator.catalog.probes import probes
from orchestrator.report.claims import Assessment
from orchestrator.report.figures import published_figure
from orchestrator.report.findings import Finding, Rank
from orchestrator.report.summary import contradicted, most_important
from orchestrator.results.modelled import ModelledCell, ModelledRun


def modelled_summary(modelled: ModelledRun, assessments: Sequence[Assessment]) -> list[str]:
    """At most three: claims that do not hold, the largest time, how far predicted ones are off, what has none."""
    claims = [finding for assessment in assessments for finding in contradicted(assessment)]
    return most_important([*claims, *_largest(modelled), *_errors(modelled), *_without(modelled)])


def _largest(modelled: ModelledRun) -> Iterator[Finding]:
    times = [cell for cell in modelled.cells if cell.overhead is not None]
    if times:
        cell = max(times, key=lambda one: one.overhead or 0.0)
        low, high = cell.interval or (0.0, 0.0)
        beside = "" if cell.published is None else f"; published: {published_figure(cell.published)}"
        sentence = f"Largest overhead: {_name(cell)}, {cell.overhead:.1f} nsec ({low:.1f} to {high:.1f}){beside}."
        yield Finding(Rank.LARGEST, sentence)


def _errors(modelled: ModelledRun) -> Iterator[Finding]:
    predicted = [cell for cell in modelled.cells if cell.role == "predicted" and cell.error is not None]
    if predicted:
        errors = {cell.id: abs(cell.error or 0.0) for cell in predicted}
        worst = max(predicted, key=lambda cell: errors[cell.id])
        middle = f"in the median by {100 * median(errors.values()):.1f} %"
        at_worst = f"at worst by {100 * errors[worst.id]:.1f} % ({_name(worst)})"
        yield Finding(Rank.PUBLISHED, f"{len(predicted)} predicted times miss the published ones {middle}, {at_worst}.")


def _without(modelled: ModelledRun) -> Iterator[Finding]:
    without = [cell for cell in modelled.cells if cell.reason is not None]
    if without:
        counted = f"{len(without)} of {len(modelled.cells)} cells have no modelled time"
        rank = Rank.OTHER if len(without) < len(modelled.cells) else Rank.FAILED
        yield Finding(rank, f"{counted}, {without[0].id}: {(without[0].reason or '').splitlines()[0]}")


def _name(cell: ModelledCell) -> str:
    kind = probes().get(cell.probe)
    table = f"{cell.table}: " if cell.table else ""
    return f"{table}{kind.title if kind else cell.probe} on {cell.cpu}"
