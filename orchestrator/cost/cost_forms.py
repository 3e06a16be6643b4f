# SPDX-License-Identifier: GPL-2.0-only
"""Costs as a table, as CSV, as veristat's columns, and as a comment of a pull request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from orchestrator.cost.costs import NO_VERDICT, Cost, explained, verdict
from orchestrator.cost.costs_json import PrintedCost
from orchestrator.cost.program_costs import ProgramCost
from orchestrator.plain_text import shown
from orchestrator.probes.bpf_refusal import is_not_loaded
from orchestrator.profile.printed.profile_sheets import difference_sheet
from orchestrator.program import command
from orchestrator.report.columns import Column, Columns, Remarks
from orchestrator.report.figures import NOTHING, figure, signed_figure
from orchestrator.report.github_comment import details, github_comment, made_with
from orchestrator.report.grid import Row
from orchestrator.report.markdown import grid_table, markdown_footnote, paragraph
from orchestrator.report.sheet import Sheet
from orchestrator.results.parameters import (
    BPF_INSTRUCTIONS,
    BPF_MACHINE_CODE,
    BPF_STACK,
    BPF_VERIFIED,
    CountParameter,
)
from orchestrator.results.runs import Run

_OF_VERISTAT: Mapping[str, CountParameter] = {
    "total_insns": BPF_VERIFIED,
    "prog_size": BPF_INSTRUCTIONS,
    "prog_size_jited": BPF_MACHINE_CODE,
    "stack_depth": BPF_STACK,
}
"""Figures of BPF programs by the names of veristat's columns."""


_SYMBOLS = 10
_GONE = 10


def cost_sheet(name: str, costs: Sequence[Cost], missed: Sequence[str] = (), gone: Sequence[str] = ()) -> Sheet:
    """A row for each program and kernel; without a number, its status, and the reason as a footnote.

    ``missed`` are sentences on what has no row, ``gone`` on what the reference alone has.
    """
    several = len({cost.cell.kernel for cost in costs}) > 1
    remarks = Remarks()
    for cost in costs:  # the reasons of failures have the first marks
        remarks.mark(cost.reason or "", failure=True)
    columns = _columns(remarks)
    grid = columns.grid(_rows(columns, costs))
    first = costs[0].cell
    release = "" if several else f", kernel {first.kernel}"
    return Sheet(
        title=name,
        facts=[f"{first.cpu}, {first.smp} CPU{release}"],
        grid=grid,
        sentences=[*missed, *_sentences(costs, grid.headings), *shown(gone, _GONE)],
        footnotes=remarks.footnotes(),
    )


def _rows(columns: Columns[Cost], costs: Sequence[Cost]) -> Iterator[Row]:
    """A row for each subject; with several kernels or files a heading, and a row for each of them below."""
    of_place = [of for of in (_file, _call, _kernel) if len({of(cost) for cost in costs}) > 1]
    for title, group in groupby(costs, key=lambda cost: cost.subject.title):
        if of_place:
            yield columns.title(title, "")
        for cost in group:
            style = "red" if cost.is_wrong else ""
            label, depth = ", ".join(filter(None, (of(cost) for of in of_place))) or title, 2 if of_place else 0
            yield columns.row(label, cost, style, depth)
            for program in cost.programs:
                yield Row(program.name, _of_program(columns.headings, program), "", depth + 2)


def _of_program(headings: Sequence[str], program: ProgramCost) -> Sequence[str]:
    """A program's own instructions in a call, how it is attached, and its runs in a call."""
    own = NOTHING if program.instructions is None else f"{program.instructions:.10g}"
    texts = {"a hit": own, "mechanism": program.attached, "hits": f"{program.runs:.4g} a call"}
    return [texts.get(heading, "") for heading in headings]


def _call(cost: Cost) -> str:
    return cost.call if cost.subject.is_whole else ""


_kernel: Callable[[Cost], str] = attrgetter("cell.kernel")


def _file(cost: Cost) -> str:
    return Path(cost.subject.source).name if cost.subject.name else ""


