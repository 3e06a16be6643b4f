# SPDX-License-Identifier: GPL-2.0-only
"""What a boot needs, packed for another machine: its objects, and the files that they name by path.

Objects are pickled. A path that leads to a file becomes a reference to its content; in the place where it is unpacked
it is the path of the same content there. Other paths become places where nothing is: folders of compilers and headers
serve to build, and a worker builds nothing. An artifact that was removed from the cache is an error. A kernel is
pickled by itself, as a file that its boots share: 180 of the 184 kB of a boot are its configuration.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from orchestrator.artifacts import digests
from orchestrator.artifacts.kernels import Kernel
from orchestrator.errors import HostError
from orchestrator.program import PROGRAM

_GIVEN = "given"
"""The folder of files that are not of the cache: a user's own module or kernel."""

_OBJECTS = "objects"
"""The folder of what boots share."""


class Reference(BaseModel):
    """A file by its content, and where it is below a folder of artifacts: ``modules/4f0c.../lab_kprobe.ko``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0, lt=2**40)

    @field_validator("place")
    @classmethod
    def _stays_below(cls, place: str) -> str:
        path = PurePosixPath(place)
        if not path.parts or ".." in path.parts or path.is_absolute() or "\0" in place or len(place) > 1000:
            raise ValueError("not a place below a folder")
        return place


@dataclass(frozen=True)
class Parcel:
    """Pickled objects, and the files they need: references with their paths here, or with their content."""

    data: bytes
    files: dict[Reference, Path | bytes]


def packed(content: object, cache: Path, besides: Iterable[Path] = ()) -> Parcel:
    """Pack objects of a process with this cache; ``besides`` are files that they need and do not name.

    Raises OSError where a file cannot be read, HostError where an artifact has gone from the cache.
    """
    files: dict[Reference, Path | bytes] = {}
    data = _packed(content, cache, files, None)
    for path in besides:
        files[_reference(path, cache)] = path
    return Parcel(data, files)


def unpacked(data: bytes, place: Callable[[str], Path]) -> Any:
    """The objects; ``place`` says where a reference's place is here. For data of one who may run code here anyway."""
    return _Unpacker(io.BytesIO(data), place).load()


def _packed(content: object, cache: Path, files: dict[Reference, Path | bytes], shared: Kernel | None) -> bytes:
    buffer = io.BytesIO()
    _Packer(buffer, cache, files, shared).dump(content)
    return buffer.getvalue()


class _Packer(pickle.Pickler):
    def __init__(
        self, buffer: io.BytesIO, cache: Path, files: dict[Reference, Path | bytes], shared: Kernel | None
    ) -> None:
        super().__init__(buffer, protocol=5)
        self._cache, self._files, self._shared = cache, files, shared

    def persistent_id(self, obj: object) -> tuple[str, str] | None:
        if isinstance(obj, Kernel) and obj is not self._shared:
            return "object", self._share(obj)
        if not isinstance(obj, Path) or not obj.is_absolute():
            return None
        if obj.is_file():
            reference = _reference(obj, self._cache)
            self._files[reference] = obj
            return "path", reference.place
        if self._shared is None:  # a kernel alone names what it was built with, too
            _check_artifact(obj, self._cache)
        return "path", _place(obj, self._cache, "nothing")

    def _share(self, kernel: Kernel) -> str:
        data = _packed(kernel, self._cache, self._files, kernel)
        sha256 = hashlib.sha256(data).hexdigest()
        reference = Reference(place=f"{_OBJECTS}/{sha256[:24]}", sha256=sha256, size=len(data))
        self._files[reference] = data
        return reference.place


class _Unpacker(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, place: Callable[[str], Path]) -> None:
        super().__init__(buffer)
        self._place = place

    def persistent_load(self, pid: Any) -> Any:
        kind, name = pid
        path = self._place(name)
        return path if kind == "path" else unpacked(path.read_bytes(), self._place)


def _reference(path: Path, cache: Path) -> Reference:
    sha256 = digests.of_file(path)
    return Reference(place=_place(path, cache, sha256[:24]), sha256=sha256, size=path.stat().st_size)


def _check_artifact(path: Path, cache: Path) -> None:
    """Raise HostError where the whole artifact of a path has gone: when it was made or found, its folder was there."""
    artifact = Path(*path.relative_to(cache).parts[:2]) if path.is_relative_to(cache) else None
    if artifact is not None and not (cache / artifact).exists():
        raise HostError(
            f"{artifact} has gone from the cache ({cache}) while the run went on",
            hint=f"`{PROGRAM} cache prune` removes what no process uses; --resume makes it anew, and goes on",
        )


def _place(path: Path, cache: Path, otherwise: str) -> str:
    # Keys are read from paths: an artifact's folder keeps its name.
    return str(path.relative_to(cache) if path.is_relative_to(cache) else Path(_GIVEN, otherwise, path.name))
