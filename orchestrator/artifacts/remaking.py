# SPDX-License-Identifier: GPL-2.0-only
"""How an artifact is made again that is gone from the cache: by its kind, its label and its inputs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from orchestrator.artifacts.boot_files import disk_drivers, initramfs
from orchestrator.artifacts.cache import Artifact, BuildContext
from orchestrator.artifacts.cache_entries import Kind
from orchestrator.artifacts.compiler import guest_programs, guest_toolchain
from orchestrator.artifacts.images import ready_image, system_archive, system_packages
from orchestrator.artifacts.kernel_build import merged
from orchestrator.artifacts.kernel_source import kernel_source, source_label
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.artifacts.module_source import ModuleSource
from orchestrator.artifacts.modules import build_modules
from orchestrator.catalog.images import images
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.kernels import kernels
from orchestrator.errors import HostError


def remake(context: BuildContext, artifact: Artifact) -> bool:
    """Make an artifact again; False where nothing that is known here makes it, so that its next user must.

    Raises LabError where it cannot be made now.
    """
    make = _MAKERS.get(Kind(artifact.kind))
    if make is not None:
        make(context, artifact)
    return artifact.stamp.exists()


def _packages(context: BuildContext, artifact: Artifact) -> None:
    name = artifact.label
    if name.partition("@")[0] in kernels():
        ready_kernel(context, kernel_spec(name))
    elif name.startswith("busybox-"):
        for kernel in _kernels_at_hand(context):
            if kernel.spec.arch == name.removeprefix("busybox-"):
                initramfs(context, kernel)
                return
    elif name.startswith("linux-source"):
        kernel_source(context, name)
    else:
        guest_toolchain(context)


def _source(context: BuildContext, artifact: Artifact) -> None:
    for spec in kernels().values():
        if spec.source is not None and artifact.label == source_label(spec.source, spec.patches, spec.files):
            kernel_source(context, spec.source, spec.patches, spec.files)


def _kernel(context: BuildContext, artifact: Artifact) -> None:
    if artifact.label.partition("@")[0] not in kernels():
        return
    spec = kernel_spec(artifact.label)
    if spec.source is not None:
        source = kernel_source(context, spec.source, spec.patches, spec.files)
        if (source.key, merged(spec)) != (artifact.inputs.get("source"), artifact.inputs.get("config")):
            return  # an earlier version's, which nothing asks for any more
    ready_kernel(context, spec)


def _initramfs(context: BuildContext, artifact: Artifact) -> None:
    make = initramfs if artifact.label.startswith("initramfs") else disk_drivers
    for kernel in _kernels_at_hand(context):
        if kernel.spec.name == artifact.label.rpartition(" of ")[2]:
            make(context, kernel)


def _image(context: BuildContext, artifact: Artifact) -> None:
    for name, recipe in images().items():
        if artifact.label == system_packages(recipe).name:
            system_archive(context, recipe)
        elif artifact.label == name:
            ready_image(context, recipe)


def _module(context: BuildContext, artifact: Artifact) -> None:
    files, name = artifact.inputs.get("files"), artifact.inputs.get("name")
    if isinstance(files, dict) and isinstance(name, str):
        for kernel in _kernels_at_hand(context):
            if kernel.key == artifact.inputs.get("kernel"):
                build_modules(context, kernel, [ModuleSource(name, files)])


def _kernels_at_hand(context: BuildContext) -> Iterator[Kernel]:
    """The kernels of the catalogue that need not be fetched or built."""
    for spec in kernels().values():
        try:
            yield ready_kernel(replace(context, offline=True), spec)
        except HostError:
            continue


_MAKERS: Mapping[Kind, Callable[[BuildContext, Artifact], object]] = {
    Kind.DEBIAN: _packages,
    Kind.TOOLCHAINS: lambda context, _: guest_toolchain(context),
    Kind.KERNEL_SOURCE: _source,
    Kind.KERNELS: _kernel,
    Kind.VMLINUX: _kernel,
    Kind.PROGRAMS: lambda context, artifact: guest_programs(context, artifact.label.rpartition(", ")[2]),
    Kind.INITRAMFS: _initramfs,
    Kind.ARCHIVES: _image,
    Kind.IMAGES: _image,
    Kind.MODULES: _module,
}
"""The other kinds belong to a user's file, or are made by a guest."""
