# SPDX-License-Identifier: GPL-2.0-only
"""A worker's messages on a boot: validated on arrival, bounded, and without paths.

A message consists of msgpack's types: texts, numbers, bytes. The events' annotations and the contract validate it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from orchestrator.errors import LabError
from orchestrator.run.boot_events import CellBegan, CellRecorded, Event, GuestBooted, Progress

BEGINS = "begins"
"""The first progress report of each boot."""

LARGEST_FILE = 64 << 20

MOST_FILES = 4000

MOST_BYTES = 512 << 20
"""Limits for all files of one attempt: a worker sends no more, and a client keeps no more."""

LARGEST_MESSAGE = 8 << 20


# Linux file names have at most 255 bytes, of which write_whole() needs five while it writes.
_FILE_NAME = re.compile(r"((events|profiles)/)?(?!(events|profiles)$)[A-Za-z0-9][A-Za-z0-9._+@=,-]{0,249}")


@dataclass(frozen=True)
class StepLine:
    """A line of the log of a boot's steps."""

    text: str


@dataclass(frozen=True)
class FileMessage:
    """A file that a boot leaves, by its name in the boot's folder: ``guest1-pentium4-debian-686.console``."""

    name: str
    content: bytes

    def checked_name(self) -> str:
        """The name. Raises LabError if it could lead out of the boot's folder, or is not a valid one."""
        if not _FILE_NAME.fullmatch(self.name):
            raise LabError(f"a worker sent a file called {self.name[:100]!r}")
        return self.name


Body = Event | StepLine | FileMessage

_EVENTS: Mapping[str, TypeAdapter[Any]] = {
    event.__name__: TypeAdapter(event) for event in (Progress, CellBegan, GuestBooted, CellRecorded, StepLine)
}


def sent(attempt: str, body: Body) -> dict[str, object]:
    """An attempt's message in the form for sending."""
    if isinstance(body, FileMessage):
        return {"attempt": attempt, "kind": body.name, "content": body.content}
    kind = type(body).__name__
    return {"attempt": attempt, "kind": kind, "content": _EVENTS[kind].dump_json(body).decode()}


def received(message: object) -> tuple[str, Body]:
    """A received message, with its attempt. Raises LabError for an invalid one."""
    match message:
        case {"attempt": str(attempt), "kind": str(kind), "content": bytes(content)}:
            if len(content) <= LARGEST_FILE:
                return attempt, FileMessage(kind, content)
        case {"attempt": str(attempt), "kind": str(kind), "content": str(text)}:
            if kind in _EVENTS and len(text) <= LARGEST_MESSAGE:
                with suppress(ValueError, RecursionError):
                    return attempt, _EVENTS[kind].validate_json(text)
    raise LabError("a worker sent an invalid message")
