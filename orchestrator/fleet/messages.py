# SPDX-License-Identifier: GPL-2.0-only
"""What a worker tells the client of a boot: validated on arrival, bounded, and without any path.

A message is what msgpack can carry: texts, numbers, bytes. The contract's own models check records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from orchestrator.errors import LabError
from orchestrator.results.contract import CellId, CellRecord
from orchestrator.run.events import CellBegan, Event, GuestBooted, Outcome, Progress

BEGINS = "begins"
"""The progress that each boot reports first."""

LARGEST_FILE = 64 << 20
MOST_FILES = 4000
MOST_BYTES = 512 << 20
"""Of all files of one attempt at a boot, as MOST_FILES is: a worker sends no more, and a client keeps no more."""

LARGEST_MESSAGE = 8 << 20

# 255 bytes is the longest name that Linux takes, and write_whole() adds five while it writes.
_FILE_NAME = re.compile(r"((events|profiles)/)?(?!(events|profiles)$)[A-Za-z0-9][A-Za-z0-9._+@=,-]{0,249}")

MOST_STEPS = 10_000
"""Lines that a message has with it: a boot has some fifty, and five for each cell."""

_Line = Annotated[str, StringConstraints(max_length=4000)]
_Word = Annotated[str, StringConstraints(max_length=70_000)]


Steps = tuple[tuple[float, str], ...]
"""Lines of a log of steps, each with the seconds since it was written."""

CheckedSteps = Annotated[
    tuple[tuple[Annotated[float, Field(ge=0, lt=1e6)], Annotated[str, StringConstraints(max_length=1000)]], ...],
    Field(max_length=MOST_STEPS),
]
_STEPS = TypeAdapter[Steps](CheckedSteps)


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _ProgressMessage(_Message):
    kind: Literal["progress"] = "progress"
    text: _Line


class _BeganMessage(_Message):
    kind: Literal["began"] = "began"
    cell: CellId


class _BootedMessage(_Message):
    kind: Literal["booted"] = "booted"
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+@-]*$", max_length=250)]
    command_line: tuple[_Word, ...] = Field(max_length=1000)
    work: dict[_Line, _Line] = Field(max_length=100)
    restored_from: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,64}$")] | None


class _OutcomeMessage(_Message):
    kind: Literal["outcome"] = "outcome"
    record: CellRecord
    is_compared: bool


class FileMessage(_Message):
    """A file that a boot leaves, by its name in the boot's folder: ``guest1-pentium4-debian-686.console``."""

    kind: Literal["file"] = "file"
    name: str
    content: bytes = Field(max_length=LARGEST_FILE)

    def checked_name(self) -> str:
        """The name. Raises LabError where it could lead out of the boot's folder, or be no file's there."""
        if not _FILE_NAME.fullmatch(self.name):
            raise LabError(f"a worker sent a file called {self.name[:100]!r}")
        return self.name


_AnyMessage = TypeAdapter[Any](
    Annotated[
        _ProgressMessage | _BeganMessage | _BootedMessage | _OutcomeMessage | FileMessage, Field(discriminator="kind")
    ]
)


@dataclass(frozen=True)
class Received:
    """A message of one attempt at a boot, with its number in the attempt, from 0 on."""

    attempt: str
    number: int
    body: Event | FileMessage
    steps: Steps = ()


def sent(attempt: str, number: int, body: Event | FileMessage, steps: Steps = ()) -> dict[str, object]:
    """A message as it travels, with the lines that the log of the boot's steps got since the message before."""
    return {"attempt": attempt, "number": number, "steps": [list(line) for line in steps], **_content(body)}


def _content(body: Event | FileMessage) -> dict[str, object]:
    match body:
        case Progress(text):
            message: _Message = _ProgressMessage(text=text[:4000])
        case CellBegan(cell):
            message = _BeganMessage(cell=cell)
        case GuestBooted():
            message = _BootedMessage(
                name=body.name,
                command_line=body.command_line,
                work=dict(body.work),
                restored_from=body.restored_from,
            )
        case Outcome(record, is_compared):
            message = _OutcomeMessage(record=record, is_compared=is_compared)
        case FileMessage():
            return {"name": body.name, "content": body.content}
    return {"text": message.model_dump_json()}


def received(message: object) -> Received:
    """A message that came. Raises LabError for anything that none of ours is."""
    try:
        if not isinstance(message, Mapping):
            raise ValueError("no message")
        attempt, number = message["attempt"], message["number"]
        if not (isinstance(attempt, str) and len(attempt) <= 100 and isinstance(number, int)):
            raise ValueError("of no attempt")
        if "content" in message:
            body: Any = FileMessage(name=message["name"], content=message["content"])
        else:
            text = message["text"]
            if not isinstance(text, str) or len(text) > LARGEST_MESSAGE:
                raise ValueError("too long")
            body = _AnyMessage.validate_json(text)
        steps = _STEPS.validate_python(message["steps"])
    except (ValidationError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise LabError("a worker sent what is no message", detail=str(error).splitlines()[:5]) from None
    return Received(attempt, number, _event(body), steps)


def _event(message: Any) -> Event | FileMessage:
    match message:
        case _ProgressMessage(text=text):
            return Progress(text)
        case _BeganMessage(cell=cell):
            return CellBegan(cell)
        case _BootedMessage():
            return GuestBooted(message.name, message.command_line, message.work, message.restored_from)
        case _OutcomeMessage(record=record, is_compared=is_compared):
            return Outcome(record, is_compared)
        case FileMessage():
            return message
    raise AssertionError(message)
