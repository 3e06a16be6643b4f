# SPDX-License-Identifier: GPL-2.0-only
"""Does the proxy forward what it is asked for, through another one where it has to, and write it down?"""

from __future__ import annotations

import contextlib
import functools
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from logging_proxy import LoggingProxy, logging_proxy

_CONTENT = bytes(range(256)) * 5000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "Packages.xz").write_bytes(_CONTENT)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def fetch(proxy: LoggingProxy, uri: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy.url}))
    with contextlib.closing(opener.open(uri, timeout=30)) as answer:
        content: bytes = answer.read()
        return content


def test_a_file_comes_whole_and_is_written_down(server: str) -> None:
    with logging_proxy() as proxy:
        assert fetch(proxy, f"{server}/Packages.xz") == _CONTENT
        assert proxy.requested == [f"{server}/Packages.xz"]
        assert proxy.names() == ["Packages.xz"]


def test_one_proxy_may_need_another(server: str) -> None:
    with logging_proxy() as far, logging_proxy(far.url) as near:
        assert fetch(near, f"{server}/Packages.xz") == _CONTENT
        assert near.requested == far.requested == [f"{server}/Packages.xz"]


def test_a_client_gets_the_reason_of_a_failure(server: str) -> None:
    with logging_proxy() as proxy:
        for uri, status in ((f"{server}/missing", 404), ("http://127.0.0.1:1/x", 502)):
            with pytest.raises(urllib.error.HTTPError) as refusal:
                fetch(proxy, uri)
            assert refusal.value.code == status
            refusal.value.close()
