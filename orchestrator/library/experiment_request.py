# SPDX-License-Identifier: GPL-2.0-only
"""An experiment as somebody asks for it to be measured: a file, or the keys of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.experiment.experiment import Experiment
    from orchestrator.experiment.file import LeftOut, Moved
    from orchestrator.library.measurer import Measurer


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

    @property
    def title(self) -> str:
        """What errors call it."""
        return str(self.file)

    def names_kernels(self) -> bool:
        """Whether it names kernels, for all tables or for one. Raises ConfigError."""
        from orchestrator.experiment.source import names_kernels  # not for a comparison of stored runs

        return names_kernels(self.file, self.overrides)

    def load(self, measurer: Measurer, overrides: Sequence[str], moved: Moved, left_out: LeftOut) -> Experiment:
        """The experiment, with these overrides instead of its own. Raises ConfigError."""
        return measurer.load(self.file, overrides, moved, left_out)


@dataclass(frozen=True)
class BuiltRequest:
    """An experiment of the keys of a file, which name kernels."""

    content: Mapping[str, Any]
    overrides: Sequence[str] = ()
    path: Moved = str
    title: str = "the experiment"

    def names_kernels(self) -> bool:
        """Whether it names kernels: it does."""
        return True

    def load(self, measurer: Measurer, _overrides: Sequence[str], moved: Moved, _left_out: LeftOut) -> Experiment:
        """The experiment. Raises ConfigError."""
        return measurer.build(self.content, moved)
