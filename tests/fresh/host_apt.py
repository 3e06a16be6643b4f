# SPDX-License-Identifier: GPL-2.0-only
"""A release's suites on the host's mirror, and the Acquire settings and passwords of the host's apt."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from orchestrator.artifacts.debian_mirror import ANOTHER_MIRROR, debian_mirror
from orchestrator.errors import HostError
from orchestrator.process import Finished, run

_HELPER = Path("/usr/lib/apt/apt-helper")
_NO_SETTINGS = Path(__file__).with_name("no-settings.conf")
_ASKING = 60.0
_FETCHING = 600.0
"""Seconds for one small file: apt gives a mirror up by itself long before."""

_SETTING = re.compile(r'(?P<name>Acquire::\S*) "(?P<value>.*)";')
_VALID_UNTIL = re.compile(r"^Valid-Until: (.+)$", re.MULTILINE)
_DETECTION = re.compile(r"Acquire::(https?)::Proxy-?Auto-?Detect", re.IGNORECASE)
_CA = re.compile(r"Acquire::https::Ca(Info|Path)$", re.IGNORECASE)
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_PROXY = re.compile(r"Acquire::https?::Proxy\b", re.IGNORECASE)


@dataclass(frozen=True)
class Suite:
    """A suite of packages, and where it is; ``valid_until`` is the last day of its release file, if it has one."""

    uri: str
    name: str
    valid_until: str = ""

    @property
    def is_expired(self) -> bool:
        """Whether apt refuses it as too old: a mirror that stands still serves such files."""
        return bool(self.valid_until) and parsedate_to_datetime(self.valid_until) < datetime.now(UTC)


@dataclass(frozen=True)
class Setting:
    """A setting of apt; a list's members have names that end in ``::``."""

    name: str
    value: str

    def __str__(self) -> str:
        return f'{self.name} "{self.value}";'

    @property
    def is_proxy(self) -> bool:
        """Whether it names a proxy."""
        return bool(_PROXY.match(self.name))


def suites(release: str) -> list[Suite]:
    """A release's main suite on the host's mirror, with its updates and security updates where they are to be had.

    Raises HostError, with apt's output, where the mirror has no such release or cannot be reached.
    """
    mirror = debian_mirror()
    main = look(mirror.archive, release)
    if isinstance(main, str):
        raise HostError(
            f"Debian {release} cannot be had from this host's mirror {mirror.shown}",
            detail=[main],
            hint=f"check the network, or {ANOTHER_MIRROR}",
        )
    other_suites = [look(mirror.archive, f"{release}-updates")]
    if mirror.security is not None:
        other_suites.append(look(mirror.security, f"{release}-security"))
    return [main, *(suite for suite in other_suites if isinstance(suite, Suite))]


def acquire_settings(mirror: str) -> list[Setting]:
    """The settings of the host's apt, beyond apt's own defaults, for the way to the packages at ``mirror``."""
    ours = _ask("apt-config", "dump").stdout.splitlines()
    defaults = _ask("apt-config", "dump", APT_CONFIG=str(_NO_SETTINGS)).stdout.splitlines()
    # A list is given whole: it replaces the default one, which may have the same members and more.
    own = [line for line in ours if line not in defaults or ':: "' in line]
    settings = [Setting(line["name"], line["value"]) for line in map(_SETTING.fullmatch, own) if line]
    settings = [setting for setting in settings if not setting.name.startswith("Acquire::IndexTargets")]
    if mirror.startswith("https:") and _AUTHORITIES.is_file() and not any(_CA.match(it.name) for it in settings):
        # A bare root has no certificates before a package brings them.
        settings.append(Setting("Acquire::https::CaInfo", str(_AUTHORITIES)))
    return [_detected(setting, mirror) for setting in settings]


def password_files() -> list[Path]:
    """Where the host's apt finds users and passwords of mirrors."""
    return [path for path in (Path("/etc/apt/auth.conf"), Path("/etc/apt/auth.conf.d")) if path.exists()]


def _detected(setting: Setting, mirror: str) -> Setting:
    """A fixed proxy in place of a program that finds one: the program needs what a bare root has not."""
    detection = _DETECTION.fullmatch(setting.name)
    if detection is None or not setting.value:
        return setting
    answer = _ask(setting.value, mirror).stdout.split()
    return Setting(f"Acquire::{detection[1]}::Proxy", answer[0] if answer else "DIRECT")


def look(uri: str, name: str) -> Suite | str:
    """A suite, by its release file, or why apt cannot fetch that."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "InRelease"
        argv = [str(_HELPER), "download-file", f"{uri.rstrip('/')}/dists/{name}/InRelease", str(file)]
        finished = run(argv, time_limit=_FETCHING, environment={"LC_ALL": "C"})
        if finished.status == 0:
            match = _VALID_UNTIL.search(file.read_text())
            return Suite(uri, name, match[1] if match else "")
    errors = [line.removeprefix("E: ") for line in finished.stderr.splitlines() if line.startswith("E: ")]
    return errors[0] if errors else f"{_HELPER} ended with status {finished.status}"


def _ask(*argv: str, **environment: str) -> Finished:
    asked = run(argv, time_limit=_ASKING, environment={"LC_ALL": "C", **environment})
    if asked.status != 0:
        raise HostError("this host's apt does not list its settings", detail=asked.complaint())
    return asked