def _columns(remarks: Remarks) -> Columns[Cost]:
    """Columns of costs; one without a number has its outcome in the first column, and nothing in the others."""

    def hit(cost: Cost) -> str:
        if cost.hit is not None:
            return f"{figure(cost.hit, cost.cell.unit)}{''.join(map(remarks.mark, cost.notes))}"
        status = "failed" if cost.no_baseline else cost.cell.status
        noted = [cost.reason] if cost.reason else cost.notes
        outcome = status if cost.cell.verdict is None else NO_VERDICT
        return f"{outcome}{''.join(map(remarks.mark, noted))}"

    def of_number(heading: str, text: Callable[[Cost], str]) -> Column[Cost]:
        return Column(heading, lambda cost: "" if cost.hit is None else text(cost), optional=True)

    def of_program(heading: str, parameter: CountParameter) -> Column[Cost]:
        return of_number(heading, lambda cost: "" if parameter.of(cost.cell) is None else str(parameter.of(cost.cell)))

    return Columns(
        [
            Column("a hit", hit),
            of_number("full", _when_full),
            of_number("alone", _alone),
            of_number("change", _change),
            of_number("allowed", attrgetter("allowed")),
            of_number("nsec", lambda cost: "" if cost.nanoseconds is None else f"{cost.nanoseconds:.0f}"),
            of_number("mechanism", lambda cost: "" if cost.programs else cost.mechanism),
            of_number("hits", lambda cost: NOTHING if cost.hits is None else str(cost.hits)),
            of_program("verified", BPF_VERIFIED),
            of_program("size", BPF_INSTRUCTIONS),
            of_program("stack", BPF_STACK),
        ],
        narrowest=24,
    )


def _alone(cost: Cost) -> str:
    return "" if cost.own_function is None else figure(float(cost.own_function.alone), cost.cell.unit)


def _when_full(cost: Cost) -> str:
    return "" if cost.when_full is None else figure(cost.when_full, cost.cell.unit)


def _change(cost: Cost) -> str:
    if cost.unknown:
        return "unknown"
    if cost.difference is None:
        return "new" if cost.new else ""
    return signed_figure(cost.difference, cost.cell.unit)


_EXPLANATIONS = {
    "full": "full: a hit that finds no room in the buffer that it sends a record to; in the others it finds room.",
    "nsec": "nsec: of a hit, computed from the counts and the CPU's price list, not measured; its band: --format json.",
    "verified": "verified: instructions that the verifier walked; size: BPF instructions; stack: bytes.",
}


def _sentences(costs: Sequence[Cost], headings: Sequence[str]) -> Iterator[str]:
    yield "A hit: instructions that it adds to the calls, handler and all; counted, not timed."
    yield from (text for heading, text in _EXPLANATIONS.items() if heading in headings)
    if any(cost.programs for cost in costs):
        yield (
            "The row of a tool, or of programs together: what a call takes more with all of them attached; below it "
            "are the programs that calls run, with the instructions of their own code in a call, without the helpers "
            "that they call."
        )
    yield from dict.fromkeys(_of_functions(cost) for cost in costs if cost.own_function is not None)
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


def _of_functions(cost: Cost) -> str:
    where = f"{cost.subject.title} on {cost.cell.kernel}"
    why = "calls fail without the module; " if cost.cell.overhead is None else ""
    of_call = "" if cost.cell.value is None else f"; a call takes {figure(cost.cell.value, cost.cell.unit)}"
    return f"{where}: {why}a hit is what a function executes with all it calls, alone without those{of_call}."


def cost_csv(costs: Sequence[Cost]) -> str:
    """A line for each cost."""

    def field(name: str) -> Column[PrintedCost]:
        joined = {"interval": " ", "exceeded": "; ", "notes": "; "}.get(name)
        read = attrgetter(name)
        return Column(name, read if joined is None else lambda cost: joined.join(map(str, read(cost) or ())))

    return Columns(map(field, PrintedCost.model_fields)).csv(map(PrintedCost.of, costs))


def veristat_csv(costs: Sequence[Cost]) -> str:
    """The columns that veristat of the kernel's BPF selftests reads (``veristat -C``), of BPF programs alone.

    ``file_name`` has the kernel behind the file's name, if there are several. What is unknown is 0, as veristat reads
    nothing but numbers. A program whose cell has failed although the kernel may have loaded it has no line.
    """
    several = len({cost.cell.kernel for cost in costs}) > 1

    def count(name: str, parameter: CountParameter) -> Column[Cost]:
        return Column(name, lambda cost: parameter.of(cost.cell) or 0)

    columns: Columns[Cost] = Columns(
        [
            Column(
                "file_name",
                lambda cost: Path(cost.subject.source).name + (f"@{cost.cell.kernel}" if several else ""),
            ),
            Column("prog_name", lambda cost: cost.subject.name or cost.subject.probe),
            Column("verdict", lambda cost: "success" if cost.cell.status == "ok" else "failure"),
            *(count(name, parameter) for name, parameter in _OF_VERISTAT.items()),
        ]
    )
    of_programs = [cost for cost in costs if cost.subject.name or BPF_INSTRUCTIONS.of(cost.cell) is not None]
    loaded = [cost for cost in of_programs if cost.cell.status == "ok" or is_not_loaded(cost.cell.reason or "")]
    return columns.csv(loaded, line_end="\n")


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
