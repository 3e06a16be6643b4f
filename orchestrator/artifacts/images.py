# SPDX-License-Identifier: GPL-2.0-only
"""Disk images for guests: package archives, trees, file systems, and read-only disks of users' folders."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts import debian
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact, digest, disk_usage
from orchestrator.catalog.images import ImageRecipe
from orchestrator.errors import BuildError, HostError, LabError, UsageError
from orchestrator.files import ScratchFolder, sha256_of
from orchestrator.host_packages import INSTALL_COMMAND, check_installed
from orchestrator.paths import data_dir
from orchestrator.process import run
from orchestrator.steps import step

# A system's packages, fetched once, as an archive that apt can install from.
#
# The index holds the paragraphs of the signed lists. Installing from it needs no network, and installs what the
# release's suites had when the packages were chosen, at any later time.

INDEX = "Packages"


def system_packages(recipe: ImageRecipe) -> debian.PackageSet:
    """The package set of a recipe. A recipe that asks for other packages gets another set, whatever its name."""
    request = digest([recipe.arch, recipe.packages, *filter(None, [recipe.release])])[:8]
    places = () if recipe.suites is None else (recipe.suites,)
    return debian.PackageSet(
        f"{recipe.name}-system-{request}", recipe.arch, (ARCHITECTURES[recipe.arch].debian,), places
    )


def system_archive(context: BuildContext, recipe: ImageRecipe) -> Artifact:
    """The .deb files of a recipe's packages and their dependencies, with an index. Raises HostError."""

    def choose(apt: debian.AptRoot) -> list[debian.Package]:
        exact = apt.simulate(["?or(?essential, ?priority(required))", *recipe.packages])
        # Two suites may have the same version; apt takes it from the first.
        packages = {
            f"{package.name}={package.version}": package
            for package in map(debian.package_of, reversed(apt.stanzas(exact)))
        }
        return [packages[name] for name in exact]

    def fetch(apt: debian.AptRoot, packages: Sequence[debian.Package], folder: Path) -> None:
        files = apt.download(packages, folder)
        stanzas = {debian.package_of(stanza).sha256: stanza for stanza in apt.stanzas([p.pinned for p in packages])}
        listed = zip(packages, files, strict=True)
        (folder / INDEX).write_text(index((stanzas[package.sha256], file.name) for package, file in listed))

    return debian.pinned_artifact(context, "archives", system_packages(recipe), choose, fetch)


def index(listed: Iterable[tuple[str, str]]) -> str:
    """The index of a flat archive, from paragraphs and file names."""
    moved = (re.sub(r"^Filename: .*$", f"Filename: ./{name}", stanza.strip(), flags=re.M) for stanza, name in listed)
    return "\n\n".join(moved) + "\n"


