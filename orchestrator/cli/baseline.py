# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator baseline``: names for runs that others are compared with."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.failures import expected_failures

if TYPE_CHECKING:
    from orchestrator.results.baselines import Baseline
    from orchestrator.results.store import Store

app = typer.Typer(no_args_is_help=True, help="Names for runs that others are compared with.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The baseline's name.", autocompletion=completion.baselines)]


@app.command("set")
@expected_failures
def set_(
    name: _Name,
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run's directory, its id, or 'latest'.", autocompletion=completion.runs),
    ] = "latest",
) -> None:
    """Give a run a name. 'default' is what ``compare`` takes where no other run is named."""
    from orchestrator.paths import lab_dir
    from orchestrator.results.baselines import check_baseline_name
    from orchestrator.results.runs import find_run
    from orchestrator.results.store import Store

    check_baseline_name(name)
    found = find_run(run, lab_dir())
    if found.unfinished:
        print(found.unfinished_sentence, file=sys.stderr)
    with Store.open(lab_dir()) as store:
        before = store.baselines().get(name)
        store.set_baseline(name, found.record.run)
    was = f" (it was {before.run})" if before is not None and before.run != found.record.run else ""
    typer.echo(f"{name} is {found.record.run}{was}")


@app.command("list")
@expected_failures
def list_() -> None:
    """List the baselines with their runs."""
    from orchestrator.cli.columns import print_columns
    from orchestrator.paths import lab_dir
    from orchestrator.results.store import FILE_NAME, Store

    rows: list[tuple[str, ...]] = []
    if (lab_dir() / FILE_NAME).exists():
        with Store.open(lab_dir()) as store:
            rows = [_row(store, one) for one in store.baselines().values()]
    print_columns(("baseline", "run", "experiment", "status", "since"), rows)


@app.command("remove")
@expected_failures
def remove(name: _Name) -> None:
    """Remove a name; its run stays."""
    from orchestrator.paths import lab_dir
    from orchestrator.results.baselines import unknown_baseline
    from orchestrator.results.store import FILE_NAME, Store

    if not (lab_dir() / FILE_NAME).exists():
        raise unknown_baseline(name, {})
    with Store.open(lab_dir()) as store:
        store.remove_baseline(name)


def _row(store: Store, baseline: Baseline) -> tuple[str, ...]:
    entry = store.entry(baseline.run)
    since = f"{datetime.fromisoformat(baseline.since).astimezone():%Y-%m-%d %H:%M}"
    return baseline.name, entry.id, entry.experiment, entry.status, since
