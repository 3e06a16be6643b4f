# SPDX-License-Identifier: GPL-2.0-only
"""Source lines of a user's kernel, kept in the run that measured it: the tree goes on to other code.

Without them two states of a tree, or two commits, could not be compared by line: its vmlinux and its sources are the
last ones. Only the functions that profiles have executed are kept, with a copy of their source files.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debug_info import kernel_debug_info
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import LabError
from orchestrator.files import sha256_of
from orchestrator.profile.lines.dwarf_lines import SourceLines
from orchestrator.profile.lines.line_source import Frame, source_text
from orchestrator.profile.stored.cell_profile import SymbolProfile
from orchestrator.profile.stored.profile_files import load_profile
from orchestrator.results.contract import CellRecord
from orchestrator.results.faults import storage_faults

FOLDER = "lines"
"""In a run."""
_SOURCES = "sources"
_LARGEST, _LARGEST_TEXT = 64 << 20, 512 << 20
"""Bytes of a file, packed and unpacked."""

_Number = Annotated[int, Field(ge=0, lt=1 << 31)]
_Address = Annotated[int, Field(ge=0, lt=1 << 64)]


class _Kept(BaseModel):
    """The frames of each instruction, innermost first: numbers of a function and of a file, and a line.

    ``files`` are paths below the kernel's source, or as in the debug information. ``parts`` are the ranges of each
    executed function's code, by its address.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_sha256: str
    functions: tuple[str, ...]
    files: tuple[str, ...]
    frames: dict[_Address, tuple[tuple[_Number, _Number, _Number], ...]]
    parts: dict[_Address, tuple[tuple[_Address, _Address], ...]]


class KeptLines:
    """The lines of a run's kernel, at its addresses."""

    def __init__(self, kept: _Kept, folder: Path) -> None:
        self._kept = kept
        places = {file: folder / _SOURCES / (file if _is_below(file) else "") for file in kept.files}
        self._files = {file: str(place) if place.is_file() else file for file, place in places.items()}
        self._titles = {place: file for file, place in self._files.items()}

    def frames(self, addresses: Iterable[int]) -> Mapping[int, tuple[Frame, ...]]:
        """The frames of each address, the innermost first; none if it has no line."""
        return {address: tuple(map(self._frame, self._kept.frames.get(address, ()))) for address in addresses}

    def _frame(self, numbers: tuple[int, int, int]) -> Frame:
        function, file, line = numbers
        return Frame(self._kept.functions[function], self._files[self._kept.files[file]], line)

    def lines_of(self, *parts: range) -> Mapping[int, tuple[Frame, ...]]:
        """The frames of each instruction in these ranges of addresses, executed or not."""
        return self.frames(address for address in self._kept.frames if any(address in part for part in parts))

    def parts_of(self, symbol: SymbolProfile) -> Sequence[range]:
        """The code of a profile's function, and what the compiler has put apart as unlikely."""
        return [range(*ends) for ends in self._kept.parts.get(symbol.address, ())]

    def start_of(self, symbol: SymbolProfile) -> int:
        return symbol.address

    def check(self, symbols: Sequence[SymbolProfile]) -> None:
        """The lines were read as the run ended, and are those of its kernel."""

    def title(self, file: str) -> str:
        return self._titles.get(file, file)

    def text(self, file: str, line: int) -> str:
        texts = source_text(file)
        return texts[line - 1].strip() if 0 < line <= len(texts) else ""


def keep_lines(context: BuildContext, directory: Path, kernel: Kernel, cells: Iterable[CellRecord]) -> None:
    """Keep the lines of what the profiles of a run's cells have executed in the kernel of a user's tree.

    Nothing is kept of a kernel without debug information, or that has changed meanwhile. Raises LabError for a full
    disk and the like.
    """
    profiles = [load_profile(directory, cell) for cell in cells if cell.profile is not None]
    symbols = {symbol.address: symbol for profile in profiles for symbol in profile.symbols if symbol.place == "kernel"}
    if kernel.spec.tree is None or not symbols:
        return
    try:
        lines = SourceLines.of_kernel(kernel_debug_info(context, kernel), kernel)
        lines.check([*symbols.values()])
        parts = {address: lines.parts_of(symbol) for address, symbol in symbols.items()}
        executed = (
            address + instruction.offset for address, symbol in symbols.items() for instruction in symbol.instructions
        )
        frames = {**lines.frames(executed), **lines.lines_of(*(part for ranges in parts.values() for part in ranges))}
    except LabError as error:
        context.say(f"no source lines of {kernel.spec.name} are kept in the run: {error.what}")
        return
    named = {frame.function: None for address_frames in frames.values() for frame in address_frames}
    paths = {frame.file: lines.title(frame.file) for address_frames in frames.values() for frame in address_frames}
    functions, files = list(named), list(dict.fromkeys(paths.values()))
    number, place = ({name: at for at, name in enumerate(names)} for names in (functions, files))
    kept = _Kept(
        image_sha256=sha256_of(kernel.image),
        functions=tuple(functions),
        files=tuple(files),
        frames={
            address: tuple((number[frame.function], place[paths[frame.file]], frame.line) for frame in address_frames)
            for address, address_frames in frames.items()
            if address_frames
        },
        parts={address: tuple((part.start, part.stop) for part in ranges) for address, ranges in parts.items()},
    )
    folder = directory / FOLDER / kernel.spec.name
    with storage_faults(folder):
        for path, title in paths.items():
            target = folder / _SOURCES / title
            if _is_below(title) and Path(path).is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        folder.mkdir(parents=True, exist_ok=True)
        _file(folder).write_bytes(zlib.compress(kept.model_dump_json().encode()))


def kept_lines(directory: Path, kernel: str, image_sha256: str) -> KeptLines | None:
    """The lines that a run has of a kernel with this image; None if it has none. Raises LabError if damaged."""
    folder = directory / FOLDER / kernel
    if not _is_below(kernel) or not _file(folder).is_file():
        return None
    with storage_faults(folder), _file(folder).open("rb") as opened:
        content = opened.read(_LARGEST)
    try:
        kept = _Kept.model_validate_json(zlib.decompressobj().decompress(content, _LARGEST_TEXT))
    except (zlib.error, ValidationError) as error:
        what = "damaged, or written by another version of this program"
        raise LabError(what, where=str(_file(folder))) from error
    most = len(kept.functions), len(kept.files)
    if any(frame[0] >= most[0] or frame[1] >= most[1] for frames in kept.frames.values() for frame in frames):
        raise LabError("damaged: it names what it does not have", where=str(_file(folder)))
    return KeptLines(kept, folder) if kept.image_sha256 == image_sha256 else None


def _file(folder: Path) -> Path:
    return folder / "lines.json.z"


def _is_below(path: str) -> bool:
    """Whether a path is one below a folder, and leads nowhere else."""
    parts = PurePosixPath(path)
    return bool(path) and not parts.is_absolute() and ".." not in parts.parts
