# SPDX-License-Identifier: GPL-2.0-only
"""A run as one page: tables, charts, claims, and each cell with its evidence and the command that repeats it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from orchestrator.errors import LabError
from orchestrator.plain_text import counted, listed, shown
from orchestrator.profile.printed.flame_graph import flame_graph
from orchestrator.profile.printed.profile_sheets import profile_sheet
from orchestrator.profile.stored.profile_files import load_profile
from orchestrator.program import PROGRAM
from orchestrator.report.claims import Assessment, all_claims, assess
from orchestrator.report.figures import NOTHING, figure
from orchestrator.report.html.frame import PAGE, AttachedFile, NavigationLink, Page, render
from orchestrator.report.html.pictures import NOT_DRAWN, can_draw, chart_picture, inline_picture
from orchestrator.report.modelled_forms import TimesView
from orchestrator.report.modelled_sheets import modelled_sheets
from orchestrator.report.output import Output
from orchestrator.report.run_view import RunView
from orchestrator.report.sheet import Sheet
from orchestrator.report.summary import summary
from orchestrator.report.table_report import ReportRegistry, published_overhead, run_tables
from orchestrator.results.contract import CellRecord, RunRecord, TextEvidence
from orchestrator.results.recorded_provenance import BootProvenance, RecordedProvenance
from orchestrator.results.run_files import (
    KeptFile,
    kept_file,
    module_folders,
    module_source,
    readable_provenance,
    repeat_command,
)
from orchestrator.results.runs import Run

_MOST_SAMPLES = 100
_MOST_ITEMS = 20


@dataclass(frozen=True)
class CellPart:
    """A cell of the page: its record, links, profile, and the command that repeats it."""

    record: CellRecord
    anchor: str
    repeat: str | None
    links: Sequence[NavigationLink]
    profile: Sheet | None
    flames: str | None
    """Its flame graph as SVG."""

    @property
    def interval(self) -> str:
        if self.record.interval is None:
            return NOTHING
        low, high = (figure(end, self.record.unit) for end in self.record.interval)
        return low if low == high else f"{low} to {high}"

    @property
    def samples(self) -> str:
        """The samples in order, equal neighbours as ``4 x 1048``."""
        shown = self.record.samples[:_MOST_SAMPLES]
        runs = [
            (value, len(list(group))) for value, group in groupby(figure(sample, self.record.unit) for sample in shown)
        ]
        texts = [value if times == 1 else f"{times} x {value}" for value, times in runs]
        rest = len(self.record.samples) - len(shown)
        return ", ".join([*texts, *([f"{rest} more"] if rest else [])])

    @property
    def facts(self) -> Mapping[str, Mapping[str, str]]:
        """The record's other fields by group."""
        record = self.record
        groups = {
            "Parameters": record.parameters,
            "Evidence": _fields(record.evidence),
            "Evidence of work": _fields(record.work),
            "Kernel text": _kernel_text(record.text),
            "Profile": _fields(record.profile),
            "Overhead by purpose": record.purposes,
        }
        facts = {name: {key: _text(value) for key, value in group.items()} for name, group in groups.items() if group}
        shared = {"CPU": record.cpu, "CPUs": str(record.smp), "benchmark": record.benchmark, "metric": record.metric}
        if record.worker is not None:
            shared["measured by"] = record.worker
        return {"Cell": shared, **facts}


def _fields(model: Any) -> Mapping[str, Any]:
    fields = {} if model is None else model.model_dump()
    return {key: value for key, value in fields.items() if value not in (None, "", ())}


def _kernel_text(text: TextEvidence | None) -> Mapping[str, Any]:
    """The evidence, with switched branches by static key; their bytes are in results.json."""
    if text is None or not text.switched:
        return _fields(text)
    places: dict[str, list[str]] = {}
    for branch in text.switched:
        places.setdefault(branch.key, []).append(branch.place)
    switched = "; ".join(f"by key {key}: {_text(branches)}" for key, branches in places.items())
    return {**_fields(text), "switched": switched}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in list(value.items())[:_MOST_ITEMS])
    if isinstance(value, list | tuple):
        return ", ".join(shown([_text(item) for item in value], _MOST_ITEMS, "{} more"))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


_STARTED = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)\d\d-")
_CLOCKS = {"instructions": "counted in instructions", "wall": "timed in nanoseconds of the guest's clock"}


