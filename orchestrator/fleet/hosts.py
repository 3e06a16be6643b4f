# SPDX-License-Identifier: GPL-2.0-only
"""The other hosts of a fleet: the file that lists them, and workers that are started over ssh."""

from __future__ import annotations

import re
import shlex
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import paramiko
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from orchestrator.catalog.data import choices_sentence
from orchestrator.experiment.fields import whole
from orchestrator.experiment.problems import Origins, Problem, config_error, mismatch, problems_of
from orchestrator.experiment.source import KeyPath, read_source
from orchestrator.fleet.local import KeptLog
from orchestrator.fleet.state import MOST_GUESTS, SIZES, WorkerOrder, worker_name
from orchestrator.plain_text import size_mib

# The file that lists the hosts of a fleet: where ssh leads, which lab is there, and what it may take.

_MOST_HOSTS = 256
_EXAMPLE = "hosts: [{ssh: me@host, lab: probe-lab/lab}]"
_SSH = re.compile(
    r"(?:(?P<user>[A-Za-z_][A-Za-z0-9_.-]{0,63})@)?"
    r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252}))"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _ssh(value: object) -> object:
    found = _SSH.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found["port"] or 22) > 65535:
        raise mismatch(value, "expected a host as ssh takes it: user@host, or user@host:port")
    return value


def _memory(value: object) -> object:
    if size_mib(str(value)) is None:
        raise mismatch(value, SIZES)
    return value


def _lab(value: object) -> object:
    if not isinstance(value, str) or not value.isprintable() or not value or value.startswith("-"):
        raise mismatch(value, "expected the path of a lab on that host: a checkout's lab, or an installed orchestrator")
    return value


def _name(value: object) -> object:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise mismatch(value, "expected letters, digits, dots, underscores and hyphens")
    return value


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Host(_Part):
    """A host: ``lab`` is a path there, absolute or from the user's home; without ``guests`` it takes all it can."""

    ssh: Annotated[str, BeforeValidator(_ssh)]
    lab: Annotated[str, BeforeValidator(_lab)]
    name: Annotated[str, BeforeValidator(_name)] | None = None
    guests: Annotated[int, whole(1, MOST_GUESTS)] | None = None
    memory: Annotated[str, BeforeValidator(_memory)] | None = None

    @property
    def worker(self) -> str:
        """The name of its worker: its own, or the host's."""
        _, host, _ = ssh_parts(self.ssh)
        return self.name or worker_name(host)

    def order(self) -> WorkerOrder:
        """What a keeper is told of it."""
        memory = None if self.memory is None else size_mib(self.memory)
        return WorkerOrder(self.worker, self.guests, memory, self.ssh, self.lab)


class _Hosts(_Part):
    hosts: list[Host] = Field(min_length=1, max_length=_MOST_HOSTS)


def load_hosts(path: Path) -> list[WorkerOrder]:
    """The workers of a file of hosts. Raises ConfigError, which lists all that is wrong: file, line, key, what."""
    source = read_source(path)
    origins = Origins({key: f"{path}:{line}" for key, line in source.lines.items()})
    if not isinstance(source.data, dict):
        sentence = f"expected a mapping with the key 'hosts', such as {_EXAMPLE}"
        raise config_error([Problem((), sentence)], origins, str(path))
    try:
        found = _Hosts.model_validate(source.data)
    except ValidationError as error:
        raise config_error(problems_of(error, _unknown_key), origins, str(path)) from None
    problems = list(_twice(found.hosts))
    if problems:
        raise config_error(problems, origins, str(path))
    return [host.order() for host in found.hosts]


def ssh_parts(text: str) -> tuple[str | None, str, int | None]:
    """User, host and port of ``user@host:port``; what is not there is None."""
    found = _SSH.fullmatch(text)
    assert found is not None, text
    port = None if found["port"] is None else int(found["port"])
    return found["user"], found["address"] or found["host"], port


def _unknown_key(path: KeyPath) -> str:
    model = _Hosts if len(path) == 1 else Host
    return f"unknown key; {choices_sentence(str(path[-1]), model.model_fields)}"


