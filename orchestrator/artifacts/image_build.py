# SPDX-License-Identifier: GPL-2.0-only
"""Disk images built from an archive of packages: a tree by mmdebstrap, finished, in a file system, as a qcow2 file.

No loop device, no mount and no device node is needed, and no network.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.debian import DEBIAN_ARCHITECTURE
from orchestrator.artifacts.namespace import as_root
from orchestrator.artifacts.pins import versions
from orchestrator.artifacts.usage import claim, hold, release
from orchestrator.catalog.images import ImageRecipe
from orchestrator.errors import BuildError, HostError
from orchestrator.paths import data_dir
from orchestrator.process import run
from orchestrator.requirements import check_installed

BASE, ROOT, PACKAGES, FILES = "base.qcow2", "root.squashfs", "packages.txt", "files.txt"

EPOCH = 1121212800
"""2005-07-13, in seconds: the time of all that has none of its own, so that the same inputs give the same files."""

_SCRIPTS = ("build.sh", "finish.sh", "sshd.conf")
_BUILD_LIMIT = 1800.0
_CONVERT_LIMIT = 300.0
_WORK_PREFIX = "orchestrator-image-"
_ELSEWHERE = "set TMPDIR to another folder"
_EXPANSION = 8
"""Bytes for the tree, the file system and the image, at most, for each byte of the packages."""


def scripts() -> dict[str, str]:
    """What decides, besides the packages, what an image is like: the scripts that make it, by name."""
    return {name: (data_dir("images") / "recipes" / name).read_text() for name in _SCRIPTS}


def build_image(context: BuildContext, recipe: ImageRecipe, archive: Artifact, folder: Path) -> None:
    """Fill ``folder`` with the base image and its squashfs, read-only, and with records of its packages and files.

    Raises BuildError with the last lines of what failed; HostError where the host lacks something.
    """
    check_installed("image-packages.txt", "building an image")
    prefix = as_root()
    packages = versions(archive)
    with _work_folder(prefix, archive.size() * _EXPANSION) as work:
        context.say(
            f"building image {recipe.name} of {len(packages)} packages: one to ten minutes, as fast as the host is"
        )
        script = data_dir("images") / "recipes" / "build.sh"
        places = [str(place) for place in (archive.path, work, folder)]
        argv = [*prefix, "sh", str(script), *places, DEBIAN_ARCHITECTURE[recipe.arch], recipe.init, str(recipe.size)]
        environment = {"SOURCE_DATE_EPOCH": str(EPOCH), "DEBIAN_FRONTEND": "noninteractive"}
        finished = run(argv, time_limit=_BUILD_LIMIT, environment=environment)
    if finished.status != 0:
        raise BuildError(f"image {recipe.name} does not build", detail=finished.complaint())
    wanted = {name.rpartition(":")[0]: version for name, version in packages.items()}
    if installed_packages(folder) != wanted:
        odd = sorted(set(installed_packages(folder).items()) ^ set(wanted.items()))[:10]
        raise BuildError(f"image {recipe.name} has other packages than were chosen", detail=[" ".join(o) for o in odd])
    raw, base = folder / "base.raw", folder / BASE
    finished = run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(base)], time_limit=_CONVERT_LIMIT)
    if finished.status != 0:
        raise BuildError(f"image {recipe.name} cannot be converted", detail=finished.complaint())
    raw.unlink()
    for file in (base, folder / ROOT):
        file.chmod(0o444)


def installed_packages(folder: Path) -> dict[str, str]:
    """The packages recorded in an image's folder: versions by name."""
    return dict(line.split(" ", 1) for line in (folder / PACKAGES).read_text().splitlines())


def tree_digest(folder: Path) -> str:
    """The SHA-256 of the record of an image's files: type, mode, owner, size, content or target of each."""
    return hashlib.sha256((folder / FILES).read_bytes()).hexdigest()


@contextlib.contextmanager
def _work_folder(prefix: tuple[str, ...], room: int) -> Iterator[Path]:
    """A folder for the tree, which is not below the cache: only ``prefix`` can remove the files of other users."""
    folder = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX))
    hold(folder)
    try:
        _remove_abandoned(prefix, folder.parent)
        if " " in str(folder):
            raise HostError(f"an image cannot be built in {folder.parent}, since apt takes no spaces", hint=_ELSEWHERE)
        free = shutil.disk_usage(folder).free
        if free < room:
            what = f"building an image needs {room / 1e9:.1f} GB in {folder.parent}, and {free / 1e9:.1f} are free"
            raise HostError(what, hint=_ELSEWHERE)
        yield folder
    finally:
        release(folder)
        _remove_tree(prefix, folder)


def _remove_abandoned(prefix: tuple[str, ...], parent: Path) -> None:
    """Remove our folders there that are older than any build can be, and held by none: their builders were killed.

    A clock that is set forward makes a living builder's folder as old.
    """
    for folder in parent.glob(f"{_WORK_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError), claim(folder) as unused:  # another builder removes them as well
            facts = folder.lstat()
            is_left = unused or folder.is_symlink()  # a link holds nothing
            if is_left and facts.st_uid == os.geteuid() and time.time() - facts.st_mtime > 2 * _BUILD_LIMIT:
                _remove_tree(prefix, folder)


def _remove_tree(prefix: tuple[str, ...], folder: Path) -> None:
    run([*prefix, "rm", "-rf", "--one-file-system", str(folder)], time_limit=_CONVERT_LIMIT)
