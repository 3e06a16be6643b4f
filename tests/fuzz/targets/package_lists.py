# SPDX-License-Identifier: GPL-2.0-only
"""What apt says of packages and mirrors."""

from __future__ import annotations

from contextlib import suppress

from orchestrator.artifacts.apt_root import failed_suites
from orchestrator.artifacts.debian_mirror import mirror_in, without_passwords
from orchestrator.artifacts.debian_package import NoSuchPackageError, package_of
from orchestrator.catalog.debian_release import debian


def read_package_list(data: bytes) -> None:
    """Paragraphs on packages."""
    for paragraph in data.decode("utf-8", errors="replace").split("\n\n"):
        with suppress(NoSuchPackageError):
            package_of(paragraph)


def read_apt_messages(data: bytes) -> None:
    """What apt prints when it fails."""
    text = without_passwords(data.decode("utf-8", errors="replace"))
    failed_suites(text, [*debian().suites, debian().security_suite])


def read_apt_sources(data: bytes) -> None:
    """The rows of the host's sources, in which a mirror is looked for."""
    mirror = mirror_in(data.decode("utf-8", errors="replace"))
    assert mirror is None or "\n" not in mirror.archive
