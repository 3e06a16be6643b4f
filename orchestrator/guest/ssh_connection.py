# SPDX-License-Identifier: GPL-2.0-only
"""One authenticated SSH connection to a guest: how it is made, and how every wait on it is bounded."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import paramiko

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestConnectionLost, GuestError, GuestHang
from orchestrator.guest.ssh_bounds import BoundedTransport
from orchestrator.plain_text import plain_line

HOST = "127.0.0.1"
USER = "root"

_FIRST_PATIENCE = 3.0
"""Seconds for the first attempt to connect: before the guest has a network, packets to it are lost."""
_RETRY_INTERVAL = 0.1
_SEVERING_DELAY = 2.0
"""Seconds after its deadline that a request gets to be abandoned by itself, before the whole connection is severed."""
_LONGEST_WAIT = 1e6
"""Seconds, for a call of paramiko's that we end at the deadline: by itself it waits for an hour."""
_NOTICING_LIMIT = 1.0
"""Seconds until paramiko's own thread has noticed what broke."""

_QUOTED = 200
"""Characters of what is quoted."""

_WITH_TABLES, _WITH_VECTORS = ("aes128-cbc", "aes128-ctr"), ("aes128-ctr", "aes128-cbc")
_MACS = ("hmac-sha1", "hmac-sha2-256")
"""Cheapest for an emulated CPU first, with SSSE3 and without. The packets never leave the host."""

_FAILURES = (paramiko.SSHException, paramiko.SFTPError, EOFError, OSError, ValueError)

# Its log repeats, with tracebacks, what is raised anyway.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


