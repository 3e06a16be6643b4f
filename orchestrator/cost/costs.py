# SPDX-License-Identifier: GPL-2.0-only
"""The costs that a run has measured, a hit of each subject on each kernel, and their output formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from orchestrator.benchmarks.calls.call_programs import is_of_failed_calls
from orchestrator.benchmarks.registry import reports
from orchestrator.catalog.probes import BASELINE
from orchestrator.comparison.comparison import CellChange, CellPair, Comparison, compare
from orchestrator.cost.in_options import in_options
from orchestrator.cost.line import CostLine
from orchestrator.cost.own_functions import OwnFunction, own_functions
from orchestrator.cost.reference import Reference
from orchestrator.cost.subjects import Subject
from orchestrator.errors import LabError
from orchestrator.experiment.source import stored_budgets
from orchestrator.plain_text import counted, shown
from orchestrator.probes.user_bpf_attachment import is_not_loaded
from orchestrator.profile.printed.profile_sheets import difference_sheet
from orchestrator.profile.stored.profile_difference import ProfileDifference, difference
from orchestrator.profile.stored.profile_files import load_pair, load_profile
from orchestrator.program import command
from orchestrator.report.sheet import NOTHING, Footnote, Grid, Row, Sheet, csv_text, figure, signed_figure, used_columns
from orchestrator.report.text import details, github_comment, grid_table, made_with, markdown_footnote, paragraph
from orchestrator.results.contract import CONTRACT_OF_COMPARISONS, CellRecord, RunRecord
from orchestrator.results.exact import exact
from orchestrator.results.modelled import ModelledCell
from orchestrator.results.parameters import (
    ABOUT_MAPS,
    AT,
    ATTACHED,
    BPF_INSTRUCTIONS,
    BPF_MACHINE_CODE,
    BPF_STACK,
    BPF_VERIFIED,
    ENTERED,
    LISTED,
    CountParameter,
)
from orchestrator.results.runs import Run

_NO_VERDICT = "no verdict"
"""The beginning of the note on an overhead that may as well be none (``varying_figures``)."""


@dataclass(frozen=True)
class Cost:
    """A subject's cost on one kernel: its cell, the cell's modelled time, and its change, with its budgets.

    ``new`` says why there was nothing to compare it with, ``unknown`` why what there was has no number.
    ``own_function`` is a function of a module without a probe: a hit is its execution, as nothing is known of calls
    without it.
    ``no_baseline`` says why calls without it have no number, where this leaves no cost.
    """

    subject: Subject
    cell: CellRecord
    time: ModelledCell | None = None
    change: CellChange | None = None
    new: str = ""
    unknown: str = ""
    own_function: OwnFunction | None = None
    no_baseline: str = ""

    @property
    def of_call(self) -> int:
        """Hits of one call."""
        return 1 if self.cell.evidence is None else self.cell.evidence.hits_per_call

    @property
    def hit(self) -> float | None:
        """Instructions of a hit; None where the calls vary by more than it."""
        if self.own_function is not None:
            return float(self.own_function.instructions)
        if self.cell.overhead is None or self.cell.verdict == "none":
            return None
        return float(exact(self.cell.overhead) / self.of_call)

    @property
    def nanoseconds(self) -> float | None:
        """The modelled time of a hit."""
        return None if self.time is None or self.time.overhead is None else self.time.overhead / self.of_call

    @property
    def difference(self) -> float | None:
        """Instructions that a hit takes more than before."""
        overhead = None if self.change is None else self.change.overhead
        return None if overhead is None else float(exact(overhead.value) / self.of_call)

    @property
    def mechanism(self) -> str:
        if self.own_function is not None:
            return f"in {self.own_function.name}"
        seen = "" if self.cell.evidence is None else self.cell.evidence.mechanism
        elsewhere = LISTED.of(self.cell) if seen == "elsewhere" else None
        if elsewhere is not None:
            return f"at {elsewhere.partition(',')[0]}"
        return ATTACHED.of(self.cell) or self.subject.mechanism or ("" if seen == "own" else seen)

    @property
    def reason(self) -> str | None:
        """Why it has no number, in the words of the command."""
        if self.cell.verdict == "none":
            return next((note for note in self.cell.notes if note.startswith(_NO_VERDICT)), _NO_VERDICT)
        if self.no_baseline:
            return f"the calls without it were not measured: {in_options(self.no_baseline)}"
        return None if self.cell.reason is None else in_options(self.cell.reason)

    @property
    def hits(self) -> int | None:
        return None if self.cell.evidence is None else self.cell.evidence.hits

    @property
    def exceeded(self) -> Sequence[str]:
        """Sentences on figures that exceed their budgets."""
        return () if self.change is None or self.unknown else self.change.exceeded

    @property
    def is_wrong(self) -> bool:
        """Whether it exceeds what is allowed, or nobody can tell."""
        return bool(self.exceeded or self.unknown or self.no_baseline or self.cell.status == "failed")

    @property
    def allowed(self) -> str:
        """The budgets that the user has given it, of a hit as far as they are not percentages."""
        budgeted = () if self.change is None else self.change.budgeted
        return ", ".join(str(figure.budget.times(Fraction(1, self.of_call))) for figure in budgeted if figure.is_own)

    @property
    def notes(self) -> Sequence[str]:
        """What was done with a BPF program's maps, and what its hits do with them."""
        return [said for parameter in ABOUT_MAPS if (said := parameter.of(self.cell))]

    def plain(self) -> Mapping[str, Any]:
        """The cost for programs."""
        band = None if self.time is None else self.time.interval
        low, high = (None, None) if band is None else (end / self.of_call for end in band)
        return {
            "subject": self.subject.source,
            "program": self.subject.name or None,
            "kernel": self.cell.kernel,
            "cell": self.cell.id,
            "status": self.cell.status,
            "reason": self.reason,
            "instructions": self.hit,
            "interval": [end / self.of_call for end in self.cell.interval] if self.cell.interval else None,
            "change": self.difference,
            "mechanism": self.mechanism or None,
            "hits": self.hits,
            "hits_per_call": None if self.hits is None else self.of_call,
            "nanoseconds": self.nanoseconds,
            "nanoseconds_from": low,
            "nanoseconds_to": high,
            **{key: parameter.of(self.cell) for key, (_, parameter) in _OF_PROGRAMS.items()},
            "exceeded": list(self.exceeded),
            "notes": list(self.notes),
            "new": self.new or None,
            "unknown": self.unknown or None,
        }


