# SPDX-License-Identifier: GPL-2.0-only
"""Files and folders of a guest that are copied to the host after its command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from orchestrator.errors import GuestError, HostError, UsageError
from orchestrator.guest.fetched_folder import fetch_folder
from orchestrator.guest.guest import Guest

SCRATCH = "/scratch"
"""The guest's folder for files that a command writes."""


@dataclass(frozen=True)
class FetchedFiles:
    """Paths in the guest to copy, and the host's folder for them, None for the current one."""

    paths: Sequence[str]
    out: Path | None

    @property
    def folder(self) -> Path:
        return self.out or Path()

    def check(self) -> None:
        """Raise UsageError for an invalid path or folder, and for a file that would be overwritten."""
        if self.out is not None and not self.paths:
            hint = f"to copy what the command writes to {SCRATCH}: --get {SCRATCH} --out {self.out}"
            raise UsageError(f"--out {self.out} needs --get", hint=hint)
        if self.paths:
            self._check_folder()
        names: dict[str, str] = {}
        for path in self.paths:
            name = PurePosixPath(path).name
            if not path.startswith("/") or path.endswith("/") or name in {"", ".."} or "\0" in path:
                what = "expected the absolute path of a file or folder in the guest"
                raise UsageError(f"--get {path}: {what}", hint=_instead(path))
            if name in names:
                hint = "let the command rename one, or get a folder that has both"
                raise UsageError(f"--get {path}: it has the same file name as {names[name]}", hint=hint)
            names[name] = path
            target = self.folder / name
            if os.path.lexists(target):
                hint = "move it away, or name another folder: --out FOLDER"
                raise UsageError("it exists already, and --get overwrites nothing", where=str(target), hint=hint)

    def fetch(self, guest: Guest, time_limit: float) -> None:
        """Copy the paths, each within ``time_limit`` host seconds, and files of at most 256 MiB.

        Raises GuestError for a missing path, after the others were copied, and HostError.
        """
        missing: GuestError | None = None
        for path in self.paths:
            try:
                if guest.run(["test", "-d", path], time_limit=time_limit).status == 0:  # or a link to a folder
                    fetch_folder(guest, path, self._target(path), time_limit)
                else:
                    self._write(guest, path, time_limit)
            except GuestError as error:
                if guest.has_failed:
                    raise
                missing = missing or error
        if missing is not None:
            raise missing

    def _write(self, guest: Guest, path: str, time_limit: float) -> None:
        content, target = guest.get(path, time_limit=time_limit), self._target(path)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(content)
        except OSError as error:  # also if the file has appeared since the check
            raise HostError(f"cannot write the guest's {path}: {error.strerror}", where=str(target)) from None
        guest.say(f"copied the guest's {path} to {target} ({len(content)} bytes)")

    def _target(self, path: str) -> Path:
        return self.folder / PurePosixPath(path).name

    def _check_folder(self) -> None:
        there = next(place for place in (self.folder, *self.folder.absolute().parents) if os.path.lexists(place))
        if not there.is_dir():
            raise UsageError(
                "--get needs a folder, and this is a file", where=str(there), hint="name a folder: --out FOLDER"
            )
        if not os.access(there, os.W_OK | os.X_OK):
            raise UsageError("--get cannot write there", where=str(there), hint="name another folder: --out FOLDER")


def _instead(path: str) -> str:
    """A hint for an invalid path."""
    if path.startswith("/") and path.strip("/"):
        return f"leave out the slash at its end: {path.rstrip('/')}" if path.endswith("/") else ""
    return f"commands write their files to {SCRATCH}"
