# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator compare``: what became dearer, cheaper, appeared, vanished or failed between two runs or kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion, options
from orchestrator.cli.failures import expected_failures
from orchestrator.cli.profile_forms import Form, FormOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.results.compared_runs import ComparedRuns


@expected_failures
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A] [B]",
            help="Runs, cells (RUN:CELL), baselines. B alone: with the baseline 'default', or else the run before it.",
            autocompletion=completion.runs,
        ),
    ] = None,
    form: FormOption = Form.TABLE,
    only: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="Only these cells, as run does: probe=djprobe.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="List N changed cells, and count the rest; 0: all of them.")
    ] = 20,
    kernels: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Compare the cells of one run that differ in the kernel only."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="CONFIG", help="Measure this experiment on the kernels A and B, compare those."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="With --config: replace a value, as run does."),
    ] = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Compare two runs cell by cell, the largest change first, with the symbols that explain it.

    Exits with 0 within the budgets of B's experiment, with 1 beyond them or where a cell failed or vanished, and with 2
    where nothing can be compared.
    """
    from orchestrator.cli import compared_runs
    from orchestrator.errors import UsageError
    from orchestrator.paths import lab_dir
    from orchestrator.results.runs import find_run

    given = names or []
    most = 1 if kernels is not None else 2
    if len(given) > most:
        raise UsageError(f"{len(given)} runs are named", hint=f"name at most {most}")
    if config is not None:
        if len(given) != 2 or kernels is not None:
            raise UsageError("--config needs two kernels", hint="orchestrator compare --config CONFIG A B")
        compared = _measured(config, (given[0], given[1]), overrides or [], only or [], offline, verbose)
    elif overrides:
        raise UsageError("--set is for what --config measures", hint="leave it out")
    elif kernels is not None:
        run = find_run(given[0] if given else "latest", lab_dir())
        compared = compared_runs.compared_kernels(run, kernels, only or [])
    else:
        compared = compared_runs.compared(given or ["latest"], only or [])
    _print(compared, form, limit or None)
    # A cell that failed in both of two stored runs is no change; one that was measured just now is a failure.
    has_failed = config is not None and any(cell.status == "failed" for cell in compared.after.record.cells)
    raise typer.Exit(1 if compared.comparison.beyond or has_failed else 0)


def _measured(
    config: Path, kernels: tuple[str, str], overrides: Sequence[str], only: Sequence[str], offline: bool, verbose: bool
) -> ComparedRuns:
    from orchestrator.cli.compared_kernels import TwoKernels
    from orchestrator.cli.compared_runs import compared_kernels
    from orchestrator.cli.measured import Measuring

    wanted = TwoKernels(config, kernels, overrides, only)
    run = wanted.run(Measuring(offline=offline, verbose=verbose))
    return compared_kernels(run, wanted.names, [])


def _print(compared: ComparedRuns, form: Form, limit: int | None) -> None:
    match form:
        case Form.JSON:
            from orchestrator.report.comparison_json import comparison_text

            typer.echo(comparison_text(compared), nl=False)
        case Form.MARKDOWN:
            from orchestrator.report.comparison_markdown import render_comparison

            typer.echo(render_comparison(compared, limit), nl=False)
        case Form.TABLE:
            from rich.console import Console

            from orchestrator.report.comparison_sheet import comparison_sheet
            from orchestrator.report.table import print_sheets

            print_sheets([comparison_sheet(compared, limit)], Console())
