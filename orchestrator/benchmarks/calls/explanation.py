# SPDX-License-Identifier: GPL-2.0-only
"""What calls execute that never came to their probe: found out in the cell's guest, or in another one that counts."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.artifacts.counting_plugin import counting_plugin
from orchestrator.benchmarks.calls.executed import Executed, executed_by, executed_here
from orchestrator.benchmarks.calls.known import Known
from orchestrator.benchmarks.calls.not_entered import MissedPoint, explained
from orchestrator.benchmarks.calls.preparation import CallSetup
from orchestrator.benchmarks.calls.task import CallCell
from orchestrator.benchmarks.calls.workload import ExactWorkload
from orchestrator.errors import EvidenceError, GuestError, LabError, NotEntered
from orchestrator.guest.machine import CountingPlugin
from orchestrator.run.boot import Session
from orchestrator.run.ready_guest import ReadyGuest
from orchestrator.steps import step


def explain(session: Session, ready: ReadyGuest, cell: CallCell, error: NotEntered, known: Known) -> NotEntered:
    """The error with what can be known of its cause. It is as it was where the calls cannot be counted exactly.

    It costs one measurement of the calls for all cells that make them, and where the guest does not count, a second
    guest once for the kernel, the machine and the calls. Raises GuestError where the cell's guest fails.
    """
    setup = session.setup(cell).setup
    assert isinstance(setup, CallSetup)
    workload = setup.workload
    if setup.in_program is not None:
        return error  # what the calls execute of the kernel explains nothing
    if not isinstance(workload, ExactWorkload) or ready.guest.machine.timing != "instructions":
        return error
    try:
        with step("find out what the calls execute"):
            executed = known.executed(cell, lambda: _executed(session, ready, cell, workload))
    except GuestError:
        raise
    except LabError as other:
        return NotEntered(
            error.what, hint=error.hint, detail=[*error.detail, f"what they execute is not known: {other.what}"]
        )
    kernel = ready.artifacts.kernel
    return explained(error, MissedPoint(setup.symbol, setup.offset, ready.symbols, kernel.code), executed)


def _executed(session: Session, ready: ReadyGuest, cell: CallCell, workload: ExactWorkload) -> Executed:
    if ready.guest.machine.counter is None:
        return _executed_elsewhere(session, ready, cell, workload)
    ticks = int(ready.artifacts.kernel.config["CONFIG_HZ"])
    measured = workload.measure_exact(ready.guest, repeats=2, ticks_per_second=ticks, time_limit=cell.time_limit)
    return executed_here(ready, workload, measured, cell.time_limit)


def _executed_elsewhere(session: Session, ready: ReadyGuest, cell: CallCell, workload: ExactWorkload) -> Executed:
    plugin = session.artifacts.plugin or counting_plugin(session.context)
    machine = replace(ready.guest.machine, counter=CountingPlugin(plugin))
    artifacts = replace(ready.artifacts, machine=machine, cells={})
    obtain = session.context.cache.obtain
    try:
        found = executed_by(session.context, obtain, artifacts, workload, cell.time_limit, session.watch)
    except GuestError as error:  # of the other guest: the cell's own is sound
        raise EvidenceError(error.what) from None
    assert found is not None
    return found
