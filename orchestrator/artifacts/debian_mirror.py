# SPDX-License-Identifier: GPL-2.0-only
"""The mirror that Debian's packages come from, and the keys that verify them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalog.debian_release import Suites, debian
from orchestrator.errors import HostError, UsageError
from orchestrator.process import run

MIRROR_VARIABLE = "ORCHESTRATOR_DEBIAN_MIRROR"
ANOTHER_MIRROR = f"name another mirror: {MIRROR_VARIABLE}=http://HOST/debian"
KEYRING_HINT = "as root: apt-get install -y debian-archive-keyring"

_ARCHIVE, _SECURITY_ARCHIVE = "debian", "debian-security"
_DEFAULT_MIRROR = re.compile(r"""\bmirror *= *["'](https?://[A-Za-z0-9./:-]+)["']""")
_LARGEST_SCRIPT = 1 << 20  # characters: mmdebstrap has a third
_SECURITY_SUITE = re.compile(r"(.+)(?:-security|/updates)")


@dataclass(frozen=True)
class DebianMirror:
    """The addresses of Debian's archive and, if known, of its security archive; ``is_default``: mmdebstrap's."""

    archive: str
    security: str | None
    is_default: bool = False

    @property
    def shown(self) -> str:
        return without_passwords(self.archive)

    def sources(self, suites: Suites) -> dict[str, str]:
        """A signed line of apt's source list for each suite. Raises HostError if Debian's keys are missing."""
        options, security = f"[signed-by={archive_keyring()}]", suites.security_suite
        lines = {suite: f"deb {options} {self.archive} {suite} main\n" for suite in suites.suites}
        if self.security is not None and security:
            lines[security] = f"deb {options} {self.security} {security} main\n"
        return lines


def without_passwords(text: str) -> str:
    """A text for display, without the user names and passwords in its addresses."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


def archive_keyring(root: Path = Path("/")) -> Path:
    """The keys of Debian's archive, of this host or below another root. Raises HostError if missing."""
    for keyring in map(Path, debian().keyrings):
        if (root / keyring.relative_to("/")).is_file():
            return keyring
    raise HostError("the keys of Debian's archive, which verify packages, are missing", hint=KEYRING_HINT)


def debian_mirror() -> DebianMirror:
    """The mirror that the user has named, else that of the host's apt sources, else mmdebstrap's default one.

    Raises HostError, UsageError.
    """
    named = os.environ.get(MIRROR_VARIABLE, "")
    if named:
        if not re.fullmatch(r"[a-z][a-z+]*:[!-~]+", named):
            raise UsageError(f"{MIRROR_VARIABLE} is {named!r}; expected an address such as http://HOST/debian")
        return DebianMirror(named, _security_beside(named))
    # apt-get parses both formats of source lists; without release information it needs none of the host's lists.
    arguments = ["--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
    listed = run(["apt-get", "indextargets", *arguments], time_limit=60.0)
    listed.or_raise(HostError, "the host's apt sources cannot be read", hint="apt-get check")
    if mirror := mirror_in(listed.stdout):
        return mirror
    if default := default_mirror():
        return DebianMirror(default, _security_beside(default), is_default=True)
    what = f"guests are made of {debian().title}, and this host's apt sources name no Debian mirror"
    hint = f"as root: apt-get install -y debian-archive-keyring mmdebstrap, which knows one, or {ANOTHER_MIRROR}"
    raise HostError(what, hint=hint)


def default_mirror() -> str | None:
    """The mirror of Debian that mmdebstrap, a script, takes where none is named; None without mmdebstrap."""
    match = None
    with contextlib.suppress(OSError), Path(shutil.which("mmdebstrap") or "").open(errors="replace") as script:
        match = _DEFAULT_MIRROR.search(script.read(_LARGEST_SCRIPT))
    return match[1] if match else None


def mirror_in(rows: str) -> DebianMirror | None:
    """The mirror in rows of address, suite and component; None if none is a mirror of Debian."""
    known = [debian().release, *debian().other_releases]
    words = [row.split() for row in rows.splitlines()]
    pairs = [(row[0], row[1].rstrip("/")) for row in words if len(row) == 3 and row[2] == "main"]
    # Other projects publish for Debian under the same suite names, but only Debian has a release's updates beside it.
    candidates = dict.fromkeys(uri for suite in known for uri, listed in pairs if listed == suite)
    if not candidates:
        return None
    with_updates = {uri for uri, suite in pairs if (uri, f"{suite}-updates") in pairs}
    # Of equal candidates, max() takes the first.
    archive = max(candidates, key=lambda uri: (uri in with_updates, _name(uri) == _ARCHIVE))
    security = [uri for uri, suite in pairs if (of := _SECURITY_SUITE.fullmatch(suite)) and of[1] in known]
    named = max(security, key=lambda uri: _name(uri) == _SECURITY_ARCHIVE, default=None)
    return DebianMirror(archive, named or _security_beside(archive))


def _name(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2]


def _security_beside(archive: str) -> str | None:
    parent = archive.rstrip("/").rpartition("/")[0]
    return f"{parent}/{_SECURITY_ARCHIVE}" if _name(archive) == _ARCHIVE else None
