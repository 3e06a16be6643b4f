# SPDX-License-Identifier: GPL-2.0-only
"""What was run, in two sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from orchestrator.counted import counted
from orchestrator.results.contract import RunRecord
from orchestrator.results.run_files import Provenance

_NAMED = 6
_STARTED = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)\d\d-")
_CLOCKS = {"instructions": "counted in instructions", "wall": "timed in nanoseconds of the guest's clock"}


def run_sentences(run: RunRecord, made_with: Provenance, unfinished: int) -> Iterator[str]:
    """Yield what was measured, and with what outcome."""
    cells = run.cells
    if not cells:
        yield f"Run {run.run} of experiment {run.experiment} has no cell with an outcome yet."
        return
    what = " and ".join(_CLOCKS[clock] for clock in dict.fromkeys(cell.clock for cell in cells))
    yield (
        f"Experiment {run.experiment} measured {counted(len(cells), 'cell')} of "
        f"{_named(cell.benchmark for cell in cells)} on "
        f"{_named(cell.cpu for cell in cells)} with {_named(cell.kernel for cell in cells)} and the probes "
        f"{_named(cell.probe for cell in cells)}, {what}."
    )
    states = Counter(cell.status for cell in cells)
    outcome = ", ".join(f"{number} {status}" for status, number in states.items() if status != "ok")
    rest = f"; {outcome}" if outcome else ""
    open_cells = f"; {unfinished} not measured yet" if unfinished else ""
    started = _STARTED.match(run.run)
    when = "" if started is None else " on {}-{}-{} at {}:{}".format(*started.groups())
    yield f"Run {run.run}{_tools(made_with)}{when}: {states['ok']} with a number and its proof{rest}{open_cells}."


def _tools(made_with: Provenance) -> str:
    qemus = [str(session["qemu"]) for session in made_with.sessions if session.get("qemu")]
    return f" by {_named(qemus)}" if qemus else ""


def _named(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    listed = found[:_NAMED] if len(found) > _NAMED + 1 else found
    rest = [f"{len(found) - len(listed)} more"] if len(listed) < len(found) else []
    *first, last = [*listed, *rest]
    return f"{', '.join(first)} and {last}" if first else last
