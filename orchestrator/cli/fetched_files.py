# SPDX-License-Identifier: GPL-2.0-only
"""The files and folders that ``exec`` copies from its guest to the host when the command has ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from orchestrator.guest.guest import Guest

SCRATCH = "/scratch"
"""The guest's folder for what a command writes."""

Paths = Annotated[
    list[str] | None,
    typer.Option(
        "--get",
        metavar="PATH",
        help="A file or a folder of the guest, such as /scratch, to copy to the current folder, or to that of --out, "
        "when the command has ended; may be repeated. Nothing is overwritten.",
    ),
]


@dataclass(frozen=True)
class FetchedFiles:
    """Paths of the guest, and the folder of the host that the files go to, by their names: None for the current one."""

    paths: Sequence[str]
    out: Path | None

    @property
    def folder(self) -> Path:
        """The folder of the host."""
        return self.out or Path()

    def check(self) -> None:
        """Raise UsageError for a path or a folder that cannot be, and for a file that would be overwritten."""
        from orchestrator.errors import UsageError

        if self.out is not None and not self.paths:
            hint = f"what the command leaves in {SCRATCH}: --get {SCRATCH} --out {self.out}"
            raise UsageError(f"--out {self.out}: there is no --get whose file could go there", hint=hint)
        if self.paths:
            self._check_folder()
        names: dict[str, str] = {}
        for path in self.paths:
            name = PurePosixPath(path).name
            if not path.startswith("/") or path.endswith("/") or name in {"", ".."} or "\0" in path:
                what = "expected the absolute path of a file or folder in the guest"
                raise UsageError(f"--get {path}: {what}", hint=_instead(path))
            if name in names:
                hint = "have the command rename one, or fetch a folder that has both"
                raise UsageError(f"--get {path}: it has the same name as {names[name]}", hint=hint)
            names[name] = path
            self._check_free(self.folder / name)

    def fetch(self, guest: Guest, time_limit: float) -> None:
        """Copy them, each within ``time_limit`` host seconds. Raises GuestError for one that is not there, HostError.

        In a guest that lives the others are copied before. A channel gives no file of more than 256 MiB; a folder's
        bounds are in ``fetched_folder``.
        """
        from orchestrator.cli.fetched_folder import fetch_folder, is_folder
        from orchestrator.errors import GuestError

        missing: GuestError | None = None
        for path in self.paths:
            try:
                if is_folder(guest, path, time_limit):
                    fetch_folder(guest, path, self._target(path), time_limit)
                else:
                    self._write(path, guest.get(path, time_limit=time_limit))
            except GuestError as error:
                if guest.has_failed:
                    raise
                missing = missing or error
        if missing is not None:
            raise missing

    def _write(self, path: str, content: bytes) -> None:
        from orchestrator.errors import HostError

        target = self._target(path)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(content)
        except OSError as error:  # one that has come meanwhile, too
            raise HostError(f"cannot write what {path} of the guest has: {error.strerror}", where=str(target)) from None
        print(f"{path} of the guest is in {target} ({len(content)} bytes)", file=sys.stderr, flush=True)

    def _target(self, path: str) -> Path:
        return self.folder / PurePosixPath(path).name

    def _check_folder(self) -> None:
        from orchestrator.errors import UsageError

        there = next(place for place in (self.folder, *self.folder.absolute().parents) if os.path.lexists(place))
        if not there.is_dir():
            raise UsageError(
                "it is no folder, and --get needs one", where=str(there), hint="name another: --out FOLDER"
            )
        if not os.access(there, os.W_OK | os.X_OK):
            raise UsageError("--get may not write there", where=str(there), hint="name another folder: --out FOLDER")

    def _check_free(self, target: Path) -> None:
        from orchestrator.errors import UsageError

        if target.exists() or target.is_symlink():
            hint = "move it away, or name another folder: --out FOLDER"
            raise UsageError("it is there already, and --get overwrites nothing", where=str(target), hint=hint)


def _instead(path: str) -> str:
    """A hint at the path that may be meant by one that cannot be."""
    if path.startswith("/") and path.strip("/"):
        return f"without the slash at its end: {path.rstrip('/')}" if path.endswith("/") else ""
    return f"a command leaves its files in {SCRATCH}"
