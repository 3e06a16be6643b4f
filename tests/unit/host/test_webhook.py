# SPDX-License-Identifier: GPL-2.0-only
"""Is a server told by a webhook, once, again where that may help, and never for longer than the time limit?"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from orchestrator.errors import HostError, UsageError
from orchestrator.nightly.webhook import Webhook

CONTENT = {"night": "n1", "regressed": 2, "text": "költség"}
Received = list[tuple[str, dict[str, Any]]]


@contextmanager
def server(statuses: Iterator[int], extra: Callable[[BaseHTTPRequestHandler], None] | None = None) -> Iterator[Any]:
    """A real server on loopback that answers with these statuses; its address, and what it received."""
    received: Received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.headers["Content-Type"], json.loads(body)))
            self.send_response(next(statuses))
            if extra is not None:
                extra(self)
            self.end_headers()

        def do_GET(self) -> None:
            raise AssertionError("nobody asked for a GET")

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}/hook?token=secret", received
        finally:
            listening.shutdown()
            thread.join()


def hook(url: str, try_limit: float = 60.0) -> Webhook:
    return Webhook(url, try_limit, (0.0, 0.0))


def test_a_server_is_told_once() -> None:
    with server(iter([204])) as (url, received):
        hook(url).post(CONTENT)
    assert received == [("application/json", CONTENT)]


def test_a_busy_server_is_told_again() -> None:
    with server(iter([503, 429, 200])) as (url, received):
        hook(url).post(CONTENT)
    assert [content for _, content in received] == [CONTENT] * 3


@pytest.mark.parametrize(("status", "tries"), [(500, 3), (404, 1), (403, 1)])
def test_a_server_that_refuses_is_named_without_the_secret(status: int, tries: int) -> None:
    with server(iter([status] * 3)) as (url, received), pytest.raises(HostError) as caught:
        hook(url).post(CONTENT)
    assert len(received) == tries
    assert f"posting to the webhook at 127.0.0.1 failed: status {status}" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_redirection_is_not_followed() -> None:
    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        handler.send_header("Location", "/elsewhere")

    with server(iter([302]), elsewhere) as (url, received), pytest.raises(HostError, match="status 302"):
        hook(url).post(CONTENT)
    assert len(received) == 1


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(HostError, match="refused"):
            hook(f"http://127.0.0.1:{unused.getsockname()[1]}/").post(CONTENT)


def test_a_server_that_never_ends_its_answer_is_given_up() -> None:
    """It sends a header's byte now and then, so that no time limit of the socket's ends."""
    ended = threading.Event()

    def drip(listening: socket.socket) -> None:
        connections = []
        while not ended.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            connections.append(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            threading.Thread(target=bytes_for_ever, args=(connection,), daemon=True).start()

    def bytes_for_ever(connection: socket.socket) -> None:
        try:
            while not ended.wait(0.01):
                connection.sendall(b"x")
        except OSError:
            pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=drip, args=(listening,), daemon=True).start()
        with pytest.raises(HostError, match=r"no answer in 0.2 s"):
            hook(f"http://127.0.0.1:{listening.getsockname()[1]}/", 0.2).post(CONTENT)
        ended.set()


def test_missing_answer_is_said() -> None:
    def talk(listening: socket.socket) -> None:
        for _ in range(3):
            connection, _address = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"220 mail.example.org ESMTP\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=talk, args=(listening,), daemon=True).start()
        with pytest.raises(HostError, match="posting to the webhook at"):
            hook(f"http://127.0.0.1:{listening.getsockname()[1]}/").post(CONTENT)


@pytest.mark.parametrize(
    "url", ["", "ftp://a/b", "file:///etc/passwd", "http://", "http://a b/", "http://a:x/", "a.org"]
)
def test_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="expected a URL"):
        Webhook(url).check()
    Webhook("https://example.org/hook?token=1").check()


@pytest.mark.parametrize("url", ["https://user:secret@example.org/hook", "https://secret@example.org/"])
def test_a_password_before_the_host_is_refused_and_not_printed(url: str) -> None:
    with pytest.raises(UsageError, match="user name or password is not supported") as caught:
        Webhook(url).check()
    assert "secret@" not in str(caught.value)
