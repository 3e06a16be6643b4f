# SPDX-License-Identifier: GPL-2.0-only
"""Kernels ready to boot: unpacked images, and the headers to build modules with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from orchestrator.arch import ARCHITECTURES, HOST
from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.built_tree import check_built
from orchestrator.artifacts.cache import Artifact, digest
from orchestrator.artifacts.debian_mirror import ANOTHER_MIRROR
from orchestrator.artifacts.debian_package import NoSuchPackageError, Package
from orchestrator.artifacts.flat_kernel import flat_image
from orchestrator.artifacts.function_entry import entry_offset
from orchestrator.artifacts.kernel_build import built_kernel
from orchestrator.artifacts.kernel_code import SYSTEM_MAP, VMLINUX, KernelCode, code_of_tree, write_code
from orchestrator.artifacts.kernel_config import implied_options
from orchestrator.artifacts.kernel_image import extract
from orchestrator.artifacts.own_kernel_build import own_variant
from orchestrator.artifacts.pinned_packages import origins, versions
from orchestrator.artifacts.toolchain import Toolchain, compiler_in, matching_toolchain, release_in, tree_toolchain
from orchestrator.artifacts.tree_headers import headers_digest
from orchestrator.artifacts.unpacked_packages import unpacked_packages
from orchestrator.catalog.debian_release import debian
from orchestrator.catalog.kernel_variants import parameter_name
from orchestrator.catalog.kernels import DRIVERS, IMAGE, NEWEST, RELEASE, KernelSpec, read_config, version_numbers
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import sha256_of
from orchestrator.guest.machine import machine_facts
from orchestrator.steps import step

_FLAT = "flat-bzImage"

CODE_HINT = "your own build tree needs vmlinux and System.map, or a bzImage compressed by gzip, xz or zstd"
"""What to do about a kernel without ``Kernel.code``."""


class UnusableTreeError(HostError):
    """The kernel in a user's build tree cannot be used as it is. At another revision it may be."""


@dataclass(frozen=True)
class Kernel:
    """A kernel to boot: QEMU loads ``image``, ``modules`` is the folder of drivers, ``key`` identifies the content.

    ``make -C HEADERS -f MAKEFILE`` with the ``toolchain`` builds modules for it. ``origin`` has version and suite of
    the packages it comes from. ``code_folder`` has vmlinux and System.map if ``headers`` lacks them; ``packaged`` is
    the package's own image if ``image`` was derived from it. ``implied`` are the options that a variant's own options
    changed besides themselves.
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
    implied: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def module_inputs(self) -> Mapping[str, str]:
        """What a module's build depends on besides its sources; of a user's tree all that it reads there."""
        inputs = {"kernel": self.key, "compiler": self.toolchain.version}
        is_fixed = self.spec.tree is None or self.headers != self.spec.tree  # a variant is in the cache
        return inputs if is_fixed else {**inputs, "headers": headers_digest(self.headers)}

    @property
    def code(self) -> KernelCode | None:
        return code_of_tree(self.code_folder or self.headers)

    @property
    def drivers_built_in(self) -> bool:
        return all(self.config.get(option) == "y" for option in DRIVERS)

    def entry_offset(self, symbol: str) -> int:
        """Bytes from a function's symbol to its own first instruction; the kernel's usual value without its code."""
        offset = None if self.code is None else entry_offset(self.code, symbol)
        return self.spec.entry_offset if offset is None else offset

    @property
    def compiler_note(self) -> str | None:
        compiler, usual = compiler_in(self.config), f"gcc {debian().compiler}"
        if compiler != self.toolchain.compiler:
            return (
                f"the module was compiled by {self.toolchain.compiler}, the kernel by {compiler or 'another compiler'}"
            )
        if self.spec.source is not None and compiler != usual:
            return f"kernel and module were compiled by {compiler}, and not by {usual} as elsewhere"
        return None

    @property
    def smp(self) -> bool:
        return self.config.get("CONFIG_SMP") == "y"


def ready_kernel(context: BuildContext, spec: KernelSpec) -> Kernel:
    """The kernel of ``spec``, fetched, built, or a user's. Raises HostError, BuildError, UnbuiltTreeError."""
    with step(f"get kernel {spec.name} ready"):
        if spec.packages is not None:
            kernel = _debian_kernel(context, spec)
        else:
            kernel = _user_kernel(context, spec) if spec.tree is not None else _lab_kernel(context, spec)
        _check_parameters(kernel)
        return kernel


