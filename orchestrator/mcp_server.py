# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator-mcp``: the lab as tools of the Model Context Protocol, on stdin and stdout (docs/mcp.md).

A client's arguments are untrusted, as an experiment file is: their sizes are limited, names are checked as on the
command line, and files are those of the current folder or of the lab.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, ParamSpec

from pydantic import Field

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import CallToolResult, InputRequiredResult, Tool, ToolAnnotations
except ImportError as error:  # the command is installed with and without the extra
    print(f"orchestrator-mcp: {error}; install it: pip install 'probe-lab[mcp]'", file=sys.stderr)
    raise SystemExit(3) from None

from orchestrator.artifacts.build_context import OFFLINE_HINT
from orchestrator.artifacts.git_tree import find_revision
from orchestrator.benchmarks.registry import reports
from orchestrator.catalog.compiler_flags import CompilerFlags
from orchestrator.catalog.data import unknown
from orchestrator.catalog.kernels import placed
from orchestrator.catalog.probes import (
    BPF_SOURCE,
    BPF_SUFFIXES,
    COMPILED_WITH,
    is_one_liner,
    program_parameters,
    split_member,
    split_path,
)
from orchestrator.catalog.program_state import ProgramState
from orchestrator.catalog.tools import is_script, is_tool, named_file
from orchestrator.comparison.comparison_sheet import render_comparison
from orchestrator.comparison.series import series_sheets
from orchestrator.cost.call_finder import NamedCalls
from orchestrator.cost.cost_machine import DEFAULT_CPU, DEFAULT_KERNEL
from orchestrator.cost.request import CostRequest
from orchestrator.errors import LabError, UsageError
from orchestrator.experiment.plan import Plan
from orchestrator.library.disassembly import disassembly
from orchestrator.library.experiment_request import ExperimentRequest
from orchestrator.library.lab import Lab
from orchestrator.library.measurements import Measurements
from orchestrator.library.name_lists import all_lists
from orchestrator.library.stored import load_comparison, shown_ids
from orchestrator.library.stored_profiles import difference_of, stored_pairs
from orchestrator.paths import data_dir, lab_dir, user_path
from orchestrator.plain_text import plain_text
from orchestrator.profile.code.compared_code import with_code
from orchestrator.profile.printed.profile_sheets import difference_sheet
from orchestrator.program import CHECKOUT_SCRIPT, PROGRAM
from orchestrator.report.history_sheets import bisection_sheet
from orchestrator.report.markdown import render_markdown, render_sheets
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run, stored_run
from orchestrator.results.store import LATEST
from orchestrator.run.runner import ProgressListener, TimeLeft
from orchestrator.utf8 import use_utf8
from orchestrator.version import __version__

P = ParamSpec("P")
Offer = Callable[[], Callable[[Callable[..., Any]], Any]]
"""Makes a function a tool of the server."""

LARGEST = 64 << 10
"""Characters of an answer; the rest is counted."""

SYMBOLS = 20
"""Symbols of a difference that are listed; the rest is one line."""

_NO_NUL = r"^[^\x00]*$"
"""A path with a NUL is an error of every function of the system that takes one."""
Word = Annotated[str, Field(min_length=1, max_length=1000, pattern=_NO_NUL)]
Words = Annotated[list[Annotated[str, Field(max_length=500, pattern=_NO_NUL)]], Field(max_length=32)]
Limit = Annotated[int, Field(ge=1, le=500, description="Rows; the rest is counted.")]
_NAMES = "A run's id, 'latest' or a baseline; where cells are compared, also RUN:CELL."
_Commit = Annotated[Word, Field(description="A commit of a repository: TREE@REV, such as ./linux@v6.1.")]
_RunName = Annotated[str, Field(min_length=1, max_length=300, description=_NAMES)]

_READS = ToolAnnotations(read_only_hint=True)
_MEASURES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)

INSTRUCTIONS = """\
A lab for the cost of kernel probes: it boots guests in QEMU, and counts and proves what a probe costs. `list` names
what there is: `list runs` the stored runs, whose tables `report` has. `compare` and `diff` explain changes between runs
or cells. `run`, `cost`, `bisect` and `series` measure; they are there only if the user has started the server with
--allow-run.
A cell that is not ok has no number; its reason says why."""


def inside(name: str) -> str:
    """The absolute path of a file in the current folder or among the lab's own. Raises UsageError for another."""
    path = user_path(name)
    try:
        real = path.resolve()
    except RuntimeError:  # until Python 3.12
        raise UsageError("a link that leads to itself", where=str(path)) from None
    allowed = [Path.cwd().resolve(), *(data_dir(folder).resolve() for folder in ("configs", "kmods", "images"))]
    if not any(real.is_relative_to(folder) for folder in allowed):
        hint = "start the server in the folder that has the files"
        raise UsageError(f"not in {allowed[0]}, nor a file of the lab's", where=str(path), hint=hint)
    return str(path)


