# SPDX-License-Identifier: GPL-2.0-only
"""Where the report of a nightly run goes: a mail, JUnit XML, a webhook."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from orchestrator.benchmarks.registry import reports
from orchestrator.errors import HostError, LabError
from orchestrator.files import check_writable, write_whole
from orchestrator.nightly.mail import nightly_mail, unmeasured_mail
from orchestrator.nightly.night import NightlyResult, comparison_sentence
from orchestrator.nightly.night_json import NightReport, UnmeasuredNight
from orchestrator.nightly.webhook import Webhook
from orchestrator.report.junit_export import render_junit, unmeasured_junit
from orchestrator.results.contract import Reason
from orchestrator.results.faults import storage_faults
from orchestrator.results.recorded_provenance import provenance_of
from orchestrator.results.run_files import last_lines

MAIL = "night.eml"

_REASON = TypeAdapter(Reason)
"""Escapes control characters, which XML does not allow: an error may quote a compiler."""


@dataclass(frozen=True)
class NightlyReport:
    """Where the report goes besides the terminal and the run's directory; None for those not wanted.

    ``warn`` is told of a webhook that does not answer.
    """

    mail: Path | None = None
    junit: Path | None = None
    webhook: Webhook | None = None
    warn: Callable[[str], None] = lambda text: None

    def check(self) -> None:
        """Raise UsageError for a file that cannot be written and for a wrong URL."""
        check_writable(self.mail, self.junit)
        if self.webhook is not None:
            self.webhook.check()

    def unmeasured(self, experiment: str, file: str, error: LabError) -> None:
        """Report, except on the terminal, that nothing of the experiment in ``file`` was measured."""
        reason = _REASON.validate_python(str(error))
        self._write(self.mail, unmeasured_mail(experiment, file, reason, datetime.now(UTC)))
        self._write(self.junit, unmeasured_junit(experiment, reason))
        self._post(UnmeasuredNight.of(experiment, file, reason, os.uname().nodename))

    def write(self, result: NightlyResult) -> Path:
        """Write the result's files. Returns the mail in the run's directory."""
        provenance = provenance_of(result.run.directory)
        mail = nightly_mail(result, provenance, reports(), datetime.now(UTC))
        path = result.run.directory / MAIL
        for file in (path, self.mail):
            self._write(file, mail)
        if self.junit is not None:
            consoles = last_lines(result.run.directory, [cell.id for cell in result.failed])
            wrong = {change.pair.first.id: change.exceeded for change in result.exceeded}
            wrong |= {"comparison": (comparison_sentence(result),)} if result.not_compared else {}
            self._write(self.junit, render_junit(result.run.record, provenance, consoles, wrong))
        return path

    def post(self, result: NightlyResult) -> None:
        """Post the result to the webhook."""
        self._post(NightReport.of(result, os.uname().nodename))

    def _write(self, file: Path | None, text: str) -> None:
        if file is not None:
            with storage_faults(file):
                write_whole(file, text)

    def _post(self, content: NightReport | UnmeasuredNight) -> None:
        """Post to the webhook, and only warn if the server does not answer."""
        if self.webhook is None:
            return
        try:
            self.webhook.post(content.model_dump(mode="json"))
        except HostError as error:
            self.warn(f"warning: {error}")
