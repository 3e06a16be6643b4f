# SPDX-License-Identifier: GPL-2.0-only
"""Packages of a Debian release, for any architecture, without root and without changing the host.

apt works in a private root with its own lists, status, archives and sources. The mirror, the keys and the network
settings are the host's. apt verifies downloads against the signed lists.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.debian_mirror import (
    ANOTHER_MIRROR,
    KEYRING_HINT,
    DebianMirror,
    debian_mirror,
    without_passwords,
)
from orchestrator.artifacts.debian_package import PACKAGE_NAME, NoSuchPackageError, Package, package_of
from orchestrator.catalog.debian_release import Suites, debian
from orchestrator.catalog.kernels import version_numbers
from orchestrator.errors import HostError
from orchestrator.process import Finished, run

_RESOLVE_LIMIT = 120.0
_FRESH = 600.0  # seconds for which package lists serve a second artifact
_PAUSE = 3.0  # seconds before the second attempt: the mirror may be synchronising
_NAMED = 6  # up to so many packages are reported one by one

# Messages of apt 2.6 and 3.0: signed by an unknown key, a suite without signature, an HTTP status of the mirror.
_NO_KEY = re.compile(r"NO_PUBKEY|Missing key|couldn't be verified|signature verification failed", re.IGNORECASE)
TAKE_EXPIRED = "Acquire::Check-Valid-Until"
"""apt's setting for repositories whose Release file has expired."""

_SETTINGS = Path(__file__).with_name("apt.conf")


