# SPDX-License-Identifier: GPL-2.0-only
"""The mail of a night: what changed, where, and how to repeat it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from orchestrator.comparison.comparison_sheet import comparison_sheet
from orchestrator.nightly.night import (
    MOST_CELLS,
    PROSE,
    TABLE_WIDTH,
    NightlyResult,
    acceptance,
    comparison_sentence,
    repeatability,
    reproducers,
    subject,
    verdict,
)
from orchestrator.plain_text import plain_line, shown
from orchestrator.report.summary import summary
from orchestrator.report.table_report import ReportRegistry
from orchestrator.report.text import ascii_text
from orchestrator.results.recorded_provenance import RecordedProvenance, kernel_versions

# Longer lines would become quoted-printable, which is hard to read in a file (RFC 5322, section 2.1.1: 998).
_POLICY = SMTP.clone(linesep="\n", max_line_length=998, cte_type="7bit")


def nightly_mail(result: NightlyResult, provenance: RecordedProvenance, registry: ReportRegistry, now: datetime) -> str:
    """The report as a mail without a recipient, for ``sendmail someone@example.org <FILE``."""
    return _message(subject(result), "\n\n".join(_parts(result, provenance, registry)), now)


def unmeasured_mail(experiment: str, file: str, reason: str, now: datetime) -> str:
    """The mail of a nightly run of the experiment in ``file`` without measurements."""
    body = "\n".join(["Experiment:", f"  {experiment}: {plain_line(file)}", "", reason])
    return _message(f"[{experiment}] not measured", body, now)


def _message(title: str, body: str, now: datetime) -> str:
    message = EmailMessage(policy=_POLICY)
    message["Subject"] = _ascii(title).replace("\n", " ")
    message["Date"] = format_datetime(now)
    message.set_content(_ascii(body) + "\n", charset="us-ascii")
    return message.as_string()


def _parts(result: NightlyResult, provenance: RecordedProvenance, registry: ReportRegistry) -> Iterator[str]:
    yield "\n".join(_wrapped([f"{verdict(result)}.", *comparison_sentence(result).splitlines()], ""))
    if result.compared is not None and result.compared.comparison.changed:
        yield ascii_text([comparison_sheet(result.compared, MOST_CELLS)], TABLE_WIDTH).strip("\n")
    failed = shown([f"{cell.id}: {cell.first_line}" for cell in result.failed], MOST_CELLS)
    sections: dict[str, Iterable[str]] = {
        "Experiment": [f"  {result.experiment}: {plain_line(result.file)}"],
        "Failed": _wrapped(failed, "  "),
        "Summary": _wrapped(summary(result.run.record, registry), "  "),
        "Kernels": _indented(
            [f"{name}: {version}" for name, version in kernel_versions(provenance).items()] or ["unknown"]
        ),
        "Machines": _indented(_machines(result, provenance)),
        "Repeatability (A/A)": _indented(repeatability(result)),
        "Reproduce": _indented(reproducers(result)),
        "Accept": _indented(acceptance(result)),
        "Run": _indented([result.run.record.run, str(result.run.directory)]),
    }
    for title, lines in sections.items():
        listed = [*lines]
        if listed or title not in ("Failed", "Reproduce", "Accept"):
            yield "\n".join([f"{title}:", *listed])


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _wrapped(sentences: Iterable[str], indent: str) -> Iterator[str]:
    hanging = f"{indent}  " if indent else ""
    for sentence in sentences:
        yield from textwrap.wrap(
            sentence, PROSE, initial_indent=indent, subsequent_indent=hanging, break_long_words=False
        )


def _machines(result: NightlyResult, provenance: RecordedProvenance) -> Iterator[str]:
    machines = {(cell.cpu, cell.smp, cell.clock) for cell in result.run.record.cells}
    for cpu, smp, clock in sorted(machines):
        yield f"{cpu}, {smp} CPU{'s' if smp > 1 else ''}, clock {clock}"
    if provenance.sessions:
        session = provenance.sessions[-1]
        host = ", ".join(f"{name} {value}" for name, value in session.host.items())
        yield from (line for line in (session.qemu, session.compiler, session.guests, f"host: {host}") if line)


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode("ascii")
