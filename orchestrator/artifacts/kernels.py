# SPDX-License-Identifier: GPL-2.0-only
"""Kernels ready to boot, with the headers to build modules for them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.artifacts import vmlinux
from orchestrator.artifacts.apt import AptRoot, NoSuchPackageError, Package
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.debian import DEBIAN_ARCHITECTURE, HOST_ARCHITECTURE, unpacked_packages
from orchestrator.artifacts.debian_mirror import ANOTHER_MIRROR
from orchestrator.artifacts.flat_image import flat_image
from orchestrator.artifacts.function_entry import entry_offset, tracer_place
from orchestrator.artifacts.kernel_build import built_kernel
from orchestrator.artifacts.kernel_code import SYSTEM_MAP, VMLINUX, KernelCode, code_of_tree, write_code
from orchestrator.artifacts.pins import origins, versions
from orchestrator.artifacts.toolchain import Toolchain, compiler_in, matching_toolchain, release_in, tree_toolchain
from orchestrator.catalog.debian import debian
from orchestrator.catalog.kconfig import read_config
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.user_kernel import RELEASE
from orchestrator.errors import HostError, LabError
from orchestrator.steps import step

_DRIVERS = ("CONFIG_VIRTIO_PCI", "CONFIG_VIRTIO_CONSOLE")
_IMAGE_KEY_DIGITS = 24
_FLAT = "flat-bzImage"


class UnusableTreeError(HostError):
    """The kernel in a user's build tree cannot be used as it is now; at another revision it may be."""


@dataclass(frozen=True)
class Kernel:
    """A kernel to boot. ``image`` is what QEMU loads, ``modules`` the folder of its drivers.

    ``headers`` and ``headers_makefile`` are what ``make -C ... -f ...`` takes to build a module, and ``toolchain`` is
    what builds it. ``key`` names the exact content; ``packages`` its versions. ``origin`` holds version and suite of
    the packages that it is, or was built from. ``code_folder`` has vmlinux and System.map where ``headers`` has not.
    ``packaged`` is the package's own image where ``image`` was derived from it.
    """

    spec: KernelSpec
    release: str
    key: str
    image: Path
    modules: Path
    headers: Path
    headers_makefile: Path
    packages: Mapping[str, str]
    config: Mapping[str, str] = field(repr=False)
    toolchain: Toolchain
    origin: Mapping[str, str] = field(default_factory=dict)
    code_folder: Path | None = None
    packaged: Path | None = None

    @property
    def code(self) -> KernelCode | None:
        """Its symbols and its image's bytes; None where they are not at hand."""
        return code_of_tree(self.code_folder or self.headers)

    @property
    def drivers_built_in(self) -> bool:
        """Whether the channel's drivers are built in, so that a guest needs no modules of the kernel's."""
        return all(self.config.get(option) == "y" for option in _DRIVERS)

    def entry_offset(self, symbol: str) -> int:
        """Bytes from a function's symbol to its first own instruction, by its code where that is at hand."""
        found = None if self.code is None else entry_offset(self.code, symbol)
        return self.spec.entry_offset if found is None else found

    def tracer_offset(self, symbol: str) -> int:
        """Bytes from a function's symbol to the function tracer's nop, which is behind any endbr."""
        return tracer_place(self.entry_offset(symbol))

    @property
    def compiler_note(self) -> str | None:
        """A note for the reader where a module's compiler is not the kernel's, or not the guests' release's."""
        own, usual = compiler_in(self.config), f"gcc {debian().compiler}"
        if own != self.toolchain.compiler:
            return f"the module was compiled by {self.toolchain.compiler}, the kernel by {own or 'another compiler'}"
        if self.spec.source is not None and own != usual:
            return f"kernel and module were compiled by {own}, and not by {usual} as elsewhere"
        return None

    @property
    def smp(self) -> bool:
        """Whether it is made for several CPUs."""
        return self.config.get("CONFIG_SMP") == "y"


def ready_kernel(context: BuildContext, spec: KernelSpec) -> Kernel:
    """The kernel of ``spec``: fetched or built when it is not in the cache, or the user's own as it is.

    Raises HostError, BuildError.
    """
    with step(f"get kernel {spec.name} ready"):
        if spec.packages is not None:
            return _debian_kernel(context, spec)
        return _user_kernel(context, spec) if spec.tree is not None else _lab_kernel(context, spec)


def _user_kernel(context: BuildContext, spec: KernelSpec) -> Kernel:
    """The kernel of a user's build tree, which may change from one run to the next: its key is its content."""
    assert spec.tree is not None
    assert spec.image is not None
    try:
        config = read_config(spec.tree / ".config")
        release = (spec.tree / RELEASE).read_text().strip()
        with spec.image.open("rb") as file:
            image = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        what = f"the kernel in {spec.tree} cannot be read: {error.strerror}"
        raise UnusableTreeError(what, where=str(error.filename or "")) from None
    lacking = [option for option in _DRIVERS if config.get(option) != "y"]
    if lacking:
        raise UnusableTreeError(
            f"the kernel in {spec.tree} cannot be talked to: {', '.join(lacking)} must be y, not m",
            hint="scripts/config -e VIRTIO_MENU -e VIRTIO_PCI -e VIRTIO_CONSOLE, and build it again",
        )
    key = digest({"image": image, "config": config})[:_IMAGE_KEY_DIGITS]
    is_whole = all((spec.tree / name).is_file() for name in (VMLINUX, SYSTEM_MAP))
    return Kernel(
        spec=spec,
        release=release,
        key=key,
        image=spec.image,
        modules=spec.tree / "no-drivers",  # all that a guest needs is built in
        headers=spec.tree,
        headers_makefile=spec.tree / "Makefile",
        packages={},
        config=config,
        toolchain=tree_toolchain(context, config),
        code_folder=None if is_whole else _uncompressed(context, spec.image, key, spec, config),
    )