class AptRoot:
    """A private root for apt: packages of ``suites`` (the guests' release) for ``architectures``, the host's first."""

    def __init__(self, context: BuildContext, architectures: Sequence[str], suites: Suites | None = None) -> None:
        self.context = context
        self._architectures = tuple(architectures)
        self.suites = suites or debian()
        self._root = context.cache.root / "apt" / "-".join([self.suites.release, *architectures])
        self._stamp, self._sources = self._root / "complete", self._root / "sources.list"

    def refresh(self) -> None:
        """Fetch the lists. A suite that fails twice is dropped, except the main one. Raises HostError."""
        title = self.suites.title
        self.context.need_network(f"the package lists of {title}")
        mirror = debian_mirror()
        sources = mirror.sources(self.suites)
        if self._is_fresh(sources):
            return
        if mirror.is_default:
            self.context.say(f"this host's apt names no Debian mirror; taking mmdebstrap's default, {mirror.shown}")
        self.context.say(f"fetching the package lists of {title} ({', '.join(self._architectures)})")
        self._prepare("".join(sources.values()))
        for attempt in range(2):
            if attempt:
                time.sleep(_PAUSE)
            finished = self._apt("apt-get", "update", time_limit=300)
            if finished.status == 0:
                break
        left_out = failed_suites(finished.stderr, sources) if finished.status != 0 else []
        if (finished.status != 0 and not left_out) or self.suites.suites[0] in left_out:
            raise _without_lists(mirror, self.suites, finished)
        if left_out:
            why = next(line for line in finished.stderr.splitlines() if failed_suites(line, left_out))
            self.context.say(f"continuing without {' and '.join(left_out)}: {why[:300].strip()}")
            self._sources.write_text("".join(line for suite, line in sources.items() if suite not in left_out))
        self._stamp.write_text(digest(sources))

    def show(self, name: str, architecture: str) -> Package:
        if not PACKAGE_NAME.fullmatch(name):
            raise NoSuchPackageError(f"{name!r} is not a package name")
        qualified = name if architecture == "all" else f"{name}:{architecture}"
        finished = self._apt("apt-cache", "show", "--no-all-versions", qualified, time_limit=60)
        if finished.status == 0:
            with contextlib.suppress(NoSuchPackageError):
                return replace(package_of(finished.stdout.split("\n\n")[0]), name=name, architecture=architecture)
        what = f"the suites of {self.suites.title} have no {name} for {architecture}"
        raise NoSuchPackageError(what, detail=finished.complaint())

    def names(self, pattern: str) -> list[str]:
        finished = self._apt("apt-cache", "pkgnames", time_limit=_RESOLVE_LIMIT)
        names = [name for name in finished.stdout.split() if re.fullmatch(pattern, name)]
        return sorted(names, key=version_numbers)

    def simulate(self, packages: Sequence[str]) -> list[str]:
        """The exact names (``name=version``) that installing these on an empty disk installs. Raises HostError."""
        arguments = ["install", "--simulate", "--no-install-recommends", "--", *packages]
        finished = self._apt("apt-get", *arguments, time_limit=_RESOLVE_LIMIT)
        if finished.status != 0:
            head, errors = finished.complaint()[:1], finished.stderr.splitlines()
            detail = [*head, *finished.stdout.splitlines()[-10:], *errors]
            raise HostError(f"the suites of {self.suites.title} do not make an installable system", detail=detail)
        installed = re.findall(r"^Inst (\S+) \((\S+) ", finished.stdout, re.MULTILINE)
        return [f"{name}={version}" for name, version in installed]

    def stanzas(self, exact: Sequence[str]) -> list[str]:
        """The signed lists' paragraphs of exact packages (``name=version``), as far as the lists still have them."""
        finished = self._apt("apt-cache", "show", "--", *exact, time_limit=_RESOLVE_LIMIT)
        return [stanza for stanza in finished.stdout.split("\n\n") if stanza.strip()]

    def with_suites(self, packages: Sequence[Package]) -> tuple[Package, ...]:
        names = [package.qualified for package in packages]
        finished = self._apt("apt-cache", "madison", "--", *names, time_limit=_RESOLVE_LIMIT)
        # linux-image-686:i386 | 6.1.176-1 | http://HOST/debian bookworm/main i386 Packages
        row = r"^ *([^ :|]+)(?::\S+)? \| *(\S+) \| \S+ (\S+)/\S+ \S+ Packages$"
        rows = re.findall(row, finished.stdout, re.MULTILINE)
        suites = {(name, version): suite for name, version, suite in reversed(rows)}
        return tuple(
            replace(package, suite=suites.get((package.name, package.version), "unknown")) for package in packages
        )

    def has(self, packages: Sequence[Package]) -> bool:
        listed = {facts.sha256 for facts in map(package_of, self.stanzas([p.pinned for p in packages]))}
        return listed.issuperset(package.sha256 for package in packages)

    def download(self, packages: Sequence[Package], into: Path) -> list[Path]:
        """Fetch .deb files into a folder, verified by apt, in the order given. Raises HostError."""
        self.context.need_network(", ".join(p.pinned for p in packages[:_NAMED]))
        into.mkdir(parents=True, exist_ok=True)
        named = [f"{package.name} {package.version}" for package in packages]
        for line in named if len(named) <= _NAMED else [f"{len(named)} packages"]:
            self.context.say(f"fetching {line}")
        argv = ["download", *(package.pinned for package in packages)]
        finished = self._apt("apt-get", *argv, time_limit=1800, cwd=into)
        path_groups = [sorted(into.glob(f"{package.name}_*.deb")) for package in packages]
        lacking = [p.pinned for p, files in zip(packages, path_groups, strict=True) if len(files) != 1]
        if finished.status != 0 or lacking:
            hint = "check the host's network and its apt sources: apt-get update"
            what = ", ".join(lacking or [package.pinned for package in packages])
            raise HostError(f"apt could not fetch {what[:300]}", detail=finished.complaint(), hint=hint)
        return [files[0] for files in path_groups]

    def _is_fresh(self, sources: Mapping[str, str]) -> bool:
        with contextlib.suppress(FileNotFoundError):
            age = time.time() - self._stamp.stat().st_mtime
            # After a clock was set back, lists from the future would count as fresh until then.
            return 0 <= age < _FRESH and self._stamp.read_text() == digest(sources)
        return False

    def _prepare(self, sources: str) -> None:
        # Drop lists of an earlier day, or of a mirror that the host no longer uses.
        shutil.rmtree(self._root, ignore_errors=True)
        # A mirror's address and the host's settings may contain a password.
        self._root.mkdir(parents=True, mode=0o700)
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (self._root / folder).mkdir(parents=True)
        (self._root / "state/status").touch()
        self._sources.write_text(sources)
        root = self._root.as_posix()
        listed = "\n".join(f'APT::Architectures:: "{name}";' for name in self._architectures)
        settings = _SETTINGS.read_text("utf-8")
        settings = settings.format(root=root, architecture=self._architectures[0], architectures=listed)
        with contextlib.suppress(FileNotFoundError):
            settings = f"{Path('/etc/apt/apt.conf').read_text()}\n{settings}"
        (self._root / "settings.conf").write_text(settings)
        # apt reads $APT_CONFIG first and Dir::Etc::main last; only in the latter can the host's settings be cleared.
        (self._root / "first.conf").write_text(f'Dir::Etc::main "{root}/settings.conf";\n')

    def _apt(self, program: str, *arguments: str, time_limit: float, cwd: Path | None = None) -> Finished:
        environment = {"APT_CONFIG": str(self._root / "first.conf"), "DEBIAN_FRONTEND": "noninteractive"}
        ended = run([program, "-q", *arguments], time_limit=time_limit, cwd=cwd, environment=environment)
        # apt hides the password in an address only while nothing fails.
        return replace(ended, stdout=without_passwords(ended.stdout), stderr=without_passwords(ended.stderr))