def _check_parameters(kernel: Kernel) -> None:
    """Raise UsageError for parameters of a variant that its kernel's image does not have, such as misspelt ones.

    A kernel passes a parameter that it does not know on to the first process (init/main.c, unknown_bootoption), so
    nothing would change. Names lie in the image as texts (include/linux/init.h, __setup_param; moduleparam.h). One that
    the kernel looks up itself (cmdline_find_option) may be the end of another, as pti is of nopti: the linker merges.
    """
    vmlinux = (kernel.code_folder or kernel.headers) / VMLINUX
    if not kernel.spec.parameters or not vmlinux.is_file():
        return
    image, usual = vmlinux.read_bytes(), {parameter_name(word) for word in machine_facts().kernel_parameters}
    for word in kernel.spec.parameters:
        if parameter_name(word) in usual:  # nokaslr is in the decompressor only
            continue
        name = re.escape(parameter_name(word).encode()).replace(b"_", b"[_-]")
        if re.search(rb"\0(no)?%s=?\0" % name, image) is None:
            what = f"kernel {kernel.spec.of_catalogue} ({kernel.release}) has no parameter '{word.partition('=')[0]}'"
            raise UsageError(what, hint="see Documentation/admin-guide/kernel-parameters.txt of its version")


def _user_kernel(context: BuildContext, spec: KernelSpec) -> Kernel:
    """The kernel of a user's build tree. The tree may change between runs, so the key is a digest of its content.

    Raises UnbuiltTreeError for a tree that has changed since its kernel was built, UnusableTreeError.
    """
    assert spec.tree is not None
    assert spec.image is not None
    try:
        config = read_config(spec.tree / ".config")
        release = (spec.tree / RELEASE).read_text().strip()
        content = sha256_of(spec.image)
        check_built(context, spec.tree, spec.image)
    except OSError as error:
        what = f"the kernel in {spec.tree} cannot be read: {error.strerror}"
        raise UnusableTreeError(what, where=str(error.filename or "")) from None
    lacking = [option for option in DRIVERS if config.get(option) != "y"]
    if lacking:
        what = f"the kernel in {spec.tree} cannot communicate with the lab: {', '.join(lacking)} must be y, not m"
        hint = "scripts/config -e VIRTIO_MENU -e VIRTIO_PCI -e VIRTIO_CONSOLE, and build it again"
        raise UnusableTreeError(what, hint=hint)
    key, tree, image = digest({"image": content, "config": config}), spec.tree, spec.image
    implied: Mapping[str, str] = {}
    toolchain = tree_toolchain(context, config)
    if spec.options:
        artifact = own_variant(context, spec, key, toolchain)
        key, tree, implied = artifact.key, artifact.path / "build", implied_options(artifact.path)
        config, image = read_config(tree / ".config"), tree / IMAGE
        release = (tree / RELEASE).read_text().strip()
    is_whole = all((tree / name).is_file() for name in (VMLINUX, SYSTEM_MAP))
    return Kernel(
        spec=spec,
        release=release,
        key=key,
        image=image,
        modules=tree / "no-drivers",  # what a guest needs is built in
        headers=tree,
        headers_makefile=tree / "Makefile",
        packages={},
        config=config,
        toolchain=toolchain,
        code_folder=None if is_whole else _uncompressed(context, image, key, spec, config),
        implied=implied,
    )


def _lab_kernel(context: BuildContext, spec: KernelSpec) -> Kernel:
    artifact = built_kernel(context, spec)
    build = artifact.path / "build"
    try:
        release = (build / "include/config/kernel.release").read_text().strip()
        config = read_config(build / ".config")
    except OSError as error:
        hint = f"remove it and run again: rm -r '{artifact.path}'"
        raise LabError(f"the build tree of {spec.name} is incomplete ({error})", hint=hint) from None
    return Kernel(
        spec=spec,
        release=release,
        key=artifact.key,
        image=build / "arch/x86/boot/bzImage",
        modules=artifact.path / "no-drivers",  # what a guest needs is built in
        headers=build,
        headers_makefile=build / "Makefile",
        packages={},
        origin=origins(context, spec.source or ""),
        config=config,
        toolchain=matching_toolchain(context, release_in(config)),
        implied=implied_options(artifact.path),
    )


def _debian_kernel(context: BuildContext, spec: KernelSpec) -> Kernel:
    artifact = newest_packages(context, spec) if spec.is_searched else _packages(context, spec)
    root = artifact.path
    try:
        # Since Debian 13, packages have everything below /usr.
        modules = next(p for p in (root / "lib/modules", root / "usr/lib/modules") if p.is_dir())
        release = next(p.name for p in sorted(modules.iterdir()))
        headers = root / "usr/src" / f"linux-headers-{release}"
        common = next((p for p in sorted((root / "usr/src").glob("linux-headers-*-common"))), headers)
        # The image is in the modules' folder since Linux 6.19.
        places = [root / f"boot/config-{release}", modules / release / "config", headers / ".config"]
        configuration = next(place for place in places if place.exists())
        if configuration == places[-1]:
            context.cache.verify(configuration)
        config = read_config(configuration)
        compressed = next(p for p in (root / f"boot/vmlinuz-{release}", modules / release / "vmlinuz") if p.exists())
    except (StopIteration, OSError) as error:
        hint = f"remove it and run again: rm -r '{root}'"
        raise LabError(f"the unpacked packages of {spec.name} are incomplete ({error})", hint=hint) from None
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
        origin=origins(context, spec.of_catalogue),
        config=config,
        toolchain=matching_toolchain(context, release_in(config)),
        code_folder=code_folder,
        packaged=None if image == compressed else compressed,
    )


