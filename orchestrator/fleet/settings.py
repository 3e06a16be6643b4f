# SPDX-License-Identifier: GPL-2.0-only
"""How Dask is set in a process of a fleet, and what its servers do not listen on."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from orchestrator.errors import HostError

MEMBERS = "lab-members"
"""The topic on which the scheduler tells who is there, then who has joined and who has left."""

RUN_TOPIC = "lab-run-"
"""How the topics begin on which workers tell the clients of runs what their boots report."""


def need_dask() -> None:
    """Raise HostError where the extra is not installed."""
    if find_spec("distributed") is None:
        raise HostError(
            "a fleet needs Python packages that are not installed: dask's distributed",
            hint="./lab installs them; in an environment of your own: pip install 'probe-lab[fleet]'",
        )


def set_up_dask() -> None:
    """Set Dask for this process; before any part of distributed makes a server or a client."""
    need_dask()
    import dask.config

    dask.config.update(dask.config.config, yaml.safe_load(Path(__file__).with_name("dask.yaml").read_text("utf-8")))


class Unlisted:
    """What a server of Dask's has in place of its HTTP server: nothing listens."""

    def start_http_server(
        self, routes: Any, dashboard_address: Any, default_port: int = 0, ssl_options: Any = None
    ) -> None:
        """Dask 2026.8 starts one in every server, unencrypted and on all interfaces, whatever its options."""
        del routes, dashboard_address, default_port, ssl_options
