# SPDX-License-Identifier: GPL-2.0-only
"""A machine on which nothing was ever installed: a bare root that gets at packages as its host does, and a clone."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bare_root import ROOT, Account, BareRoot, Shared, unpacked
from base_system import base_system, sources
from contained import check_contained
from first_table import FirstTable
from from_host import FromHost
from host_apt import Setting, Suite, acquire_settings, password_files, suites
from host_pip import pip_settings
from package_pool import lent
from readme import TwoCommands, promised_table, two_commands

from orchestrator.artifacts.apt_root import TAKE_EXPIRED
from orchestrator.artifacts.debian_mirror import ANOTHER_MIRROR, archive_keyring
from orchestrator.errors import HostError, LabError
from orchestrator.paths import cache_dir
from orchestrator.process import Finished, run

RELEASES = ("bookworm", "trixie", "sid")
"""Debian 12, 13, and unstable, which has the newest QEMU, Python and compiler."""

EXPIRED = "--expired"
"""The tests' option for releases whose Release file has expired."""

CHECKOUT = Path(__file__).resolve().parents[2]

_FALSE = ("0", "no", "false", "without", "off", "disable")
"""What apt takes for false."""

_MARK = "/etc/fresh-machine"
_ARCHIVE = "/var/cache/apt/archives"
_PIP_CACHE = "/var/cache/pip"
_OF_THE_NETWORK = ("/etc/hosts", "/etc/resolv.conf")
_ROOM = 6e9
"""Bytes: the packages take 2, the lab's cache 3 with a kernel and an image."""

_LIMIT = 600.0


@dataclass(frozen=True)
class Clone:
    """A clone of the checkout inside a root, that only its owner can read."""

    root: BareRoot
    folder: str
    owner: Account
    commands: TwoCommands
    promised: FirstTable
    """Those of its own README."""

    def run(self, line: str, *options: str) -> Finished:
        """Run a line in a shell, in the clone, as its owner; ``options`` are those of ``contained``."""
        return self.root.run(["sh", "-c", line], account=self.owner, folder=self.folder, options=options)


@dataclass(frozen=True)
class Network:
    """How the host gets at a release's packages; ``apt`` may hold other settings than the host's."""

    release: str
    suites: Sequence[Suite]
    apt: Sequence[Setting]


def host_network(release: str, *, takes_expired: bool = False) -> Network:
    """The host's way to a release. Raises HostError, with what to do, where a fresh machine of it cannot be made.

    A release whose Release file has expired takes ``takes_expired``, or apt's setting for that on the host.
    """
    if Path(_MARK).exists():
        raise HostError("this is a fresh machine already; the one that made it is tested by its host")
    if not (CHECKOUT / ".git").exists() or shutil.which("git") is None:
        raise HostError("a fresh machine gets a clone: it takes git, and a checkout that is a clone itself")
    check_contained()
    found = suites(release)
    settings = acquire_settings(found[0].uri)
    taken = any(it.name.lower() == TAKE_EXPIRED.lower() and it.value.lower() in _FALSE for it in settings)
    expired = [suite for suite in found if suite.is_expired]
    if expired and not taken:
        what = (
            f"the Release file of Debian {expired[0].name} on this host's mirror has expired: {expired[0].valid_until}"
        )
        if not takes_expired:
            raise HostError(what, hint=f"to take such old packages all the same: {EXPIRED}; or {ANOTHER_MIRROR}")
        print(what)
        settings.append(Setting(TAKE_EXPIRED, "false"))
    return Network(release, found, settings)


