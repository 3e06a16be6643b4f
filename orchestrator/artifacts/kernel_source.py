# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's source: as the distribution has it, unpacked once, and copies of it with the lab's own patches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from orchestrator.artifacts.cache import Artifact, BuildContext
from orchestrator.artifacts.debian import ANOTHER_MIRROR, AptRoot, NoSuchPackageError, Package, unpacked_packages
from orchestrator.artifacts.images import OPTIONS, pack
from orchestrator.catalog.data import Fact, read
from orchestrator.catalog.images import debian
from orchestrator.errors import BuildError, HostError
from orchestrator.paths import data_dir
from orchestrator.process import run
from orchestrator.program import check_installed

UNPACKED_GB = 1.7
"""Disk for the package and the unpacked source; a patched copy shares all files but those that it changes."""

SOURCE_KIND, _PACKAGE = "kernel-source", "linux-source-"
_UNPACK_LIMIT = 900.0


def kernel_source(
    context: BuildContext, package: str, patches: Sequence[str] = (), files: Mapping[str, str] | None = None
) -> Artifact:
    """The source of a ``linux-source`` package in ``linux/``, with patches of ``images/patches`` applied in order.

    ``files`` are sources of ``kmods`` by the new paths that they are copied to. Raises HostError when it cannot be had,
    BuildError for a patch that does not apply or a file whose place is taken. Offline, nothing is unpacked.
    """
    archive = _archive(context, package)

    def unpack(folder: Path) -> None:
        context.say(f"unpacking {package} ({UNPACKED_GB} GB)")
        (folder / "linux").mkdir()
        unpack_tarball(archive.path / "usr/src" / f"{package}.tar.xz", folder / "linux")

    pristine = _obtain(context, {"package": archive.key}, package, unpack)
    if not patches and not files:
        return pristine
    changes = {name: data_dir("images") / "patches" / f"{name}.patch" for name in patches}

    def patch(folder: Path) -> None:
        sound_source(context, package)
        # Hard links: times stay, so that make sees what changed, and patch replaces a file instead of writing into it.
        copied = run(["cp", "-al", str(pristine.path / "linux"), str(folder)], time_limit=_UNPACK_LIMIT)
        copied.or_raise(HostError, f"cannot copy {pristine.path}")
        for name, file in changes.items():
            argv = ["patch", "-d", str(folder / "linux"), "-p1", "--fuzz=0", "--force", "-i", str(file)]
            applied = run(argv, time_limit=_UNPACK_LIMIT)
            if applied.status != 0:
                detail = (applied.stdout + applied.stderr).splitlines()[-20:]
                raise BuildError(f"{name}.patch does not apply to {package}", where=str(file), detail=detail)
        for place, text in added.items():
            path = folder / "linux" / place
            if path.exists():  # by a hard link it would be changed in every other copy as well
                raise BuildError(f"{place} cannot be added to the source: there is such a file")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    added = {place: (data_dir("kmods") / name).read_text() for place, name in (files or {}).items()}
    inputs: dict[str, object] = {
        "package": archive.key,
        "patches": {name: file.read_text() for name, file in changes.items()},
    }
    if added:  # a source without any keeps the key it always had
        inputs["files"] = added
    return _obtain(context, inputs, source_label(package, patches, added), patch)


def _archive(context: BuildContext, package: str) -> Artifact:
    """The unpacked package, of the first suites at hand that have it. Raises HostError with what they have."""
    at_hand: list[str] = []

    def choose(apt: AptRoot) -> list[Package]:
        versions = [name.removeprefix(_PACKAGE) for name in apt.names(rf"{_PACKAGE}\d+\.\d+")]
        at_hand.append(f"{apt.suites.title} has {', '.join(versions) or 'none'}")
        return [apt.show(package, "all")]

    try:
        places = (debian(), *debian().elsewhere)
        return unpacked_packages(context, package, "x86_64", choose, places=places)
    except NoSuchPackageError:
        raise HostError(f"Debian has no {package} at hand: {'; '.join(at_hand)}", hint=ANOTHER_MIRROR) from None


def source_label(package: str, patches: Sequence[str] = (), files: Mapping[str, str] | None = None) -> str:
    """The label in the cache of a package's source with these patches and files."""
    return f"{package} with {', '.join(patches)}" if patches or files else package


def sound_source(
    context: BuildContext, package: str, patches: Sequence[str] = (), files: Mapping[str, str] | None = None
) -> Artifact:
    """The source as ``kernel_source`` has it, with each of its 80,000 files checked: for who compiles with it."""
    source = kernel_source(context, package, patches, files)
    return source if context.cache.is_sound(source) else kernel_source(context, package, patches, files)


def unpack_tarball(tarball: Path, folder: Path) -> None:
    """Unpack a kernel's source into ``folder``, without the folder that all of it is in.

    Raises HostError when the tarball is damaged, or when tar or what it calls to decompress is missing.
    """
    argv = ["tar", "-C", str(folder), "--strip-components=1", "-xf", str(tarball)]
    run(argv, time_limit=_UNPACK_LIMIT).or_raise(HostError, f"cannot unpack {tarball}")


def _obtain(context: BuildContext, inputs: Mapping[str, object], label: str, make: Callable[[Path], None]) -> Artifact:
    found = context.cache.find(SOURCE_KIND, inputs)
    if found is not None:
        return found
    context.need_network(f"the source {label}")  # a command that only lists must not fetch gigabytes
    # tar names the program that is missing, but not its package.
    check_installed("kernel-packages.txt", f"the source {label}")
    return context.cache.obtain(SOURCE_KIND, inputs, label, make)


# The files of the kernel's source that a build of the smallest kernel needs.


class BuildSource(Fact):
    """The choice, as ``build_source.yaml`` explains it, and the ``package`` it is made from."""

    package: str
    build: list[str]
    no_code: list[str]
    only: dict[str, list[str]]
    left_out: list[str]

    def takes(self, folder: str, names: Iterable[str]) -> list[str]:
        """The files that are taken of those in a folder (its path in the source; the top's is ``.``)."""
        is_below = PurePosixPath(folder).is_relative_to
        is_whole = not any(map(is_below, self.left_out)) and all(
            any(is_below(f"{parent}/{name}") for name in kept) for parent, kept in self.only.items() if is_below(parent)
        )
        return [
            name
            for name in names
            if any(fnmatchcase(name, pattern) for pattern in self.build)
            or (is_whole and not any(fnmatchcase(name, pattern) for pattern in self.no_code))
        ]


def build_source_choice() -> BuildSource:
    """Return the lab's choice."""
    return BuildSource.model_validate(read("build_source.yaml"))


# The part of the kernel's source that guests build from, as a squashfs that they have in memory.

_BUILD_SOURCE_KIND = "build-sources"
_FILE = "source.squashfs"


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
        pack(tree, file, choice.package)
        shutil.rmtree(tree)
        file.chmod(0o444)

    inputs = {"source": source.key, "choice": choice.model_dump(), "options": list(OPTIONS)}
    found = context.cache.obtain(_BUILD_SOURCE_KIND, inputs, f"{choice.package}, for builds in guests", build)
    return PackedSource(found.key, found.path / _FILE)


def link_chosen(choice: BuildSource, source: Path, tree: Path) -> None:
    """Make ``tree`` of hard links to the files that are chosen of a source; all of its folders are there."""
    for parent, _, names in os.walk(source):
        folder = Path(parent).relative_to(source)
        (tree / folder).mkdir(parents=True)
        for name in choice.takes(folder.as_posix(), names):
            os.link(Path(parent, name), tree / folder / name, follow_symlinks=False)
