# SPDX-License-Identifier: GPL-2.0-only
"""Programs and libraries of an image: found by path or name, with links resolved, and read out of the image."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.arch import ARCHITECTURES, Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.disk_images import FILES, Image, cached_image, ready_image
from orchestrator.catalog.image_recipes import image as image_recipe
from orchestrator.catalog.image_recipes import images
from orchestrator.catalog.user_files import LARGEST
from orchestrator.errors import BuildError
from orchestrator.host_packages import check_installed
from orchestrator.process import run

_FILE = re.compile(r"^f [0-7]+ \d+:\d+ (\d{1,15}) \./(\S+)$", re.MULTILINE)
_LINK = re.compile(r"^l [0-7]+ \d+:\d+ \./(\S+) (\S+)$", re.MULTILINE)
_MOST_LINKS = 16
_PROGRAM_FOLDERS = ("usr/bin", "usr/sbin")
"""Where libbpf looks for a program without a path, behind its PATH (resolve_full_path() of src/libbpf.c, 1.1)."""


@dataclass(frozen=True)
class TreeRecord:
    """What is in an image's tree: the sizes of files, in bytes, and the targets of links, by paths without a slash."""

    sizes: Mapping[str, int]
    links: Mapping[str, str]

    @classmethod
    def of(cls, text: str) -> TreeRecord:
        """Of the record that is made with an image."""
        return cls({path: int(size) for size, path in _FILE.findall(text)}, dict(_LINK.findall(text)))

    def resolved(self, path: str) -> str | None:
        """The path of a file without links, in folders or of the file itself; None if the tree has none."""
        path = posixpath.normpath(f"/{path}").lstrip("/")
        for _ in range(_MOST_LINKS):
            parts = path.split("/")
            link = next((at for at in range(1, len(parts) + 1) if "/".join(parts[:at]) in self.links), None)
            if link is None:
                return path if path in self.sizes else None
            target = posixpath.join(posixpath.dirname("/".join(parts[:link])), self.links["/".join(parts[:link])])
            path = posixpath.normpath(posixpath.join("/", target, *parts[link:])).lstrip("/")
        return None

    def found(self, name: str, arch: Arch) -> str | None:
        """The resolved path of a file that is named by its path, or as libbpf finds libraries and programs."""
        if name.startswith("/"):
            return self.resolved(name)
        paths = (self.resolved(f"{folder}/{name}") for folder in folders_of(name, arch))
        return next(filter(None, paths), None)

    def alike(self, name: str, arch: Arch) -> Sequence[str]:
        """Files with a similar name where it was looked for, the most similar first."""
        folders = [posixpath.dirname(name).lstrip("/")] if name.startswith("/") else folders_of(name, arch)
        folders = [folder for folder in folders if folder] + [*ARCHITECTURES[arch].library_folders, *_PROGRAM_FOLDERS]
        names: dict[str, str] = {}
        for path in (*self.sizes, *self.links):
            folder, _, base = path.rpartition("/")
            if folder in folders:
                names.setdefault(base, f"/{path}" if name.startswith("/") else base)
        return [names[base] for base in difflib.get_close_matches(posixpath.basename(name), names, n=3)]


def is_library_name(name: str) -> bool:
    """Whether libbpf looks for a name among libraries, and not among programs."""
    return name.endswith(".so") or ".so." in name


def folders_of(name: str, arch: Arch) -> Sequence[str]:
    """The folders where libbpf looks for a file without a path."""
    return ARCHITECTURES[arch].library_folders if is_library_name(name) else _PROGRAM_FOLDERS


@dataclass(frozen=True)
class ImageFile:
    """A program or a library of an image: its path in guests, without links, and its copy on the host."""

    path: str
    file: Path


def record_of(image: Image) -> TreeRecord:
    """The record that was made with an image."""
    return TreeRecord.of((image.squashfs.parent / FILES).read_text())


def file_of_image(context: BuildContext, arch: Arch, image: str, name: str) -> ImageFile:
    """A program or library of an ``image``, which is a recipe, by its path or by its name alone.

    Raises BuildError if the image has none, HostError.
    """
    made = ready_image(context, image_recipe(image))
    record = record_of(made)
    path = record.found(name, arch)
    if path is None:
        raise _lacking(context, arch, made, record, name)
    if record.sizes[path] > LARGEST:
        raise BuildError(f"/{path} of image {image} is larger than {LARGEST >> 20} MiB")
    return ImageFile(f"/{path}", read_out(context, made, path))


def read_out(context: BuildContext, image: Image, path: str) -> Path:
    """A copy of an image's file, whose ``path`` has no links. Raises BuildError, HostError."""
    name = posixpath.basename(path)

    def build(target: Path) -> None:
        check_installed("image-packages.txt", "reading a file out of an image")
        tree = target.with_name("tree")
        argv = ["unsquashfs", "-quiet", "-no-progress", "-no-xattrs", "-dest", str(tree)]
        finished = run([*argv, str(image.squashfs), path], time_limit=120)
        if finished.status != 0 or not (tree / path).is_file():
            raise BuildError(f"{path} cannot be read out of image {image.recipe.name}", detail=finished.complaint())
        (tree / path).rename(target)

    inputs = {"image": image.key, "path": path, "file": name}
    return context.cache.obtain_file("workloads", inputs, f"{name} of {image.recipe.name}", name, build)


def _lacking(context: BuildContext, arch: Arch, image: Image, record: TreeRecord, name: str) -> BuildError:
    where = "" if name.startswith("/") else f" in {' or '.join(folders_of(name, arch))}"
    what = f"image {image.recipe.name} has no {name}{where}"
    having = next(_images_with(context, arch, name), None)
    if having is not None:
        return BuildError(what, hint=f"image {having} has it: set image: {having}")
    alike = record.alike(name, arch)
    if alike:
        return BuildError(what, hint=f"did you mean {', '.join(alike)}")
    return BuildError(what, hint="a recipe of your own can add the package that has it")


def _images_with(context: BuildContext, arch: Arch, name: str) -> Iterator[str]:
    """The lab's images that have the file, of those that are built."""
    for recipe in images().values():
        built = cached_image(context, recipe) if recipe.arch == arch else None
        if built is not None and record_of(built).found(name, arch) is not None:
            yield recipe.name