@contextlib.contextmanager
def fresh_machine(network: Network, *, pool: Path | None = None) -> Iterator[BareRoot]:
    """A bare root of a release, with the packages in ``pool`` at hand if there is one; it is removed in the end."""
    place = cache_dir() / "fresh"
    packed = base_system(network.release, network.suites, network.apt, place)
    if (free := shutil.disk_usage(place).free) < _ROOM:
        what = f"a fresh machine needs {_ROOM / 1e9:.0f} GB in {place}, and {free / 1e9:.1f} are free"
        raise HostError(what, hint="name another folder: ORCHESTRATOR_CACHE=/some/folder")
    with unpacked(packed, place / "roots") as root:
        root.write(_MARK, f"{network.release}\n")
        for name in _OF_THE_NETWORK:
            if Path(name).is_file():
                root.write(name, Path(name).read_text())
        # Nothing here outlives a crash, so that nothing need wait for the disk.
        root.write("/etc/dpkg/dpkg.cfg.d/unsafe-io", "force-unsafe-io\n")
        from_host = FromHost()
        _set_up_apt(root, network, from_host)
        _set_up_pip(root, from_host)
        for path, name in from_host.seen.items():
            root.share(Shared(path, name))
        pip_cache = place / "pip"
        pip_cache.mkdir(exist_ok=True)
        root.share(Shared(pip_cache, _PIP_CACHE, "rw"))
        with lent(pool, root.outside(_ARCHIVE)) if pool is not None else contextlib.nullcontext():
            yield root


def package_pool(release: str) -> Path:
    """The folder of packages that roots of a release share."""
    return cache_dir() / "fresh" / "packages" / release


def add_user(root: BareRoot, name: str) -> Account:
    """An ordinary user, with an empty home, who may use no sudo."""
    account = Account(name, f"/home/{name}")
    # Unstable's smallest system lacks it.
    root.succeed(["apt-get", "-q", "install", "-y", "--no-install-recommends", "passwd"])
    root.succeed(["useradd", "--no-create-home", "--user-group", "--home-dir", account.home, name])
    root.succeed(["install", "-d", "-o", name, "-g", name, "-m", "700", account.home])
    return account


def clone(root: BareRoot, folder: str, owner: Account = ROOT) -> Clone:
    """Clone what the checkout's HEAD has; changes that are not committed are not in it."""
    made = root.folder.parent / "clone"
    argv = ["git", "clone", "--quiet", "--no-hardlinks", str(CHECKOUT), str(made)]
    cloned = run(argv, time_limit=_LIMIT, environment={"LC_ALL": "C"})
    if cloned.status != 0:
        raise LabError("the checkout cannot be cloned", detail=cloned.complaint())
    readme = (made / "README.md").read_text()  # afterwards its owner alone can read it
    made.chmod(0o700)
    # Only from inside can a user who is not root give files to another.
    inside = "/var/tmp/clone"
    made.rename(root.outside(inside))
    root.succeed(["chown", "--recursive", f"{owner.name}:{owner.name}", inside])
    root.succeed(["mkdir", "--parents", str(Path(folder).parent)])
    root.succeed(["mv", inside, folder])
    return Clone(root, folder, owner, two_commands(readme), promised_table(readme))


def _set_up_apt(root: BareRoot, network: Network, from_host: FromHost) -> None:
    for given in (*root.outside("/etc/apt/sources.list.d").iterdir(), root.outside("/etc/apt/apt.conf.d/99mmdebstrap")):
        given.unlink(missing_ok=True)
    root.write("/etc/apt/sources.list", "")
    there = [Suite(from_host.translate(suite.uri), suite.name) for suite in network.suites]
    root.write("/etc/apt/sources.list.d/debian.sources", sources(there, archive_keyring(root.folder)))
    settings = [Setting(setting.name, from_host.translate(setting.value)) for setting in network.apt]
    for path in password_files():
        root.share(Shared(path, str(path)))
    root.write("/etc/apt/apt.conf.d/90host", "".join(f"{setting}\n" for setting in settings))


def _set_up_pip(root: BareRoot, from_host: FromHost) -> None:
    settings = {name: from_host.translate(value) for name, value in pip_settings().items()}
    lines = [f"{name} = {value}" for name, value in {**settings, "cache-dir": _PIP_CACHE}.items()]
    root.write("/etc/pip.conf", "\n".join(["[global]", *lines, ""]))
