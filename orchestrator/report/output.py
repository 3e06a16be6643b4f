# SPDX-License-Identifier: GPL-2.0-only
"""Where a format's writer puts what it makes of a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a text needs neither
    from rich.console import Console

    from orchestrator.report.html.frame import Page


class Output(ABC):
    """Takes one result in one format: a text, tables for a console, or a page."""

    @property
    @abstractmethod
    def console(self) -> Console:
        """A console of the output's width, for tables."""

    @abstractmethod
    def text(self, text: str) -> None:
        """Write a text that ends with a newline."""

    @abstractmethod
    def page(self, make: Callable[[str | None], Page], file: Path) -> None:
        """Write a page, to ``file`` if nothing else is asked for; ``make`` takes the folder for its large files."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Say something beside the result, such as why there is none."""
