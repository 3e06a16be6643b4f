# SPDX-License-Identifier: GPL-2.0-only
"""The scheduler of a fleet: it knows the workers, passes messages on, and runs no code of ours but this."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler
from distributed.security import Security

from orchestrator.fleet.target import MEMBERS, RUN_TOPIC, Unlisted


class Members(SchedulerPlugin):
    """Tells clients who joins and who leaves, as soon as the scheduler knows; forgets what a client subscribed to."""

    name = "lab-members"

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        scheduler.log_event(MEMBERS, {"action": "joined", "address": worker})

    def remove_worker(self, scheduler: Scheduler, worker: str, **details: Any) -> None:
        scheduler.log_event(MEMBERS, {"action": "left", "address": worker})

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        topics = scheduler._broker._topics
        for name, topic in list(topics.items()):
            topic.unsubscribe(client)
            if name.startswith(RUN_TOPIC) and not topic.subscribers:
                del topics[name]


class FleetScheduler(Unlisted, Scheduler):
    """Dask's scheduler without its HTTP server, and without the messages of runs, of which it would keep the last.

    They carry files, and Dask (2026.8) keeps each topic's last events, and its name, for as long as it runs.
    """

    def log_event(self, topic: str | Collection[str], msg: Any) -> None:
        """Tell all clients that have subscribed; a message of a run that has ended, nobody."""
        if isinstance(topic, str) and topic.startswith(RUN_TOPIC):
            if topic in self._broker._topics:
                super().log_event(topic, msg)
                self._broker.truncate(topic)
            return
        super().log_event(topic, msg)

    def subscribe_topic(self, topic: str, client: str) -> None:
        """Tell a client on a topic from now on: on MEMBERS who is there first, so that it misses nobody."""
        super().subscribe_topic(topic, client)
        if topic == MEMBERS:
            for address in self.workers:
                self.log_event(MEMBERS, {"action": "joined", "address": address})


async def started_scheduler(host: str, port: int, security: Security) -> FleetScheduler:
    """A scheduler that listens on one interface only. Raises OSError where it cannot."""
    scheduler = FleetScheduler(host=host, port=port, protocol="tls", security=security, plugins=[Members()])
    await scheduler
    return scheduler