_OF_PROGRAMS: Mapping[str, tuple[str, CountParameter]] = {
    "verified": ("total_insns", BPF_VERIFIED),
    "program_instructions": ("prog_size", BPF_INSTRUCTIONS),
    "machine_code_bytes": ("prog_size_jited", BPF_MACHINE_CODE),
    "stack_bytes": ("stack_depth", BPF_STACK),
}
"""Figures of BPF programs, with the names of veristat's columns."""


def costs_in(
    lines: Sequence[CostLine], record: RunRecord, changes: Comparison, reference: Reference | None = None
) -> Sequence[Cost]:
    """The costs of the lines in a run, in their order and that of the kernels; equal titles of two files together."""
    times = reports().times(record)
    changed = {cell.pair.after.id: cell for cell in changes.cells if cell.pair.after is not None}
    refused = {pair.after.id: why for pair, why in changes.not_compared if pair.after is not None}
    rows = [
        Cost(
            line.subject,
            cell,
            times.get(cell.id),
            changed.get(cell.id),
            "" if reference is None else reference.why_new(cell),
            refused.get(cell.id) or ("" if reference is None else reference.unknown(cell) or _doubt(changed, cell)),
        )
        for line in lines
        for cell in line.records(record)
    ]
    titles = list(dict.fromkeys(cost.subject.title for cost in rows))
    return sorted(rows, key=lambda cost: titles.index(cost.subject.title))


def _doubt(changed: Mapping[str, CellChange], cell: CellRecord) -> str:
    """Why no increase of the cell can exceed its budget; empty if one can, or none is budgeted."""
    budgeted = changed[cell.id].budgeted if cell.id in changed else ()
    increases = (of_figure for of_figure in budgeted if of_figure.budget.most is None)
    doubts = (increase.difference.undecided for increase in increases if increase.is_own)
    return next(filter(None, doubts), "")


_UNJUDGED = "calls fail without the module, so what a hit adds to them is not known, and no budget judges it"


