# SPDX-License-Identifier: GPL-2.0-only
"""Which tables a run is printed as."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.benchmarks.calls.report.capability_layout import ability_sheet, fits_abilities
from orchestrator.benchmarks.calls.report.list_layout import list_sheet
from orchestrator.benchmarks.calls.report.mail_layout import fits_mail, mail_sheet
from orchestrator.benchmarks.markers.report.layout import fits_markers, markers_sheet
from orchestrator.benchmarks.scaling.report.growth_rows import fits_mass, place_of
from orchestrator.benchmarks.scaling.report.layout import mass_sheet
from orchestrator.benchmarks.scaling.report.model_layout import BENCHMARK as MODEL
from orchestrator.benchmarks.scaling.report.model_layout import model_sheet
from orchestrator.benchmarks.system.report.comparison import fits_macro
from orchestrator.benchmarks.system.report.layout import macro_sheet
from orchestrator.report.panels import Panel, panels
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import RunRecord


def sheets(run: RunRecord) -> list[Sheet]:
    """Return the run's tables in its order, each in the layout of the document it is compared with."""
    return [_sheet(group) for group in grouped(panels(run))]


def _sheet(group: Sequence[Panel]) -> Sheet:
    if fits_mail(group[0]):
        return mail_sheet(group)
    if fits_markers(group[0]):
        return markers_sheet(group[0])
    if fits_macro(group[0]):
        return macro_sheet(group[0])
    if fits_mass(group[0]):
        return model_sheet(group) if group[0].first.benchmark == MODEL else mass_sheet(group)
    return ability_sheet(group[0]) if fits_abilities(group[0]) else list_sheet(group[0])


def grouped(all_panels: Iterable[Panel]) -> list[list[Panel]]:
    """Return the panels that are printed together: each alone, but for those that share a table of their document."""
    groups: list[list[Panel]] = []
    for panel in all_panels:
        fitting = next((group for group in groups if _belongs(panel, group)), None)
        if fitting is None:
            groups.append([panel])
        else:
            fitting.append(panel)
    return groups


def _belongs(panel: Panel, group: list[Panel]) -> bool:
    if fits_mass(panel):
        alike = fits_mass(group[0]) and _measured_alike(panel) == _measured_alike(group[0])
        taken = {place_of(cell) for other in group for cell in other.cells}
        return alike and not any(place_of(cell) in taken for cell in panel.cells)
    if not (fits_mail(panel) and all(fits_mail(other) for other in group)):
        return False
    if any(panel.references == other.references for other in group):
        return False
    return _shared(panel) == _shared(group[0])


def _measured_alike(panel: Panel) -> tuple[object, ...]:
    """What the numbers of probes in one table have in common; kernels stand side by side, but for the model."""
    first = panel.first
    kernel = panel.kernel if first.benchmark == MODEL else None
    return (first.benchmark, first.cpu, first.smp, first.clock, first.parameters.get("seed"), kernel)


def _shared(panel: Panel) -> tuple[object, ...]:
    """What the halves of one table have in common."""
    first = panel.first
    document = panel.reference.document_id if panel.reference else None
    return (document, first.smp, first.benchmark, first.metric, first.handler, first.clock)
