# SPDX-License-Identifier: GPL-2.0-only
"""Comments of a pull request on GitHub: their first line is a mark by which a comment is found and replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

from orchestrator.plain_text import cut
from orchestrator.report.markdown import escaped, inert
from orchestrator.results.recorded_provenance import provenance_of
from orchestrator.results.runs import EXPERIMENT_FILE, Run

COMMENT_LIMIT = 65_536
"""The most characters of a comment on GitHub."""


FAILS, PASSES = "❌", "✅"
"""The signs of a comment's verdict."""


_LONGEST_LINE = 1000
"""Characters of a comment's sentences, before they are escaped."""


def github_comment(name: str, verdict: str, parts: Iterable[str], made: str, more: str) -> str:
    """A comment in Markdown on the experiment ``name``, at most ``COMMENT_LIMIT`` characters long.

    ``verdict`` is one sentence, ``made`` tells what was measured with what (``made_with``), ``more`` is the command
    that prints everything: plain text. ``parts`` are Markdown, the most important first. A table that is too long loses
    its last rows, any other part is left out as a whole, and a sentence says so.
    """
    verdict, made, more = (escaped(cut(text, _LONGEST_LINE)) for text in (verdict, made, more))
    head = [f"<!-- probe-lab: {re.sub('[^A-Za-z0-9._@+-]', '-', name)} -->", f"**{verdict}**"]
    shortened = f"Shortened to fit into a comment of GitHub. All of it: {more}"
    last = f"<sub>{made}</sub>\n"
    room = COMMENT_LIMIT - len("\n\n".join([*head, shortened, last]))
    kept = []
    is_whole = True
    for part in parts:
        fitting = _beginning(part, room - 2)
        is_whole &= fitting == part
        if fitting:
            kept.append(fitting)
            room -= len(fitting) + 2
    return "\n\n".join([*head, *kept, *([] if is_whole else [shortened]), last])


def _beginning(part: str, most: int) -> str:
    """The part; if it is longer, the first rows of a table, and nothing of anything else."""
    if len(part) <= most:
        return part
    rows = part[: max(most, 0) + 1].split("\n")[:-1] if part.startswith("| ") else []
    return "\n".join(rows) if len(rows) > 2 else ""


def details(summary: str, markdown: str) -> str:
    """Markdown that a click on the ``summary``, a plain text, shows."""
    return f"<details><summary>{inert(' '.join(summary.splitlines()))}</summary>\n\n{markdown}\n\n</details>"


def made_with(*runs: Run) -> str:
    """The runs, their kernels, programs and experiments, in one line; what is unknown is left out."""
    provenances = [provenance_of(run.directory) for run in runs]
    kernels = dict.fromkeys(
        f"{boot.kernel.name} {boot.kernel.release}".strip() for provenance in provenances for boot in provenance.boots
    )
    facts = [f"{'runs' if len(runs) > 1 else 'run'} {', '.join(run.record.run for run in runs)}", ", ".join(kernels)]
    for before, name in (("probe-lab ", "orchestrator"), ("", "qemu"), ("", "compiler")):
        versions = dict.fromkeys(getattr(provenance.session, name) for provenance in provenances)
        facts += [f"{before}{version}" for version in versions if version]
    files = [run.directory / EXPERIMENT_FILE for run in runs]
    digests = dict.fromkeys(sha256(file.read_bytes()).hexdigest()[:16] for file in files if file.is_file())
    facts.append(f"experiment {', '.join(digests)}" if digests else "")
    return "; ".join(fact for fact in facts if fact)
