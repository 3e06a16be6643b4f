# SPDX-License-Identifier: GPL-2.0-only
"""A run as one page: tables, charts, claims, and for each cell what proves it and how to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from orchestrator.errors import LabError
from orchestrator.program import PROGRAM
from orchestrator.report.claims import assess
from orchestrator.report.flame_graph import flame_graph
from orchestrator.report.html.attachments import Attachment, Attachments, Beside, Page
from orchestrator.report.html.cell_part import CellPart, Flames, repeat_command
from orchestrator.report.html.chart_picture import NOT_DRAWN, can_draw
from orchestrator.report.html.folded_claims import folded_claims
from orchestrator.report.html.frame import Link, render
from orchestrator.report.html.inline_picture import inline_picture
from orchestrator.report.html.run_sentences import run_sentences
from orchestrator.report.html.surroundings import ALONE, Surroundings
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.panels import groups
from orchestrator.report.profile_sheets import profile_sheet
from orchestrator.report.sheet import Sheet
from orchestrator.report.summary import summary
from orchestrator.results.contract import CellRecord
from orchestrator.results.profile import CellProfile, load_profile
from orchestrator.results.run_files import Boot, kept_file, module_folders, module_source, provenance
from orchestrator.results.runs import Run

LARGEST_PAGE = 5 << 20
"""Bytes of a page above which attachments and flame graphs become files beside it."""
MOST_CHARTS = 10
"""Charts of a page; one takes 0.1 s and 15 kB."""
_LARGEST_FILE = 1 << 20
_SYMBOLS, _FEW_SYMBOLS = 20, 5
"""Of a profile, those that executed most: of a run of many cells fewer, since a symbol of 1000 cells takes 60 kB."""
_MANY_CELLS = 100


@dataclass(frozen=True)
class TablePart:
    """A table of the run, and its charts as elements of the page."""

    sheet: Sheet
    id: str
    pictures: Sequence[Markup]


@dataclass(frozen=True)
class BootPart:
    """A guest: how it was started, on what."""

    name: str
    anchor: str
    kernel: str
    packages: str
    command: str


@dataclass(frozen=True)
class FilePart:
    """An attachment as the page shows it: ``encoded`` in the page, or a ``link``."""

    id: str
    title: str
    path: str
    size: str
    cut: str
    encoded: str
    link: str | None


@dataclass(frozen=True)
class _Content:
    """All that a page is made of; ``flames`` are flame graphs as SVG, by cell."""

    run: Run
    links: Sequence[Link]
    summary: Sequence[str]
    tables: Sequence[TablePart]
    remarks: Sequence[str]
    cells: Sequence[CellPart]
    boots: Sequence[BootPart]
    attachments: Sequence[Attachment]
    flames: Mapping[str, str]


def run_page(run: Run, registry: ReportRegistry, folder: str | None = None, surroundings: Surroundings = ALONE) -> Page:
    """Return the page of a run. Parts of the run that are not there are left out.

    Above ``LARGEST_PAGE`` bytes, consoles, C and flame graphs go into ``folder`` beside the page; without one they
    stay in the page, however large it is. Raises LabError for a damaged profile.
    """
    content = _content(run, registry, surroundings)
    text = _render(content, registry, None)
    if folder is None or len(text.encode()) <= LARGEST_PAGE:
        return Page(text)
    beside = Beside(folder)
    text = _render(content, registry, beside)
    return Page(text, folder, beside.files)


def _content(run: Run, registry: ReportRegistry, surroundings: Surroundings) -> _Content:
    made_with = provenance(run.directory)
    attachments = Attachments()
    anchors = {boot.name: f"guest-{number}" for number, boot in enumerate(made_with.boots, 1)}
    flames: dict[str, str] = {}
    remarks: list[str] = []
    tables = list(_tables(run, registry, remarks, surroundings))
    cells = []
    for number, record in enumerate(run.record.cells, 1):
        history = surroundings.history(record.id)
        links = [Link(history, "Its history")] if history is not None else []
        for boot in made_with.boots:
            if boot.has(record):
                links.append(Link(f"#{anchors[boot.name]}", f"Guest {boot.name}"))
                links += _files_of(run, boot, record, attachments)
        part = CellPart(record, f"cell-{number}", repeat_command(run.directory, record), links)
        cells.append(_with_profile(part, run, flames))
    return _Content(
        run=run,
        links=surroundings.links,
        summary=[*run_sentences(run.record, made_with, run.unfinished), *surroundings.remarks],
        tables=tables,
        remarks=remarks,
        cells=cells,
        boots=[_boot(boot, anchors[boot.name]) for boot in made_with.boots],
        attachments=attachments.all,
        flames=flames,
    )


def _render(content: _Content, registry: ReportRegistry, beside: Beside | None) -> str:
    claims = [folded_claims(one) for one in assess(content.run.record, registry)]
    there = {
        "Tables": content.tables,
        "Claims": claims,
        "Cells": content.cells,
        "Guests": content.boots,
        "Files": content.attachments,
    }
    return render(
        "run.html.j2",
        content.run.record.experiment,
        [*content.links, *(Link(f"#{name.lower()}", name) for name, parts in there.items() if parts)],
        summary=content.summary,
        findings=summary(content.run.record, registry),
        tables=content.tables,
        remarks=content.remarks,
        claims=claims,
        cells=[_with_flames(cell, content.flames.get(cell.record.id), beside) for cell in content.cells],
        choices=_choices(content.cells),
        boots=content.boots,
        files=[_file(one, beside) for one in content.attachments],
    )


def _tables(run: Run, registry: ReportRegistry, remarks: list[str], surroundings: Surroundings) -> Iterator[TablePart]:
    drawn = 0
    drawable = can_draw()
    left_out = 0
    for number, (kind, group) in enumerate(groups(run.record, registry), 1):
        pictures = []
        sheet = kind.sheet(group)
        for chart in kind.charts(group).values():
            if drawable and drawn < MOST_CHARTS:
                drawn += 1
                pictures.append(surroundings.picture(chart, f"chart-{drawn}"))
            else:
                left_out += 1
        yield TablePart(sheet, f"table-{number}", pictures)
    if left_out and drawable:
        remarks.append(f"{left_out} more charts: {PROGRAM} report {run.record.run} --charts")
    elif left_out:
        remarks.append(NOT_DRAWN)


def _files_of(run: Run, boot: Boot, record: CellRecord, attachments: Attachments) -> Iterator[Link]:
    printed = attachments.take(
        f"{boot.name}.console",
        f"Console of {boot.name}",
        lambda path: kept_file(run.directory, path, _LARGEST_FILE),
    )
    if printed is not None:
        yield Link(f"#{printed.id}", "its console")
    for folder in module_folders(run.directory, boot, record):
        module = folder.rpartition("/")[2]
        sources = attachments.take(
            folder, f"C of {module}, {boot.kernel.name}", lambda path: module_source(run.directory, path, _LARGEST_FILE)
        )
        if sources is not None:
            yield Link(f"#{sources.id}", f"C of {module}")


def _with_profile(part: CellPart, run: Run, flames: dict[str, str]) -> CellPart:
    profile = _profile(run, part.record)
    if profile is None:
        return part
    if profile.stacks:
        flames[part.record.id] = flame_graph(profile)
    listed = _SYMBOLS if len(run.record.cells) <= _MANY_CELLS else _FEW_SYMBOLS
    return replace(part, profile=profile_sheet(profile, {}, listed))


def _profile(run: Run, record: CellRecord) -> CellProfile | None:
    """The cell's profile; None where the file is not there, or is another one."""
    if record.profile is None:
        return None
    try:
        return load_profile(run.directory, record)
    except LabError:
        return None