def _twice(hosts: list[Host]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for at, host in enumerate(hosts):
        other = first.setdefault(host.worker, at)
        if other != at:
            sentence = f"a second worker called '{host.worker}'; give one of them a name of its own: name: ..."
            yield Problem(("hosts", at, "ssh"), sentence)


# A worker on another host: started over ssh, and ended by the connection's end.
#
# The key travels through the connection, and is in no command line. A host is believed to be the one that is meant
# when its key is in the user's known_hosts; no other is accepted.

_CONNECT_LIMIT = 30.0
SILENCE_LIMIT = 300.0
"""Seconds without a word from a host whose worker has not joined. Its lab may be installing packages, and says so."""

_PIECE = 4096


class HostWorker(threading.Thread):
    """A host's worker: the thread runs as long as the connection. ``ended`` gets the reason when it is over."""

    def __init__(
        self, order: WorkerOrder, scheduler: str, key: str, log: KeptLog, ended: Callable[[str], None]
    ) -> None:
        super().__init__(name=f"ssh-{order.name}", daemon=True)
        self._order, self._scheduler, self._key, self._log, self._ended = order, scheduler, key, log, ended
        self._client = paramiko.SSHClient()
        self._stopping = threading.Event()
        self.has_joined = False

    def run(self) -> None:
        """Connect, start the worker, and log what it says until it ends."""
        try:
            why = self._work()
        except paramiko.SSHException as error:
            why = _sentence(self._order, error)
        except (OSError, EOFError, UnicodeError) as error:
            words = (error.strerror if isinstance(error, OSError) else None) or str(error)
            why = f"{self._order.ssh} cannot be reached: {words}" if words else "the connection has ended"
        except Exception as error:  # paramiko raises more, for a line in ~/.ssh too, and the keeper waits for a word
            why = f"{self._order.ssh} cannot be reached: {type(error).__name__}: {error}"
        finally:
            self._client.close()
        if not self._stopping.is_set():
            self._ended(why)

    def stop(self) -> None:
        """End the connection: the worker sees its input's end, and ends with its guests."""
        self._stopping.set()
        self._client.close()

    def _work(self) -> str:
        self._connect()
        transport = self._client.get_transport()
        assert transport is not None
        transport.set_keepalive(15)  # of a host that has gone without a word, nothing else would be noticed
        channel = transport.open_session()
        channel.set_combine_stderr(True)
        # A command may have ended before a server says that it began, and takes no key: its status says why.
        try:
            channel.exec_command(self._command())
        except paramiko.SSHException:
            if channel.exit_status < 0:
                raise
        with suppress(OSError):
            channel.sendall(self._key.encode())
        channel.settimeout(1.0)
        return self._listen(channel)

    def _connect(self) -> None:
        user, host, port = ssh_parts(self._order.ssh)
        settings = _settings_of(host)
        self._client.load_system_host_keys()
        self._client.set_missing_host_key_policy(paramiko.RejectPolicy())
        self._client.connect(
            settings.get("hostname", host),
            port or int(settings.get("port", 22)),
            user or settings.get("user"),
            key_filename=settings.get("identityfile"),
            timeout=_CONNECT_LIMIT,
            banner_timeout=_CONNECT_LIMIT,
            auth_timeout=_CONNECT_LIMIT,
        )

    def _command(self) -> str:
        order = self._order
        words = [order.lab, "fleet", "worker", self._scheduler, "--key-from-stdin", "--name", order.name]
        if order.guests is not None:
            words += ["--guests", str(order.guests)]
        if order.memory_mib is not None:
            words += ["--memory", f"{order.memory_mib}M"]
        return shlex.join(words)

    def _listen(self, channel: paramiko.Channel) -> str:
        line, silent = b"", 0.0
        while True:
            try:
                piece = channel.recv(_PIECE)
            except socket.timeout:  # noqa: UP041 - paramiko's own
                silent += 1.0
                if silent > SILENCE_LIMIT and not self.has_joined:
                    return f"{self._order.ssh} has said nothing for {SILENCE_LIMIT:g} s"
                continue
            silent = 0.0
            *lines, line = (line + piece).split(b"\n")
            for one in [*lines, *([line] if line and (not piece or len(line) > _PIECE) else [])]:
                self._log.line(self._order.name, one.decode(errors="backslashreplace"))
            if len(line) > _PIECE:
                line = b""
            if not piece:
                break
        channel.status_event.wait(_CONNECT_LIMIT)  # it follows the output's end, or the connection has ended, too
        status = channel.exit_status
        return "the connection has ended" if status < 0 else f"its lab has ended with status {status}"


def _settings_of(host: str) -> dict[str, str]:
    """What the user's ~/.ssh/config says of a host: its name, port, user and key."""
    with suppress(OSError, paramiko.ConfigParseError):
        config = paramiko.SSHConfig.from_path(str(Path("~/.ssh/config").expanduser()))
        return {name: value for name, value in config.lookup(host).items() if name != "hostname" or value != host}
    return {}


def _sentence(order: WorkerOrder, error: paramiko.SSHException) -> str:
    if isinstance(error, paramiko.BadHostKeyException):
        return f"{order.ssh} has another host key than the one in known_hosts"
    if "not found in known_hosts" in str(error):
        return f"the host key of {order.ssh} is not in known_hosts: log in once with ssh, and compare it"
    if isinstance(error, paramiko.AuthenticationException):
        return f"{order.ssh} accepts none of this user's ssh keys"
    return f"{order.ssh}: {error}"