def with_own_functions(measured: Sequence[Cost], run: Run, *, is_judged: bool) -> Sequence[Cost]:
    """The same costs; of a module whose calls fail where it is not loaded, those of its own functions.

    If they are to be judged, they are unknown. A baseline that failed for another reason leaves no cost.
    """
    costs_of = [each for cost in measured for each in _without_baseline(cost, run)]
    return [
        replace(cost, unknown=_UNJUDGED) if is_judged and cost.own_function is not None else cost for cost in costs_of
    ]


def _without_baseline(cost: Cost, run: Run) -> Sequence[Cost]:
    baseline = _baseline(cost.cell, run.record)
    is_alone = cost.cell.status == "ok" and cost.cell.overhead is None
    if not is_alone or baseline is None or baseline.status == "ok":
        return [cost]
    reason = baseline.reason or ""
    if baseline.status != "failed" or not is_of_failed_calls(reason):
        return [replace(cost, no_baseline=reason)]
    return _own_costs(cost, run) or [replace(cost, no_baseline=reason)]


def _own_costs(cost: Cost, run: Run) -> Sequence[Cost]:
    proved = ENTERED.of(cost.cell)
    if proved is None or cost.cell.profile is None:
        return []
    functions = own_functions(load_profile(run.directory, cost.cell), proved)
    return [replace(cost, own_function=function, time=None) for function in functions]


_HEADINGS = ("a hit", "change", "allowed", "nsec", "mechanism", "hits", "verified", "size", "stack")
_ALWAYS = 1
_SYMBOLS = 10
_GONE = 10


def cost_sheet(name: str, costs: Sequence[Cost], missed: Sequence[str] = (), gone: Sequence[str] = ()) -> Sheet:
    """A row for each program and kernel; without a number, its status, and the reason as a footnote.

    ``missed`` are sentences on what has no row, ``gone`` on what the reference alone has.
    """
    several = len({cost.cell.kernel for cost in costs}) > 1
    reasons = {cost.reason: True for cost in costs if cost.reason}
    remarks = reasons | {note: False for cost in costs for note in cost.notes}
    rows = list(_rows(costs, list(remarks)))
    headings, narrowed = used_columns(_HEADINGS, rows, _ALWAYS)
    first = costs[0].cell
    release = "" if several else f", kernel {first.kernel}"
    return Sheet(
        title=name,
        facts=[f"{first.cpu}, {first.smp} CPU{release}"],
        grid=Grid(headings, [narrowed], narrowest=24),
        sentences=[*missed, *_sentences(costs, headings), *shown(gone, _GONE)],
        footnotes=[Footnote(number, *remark) for number, remark in enumerate(remarks.items(), start=1)],
    )


def _rows(costs: Sequence[Cost], remarks: Sequence[str]) -> Iterator[Row]:
    """A row for each subject; with several kernels or files a heading, and a row for each of them below."""
    of_place = [of for of in (_file, _kernel) if len({of(cost) for cost in costs}) > 1]
    for title, group in groupby(costs, key=lambda cost: cost.subject.title):
        if of_place:
            yield Row(title, [""] * len(_HEADINGS))
        for cost in group:
            style = "red" if cost.is_wrong else ""
            label = ", ".join(of(cost) for of in of_place) or title
            yield Row(label, _figures(cost, remarks), style, 2 if of_place else 0)


_kernel: Callable[[Cost], str] = attrgetter("cell.kernel")


def _file(cost: Cost) -> str:
    return Path(cost.subject.source).name if cost.subject.name else ""


def _figures(cost: Cost, remarks: Sequence[str]) -> list[str]:
    noted = [cost.reason] if cost.hit is None and cost.reason else cost.notes
    marks = "".join(f" [{remarks.index(text) + 1}]" for text in noted)
    if cost.hit is None:
        status = "failed" if cost.no_baseline else cost.cell.status
        outcome = status if cost.cell.verdict is None else _NO_VERDICT
        return [f"{outcome}{marks}", *[""] * (len(_HEADINGS) - 1)]
    unit = cost.cell.unit
    programs = [parameter.of(cost.cell) for parameter in (BPF_VERIFIED, BPF_INSTRUCTIONS, BPF_STACK)]
    return [
        f"{figure(cost.hit, unit)}{marks}",
        _change(cost),
        cost.allowed,
        "" if cost.nanoseconds is None else f"{cost.nanoseconds:.0f}",
        cost.mechanism,
        NOTHING if cost.hits is None else str(cost.hits),
        *("" if count is None else str(count) for count in programs),
    ]