def _with_flames(cell: CellPart, svg: str | None, beside: Beside | None) -> CellPart:
    if svg is None:
        return cell
    if beside is not None:
        link = beside.put(f"{cell.anchor}-flames.svg", svg.encode())
        return replace(cell, flames=Flames(link=link))
    picture = inline_picture(
        svg, f"{cell.anchor}-flames", f"Flame graph of {cell.record.id}", "Instructions per call, by the stack of calls"
    )
    return replace(cell, flames=Flames(picture=picture))


def _boot(boot: Boot, anchor: str) -> BootPart:
    kernel = f"{boot.kernel.name} {boot.kernel.release}".strip()
    packages = ", ".join(f"{name} {version}" for name, version in boot.kernel.packages.items())
    return BootPart(boot.name, anchor, kernel, packages, shlex.join(boot.qemu))


def _file(attachment: Attachment, beside: Beside | None) -> FilePart:
    file = attachment.file
    link = None if beside is None else beside.put(attachment.name, file.content)
    cut = f", {_size(file.left_out)} are left out" if file.left_out else ""
    encoded = attachment.encoded if beside is None else ""
    return FilePart(attachment.id, attachment.title, file.path, _size(len(file.content)), cut, encoded, link)


def _size(count: int) -> str:
    return f"{count} bytes" if count < 10_000 else f"{count / 1000:.0f} kB"


def _choices(cells: Sequence[CellPart]) -> Mapping[str, Sequence[str]]:
    """What the list of cells can be filtered by, with the values that occur."""
    return {
        "status": sorted({cell.record.status for cell in cells}),
        "probe": sorted({cell.record.probe for cell in cells}),
        "kernel": sorted({cell.record.kernel for cell in cells}),
    }
