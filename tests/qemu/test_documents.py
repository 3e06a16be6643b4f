# SPDX-License-Identifier: GPL-2.0-only
"""Does the experiment of each document since 2006 run, and are its counts and verdicts those of docs/documents.md?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.benchmarks.registry import reports
from orchestrator.catalog.reference import claims
from orchestrator.paths import data_dir
from orchestrator.report.claims import Verdict, assess
from orchestrator.results.contract import RunRecord

pytestmark = pytest.mark.qemu

PAGE = data_dir("docs") / "documents.md"
DOCUMENTS = sorted(
    {claim.document for claim in claims().values() if claim.document not in ("djprobe-2005", "jump-optimization-2009")}
)


def counts(section: str) -> Mapping[str, list[str]]:
    """The counted columns of a section's first table, by the probe."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = next(paragraph for paragraph in text.split("\n\n") if paragraph.startswith("|")).splitlines()
    rows = [[part.strip(" `") for part in line.strip("|").split("|")] for line in lines]
    counted = [index for index, heading in enumerate(rows[0]) if heading.endswith("instructions")]
    assert counted
    return {row[0]: [row[index] for index in counted if row[index] != "-"] for row in rows[2:]}


@pytest.mark.parametrize("name", [*DOCUMENTS, "probe-overhead"])
@pytest.mark.nightly("each document's experiment on Debian's kernels: some ten seconds each")
def test_the_page_has_what_is_counted(name: str, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    done = command.run("run", data_dir("configs") / f"{name}.yaml")
    assert done.returncode == 0, done.stderr
    answer = command.run("report", "latest", "--format", "json")
    record = RunRecord.model_validate_json(answer.stdout, strict=False)
    found: dict[str, list[str]] = {}
    for cell in record.cells:
        if cell.probe != "none":
            shown = cell.status if cell.overhead is None else f"{cell.overhead:g}"
            found.setdefault(cell.probe, []).append(shown)
    assert found == counts(name)
    outcomes = [one for assessment in assess(record, reports()) for one in assessment.outcomes]
    for outcome in outcomes:
        expected = Verdict.HOLDS if outcome.claim.by == "lab" else Verdict.UNDECIDED
        assert outcome.verdict is expected, outcome.claim.sentence
