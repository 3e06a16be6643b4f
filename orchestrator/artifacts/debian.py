# SPDX-License-Identifier: GPL-2.0-only
"""Debian's packages: the mirror, the choice of versions, and fetching and unpacking them without root."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from orchestrator.arch import ARCHITECTURES, HOST
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact, digest
from orchestrator.catalog.debian_release import Suites, debian
from orchestrator.catalog.kernels import version_numbers
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import write_whole
from orchestrator.process import Finished, run

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


# Packages of a Debian release, for any architecture, without root and without changing the host.
#
# apt works in a private root with its own lists, status, archives and sources. The mirror, the keys and the network
# settings are the host's. apt verifies downloads against the signed lists.

_RESOLVE_LIMIT = 120.0
_FRESH = 600.0  # seconds for which package lists serve a second artifact
_PAUSE = 3.0  # seconds before the second attempt: the mirror may be synchronising
_NAMED = 6  # up to so many packages are reported one by one


# Messages of apt 2.6 and 3.0: signed by an unknown key, a suite without signature, an HTTP status of the mirror.
_NO_KEY = re.compile(r"NO_PUBKEY|Missing key|couldn't be verified|signature verification failed", re.IGNORECASE)
TAKE_EXPIRED = "Acquire::Check-Valid-Until"
"""apt's setting for repositories whose Release file has expired."""

_SETTINGS = Path(__file__).with_name("apt.conf")
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{0,120}")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~:-]{0,80}")


@dataclass(frozen=True)
class Package:
    """One exact package. ``sha256`` is the .deb's in the signed lists, ``suite`` the first that lists it."""

    name: str
    architecture: str
    version: str
    sha256: str
    depends: str
    suite: str = ""

    @property
    def qualified(self) -> str:
        return self.name if self.architecture == "all" else f"{self.name}:{self.architecture}"

    @property
    def pinned(self) -> str:
        return f"{self.qualified}={self.version}"

    def dependencies(self, pattern: str) -> list[str]:
        """The names of packages that it depends on and that match ``pattern``, alternatives included."""
        names = [alternative.split("(")[0].strip() for alternative in re.split(r"[,|]", self.depends)]
        return [name for name in names if re.fullmatch(pattern, name)]

    def dependency(self, pattern: str) -> str:
        """The first of them. Raises NoSuchPackageError."""
        for name in self.dependencies(pattern):
            return name
        raise NoSuchPackageError(f"{self.name} {self.version} depends on no package like {pattern}")


class NoSuchPackageError(HostError):
    """None of the release's suites has a package of that name."""


def package_of(stanza: str) -> Package:
    """The package that a paragraph of a list describes. Raises NoSuchPackageError for a damaged paragraph."""
    fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", stanza, re.MULTILINE))
    name, version, sha256 = (fields.get(key, "") for key in ("Package", "Version", "SHA256"))
    if not (_NAME.fullmatch(name) and _VERSION.fullmatch(version) and re.fullmatch(r"[0-9a-f]{64}", sha256)):
        raise NoSuchPackageError("a paragraph of a package list is damaged", detail=stanza.splitlines()[:3])
    return Package(name, fields.get("Architecture", ""), version, sha256, fields.get("Depends", ""))


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
        if not _NAME.fullmatch(name):
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


# Pinning: the exact packages that an artifact is made from.
#
# The lab chooses the newest versions in the release's suites once and records them in the cache's ``pins`` folder. It
# keeps to a record until the user removes it: two runs of an experiment use the same kernel, whatever the archive has
# published in between.

Choice = Callable[[AptRoot], Sequence[Package]]
Filling = Callable[[AptRoot, Sequence[Package], Path], None]


@dataclass(frozen=True)
class PackageSet:
    """A set to choose from the first of ``places`` that has it; ``is_newest`` chooses anew each time."""

    name: str
    arch: str
    architectures: tuple[str, ...]
    places: tuple[Suites, ...] = ()
    is_newest: bool = False


_HEADERS = "usr/src/linux-headers-"
"""Four of five files of a kernel's packages. Only the compilation of a module reads them, and has them verified before
(``make_modules``): at each start that would take 0.1 s."""


