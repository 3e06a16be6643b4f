# SPDX-License-Identifier: GPL-2.0-only
"""A forward proxy for HTTP on the loopback interface, which writes down what it was asked for."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import SplitResult, urlsplit

_LIMIT = 120.0
"""Seconds without a byte from the server."""

# They concern one connection, not the request: RFC 9110, section 7.6.1.
_HOP_BY_HOP = {"connection", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade"}


class LoggingProxy(ThreadingHTTPServer):
    """Forwards GET and HEAD; ``upstream`` is the proxy that it has to use itself, if any."""

    daemon_threads = True

    def __init__(self, upstream: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream) if upstream else None
        self.requested: list[str] = []

    @property
    def url(self) -> str:
        """The proxy's address, for a client."""
        return f"http://127.0.0.1:{self.server_port}"

    def names(self) -> list[str]:
        """The last parts of the addresses that were asked for."""
        return [uri.rpartition("/")[2] for uri in self.requested]


@contextlib.contextmanager
def logging_proxy(upstream: str | None = None) -> Iterator[LoggingProxy]:
    """A proxy that serves until the end."""
    with LoggingProxy(upstream) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, LoggingProxy)
        self.server.requested.append(self.path)
        target = urlsplit(self.path)
        if target.scheme != "http" or not target.hostname:
            self.send_error(400, "this proxy forwards http only")
            return
        try:
            self._forward(target, self.server.upstream)
        except (OSError, http.client.HTTPException) as error:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.send_error(502, f"cannot reach {target.hostname}: {error}")

    do_HEAD = do_GET  # noqa: N815  # http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its parameter's name there
        """Say nothing: what was asked for is written down."""

    def _forward(self, target: SplitResult, upstream: SplitResult | None) -> None:
        server = upstream or target
        local = target._replace(scheme="", netloc="").geturl()
        connection = http.client.HTTPConnection(server.hostname or "", server.port or 80, timeout=_LIMIT)
        with contextlib.closing(connection):
            kept = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
            connection.request(self.command, self.path if upstream else local or "/", headers=kept)
            answer = connection.getresponse()
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in (*_HOP_BY_HOP, "transfer-encoding"):
                    self.send_header(name, value)
            if answer.getheader("Content-Length") is None and answer.status not in (204, 304):
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            shutil.copyfileobj(answer, self.wfile)
