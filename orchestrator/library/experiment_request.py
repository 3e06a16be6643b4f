# SPDX-License-Identifier: GPL-2.0-only
"""An experiment file as somebody asks for it to be measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.experiment.file import Moved


@dataclass(frozen=True)
class ExperimentRequest:
    """An experiment ``file`` whose values ``overrides`` replace, and of whose cells ``only`` selects some.

    ``kconfig`` and ``make`` are the configuration and variables (``CC=gcc-12``) of a kernel's tree that is built.
    """

    file: Path
    overrides: Sequence[str] = ()
    only: Sequence[str] = ()
    kconfig: Path | None = None
    make: Sequence[str] = ()
    path: Moved = str
    """Maps the paths that the file names, or refuses one by a UsageError."""

    @property
    def options(self) -> Sequence[str]:
        """The options of a command that measures the same again."""
        values = {
            "--set": self.overrides,
            "--only": self.only,
            "--kconfig": [self.kconfig] if self.kconfig else [],
            "--make": self.make,
        }
        return [str(word) for option, words in values.items() for value in words for word in (option, value)]
