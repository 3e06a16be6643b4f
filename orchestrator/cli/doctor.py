# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator doctor``: what this host can do, what is missing, how to get it."""

from __future__ import annotations

import typer

from orchestrator.cli.failures import expected_failures


@expected_failures
def doctor() -> None:
    """Examine this host: programs, packages, KVM's real speed, disk. Exits with 3 when something is missing."""
    from rich.console import Console

    from orchestrator.host.doctor import examine
    from orchestrator.host.findings import exit_status, render

    findings = examine()
    render(findings, Console())
    raise typer.Exit(exit_status(findings))
