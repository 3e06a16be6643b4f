# SPDX-License-Identifier: GPL-2.0-only
"""Where this host gets Debian's packages from, and so those of the release that guests are made of."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalog.debian import debian
from orchestrator.errors import HostError, UsageError
from orchestrator.process import run

MIRROR_VARIABLE = "ORCHESTRATOR_DEBIAN_MIRROR"

_ARCHIVE, _SECURITY_ARCHIVE = "debian", "debian-security"
_SECURITY_SUITE = re.compile(r"(.+)(?:-security|/updates)")
_URI = re.compile(r"[a-z][a-z+]*:[!-~]+")
_LIMIT = 60.0


@dataclass(frozen=True)
class DebianMirror:
    """The addresses of Debian's archive and, where it is known, of its security archive."""

    archive: str
    security: str | None

    def sources(self) -> str:
        """The release's suites as a source list for apt. Packages count only when signed with Debian's own keys."""
        release = debian()
        # Where there is no such file, apt goes by the keys that the host trusts.
        keyring = next((path for path in release.keyrings if Path(path).exists()), None)
        options = f"[signed-by={keyring}] " if keyring else ""
        lines = [f"deb {options}{self.archive} {suite} main" for suite in release.suites]
        if self.security is not None:
            lines.append(f"deb {options}{self.security} {release.security_suite} main")
        return "".join(f"{line}\n" for line in lines)

    def main_suite(self) -> str:
        """The source list of the release's own suite, which never changes in the middle of being read."""
        return self.sources().splitlines()[0] + "\n"


def debian_mirror() -> DebianMirror:
    """The mirror that the user has named, else the one in the host's own apt sources.

    Raises HostError where those name none, UsageError where the user's is no address.
    """
    named = os.environ.get(MIRROR_VARIABLE, "")
    if named:
        if not _URI.fullmatch(named):
            raise UsageError(f"{MIRROR_VARIABLE} is {named!r}, which is no address such as http://HOST/debian")
        return DebianMirror(named, _security_beside(named))
    listed = run(
        # apt reads both forms of its source lists; a row of addresses needs no package lists of the host.
        ["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"],
        time_limit=_LIMIT,
        environment={"LC_ALL": "C"},
    )
    if listed.status != 0:
        raise HostError("the host's apt sources cannot be read", detail=listed.complaint(), hint="apt-get check")
    return mirror_in(listed.stdout)


def mirror_in(rows: str) -> DebianMirror:
    """The mirror in rows of an address and a suite. Raises HostError where there is none of Debian's."""
    release = debian()
    pairs = [(words[0], words[1]) for words in map(str.split, rows.splitlines()) if len(words) == 2]
    # A host of the release itself names its suites; else any release's mirror has them beside its own.
    known = [release.release, *release.suites_of_any_release]
    archive = next((uri for suite in known for uri, found in pairs if found.rstrip("/") == suite), None)
    if archive is None:
        raise HostError(
            f"the guests' kernels are of {release.title}, and this host's apt sources name no mirror of Debian",
            hint=f"name one, {MIRROR_VARIABLE}=http://HOST/debian, and have Debian's keys: {KEYRING_HINT}",
        )
    security = next((uri for uri, suite in pairs if _is_security(suite, known)), None)
    return DebianMirror(archive, security or _security_beside(archive))


KEYRING_HINT = "as root: apt-get install -y debian-archive-keyring"


def _is_security(suite: str, known: list[str]) -> bool:
    match = _SECURITY_SUITE.fullmatch(suite.rstrip("/"))
    return match is not None and match[1] in known


def _security_beside(archive: str) -> str | None:
    """Where mirrors keep the security archive; None for one that is laid out differently."""
    parent, _, name = archive.rstrip("/").rpartition("/")
    return f"{parent}/{_SECURITY_ARCHIVE}" if name == _ARCHIVE else None