def _lab_kernel(context: BuildContext, spec: KernelSpec) -> Kernel:
    artifact = built_kernel(context, spec)
    build = artifact.path / "build"
    try:
        release = (build / "include/config/kernel.release").read_text().strip()
        config = read_config(build / ".config")
    except OSError as error:
        hint = f"remove it and run again: rm -r '{artifact.path}'"
        raise LabError(f"the build tree of {spec.name} is not whole ({error})", hint=hint) from None
    return Kernel(
        spec=spec,
        release=release,
        key=artifact.key,
        image=build / "arch/x86/boot/bzImage",
        modules=artifact.path / "no-drivers",  # all that a guest needs is built in
        headers=build,
        headers_makefile=build / "Makefile",
        packages={},
        origin=origins(context, spec.source or ""),
        config=config,
        toolchain=matching_toolchain(context, release_in(config)),
    )


def _debian_kernel(context: BuildContext, spec: KernelSpec) -> Kernel:
    """The newest kernel of ``spec`` in the release's suites, fetched once. Raises HostError where it cannot be had."""
    artifact = unpacked_packages(context, spec.name, spec.arch, lambda apt: _choose(apt, spec))
    root = artifact.path
    try:
        # From Debian 13 on, packages have all below /usr.
        modules = next(p for p in (root / "lib/modules", root / "usr/lib/modules") if p.is_dir())
        release = next(p.name for p in sorted(modules.iterdir()))
        headers = root / "usr/src" / f"linux-headers-{release}"
        common = next(p for p in sorted((root / "usr/src").glob("linux-headers-*-common")))
        config = read_config(headers / ".config")
    except (StopIteration, OSError) as error:
        hint = f"remove it and run again: rm -r '{root}'"
        raise LabError(f"the unpacked packages of {spec.name} are not whole ({error})", hint=hint) from None
    compressed = root / "boot" / f"vmlinuz-{release}"
    code_folder = _uncompressed(context, compressed, artifact.key, spec, config)
    image = _startable(context, compressed, code_folder / "vmlinux", spec, config)
    return Kernel(
        spec=spec,
        release=release,
        key=artifact.key,
        image=image,
        modules=modules / release / "kernel",
        headers=headers,
        headers_makefile=common / "Makefile",
        packages=versions(artifact),
        origin=origins(context, spec.name),
        config=config,
        toolchain=matching_toolchain(context, release_in(config)),
        code_folder=code_folder,
        packaged=None if image == compressed else compressed,
    )


def _choose(apt: AptRoot, spec: KernelSpec) -> list[Package]:
    assert spec.packages is not None
    arch = DEBIAN_ARCHITECTURE[spec.arch]
    try:
        image = apt.show(_dependency(apt.show(spec.packages.image, arch), r"linux-image-[0-9]\S*"), arch)
        headers = apt.show(_dependency(apt.show(spec.packages.headers, arch), r"linux-headers-[0-9]\S*"), arch)
        common = apt.show(_dependency(headers, r"linux-headers-\S*-common"), "all")
        kbuild = apt.show(_dependency(headers, r"linux-kbuild-\S+"), HOST_ARCHITECTURE)
    except NoSuchPackageError as error:
        raise HostError(f"no kernel {spec.name}: {error.what}", detail=error.detail, hint=ANOTHER_MIRROR) from None
    return [image, headers, common, kbuild]


def _dependency(package: Package, pattern: str) -> str:
    for alternative in re.split(r"[,|]", package.depends):
        name = alternative.split("(")[0].strip()
        if re.fullmatch(pattern, name):
            return name
    raise NoSuchPackageError(f"{package.name} {package.version} depends on no package like {pattern}")


def _uncompressed(
    context: BuildContext, compressed: Path, key: str, spec: KernelSpec, config: Mapping[str, str]
) -> Path:
    """A folder with the ELF image and its symbols; without the image where that cannot be taken out."""

    def build(folder: Path) -> None:
        context.say(f"uncompressing the kernel of {spec.name}")
        elf = vmlinux.extract(compressed.read_bytes())
        if elf is not None:
            write_code(folder, elf, absolute_percpu=config.get("CONFIG_KALLSYMS_ABSOLUTE_PERCPU") == "y")

    inputs = {"kernel": key, "contents": "image, symbols; xz, zstd"}  # earlier versions had less
    return context.cache.obtain("vmlinux", inputs, spec.name, build).path


def _startable(
    context: BuildContext, compressed: Path, uncompressed: Path, spec: KernelSpec, config: Mapping[str, str]
) -> Path:
    """The image that starts without decompressing itself, or the compressed one where there is none."""
    if not uncompressed.exists():
        return compressed
    if config.get("CONFIG_PVH") == "y":
        return uncompressed

    def build(folder: Path) -> None:
        flat = flat_image(compressed.read_bytes(), uncompressed.read_bytes())
        if flat is not None:
            (folder / _FLAT).write_bytes(flat)

    inputs = {"uncompressed": uncompressed.parent.name, "form": "flat"}
    flat = context.cache.obtain("vmlinux", inputs, spec.name, build).path / _FLAT
    return flat if flat.exists() else compressed
