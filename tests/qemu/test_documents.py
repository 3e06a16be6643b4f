# SPDX-License-Identifier: GPL-2.0-only
"""Does the experiment of each document since 2006 run, and are its counts and verdicts those of docs/documents.md?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.benchmarks.registry import reports
from orchestrator.catalog.published_tables import claims
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


def verdicts(section: str) -> list[str]:
    """The verdicts of a section's claims: by modelled times, or by counts where no time judges."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    wanted = rows[next(at for at, row in enumerate(rows) if row[0].strip() == "claim") + 2 :]
    matches = [
        re.match(r" (not decided|not measured|holds|does not hold)", row[3].rstrip() or row[2]) for row in wanted
    ]
    return [match[1] for match in matches if match is not None]


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
    outcomes = [outcome for assessment in assess(record, reports()) for outcome in assessment.outcomes]
    if name == "getpid-2006":  # whose claims the page has in sentences
        assert [outcome.verdict for outcome in outcomes] == [Verdict.UNDECIDED, Verdict.HOLDS]
    elif name in DOCUMENTS:
        assert [str(outcome.verdict) for outcome in outcomes] == verdicts(name)
