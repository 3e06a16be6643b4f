# SPDX-License-Identifier: GPL-2.0-only
"""Which releases of Linux have a feature: from the change that added it on, until the one that removed it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import StringConstraints

from orchestrator.catalog.data import Fact

_NUMBERS = re.compile(r"\d+(?:\.\d+)+")


class Change(Fact):
    """A change of Linux: the first ``release`` that has it (``6.6``, or ``6.1.28``), and its ``commit``.

    One that matters on a single architecture has an ``arch``.
    """

    release: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+(\.\d+)*$")]
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]
    arch: Literal["i386", "x86_64"] | None = None

    def __str__(self) -> str:
        return f"{self.release} (commit {self.commit})"

    def is_in(self, release: str) -> bool:
        """Whether a kernel's release (``6.12.117-lab``) has it; one that begins with no number has."""
        found = _NUMBERS.match(release)
        return found is None or _numbers(found[0]) >= _numbers(self.release)


class KernelFeature(Fact):
    """What Linux has ``since`` one change and ``until`` another; None where no kernel of interest lacks it.

    A candidate's release is the same as its version's: ``6.12.0-rc1`` has what 6.12 has. What a distribution has
    ported back to an older release is not known.
    """

    since: Change | None = None
    until: Change | None = None

    def lacking_in(self, release: str, arch: str) -> str | None:
        """Why a kernel of this release and architecture does not have it; None where it does."""
        if self.since is not None and not self.since.is_in(release):
            return f"Linux has this since {self.since}, and the kernel is {release}"
        if self.until is not None and self.until.arch in (None, arch) and self.until.is_in(release):
            on = f" on {arch}" if self.until.arch else ""
            return f"Linux has this no more{on} since {self.until}, and the kernel is {release}"
        return None


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in release.split("."))
