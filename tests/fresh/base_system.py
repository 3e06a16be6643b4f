# SPDX-License-Identifier: GPL-2.0-only
"""A release of Debian with apt and little else, packed, as mmdebstrap makes it from the host's mirror."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from contained import contained
from filelock import FileLock
from host_apt import Setting, Suite
from live import follow

from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.debian_mirror import archive_keyring
from orchestrator.errors import HostError, LabError

_DAYS = 3.0
"""Days after which a base is made again, with the packages that the mirror then has."""

_INCLUDED = "mount"
"""Every installed Debian has it, though mmdebstrap's smallest has not; entering a root needs its umount."""


def base_system(release: str, suites: Sequence[Suite], settings: Sequence[Setting], folder: Path) -> Path:
    """The tar file of a release's base in ``folder``, made where it is not there or too old.

    Raises HostError where mmdebstrap is missing, LabError with its last lines where it fails.
    """
    if shutil.which("mmdebstrap") is None:
        hint = "as root: apt-get install -y --no-install-recommends mmdebstrap"
        raise HostError("a fresh machine is made by mmdebstrap, which is not installed", hint=hint)
    folder.mkdir(parents=True, exist_ok=True)
    key = digest({"suites": [f"{suite.uri} {suite.name}" for suite in suites], "included": _INCLUDED})
    packed = folder / f"{release}-{key[:16]}.tar"
    with FileLock(f"{packed}.lock"):
        if not _is_recent(packed):
            _make(release, suites, settings, packed)
    for other_path in folder.glob(f"{release}-*.tar"):
        if not _is_recent(other_path):
            other_path.unlink(missing_ok=True)
    return packed


def sources(suites: Sequence[Suite], keyring: Path) -> str:
    """A source list in apt's deb822 style."""
    fields = "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\nSigned-By: {}\n"
    return "\n".join(fields.format(suite.uri, suite.name, keyring) for suite in suites)


def _make(release: str, suites: Sequence[Suite], settings: Sequence[Setting], packed: Path) -> None:
    with tempfile.TemporaryDirectory(dir=packed.parent) as work:
        listed, configuration, made = (Path(work) / name for name in ("debian.sources", "settings.conf", "base.tar"))
        listed.write_text(sources(suites, archive_keyring()))
        configuration.write_text("".join(f"{setting}\n" for setting in settings))
        options = ["--mode=root", "--variant=apt", f"--include={_INCLUDED}", f"--aptopt={configuration}"]
        finished = follow([*contained(), "mmdebstrap", *options, release, str(made), str(listed)])
        if finished.status != 0:
            raise LabError(f"mmdebstrap cannot make a root of Debian {release}", detail=finished.complaint())
        made.chmod(0o600)  # its sources and settings may hold a password
        made.replace(packed)


def _is_recent(packed: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return time.time() - packed.stat().st_mtime < _DAYS * 86_400
    return False
