# SPDX-License-Identifier: GPL-2.0-only
"""Disk images ready for guests: read-only, with a record of what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.archive import system_archive, system_packages
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact, digest
from orchestrator.artifacts.image_build import BASE, ROOT, build_image, installed_packages, scripts, tree_digest
from orchestrator.artifacts.pins import chosen, inputs_of
from orchestrator.catalog.images import ImageRecipe
from orchestrator.steps import step

_KIND = "images"


@dataclass(frozen=True)
class Image:
    """A disk image that guests start from. ``base`` (qcow2, one ext4 without partitions) is never written to.

    ``squashfs`` holds the same files, for guests that have all in memory. ``key`` names its inputs, ``packages`` the
    versions in it, and ``tree`` is a digest of its files.
    """

    recipe: ImageRecipe
    key: str
    base: Path
    squashfs: Path
    packages: Mapping[str, str]
    tree: str

    @property
    def packed(self) -> PackedImage:
        """What a guest needs that has all of it in memory."""
        return PackedImage(self.recipe.name, self.key, self.squashfs)


@dataclass(frozen=True)
class PackedImage:
    """An image's files as a squashfs, and the name and the key of the image."""

    name: str
    key: str
    squashfs: Path


def ready_image(context: BuildContext, recipe: ImageRecipe) -> Image:
    """The image of ``recipe``, built when it is not in the cache; it stays there while this process lives.

    Raises HostError, BuildError.
    """
    with step(f"get image {recipe.name} ready"):
        found = cached_image(context, recipe)
        if found is not None:
            return found
        context.need_network(f"image {recipe.name}")  # to build takes as long as to fetch: offline means neither
        archive, name = system_archive(context, recipe), recipe.name
        artifact = context.cache.obtain(
            _KIND, _inputs(recipe, archive.key), name, lambda folder: build_image(context, recipe, archive, folder)
        )
        return _image(recipe, artifact)


def cached_image(context: BuildContext, recipe: ImageRecipe) -> Image | None:
    """The image of ``recipe``, if it is in the cache: of the packages once chosen for it."""
    packages = chosen(system_packages(recipe).pin(context))
    if packages is None:
        return None
    found = context.cache.get(_KIND, _inputs(recipe, digest(inputs_of(packages))))
    return _image(recipe, found) if found is not None else None


def _inputs(recipe: ImageRecipe, archive: str) -> dict[str, object]:
    return {
        "archive": archive,
        "arch": recipe.arch,
        "init": recipe.init,
        "size": recipe.size,
        "scripts": digest(scripts()),
    }


def _image(recipe: ImageRecipe, artifact: Artifact) -> Image:
    folder = artifact.path
    return Image(recipe, artifact.key, folder / BASE, folder / ROOT, installed_packages(folder), tree_digest(folder))
