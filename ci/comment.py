#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Post a file as a comment of a pull or merge request, or replace the one with the same first line.

    ci/comment.py lab-reports/comment.md

GitHub: GITHUB_TOKEN, GITHUB_REPOSITORY, and GITHUB_EVENT_PATH, whose JSON names the pull request.
GitLab: LAB_GITLAB_TOKEN (of a project, with the scope `api`), CI_PROJECT_ID, CI_MERGE_REQUEST_IID.

Only a comment of the token's own user is replaced: somebody else's with the same first line could be edited by its
author later. The token of a GitHub App, the job's own among them, may not ask REST for its user, so GraphQL is asked
(GITHUB_GRAPHQL_URL); where that does not say, it is an App's comment that the server lets this token edit, and never a
person's. A token without permission to write, as pull requests of forks have, is no error. Comments are data: no part
of one is executed, printed, or used as an address.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PAGE = 100
_MOST_PAGES = 100
_TIME_LIMIT = 30.0
_LARGEST = 64 << 20
"""Bytes of an answer: a page of comments of the largest size."""
_OF_APP = "[bot]"
"""Ends the login of an App's user; no person's has brackets."""


class RefusedError(Exception):
    """The server gave another status than success. ``may_not`` if the token lacks the permission."""

    def __init__(self, what: str, status: int, *, limited: bool) -> None:
        super().__init__(f"{what}: status {status}{', too many requests' if limited else ''}")
        self.may_not = status == 403 and not limited
        self.has_gone = status in (404, 410)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class Place:
    """The comments of one request: ``comments`` is their address, ``one`` begins the address of a single comment."""

    user: str
    comments: str
    one: str
    token: str
    replace: str
    """The HTTP method that replaces a comment."""
    is_gitlab: bool
    graphql: str = ""
    """The address that also tells an App who it is."""

    def call(self, method: str, address: str, content: object = None) -> Any:
        """The JSON that the server answers. Raises RefusedError."""
        header = {"PRIVATE-TOKEN": self.token} if self.is_gitlab else {"Authorization": f"Bearer {self.token}"}
        header |= {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "probe-lab"}
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(address, data=data, headers=header, method=method)  # noqa: S310  # http: tests
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=_TIME_LIMIT) as answer:
                return json.loads(answer.read(_LARGEST))
        except urllib.error.HTTPError as error:
            # GitHub also answers 403 to too many requests.
            limited = error.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in error.headers
            error.close()
            raise RefusedError(f"{method} {urllib.parse.urlsplit(address).path}", error.code, limited=limited) from None

    def author(self) -> str | None:
        """The user whose token it is; None for an App that the server does not tell."""
        try:
            return str(self.call("GET", self.user)["username" if self.is_gitlab else "login"])
        except RefusedError as error:
            if self.is_gitlab or not error.may_not:
                raise
        if not self.graphql:
            return None
        try:
            answer = self.call("POST", self.graphql, {"query": "query { viewer { login } }"})
            login = answer["data"]["viewer"]["login"]
        except (RefusedError, KeyError, TypeError):  # without `data` it has `errors`
            return None
        return f"{str(login).removesuffix(_OF_APP)}{_OF_APP}"

    def find(self, mark: str) -> Iterator[int]:
        """Comments of the author that begin with this line, the oldest first; of any App if it is not known which."""
        author = self.author()
        for page in range(1, _MOST_PAGES + 1):
            comments = self.call("GET", f"{self.comments}?per_page={_PAGE}&page={page}")
            for comment in comments:
                who = comment.get("author" if self.is_gitlab else "user") or {}
                login = str(who.get("username" if self.is_gitlab else "login") or "")
                lines = (comment.get("body") or "").splitlines()
                if lines[:1] == [mark] and (login.endswith(_OF_APP) if author is None else login == author):
                    yield int(comment["id"])
            if not comments:  # a server may have shorter pages than asked for
                return

    def put(self, text: str) -> str:
        """Replace the comment with the first line of ``text``, or write a new one."""
        for comment in self.find(text.partition("\n")[0]):
            try:
                self.call(self.replace, f"{self.one}/{comment}", {"body": text})
            except RefusedError as error:
                if error.may_not or error.has_gone:
                    continue
                raise
            return "replaced"
        self.call("POST", self.comments, {"body": text})
        return "written"


def place_of(environment: dict[str, str]) -> Place | str:
    """Where the comment goes, or a sentence why nowhere."""
    if request := environment.get("CI_MERGE_REQUEST_IID"):
        token = environment.get("LAB_GITLAB_TOKEN")
        if not token:
            return "no comment: LAB_GITLAB_TOKEN is not set, as in merge requests of forks"
        api = environment["CI_API_V4_URL"]
        project = urllib.parse.quote(environment["CI_PROJECT_ID"], safe="")
        notes = f"{api}/projects/{project}/merge_requests/{int(request)}/notes"
        return Place(f"{api}/user", notes, notes, token, "PUT", is_gitlab=True)
    if "GITHUB_EVENT_PATH" in environment:
        event = json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        number = (event.get("pull_request") or {}).get("number")
        if number is None:
            return "no comment: the event is not of a pull request"
        token = environment.get("GITHUB_TOKEN")
        if not token:
            return "no comment: GITHUB_TOKEN is not set"
        api = environment.get("GITHUB_API_URL", "https://api.github.com")
        issues = f"{api}/repos/{urllib.parse.quote(environment['GITHUB_REPOSITORY'])}/issues"
        comments = f"{issues}/{int(number)}/comments"
        graphql = environment.get("GITHUB_GRAPHQL_URL", "")
        return Place(f"{api}/user", comments, f"{issues}/comments", token, "PATCH", is_gitlab=False, graphql=graphql)
    return "no comment: this is neither a merge request of GitLab nor an event of GitHub"


def _commented(file: Path) -> tuple[str, int]:
    """A sentence on what was done, and the exit status."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
        place = place_of(dict(os.environ))
        return (place, 0) if isinstance(place, str) else (f"the comment was {place.put(text)}", 0)
    except RefusedError as error:
        if error.may_not:
            return "no comment: the token may not write one, as in pull requests of forks; the job's summary has it", 0
        return f"error: {error}", 1
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: an answer that is no JSON
        return f"error: {error}", 1


def main() -> int:
    """Returns the exit status: 0 as well without a request or the permission to write, 1 for another refusal."""
    said, status = _commented(Path(sys.argv[1]))
    print(said, file=sys.stderr)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(f"\n{said}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
