# SPDX-License-Identifier: GPL-2.0-only
"""What a keeper is told to start, and what it tells of it: a line of JSON each, through its standard streams."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

STAY = b"stay\n"
"""What lets a keeper go on when its standard input is closed; without it the fleet ends then."""


@dataclass(frozen=True)
class WorkerOrder:
    """A worker to start: on this machine, or where ``ssh`` leads (``user@host:port``), by the ``lab`` that is there.

    Without ``guests`` and ``memory_mib`` it offers what its host has.
    """

    name: str
    guests: int | None = None
    memory_mib: int | None = None
    ssh: str = ""
    lab: str = ""


@dataclass(frozen=True)
class Orders:
    """A fleet to keep: its scheduler listens on ``host``, at ``port`` or, for 0, at any that is free."""

    name: str
    key: str = field(repr=False)
    key_file: str
    host: str
    port: int
    workers: tuple[WorkerOrder, ...]

    def line(self) -> bytes:
        """The orders as they are sent."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Orders:
        """The orders of a line that ``line`` has made."""
        data = json.loads(line)
        return cls(**{**data, "workers": tuple(WorkerOrder(**one) for one in data["workers"])})


@dataclass(frozen=True)
class Report:
    """What has become of a part of the orders.

    ``refused``: the scheduler cannot be started, and the keeper ends; ``hint`` is what to do. ``listening``: it was
    started at the address ``text``. ``joined`` and ``failed``: a worker, by its name, and why not. ``ready``: nothing
    more will be reported.
    """

    kind: Literal["refused", "listening", "joined", "failed", "ready"]
    name: str = ""
    text: str = ""
    detail: tuple[str, ...] = ()
    hint: str = ""

    def line(self) -> bytes:
        """The report as it is sent."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Report:
        """The report of a line that ``line`` has made."""
        data = json.loads(line)
        return cls(**{**data, "detail": tuple(data["detail"])})
