# SPDX-License-Identifier: GPL-2.0-only
"""Tells a server how a night went: JSON to a URL of the user's, with patience that ends."""

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

from orchestrator import __version__
from orchestrator.errors import HostError, UsageError

_TRY_LIMIT = 15.0
"""Seconds for one try, whatever the server does."""
_PAUSES = (1.0, 5.0)
"""Seconds before the second and the third try."""
_TRIED_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers of a server that may have another one later (RFC 9110, section 15)."""


@dataclass(frozen=True)
class Webhook:
    """A URL that takes JSON by POST. It may have a secret in it: only its host is ever printed."""

    url: str
    try_limit: float = _TRY_LIMIT
    pauses: tuple[float, ...] = _PAUSES

    def check(self) -> None:
        """Raise UsageError unless it is a URL that can be posted to."""
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known or any(c.isspace() or not c.isprintable() for c in self.url):
            raise UsageError("expected a URL that begins with https:// or http://", where="--webhook")
        if "@" in parts.netloc:
            # http.client takes it for a part of the host's name, and prints it in its error.
            what = "a URL with a user's name or password before its host is not known here"
            raise UsageError(what, where="--webhook", hint="a webhook's secret is in its path or query")

    @property
    def host(self) -> str:
        """The server's name."""
        return urlsplit(self.url).hostname or ""

    def post(self, content: Mapping[str, Any]) -> None:
        """Send it, at most three times. Raises HostError with the last answer where none of them was taken."""
        body = json.dumps(content).encode()
        answer = self._try(body)
        for pause in self.pauses:
            if answer.is_taken or not answer.may_change:
                break
            time.sleep(pause)
            answer = self._try(body)
        if not answer.is_taken:
            raise HostError(f"the webhook at {self.host} was not notified: {answer.what}")

    def _try(self, body: bytes) -> _Answer:
        answers: list[_Answer] = []
        # A server that sends a byte now and then keeps a socket's own time limit from ever ending.
        thread = threading.Thread(target=lambda: answers.append(self._answer(body)), daemon=True)
        thread.start()
        thread.join(self.try_limit)
        return answers[0] if answers else _Answer(f"no answer in {self.try_limit:g} s", may_change=True)

    def _answer(self, body: bytes) -> _Answer:
        headers = {"Content-Type": "application/json", "User-Agent": f"probe-lab/{__version__}"}
        request = urllib.request.Request(self.url, body, headers, method="POST")  # noqa: S310  # checked: http or https
        try:
            with _OPENER.open(request, timeout=self.try_limit) as answer:
                return _Answer(f"status {answer.status}", is_taken=True)
        except urllib.error.HTTPError as error:
            with error:
                return _Answer(f"status {error.code}", may_change=error.code in _TRIED_AGAIN)
        except urllib.error.URLError as error:
            return _Answer(str(error.reason)[:200], may_change=True)
        except (OSError, ValueError, HTTPException) as error:  # a connection that breaks, an answer that is none
            return _Answer(str(error)[:200] or type(error).__name__, may_change=True)


@dataclass(frozen=True)
class _Answer:
    """What came of one try, and whether another one may come to something else."""

    what: str
    is_taken: bool = False
    may_change: bool = False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET, which tells nothing: it is an answer like others."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)