def run_sentences(run: RunRecord, made_with: RecordedProvenance, unfinished: int) -> Iterator[str]:
    """Sentences on what was measured, and with what outcome."""
    cells = run.cells
    if not cells:
        yield f"Run {run.run} of experiment {run.experiment} has no cell with an outcome yet."
        return
    what = " and ".join(_CLOCKS[clock] for clock in dict.fromkeys(cell.clock for cell in cells))
    yield (
        f"Experiment {run.experiment} measured {counted(len(cells), 'cell')} of "
        f"{_named(cell.benchmark for cell in cells)} on "
        f"{_named(cell.cpu for cell in cells)} with {_named(cell.kernel for cell in cells)} and the probes "
        f"{_named(cell.probe for cell in cells)}, {what}."
    )
    states = Counter(cell.status for cell in cells)
    outcome = ", ".join(f"{number} {status}" for status, number in states.items() if status != "ok")
    rest = f"; {outcome}" if outcome else ""
    open_cells = f"; {unfinished} not measured yet" if unfinished else ""
    started = _STARTED.match(run.run)
    when = "" if started is None else " on {}-{}-{} at {}:{}".format(*started.groups())
    qemus = [session.qemu for session in made_with.sessions if session.qemu]
    tools = f" by {_named(qemus)}" if qemus else ""
    yield f"Run {run.run}{tools}{when}: {states['ok']} with a number and its proof{rest}{open_cells}."


_named = partial(listed, most=6, rest="{} more")


def sheets_page(
    title: str, sheets: Sequence[Sheet], assessments: Sequence[Assessment] = (), summary: Sequence[str] = ()
) -> str:
    """A page of these tables and claims, below the sentences of ``summary``."""
    links = [NavigationLink("#tables", "Tables"), *([NavigationLink("#claims", "Claims")] if assessments else [])]
    return render(
        "sheets.html.j2", title, links, findings=summary, sheets=sheets, claims=list(map(all_claims, assessments))
    )


DrawnTable = tuple[Sheet, Sequence[Markup]]
"""A table with its charts."""


@dataclass(frozen=True)
class PageContext:
    """How a site or a command embeds a run's page: ``links`` to others, ``remarks`` on the run, addresses of histories.

    Tables that say the same ``instead`` of the run's own come before these, which then have no charts.
    """

    links: Sequence[NavigationLink] = ()
    remarks: Sequence[str] = ()
    history: Callable[[str], str | None] = lambda cell: None
    instead: Sequence[DrawnTable] = ()


ALONE = PageContext()


LARGEST_PAGE = 5 << 20
"""Bytes of a page above which attachments and flame graphs become separate files."""
MOST_CHARTS = 10
"""The most charts of a page; one takes 0.1 s and 15 kB."""
_LARGEST_FILE = 1 << 20
_SYMBOLS, _FEW_SYMBOLS = 20, 5
"""Listed symbols of a profile, and those of a run of many cells: one symbol of 1000 cells takes 60 kB."""
_MANY_CELLS = 100


def run_page(run: Run, registry: ReportRegistry, folder: str | None = None, context: PageContext = ALONE) -> Page:
    """The page of a run, without missing files.

    Above ``LARGEST_PAGE`` bytes, consoles, C sources and flame graphs become files in ``folder``; without a folder they
    stay in the page. Raises LabError for a damaged profile.
    """
    made_with = readable_provenance(run.directory)
    attachments: dict[str, AttachedFile] = {}
    remarks: list[str] = []
    tables = [*context.instead, *_tables(run, registry, remarks, has_charts=not context.instead)]
    claims = list(map(all_claims, assess(run.record, registry)))
    cells: list[CellPart] = []
    for number, record in enumerate(run.record.cells, 1):
        history = context.history(record.id)
        links = [NavigationLink(history, "History")] if history is not None else []
        for guest, boot in enumerate(made_with.boots, 1):
            if boot.has(record):
                links.append(NavigationLink(f"#guest-{guest}", f"Guest {boot.name}"))
                links += _files_of(run, boot, record, attachments)
        repeat = repeat_command(run.directory, record)
        cells.append(CellPart(record, f"cell-{number}", repeat, links, *_profile(run, record)))

    def text(beside: Page | None) -> str:
        files = list(attachments.values())
        there = {"Tables": tables, "Claims": claims, "Cells": cells, "Guests": made_with.boots, "Files": files}
        return render(
            "run.html.j2",
            run.record.experiment,
            [*context.links, *(NavigationLink(f"#{name.lower()}", name) for name, parts in there.items() if parts)],
            summary=[*run_sentences(run.record, made_with, run.unfinished), *context.remarks],
            findings=summary(run.record, registry),
            tables=tables,
            remarks=remarks,
            claims=claims,
            cells=cells,
            flames=lambda cell: _flames(cell, beside),
            boots=made_with.boots,
            shell=shlex.join,
            figure=figure,
            published=published_overhead,
            files=[(file, beside.put(file.name, file.file.content) if beside else None) for file in files],
            size=lambda count: f"{count} bytes" if count < 10_000 else f"{count / 1000:.0f} kB",
        )

    page = text(None)
    if folder is None or len(page.encode()) <= LARGEST_PAGE:
        return Page(page)
    beside = Page("", folder)
    return replace(beside, text=text(beside))


