# SPDX-License-Identifier: GPL-2.0-only
"""Pages as files."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import LabError
from orchestrator.report.html.attachments import Page
from orchestrator.results.faults import storage_faults
from orchestrator.whole_file import write_whole

PAGE = "report.html"
"""The page in a run's own directory."""
COMPARISON_PAGE = "comparison.html"
"""The page of the last comparison of a run with one before it, there too."""


def beside(file: Path) -> str:
    """The name of the folder for what does not fit into the page ``file``."""
    return f"{file.name}.files"


def write_page(page: Page, file: Path) -> None:
    """Write a page, and the files beside it first.

    Raises HostError when the disk is full or not writable, LabError where a link leads the files elsewhere.
    """
    with storage_faults(file):
        if page.files:
            folder = file.parent / page.folder
            if folder.is_symlink():
                raise LabError("this link is in the place of a page's folder", where=str(folder), hint="remove it")
            folder.mkdir(exist_ok=True)
            for name, content in page.files.items():
                write_whole(folder / name, content)
        write_whole(file, page.text)