def _change(cost: Cost) -> str:
    if cost.unknown:
        return "unknown"
    if cost.difference is None:
        return "new" if cost.new else ""
    return signed_figure(cost.difference, cost.cell.unit)


_EXPLANATIONS = {
    "nsec": "nsec: of a hit, computed from the counts and the CPU's price list, not measured; its band: --format json.",
    "verified": "verified: instructions that the verifier walked; size: BPF instructions; stack: bytes.",
}


def _sentences(costs: Sequence[Cost], headings: Sequence[str]) -> Iterator[str]:
    yield "A hit: instructions that it adds to the calls, handler and all; counted, not timed."
    yield from (text for heading, text in _EXPLANATIONS.items() if heading in headings)
    for cost in costs:
        if cost.own_function is not None:
            where = f"{cost.subject.title} on {cost.cell.kernel}"
            entered = cost.own_function.name
            yield f"{where}: calls fail without the module; a hit is what {entered}() executes with all it calls."
    for cost in costs:
        if cost.of_call > 1 and cost.cell.overhead is not None:
            paid = figure(cost.cell.overhead, cost.cell.unit)
            yield f"{cost.subject.title} on {cost.cell.kernel}: {cost.of_call} hits of a call, which pays {paid}."
    for cost in costs:
        if cost.exceeded and cost.hit is not None:
            of_call = f" of a call with {cost.of_call} hits" if cost.of_call > 1 else ""
            yield f"{cost.subject.title} on {cost.cell.kernel}{of_call}: {'; '.join(cost.exceeded)}."
    unknown = (
        f"{cost.subject.title} on {cost.cell.kernel} is not compared: {cost.unknown}" for cost in costs if cost.unknown
    )
    new = (f"{cost.subject.title} is new: {cost.new}" for cost in costs if cost.new)
    yield from (
        sentence if sentence.endswith((".", "?")) else f"{sentence}." for sentence in dict.fromkeys([*unknown, *new])
    )


def cost_json(
    record: RunRecord, costs: Sequence[Cost], missed: Sequence[str] = (), reference: Reference | None = None
) -> str:
    """The costs as JSON, with the run's id and the verdict on all of them."""
    whole = {
        "contract": CONTRACT_OF_COMPARISONS,
        "run": record.run,
        "costs": [cost.plain() for cost in costs],
        "passes": not problem(costs, missed),
        "verdict": verdict(costs, missed).partition(" ")[2],
        "against": None if reference is None else reference.title,
        "gone": [] if reference is None else list(reference.gone),
    }
    return json.dumps(whole, indent=2) + "\n"


def cost_csv(costs: Sequence[Cost]) -> str:
    """A line for each cost."""
    rows = [dict(cost.plain()) for cost in costs]
    for row in rows:
        row["interval"] = " ".join(map(str, row["interval"] or ()))
        row["exceeded"], row["notes"] = "; ".join(row["exceeded"]), "; ".join(row["notes"])
    return csv_text(list(rows[0]), rows)


def veristat_csv(costs: Sequence[Cost]) -> str:
    """The columns that veristat of the kernel's BPF selftests reads (``veristat -C``), of BPF programs alone.

    ``file_name`` has the kernel behind the file's name, if there are several. What is unknown is 0, as veristat reads
    nothing but numbers. A program whose cell has failed although the kernel may have loaded it has no line.
    """
    several = len({cost.cell.kernel for cost in costs}) > 1
    rows = [
        {
            "file_name": Path(cost.subject.source).name + (f"@{cost.cell.kernel}" if several else ""),
            "prog_name": cost.subject.name or cost.subject.probe,
            "verdict": "success" if cost.cell.status == "ok" else "failure",
            **{name: parameter.of(cost.cell) or 0 for name, parameter in _OF_PROGRAMS.values()},
        }
        for cost in costs
        if cost.subject.name or BPF_INSTRUCTIONS.of(cost.cell) is not None
        if cost.cell.status == "ok" or is_not_loaded(cost.cell.reason or "")
    ]
    return csv_text(["file_name", "prog_name", "verdict", *dict(_OF_PROGRAMS.values())], rows).replace("\r\n", "\n")


