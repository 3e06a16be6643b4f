# SPDX-License-Identifier: GPL-2.0-only
"""The shared libraries that a workload is linked with: their files on the host, and where a guest has them."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import StringTableSection

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import LIBRARIES, shared_library
from orchestrator.artifacts.image_build import FILES
from orchestrator.artifacts.images import Image, ready_image
from orchestrator.artifacts.own_sources import OwnSource, own_file
from orchestrator.catalog.images import image as image_recipe
from orchestrator.catalog.kernels import Arch
from orchestrator.catalog.user_elf import LARGEST
from orchestrator.catalog.user_library import LIBRARY_NAME, UserLibrary
from orchestrator.elf import DAMAGED
from orchestrator.errors import BuildError
from orchestrator.process import run
from orchestrator.requirements import check_installed

_FOLDERS: dict[Arch, tuple[str, ...]] = {
    "i386": ("usr/lib/i386-linux-gnu", "usr/lib"),
    "x86_64": ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib"),
}
"""Where Debian's loader looks, without links."""
_FILE = re.compile(r"^f [0-7]+ \d+:\d+ (\d{1,15}) \./(\S+)$", re.MULTILINE)
_LINK = re.compile(r"^l [0-7]+ \d+:\d+ \./(\S+) (\S+)$", re.MULTILINE)
_MOST_LINKS = 4
_READ_LIMIT = 120.0


@dataclass(frozen=True)
class SharedLibrary:
    """A library by its ``name`` in probe points: the ``file`` on the host, and its ``path`` in the guest.

    ``is_brought`` where the guest's image has it not; ``source`` is then what it was made from.
    """

    name: str
    file: Path
    path: str
    is_brought: bool
    source: OwnSource | None = None


def obtain_library(context: BuildContext, arch: Arch, image: str, library: UserLibrary) -> SharedLibrary:
    """The library compiled, read out of the ``image`` (a name or a recipe's path), or as the user has it.

    Raises BuildError where it cannot be compiled, the image has none of its name, or the file is damaged; HostError.
    """
    if library.file is None:
        return library_of_image(context, arch, ready_image(context, image_recipe(image)), library.name)
    file, source = library.file, own_file(library.file)
    if library.is_source:
        compiled = shared_library(context, arch, library.file)
        file, source = compiled.file, compiled.source
    return SharedLibrary(library.name, file, f"{LIBRARIES}/{_loaded_as(file)}", is_brought=True, source=source)


def _loaded_as(file: Path) -> str:
    """The name that programs linked with a library look for: its own (SONAME), else the file's."""
    try:
        with file.open("rb") as content:
            name = _own_name(ELFFile(content)) or file.name
    except OSError as error:
        raise BuildError(f"{file.name} cannot be read: {error.strerror}") from None
    except DAMAGED:
        raise BuildError(f"{file.name} is damaged: its headers and its contents disagree") from None
    if re.fullmatch(LIBRARY_NAME, name) is None:
        raise BuildError(f"{file.name} calls itself {name[:80]!r}, which is no library's name (SONAME)")
    return name


def _own_name(elf: ELFFile) -> str | None:
    dynamic = elf.get_section_by_name(".dynamic")
    if not isinstance(dynamic, DynamicSection):
        return None
    texts = elf.get_section(dynamic["sh_link"])
    if not isinstance(texts, StringTableSection):
        return None
    return next((texts.get_string(tag["d_val"]) for tag in dynamic.iter_tags("DT_SONAME")), None)


def library_of_image(context: BuildContext, arch: Arch, image: Image, name: str) -> SharedLibrary:
    """An image's own library. Raises BuildError where it has none of this ``name``, HostError."""
    path = library_path((image.squashfs.parent / FILES).read_text(), arch, name, image.recipe.name)

    def build(target: Path) -> None:
        check_installed("image-packages.txt", "reading a library out of an image")
        argv = ["unsquashfs", "-quiet", "-no-progress", "-no-xattrs", "-dest", str(target / "tree")]
        finished = run([*argv, str(image.squashfs), path], time_limit=_READ_LIMIT)
        if finished.status != 0 or not (target / "tree" / path).is_file():
            raise BuildError(f"{path} cannot be read out of image {image.recipe.name}", detail=finished.complaint())
        (target / "tree" / path).rename(target / name)

    found = context.cache.obtain(
        "workloads", {"image": image.key, "path": path}, f"{name} of {image.recipe.name}", build
    )
    return SharedLibrary(name, found.path / name, f"/{path}", is_brought=False)


def library_path(record: str, arch: Arch, name: str, image: str) -> str:
    """Where an image has a library, relative to its root, behind all links; ``record`` lists the image's files.

    Raises BuildError where it has none, with the nearest names, and for one that is too large.
    """
    sizes = {path: int(size) for size, path in _FILE.findall(record)}
    links = dict(_LINK.findall(record))
    for folder in _FOLDERS[arch]:
        path = f"{folder}/{name}"
        for _ in range(_MOST_LINKS):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), links[path])) if path in links else path
        if path not in sizes:
            continue
        if sizes[path] > LARGEST:
            raise BuildError(f"{path} of image {image} is larger than {LARGEST >> 20} MiB")
        return path
    alike = difflib.get_close_matches(name, set(_libraries((*sizes, *links), arch)), n=3)
    raise BuildError(
        f"image {image} has no library {name} in {' or '.join(_FOLDERS[arch])}",
        hint=f"did you mean {', '.join(alike)}" if alike else "a recipe of your own can add the package that has it",
    )


def _libraries(paths: tuple[str, ...], arch: Arch) -> Iterator[str]:
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder in _FOLDERS[arch] and re.fullmatch(LIBRARY_NAME, name):
            yield name
