# SPDX-License-Identifier: GPL-2.0-only
"""What was found about the host, how it is printed, and the exit status it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.console import Console
from rich.text import Text

from orchestrator.errors import HostError


class Status(StrEnum):
    """How bad it is; only ``missing`` keeps the lab from working."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.MISSING: "bold red"}


@dataclass(frozen=True)
class Finding:
    """One fact about the host; ``remedy`` is what to do about it, empty where nothing is to be done."""

    name: str
    status: Status
    text: str
    remedy: str = ""


def render(findings: Sequence[Finding], console: Console) -> None:
    """Print one line per finding and its remedy below; no colour and no wrapping where ``console`` is a pipe."""
    status_width = max(len(status) for status in Status)
    name_width = max((len(finding.name) for finding in findings), default=0)
    for finding in findings:
        line = Text(f"{finding.status:<{status_width}}", style=STYLES[finding.status])
        line.append(f"  {finding.name:<{name_width}}  {finding.text}", style="default")
        console.print(line, soft_wrap=True)
        if finding.remedy:
            console.print(Text(" " * (status_width + name_width + 4) + f"→ {finding.remedy}"), soft_wrap=True)


def exit_status(findings: Sequence[Finding]) -> int:
    """0 if nothing is missing, else the status of a host that lacks something."""
    return HostError.exit_status if any(finding.status is Status.MISSING for finding in findings) else 0