def cost_comment(
    name: str, costs: Sequence[Cost], missed: Sequence[str], before: Run, after: Run, gone: Sequence[str] = ()
) -> str:
    """The costs as a comment of a pull request, with the change of each by symbol."""
    sheet = cost_sheet(name, costs, missed, gone)
    parts = [grid_table(sheet.grid), *map(markdown_footnote, sheet.footnotes)]
    for cost, symbols in explained(costs, before, after):
        by_symbol = difference_sheet(symbols, _SYMBOLS)
        parts.append(details(f"{cost.subject.title} on {cost.cell.kernel}, by symbol", grid_table(by_symbol.grid)))
    made = made_with(*{run.record.run: run for run in (before, after)}.values())
    return github_comment(
        name, verdict(costs, missed), [*parts, paragraph(*sheet.sentences)], made, command("report", after.record.run)
    )


def problem(costs: Sequence[Cost], missed: Sequence[str] = ()) -> str:
    """Why the costs do not pass, as a sentence; empty if each is measured, compared and within what is allowed."""
    every = counted(len(costs), "cost")
    measured = sum(cost.hit is not None for cost in costs)
    counts = {
        "could not be proved": sum(cost.hit is None and cost.cell.status != "unsupported" for cost in costs),
        "could not be compared": sum(bool(cost.unknown) for cost in costs),
        "exceed what is allowed": sum(bool(cost.exceeded) for cost in costs),
    }
    for what, count in counts.items():
        if count:
            return f"{count} of {every} {what.replace('exceed', 'exceeds') if count == 1 else what}."
    if not measured:
        return "No cost could be measured."
    return f"{counted(measured, 'cost')} measured; no known call reaches {len(missed)} more." if missed else ""


def verdict(costs: Sequence[Cost], missed: Sequence[str] = ()) -> str:
    """One sentence on all costs, and on what has none."""
    wrong = problem(costs, missed)
    if wrong:
        return f"❌ {wrong}"
    measured = sum(cost.hit is not None for cost in costs)
    counts = {"new": sum(bool(cost.new) for cost in costs), "unsupported": len(costs) - measured}
    more = "".join(f"; {count} {what}" for what, count in counts.items() if count)
    return f"✅ {counted(measured, 'cost')} measured, none exceeds what is allowed{more}."


def explained(costs: Sequence[Cost], before: Run, after: Run) -> Iterator[tuple[Cost, ProfileDifference]]:
    """The symbols of each cost that changed, beside those before, or exceeds its budget, beside those of no probe."""
    for cost in costs:
        if not (cost.exceeded or cost.difference):
            continue
        other_cell, run = (cost.change.pair.before if cost.change and cost.difference else None), before
        if other_cell is None:
            other_cell, run = _baseline(cost.cell, after.record), after
        if other_cell is not None and other_cell.profile is not None and cost.cell.profile is not None:
            with suppress(LabError):  # a missing or changed file; the costs do not depend on it
                yield cost, difference(*load_pair((run.directory, other_cell), (after.directory, cost.cell)))


def _baseline(cell: CellRecord, record: RunRecord) -> CellRecord | None:
    def place(record: CellRecord) -> tuple[object, ...]:
        return record.table, record.kernel, AT.of(record)

    baselines = (known for known in record.cells if known.probe == BASELINE)
    return next((baseline for baseline in baselines if place(baseline) == place(cell)), None)


def judged(lines: Sequence[CostLine], after: Run, reference: Reference | None = None) -> Sequence[Cost]:
    """The costs beside their budgets, and each beside that of the reference."""
    partners: Mapping[str, CellRecord] = {} if reference is None else reference.before
    cells = after.record.cells
    before = cells if reference is None or reference.run is None else reference.run.record.cells
    pairs = [CellPair(partners.get(cell.id), cell) for line in lines for cell in line.records(after.record)]
    budgets = stored_budgets(after.directory)
    measured = costs_in(lines, after.record, compare(pairs, budgets, before, cells), reference)
    return with_own_functions(measured, after, is_judged=reference is not None or bool(budgets.plain()))