def inside_tree(commit: str) -> str:
    """A commit ``TREE@REV`` of a repository in the current folder. Raises UsageError for another one."""
    inside(commit.partition("@")[0])
    inside(str(find_revision(commit).top))
    return commit


def _subject(text: str) -> str:
    if is_tool(text) or is_script(text):
        file = named_file(text)
        if file is not None:
            inside(file)
    elif not is_one_liner(text):
        name = split_member(split_path(text)[0])[0]
        if "/" in name or name.startswith("~") or Path(name).exists():
            inside(name)
        if name.endswith(BPF_SOURCE):
            flags = CompilerFlags.of_text(program_parameters(*split_path(text)).get(COMPILED_WITH, ""))
            _check_inside(flags.below(user_path(name).parent))
        if name.endswith(BPF_SUFFIXES):
            given = ProgramState.of_parameters(program_parameters(*split_path(text)))
            for file in given.contents.values():
                inside(str(user_path(name).parent / file))
    return text


def _check_inside(flags: CompilerFlags) -> None:
    """Raises UsageError for flags that name files elsewhere than ``inside`` allows, but for the system's headers."""
    for path in flags.paths:
        if not path.resolve().is_relative_to("/usr/include"):
            inside(str(path))


def _cut(text: str) -> str:
    if len(text) <= LARGEST:
        return text
    end = text.rfind("\n", 0, LARGEST) + 1 or LARGEST
    return f"{text[:end].rstrip()}\n... {len(text) - end} more characters"


def _answered(call: Callable[P, str]) -> Callable[P, str]:
    """The tool, but expected failures are a ToolError, and the answer has a limited size and no control characters."""

    @functools.wraps(call)
    def answer(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            text = plain_text(call(*args, **kwargs))
        except OSError as error:
            raise ToolError(f"{error.filename or 'the system'}: {(error.strerror or str(error)).lower()}") from None
        except LabError as error:
            raise ToolError(_cut(str(error).replace(OFFLINE_HINT, "start the server with --allow-run"))) from None
        return _cut(text)

    return answer


async def _measured(measurements: Measurements, call: Callable[[], str]) -> str:
    try:
        future = measurements.begin(_answered(call))
    except UsageError as error:
        raise ToolError(str(error)) from None
    return await asyncio.wrap_future(future)


class _Reported(ProgressListener):
    """Tells the client which cells have ended. Made where the server's loop runs, called in another thread."""

    def __init__(self, context: Context) -> None:
        self._context, self._ended, self._total = context, 0, 0
        self._loop = asyncio.get_running_loop()

    def begin(self, run: str, plan: Plan, done: int, left: TimeLeft) -> None:
        self._total = len(plan.cells)

    def cell_ends(self, record: CellRecord) -> None:
        self._ended += 1
        with suppress(Exception):  # the client may have gone; the methods of a listener do not raise
            told = self._context.report_progress(self._ended, self._total, f"{record.id}: {record.status}")
            asyncio.run_coroutine_threadsafe(told, self._loop).result(10.0)  # not longer, for one that does not read


def _shown(run: Run) -> str:
    return f"run {run.record.run}\n\n{render_markdown(run.record, reports())}\n{run.unfinished_sentence}"


def _list(what: Word | None = None, limit: Limit = 100) -> str:
    """List names for experiments, runs (newest first), baselines, published tables, in JSON; without WHAT lists."""
    lists = all_lists()
    if what is None:
        return json.dumps([*lists])
    if what not in lists:
        raise UsageError(unknown("list", what, lists))
    every = [row.model_dump(mode="json") for row in lists[what].objects()]
    while True:
        rows = every[:limit]
        text = json.dumps({"rows": rows, "left_out": len(every) - len(rows)}, default=datetime.isoformat)
        if len(text) <= LARGEST:
            return text
        limit = len(rows) // 2


class LabServer(MCPServer):
    """Refuses an argument that a tool does not have. The SDK drops it, and the answer is to another question."""

    async def list_tools(self) -> list[Tool]:
        return [_closed(tool) for tool in await super().list_tools()]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context | None = None
    ) -> CallToolResult | InputRequiredResult:
        for tool in await super().list_tools():
            if tool.name == name:
                known = tool.input_schema["properties"]
                wrong = [unknown("argument", word[:100], known) for word in arguments if word not in known]
                if wrong:
                    raise ToolError(_cut(plain_text("\n".join(wrong))))
        return await super().call_tool(name, arguments, context)


