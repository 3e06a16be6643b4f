# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator model``: what modelled time follows from."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.failures import expected_failures

app = typer.Typer(help="Modelled time: the costs that published figures give.", no_args_is_help=True)


@app.command("fit")
@expected_failures
def fit(
    costs: Annotated[str, typer.Argument(metavar="CPU", help="A CPU, or the path of a cost table of your own.")],
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Runs with profiles of its calibration cells.", autocompletion=completion.runs
        ),
    ],
) -> None:
    """Fit the costs of a CPU to the published figures that its cost table declares, and write them into it."""
    from orchestrator.model.calibration import calibrated
    from orchestrator.model.cost_file import cost_file
    from orchestrator.paths import lab_dir
    from orchestrator.results.runs import find_run

    file = cost_file(costs)
    fitted = calibrated(file, [find_run(run, lab_dir()) for run in runs])
    file.write(fitted)
    for name, cost in fitted.costs.items():
        typer.echo(f"{name}: {cost.cycles:.4g} cycles")
    for cell in fitted.cells:
        typer.echo(f"{cell.table} {cell.column}: {cell.modelled:.1f} of {cell.published:g} ns, {cell.residual:+.1%}")
    typer.echo(f"written: {file.path}")
