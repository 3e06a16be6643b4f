# SPDX-License-Identifier: GPL-2.0-only
"""A fleet's scheduler: it knows the workers and forwards messages, and runs no other code of the lab."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from distributed.scheduler import Scheduler
from distributed.security import Security

from orchestrator.fleet.target import RUN_TOPIC, Unlisted


class FleetScheduler(Unlisted, Scheduler):
    """Dask's scheduler without its HTTP server, and without storing the messages of runs.

    They carry files, and Dask (2026.8) keeps each topic's last events, and its name, for as long as it runs.
    Awaited, it listens on one interface only; raises OSError if it cannot.
    """

    def __init__(self, host: str, port: int, security: Security) -> None:
        super().__init__(host=host, port=port, protocol="tls", security=security)

    def log_event(self, topic: str | Collection[str], msg: Any) -> None:
        """Send to all subscribed clients; drop messages of ended runs."""
        if isinstance(topic, str) and topic.startswith(RUN_TOPIC):
            if topic in self._broker._topics:
                super().log_event(topic, msg)
                self._broker.truncate(topic)
            return
        super().log_event(topic, msg)

    def remove_client(self, client: str, stimulus_id: str | None = None) -> None:
        super().remove_client(client, stimulus_id)
        topics = self._broker._topics
        for name in [
            name for name, topic in topics.items() if name.startswith(RUN_TOPIC) and client in topic.subscribers
        ]:
            del topics[name]
