# SPDX-License-Identifier: GPL-2.0-only
"""Runs the README's first command in a clone on a fresh machine, and checks what it prints and what it keeps."""

from __future__ import annotations

from first_table import FirstTable, check_printed, check_record
from fresh_machine import Clone

from orchestrator.process import Finished
from orchestrator.results.contract import RunRecord

_REPORT = "./lab report latest --format json"


def run_first(clone: Clone, *options: str) -> FirstTable:
    """Run the first command, to the end of all checks; ``options`` are those of ``contained``."""
    printed = succeed(clone, clone.commands.first, *options).stdout
    table = check_printed(printed)
    if table.kernel == clone.promised.kernel:
        assert table.rows == clone.promised.rows, "the README promises another table"
    reported = succeed(clone, _REPORT, *options).stdout
    check_record(RunRecord.model_validate_json(reported, strict=False), table)
    return table


def succeed(clone: Clone, line: str, *options: str) -> Finished:
    """Run a line that has to end with status 0."""
    finished = clone.run(line, *options)
    assert finished.status == 0, "\n".join([f"it ended with status {finished.status}", *finished.complaint()])
    return finished