class _Timer(threading.Thread):
    """Does ``at_first`` at a deadline, and ``at_last`` some seconds later, unless it is cancelled.

    One thread for both: of two that asked one deadline at the same moment, each would add what was waited for a
    processor. On a busy host it would then come up to sixty times as late.
    """

    def __init__(self, deadline: Deadline, at_first: Callable[[], None], at_last: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._deadline, self._at_first, self._at_last = deadline, at_first, at_last
        self._cancelled = threading.Event()

    def run(self) -> None:
        while self._deadline.left():
            if self._cancelled.wait(self._deadline.pause()):
                return
        if self._cancelled.is_set():
            return
        threading.Thread(target=self._at_first, daemon=True).start()  # it may block as well
        if not self._cancelled.wait(_SEVERING_DELAY):
            self._at_last()

    def cancel(self) -> None:
        """Do it no more."""
        self._cancelled.set()


class Connection:
    """An open transport and its sessions."""

    def __init__(self, client: paramiko.SSHClient, transport: paramiko.Transport) -> None:
        self._client = client
        self._transport = transport

    @contextlib.contextmanager
    def session(self, deadline: Deadline) -> Iterator[paramiko.Channel]:
        """A session of its own, closed at the end. Raises GuestHang when it is not open at the deadline."""
        with self.bounded(deadline):
            session = self._transport.open_session(timeout=_LONGEST_WAIT)
        try:
            yield session
        finally:
            close_session(session)

    @contextlib.contextmanager
    def bounded(self, deadline: Deadline, session: paramiko.Channel | None = None) -> Iterator[None]:
        """Whatever waits in here ends at the deadline, with GuestHang. Raises GuestConnectionLost when it broke.

        A plain OSError is let through: that is what the guest's SFTP refuses with.
        """
        # Some of paramiko's calls wait without a limit. To end them the session is closed, and the connection where the
        # message that closes the session cannot be sent.
        abandoned = threading.Event()

        def abandon() -> None:
            if session is not None:
                abandoned.set()
                close_session(session)

        def sever() -> None:
            abandoned.set()
            self._transport.close()

        timer = _Timer(deadline, abandon, sever)
        timer.start()
        try:
            with self.watched(deadline, session, abandoned):
                yield
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def watched(
        self, deadline: Deadline, session: paramiko.Channel | None = None, abandoned: threading.Event | None = None
    ) -> Iterator[None]:
        """What paramiko raises in here becomes one of our own errors, except for a plain OSError."""
        try:
            yield
        except TimeoutError:
            raise _silence() from None
        except _FAILURES as error:
            if abandoned is not None and abandoned.is_set():
                raise _silence() from None
            if isinstance(error, OSError) and self._is_sound(session):
                raise
            raise self._broken(error, deadline) from None

    def check(self) -> None:
        """Raise GuestConnectionLost when the connection is no more."""
        if not self._transport.is_active():
            raise GuestConnectionLost("the SSH connection broke")

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _is_sound(self, session: paramiko.Channel | None) -> bool:
        return self._transport.is_active() and (session is None or not session.closed)

    def _broken(self, error: Exception, deadline: Deadline) -> GuestError:
        if isinstance(error, paramiko.ChannelException):
            return GuestError(f"the guest's sshd opens no session ({_said(error.text).lower()})")
        if isinstance(error, paramiko.SFTPError):
            return GuestConnectionLost(f"the guest's server of files is not to be understood: {_said(error)}")
        if deadline.left():
            self._transport.join(_NOTICING_LIMIT)
        elif self._transport.is_active():
            return _silence()
        return GuestConnectionLost(f"the SSH connection broke ({_said(error)})")


def connect(
    port: int, host_key: paramiko.PKey, client_key: paramiko.PKey, deadline: Deadline, *, ssse3: bool = False
) -> Connection:
    """Connect to the loopback port that leads to the guest's sshd, as soon as that is there.

    ``ssse3``: whether the guest's CPU has SSSE3, with which OpenSSL computes AES quickly in another mode.

    Raises GuestError when who answers has another host key or refuses ours, GuestHang at the deadline.
    """
    patience = _FIRST_PATIENCE
    problem: Exception | None = None
    while (left := deadline.left()) > 0:
        began = time.monotonic()
        try:
            return _attempt(port, host_key, client_key, min(left, patience), ssse3=ssse3)
        except _FAILURES as error:
            problem = error
        time.sleep(_RETRY_INTERVAL)
        # One that was merely too slow, on a busy host, gets longer the next time.
        if time.monotonic() - began >= patience:
            patience *= 2
    raise GuestHang(f"the guest's sshd does not answer ({'no time left' if problem is None else _said(problem)})")


def close_session(session: paramiko.Channel) -> None:
    """End a session, whatever has become of it."""
    with contextlib.suppress(*_FAILURES):
        session.close()


def _attempt(
    port: int, host_key: paramiko.PKey, client_key: paramiko.PKey, patience: float, *, ssse3: bool
) -> Connection:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    client.get_host_keys().add(f"[{HOST}]:{port}", host_key.get_name(), host_key)
    began = time.monotonic()
    try:
        client.connect(
            HOST,
            port,
            USER,
            pkey=client_key,
            timeout=patience,
            banner_timeout=patience,
            auth_timeout=patience,
            allow_agent=False,
            look_for_keys=False,
            transport_factory=partial(_quick_transport, _WITH_VECTORS if ssse3 else _WITH_TABLES),
        )
        transport = client.get_transport()
        assert transport is not None
        return Connection(client, transport)
    except paramiko.BadHostKeyException as error:
        client.close()
        raise GuestError(
            f"who answers on port {port} is not the guest: its host key is {error.key.fingerprint}, and the guest's is "
            f"{error.expected_key.fingerprint}"
        ) from None
    except paramiko.AuthenticationException as error:
        # A connection that is lost or too slow meanwhile is reported as this as well.
        transport = client.get_transport()
        refused = transport is not None and transport.is_active() and time.monotonic() - began < patience
        client.close()
        if not refused:
            raise
        raise GuestError(f"the guest's sshd refuses our key for {USER} ({_said(error)})") from None
    except _FAILURES:
        client.close()
        raise


def _quick_transport(ciphers: Sequence[str], sock: Any, /, **options: Any) -> paramiko.Transport:
    """A transport that prefers algorithms that an emulated CPU computes quickly."""
    transport = BoundedTransport(sock, **options)
    security = transport.get_security_options()
    security.ciphers = _first(ciphers, security.ciphers)
    security.digests = _first(_MACS, security.digests)
    return transport


def _first(wanted: Sequence[str], offered: Sequence[str]) -> list[str]:
    """Those wanted that paramiko has, then what else it offers: a later one may drop what is weak elsewhere."""
    return [*(name for name in wanted if name in offered), *(name for name in offered if name not in wanted)]


def _said(problem: object) -> str:
    """A part of a sentence from what paramiko raises, which may quote the guest's sshd."""
    text = plain_line(str(problem) or type(problem).__name__)
    return text if len(text) <= _QUOTED else text[: _QUOTED - 4] + " ..."


def _silence() -> GuestHang:
    return GuestHang("the guest gave no answer in time")
