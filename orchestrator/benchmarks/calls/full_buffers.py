# SPDX-License-Identifier: GPL-2.0-only
"""What calls take whose hits find the buffers full that they send records to: the second figure of such a probe.

A buffer is left without room by its reader's position. So the kernel refuses a record as where nobody has read in time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from orchestrator.benchmarks.calls.call_results import phrase
from orchestrator.benchmarks.calls.cell_work import Armed, CellContext, HitCounts
from orchestrator.benchmarks.calls.counting_pass import count_hits
from orchestrator.benchmarks.calls.samples import Measurement
from orchestrator.benchmarks.calls.varying_calls import varying_figures
from orchestrator.errors import EvidenceError
from orchestrator.plain_text import shown
from orchestrator.report.figures import figure
from orchestrator.results.parameters import BPF_FULL, BPF_FULL_SAVES

_SHOWN = 3


def full_facts(work: CellContext, armed: Armed, counted: HitCounts, measured: Measurement) -> Mapping[str, str | float]:
    """Facts on calls as they were ``measured``, with buffers that are full. No calls follow for which they have room.

    Empty where the ``counted`` hits have written into none, or take the same then. Raises as ``when_full``.
    """
    names, exact = armed.attachment.written_buffers(), work.exact
    if not names or exact is None:
        return {}
    armed.attachment.fill()
    ticks = int(work.ready.artifacts.kernel.config["CONFIG_HZ"])

    def timed() -> Measurement:
        return exact.measure_exact(
            work.ready.guest, repeats=work.cell.repeats, ticks_per_second=ticks, time_limit=work.deadline.left()
        )

    full = when_full(work, armed, timed, counted)
    if isinstance(full, str):
        return _without(names, full)
    if full.varies:
        return _without(names, "calls vary then, and do not where it has room")
    return _with(work, names, measured.samples[0] - full.samples[0])


def when_full(
    work: CellContext, armed: Armed, timed: Callable[[], Measurement], counted: HitCounts | None
) -> Measurement | str:
    """What is ``timed`` with buffers that are full, or why that is not known.

    It is proved that hits as those ``counted`` bring nothing into them, if they are given. Raises EvidenceError where
    the probe has changed meanwhile: what was measured before may be of another one.
    """
    try:
        measured: Measurement | str = timed()
        if counted is not None:
            count_hits(work, armed.attachment, before=counted)
    except EvidenceError as error:
        measured = error.what
    armed.check_same("while buffers were full")
    return measured


def varying_full_facts(
    work: CellContext,
    names: Sequence[str],
    plain: Sequence[Measurement],
    probed: Sequence[Measurement],
    full: Sequence[Measurement | str],
) -> Mapping[str, str | float]:
    """The same of calls that vary: of samples ``probed`` with room and ``full`` ones, each between ``plain`` ones."""
    if not names:
        return {}
    for sample in full:
        if isinstance(sample, str):
            return _without(names, sample)
    series = (probed, [sample for sample in full if not isinstance(sample, str)])
    roomy, without_room = (varying_figures(plain, samples).overhead for samples in series)
    return {} if roomy is None or without_room is None else _with(work, names, roomy - without_room)


def _with(work: CellContext, names: Sequence[str], saves: float) -> Mapping[str, str | float]:
    if not saves:
        return {}
    of_hit = figure(abs(saves) / work.workload.hits, "instructions")
    less = "less" if saves > 0 else "more"
    return {
        BPF_FULL: phrase(f"a hit that finds {_listed(names)} full takes {of_hit} instructions {less}"),
        BPF_FULL_SAVES: saves,
    }


def _without(names: Sequence[str], why: str) -> Mapping[str, str | float]:
    return {BPF_FULL: phrase(f"of a hit that finds {_listed(names)} full there is no number: {why}")}


def _listed(names: Sequence[str]) -> str:
    return " and ".join(shown(names, _SHOWN, "{} more"))