def _closed(tool: Tool) -> Tool:
    return tool.model_copy(update={"input_schema": {**tool.input_schema, "additionalProperties": False}})


def server_of_tools(measurements: Measurements, *, allows_runs: bool) -> MCPServer:
    """The server. Without ``allows_runs`` it starts no guest, builds nothing and fetches nothing."""
    server = LabServer("probe-lab", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    lab = Lab(offline=not allows_runs)
    reads = functools.partial(server.tool, annotations=_READS, structured_output=False)
    measures = functools.partial(server.tool, annotations=_MEASURES, structured_output=False)
    reads(name="list")(_answered(_list))

    @reads()
    @_answered
    def report(run: _RunName = LATEST) -> str:
        """Print a stored run's tables as Markdown."""
        return _shown(stored_run(run, lab_dir()))

    @reads()
    @_answered
    def compare(after: _RunName = LATEST, before: _RunName | None = None, only: Words = [], limit: Limit = 20) -> str:  # noqa: B006
        """Compare two stored runs or cells, the largest change first; without BEFORE with the run before it."""
        runs = load_comparison([name for name in (before, after) if name is not None], only, stored_run)
        note = f"\nA run is compared with itself: {runs.after.record.run}.\n" if runs.is_with_itself else ""
        return render_comparison(runs, limit) + note

    @reads()
    @_answered
    def diff(before: _RunName, after: _RunName, limit: Limit = 20) -> str:
        """Print by symbol what profiled cells of one stored run execute more than those of another."""
        pairs, left_out = stored_pairs(before, after, stored_run)
        sheets = [difference_sheet(with_code(difference_of(*pair)), limit) for pair in pairs]
        without = ", ".join(shown_ids(left_out))
        note = f"\nNot compared, without a profile in both runs: {without}.\n" if left_out else ""
        return render_sheets("Differences", sheets) + note

    @(measures if allows_runs else reads)()
    async def disasm(kernel: Word, function: Word) -> str:
        """Print a kernel function's instructions and the probes that each can take; ? is known only to a guest."""

        def disassembled() -> str:
            code = disassembly(lab.context(), placed(kernel, inside), function, asks_guest=allows_runs)
            return render_sheets("Disassembly", [code.sheet()])

        return await _measured(measurements, disassembled)

    if allows_runs:
        _offer_measurements(measures, measurements, lab)
        _offer_commits(measures, measurements, lab)
    return server


def _offer_measurements(measures: Offer, measurements: Measurements, lab: Lab) -> None:
    @measures()
    async def run(config: Word, context: Context, overrides: Words = [], only: Words = []) -> str:  # noqa: B006
        """Measure an experiment file, with overrides KEY=VALUE and filters such as probe=kprobe; print its tables."""
        own_lab = replace(lab, progress=_Reported(context))
        return await _measured(
            measurements, lambda: _shown(own_lab.run(own_lab.load(inside(config), overrides, inside), only=only))
        )

    @measures()
    async def cost(  # noqa: PLR0913  # as on the command line
        subjects: Annotated[list[Word], Field(min_length=1, max_length=16)],
        context: Context,
        kernels: Words = [DEFAULT_KERNEL],  # noqa: B006
        call: Word | None = None,
        workload: Annotated[Word | None, Field(description="A C file with calls of your own.")] = None,
        run: Annotated[
            Word | None, Field(description="A command of the image that passes probes in user space.")
        ] = None,
        image: Annotated[Word | None, Field(description="That has the command or library.")] = None,
        hits: Annotated[int, Field(ge=1, description="Of a call of the workload.")] = 1,
        point: Word | None = None,
        cpu: Word = DEFAULT_CPU,
        at_most: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Word | None = None,
        cflags: Annotated[
            Words, Field(max_length=64, description="Flags of clang for sources of BPF programs, such as -Iinclude.")
        ] = [],  # noqa: B006
        function: Annotated[
            Word | None, Field(description="The only function of a module's that is asked for.")
        ] = None,
        together: Annotated[  # noqa: FBT002
            bool, Field(description="Attach all programs of a BPF file at once: what a call takes more with them.")
        ] = False,
        rodata: Annotated[Words, Field(description="NAME=VALUE: const volatile variables of BPF programs.")] = [],  # noqa: B006
        max_entries: Annotated[Words, Field(description="NAME=N: sizes of maps of BPF programs.")] = [],  # noqa: B006
        maps: Annotated[
            Words, Field(description="NAME=FILE: what maps have before the calls, as bpftool map dump -j prints it.")
        ] = [],  # noqa: B006
    ) -> str:
        """Measure a hit of BPF programs, tools, bpftrace lines, modules or mechanisms, at most AT_MOST instructions."""
        own_lab = replace(lab, progress=_Reported(context))

        def measured() -> str:
            names, on = [_subject(subject) for subject in subjects], [placed(name, inside) for name in kernels]
            if image is not None and "/" in image:
                inside(image)
            calls = NamedCalls(call, None if workload is None else Path(inside(workload)), point, hits, run)
            _check_inside(CompilerFlags.of(cflags).below(Path.cwd()))
            state = ProgramState.of(rodata, max_entries, maps)
            for file in state.contents.values():
                inside(file)
            request = CostRequest(
                names,
                on,
                calls,
                cpu,
                at_most,
                cflags=cflags,
                function=function,
                state=state,
                image=image,
                together=together,
            )
            costs = own_lab.cost(request)
            return own_lab.spoken(render_sheets(f"run {costs.run.record.run}", [costs.sheet()]))

        return await _measured(measurements, measured)


def _offer_commits(measures: Offer, measurements: Measurements, lab: Lab) -> None:
    @measures()
    async def bisect(
        config: Word,
        good: _Commit,
        bad: _Commit,
        context: Context,
        cell: Annotated[Word | None, Field(description="The cell's id, or parts of it such as kprobe.")] = None,
        overrides: Words = [],  # noqa: B006
    ) -> str:
        """Find the first commit at which a cell of an experiment costs as much as at BAD, and what changed there."""
        own_lab = replace(lab, progress=_Reported(context))

        def measured() -> str:
            request = ExperimentRequest(Path(inside(config)), overrides, path=inside)
            change = own_lab.bisect(request, inside_tree(good), inside_tree(bad), cell=cell)
            by_symbol = [difference_sheet(difference, SYMBOLS) for difference in change.differences]
            return render_sheets("Bisection", [bisection_sheet(change.bisected), *by_symbol])

        return await _measured(measurements, measured)

    @measures()
    async def series(  # noqa: PLR0913  # as on the command line
        span: Annotated[Word, Field(description="BASE..TOPIC: the commits of TOPIC that BASE lacks.")],
        config: Word,
        context: Context,
        tree: Annotated[Word, Field(description="A folder of the repository.")] = "./",
        overrides: Words = [],  # noqa: B006
        only: Words = [],  # noqa: B006
        at_most: Annotated[Word | None, Field(description="What a commit may add to a cell of BASE: 5, 1%.")] = None,
    ) -> str:
        """Measure an experiment at each commit of a patch series; print what each commit changes, with its symbols."""
        own_lab = replace(lab, progress=_Reported(context))

        def measured() -> str:
            inside_tree(f"{inside(tree)}/@HEAD")
            request = ExperimentRequest(Path(inside(config)), overrides, only, path=inside)
            commits = own_lab.series(request, f"{inside(tree)}@{span}", at_most=at_most)
            return render_sheets("Series", series_sheets(commits, SYMBOLS))

        return await _measured(measurements, measured)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one client on stdin and stdout until it goes, or a signal comes: a measurement ends as by Ctrl-C."""
    use_utf8()
    parser = argparse.ArgumentParser(prog=f"{PROGRAM} mcp" if CHECKOUT_SCRIPT else "orchestrator-mcp")
    text = "also offer run, cost, bisect and series, which start guests, build modules and fetch what is missing"
    parser.add_argument("--allow-run", action="store_true", help=text)
    text = "whose files the client may name; by default the current one"
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help=text)
    given = parser.parse_args(arguments)
    try:
        os.chdir(given.folder)
    except OSError as error:
        parser.error(f"{given.folder}: {(error.strerror or str(error)).lower()}")
    if given.allow_run and Path("~").expanduser().resolve().is_relative_to(Path.cwd()):
        parser.error(f"{Path.cwd()} has all of your files; name the folder that the client may use")
    measurements, own_thread, failures = Measurements(), threading.get_ident(), list[Exception]()

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a client that has gone sends one, too
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # under nohup it stays ignored
        signal.signal(signal.SIGHUP, stop)

    def serve() -> None:
        try:
            server_of_tools(measurements, allows_runs=given.allow_run).run()
        except Exception as error:
            failures.append(error)
        finally:
            signal.pthread_kill(own_thread, signal.SIGTERM)

    threading.Thread(target=serve, name="server", daemon=True).start()
    with suppress(KeyboardInterrupt):
        measurements.serve()
    for failure in failures:
        print(f"error: the protocol's server has failed: {failure!r}", file=sys.stderr, flush=True)
    os._exit(1 if failures else 0)  # the server's threads may wait for a client that is still there


if __name__ == "__main__":
    main()
