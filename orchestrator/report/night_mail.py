# SPDX-License-Identifier: GPL-2.0-only
"""A night as a mail (RFC 5322) in plain ASCII: what changed, on which kernels and machines, how to see it again."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from rich.console import Console

from orchestrator.report.comparison_sheet import comparison_sheet
from orchestrator.report.export import first_line
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.night_words import acceptance, against, equal_runs, reproducers, subject, verdict
from orchestrator.report.summary import summary
from orchestrator.report.table import print_sheets
from orchestrator.results.night import Night
from orchestrator.results.origin import Origin, kernel_versions

_WIDTH = 100
_PROSE = 76
_LISTED = 20
# A longer line would be sent as quoted-printable, which nobody reads in a file (RFC 5322, section 2.1.1: 998).
_POLICY = SMTP.clone(linesep="\n", max_line_length=998, cte_type="7bit")


def night_mail(night: Night, origin: Origin, registry: ReportRegistry, now: datetime) -> str:
    """The mail, without a recipient: ``sendmail someone@example.org <FILE`` adds what it lacks."""
    parts = [*_parts(night, origin, registry)]
    return _message(subject(night), "\n\n".join(parts), now)


def unmeasured_mail(experiment: str, reason: str, now: datetime) -> str:
    """The mail of a night that has measured nothing."""
    return _message(f"[{experiment}] not measured", reason, now)


def _message(title: str, body: str, now: datetime) -> str:
    message = EmailMessage(policy=_POLICY)
    message["Subject"] = _ascii(title).replace("\n", " ")
    message["Date"] = format_datetime(now)
    message.set_content(_ascii(body) + "\n", charset="us-ascii")
    return message.as_string()


def _parts(night: Night, origin: Origin, registry: ReportRegistry) -> Iterator[str]:
    yield "\n".join(_wrapped([f"{verdict(night)}.", *against(night).splitlines()], ""))
    if night.compared is not None and night.compared.comparison.changed:
        yield _table(night)
    if night.failed:
        yield _prose("Failed", _bounded([f"{cell.id}: {first_line(cell)}" for cell in night.failed]))
    yield _prose("Summary", summary(night.run.record, registry))
    if night.problems:
        yield _prose("Problems", night.problems)
    yield _section(
        "Kernels", [f"{name}: {version}" for name, version in kernel_versions(origin).items()] or ["unknown"]
    )
    yield _section("Machines", _machines(night, origin))
    yield _section("Equal runs differ by (A/A)", equal_runs(night))
    again = list(reproducers(night))
    if again:
        yield _section("Reproduce", again)
    accepted = acceptance(night)
    if accepted is not None:
        yield _section("To accept it as it is", [accepted])
    yield _section("Run", [night.run.record.run, str(night.run.directory)])


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)])


def _prose(title: str, sentences: Iterable[str]) -> str:
    return "\n".join([f"{title}:", *_wrapped(sentences, "  ")])


def _wrapped(sentences: Iterable[str], indent: str) -> Iterator[str]:
    hanging = f"{indent}  " if indent else ""
    for sentence in sentences:
        yield from textwrap.wrap(
            sentence, _PROSE, initial_indent=indent, subsequent_indent=hanging, break_long_words=False
        )


def _bounded(lines: list[str]) -> list[str]:
    more = [f"... and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return lines[:_LISTED] + more


def _machines(night: Night, origin: Origin) -> Iterator[str]:
    kinds = {(cell.cpu, cell.smp, cell.clock) for cell in night.run.record.cells}
    for cpu, smp, clock in sorted(kinds):
        yield f"{cpu}, {smp} CPU{'s' if smp > 1 else ''}, clock {clock}"
    if origin.sessions:
        session = origin.sessions[-1]
        host = ", ".join(f"{name} {value}" for name, value in session.host.items())
        yield from (line for line in (session.qemu, session.compiler, session.guests, f"host: {host}") if line)


def _table(night: Night) -> str:
    """The table of what changed, as ``compare`` prints it."""
    assert night.compared is not None
    buffer = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    console = Console(file=buffer, width=_WIDTH, force_terminal=False, color_system=None)
    print_sheets([comparison_sheet(night.compared, _LISTED)], console)
    buffer.seek(0)
    return "\n".join(line.rstrip() for line in buffer.read().strip("\n").splitlines())


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode("ascii")
