# SPDX-License-Identifier: GPL-2.0-only
"""The part of the kernel's source that guests build from, as a squashfs that they have in memory."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.data_disk import OPTIONS
from orchestrator.artifacts.kernel_source import kernel_source, sound_source
from orchestrator.catalog.build_source import BuildSource, build_source_choice
from orchestrator.errors import BuildError
from orchestrator.process import run
from orchestrator.requirements import check_installed

_KIND = "build-sources"
_FILE = "source.squashfs"
_LIMIT = 900.0


@dataclass(frozen=True)
class PackedSource:
    """A squashfs with a kernel's source, all of it dated at the images' epoch; ``key`` names its exact content."""

    key: str
    file: Path


def build_source(context: BuildContext) -> PackedSource:
    """The source that a build of the smallest kernels needs, packed when it is not in the cache.

    Raises HostError when the source cannot be had, BuildError.
    """
    choice = build_source_choice()
    source = kernel_source(context, choice.package)

    def build(folder: Path) -> None:
        check_installed("image-packages.txt", "packing a kernel's source")
        sound_source(context, choice.package)
        context.say(f"packing what a build needs of {choice.package}")
        tree, file = folder / "tree", folder / _FILE
        link_chosen(choice, source.path / "linux", tree)
        finished = run(
            ["mksquashfs", str(tree), str(file), *OPTIONS], time_limit=_LIMIT, environment={"SOURCE_DATE_EPOCH": None}
        )
        if finished.status != 0:
            raise BuildError(f"{choice.package} cannot be packed", detail=finished.complaint())
        shutil.rmtree(tree)
        file.chmod(0o444)

    inputs = {"source": source.key, "choice": choice.model_dump(), "options": list(OPTIONS)}
    found = context.cache.obtain(_KIND, inputs, f"{choice.package}, for builds in guests", build)
    return PackedSource(found.key, found.path / _FILE)


def link_chosen(choice: BuildSource, source: Path, tree: Path) -> None:
    """Make ``tree`` of hard links to the files that are chosen of a source; all of its folders are there."""
    for parent, _, names in os.walk(source):
        folder = Path(parent).relative_to(source)
        (tree / folder).mkdir(parents=True)
        for name in choice.takes(folder.as_posix(), names):
            os.link(Path(parent, name), tree / folder / name, follow_symlinks=False)
