# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator doctor``: what this host can do, what is missing, how to get it."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.failures import expected_failures


@expected_failures
def doctor(
    fleet: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Examine a fleet's workers instead: what they have that is not as here. A name or tls://HOST:PORT.",
            autocompletion=completion.fleets,
        ),
    ] = None,
) -> None:
    """Examine this host: programs, packages, KVM's real speed, disk. Exits with 3 when something is missing."""
    from rich.console import Console

    from orchestrator.host.doctor import examine
    from orchestrator.host.findings import exit_status, render

    if fleet is None:
        findings = examine()
    else:
        from orchestrator.cli.fleet_status import examine_fleet
        from orchestrator.fleet.target import target

        findings = examine_fleet(target(fleet))
    render(findings, Console())
    raise typer.Exit(exit_status(findings))
