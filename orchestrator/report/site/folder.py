# SPDX-License-Identifier: GPL-2.0-only
"""The folder of a site: its own files are written whole, replaced and removed; no other file is touched.

A file is noted as the site's own before it is written, so that a build that was killed at any point goes on.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.errors import LabError, UsageError
from orchestrator.files import write_whole
from orchestrator.report.html.frame import Page
from orchestrator.report.site.pages import SitePath
from orchestrator.results.contract import Record
from orchestrator.results.faults import storage_faults

# What a site remembers: which files are its own, and what each page was made from.


class KeptPage(Record):
    """A page of the site.

    ``made_from`` is a digest of all that it shows and of the program, empty of a page that was not finished. ``files``
    belong to it. ``line`` is what lists have of it, in the form of the program that made it.
    """

    made_from: str = ""
    files: tuple[SitePath, ...] = ()
    line: dict[str, Any] | None = None


class SiteState(BaseModel):
    """All pages of a site of the lab in the folder ``lab``, by their files."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    lab: str
    pages: dict[SitePath, KeptPage] = {}


_OWN, _STATE, _LOCK = ".site", "state.json", "lock"
_LARGEST_STATE = 256 << 20  # 1000 runs and 100 metrics take 300 kB
_PATIENCE_SECONDS = 600
_UNSAVED = 50
"""Pages that are made again after a build was killed."""


class SiteFolder:
    """A site that this process alone works on; get one from ``opened_site``."""

    def __init__(self, directory: Path, state: SiteState) -> None:
        self.directory = directory
        self._state = state
        self._unsaved = 0

    @property
    def own(self) -> Path:
        """The folder for what is no page."""
        return self.directory / _OWN

    def claim(self, pages: Collection[str]) -> None:
        """Note pages that are going to be there. Raises UsageError where one would replace another's file."""
        for path in pages:
            if path not in self._state.pages:
                self._check_unused(path)
        for path in pages:
            self._state.pages.setdefault(path, KeptPage())
        self.save()

    def is_current(self, path: str, made_from: str) -> bool:
        page = self._state.pages.get(path)
        return page is not None and page.made_from == made_from and (self.directory / path).is_file()

    def line(self, path: str) -> Mapping[str, Any] | None:
        return self._state.pages[path].line

    def put(self, path: str, page: Page, made_from: str, line: dict[str, Any] | None = None) -> None:
        """Write a claimed page, and the files beside it first.

        Raises HostError when the disk is full or not writable, UsageError where another's file is in the way.
        """
        beside = posixpath.join(posixpath.dirname(path), page.folder)
        files = {posixpath.join(beside, name): content for name, content in page.files.items()}
        before = self._state.pages[path]
        added = set(files) - set(before.files)
        if added:
            for name in added:
                self._check_unused(name)
            self._state.pages[path] = KeptPage(files=tuple(sorted({*before.files, *files})))
            self.save()
        for name, content in files.items():
            self._write(name, content)
        self._write(path, page.text)
        for name in set(before.files) - set(files):
            self._remove(name)
        self._state.pages[path] = KeptPage(made_from=made_from, files=tuple(sorted(files)), line=line)
        self._unsaved += 1
        if self._unsaved >= _UNSAVED:
            self.save()

    def keep_only(self, pages: Collection[str]) -> int:
        """Remove all other pages of the site, with their files. Returns how many there were."""
        others = [path for path in self._state.pages if path not in pages]
        for path in others:
            for name in (path, *self._state.pages[path].files):
                self._remove(name)
            del self._state.pages[path]
        self.save()
        return len(others)

    def save(self) -> None:
        file = self.own / _STATE
        with storage_faults(file):
            write_whole(file, self._state.model_dump_json(exclude_defaults=True))
        self._unsaved = 0

    def _check_unused(self, path: str) -> None:
        file = self.directory / path
        if file.exists() or file.is_symlink():
            raise UsageError(
                "this file is not the site's own, and a page would replace it",
                where=str(file),
                hint="move it away, or name another folder",
            )

    def _write(self, path: str, content: str | bytes) -> None:
        file = self.directory / path
        with storage_faults(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            self._check_inside(file)
            write_whole(file, content)

    def _remove(self, path: str) -> None:
        file = self.directory / path
        if not file.parent.is_dir():
            return
        self._check_inside(file)
        with storage_faults(file):
            file.unlink(missing_ok=True)
        with suppress(OSError):  # not empty: it is still used
            file.parent.rmdir()

    def _check_inside(self, file: Path) -> None:
        if not file.parent.resolve().is_relative_to(self.directory.resolve()):
            raise UsageError("this folder leads out of the site", where=str(file.parent), hint="remove the link")


@contextmanager
def opened_site(directory: Path, lab: Path) -> Iterator[SiteFolder]:
    """The site of the lab's results in ``directory``, which is made where it is missing; another build is waited for.

    Raises UsageError for a folder that has something else, or the site of another lab. HostError: see ``put``.
    """
    _check_ours(directory)
    own = directory / _OWN
    with storage_faults(own):
        own.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(own / _LOCK, timeout=_PATIENCE_SECONDS):
            folder = SiteFolder(directory, _state(own / _STATE, lab))
            try:
                yield folder
            finally:
                folder.save()
    except Timeout as error:
        raise LabError(
            "another build of this site has been at work for too long", where=str(directory), hint="Wait for it to end."
        ) from error


def _check_ours(directory: Path) -> None:
    hint = "name an empty folder, a new one, or one that a site was made in"
    with storage_faults(directory):
        if directory.is_dir():
            found = sorted(entry.name for entry in directory.iterdir() if entry.name != _OWN)
            if found and not (directory / _OWN / _STATE).is_file():
                where = str(directory)
                raise UsageError("this folder has files, and is no site", where=where, detail=found[:5], hint=hint)
        elif directory.exists():
            raise UsageError("this is a file, and a site is a folder", where=str(directory), hint=hint)


def _state(file: Path, lab: Path) -> SiteState:
    own = str(lab.resolve())
    if not file.exists():
        return SiteState(lab=own)
    try:
        with storage_faults(file), file.open("rb") as opened:
            state = SiteState.model_validate_json(opened.read(_LARGEST_STATE))
    except ValidationError as error:
        raise LabError(
            "damaged, or written by a newer version of this program",
            where=str(file),
            hint="Make the site anew, in another folder.",
        ) from error
    if state.lab != own:
        raise UsageError(
            f"this is the site of another lab: {state.lab}",
            where=str(file.parents[1]),
            hint=f"name another folder for the site of {own}",
        )
    return state