def _packages(context: BuildContext, spec: KernelSpec) -> Artifact:
    assert spec.packages is not None
    arch, image, headers = ARCHITECTURES[spec.arch].debian, spec.packages.image, spec.packages.headers

    def choose(apt: AptRoot) -> list[Package]:
        try:
            newest = apt.show(apt.show(image, arch).dependency(r"linux-image-[0-9]\S*"), arch)
            its_headers = apt.show(apt.show(headers, arch).dependency(r"linux-headers-[0-9]\S*"), arch)
            return [newest, *_with_tools(apt, its_headers)]
        except NoSuchPackageError as error:
            raise HostError(f"no kernel {spec.name}: {error.what}", detail=error.detail, hint=ANOTHER_MIRROR) from None

    return unpacked_packages(context, spec.of_catalogue, spec.arch, choose)


def newest_packages(context: BuildContext, spec: KernelSpec) -> Artifact:
    """The newest kernel of a version in the available suites. Raises HostError that lists the versions there are."""
    assert spec.packages is not None
    arch, is_newest = ARCHITECTURES[spec.arch].debian, spec.version == NEWEST
    # 7.3.4+deb13, 7.4~rc1+deb14 and, up to Debian 12, 6.1.0-41.
    release = r"\d+\.\d+[.~][a-z0-9.+~]+(?:-\d+)?"
    pattern = re.compile(r".*" if is_newest else rf"linux-image-{re.escape(spec.version)}(?!\d).*")
    available: list[str] = []
    gone: list[str] = []

    def choose(apt: AptRoot) -> list[Package]:
        images = apt.names(rf"linux-image-{release}-{spec.packages.flavour}") if spec.packages else []
        versions = dict.fromkeys(".".join(map(str, version_numbers(name)[:2])) for name in images)
        available.append(apt.suites.having(versions))
        for name in filter(pattern.fullmatch, reversed(images)):
            try:
                return _parts(apt, name, arch)
            except NoSuchPackageError as error:
                gone.append(error.what)
        raise NoSuchPackageError(f"no {spec.name}")

    try:
        places = debian().elsewhere
        return unpacked_packages(context, spec.of_catalogue, spec.arch, choose, places=places, is_newest=is_newest)
    except NoSuchPackageError:
        what = f"Debian has no kernel {spec.name} available: {'; '.join(available)}{f' ({gone[0]})' if gone else ''}"
        raise HostError(what, hint=ANOTHER_MIRROR) from None


def _parts(apt: AptRoot, image: str, arch: str) -> list[Package]:
    """The packages of an image (several since Linux 6.19), with headers if the archive still has them."""
    release, package = image.removeprefix("linux-image-"), apt.show(image, arch)
    names = package.dependencies(rf"linux-(?:binary|modules)-{re.escape(release)}")
    if names:  # no part contains the configuration
        names.insert(0, package.dependency(f"linux-base-{re.escape(release)}"))
    parts = [apt.show(name, arch) for name in names]
    try:
        headers = _with_tools(apt, apt.show(f"linux-headers-{release}", arch))
    except NoSuchPackageError:
        headers = []
    return [package, *parts, *headers]


def _with_tools(apt: AptRoot, headers: Package) -> list[Package]:
    """A kernel's headers, with the headers, programs and libraries that a module's build needs besides."""
    common = apt.show(headers.dependency(r"linux-headers-\S*-common"), "all")
    tools = [apt.show(headers.dependency(r"linux-kbuild-\S+"), HOST.debian)]
    for package in tools if apt.suites.suites[0] != debian().release else ():
        known = {chosen.name for chosen in tools}
        libraries = package.dependencies(r"(?:lib|zlib)\S+")
        tools += [apt.show(name, HOST.debian) for name in libraries if name not in known]
    return [headers, common, *tools]


def _uncompressed(
    context: BuildContext, compressed: Path, key: str, spec: KernelSpec, config: Mapping[str, str]
) -> Path:
    def build(folder: Path) -> None:
        context.say(f"uncompressing the kernel of {spec.name}")
        elf = extract(compressed.read_bytes())
        if elf is not None:
            write_code(folder, elf, absolute_percpu=config.get("CONFIG_KALLSYMS_ABSOLUTE_PERCPU") == "y")

    inputs = {"kernel": key, "contents": "image, symbols; xz, zstd; relative"}  # earlier versions stored less
    return context.cache.obtain("vmlinux", inputs, spec.name, build).path


def _startable(
    context: BuildContext, compressed: Path, uncompressed: Path, spec: KernelSpec, config: Mapping[str, str]
) -> Path:
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
