# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator-mcp``: the lab as tools of the Model Context Protocol, on stdin and stdout (docs/mcp.md).

A client's arguments are untrusted, as an experiment file is: their sizes are limited, names are checked as on the
command line, and files are those of the current folder or of the lab.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, ParamSpec

import anyio.from_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from orchestrator import __version__
from orchestrator.benchmarks.registry import reports
from orchestrator.catalog.data import unknown
from orchestrator.catalog.kernels import placed
from orchestrator.catalog.probes import is_one_liner, split_member, split_path
from orchestrator.comparison.forms import render_comparison
from orchestrator.cost.request import DEFAULT_CPU, DEFAULT_KERNEL, Calls
from orchestrator.errors import LabError, UsageError
from orchestrator.experiment.plan import Plan
from orchestrator.lab.disassembly import disassembly
from orchestrator.lab.lab import Lab
from orchestrator.lab.listing import all_lists
from orchestrator.paths import data_dir, user_path
from orchestrator.plain_text import plain_text
from orchestrator.report.profile_sheets import difference_sheet
from orchestrator.report.text import render_markdown, render_sheets
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run
from orchestrator.results.store import LATEST
from orchestrator.run.runner import ProgressListener, TimeLeft

P = ParamSpec("P")

LARGEST = 64 << 10
"""Characters of an answer; the rest is counted."""

Word = Annotated[str, Field(min_length=1, max_length=200)]
Subject = Annotated[str, Field(min_length=1, max_length=1000)]
Words = Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=32)]
Limit = Annotated[int, Field(ge=1, le=500, description="Rows; the rest is counted.")]
_NAMES = "A run's id, 'latest', a baseline, or RUN:CELL."
_RunName = Annotated[str, Field(min_length=1, max_length=300, description=_NAMES)]
_RUN = re.compile(r"[A-Za-z0-9][\w.-]*")

_READS = ToolAnnotations(read_only_hint=True)
_MEASURES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)

INSTRUCTIONS = """\
A lab for the cost of kernel probes: it boots guests in QEMU, and counts and proves what a probe costs. `list` names
what there is: `list runs` the stored runs, whose tables `report` has. `compare` and `diff` explain changes between runs
or cells. `run` and `cost` measure; they are there only if the user has started the server with --allow-run.
A cell that is not ok has no number; its reason says why."""


def inside(name: str) -> str:
    """The absolute path of a file in the current folder or among the lab's own. Raises UsageError for another."""
    path = user_path(name)
    real = path.resolve()
    allowed = [Path.cwd().resolve(), *(data_dir(one).resolve() for one in ("configs", "kmods", "images"))]
    if not any(real.is_relative_to(folder) for folder in allowed):
        hint = "start the server in the folder that has the files"
        raise UsageError(f"not in {allowed[0]}, nor a file of the lab's", where=str(path), hint=hint)
    return str(path)


def _run_named(name: str) -> str:
    """A name of a stored run or of its cells; directories are refused."""
    run, colon, _ = name.rpartition(":")
    if not _RUN.fullmatch(run if colon else name) or Path(name).exists():
        raise UsageError(f"found {name!r}; expected a run's id, 'latest', a baseline, or RUN:CELL, and no path")
    return name


def _subject(text: str) -> str:
    if not is_one_liner(text):
        name = split_member(split_path(text)[0])[0]
        if "/" in name or name.startswith("~") or Path(name).exists():
            inside(name)
    return text


