# SPDX-License-Identifier: GPL-2.0-only
"""Serialised boots for another machine, and a worker's store of the files they need.

Objects are pickled. A file's path becomes a reference to its content; on the worker it is the path of the same content.
Other paths become paths of nothing: folders of compilers and headers serve to build, and a worker builds nothing. An
artifact that was removed from the cache is an error.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.artifacts import digests
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.qemu_plugins import qemu_plugin
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import HostError, LabError
from orchestrator.program import PROGRAM
from orchestrator.run.executor import Job


class FileReference(NamedTuple):
    """A file by its content, and its place below a folder of artifacts: ``modules/4f0c.../lab_kprobe.ko``."""

    place: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Bundle:
    """Pickled objects, and the files they need, with their local paths."""

    data: bytes
    files: dict[FileReference, Path]


def bundled(content: object, cache: Path, besides: Iterable[Path] = ()) -> Bundle:
    """Serialise objects of a process that uses this cache; ``besides`` are further files that they need.

    Raises OSError if a file cannot be read, HostError if an artifact has been removed from the cache.
    """
    files = {_reference(path, cache): path for path in besides}
    # 180 of the 184 kB of a boot are its kernel's configuration.
    return Bundle(zlib.compress(_pickled(content, cache, files), 1), files)


def unbundled(data: bytes, place: Callable[[str], Path]) -> Any:
    """Deserialise trusted data; ``place`` returns the local path of a reference's place."""
    return _Unpacker(zlib.decompress(data), place).load()


def _pickled(content: object, cache: Path, files: dict[FileReference, Path]) -> bytes:
    buffer = io.BytesIO()
    _Packer(buffer, content, cache, files).dump(content)
    return buffer.getvalue()


class _Packer(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, content: object, cache: Path, files: dict[FileReference, Path]) -> None:
        super().__init__(buffer, protocol=5)
        self._content, self._cache, self._files = content, cache, files

    def persistent_id(self, obj: object) -> str | bytes | None:
        if isinstance(obj, Kernel) and obj is not self._content:
            return _pickled(obj, self._cache, self._files)
        if not isinstance(obj, Path) or not obj.is_absolute():
            return None
        if obj.is_file():
            reference = _reference(obj, self._cache)
            self._files[reference] = obj
            return reference.place
        if not isinstance(self._content, Kernel):  # a kernel also names its build tools
            _check_artifact(obj, self._cache)
        return _place(obj, self._cache, "nothing")


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: bytes, place: Callable[[str], Path]) -> None:
        super().__init__(io.BytesIO(data))
        self._place = place

    def persistent_load(self, pid: Any) -> Any:
        return self._place(pid) if isinstance(pid, str) else _Unpacker(pid, self._place).load()


def _reference(path: Path, cache: Path) -> FileReference:
    sha256 = digests.of_file(path)
    return FileReference(place=_place(path, cache, sha256[:24]), sha256=sha256, size=path.stat().st_size)


def _check_artifact(path: Path, cache: Path) -> None:
    """Raise HostError if the artifact of a path was removed from the cache."""
    artifact = Path(*path.relative_to(cache).parts[:2]) if path.is_relative_to(cache) else None
    if artifact is not None and not (cache / artifact).exists():
        raise HostError(
            f"{artifact} was removed from the cache ({cache}) during the run",
            hint=f"`{PROGRAM} cache prune` removes what no process uses; --resume makes it again, and resumes the run",
        )


def _place(path: Path, cache: Path, otherwise: str) -> str:
    # Keys are read from paths, so an artifact's folder keeps its name. A user's module or kernel is not in the cache.
    return str(path.relative_to(cache) if path.is_relative_to(cache) else Path("given", otherwise, path.name))


def bundled_job(context: BuildContext, job: Job) -> Bundle:
    """Serialise a job's task and artifacts. Raises OSError if a file cannot be read, HostError if one was removed."""
    ids, kernel = {cell.id for cell in job.task.cells}, job.artifacts.kernel
    artifacts = dataclasses.replace(
        job.artifacts,
        cells={id_: ready for id_, ready in job.artifacts.cells.items() if id_ in ids},
        plugin=_plugin(context) if job.task.boot.clock == "instructions" else None,
    )
    # The image and its symbols are found in the kernel's folder by name.
    code = [(kernel.code_folder or kernel.headers) / name for name in ("vmlinux", "System.map")]
    return bundled((job.task, artifacts), context.cache.root, filter(Path.is_file, code))


def _plugin(context: BuildContext) -> Path | None:
    """The counting plugin for explaining failures, as a worker has no compiler."""
    try:
        return qemu_plugin(context, "count")
    except LabError:
        return None  # the explanation will say what is missing
