# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator report``, ``site`` and ``model``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from orchestrator.benchmarks.registry import reports
from orchestrator.cli import completion, format_options, printing
from orchestrator.errors import UsageError
from orchestrator.library.formats import Format, Formats
from orchestrator.model.fit import calibrated
from orchestrator.model.modelled_run import catalogue_prices, modelled_run, user_prices
from orchestrator.model.price_file import price_file, price_sources, write_price_list
from orchestrator.pages.site.building import build_site
from orchestrator.paths import lab_dir, user_path
from orchestrator.report.claims import ClaimsLayout, all_claims, assess, decided_claims
from orchestrator.report.modelled_forms import PricesView, TimesView
from orchestrator.report.run_view import RunView
from orchestrator.report.table_report import draw_charts
from orchestrator.results.contract import RunRecord, all_ok
from orchestrator.results.modelled import CpuPrices, ModelledRun
from orchestrator.results.runs import Run, find_run, opened_store
from orchestrator.results.store import LATEST, no_run_yet

ReportClock = StrEnum("ReportClock", "MEASURED MODELLED")
RUN, TIMES, PRICES = Formats("run"), Formats("modelled run"), Formats("price list")


def report(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run's directory, its id, or 'latest'.",
            show_default="latest",
            autocompletion=completion.runs,
        ),
    ] = None,
    form: Annotated[Format, format_options.format_option(RUN)] = RUN.default,
    clock: Annotated[
        ReportClock,
        typer.Option(help="measured: the run's figures; modelled: the times computed from them, in detail."),
    ] = ReportClock.MEASURED,
    prices: Annotated[
        list[str] | None,
        typer.Option("--prices", "--costs", metavar="PATH", help="Your own price list, for modelled times."),
    ] = None,
    charts: Annotated[
        bool, typer.Option("--charts", help="Also draw charts, as PNG and SVG in the run's directory.")
    ] = False,
    claims: Annotated[
        bool, typer.Option("--claims", help="Print all claims of the documents with figures, even undecided ones.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help=format_options.SCHEMA_HELP)] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for --format html; default: stdout, or report.html on a terminal."),
    ] = None,
) -> None:
    """Print a run's results.

    Exits with 1 if a cell failed or has no outcome yet.
    """
    options_given = {"--prices": prices, "--charts": charts, "--claims": claims, "--schema": schema, "--out": out}
    given = [name for name, value in options_given.items() if value]
    given += ["RUN"] * (run is not None)
    _check(given, form, clock)
    if schema:
        format_options.print_schema(RunRecord if clock is ReportClock.MEASURED else ModelledRun)
        return
    if out is not None:
        printing.check_page_file(out)
    layout = all_claims if claims else decided_claims
    chosen = find_run(run or LATEST, lab_dir())
    output = printing.StandardOutput(out)
    if clock is ReportClock.MEASURED:
        form.write("run", RunView(chosen, reports(), layout), output)
    else:
        form.write("modelled run", _times(chosen, prices or [], layout), output)
    if charts:
        sys.stdout.flush()
        for path in draw_charts(chosen.record, chosen.directory, reports()):
            print(path, file=sys.stderr)
    if chosen.unfinished:
        print(chosen.unfinished_sentence, file=sys.stderr)
    raise typer.Exit(0 if all_ok(chosen.record) and not chosen.unfinished else 1)


def _check(given: Sequence[str], form: Format, clock: ReportClock) -> None:
    is_modelled = clock is ReportClock.MODELLED
    besides = [name for name in given if name != "--schema"]
    has_schema = form.name in (RUN.default.name, "json")
    wrong = [
        ("--schema", bool(besides), "the schema is the same for all runs", f"leave out {', '.join(besides)}"),
        ("--schema", not has_schema, "the schema is for JSON", f"leave out --format {form}"),
        ("--prices", not is_modelled, "measured figures need no prices", "add --clock modelled"),
        ("--charts", is_modelled, "charts show measured figures only", "leave out --clock modelled"),
        ("--claims", not form.has_claims, f"{form} prints no claims", "leave out --claims"),
        ("--out", not form.is_page, f"{form} goes to stdout", f"--format {form} >FILE, or --format html"),
    ]
    for option, is_wrong, what, hint in wrong:
        if option in given and is_wrong:
            raise UsageError(what, where=option, hint=hint)
    if is_modelled and TIMES.named(form.name) is None:
        raise UsageError(f"{form} has measured figures only", where="--format", hint="leave out --clock modelled")


def _times(run: Run, prices: Sequence[str], layout: ClaimsLayout) -> TimesView:
    modelled = modelled_run(run.record, {**catalogue_prices(), **user_prices(prices, run)})
    return TimesView(run, modelled, assess(run.record, reports(), modelled), layout)


def site(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The site's folder: a new one, or that of an earlier site.")
    ],
    runs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Pages of the N newest runs only; default: all.")
    ] = None,
) -> None:
    """Write all results as static pages that need no network.

    Each run has a page, and each metric one with its history. Rewrites only pages that changed. Prints the path of the
    first page.
    """
    with opened_store() as store, _display() as progress:
        if store is None:
            raise no_run_yet(lab_dir())
        built = build_site(store, directory, reports(), runs, progress)
    if built.lacking:
        print(f"warning: {built.lacking}: pip install 'probe-lab[statistics]'", file=sys.stderr)
    print(f"{built.pages} pages, {built.written} written, {built.removed} removed", file=sys.stderr)
    typer.echo(built.index)


@contextmanager
def _display() -> Iterator[Callable[[int, int], None]]:
    console = Console(stderr=True)
    columns = (TextColumn("pages"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("pages", total=None)
        yield lambda done, pages: bar.update(task, completed=done, total=pages)


_Prices = Annotated[
    str,
    typer.Argument(
        metavar="CPU", help="A CPU, or the path of your own price list.", autocompletion=completion.price_lists
    ),
]


def show(
    prices: _Prices,
    form: Annotated[Format, format_options.format_option(PRICES)] = PRICES.default,
    _schema: Annotated[bool, format_options.schema(lambda: CpuPrices)] = False,
) -> None:
    """Print a CPU's prices, frequency and caches, with their sources."""
    file = price_file(prices)
    form.write("price list", PricesView(price_sources(file), file.text), printing.StandardOutput())


def fit(
    prices: _Prices,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Runs of the calibration cells.", autocompletion=completion.runs),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table there instead of printing it.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Fit a CPU's prices to the published figures that its price list declares, and print the new table."""
    if force and out is None:
        raise UsageError("needs --out", where="--force", hint="name a file: --out FILE")
    file = price_file(prices)
    fitted = calibrated(file, [find_run(run, lab_dir()) for run in runs])
    if out is None:
        typer.echo(file.text_with(fitted), nl=False)
    else:
        path = user_path(str(out))
        write_price_list(path, file.text_with(fitted), replace=force)
    for name, price in fitted.costs.items():
        typer.echo(f"{name}: {price.cycles:.4g} cycles", err=True)
    for cell in fitted.cells:
        error = f"{cell.residual:+.1%}"
        typer.echo(f"{cell.table} {cell.column}: {cell.modelled:.1f} of {cell.published:g} ns, {error}", err=True)
    if out is not None:
        typer.echo(f"written: {path}", err=True)
