# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator cost``: what a hit of a program, a module or a mechanism costs, and whether it may."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.catalog.program_state import ProgramState
from orchestrator.cli import completion, format_options, in_the_tree, options, printing
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.cost.call_finder import NamedCalls
from orchestrator.cost.cost_machine import DEFAULT_CPU, DEFAULT_KERNEL
from orchestrator.cost.costs_json import PrintedCosts
from orchestrator.cost.request import CostRequest
from orchestrator.errors import LabError, UsageError
from orchestrator.experiment.budgets_in_files import read_budgets
from orchestrator.experiment.file import BUILT
from orchestrator.library.formats import Format, Formats
from orchestrator.paths import user_path

COSTS = Formats("costs")
_OF_BUDGET = "budgets."
"""How an error of an experiment begins that is about its budgets."""
_GROWTH: Mapping[str, object] = {"*": {"overhead": "+0"}}


def cost(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="SUBJECT...",
            help="A BPF program (.bpf.c, .o), a tool ('tool: opensnoop -x'), a bpftrace one-liner or script (.bt), "
            "a kernel module (a folder, .c, "
            ".ko), or a mechanism; see: list probes.",
        ),
    ],
    on: Annotated[
        str | None,
        typer.Option(
            "--kernels",
            metavar="LIST",
            help=f"Kernels, or versions of Linux: 6.1,6.12,7.3; default: a tree's, else {DEFAULT_KERNEL}.",
        ),
    ] = None,
    tree: options.Tree = None,
    call: Annotated[str | None, typer.Option(metavar="CALL", help="The call to make; see: list calls.")] = None,
    workload: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Calls of your own: a C file with a function workload().")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="COMMAND", help="A command of the image that passes probes in user space."),
    ] = None,
    hits: Annotated[int, typer.Option(min=1, metavar="N", help="With --workload: hits of one call.")] = 1,
    point: Annotated[str | None, typer.Option(metavar="POINT", help="The function where the probe is.")] = None,
    function: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --workload: one function of a module that calls enter.")
    ] = None,
    cpu: Annotated[str, typer.Option(help="CPU model.", autocompletion=completion.cpus)] = DEFAULT_CPU,
    image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="The image with the tool, bpftrace, command or library: build images."),
    ] = None,
    at_most: Annotated[
        str | None,
        typer.Option(metavar="BUDGET", help="Exit with 1 if a hit takes more: 900, with --against also +5 or +2%."),
    ] = None,
    budget: Annotated[
        Path | None, typer.Option(readable=False, metavar="FILE", help="Budgets, as an experiment has them.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="REV|FILE|RUN", help="Exit with 1 if a hit takes more than at this commit, or in this run."
        ),
    ] = None,
    together: Annotated[
        bool,
        typer.Option("--together", help="Attach all programs of a BPF file at once: what a call takes more with them."),
    ] = False,
    include: Annotated[
        list[str] | None,
        typer.Option("-I", metavar="FOLDER", help="A folder with headers of BPF sources; its vmlinux.h wins."),
    ] = None,
    define: Annotated[
        list[str] | None, typer.Option("-D", metavar="NAME[=VALUE]", help="A macro of BPF sources.")
    ] = None,
    optimisation: Annotated[
        str | None, typer.Option("-O", metavar="LEVEL", help="How clang optimises BPF sources; default: 2.")
    ] = None,
    cflags: Annotated[
        list[str] | None, typer.Option(metavar="FLAGS", help="More flags of clang for BPF sources, in one text.")
    ] = None,
    rodata: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A const volatile variable of BPF programs, or a member of it."),
    ] = None,
    max_entries: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="The size of a map of BPF programs.")
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="NAME=FILE", help="What a map has before the calls: bpftool map dump -j."),
    ] = None,
    form: Annotated[Format, format_options.format_option(COSTS)] = COSTS.default,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for --format html; default: stdout, or cost.html on a terminal."),
    ] = None,
    _schema: Annotated[bool, format_options.schema(lambda: PrintedCosts)] = False,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the experiment that measures it, and stop.")
    ] = False,
    jobs: options.Jobs = None,
    fleet: options.Fleet = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure a hit of a BPF program, a tool, a bpftrace line or a module.

    Exits with 1 if a cost could not be measured or exceeds what is allowed.
    """
    options.check_one({"--call": call is not None, "--workload": workload is not None, "--run": run is not None})
    options.check_one({"--at-most": at_most is not None, "--budget": budget is not None})
    if hits != 1 and workload is None:
        raise UsageError("is of calls of your own only", where="--hits", hint="name them: --workload FILE.c")
    if out is not None:
        if not form.is_page:
            raise UsageError(f"{form} goes to stdout", where="--out", hint=f"--format {form} >FILE, or --format html")
        printing.check_page_file(out)
    of_tree = in_the_tree.tree_kernel(tree, on, "--kernels")
    request = CostRequest(
        names,
        [of_tree or DEFAULT_KERNEL] if on is None else on.split(","),
        NamedCalls(call, None if workload is None else user_path(str(workload)), point, hits, run),
        cpu,
        at_most,
        {} if budget is None else read_budgets(budget).plain(),
        against,
        [*_flags(include, define, optimisation), *(word for text in cflags or () for word in _words(text))],
        function,
        ProgramState.of(rodata or (), max_entries or (), map_ or ()),
        image,
        together,
    )
    lab = ConsoleLab(jobs=jobs, offline=offline, verbose=verbose, fleet=fleet)
    with _named_by_the_user(budget):
        if print_only:
            text = lab.cost_experiment(request)
            typer.echo(re.sub(rf"(?<![\w./-]){re.escape(str(Path.cwd()))}/", "./", text), nl=False)
            return
        measured = lab.cost(request)
    form.write("costs", measured, printing.StandardOutput(out))
    raise typer.Exit(0 if measured.passes else 1)


def _flags(include: list[str] | None, define: list[str] | None, optimisation: str | None) -> Iterator[str]:
    for option, values in (("-I", include or ()), ("-D", define or ())):
        for value in values:
            yield from (option, value)
    if optimisation is not None:
        yield f"-O{optimisation}"


def _words(text: str) -> Sequence[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{str(error).lower()}: quotes are as in a shell", where="--cflags") from None


@contextmanager
def _named_by_the_user(budget: Path | None) -> Iterator[None]:
    """Errors of the experiment name what the user has written: a file of budgets at most."""
    try:
        yield
    except LabError as error:
        if error.where == BUILT:
            error.where = "the experiment of --print"
            if budget is not None and error.what.startswith(_OF_BUDGET):
                error.where, error.what = str(budget), error.what.removeprefix(_OF_BUDGET)
        raise