def failed_suites(printed: str, suites: Iterable[str]) -> list[str]:
    """The suites that the messages of a failed ``apt-get update`` name."""
    # Other warnings concern keys that are still valid.
    lines = [line for line in printed.splitlines() if line.startswith(("E: ", "W: Failed", "W: GPG error"))]
    # E: Failed to fetch http://HOST/debian-security/dists/bookworm-security/main/...  File has unexpected size
    # E: The repository 'http://HOST/debian bookworm-updates Release' does not have a Release file.
    named = re.findall(r"(?:/dists/| )([A-Za-z0-9.-]+)(?:/| (?:In)?Release\b)", "\n".join(lines))
    return [suite for suite in suites if suite in named]


def _without_lists(mirror: DebianMirror, suites: Suites, finished: Finished) -> HostError:
    title, printed = suites.title, finished.stdout + finished.stderr
    answers = set(re.findall(r"\b([345]\d\d)  [A-Z]", printed))
    # E: Release file for http://HOST/debian/dists/sid/InRelease is expired (invalid since 20d 18h 52min 13s). ...
    in_main = rf"/dists/{re.escape(suites.suites[0])}/\S+"
    if expired := re.search(rf"E: Release file for \S+{in_main} is expired \((invalid since [^)]+)\)", printed):
        what = f"the Release file of {title} ({suites.suites[0]}) on {mirror.shown} is expired ({expired[1]})"
        hint = f"check the host's date, or {ANOTHER_MIRROR}; to take such old packages all the same, write a file in "
        hint += f'/etc/apt/apt.conf.d: {TAKE_EXPIRED} "false";'
    elif answers - {"404"}:
        what = f"the mirror {mirror.shown} refuses {title}: it answers {', '.join(sorted(answers))}"
        hint = f"check the host's proxy and its /etc/apt/auth.conf, or {ANOTHER_MIRROR}"
    elif _NO_KEY.search(printed):
        what = f"no key of Debian's archive on this host has signed the {title} of {mirror.shown}"
        hint = f"{KEYRING_HINT}, or {ANOTHER_MIRROR}"
    elif answers or re.search(r"does not have a Release file|File not found", printed):
        what, hint = f"the mirror {mirror.shown} has no {title} ({suites.suites[0]})", ANOTHER_MIRROR
    elif "is not signed" in printed:
        what, hint = f"the mirror {mirror.shown} has no signature of {title}", ANOTHER_MIRROR
    else:
        what = f"the package lists of {title} cannot be fetched from {mirror.shown}"
        hint = "check the host's network and its apt sources"
    return HostError(what, detail=finished.complaint(), hint=hint)
