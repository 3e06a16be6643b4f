# SPDX-License-Identifier: GPL-2.0-only
"""Where this host gets Debian's packages from, and so those of the release that guests are made of."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalog.debian import Suites, debian
from orchestrator.errors import HostError, UsageError
from orchestrator.process import run

MIRROR_VARIABLE = "ORCHESTRATOR_DEBIAN_MIRROR"
ANOTHER_MIRROR = f"name another mirror: {MIRROR_VARIABLE}=http://HOST/debian"
KEYRING_HINT = "as root: apt-get install -y debian-archive-keyring"

_ARCHIVE, _SECURITY_ARCHIVE = "debian", "debian-security"
_SECURITY_SUITE = re.compile(r"(.+)(?:-security|/updates)")
_URI = re.compile(r"[a-z][a-z+]*:[!-~]+")
_USER = re.compile(r"(?<=://)[^/@\s]*@")
_LIMIT = 60.0


@dataclass(frozen=True)
class DebianMirror:
    """The addresses of Debian's archive and, where it is known, of its security archive."""

    archive: str
    security: str | None

    @property
    def shown(self) -> str:
        """The archive's address for people: without a user's name and password."""
        return without_passwords(self.archive)

    def sources(self, suites: Suites) -> dict[str, str]:
        """A line of apt's source list for each of the suites. All must be signed with Debian's own keys.

        Raises HostError where the host does not have those.
        """
        options, security = f"[signed-by={archive_keyring()}]", suites.security_suite
        lines = {suite: f"deb {options} {self.archive} {suite} main\n" for suite in suites.suites}
        if self.security is not None and security:
            lines[security] = f"deb {options} {self.security} {security} main\n"
        return lines


def without_passwords(text: str) -> str:
    """A text for people: the addresses in it without a user's name and password."""
    return _USER.sub("", text)


def archive_keyring(root: Path = Path("/")) -> Path:
    """The keys of Debian's archive, of this host or below another root. Raises HostError where there are none."""
    for keyring in map(Path, debian().keyrings):
        if (root / keyring.relative_to("/")).is_file():
            return keyring
    raise HostError("the keys of Debian's archive, which packages are verified with, are missing", hint=KEYRING_HINT)


def debian_mirror() -> DebianMirror:
    """The mirror that the user has named, else the one in the host's own apt sources.

    Raises HostError where those name none, UsageError where the user's is no address.
    """
    named = os.environ.get(MIRROR_VARIABLE, "")
    if named:
        if not _URI.fullmatch(named):
            raise UsageError(f"{MIRROR_VARIABLE} is {named!r}, which is no address such as http://HOST/debian")
        return DebianMirror(named, _security_beside(named))
    # apt reads both forms of its source lists; without release information it needs no package lists of the host.
    wanted = ["--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
    listed = run(["apt-get", "indextargets", *wanted], time_limit=_LIMIT, environment={"LC_ALL": "C"})
    if listed.status != 0:
        raise HostError("the host's apt sources cannot be read", detail=listed.complaint(), hint="apt-get check")
    return mirror_in(listed.stdout)


def mirror_in(rows: str) -> DebianMirror:
    """The mirror in rows of an address, a suite and a component. Raises HostError where there is none of Debian's."""
    known = [debian().release, *debian().other_releases]
    words = [row.split() for row in rows.splitlines()]
    pairs = [(row[0], row[1].rstrip("/")) for row in words if len(row) == 3 and row[2] == "main"]
    # Others publish for Debian under the same names of suites; only Debian has updates of a release beside it.
    candidates = dict.fromkeys(uri for suite in known for uri, found in pairs if found == suite)
    if not candidates:
        raise HostError(
            f"guests are made of {debian().title}, and this host's apt sources name no mirror of Debian",
            hint=f"{ANOTHER_MIRROR} ({KEYRING_HINT})",
        )
    archive = max(candidates, key=lambda uri: _likeness(uri, {suite for found, suite in pairs if found == uri}))
    security = [uri for uri, suite in pairs if (of := _SECURITY_SUITE.fullmatch(suite)) and of[1] in known]
    return DebianMirror(archive, max(security, key=_is_named_security, default=None) or _security_beside(archive))


def _likeness(uri: str, suites: set[str]) -> tuple[bool, bool]:
    """How much an address with these suites is like Debian's archive; of equals the first is taken."""
    return any(f"{suite}-updates" in suites for suite in suites), _name(uri) == _ARCHIVE


def _is_named_security(uri: str) -> bool:
    return _name(uri) == _SECURITY_ARCHIVE


def _name(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2]


def _security_beside(archive: str) -> str | None:
    """Where mirrors keep the security archive; None for one that is laid out differently."""
    parent = archive.rstrip("/").rpartition("/")[0]
    return f"{parent}/{_SECURITY_ARCHIVE}" if _name(archive) == _ARCHIVE else None
