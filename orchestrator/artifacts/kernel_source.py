# SPDX-License-Identifier: GPL-2.0-only
"""Kernels' sources: Debian's packages with the lab's patches and files; the part that builds in guests need."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from orchestrator.arch import HOST
from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.debian_mirror import ANOTHER_MIRROR
from orchestrator.artifacts.debian_package import NoSuchPackageError, Package
from orchestrator.artifacts.squashfs import OPTIONS, pack
from orchestrator.artifacts.unpacked_packages import unpacked_packages
from orchestrator.catalog.data import CatalogEntry, matches_any, read
from orchestrator.catalog.debian_release import debian
from orchestrator.errors import BuildError, HostError
from orchestrator.host_packages import check_installed
from orchestrator.paths import data_dir, data_file
from orchestrator.process import run

UNPACKED_GB = 1.7
"""Disk space of the package and the unpacked source; a patched copy shares all files but those that it changes."""

SOURCE_KIND, _PACKAGE = "kernel-source", "linux-source-"
_UNPACK_LIMIT = 900.0


def kernel_source(
    context: BuildContext,
    package: str,
    patches: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    *,
    is_verified: bool = False,
) -> Artifact:
    """A ``linux-source`` package with files, data files by new path, and patches. Raises HostError, BuildError.

    ``is_verified``: with each of its 80,000 files verified, for callers that compile it.
    """
    archive = _archive(context, package)
    if not patches and not files:
        return _unpacked(context, package, archive, is_verified=is_verified)
    pristine = _unpacked(context, package, archive)
    changes = {name: data_dir("images") / "patches" / f"{name}.patch" for name in patches}

    def patch(folder: Path) -> None:
        _unpacked(context, package, archive, is_verified=True)
        # Hard links: times stay, so that make sees the changes, and patch replaces a file rather than writing into it.
        copied = run(["cp", "-al", str(pristine.path / "linux"), str(folder)], time_limit=_UNPACK_LIMIT)
        copied.or_raise(HostError, f"cannot copy {pristine.path}")
        for place, text in added.items():
            path = folder / "linux" / place
            if path.exists():  # writing through the hard link would change every copy
                raise BuildError(f"{place} cannot be added to the source: the file exists already")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name, file in changes.items():
            # A patch is for several versions: its line numbers are those of one, and patch would keep copies.
            options = ("-p1", "--fuzz=0", "--force", "--no-backup-if-mismatch")
            argv = ["patch", "-d", str(folder / "linux"), *options, "-i", str(file)]
            applied = run(argv, time_limit=_UNPACK_LIMIT)
            if applied.status != 0:
                detail = (applied.stdout + applied.stderr).splitlines()[-20:]
                raise BuildError(f"{name}.patch does not apply to {package}", where=str(file), detail=detail)

    added = {place: data_file(name).read_text() for place, name in (files or {}).items()}
    inputs: dict[str, object] = {
        "package": archive.key,
        "patches": {name: file.read_text() for name, file in changes.items()},
    }
    if added:  # keeps the keys of sources without added files
        inputs["files"] = added
    return _obtain(context, inputs, f"{package} with {', '.join(patches)}", patch, is_verified=is_verified)


def _archive(context: BuildContext, package: str) -> Artifact:
    available: list[str] = []

    def choose(apt: AptRoot) -> list[Package]:
        available.append(apt.suites.having(name.removeprefix(_PACKAGE) for name in apt.names(rf"{_PACKAGE}\d+\.\d+")))
        return [apt.show(package, "all")]

    try:
        places = (debian(), *debian().elsewhere)
        return unpacked_packages(context, package, HOST.name, choose, places=places)
    except NoSuchPackageError:
        raise HostError(f"Debian has no {package} available: {'; '.join(available)}", hint=ANOTHER_MIRROR) from None


def _unpacked(context: BuildContext, package: str, archive: Artifact, *, is_verified: bool = False) -> Artifact:
    def unpack(folder: Path) -> None:
        context.say(f"unpacking {package} ({UNPACKED_GB} GB)")
        (folder / "linux").mkdir()
        unpack_tarball(archive.path / "usr/src" / f"{package}.tar.xz", folder / "linux")

    return _obtain(context, {"package": archive.key}, package, unpack, is_verified=is_verified)


def unpack_tarball(tarball: Path, folder: Path) -> None:
    """Unpack a kernel's source without its top folder. Raises HostError if that fails."""
    argv = ["tar", "-C", str(folder), "--strip-components=1", "-xf", str(tarball)]
    run(argv, time_limit=_UNPACK_LIMIT).or_raise(HostError, f"cannot unpack {tarball}")


def _obtain(
    context: BuildContext,
    inputs: Mapping[str, object],
    label: str,
    make: Callable[[Path], None],
    *,
    is_verified: bool,
) -> Artifact:
    artifact = context.cache.find(SOURCE_KIND, inputs)
    if artifact is not None and (not is_verified or context.cache.is_sound(artifact)):
        return artifact
    context.need_network(f"the source {label}")  # do not fetch gigabytes unasked
    # tar's message names a missing program, but not its package.
    check_installed("kernel-packages.txt", f"the source {label}")
    return context.cache.obtain(SOURCE_KIND, inputs, label, make)


class BuildSource(CatalogEntry):
    """The files chosen from a kernel's source, as ``build_source.yaml`` explains, and the source ``package``."""

    package: str
    build: list[str]
    no_code: list[str]
    only: dict[str, list[str]]
    left_out: list[str]

    def takes(self, folder: str, names: Iterable[str]) -> list[str]:
        is_below = PurePosixPath(folder).is_relative_to
        is_whole = not any(map(is_below, self.left_out)) and all(
            any(is_below(f"{parent}/{name}") for name in kept) for parent, kept in self.only.items() if is_below(parent)
        )
        return [
            name
            for name in names
            if matches_any(name, self.build) or (is_whole and not matches_any(name, self.no_code))
        ]


def build_source_choice() -> BuildSource:
    """The lab's choice of source files."""
    return BuildSource.model_validate(read("build_source.yaml"))


PACKED_SOURCE = "source.squashfs"


def build_source(context: BuildContext) -> Artifact:
    """The source that a build of the smallest kernels needs, as a squashfs dated at the images' epoch.

    Raises HostError, BuildError.
    """
    choice = build_source_choice()
    source = kernel_source(context, choice.package)

    def build(folder: Path) -> None:
        check_installed("image-packages.txt", "packing a kernel's source")
        kernel_source(context, choice.package, is_verified=True)
        context.say(f"packing what a build needs of {choice.package}")
        tree, file = folder / "tree", folder / PACKED_SOURCE
        link_chosen(choice, source.path / "linux", tree)
        pack(tree, file, choice.package)
        shutil.rmtree(tree)
        file.chmod(0o444)

    inputs = {"source": source.key, "choice": choice.model_dump(), "options": list(OPTIONS)}
    return context.cache.obtain("build-sources", inputs, f"{choice.package}, for builds in guests", build)


def link_chosen(choice: BuildSource, source: Path, tree: Path) -> None:
    """Fill ``tree`` with all folders of ``source`` and hard links to its chosen files."""
    for parent, _, names in os.walk(source):
        folder = Path(parent).relative_to(source)
        (tree / folder).mkdir(parents=True)
        for name in choice.takes(folder.as_posix(), names):
            os.link(Path(parent, name), tree / folder / name, follow_symlinks=False)
