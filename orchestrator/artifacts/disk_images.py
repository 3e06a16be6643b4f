# SPDX-License-Identifier: GPL-2.0-only
"""Disk images from an archive of packages: mmdebstrap makes a tree, which becomes a file system and a qcow2 file.

This needs no loop device, mount, device node or network.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact, digest, disk_usage
from orchestrator.artifacts.package_archive import system_archive, system_packages
from orchestrator.artifacts.pinned_packages import chosen, inputs_of, pin_of, versions
from orchestrator.artifacts.squashfs import EPOCH
from orchestrator.artifacts.user_namespace import as_root
from orchestrator.catalog.image_recipes import ImageRecipe
from orchestrator.errors import BuildError, HostError
from orchestrator.files import ScratchFolder, sha256_of
from orchestrator.host_packages import check_installed
from orchestrator.paths import data_dir
from orchestrator.process import run
from orchestrator.steps import step

BASE, ROOT, PACKAGES, FILES = "base.qcow2", "root.squashfs", "packages.txt", "files.txt"

_SCRIPTS = ("build.sh", "finish.sh", "sshd.conf")
_BUILD_LIMIT = 1800.0
_WORK_PREFIX = "orchestrator-image-"
_ELSEWHERE = "set TMPDIR to another folder"
_EXPANSION = 8  # upper bound of the bytes of tree, file system and image per byte of packages


def scripts() -> dict[str, str]:
    """The scripts that make an image, by name: with the packages, they decide its content."""
    return {name: (data_dir("images") / "recipes" / name).read_text() for name in _SCRIPTS}


def build_image(context: BuildContext, recipe: ImageRecipe, archive: Artifact, folder: Path) -> None:
    """Build an image's qcow2 and squashfs, and records of its packages and files. Raises BuildError, HostError."""
    check_installed("image-packages.txt", "building an image")
    prefix = as_root()
    packages = versions(archive)
    with _work_folder(prefix, disk_usage(archive.path) * _EXPANSION) as work:
        context.say(
            f"building image {recipe.name} of {len(packages)} packages: one to ten minutes, as fast as the host is"
        )
        script = data_dir("images") / "recipes" / "build.sh"
        places = [str(place) for place in (archive.path, work, folder)]
        arch = ARCHITECTURES[recipe.arch].debian
        argv = [*prefix, "sh", str(script), *places, arch, recipe.init, str(recipe.size)]
        environment = {"SOURCE_DATE_EPOCH": str(EPOCH), "DEBIAN_FRONTEND": "noninteractive"}
        finished = run(argv, time_limit=_BUILD_LIMIT, environment=environment)
    finished.or_raise(BuildError, f"image {recipe.name} does not build")
    chosen = {name.rpartition(":")[0]: version for name, version in packages.items()}
    if installed_packages(folder) != chosen:
        odd = sorted(set(installed_packages(folder).items()) ^ set(chosen.items()))[:10]
        raise BuildError(f"image {recipe.name} has other packages than were chosen", detail=[" ".join(o) for o in odd])
    raw, base = folder / "base.raw", folder / BASE
    converted = run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(base)], time_limit=300)
    converted.or_raise(BuildError, f"image {recipe.name} cannot be converted")
    raw.unlink()
    for file in (base, folder / ROOT):
        file.chmod(0o444)


def installed_packages(folder: Path) -> dict[str, str]:
    """The package versions recorded in an image's folder, by name."""
    return dict(line.split(" ", 1) for line in (folder / PACKAGES).read_text().splitlines())


@contextlib.contextmanager
def _work_folder(prefix: tuple[str, ...], room: int) -> Iterator[Path]:
    with ScratchFolder(_WORK_PREFIX, remove=partial(_remove_tree, prefix)) as folder:
        if " " in str(folder):
            raise HostError(
                f"an image cannot be built in {folder.parent}, as apt does not accept spaces", hint=_ELSEWHERE
            )
        free = shutil.disk_usage(folder).free
        if free < room:
            what = f"building an image needs {room / 1e9:.1f} GB in {folder.parent}, and {free / 1e9:.1f} are free"
            raise HostError(what, hint=_ELSEWHERE)
        yield folder


def _remove_tree(prefix: tuple[str, ...], folder: Path) -> None:
    run([*prefix, "rm", "-rf", "--one-file-system", str(folder)], time_limit=300)


@dataclass(frozen=True)
class Image:
    """An image: ``base`` (a qcow2 of an ext4) is never written to; ``squashfs`` has its files, for guests in memory.

    ``packages`` has their versions; ``tree`` is the SHA-256 of the record of files, modes and owners.
    """

    recipe: ImageRecipe
    key: str
    base: Path
    squashfs: Path
    packages: Mapping[str, str]
    tree: str


def ready_image(context: BuildContext, recipe: ImageRecipe) -> Image:
    """The image of ``recipe``, cached or built now. Raises HostError, BuildError."""
    with step(f"get image {recipe.name} ready"):
        image = cached_image(context, recipe)
        if image is not None:
            return image
        context.need_network(f"image {recipe.name}")  # a build takes as long as a download: offline excludes both
        archive = system_archive(context, recipe)
        inputs, build = _inputs(recipe, archive.key), partial(build_image, context, recipe, archive)
        return _image(recipe, context.cache.obtain("images", inputs, recipe.name, build))


def cached_image(context: BuildContext, recipe: ImageRecipe) -> Image | None:
    """The image of ``recipe`` with the packages pinned for it, if cached."""
    packages = chosen(pin_of(context, system_packages(recipe).name))
    if packages is None:
        return None
    archive = inputs_of(packages)
    context.cache.find("archives", archive)  # marks the archive, and so the pin, as used with its image
    artifact = context.cache.get("images", _inputs(recipe, digest(archive)))
    return _image(recipe, artifact) if artifact is not None else None


def _inputs(recipe: ImageRecipe, archive: str) -> dict[str, object]:
    return {"archive": archive, **recipe.model_dump(include={"arch", "init", "size"}), "scripts": digest(scripts())}


def _image(recipe: ImageRecipe, artifact: Artifact) -> Image:
    folder = artifact.path
    tree = sha256_of(folder / FILES)
    return Image(recipe, artifact.key, folder / BASE, folder / ROOT, installed_packages(folder), tree)
