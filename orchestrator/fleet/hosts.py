# SPDX-License-Identifier: GPL-2.0-only
"""The other hosts of a fleet: the file that lists them, and workers started through ssh."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from orchestrator.catalog.data import choices_sentence
from orchestrator.experiment.fields import whole
from orchestrator.experiment.problems import DataOrigins, Problem, config_error, mismatch, problems_of
from orchestrator.experiment.source import KeyPath, read_source
from orchestrator.fleet.state import MOST_GUESTS, SIZES, WorkerConfig, worker_name
from orchestrator.plain_text import size_mib

_EXAMPLE = "hosts: [{ssh: me@host, lab: probe-lab/lab}]"
_SSH = re.compile(
    r"(?:(?P<user>[A-Za-z_][A-Za-z0-9_.-]{0,63})@)?"
    r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252}))"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _text(is_one: Callable[[str], object], sentence: str) -> BeforeValidator:
    """A field whose texts must satisfy ``is_one``; ``sentence`` says what is expected."""

    def check(value: object) -> object:
        if not isinstance(value, str) or not is_one(value):
            raise mismatch(value, sentence)
        return value

    return BeforeValidator(check)


def _is_destination(text: str) -> bool:
    match = _SSH.fullmatch(text)
    return match is not None and int(match["port"] or 22) <= 65535


_Lab = Annotated[
    str,
    _text(
        lambda text: text.isprintable() and text and not text.startswith("-"),
        "expected the path of a lab on that host: a checkout's lab, or an installed orchestrator",
    ),
]


class Host(WorkerConfig):
    """A host: ``lab`` is a path there, absolute or relative to the home; by default it offers all the guests it can."""

    model_config = ConfigDict(strict=True, extra="forbid")

    ssh: Annotated[str, _text(_is_destination, "expected a host as ssh takes it: user@host, or user@host:port")]
    lab: _Lab
    name: Annotated[str, _text(_NAME.fullmatch, "expected letters, digits, dots, underscores and hyphens")] = ""
    guests: Annotated[int, whole(1, MOST_GUESTS)] | None = None
    memory: Annotated[str, _text(lambda text: size_mib(text) is not None, SIZES)] | None = None


class _Hosts(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    hosts: list[Host] = Field(min_length=1, max_length=256)


def load_hosts(path: Path) -> list[WorkerConfig]:
    """The workers in a file of hosts. Raises ConfigError that lists all problems: file, line, key, what."""
    source = read_source(path)
    origins = DataOrigins({key: f"{path}:{line}" for key, line in source.lines.items()})
    if not isinstance(source.data, dict):
        sentence = f"expected a mapping with the key 'hosts', such as {_EXAMPLE}"
        raise config_error([Problem((), sentence)], origins, str(path))
    try:
        hosts = _Hosts.model_validate(source.data).hosts
    except ValidationError as error:
        raise config_error(problems_of(error, _unknown_key), origins, str(path)) from None
    named = [host.model_copy(update={"name": host.name or worker_name(ssh_parts(host.ssh)[1])}) for host in hosts]
    names = [host.name for host in named]
    sentence = "a second worker called '{}'; give one of them a name of its own: name: ..."
    problems = [
        Problem(("hosts", at, "ssh"), sentence.format(name)) for at, name in enumerate(names) if name in names[:at]
    ]
    if problems:
        raise config_error(problems, origins, str(path))
    return [*named]


def ssh_parts(text: str) -> tuple[str | None, str, int | None]:
    """User, host and port of ``user@host:port``; None for missing parts."""
    match = _SSH.fullmatch(text)
    assert match is not None, text
    port = None if match["port"] is None else int(match["port"])
    return match["user"], match["address"] or match["host"], port


def _unknown_key(path: KeyPath) -> str:
    model = _Hosts if len(path) == 1 else Host
    return f"unknown key; {choices_sentence(str(path[-1]), model.model_fields)}"