# An ordinary user makes files that belong to many users as root of a user namespace.
#
# In the namespace the user is root and has the ids of /etc/subuid for all other users. That root may mount /proc and
# /sys because the namespace has its own mounts, processes and networks.
_UNSHARE = (
    "unshare",
    *("--map-root-user", "--map-auto", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("--net", "--ipc", "--uts"),
)


def as_root() -> tuple[str, ...]:
    """The prefix of a command that runs as root. Raises HostError if the host allows no user namespace."""
    return () if os.geteuid() == 0 else _namespace()


@lru_cache(maxsize=1)
def _namespace() -> tuple[str, ...]:
    for program in ("newuidmap", "newgidmap"):
        if shutil.which(program) is None:
            what = f"without root, a user namespace is needed, and {program} is not installed"
            raise HostError(what, hint=f"as root: {INSTALL_COMMAND} uidmap")
    tried = run([*_UNSHARE, "true"], time_limit=30)
    if tried.status == 0:
        return _UNSHARE
    what = "this host allows user namespaces to root only"
    hint = "sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 (whichever it "
    hint += "has), or run the command as root"
    if any(word in tried.stderr for word in ("subuid", "subgid", "find")):
        user = getpass.getuser()
        what = f"{user} has no range of ids in /etc/subuid and /etc/subgid"
        hint = f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
    raise HostError(what, detail=tried.complaint(), hint=f"as root: {hint}")


# Disk images from an archive of packages: mmdebstrap makes a tree, which becomes a file system and a qcow2 file.
#
# This needs no loop device, mount, device node or network.

BASE, ROOT, PACKAGES, FILES = "base.qcow2", "root.squashfs", "packages.txt", "files.txt"

EPOCH = 1121212800
"""2005-07-13, in seconds: the time of files without one of their own, so that equal inputs give equal files."""

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
    packages = debian.versions(archive)
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
    packages = debian.chosen(debian.pin_of(context, system_packages(recipe).name))
    if packages is None:
        return None
    archive = debian.inputs_of(packages)
    context.cache.find("archives", archive)  # marks the archive, and so the pin, as used with its image
    artifact = context.cache.get("images", _inputs(recipe, digest(archive)))
    return _image(recipe, artifact) if artifact is not None else None


def _inputs(recipe: ImageRecipe, archive: str) -> dict[str, object]:
    return {"archive": archive, **recipe.model_dump(include={"arch", "init", "size"}), "scripts": digest(scripts())}


def _image(recipe: ImageRecipe, artifact: Artifact) -> Image:
    folder = artifact.path
    tree = sha256_of(folder / FILES)
    return Image(recipe, artifact.key, folder / BASE, folder / ROOT, installed_packages(folder), tree)


# lz4: an emulated CPU is slow at anything denser. The other options make the bytes depend on the content alone.
OPTIONS = (
    *("-comp", "lz4", "-noappend", "-no-progress", "-quiet"),
    *("-all-root", "-no-xattrs", "-all-time", str(EPOCH), "-mkfs-time", str(EPOCH)),
)


def pack(folder: Path, file: Path, what: str) -> None:
    """Pack a folder as a squashfs file; ``what`` names it in the BuildError."""
    argv = ["mksquashfs", str(folder), str(file), *OPTIONS]
    packed = run(argv, time_limit=1800, environment={"SOURCE_DATE_EPOCH": None})
    packed.or_raise(BuildError, f"{what} cannot be packed")


def data_disk(context: BuildContext, folder: Path) -> Path:
    """A user's folder as a private squashfs; links are not followed. Raises UsageError, HostError, BuildError."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} {what}: a data disk is made from a folder")
    folder = folder.resolve()
    content = _content(folder)

    def build(file: Path) -> None:
        file.parent.chmod(0o700)  # who may not read the folder may not read its disk
        check_installed("image-packages.txt", "making a data disk")
        context.say(f"packing {folder}")
        pack(folder, file, str(folder))
        if _content(folder) != content:
            raise LabError(f"{folder} changed while it was packed", hint="retry when nothing writes there")
        file.chmod(0o400)

    inputs = {"content": content, "options": list(OPTIONS)}
    return context.cache.obtain_file("data-disks", inputs, folder.name or "root", "data.squashfs", build)


def _content(folder: Path) -> str:
    def give_up(error: OSError) -> None:
        raise error

    try:
        whole = hashlib.sha256(b"d %o\0" % stat.S_IMODE(folder.stat().st_mode))
        for parent, folders, files in os.walk(folder, onerror=give_up):
            folders.sort()
            for path in (Path(parent, name) for name in sorted((*folders, *files))):
                whole.update(os.fsencode(path.relative_to(folder)) + b"\0" + _facts(path) + b"\0")
    except OSError as error:
        raise HostError(f"{error.filename} cannot be read: {error.strerror}") from None
    return whole.hexdigest()


def _facts(path: Path) -> bytes:
    mode = path.lstat().st_mode
    permissions = stat.S_IMODE(mode)
    if stat.S_ISLNK(mode):
        return b"l " + os.fsencode(path.readlink())
    if stat.S_ISDIR(mode):
        return b"d %o" % permissions
    if stat.S_ISREG(mode):
        return b"f %o " % permissions + bytes.fromhex(sha256_of(path))
    raise UsageError(f"{path} is neither a file nor a folder nor a link, and cannot be on a data disk")
