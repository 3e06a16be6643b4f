# SPDX-License-Identifier: GPL-2.0-only
"""The scheduler of a fleet: it knows the workers, passes messages on, and runs no code of ours but this."""

from __future__ import annotations

from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler
from distributed.security import Security

from orchestrator.fleet.settings import MEMBERS, Unlisted


class Members(SchedulerPlugin):
    """Tells clients who joins and who leaves, as soon as the scheduler knows."""

    name = "lab-members"

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        scheduler.log_event(MEMBERS, {"action": "joined", "address": worker})

    def remove_worker(self, scheduler: Scheduler, worker: str, **details: Any) -> None:
        scheduler.log_event(MEMBERS, {"action": "left", "address": worker})


class FleetScheduler(Unlisted, Scheduler):
    """Dask's scheduler without its HTTP server."""


async def started_scheduler(host: str, port: int, security: Security) -> FleetScheduler:
    """A scheduler that listens on one interface only. Raises OSError where it cannot."""
    scheduler = FleetScheduler(host=host, port=port, protocol="tls", security=security, plugins=[Members()])
    await scheduler
    return scheduler
