# SPDX-License-Identifier: GPL-2.0-only
"""Commands that are called in the test's own process, and their refusals."""

from __future__ import annotations

from pathlib import Path

from printed_json import check_printed
from typer.testing import CliRunner, Result

from orchestrator.cli.main import app


def orchestrator(*arguments: str | Path, stdin: str | None = None) -> Result:
    words = list(map(str, arguments))
    done = CliRunner().invoke(app, words, input=stdin)
    check_printed(words, done.stdout)
    return done


def refusal(*arguments: str, status: int = 2) -> str:
    """The error of a command that must fail: a sentence on stderr, nothing on stdout."""
    result = orchestrator(*arguments)
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())
