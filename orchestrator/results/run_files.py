# SPDX-License-Identifier: GPL-2.0-only
"""What a run's directory has beside its results: how each guest was started, its console, the modules' C.

The directory may come from another machine: parts may be missing, and what is there is read with bounds, as text, and
never through a link that leads out of the directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from orchestrator.results.contract import CellRecord

_PROVENANCE, _MODULES, _OWN = "provenance.json", "modules", "sources"
_LARGEST_PROVENANCE = 64 << 20
_SOURCES = (".c", ".h", ".S", "Kbuild")
_PLAIN = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+@-]*")

Part = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_+-][A-Za-z0-9._+@-]*(/[A-Za-z0-9_+-][A-Za-z0-9._+@-]*)*$")
]


class _Kernel(BaseModel):
    name: str = ""
    release: str = ""
    packages: dict[str, str] = {}


class _Module(BaseModel):
    key: str = ""


class Boot(BaseModel):
    """A guest that was booted: its ``name`` is its files' without suffix, ``qemu`` its command line."""

    name: Part
    qemu: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    kernel: _Kernel = _Kernel()
    modules: Mapping[str, _Module] = {}
    inputs: Mapping[str, Mapping[str, _Module]] = {}
    cells: tuple[str, ...] = ()
    """The cells of the guest; empty in runs of earlier versions, whose modules name those that have one."""

    @cached_property
    def keys(self) -> Mapping[str, Sequence[str]]:
        """The keys of each cell's modules, by the cell's id."""
        found: dict[str, list[str]] = {}
        for name, module in self.modules.items():
            found.setdefault(name.partition(": ")[0], []).append(module.key)
        return found

    def has(self, cell: CellRecord) -> bool:
        """Whether the cell was, or may have been, measured in this guest."""
        if self.cells:
            return cell.id in self.cells
        return cell.id in self.keys or (cell.probe == "none" and self.name.endswith(f"-{cell.cpu}-{cell.kernel}"))


class Provenance(BaseModel):
    """What the run was made with, as far as it is known."""

    sessions: tuple[dict[str, Any], ...] = ()
    boots: tuple[Boot, ...] = ()


@dataclass(frozen=True)
class KeptFile:
    """A text of the run: ``path`` in its directory, and its content, of which ``left_out`` bytes are not there."""

    path: str
    content: bytes
    left_out: int = 0


def provenance(directory: Path) -> Provenance:
    """Read what the run was made with; what is missing or damaged counts as unknown."""
    file = _inside(directory, directory / _PROVENANCE)
    if file is None or file.stat().st_size > _LARGEST_PROVENANCE:
        return Provenance()
    try:
        return Provenance.model_validate_json(file.read_bytes())
    except (ValidationError, OSError):
        return Provenance()


def kept_file(directory: Path, path: str, most: int) -> KeptFile | None:
    """The last ``most`` bytes of a file in the run's directory, such as a console; None where it is not there."""
    file = _inside(directory, directory / path)
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - most))
            return KeptFile(path, opened.read(most), max(0, size - most))
    except OSError:
        return None


def module_folders(directory: Path, boot: Boot, cell: CellRecord) -> Iterator[str]:
    """The folders of the cell's modules, and of what else is the user's, in the run's directory, as far as kept."""
    for one in boot.inputs.get(cell.id, {}).values():
        if _PLAIN.fullmatch(one.key):
            own = sorted((directory / _OWN).glob(f"*-{one.key[:8]}"))
            yield from (f.relative_to(directory).as_posix() for f in own if f.is_dir())
    for key in boot.keys.get(cell.id, ()):
        kept = directory / _MODULES / boot.kernel.name
        if key and _PLAIN.fullmatch(boot.kernel.name) and _PLAIN.fullmatch(key):
            yield from (f.relative_to(directory).as_posix() for f in sorted(kept.glob(f"*-{key[:8]}")) if f.is_dir())


def module_source(directory: Path, folder: str, most: int) -> KeptFile | None:
    """The C of a module as one text, the file that is named after it first; at most ``most`` bytes of each file."""
    text = b"".join(_texts(directory, directory / folder, most))
    return KeptFile(folder, text[:most], max(0, len(text) - most)) if text else None


def _texts(directory: Path, folder: Path, most: int) -> Iterator[bytes]:
    own = folder.name.rpartition("-")[0]
    files = [file for file in folder.iterdir() if file.name.endswith(_SOURCES)]
    for file in sorted(files, key=lambda one: (not one.name.startswith(own), one.suffix != ".c", one.name)):
        found = kept_file(directory, file.relative_to(directory).as_posix(), most)
        if found is not None:
            yield f"/* ----- {file.name} ----- */\n".encode() + found.content + b"\n"


def _inside(directory: Path, file: Path) -> Path | None:
    """The file, where it is a regular one in the directory."""
    try:
        whole = file.resolve(strict=True)
        return whole if whole.is_file() and whole.is_relative_to(directory.resolve()) else None
    except (OSError, RuntimeError):
        return None
