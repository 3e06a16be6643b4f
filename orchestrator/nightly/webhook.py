# SPDX-License-Identifier: GPL-2.0-only
"""Post a nightly report to a URL."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import HostError, UsageError
from orchestrator.version import __version__

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which a later try may succeed (RFC 9110, section 15)."""


@dataclass(frozen=True)
class Webhook:
    """A URL that takes JSON by POST. Only its host is printed, since the rest may contain a secret."""

    url: str
    try_limit: float = 15.0
    """Seconds for one try, whatever the server does."""
    pauses: tuple[float, ...] = (1.0, 5.0)
    """Seconds before the second and the third try."""

    def check(self) -> None:
        """Raise UsageError unless the URL is one to post to."""
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known or any(c.isspace() or not c.isprintable() for c in self.url):
            raise UsageError("expected a URL that begins with https:// or http://", where="--webhook")
        if "@" in parts.netloc:
            # http.client takes it for a part of the host's name, and would print it.
            what = "a URL with a user name or password is not supported"
            raise UsageError(what, where="--webhook", hint="put the webhook's secret into its path or query")

    def post(self, content: Mapping[str, Any]) -> None:
        """Post the content, in at most three tries. Raises HostError with the last answer."""
        body = json.dumps(content).encode()
        for pause in (*self.pauses, None):
            answers: list[int | str] = []
            # A thread, because a server that sends single bytes would keep resetting the socket's time limit.
            thread = threading.Thread(target=lambda got=answers: got.append(self._answer(body)), daemon=True)
            thread.start()
            thread.join(self.try_limit)
            answer = answers[0] if answers else f"no answer in {self.try_limit:g} s"
            if answer == _OK:
                return
            if pause is None or (isinstance(answer, int) and answer not in _RETRIED):
                why = f"status {answer}" if isinstance(answer, int) else answer
                raise HostError(f"posting to the webhook at {urlsplit(self.url).hostname} failed: {why}")
            time.sleep(pause)

    def _answer(self, body: bytes) -> int | str:
        """The status of the server's answer, _OK for success, or the error."""
        headers = {"Content-Type": "application/json", "User-Agent": f"probe-lab/{__version__}"}
        request = urllib.request.Request(self.url, body, headers, method="POST")  # noqa: S310  # checked: http or https
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=self.try_limit):
                return _OK
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except (OSError, ValueError, HTTPException) as error:  # a broken connection, or an invalid answer
            return str(getattr(error, "reason", error))[:200] or type(error).__name__


_OK = 200


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an answer: a redirected POST would become a GET without the content."""

    def redirect_request(self, *arguments: Any) -> None:
        return None
