# SPDX-License-Identifier: GPL-2.0-only
"""One exact package of Debian, as a list's paragraph describes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.errors import HostError

PACKAGE_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{0,120}")
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
    if not (PACKAGE_NAME.fullmatch(name) and _VERSION.fullmatch(version) and re.fullmatch(r"[0-9a-f]{64}", sha256)):
        raise NoSuchPackageError("a paragraph of a package list is damaged", detail=stanza.splitlines()[:3])
    return Package(name, fields.get("Architecture", ""), version, sha256, fields.get("Depends", ""))