def pinned_artifact(
    context: BuildContext, kind: str, package_set: PackageSet, choose: Choice, fill: Filling
) -> Artifact:
    """The artifact that ``fill`` makes of the chosen or pinned packages. Raises HostError."""
    name, pin = package_set.name, pin_of(context, package_set.name)

    def ready(pinned: Sequence[Package] | None) -> Artifact | None:
        return None if pinned is None else context.cache.get(kind, inputs_of(pinned), unverified=_HEADERS)

    keeps = context.offline or not package_set.is_newest
    if keeps and (artifact := ready(chosen(pin))) is not None:
        return artifact
    with context.cache.lock(f"pin-{name}"):
        pinned = chosen(pin) if keeps else None
        if (artifact := ready(pinned)) is not None:
            return artifact
        context.need_network(name)
        with context.cache.lock(f"apt-{package_set.arch}"):
            apt, packages = _found(context, package_set, pinned, choose)
            artifact = context.cache.obtain(kind, inputs_of(packages), name, lambda folder: fill(apt, packages, folder))
        pin.parent.mkdir(exist_ok=True)
        write_whole(pin, json.dumps([asdict(p) for p in packages], indent=1))
    return artifact


def _found(
    context: BuildContext, package_set: PackageSet, pinned: Sequence[Package] | None, choose: Choice
) -> tuple[AptRoot, Sequence[Package]]:
    pairs: list[tuple[AptRoot, Sequence[Package]]] = []
    failures: list[HostError] = []
    for suites in package_set.places or (debian(),):
        apt = AptRoot(context, package_set.architectures, suites)
        try:
            apt.refresh()
            # An archive keeps only the newest versions: choose anew if it no longer has the pinned ones.
            packages = pinned if pinned is not None and apt.has(pinned) else choose(apt)
            pairs.append((apt, apt.with_suites(packages)))
        except HostError as error:
            failures.append(error)
            if package_set.places and not isinstance(error, NoSuchPackageError):
                context.say(f"continuing without {suites.title}: {error.what}")
        if pairs and not package_set.is_newest:
            break
    if not pairs:
        raise next((error for error in reversed(failures) if isinstance(error, NoSuchPackageError)), failures[-1])
    return max(pairs, key=lambda pair: version_numbers(pair[1][0].version))


def pin_of(context: BuildContext, name: str) -> Path:
    """The file that records the choice of the set ``name``."""
    return context.cache.root / "pins" / f"{name}.json"


def origins(context: BuildContext, name: str) -> dict[str, str]:
    """Version and suite of every package of the set ``name``, by name and architecture."""
    packages = chosen(pin_of(context, name)) or ()
    return {f"{p.name}:{p.architecture}": f"{p.version} ({p.suite})" for p in packages}


def chosen(pin: Path) -> tuple[Package, ...] | None:
    """The packages in a record; None if there is no record. Raises LabError for a damaged one."""
    try:
        return tuple(Package(**fields) for fields in json.loads(pin.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError):
        raise LabError(f"{pin} is not a record of chosen packages", hint=f"remove it: rm '{pin}'") from None


def inputs_of(packages: Sequence[Package]) -> dict[str, object]:
    """The inputs of an artifact made of packages alone."""
    return {"packages": {f"{p.name}:{p.architecture}": [p.version, p.sha256] for p in packages}}


def versions(artifact: Artifact) -> Mapping[str, str]:
    """The versions of the packages among an artifact's inputs, by name and architecture."""
    packages = artifact.inputs["packages"]
    assert isinstance(packages, dict)
    return {name: version for name, (version, _) in packages.items()}


_LOADER = Path("usr/lib", HOST.triplet, Path(HOST.loader).name)
_WITH_OWN_LIBRARIES = Path(__file__).with_name("run-with-own-libraries.sh")


def unpacked_packages(
    context: BuildContext,
    name: str,
    arch: str,
    choose: Choice,
    *,
    places: Sequence[Suites] = (),
    is_newest: bool = False,
) -> Artifact:
    """The unpacked packages of the set ``name``, below one root. Raises HostError."""
    architectures = dict.fromkeys((HOST.debian, ARCHITECTURES[arch].debian))
    package_set = PackageSet(name, arch, tuple(architectures), tuple(places), is_newest)
    return pinned_artifact(context, "debian", package_set, choose, _unpack)


def _unpack(apt: AptRoot, packages: Sequence[Package], folder: Path) -> None:
    archives = folder / "archives"
    for package, archive in zip(packages, apt.download(packages, archives), strict=True):
        apt.context.say(f"unpacking {package.name}")
        unpacked = run(["dpkg-deb", "-x", str(archive), str(folder)], time_limit=300)
        unpacked.or_raise(HostError, f"cannot unpack {archive.name}")
        archive.unlink()
    archives.rmdir()
    for program in folder.glob("usr/lib/linux-kbuild-*/**/*") if (folder / _LOADER).exists() else ():
        if program.is_file() and not program.is_symlink() and program.read_bytes()[:4] == b"\x7fELF":
            program.rename(program.with_name(f"{program.name}.own"))
            program.write_text(_WITH_OWN_LIBRARIES.read_text())
            program.chmod(0o755)