def _answered(call: Callable[P, str]) -> Callable[P, str]:
    """The tool, but expected failures are a ToolError, and the answer has a limited size and no control characters."""

    @functools.wraps(call)
    def answer(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            text = plain_text(call(*args, **kwargs))
        except (LabError, OSError) as error:
            raise ToolError(str(error)[:LARGEST]) from None
        left_out = len(text) - LARGEST
        return text if left_out <= 0 else f"{text[:LARGEST]}\n... {left_out} more characters"

    return answer


class _Reported(ProgressListener):
    """Tells the client which cells have ended. Called in the tool's thread."""

    def __init__(self, context: Context) -> None:
        self._context, self._ended, self._total = context, 0, 0

    def begin(self, run: str, plan: Plan, done: int, left: TimeLeft) -> None:
        self._total = len(plan.cells)

    def cell_ends(self, record: CellRecord) -> None:
        self._ended += 1
        with suppress(Exception):  # the client may have gone; the methods of a listener do not raise
            message = f"{record.id}: {record.status}"
            anyio.from_thread.run(self._context.report_progress, self._ended, self._total, message)


def _shown(run: Run) -> str:
    return f"run {run.record.run}\n\n{render_markdown(run.record, reports())}\n{run.unfinished_sentence}"


def reading_tools(server: MCPServer, lab: Lab, *, asks_guests: bool) -> None:
    """Add the tools that only read."""
    tool = functools.partial(server.tool, annotations=_READS, structured_output=False)

    @tool(name="list")
    @_answered
    def list_names(what: Word | None = None) -> str:
        """List names for experiments, runs, baselines, or published tables, as JSON; without WHAT the lists."""
        lists = all_lists()
        if what is None:
            return json.dumps([*lists])
        if what not in lists:
            raise UsageError(unknown("list", what, lists))
        rows = [dict(zip(lists[what].columns, row, strict=True)) for row in lists[what].rows()]
        return json.dumps(rows, default=datetime.isoformat)

    @tool()
    @_answered
    def report(run: _RunName = LATEST) -> str:
        """Print a stored run's tables as Markdown."""
        return _shown(lab.find(_run_named(run)))

    @tool()
    @_answered
    def compare(after: _RunName = LATEST, before: _RunName | None = None, only: Words = [], limit: Limit = 20) -> str:  # noqa: B006
        """Compare two stored runs or cells, the largest change first; without BEFORE with the run before it."""
        runs = [_run_named(one) for one in (before, after) if one is not None]
        return render_comparison(lab.compare(*runs, only=only), limit)

    @tool()
    @_answered
    def diff(before: _RunName, after: _RunName, limit: Limit = 20) -> str:
        """Print by symbol what profiled cells of one stored run execute more than those of another."""
        found = lab.differences(_run_named(before), _run_named(after))
        return render_sheets("Differences", [difference_sheet(one, limit) for one in found])

    @tool(annotations=_MEASURES if asks_guests else _READS)
    @_answered
    def disasm(kernel: Word, function: Word) -> str:
        """Print a kernel function's instructions and the probes that each can take; ? is known only to a guest."""
        found = disassembly(lab.context(), placed(kernel, inside), function, asks_guest=asks_guests)
        return render_sheets("Disassembly", [found.sheet()])


def measuring_tools(server: MCPServer, lab: Lab) -> None:
    """Add the tools that build and start guests; one measures at a time."""
    tool = functools.partial(server.tool, annotations=_MEASURES, structured_output=False)
    busy = threading.Lock()

    @contextmanager
    def measuring(context: Context) -> Iterator[Lab]:
        with busy:
            yield replace(lab, progress=_Reported(context))

    @tool()
    @_answered
    def run(config: Word, context: Context, overrides: Words = [], only: Words = []) -> str:  # noqa: B006
        """Measure an experiment file, with overrides KEY=VALUE and filters such as probe=kprobe; print its tables."""
        with measuring(context) as own:
            return _shown(own.run(own.load(inside(config), overrides, inside), only=only))

    @tool()
    @_answered
    def cost(
        subjects: Annotated[list[Subject], Field(min_length=1, max_length=16)],
        context: Context,
        kernels: Words = [DEFAULT_KERNEL],  # noqa: B006
        call: Word | None = None,
        point: Word | None = None,
        at_most: Annotated[float | None, Field(ge=0)] = None,
    ) -> str:
        """Measure a hit of BPF programs, bpftrace one-liners, modules or mechanisms, at most AT_MOST instructions."""
        with measuring(context) as own:
            names, calls = [_subject(one) for one in subjects], Calls(call, None, point)
            on = [placed(name, inside) for name in kernels]
            found = own.cost(*names, kernels=on, cpu=DEFAULT_CPU, calls=calls, at_most=at_most)
            return render_sheets(f"run {found.run.record.run}", [found.sheet()])


def server_of_tools(*, allows_runs: bool) -> MCPServer:
    """The server. Without ``allows_runs`` it starts no guest, builds nothing and fetches nothing."""
    server = MCPServer("probe-lab", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    lab = Lab(offline=not allows_runs)
    reading_tools(server, lab, asks_guests=allows_runs)
    if allows_runs:
        measuring_tools(server, lab)
    return server


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one client on stdin and stdout until it goes."""
    parser = argparse.ArgumentParser(prog="orchestrator-mcp", description="The lab's tools for an assistant.")
    text = "also offer run and cost, which start guests, build modules and fetch what is missing"
    parser.add_argument("--allow-run", action="store_true", help=text)
    server_of_tools(allows_runs=parser.parse_args(arguments).allow_run).run()


if __name__ == "__main__":
    main()
