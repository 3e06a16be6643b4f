# SPDX-License-Identifier: GPL-2.0-only
"""A folder with an unpacked system in it: made, entered, removed."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from contained import contained
from filelock import FileLock, Timeout
from live import follow

from orchestrator.artifacts.user_namespace import as_root
from orchestrator.errors import HostError, LabError
from orchestrator.process import Finished, run

_ENTER = Path(__file__).with_name("enter.sh")
_ENDING = ".root"
_LIMIT = 600.0
_REMOVALS = 20
"""Processes of a root that was left by force may still write for a moment."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WAY_OUT = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")


@dataclass(frozen=True)
class Account:
    """Who runs a command inside, and the folder that is home."""

    name: str
    home: str

    def becoming(self) -> tuple[str, ...]:
        """What root puts before a command that this account is to run."""
        if self.name == ROOT.name:
            return ()
        return ("setpriv", f"--reuid={self.name}", f"--regid={self.name}", "--init-groups", "--inh-caps=-all")


ROOT = Account("root", "/root")


@dataclass(frozen=True)
class Shared:
    """A file or folder of the host, and its name inside."""

    source: Path
    target: str
    mode: str = "ro"


@dataclass
class BareRoot:
    """An unpacked system. What runs in it ends with this process, and its mounts are its own."""

    folder: Path
    shared: list[Shared] = field(default_factory=list)

    def outside(self, path: str) -> Path:
        """The host's name of a path inside."""
        return self.folder / path.removeprefix("/")

    def write(self, path: str, text: str) -> None:
        """Write a file, in place of what has its name."""
        file = self.outside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_text(text)

    def share(self, shared: Shared) -> None:
        """Let a file or folder of the host be seen inside from now on."""
        target = self.outside(shared.target)
        if shared.source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        self.shared.append(shared)

    def run(
        self,
        argv: Sequence[str],
        *,
        account: Account = ROOT,
        folder: str = "/",
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run a command inside, in ``folder``, with a clean environment; ``options`` are those of ``contained``."""
        clean = {"HOME": account.home, "PATH": _PATH, "TERM": "dumb", **_way_out(), **(environment or {})}
        words = [word for it in self.shared for word in (str(it.source), it.target, it.mode)]
        entering = [*contained(*options), "sh", str(_ENTER), str(self.folder), folder, *words, "--"]
        settings = [f"{name}={value}" for name, value in clean.items()]
        finished = follow([*entering, *account.becoming(), "env", "-i", *settings, *argv])
        return replace(finished, argv=tuple(argv))

    def succeed(self, argv: Sequence[str], *, account: Account = ROOT) -> Finished:
        """Run a command that has to end well. Raises LabError with its last lines."""
        finished = self.run(argv, account=account)
        if finished.status != 0:
            raise LabError(f"{argv[0]} failed in the fresh machine", detail=finished.complaint())
        return finished


@contextlib.contextmanager
def unpacked(packed: Path, folder: Path) -> Iterator[BareRoot]:
    """A root of a packed system, in a new folder below ``folder``, which is removed in the end.

    Those that killed processes left there are removed as well. Raises HostError where a root cannot be entered.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_abandoned(folder)
    place = folder / f"{secrets.token_hex(4)}{_ENDING}"
    with FileLock(_lock_of(place)):
        try:
            place.mkdir(mode=0o700)
            root = BareRoot(place / "system")
            root.folder.mkdir()
            _unpack(packed, root.folder)
            _check_entered(root)
            yield root
        finally:
            _remove(place)
            _lock_of(place).unlink(missing_ok=True)


def _unpack(packed: Path, folder: Path) -> None:
    # An ordinary user may not make device nodes, and a root gets a /dev whenever it is entered.
    options = ["--extract", "--numeric-owner", "--exclude=./dev/*", f"--directory={folder}", f"--file={packed}"]
    finished = follow([*contained(), "tar", *options])
    if finished.status != 0:
        raise LabError(f"{packed} cannot be unpacked", detail=finished.complaint())


def _check_entered(root: BareRoot) -> None:
    tried = root.run(["true"])
    if tried.status != 0:
        raise HostError(
            "a root cannot be entered on this host",
            detail=tried.complaint(),
            hint="it takes a proc, a devpts and a tmpfs to be mounted, and pivot_root; in a container: --privileged",
        )


def _way_out() -> dict[str, str]:
    names = [*_WAY_OUT, *map(str.upper, _WAY_OUT)]
    return {name: os.environ[name] for name in names if name in os.environ}


def _lock_of(place: Path) -> Path:
    return place.with_suffix(".lock")


def _remove_abandoned(folder: Path) -> None:
    """Remove the roots that no living process has locked."""
    for place in folder.glob(f"*{_ENDING}"):
        lock = _lock_of(place)
        with contextlib.suppress(Timeout), FileLock(lock, timeout=0):
            _remove(place)
            lock.unlink(missing_ok=True)


def _remove(place: Path) -> None:
    """Remove a folder with files of any owner."""
    for _ in range(_REMOVALS):
        finished = run([*as_root(), "rm", "-rf", "--one-file-system", str(place)], time_limit=_LIMIT)
        if finished.status == 0:
            return
        time.sleep(0.5)
    raise LabError(f"{place} cannot be removed; remove it by hand", detail=finished.complaint())