def _tables(run: Run, registry: ReportRegistry, remarks: list[str], *, has_charts: bool) -> Iterator[DrawnTable]:
    drawn = left_out = 0
    drawable = can_draw()
    for kind, groups in run_tables(run.record, registry):
        pictures = []
        sheet = kind.sheet(groups)
        for chart in kind.charts(groups).values() if has_charts else ():
            if drawable and drawn < MOST_CHARTS:
                drawn += 1
                pictures.append(chart_picture(chart, f"chart-{drawn}"))
            else:
                left_out += 1
        yield sheet, pictures
    if left_out and drawable:
        remarks.append(f"{left_out} more charts: {PROGRAM} report {run.record.run} --charts")
    elif left_out:
        remarks.append(NOT_DRAWN)


def _files_of(
    run: Run, boot: BootProvenance, record: CellRecord, attachments: dict[str, AttachedFile]
) -> Iterator[NavigationLink]:
    """Attach the console of a cell's guest and the sources of its modules, if kept, and yield links to them."""
    attachable: list[tuple[str, str, str, Callable[[Path, str, int], KeptFile | None]]]
    attachable = [(f"{boot.name}.console", f"Console of {boot.name}", "Console", kept_file)]
    for folder in module_folders(run.directory, boot, record):
        title = f"C of {folder.rpartition('/')[2]}"
        attachable.append((folder, f"{title}, {boot.kernel.name}", title, module_source))
    for path, title, text, read in attachable:
        if path not in attachments and (file := read(run.directory, path, _LARGEST_FILE)) is not None:
            attachments[path] = AttachedFile(f"file-{len(attachments) + 1}", title, file)
        if path in attachments:
            yield NavigationLink(f"#{attachments[path].id}", text)


def _profile(run: Run, record: CellRecord) -> tuple[Sheet | None, str | None]:
    """A cell's profile and its flame graph, unless there is none, or the file is missing or changed."""
    try:
        profile = load_profile(run.directory, record)
    except LabError:
        return None, None
    listed = _SYMBOLS if len(run.record.cells) <= _MANY_CELLS else _FEW_SYMBOLS
    return profile_sheet(profile, {}, listed), flame_graph(profile) if profile.stacks else None


def _flames(cell: CellPart, beside: Page | None) -> Markup:
    """A cell's flame graph, or a link to it."""
    assert cell.flames is not None  # the template has checked
    if beside is not None:
        link = beside.put(f"{cell.anchor}-flames.svg", cell.flames.encode())
        return Markup('<p><a href="{}">Flame graph</a></p>').format(link)
    title = f"Flame graph of {cell.record.id}"
    picture = inline_picture(cell.flames, f"{cell.anchor}-flames", title, "Instructions per call, by call stack")
    region = Markup('<div class="scroll" role="region" aria-label="{}" tabindex="0">{}</div>')
    return region.format(title, picture)


def write_html(printed: RunView, output: Output) -> None:
    """The page of a run, as a format of ``report``."""
    run = printed.run
    output.page(lambda folder: run_page(run, printed.registry, folder), run.directory / PAGE)


def write_modelled_html(printed: TimesView, output: Output) -> None:
    """The page of a run's modelled times, as a format of ``report``."""
    sheets, name = modelled_sheets(printed.modelled), printed.modelled.experiment
    text = sheets_page(f"{name}, modelled", sheets, printed.assessments, printed.summary)
    output.page(lambda _: Page(text), printed.run.directory / PAGE)
